"""What PyTorch does with streams and events, told to the ordering.

PyTorch calls back after records and waits, and before it synchronises. What it does not say
(queries, `record_stream`) is wrapped.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from ctypes import byref
from typing import Any

from .._native import Allocation, library
from . import driver
from .launching import after_launch


class _Reports:
    """Hands calls on to the library, which says no where a program would have failed anyway."""

    def __init__(self) -> None:
        self.on = False
        self.reuse = False


_reports = _Reports()

#: Called when the program waited for a device.
when_device_waited: list[Callable[[], None]] = []


def _device() -> int:
    import torch

    return torch._C._cuda_getDevice()


def _recorded(event: int, stream: int) -> None:
    after_launch(library().try_event_recorded, event, _device(), stream)


def _waited(event: int, stream: int) -> None:
    after_launch(library().try_event_waited, event, _device(), stream)


def _forgotten(event: int) -> None:
    after_launch(library().try_event_forgotten, event)


# These come before PyTorch waits. What the host knows must be marked after it: so it is waited for
# here.
def _stream_synchronizes(stream: int) -> None:
    if not driver.is_capturing(stream) and driver.wait_for_stream(stream):
        after_launch(library().try_stream_synchronized, _device(), stream)


def _event_synchronizes(event: int) -> None:
    if driver.wait_for_event(event):
        after_launch(library().try_event_synchronized, event)


def _device_synchronizes() -> None:
    if driver.wait_for_device():
        after_launch(library().try_device_synchronized, _device())
        for act in when_device_waited:
            after_launch(act)


def _allocated(address: int) -> None:
    """Memory is handed out again only on the stream of its segment, so the segment's stream takes
    what was freed anywhere in it.
    """
    import torch

    device = _device()
    stream = torch._C._cuda_getCurrentRawStream(device)
    segment = Allocation()
    size = 1
    if library().try_find_allocation(address, byref(segment)) == 0:
        size = segment.address + segment.bytes - address
    after_launch(library().try_memory_handed_out, address, size, device, stream)


def _freed(address: int) -> None:
    after_launch(library().try_memory_freed, address)


def _watch_reuse() -> None:
    """From the first `record_stream` on: without any, there is nothing to know about a free."""
    if _reports.reuse:
        return
    _reports.reuse = True
    from torch.cuda import _gpu_trace as trace

    trace.register_callback_for_memory_allocation(_allocated)
    trace.register_callback_for_memory_deallocation(_freed)


def plug_in(torch: Any) -> None:
    """Registers with PyTorch, once."""
    if _reports.on:
        return
    _reports.on = True
    from torch.cuda import _gpu_trace as trace

    trace.register_callback_for_event_record(_recorded)
    trace.register_callback_for_event_wait(_waited)
    trace.register_callback_for_event_deletion(_forgotten)
    trace.register_callback_for_stream_synchronization(_stream_synchronizes)
    trace.register_callback_for_event_synchronization(_event_synchronizes)
    trace.register_callback_for_device_synchronization(_device_synchronizes)
    torch._C._activate_gpu_trace()
    _wrap_queries(torch)
    _wrap_record_stream(torch)
    _make_streams_one_by_one(torch)


def _make_streams_one_by_one(torch: Any) -> None:
    """PyTorch makes all streams of a device when the first is asked for, and calls back for each. A
    thread that asks for one meanwhile would wait, and not give away the interpreter's lock.
    """
    make = torch.cuda.Stream.__new__
    lock = threading.RLock()

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return make(cls, *args, **kwargs)

    torch.cuda.Stream.__new__ = staticmethod(new)


def _wrap_queries(torch: Any) -> None:
    event_query, stream_query = torch.cuda.Event.query, torch.cuda.Stream.query

    @functools.wraps(event_query)
    def query_event(self: Any) -> bool:
        done = event_query(self)
        if done and self.cuda_event:
            after_launch(library().try_event_synchronized, self.cuda_event)
        return done

    @functools.wraps(stream_query)
    def query_stream(self: Any) -> bool:
        done = stream_query(self)
        if done:
            index = self.device.index
            after_launch(library().try_stream_synchronized, index, self.cuda_stream)
        return done

    torch.cuda.Event.query = query_event
    torch.cuda.Stream.query = query_stream


def _wrap_record_stream(torch: Any) -> None:
    record_stream = torch.Tensor.record_stream

    @functools.wraps(record_stream)
    def note(self: Any, s: Any) -> None:
        record_stream(self, s)
        stream = getattr(s, "cuda_stream", None)
        if stream is None or not self.is_cuda:
            return
        _watch_reuse()
        storage = self.untyped_storage()
        after_launch(
            library().try_memory_used,
            storage.data_ptr(),
            storage.nbytes(),
            self.device.index,
            stream,
        )

    torch.Tensor.record_stream = note
