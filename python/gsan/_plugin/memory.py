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
    pool = _class_of_pools()(allocator(write_once).allocator())
    _made.add(pool)
    return pool


@functools.cache
def _class_of_pools() -> Any:
    import torch

    class Pool(torch.cuda.MemPool):
        """A pool that stays for as long as it cannot go.

        One that goes gives back its memory, and PyTorch ends the process when allocation goes to
        any pool meanwhile.
        """

        def __del__(self) -> None:
            pools.outlive(self)

    return Pool


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
        #: The pools of captures by their handles, with their devices.
        self._captures: dict[tuple[int, int], tuple[int, Any]] = {}
        #: Those of graphs that are gone.
        self._spent: list[tuple[int, Any]] = []
        #: Pools that nobody uses any more, but that cannot go yet.
        self._held: list[Any] = []
        self.wanted = False
        #: The graphs that are being captured, by their identity.
        self.underway: set[int] = set()

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
        self._spent.clear()
        gc.collect()
        self._held.clear()
        torch.cuda.empty_cache()
        self.wanted = wanted

    def collect(self) -> bool:
        """Gives back what was let go since `drop`. Whether there may be such."""
        import torch

        if not torch.cuda.is_initialized():
            return False
        gc.collect()
        torch.cuda.empty_cache()
        return True

    def outlive(self, pool: Any) -> None:
        """Keeps a pool that was about to go, if it must not."""
        if self._begun:
            self._held.append(pool)
            _made.add(pool)

    def for_capture(self) -> Any:
        """The handle of a pool for captures on the current device; `None` if none is wanted."""
        if not self.wanted:
            return None
        import torch

        device = torch._C._cuda_getDevice()
        pool = self._take_spent(device)
        if pool is None:
            pool = new_pool()
        self._captures[tuple(pool.id)] = device, pool
        return pool.id

    def capture_over(self, handle: Any) -> None:
        """A graph that used a pool of `for_capture` alone is gone."""
        known = self._captures.pop(tuple(handle), None)
        if known is not None:
            self._spent.append(known)

    def _take_spent(self, device: int) -> Any:
        """A pool of a graph that is gone, if there is one that nothing uses."""
        if self.underway:
            # Nobody may wait for the device.
            return None
        # A graph lets go of its pool when it is destroyed.
        free = (known for known in self._spent if known[0] == device and known[1].use_count() == 1)
        known = next(free, None)
        if known is None:
            return None
        import torch

        self._spent.remove(known)
        # The graph's last replay may still run, on whatever stream.
        torch.cuda.synchronize()
        return known[1]


def _no_expandable_segments() -> None:
    """PyTorch's expandable segments bypass pools."""
    import torch

    settings = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    if any("expandable_segments:true" in os.environ.get(name, "").lower() for name in settings):
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")


pools = Pools()
