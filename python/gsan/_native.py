"""`libgsan.so` through ctypes: structures, signatures, errors. Nothing here decides anything.

Structures and functions are those of `gsan.h`. A call that fails raises with the library's own
words.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ssize_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from pathlib import Path
from typing import Any

from ._errors import Error, LibraryNotFound

#: The version of the C ABI that this package is written for.
ABI_VERSION = 1

#: Where the package keeps what it brings: the library and the device libraries.
FILES = Path(__file__).resolve().parent / "_lib"

STATUS = (
    "GSAN_OK",
    "GSAN_INVALID_ARGUMENT",
    "GSAN_FROZEN",
    "GSAN_LIVE",
    "GSAN_WRONG_ORDER",
    "GSAN_UNSUPPORTED",
    "GSAN_OUT_OF_MEMORY",
    "GSAN_TIMEOUT",
    "GSAN_NOT_FOUND",
    "GSAN_DEVICE",
    "GSAN_IO",
    "GSAN_INTERNAL",
)


class _Sized(Structure):
    """A structure whose first field is its size, filled in by the caller."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=sizeof(type(self)), **fields)


class Config(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_uint32),
        ("num_devices", c_uint32),
        ("device_ranks", POINTER(c_uint32)),
        ("num_local", c_uint32),
        ("records", c_uint32),
        ("clock_publications", c_uint32),
        ("seed", c_uint32),
        ("has_seed", c_uint32),
        ("handle_type", c_uint32),
        ("halt", c_uint32),
    ]


class Allocation(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("device", c_uint32),
        ("managed", c_uint32),
        ("write_once", c_uint32),
    ]


class SharedAllocation(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("real_fd", c_int),
        ("shadow_fd", c_int),
        ("bytes", c_uint64),
        ("real_bytes", c_uint64),
        ("shadow_bytes", c_uint64),
        ("offset", c_uint64),
        ("owner_rank", c_uint32),
        ("records", c_uint32),
        ("write_once", c_uint32),
        ("kind", c_uint32),
        ("owner", c_uint8 * 16),
        ("fabric", (c_uint8 * 64) * 2),
    ]


class SharedState(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("fd", c_int),
        ("rank", c_uint32),
        ("kind", c_uint32),
        ("bytes", c_uint64),
        ("owner", c_uint8 * 16),
        ("fabric", c_uint8 * 64),
    ]


class LaunchInfo(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("kernel", c_char_p),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("programmatic", c_uint32),
        ("opaque", c_uint32),
    ]


class Side(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("known", c_uint32),
        ("action", c_uint32),
        ("atomic", c_uint32),
        ("asynchronous", c_uint32),
        ("scope", c_uint32),
        ("device_rank", c_uint32),
        ("cta", c_uint32 * 3),
        ("line", c_uint32),
        ("launch", c_uint64),
        ("stream", c_uint64),
        ("file", c_char_p),
        ("kernel", c_char_p),
    ]


class Race(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_uint32),
        ("possible", c_uint32),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("times", c_uint64),
        ("allocation", c_uint64),
        ("allocation_bytes", c_uint64),
        ("earlier", Side),
        ("later", Side),
    ]


class Clock(Structure):
    _fields_ = [
        ("epoch", c_uint32),
        ("thread_id", c_uint32),
        ("scope", c_uint32),
        ("is_release", c_uint32),
    ]


class Cell(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("num_reads", c_uint32),
        ("write_clock", Clock),
        ("read_clocks", Clock * 4),
        ("read_count", c_uint32),
    ]


class ThreadState(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("thread_id", c_uint32),
        ("num_reads", c_uint32),
        ("num_threads", c_uint32),
        ("clock_buffer_head", c_uint32),
        ("clock_buffer_dirty", c_uint32),
        ("clock_buffer_size", c_uint32),
    ]


