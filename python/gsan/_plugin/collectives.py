"""Collectives of PyTorch, which order the work of all ranks of a group that shares memory.

Before a collective a rank publishes what its stream knows, behind it it takes over what the others
published. A collective of device tensors orders streams; any other orders hosts, so there what is
published must have landed before the host goes on, and what is taken over the host knows from then
on.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .._errors import Error
from .._native import library
from . import driver, events, graphs

#: Functions of `torch.distributed` after which ranks have come to this point. Those with a root
#: order less than all ranks' work; the rest counts as ordered. Functions for objects call these.
COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)


@dataclass(frozen=True)
class _Opened:
    """A process group that shares memory."""

    #: Kept, since groups are known by their identity.
    group: Any
    #: Its members' ranks in the world.
    members: frozenset[int]
    device: int
    #: Its members' device ranks.
    ranks: tuple[int, ...]
    #: `gsan_group`.
    handle: int


_groups: dict[int, _Opened] = {}


def open_group(group: Any, device: int, ranks: list[int]) -> int:
    """The `gsan_group` of a process group, whose members have these device ranks.

    Process groups of the same devices have it in common.
    """
    from ctypes import byref, c_uint32, c_void_p

    if (known := _groups.get(id(group))) is not None:
        return known.handle
    same = (o.handle for o in _groups.values() if (o.device, o.ranks) == (device, tuple(ranks)))
    opened = next(same, None)
    if opened is None:
        handle = c_void_p()
        array = (c_uint32 * len(ranks))(*ranks)
        library().group_open(device, array, len(ranks), byref(handle))
        assert handle.value is not None
        opened = handle.value
    members = frozenset(_members(group))
    _groups[id(group)] = _Opened(group, members, device, tuple(ranks), opened)
    return opened


def close_groups() -> None:
    """Closes all."""
    handles = {opened.handle for opened in _groups.values()}
    _groups.clear()
    for handle in handles:
        with contextlib.suppress(Error):
            library().group_close(handle)


def _members(group: Any) -> list[int]:
    import torch.distributed as dist

    return dist.get_process_group_ranks(group)


def _stream(torch: Any) -> int:
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())


class _Meeting:
    """A collective, as the groups see it whose members all take part."""

    def __init__(self, handles: list[int], on_host: bool, torch: Any) -> None:
        self._handles = handles
        self._on_host = on_host
        self._torch = torch

    def begin(self) -> None:
        stream = _stream(self._torch)
        for handle in self._handles:
            graphs.note_collective(handle, self._torch._C._cuda_getDevice(), stream)
            library().group_before_collective(handle, stream)
        if self._on_host:
            driver.wait_for_stream(stream)

    def end(self, on_host: bool = False) -> None:
        """The collective is over: for the current stream, or for the host as well."""
        stream = _stream(self._torch)
        for handle in self._handles:
            library().group_after_collective(handle, stream)
        if (self._on_host or on_host) and driver.wait_for_stream(stream):
            library().try_stream_synchronized(self._torch._C._cuda_getDevice(), stream)


class _Work:
    """An asynchronous collective, over for a stream when that waited, and for the host when it was
    seen to be complete.
    """

    def __init__(self, work: Any, meeting: _Meeting) -> None:
        self._work, self._meeting = work, meeting
        _pending.add(self)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        result = self._work.wait(*args, **kwargs)
        # Who waits for this stream from now on waits for the collective.
        _pending.discard(self)
        self._meeting.end()
        return result

    def is_completed(self) -> bool:
        done = self._work.is_completed()
        if done:
            self._seen()
        return done

    def _seen(self) -> None:
        if self in _pending:
            _pending.discard(self)
            self._meeting.end(on_host=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


#: Those that the host has not seen complete.
_pending: weakref.WeakSet[_Work] = weakref.WeakSet()


def _device_waited() -> None:
    """Who waits for a device waits for the collectives on it."""
    for work in list(_pending):
        work.is_completed()


def plug_in(distributed: ModuleType) -> None:
    """Wraps the collectives of `torch.distributed`."""
    if not distributed.is_available():
        return
    for name in COLLECTIVES:
        if (function := getattr(distributed.distributed_c10d, name, None)) is None:
            continue
        wrapped = _wrap(distributed, function)
        setattr(distributed.distributed_c10d, name, wrapped)
        if hasattr(distributed, name):
            setattr(distributed, name, wrapped)
    events.when_device_waited.append(_device_waited)


def _values(arguments: Any) -> Iterator[Any]:
    """Arguments, and what lists of them hold."""
    for value in arguments:
        if isinstance(value, (list, tuple)):
            yield from _values(value)
        else:
            yield value


def _wrap(distributed: Any, function: Any) -> Any:
    @functools.wraps(function)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if not _groups:
            return function(*args, **kwargs)
        group = kwargs.get("group")
        if group is None:
            named = [value for value in args if isinstance(value, distributed.ProcessGroup)]
            group = named[0] if named else distributed.group.WORLD
        handles = _who_meets(distributed, group)
        if not handles:
            return function(*args, **kwargs)
        import torch

        given = _values((*args, *kwargs.values()))
        on_device = any(isinstance(value, torch.Tensor) and value.is_cuda for value in given)
        meeting = _Meeting(handles, not on_device, torch)
        meeting.begin()
        work = function(*args, **kwargs)
        if hasattr(work, "wait"):
            return _Work(work, meeting)
        meeting.end()
        return work

    return collective


def _who_meets(distributed: Any, group: Any) -> list[int]:
    """The groups that share memory whose members are all in a process group."""
    if (known := _groups.get(id(group))) is not None:
        return [known.handle]
    if not isinstance(group, distributed.ProcessGroup):
        return []
    members = set(_members(group))
    handles = [opened.handle for opened in _groups.values() if opened.members <= members]
    return list(dict.fromkeys(handles))
