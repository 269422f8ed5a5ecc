"""The few calls of the CUDA driver that the Python side makes itself."""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_int, c_uint, c_void_p
from typing import Any


@functools.cache
def cuda() -> Any:
    """The driver's library. Waiting in it lets other Python threads run."""
    return ctypes.CDLL("libcuda.so.1")


def wait_for_stream(stream: int) -> bool:
    """Waits until a stream has done everything; whether it has, without an error."""
    return cuda().cuStreamSynchronize(c_void_p(stream)) == 0


def wait_for_event(event: int) -> bool:
    """Waits for an event; whether it came, without an error."""
    return cuda().cuEventSynchronize(c_void_p(event)) == 0


def wait_for_device() -> bool:
    """Waits until the current device has done everything; whether it has, without an error."""
    return cuda().cuCtxSynchronize() == 0


def is_capturing(stream: int) -> bool:
    """Whether a stream is captured."""
    status = c_int()
    code = cuda().cuStreamIsCapturing(c_void_p(stream), byref(status))
    return code != 0 or status.value != 0


def check(code: int, call: str) -> None:
    """Raises what a driver call failed with."""
    if code == 0:
        return
    name = ctypes.c_char_p()
    cuda().cuGetErrorName(c_uint(code), byref(name))
    word = name.value.decode() if name.value else f"error {code}"
    raise RuntimeError(f"{call} failed: {word}")
