"""Linking kernels to the part of the device library that is compiled once.

A kernel is assembled for linking, and linked to an object with the rest of the library, by
nvJitLink (https://docs.nvidia.com/cuda/nvjitlink) or, where there is none, by the driver.
"""

from __future__ import annotations

import ctypes
import functools
import gzip
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .._errors import Error

#: What nvJitLink and the driver call machine code (`NVJITLINK_INPUT_CUBIN`, `CU_JIT_INPUT_CUBIN`).
NVJITLINK_CUBIN, DRIVER_CUBIN = 1, 0
#: Options of the driver's linker: where errors are written, and how many bytes there are.
ERROR_LOG, ERROR_LOG_BYTES = 5, 6
INSTEAD = 'set `launch.link = "whole"` (GSAN_LAUNCH_LINK=whole) to compile without linking'


class LinkError(Error):
    """A kernel was not linked to the device library."""


class NvJitLink:
    """nvJitLink, a library of CUDA."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def name(self) -> str:
        """Its name and version."""
        major, minor = ctypes.c_uint(), ctypes.c_uint()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        return f"nvJitLink {major.value}.{minor.value}"

    def link(self, architecture: str, objects: list[bytes]) -> bytes:
        """The machine code of all objects, for an architecture such as `sm_90a`."""
        handle = ctypes.c_void_p()
        options = (ctypes.c_char_p * 1)(f"-arch={architecture}".encode())
        self._call("Create", ctypes.byref(handle), ctypes.c_uint32(1), options)
        try:
            for code in objects:
                size = ctypes.c_size_t(len(code))
                self._call("AddData", handle, NVJITLINK_CUBIN, code, size, b"gsan")
            self._call("Complete", handle)
            size = ctypes.c_size_t()
            self._call("GetLinkedCubinSize", handle, ctypes.byref(size))
            linked = ctypes.create_string_buffer(size.value)
            self._call("GetLinkedCubin", handle, linked)
            return linked.raw
        except LinkError as error:
            raise LinkError(f"{error}: {self._log(handle)}") from None
        finally:
            self._library.nvJitLinkDestroy(ctypes.byref(handle))

    def _call(self, name: str, *arguments: object) -> None:
        if result := getattr(self._library, f"nvJitLink{name}")(*arguments):
            raise LinkError(f"nvJitLink{name} gives {result}")

    def _log(self, handle: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        if self._library.nvJitLinkGetErrorLogSize(handle, ctypes.byref(size)) or not size.value:
            return "it does not say why"
        log = ctypes.create_string_buffer(size.value)
        self._library.nvJitLinkGetErrorLog(handle, log)
        return log.value.decode(errors="replace").strip()


class Driver:
    """The linker of the CUDA driver, in the current context."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def name(self) -> str:
        """What it is."""
        return "that of the CUDA driver"

    def link(self, architecture: str, objects: list[bytes]) -> bytes:
        """The machine code of all objects, for the device of the current context."""
        state = ctypes.c_void_p()
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        self._call("cuLinkCreate_v2", 2, options, values, ctypes.byref(state))
        try:
            for code in objects:
                size = ctypes.c_size_t(len(code))
                rest = (b"gsan", 0, None, None)
                self._call("cuLinkAddData_v2", state, DRIVER_CUBIN, code, size, *rest)
            linked, size = ctypes.c_void_p(), ctypes.c_size_t()
            self._call("cuLinkComplete", state, ctypes.byref(linked), ctypes.byref(size))
            return ctypes.string_at(linked, size.value)
        except LinkError as error:
            why = log.value.decode(errors="replace").strip() or f"for {architecture}"
            raise LinkError(f"{error}: {why}") from None
        finally:
            self._library.cuLinkDestroy(state)

    def _call(self, name: str, *arguments: object) -> None:
        if result := getattr(self._library, name)(*arguments):
            raise LinkError(f"{name} gives {result}")


