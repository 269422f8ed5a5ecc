"""Collectives of PyTorch, which order the work of all ranks of a group that shares memory."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from .._native import library

#: Functions of `torch.distributed` after which every rank has come to this point.
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "reduce_scatter",
    "reduce_scatter_tensor",
)

#: `gsan_group` by process group, of those that share memory.
_groups: dict[int, int] = {}


def open_group(group: Any, device: int, ranks: list[int]) -> int:
    """The `gsan_group` of a process group, whose members have these device ranks."""
    from ctypes import byref, c_uint32, c_void_p

    known = _groups.get(id(group))
    if known is None:
        handle = c_void_p()
        array = (c_uint32 * len(ranks))(*ranks)
        library().group_open(device, array, len(ranks), byref(handle))
        assert handle.value is not None
        known = _groups[id(group)] = handle.value
    return known


def close_groups() -> None:
    """Closes all."""
    while _groups:
        library().group_close(_groups.popitem()[1])


def _stream(torch: Any) -> int:
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())


class _Work:
    """An asynchronous collective, which is over for a stream when that waited."""

    def __init__(self, work: Any, group: int, torch: Any) -> None:
        self._work, self._group, self._torch = work, group, torch

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        result = self._work.wait(*args, **kwargs)
        library().group_after_collective(self._group, _stream(self._torch))
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def plug_in(distributed: ModuleType) -> None:
    """Wraps the collectives of `torch.distributed`."""
    if not distributed.is_available():
        return
    for name in COLLECTIVES:
        if (function := getattr(distributed, name, None)) is not None:
            wrapped = _wrap(distributed, function)
            setattr(distributed, name, wrapped)
            setattr(distributed.distributed_c10d, name, wrapped)


def _wrap(distributed: Any, function: Any) -> Any:
    @functools.wraps(function)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if not _groups:
            return function(*args, **kwargs)
        group = kwargs.get("group")
        if group is None:
            given = [value for value in args if isinstance(value, distributed.ProcessGroup)]
            group = given[0] if given else distributed.group.WORLD
        known = _groups.get(id(group))
        if known is None:
            return function(*args, **kwargs)
        import torch

        library().group_before_collective(known, _stream(torch))
        work = function(*args, **kwargs)
        if work is not None and kwargs.get("async_op"):
            return _Work(work, known, torch)
        library().group_after_collective(known, _stream(torch))
        return work

    return collective