class GlobalState(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("num_sms", c_uint32),
        ("num_threads", c_uint32),
        ("num_devices", c_uint32),
        ("rng_seed", c_uint32),
        ("clock_buffer_size", c_uint32),
    ]


RaceCallback = CFUNCTYPE(c_int, POINTER(Race), c_void_p)
OnRace = CFUNCTYPE(None, POINTER(Race), c_void_p)
Cta = CFUNCTYPE(None, c_void_p, POINTER(c_uint32), c_void_p)

_U64, _U32, _SIZE = POINTER(c_uint64), POINTER(c_uint32), POINTER(c_size_t)
_STREAM, _HANDLE = c_void_p, c_void_p
_HANDLES = POINTER(c_void_p)

#: The functions that return a status, and what they take.
_CHECKED: dict[str, list[Any]] = {
    "configure": [POINTER(Config)],
    "configure_toml": [c_char_p],
    "configuration": [c_char_p, _SIZE],
    "freeze": [],
    "is_frozen": [POINTER(c_int)],
    "reset": [],
    "reserve": [_U64, _U64],
    "state_pointer": [_U64],
    "device_rank": [c_int, _U32],
    "live_allocations": [POINTER(Allocation), _SIZE],
    "find_allocation": [c_uint64, POINTER(Allocation)],
    "layout": [c_char_p, _SIZE],
    "supports_fabric": [c_int, POINTER(c_int)],
    "usage": [c_char_p, _SIZE],
    "doctor": [c_char_p, _SIZE],
    "export_allocation": [c_uint64, POINTER(SharedAllocation)],
    "import_allocation": [POINTER(SharedAllocation), c_int, _U64],
    "export_state": [c_int, POINTER(SharedState)],
    "import_state": [POINTER(SharedState), c_int],
    "rendezvous_join": [c_char_p, c_uint32, c_uint32, c_uint32, _HANDLES],
    "rendezvous_share": [_HANDLE, c_uint64, c_int, _U64],
    "rendezvous_exchange": [_HANDLE, c_void_p, c_size_t, c_void_p],
    "launch_begin": [c_int, _STREAM, POINTER(LaunchInfo), _HANDLES, _U64, _U64],
    "launch_end": [_HANDLE, c_int],
    "kernel_is_opaque": [c_char_p, POINTER(c_int), c_char_p, _SIZE],
    "event_recorded": [c_uint64, c_int, _STREAM],
    "event_waited": [c_uint64, c_int, _STREAM],
    "event_forgotten": [c_uint64],
    "event_synchronized": [c_uint64],
    "stream_waited": [c_int, _STREAM, _STREAM],
    "stream_synchronized": [c_int, _STREAM],
    "stream_forgotten": [c_int, _STREAM],
    "device_synchronized": [c_int],
    "memory_used": [c_uint64, c_uint64, c_int, _STREAM],
    "memory_freed": [c_uint64],
    "memory_handed_out": [c_uint64, c_uint64, c_int, _STREAM],
    "capture_ended": [c_int, c_uint64, _HANDLES],
    "capture_id": [c_int, _STREAM, _U64],
    "replay_begin": [_HANDLE, c_int, _STREAM, _HANDLES],
    "replay_end": [_HANDLE, c_int],
    "graph_close": [_HANDLE],
    "graph_begin": [c_int, _HANDLES],
    "graph_kernel": [
        _HANDLE,
        _U32,
        c_size_t,
        _U32,
        c_size_t,
        POINTER(LaunchInfo),
        _U32,
        _U64,
        _U64,
    ],
    "graph_other": [_HANDLE, _U32, c_size_t, _U32],
    "graph_record": [_HANDLE, _U32, c_size_t, c_uint64, _U32],
    "graph_wait": [_HANDLE, _U32, c_size_t, c_uint64, _U32],
    "graph_child": [_HANDLE, _U32, c_size_t, _HANDLE, _U32],
    "graph_copy": [_HANDLE, _U32, c_size_t, _HANDLE, _U32],
    "graph_finish": [_HANDLE, _HANDLES],
    "group_open": [c_int, _U32, c_size_t, _HANDLES],
    "group_barrier": [_HANDLE, _STREAM, c_uint32],
    "group_before_collective": [_HANDLE, _STREAM],
    "group_after_collective": [_HANDLE, _STREAM],
    "race_count": [_U64, _U64],
    "races": [RaceCallback, c_void_p],
    "on_race": [OnRace, c_void_p],
    "drain": [],
    "forget_races": [],
    "report": [c_char_p, c_char_p, _SIZE],
    "write_report": [c_char_p, c_char_p],
    "finish": [],
    "cell_at": [c_uint64, POINTER(Cell)],
    "thread_state_at": [c_int, c_uint32, POINTER(ThreadState), _U32, _SIZE],
    "global_state_of": [c_int, POINTER(GlobalState)],
    "host_stream_create": [c_int, c_int, _HANDLES],
    "host_stream_destroy": [c_int, _STREAM],
    "host_stream_synchronize": [c_int, _STREAM],
    "host_event_create": [_U64],
    "host_launch": [c_int, _STREAM, POINTER(LaunchInfo), Cta, c_void_p],
    "host_replay": [_HANDLE, _STREAM, c_uint32, Cta, c_void_p],
    "host_read": [_HANDLE, c_uint64, c_void_p, c_size_t, c_char_p, c_uint32],
    "host_write": [_HANDLE, c_uint64, c_void_p, c_size_t, c_char_p, c_uint32],
    "host_atomic": [
        _HANDLE,
        c_uint32,
        c_uint64,
        c_size_t,
        c_uint64,
        c_uint64,
        _U64,
        c_uint32,
        c_uint32,
        c_char_p,
        c_uint32,
    ],
}