def _places() -> Iterator[str]:
    """Where nvJitLink may lie: in its packages, where the loader looks, and in CUDA's folder."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        for pattern in ("cu1?/lib/libnvJitLink.so.*", "nvjitlink/lib/libnvJitLink.so.*"):
            yield from map(str, sorted(Path(folder).glob(pattern), reverse=True))
    yield from ("libnvJitLink.so.13", "libnvJitLink.so.12")
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    yield str(Path(home) / "lib64" / "libnvJitLink.so")


@functools.cache
def linkers() -> tuple[NvJitLink | Driver, ...]:
    """What can link on this machine, best first."""
    found: list[NvJitLink | Driver] = []
    for place in _places():
        try:
            found.append(NvJitLink(ctypes.CDLL(place)))
        except OSError:
            continue
    try:
        found.append(Driver(ctypes.CDLL("libcuda.so.1")))
    except OSError:
        pass
    return tuple(found)


@dataclass(frozen=True)
class Target:
    """What code is made for, such as `sm_90a`, and Triton's assembler for it."""

    architecture: str
    assembler: str
    version: str


def link(target: Target, objects: list[bytes]) -> bytes:
    """The machine code of a kernel and what it calls.

    Raises:
        LinkError: nothing that is there can link them.
    """
    why = "there is neither nvJitLink (`pip install nvidia-nvjitlink`) nor a CUDA driver"
    for linker in linkers():
        try:
            return linker.link(target.architecture, objects)
        except LinkError as error:
            why = str(error)
    raise LinkError(f"the kernel is not linked to the device library: {why}; {INSTEAD}")


#: How many registers functions keep as they found them (PTX ISA, `.abi_preserve`): the more, the
#: less their callers put away, and the more they do themselves. A function puts away at its start
#: what it keeps and what it calls does not. So functions that are called keep more than callers,
#: down from those that kernels call at each access, which keep little.
#: A return address lies in the last two registers that the callee keeps: if it keeps N, in R(N+14)
#: and R(N+15). The parameters of a function that itself keeps K lie from about R(K+20) on. There no
#: return address may lie that the function makes: ptxas puts it over a parameter that is needed
#: later. `gsan-device/tests/link_triton.py` looks at machine code for that.
KEEPS = {
    "access_tensor_whole": 16,
    "begin_by_call": 16,
    "end_by_call": 16,
    # A kernel has nothing in registers yet, and nothing any more.
    "start_by_warp": 16,
    "leave": 16,
    "claim_completions": 20,
    "complete_all": 20,
    "carry_over": 34,
    # Kernels hold tiles meanwhile.
    "access_box": 80,
    "access_indexed": 80,
    "access_rest_of_box": 84,
    "note_cluster_copy": 84,
    "site_by_pointer": 82,
    "add_site": 84,
    "site_by_text": 86,
    # What checks an access.
    "access_by_frontier": 64,
    "access_granule": 66,
    "survey_by_call": 68,
    "check_write_once": 68,
    "report": 68,
    "may_be_of_one_cta": 70,
    "is_ordered_elsewhere": 70,
    "victim": 72,
    "tell": 66,
    "halt": 66,
    "end_on_write_once": 34,
    "begin_unchecked": 36,
    "finding_by_call": 44,
    "count": 62,
    # What releases.
    "publish": 66,
    "release_into": 66,
    "is_contained": 68,
    "contains": 68,
    "join": 68,
    "look_again_later": 68,
    "put": 70,
    "joined_publication": 70,
    "copy_own": 72,
    "put_top": 88,
    "frontier_snapshot": 92,
    # What acquires.
    "observe": 64,
    "acquire": 66,
    "acquire_everything_so_far": 66,
    "absorb": 68,
    "absorb_snapshot": 70,
    "absorb_at_once": 70,
    "take_part": 66,
    "beyond": 68,
    "learn_checkpoint": 86,
    "later_checkpoint": 88,
    "take_checkpoint": 90,
    "covering_checkpoint": 92,
    "read_publication": 94,
    "make_private_clock": 96,
}
#: Others that kernels call.
RARELY = 64
#: How many registers there must be for that.
KEEPS_FROM = 128
#: The head of a function of ours: whether both parts know it, and its name.
FUNCTION = re.compile(r"^(\.weak |\.extern )?\.func\s+(?:\(.*?\)\s*)?_ZNK?4gsan\d+([a-z_]+)")


