"""What hatchling calls to build the wheel: cargo for the library and the command, and a tag that
says that the wheel runs on any Python 3 of one platform.

`GSAN_WHEEL_PROFILE` names another profile of cargo than `release`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DEVICE_LIBRARIES = [
    f"gsan-{state}-{records}{part}"
    for state in ("shared", "by-sm")
    for records in "24"
    for part in (".bc", "-kernel.bc", "-once.ptx.gz")
]


class Wheel(BuildHookInterface):
    """Adds to the wheel what is not Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        library = build(root, "gsan-ffi", "cdylib", "libgsan.so")
        command = build(root, "gsan-cli", "bin", "gsan")
        included = build_data["force_include"]
        included[str(library)] = "gsan/_lib/libgsan.so"
        for name in DEVICE_LIBRARIES:
            included[str(root / "gsan-device" / "built" / name)] = f"gsan/_lib/{name}"
        build_data["shared_scripts"][str(command)] = "gsan"


def build(root: Path, package: str, kind: str, file: str) -> Path:
    """Builds a package with cargo and returns the file of that name, without its symbols."""
    profile = os.environ.get("GSAN_WHEEL_PROFILE", "release")
    command = ["cargo", "build", "--locked", "--profile", profile, "--package", package]
    command += ["--message-format", "json-render-diagnostics"]
    try:
        output = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError as error:
        raise RuntimeError(
            "cargo is not there, which builds the library; install Rust: https://rustup.rs"
        ) from error
    for line in output.stdout.splitlines():
        message = json.loads(line)
        kinds = message.get("target", {}).get("kind", [])
        for name in message.get("filenames", []):
            if kind in kinds and Path(name).name == file:
                return strip(Path(name))
    raise RuntimeError(f"cargo built no {file} of {package}")


def strip(path: Path) -> Path:
    """A copy without symbols, if there is `strip`; backtraces need line tables, users do not."""
    copy = path.parent / "wheel" / path.name
    copy.parent.mkdir(exist_ok=True)
    command = ["strip", "--strip-unneeded", "-o", str(copy), str(path)]
    try:
        subprocess.run(command, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return path
    return copy
