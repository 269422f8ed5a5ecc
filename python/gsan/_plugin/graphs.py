"""CUDA graphs that PyTorch captures and replays."""

from __future__ import annotations

import functools
import weakref
from ctypes import byref, c_uint64, c_void_p
from typing import Any

from .._native import library
from .memory import pools


class _Graph:
    """What is kept for a `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.capture: tuple[int, int] | None = None
        self.plan: int | None = None
        self.pool: Any = None
        #: `gsan_group` of each group that has a collective in the graph.
        self.groups: list[int] = []

    def end_capture(self) -> None:
        if self.capture is None:
            return
        (device, capture), self.capture = self.capture, None
        self.groups = _collectives.pop(capture, [])
        plan = c_void_p()
        if library().try_capture_ended(device, capture, byref(plan)) == 0:
            self.plan = plan.value

    def close(self) -> None:
        plan, self.plan = self.plan, None
        if plan is not None:
            library().try_graph_close(plan)
        pool, self.pool = self.pool, None
        if pool is not None:
            pools.capture_over(pool)


#: The groups whose collectives a capture has so far, by its id.
_collectives: dict[int, list[int]] = {}


def note_collective(group: int, device: int, stream: int) -> None:
    """A collective of a `gsan_group` is put into a stream, which may be being captured."""
    capture = c_uint64()
    library().capture_id(device, stream, byref(capture))
    if capture.value:
        groups = _collectives.setdefault(capture.value, [])
        if group not in groups:
            groups.append(group)


def _of(graph: Any) -> _Graph:
    known = graph.__dict__.get("_gsan")
    if known is None:
        known = graph.__dict__["_gsan"] = _Graph()
        weakref.finalize(graph, known.close)
    return known


def _current_stream(torch: Any) -> tuple[int, int]:
    device = torch._C._cuda_getDevice()
    return device, torch._C._cuda_getCurrentRawStream(device)


def plug_in(torch: Any) -> None:
    """Wraps `torch.cuda.CUDAGraph` and `torch.cuda.graph_pool_handle`."""
    cls = torch.cuda.CUDAGraph
    if getattr(cls, "of_gsan", False):
        return
    cls.of_gsan = True
    begin, end, replay, reset = cls.capture_begin, cls.capture_end, cls.replay, cls.reset

    @functools.wraps(begin)
    def capture_begin(self: Any, pool: Any = None, *args: Any, **kwargs: Any) -> None:
        known = _of(self)
        if pool is None:
            pool = known.pool = pools.for_capture()
        pools.underway.add(id(self))
        try:
            begin(self, pool, *args, **kwargs)
        except BaseException:
            pools.underway.discard(id(self))
            raise
        device, stream = _current_stream(torch)
        capture = c_uint64()
        library().capture_id(device, stream, byref(capture))
        known.capture = (device, capture.value) if capture.value else None

    @functools.wraps(end)
    def capture_end(self: Any) -> None:
        try:
            end(self)
        finally:
            pools.underway.discard(id(self))
            _of(self).end_capture()

    @functools.wraps(replay)
    def replayed(self: Any) -> None:
        known = _of(self)
        plan = known.plan
        if plan is None:
            replay(self)
            return
        device, stream = _current_stream(torch)
        for group in known.groups:
            note_collective(group, device, stream)
            library().group_before_collective(group, stream)
        handle = c_void_p()
        submitted = 0
        try:
            library().replay_begin(plan, device, stream, byref(handle))
            replay(self)
            submitted = 1
            library().replay_end(handle, submitted)
        except BaseException:
            # A signal's handler may raise anywhere. What has ended already is none to the library.
            if handle.value:
                library().try_replay_end(handle, submitted)
            raise
        for group in known.groups:
            library().group_after_collective(group, stream)

    @functools.wraps(reset)
    def forget(self: Any) -> None:
        reset(self)
        _of(self).close()

    cls.capture_begin, cls.capture_end = capture_begin, capture_end
    cls.replay, cls.reset = replayed, forget

    handle = torch.cuda.graph_pool_handle

    @functools.wraps(handle)
    def graph_pool_handle() -> Any:
        return pools.for_capture() or handle()

    torch.cuda.graph_pool_handle = torch.cuda.graphs.graph_pool_handle = graph_pool_handle
