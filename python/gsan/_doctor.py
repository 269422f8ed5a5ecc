"""What of this Python works with GSan: the interpreter, the library, torch, Triton.

Nothing is started: packages are asked for their version without being imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from dataclasses import asdict, dataclass

from . import __version__, _native
from ._errors import LibraryNotFound
from ._install import SUPPORTED, unsupported

OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True)
class Check:
    """One thing that was looked for: what was found, or why it is missing and what to do."""

    subject: str
    found: str | None = None
    why: str | None = None
    cure: str | None = None


def checks() -> list[Check]:
    """All of them."""
    return [_python(), _library(), *_device_libraries(), _linker(), _torch(), _triton()]


def _python() -> Check:
    version = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", why=version, cure="install Python 3.10 or later")
    return Check("python", f"{version}, gsan {__version__}")


def _library() -> Check:
    try:
        library = _native.library()
    except LibraryNotFound as error:
        return Check("libgsan.so", why=str(error), cure="pip install . in the repository of GSan")
    version = (library.version() or b"").decode(errors="replace")
    return Check("libgsan.so", f"{version}, {library.path}")


def _device_libraries() -> list[Check]:
    try:
        paths = [_native.device_library(r, by_sm) for r in (2, 4) for by_sm in (False, True)]
    except LibraryNotFound as error:
        cure = "pip install . in the repository of GSan"
        return [Check("device library", why=str(error), cure=cure)]
    return [Check("device library", f"{len(paths)} variants in {paths[0].parent}")]


def _linker() -> Check:
    from ._plugin import linking

    if linkers := linking.linkers():
        return Check("linker", linkers[0].name())
    why = "neither nvJitLink nor a CUDA driver: kernels compile with all of the device library"
    return Check("linker", why=why, cure="pip install nvidia-nvjitlink, for faster compilation")


def _version(distribution: str) -> str | None:
    """The version of an installed distribution, or of a package that lies on the path without
    one.
    """
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> Check:
    version = _version("torch")
    if version is None:
        cure = "pip install torch, where the programs that you check use it"
        return Check("torch", why="not installed in this Python", cure=cure)
    return Check("torch", version)


def _triton() -> Check:
    version = _version("triton")
    supported = " and ".join(SUPPORTED)
    if version is None:
        cure = f'pip install "triton=={SUPPORTED[-1]}.*"'
        return Check("triton", why="not installed in this Python", cure=cure)
    if error := unsupported(version):
        why, _, cure = str(error).partition("; ")
        return Check("triton", why=why, cure=cure)
    return Check("triton", f"{version} (supported: {supported})")


def as_json(checks: list[Check]) -> str:
    """A JSON list of objects with `subject` and either `found` or `why` and `cure`."""
    return json.dumps([asdict(check) for check in checks], indent=1) + "\n"


def as_text(checks: list[Check]) -> str:
    """Lines in the form of `gsan doctor`."""
    width = max(len(check.subject) for check in checks)
    lines = []
    for check in checks:
        if check.found is not None:
            lines.append(f"ok       {check.subject:{width}}  {check.found}\n")
        else:
            lines.append(f"missing  {check.subject:{width}}  {check.why}\n")
            lines.append(f"{'':{width + 11}}help: {check.cure}\n")
    return "".join(lines)