#: The others: name, result, what they take.
_PLAIN: list[tuple[str, Any, list[Any]]] = [
    ("gsan_abi_version", c_uint32, []),
    ("gsan_version", c_char_p, []),
    ("gsan_last_error", c_char_p, []),
    ("gsan_state_stride", c_uint64, []),
    ("gsan_rendezvous_close", None, [_HANDLE]),
    ("gsan_group_close", None, [_HANDLE]),
    ("gsanMalloc", c_void_p, [c_ssize_t, c_int, _STREAM]),
    ("gsanMallocWriteOnce", c_void_p, [c_ssize_t, c_int, _STREAM]),
    ("gsanFree", None, [c_void_p, c_ssize_t, c_int, _STREAM]),
]


def _places() -> list[Path]:
    """Where the library may be: where the program says, in the package, in a build of the
    sources.
    """
    if named := os.environ.get("GSAN_LIBRARY"):
        return [Path(named)]
    places = [FILES / "libgsan.so"]
    sources = FILES.parents[2]
    if (sources / "gsan-ffi" / "Cargo.toml").is_file():
        built = [sources / "target" / profile / "libgsan.so" for profile in ("release", "debug")]
        built = [path for path in built if path.is_file()]
        places += sorted(built, key=lambda path: path.stat().st_mtime, reverse=True)
    return places


def library_path() -> Path:
    """The file of `libgsan.so`.

    `GSAN_LIBRARY` names another one.

    Raises:
        LibraryNotFound: no such file.
    """
    places = _places()
    if found := next((path for path in places if path.exists()), None):
        return found
    where = ", ".join(str(path) for path in places)
    raise LibraryNotFound(
        f"libgsan.so is not there; looked for {where}. Install the wheel again "
        "(pip install . in the repository), or name the file in GSAN_LIBRARY",
        "GSAN_NOT_FOUND",
    )