def can_keep(ptx: str, registers: int) -> bool:
    """Whether the assembler can be told what functions keep."""
    version = re.search(r"^\.version\s+(\d+)", ptx, flags=re.MULTILINE)
    return version is not None and int(version[1]) >= 9 and registers >= KEEPS_FROM


def keeping(ptx: str) -> str:
    """PTX whose functions keep registers. Those that only this PTX knows, and that the list does
    not name, keep what they please."""
    lines: list[str] = []
    keeps: int | None = None
    for line in ptx.split("\n"):
        if found := FUNCTION.match(line):
            both, name = found.groups()
            keeps = KEEPS.get(name, RARELY if both else None)
        if keeps is not None and line.strip() in (";", "{"):
            lines.append(f".abi_preserve {keeps}")
            keeps = None
        lines.append(line)
    return "\n".join(lines)


#: A fence of the library, of which the comment says that half is enough.
HALF_FENCE = re.compile(r"fence\.acq_rel\.(\w+); // gsan: (acquire|release)$", re.MULTILINE)


def with_half_fences(ptx: str) -> str:
    """PTX with fences that only acquire or only release, if its version and GPU have them."""
    version = re.search(r"^\.version\s+(\d+)\.(\d+)", ptx, flags=re.MULTILINE)
    target = re.search(r"^\.target\s+sm_(\d+)", ptx, flags=re.MULTILINE)
    if version is None or target is None:
        return ptx
    if (int(version[1]), int(version[2])) < (8, 6) or int(target[1]) < 90:
        return ptx
    return HALF_FENCE.sub(r"fence.\2.\1;", ptx)


@functools.cache
def works(library: Path, target: Target, registers: int) -> bool:
    """Whether what the assembler makes can be linked: no linker takes what a later CUDA made."""
    # What kernels ask for, so that nothing is assembled for this alone: CUDA 13 has PTX 9.
    keeps = int(target.version.partition(".")[0]) >= 13 and registers >= KEEPS_FROM
    try:
        return bool(link(target, [assembled(library, target, registers, keeps)]))
    except LinkError:
        return False


_assembling = threading.Lock()


def assembled(library: Path, target: Target, registers: int, keeps: bool = False) -> bytes:
    """The part of a library that is compiled once, assembled for at most so many registers of a
    thread; `keeps`: for kernels of `keeping`. Triton's cache holds it.

    Raises:
        LinkError: the assembler fails.
    """
    with _assembling:
        return _assembled(library, target, registers, keeps)


@functools.lru_cache(maxsize=16)
def _assembled(library: Path, target: Target, registers: int, keeps: bool) -> bytes:
    from triton.runtime.cache import get_cache_manager

    options = [f"--gpu-name={target.architecture}", f"--maxrregcount={registers}"]
    options += ["--compile-only", "--split-compile=0"]
    ptx = gzip.decompress(library.read_bytes()).decode()
    if keeps:
        ptx = re.sub(r"^\.version .*", ".version 9.0", ptx, flags=re.MULTILINE)
        if int(re.sub(r"\D", "", target.architecture)) >= 90:
            ptx = re.sub(r"^\.target .*", ".target sm_90", ptx, flags=re.MULTILINE)
        ptx = keeping(with_half_fences(ptx))
    key = hashlib.sha256(" ".join([ptx, target.version, *options]).encode()).hexdigest()
    cache = get_cache_manager(key)
    if kept := cache.get_file("gsan.o"):
        return Path(kept).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "gsan.ptx", Path(folder) / "gsan.o"
        source.write_text(ptx)
        command = [target.assembler, *options, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            why = f"{target.assembler} does not assemble {library}: {done.stderr}"
            raise LinkError(f"{why}; {INSTEAD}")
        code = made.read_bytes()
    cache.put(code, "gsan.o", binary=True)
    return code
