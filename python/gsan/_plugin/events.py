"""What PyTorch does with streams and events, told to the ordering.

PyTorch calls back after records and waits, and before it synchronises. What it does not say
(queries, `record_stream`) is wrapped.
"""

from __future__ import annotations

import ctypes
import functools
import gc
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


def _wrap(cls: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts `make(method)` in the place of a method, also of a class of C that refuses it."""
    method = make(getattr(cls, name))
    try:
        setattr(cls, name, method)
    except TypeError:
        # What a class that cannot be changed has is in a dictionary like any other.
        (members,) = gc.get_referents(cls.__dict__)
        members[name] = method
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def _wrap_queries(torch: Any) -> None:
    """A query that says done, and a time that can be told, are waits of the host."""

    def query_of_events(query: Any) -> Any:
        @functools.wraps(query)
        def query_event(self: Any) -> bool:
            done = query(self)
            if done:
                _event_is_done(self)
            return done

        return query_event

    def query_of_streams(query: Any) -> Any:
        @functools.wraps(query)
        def query_stream(self: Any) -> bool:
            done = query(self)
            if done and (stream := _handle_of_stream(torch, self)) is not None:
                after_launch(library().try_stream_synchronized, self.device.index, stream)
            return done

        return query_stream

    def time_between(elapsed_time: Any) -> Any:
        @functools.wraps(elapsed_time)
        def elapsed(self: Any, end_event: Any) -> float:
            time = elapsed_time(self, end_event)
            _event_is_done(self)
            _event_is_done(end_event)
            return time

        return elapsed

    # Those of `torch.cuda` call methods of their own bases.
    for cls in (torch.cuda.Event, torch.Event):
        _wrap(cls, "query", query_of_events)
        _wrap(cls, "elapsed_time", time_between)
    for cls in (torch.cuda.Stream, torch.Stream):
        _wrap(cls, "query", query_of_streams)


def _event_is_done(event: Any) -> None:
    """The host knows that an event came, of whichever class."""
    if event.device is None or event.device.type != "cuda":
        return
    handle = event.cuda_event if hasattr(event, "cuda_event") else event.event_id
    if handle:
        after_launch(library().try_event_synchronized, handle)


def _handle_of_stream(torch: Any, stream: Any) -> int | None:
    """CUDA's handle of a stream of whichever class."""
    if stream.device.type != "cuda":
        return None
    if hasattr(stream, "cuda_stream"):
        return stream.cuda_stream
    of_cuda = torch.cuda.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    return of_cuda.cuda_stream


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
