"""PyTorch's allocations in managed memory, of every thread of the process.

`torch.cuda.use_mem_pool` covers the calling thread only; tensors that autograd allocates in
`backward` would escape it. So allocation of the whole device goes to a pool of ours, below
PyTorch's caching allocator, whose statistics go on working. A graph's capture allocates from a pool
of its own: it gets another of ours.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from .._native import library


@functools.cache
def allocator(write_once: bool = False) -> Any:
    """The `torch.cuda.memory.CUDAPluggableAllocator` over `libgsan.so`."""
    import torch

    allocate = "gsanMallocWriteOnce" if write_once else "gsanMalloc"
    return torch.cuda.memory.CUDAPluggableAllocator(str(library().path), allocate, "gsanFree")


def new_pool(write_once: bool = False) -> Any:
    """A `torch.cuda.MemPool` of managed memory, on the current device."""
    import torch

    pool = torch.cuda.MemPool(allocator(write_once).allocator())
    _made.add(pool)
    return pool


#: The pools that are there.
_made: weakref.WeakSet[Any] = weakref.WeakSet()


def _keep() -> None:
    """Lets pools stay at exit.

    One that goes gives back its memory. When the interpreter takes modules apart, allocation still
    goes to it, tensors or graphs of it are there, or the driver is gone already, and the process
    would end with an abort.
    """
    for pool in list(_made):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))


atexit.register(_keep)


@contextlib.contextmanager
def _device(index: int) -> Iterator[None]:
    """Makes a device current, without making a context on it that is not there yet."""
    import torch

    before = torch._C._cuda_maybeExchangeDevice(index)
    try:
        yield
    finally:
        torch._C._cuda_maybeExchangeDevice(before)


class Pools:
    """The pools of the process: one for each device, and those that captures use."""

    def __init__(self) -> None:
        self._by_device: dict[int, Any] = {}
        self._begun: set[int] = set()
        self._captures: dict[tuple[int, int], Any] = {}
        self._over: list[Any] = []
        self.wanted = False

    def want(self) -> None:
        """Managed memory from now on; from the first use of CUDA on, if that is still to come."""
        import torch

        self.wanted = True
        torch.cuda._lazy_call(self._begin)

    def _begin(self) -> None:
        import torch

        if not self.wanted or not torch.cuda.device_count():
            return
        _no_expandable_segments()
        for device in range(torch.cuda.device_count()):
            if device in self._begun:
                continue
            if device not in self._by_device:
                with _device(device):
                    self._by_device[device] = new_pool()
            torch._C._cuda_beginAllocateToPool(device, self._by_device[device].id)
            self._begun.add(device)

    def end(self) -> None:
        """Allocates where PyTorch would again. What was allocated stays."""
        self.wanted = False
        if not self._begun:
            return
        import torch

        for device in sorted(self._begun):
            torch._C._cuda_endAllocateToPool(device, self._by_device[device].id)
            torch._C._cuda_releasePool(device, self._by_device[device].id)
        self._begun.clear()

    def drop(self) -> None:
        """Gives back the memory of the pools that nobody uses any more."""
        if "torch" not in sys.modules:
            return
        import torch

        if not torch.cuda.is_initialized():
            return
        wanted = self.wanted
        gc.collect()
        torch.cuda.synchronize()
        # PyTorch keeps what it once gave to cuBLAS.
        torch._C._cuda_clearCublasWorkspaces()
        self.end()
        # A pool gives back its memory when it goes.
        self._by_device.clear()
        self._captures.clear()
        self._over.clear()
        gc.collect()
        torch.cuda.empty_cache()
        self.wanted = wanted

    def for_capture(self) -> Any:
        """The handle of a new pool for captures on the current device; `None` if none is wanted."""
        self._give_back()
        if not self.wanted:
            return None
        pool = new_pool()
        self._captures[tuple(pool.id)] = pool
        return pool.id

    def capture_over(self, handle: Any) -> None:
        """A graph that used a pool of `for_capture` alone is gone."""
        pool = self._captures.pop(tuple(handle), None)
        if pool is not None:
            self._over.append(pool)

    def _give_back(self) -> None:
        """Drops the pools that nobody but this object holds; a graph lets go when it is
        destroyed.
        """
        self._over = [pool for pool in self._over if pool.use_count() > 1]


def _no_expandable_segments() -> None:
    """PyTorch's expandable segments bypass pools."""
    import torch

    settings = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    if any("expandable_segments:true" in os.environ.get(name, "").lower() for name in settings):
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")


pools = Pools()