class Library:
    """The functions of `libgsan.so` without their prefix; those with a status raise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryNotFound(f"{path} cannot be loaded: {error}", "GSAN_IO") from error
        if not hasattr(self._dll, "gsan_abi_version"):
            raise LibraryNotFound(f"{path} is no libgsan.so", "GSAN_UNSUPPORTED")
        for name, result, takes in _PLAIN:
            function = self._function(name)
            function.restype, function.argtypes = result, takes
            setattr(self, name.removeprefix("gsan_"), function)
        version = self.abi_version()
        if version != ABI_VERSION:
            raise LibraryNotFound(
                f"{path} has version {version} of the C ABI; this package needs {ABI_VERSION}. "
                "Library and package must be of one build",
                "GSAN_UNSUPPORTED",
            )
        for name, takes in _CHECKED.items():
            function = self._function("gsan_" + name)
            function.restype, function.argtypes = c_int, takes
            setattr(self, "try_" + name, function)
            setattr(self, name, self._checked(function))

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._dll, name)
        except AttributeError:
            return _missing(name, self.path)

    def _checked(self, function: Any) -> Any:
        def call(*arguments: Any) -> None:
            if status := function(*arguments):
                raise self.error(status)

        return call

    def unconverted(self, name: str) -> Any:
        """A function that returns a status, and takes objects of ctypes of the right types.

        For what is called at each launch: ctypes takes longer to check and convert arguments than
        such a function runs.
        """
        try:
            # Not the attribute, which is one object for all and knows the types.
            return self._dll["gsan_" + name]
        except AttributeError:
            return _missing("gsan_" + name, self.path)

    def error(self, status: int) -> Error:
        """What the last call of this thread failed with."""
        name = STATUS[status] if status < len(STATUS) else f"status {status}"
        message = (self.last_error() or b"").decode(errors="replace")
        return Error(message or name, name)

    def text(self, name: str, *arguments: Any) -> str:
        """What a function says that fills a buffer."""
        function = getattr(self, name)
        room = c_size_t(0)
        function(*arguments, None, byref(room))
        while True:
            buffer = ctypes.create_string_buffer(max(room.value, 1))
            room = c_size_t(len(buffer))
            function(*arguments, buffer, byref(room))
            # What is to be said may have grown since it was asked how much it is.
            if room.value <= len(buffer):
                return buffer.value.decode(errors="replace")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.path} has no function {name}")


def _missing(name: str, path: Path) -> Any:
    """Stands for a function that the library does not have."""

    def missing(*_: Any) -> Any:
        raise Error(f"{path} has no function {name}: it is of another build", "GSAN_UNSUPPORTED")

    return missing


@functools.cache
def library() -> Library:
    """`libgsan.so`, loaded at its first use.

    Raises:
        LibraryNotFound: it is not there, cannot be loaded, or is of another version.
    """
    if sys.platform != "linux":
        raise LibraryNotFound(f"GSan runs on Linux, not on {sys.platform}", "GSAN_UNSUPPORTED")
    return Library(library_path())


def loaded() -> bool:
    """Whether the library was loaded."""
    return library.cache_info().currsize > 0


#: How the names of the files of a device library end: all of it, what is compiled with each kernel,
#: and what is compiled once, as LLVM bitcode, the same, and compressed PTX.
WHOLE, IN_KERNEL, ONCE = ".bc", "-kernel.bc", "-once.ptx.gz"


def device_library(records: int, by_sm: bool, part: str = WHOLE) -> Path:
    """A file of a device library: `records` (2 or 4) a cell, the state of a CTA in its shared
    memory or, `by_sm`, in the state region.

    Raises:
        LibraryNotFound: no such file.
    """
    name = f"gsan-{'by-sm' if by_sm else 'shared'}-{records}{part}"
    places = [FILES / name, FILES.parents[2] / "gsan-device" / "built" / name]
    if found := next((path for path in places if path.is_file()), None):
        return found
    where = " or ".join(str(path) for path in places)
    raise LibraryNotFound(
        f"the device library is not there: {where}. Install the wheel again", "GSAN_NOT_FOUND"
    )
