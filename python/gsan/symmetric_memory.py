"""Managed memory that all ranks of a process group map, on one host or over fabric handles."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import threading
import weakref
from collections.abc import Sequence
from ctypes import byref, c_uint64, c_void_p
from typing import Any

from . import _memory
from ._errors import Error
from ._native import library
from ._plugin import collectives
from ._plugin.memory import new_pool
from .testing import tensor_over

#: How long ranks are waited for when memory is exchanged, in milliseconds.
EXCHANGE_TIMEOUT = 60_000

_lock = threading.Lock()
_pools: dict[tuple[int, bool], Any] = {}
_cache: weakref.WeakValueDictionary[tuple, GSanSymmetricMemoryHandle] = (
    weakref.WeakValueDictionary()
)
_rendezvous: dict[int, tuple[Any, c_void_p]] = {}


def _resolve_group(group: Any) -> tuple[Any, str]:
    """A process group and its name, from either."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    if isinstance(group, str):
        name: Any = group
        return c10d._resolve_process_group(name), group
    if isinstance(group, dist.ProcessGroup):
        return group, group.group_name
    if group is None:
        raise TypeError("the group is None: call torch.distributed.init_process_group() before")
    raise TypeError(f"unsupported group type: {type(group)}; it is a process group or its name")


def _normalize_size(size: tuple[Any, ...]) -> tuple[int, ...]:
    if len(size) == 1 and not isinstance(size[0], (int, str)):
        size = tuple(size[0])
    return tuple(int(extent) for extent in size)


def empty(*size: Any, dtype: Any = None, device: Any = None, write_once: bool = False) -> Any:
    """A tensor in managed memory that can be shared: uninitialised, contiguous.

    Args:
        size: its shape, as numbers or as one sequence.
        dtype: PyTorch's default if not given.
        device: a CUDA device; the current one if not given.
        write_once: each byte may be written once.

    Raises:
        RuntimeError: the device is no CUDA device.
    """
    import torch

    place = torch.device("cuda" if device is None else device)
    if place.type != "cuda":
        raise RuntimeError("GSan symmetric memory requires CUDA tensors.")
    index = torch.cuda.current_device() if place.index is None else place.index
    with torch.cuda.device(index):
        with _lock:
            pool = _pools.get((index, write_once))
            if pool is None:
                pool = _pools[index, write_once] = new_pool(write_once)
        with torch.cuda.use_mem_pool(pool, device=index):
            shape, place = _normalize_size(size), torch.device("cuda", index)
            return torch.empty(shape, dtype=dtype, device=place)


def configure(
    group: Any, *, rng_seed: int | None = None, clock_buffer_size: int | None = None
) -> None:
    """Gives this process the rank of its group, for its current device, before anything is
    allocated.
    """
    import torch
    import torch.distributed as dist

    members, _ = _resolve_group(group)
    rank, size = dist.get_rank(members), dist.get_world_size(members)
    _memory.configure(
        device_ranks={torch.cuda.current_device(): rank},
        num_devices=size,
        rng_seed=rng_seed,
        clock_buffer_size=clock_buffer_size,
    )


def rendezvous(
    tensor: Any, group: Any, *, _create_barrier: bool = True
) -> GSanSymmetricMemoryHandle:
    """Maps a tensor of each rank in all ranks. Collective: all call it in the same order.

    The same tensor gives the same handle again, until it is closed.

    Args:
        tensor: of `empty`, contiguous, from the start of its storage; of one shape and type in all
        ranks.
        group: a process group or its name.

    Raises:
        RuntimeError: a tensor that cannot be shared, ranks that do not agree, or one that does not
        come.
    """
    if tensor.device.type != "cuda":
        raise RuntimeError("rendezvous: tensor must be on CUDA device")
    if not tensor.is_contiguous():
        raise RuntimeError("rendezvous: tensor must be contiguous")
    if tensor.storage_offset() != 0:
        raise RuntimeError("rendezvous: tensor must have storage_offset() == 0")
    import torch.distributed as dist

    members, name = _resolve_group(group)
    rank, size = dist.get_rank(members), dist.get_world_size(members)
    device, address = tensor.device.index, tensor.data_ptr()
    key = (name, address, tuple(tensor.shape), str(tensor.dtype))
    known = _cache.get(key)
    if known is not None and not known._closed:
        return known
    bytes_ = tensor.numel() * tensor.element_size()
    if bytes_ and _memory.find_allocation(address) is None:
        raise RuntimeError(
            "rendezvous: the tensor is not in managed memory; make it with symmetric_memory.empty"
        )
    _agree(members, rank, tensor)
    meeting = _join(members, name, rank, size)
    addresses = (c_uint64 * size)()
    library().rendezvous_share(meeting, address, device, addresses)
    ranks = _exchange_device_ranks(members, device)
    opened = collectives.open_group(members, device, ranks)
    handle = GSanSymmetricMemoryHandle(
        group=members,
        rank=rank,
        world_size=size,
        device_index=device,
        buffer_size=bytes_,
        peer_ptrs=tuple(addresses),
        peer_offsets=(0,) * size,
        barrier_handle=opened if _create_barrier else None,
        cache_key=key,
    )
    handle._keep = tensor
    _cache[key] = handle
    return handle


def _agree(group: Any, rank: int, tensor: Any) -> None:
    """All ranks must be on one host and bring the same shape and type."""
    import torch.distributed as dist

    mine = {
        "shape": tuple(tensor.shape),
        "dtype": str(tensor.dtype),
        "bytes": tensor.numel() * tensor.element_size(),
        "host": os.uname().nodename,
    }
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, mine, group=group)
    for other, theirs in enumerate(every):
        for what in mine:
            if theirs[what] != mine[what]:
                raise RuntimeError(
                    f"rendezvous: {what} differs: rank {rank} has {mine[what]}, "
                    f"rank {other} has {theirs[what]}"
                )


def _exchange_device_ranks(group: Any, device: int) -> list[int]:
    """The device rank of each rank of the group."""
    import torch.distributed as dist

    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, _memory.get_device_rank(device), group=group)
    return every


def _join(group: Any, name: str, rank: int, size: int) -> c_void_p:
    """Where the ranks of a group exchange descriptors; joined once."""
    import torch.distributed as dist

    if id(group) in _rendezvous:
        return _rendezvous[id(group)][1]
    # One job's groups must not meet another's: all agree on what rank 0 says.
    token: list[Any] = [os.urandom(8).hex() if rank == 0 else None]
    first = dist.get_global_rank(group, 0)
    dist.broadcast_object_list(token, src=first, group=group)
    meeting = c_void_p()
    place = hashlib.sha256(f"{name}.{token[0]}".encode()).hexdigest()[:32]
    library().rendezvous_join(place.encode(), rank, size, EXCHANGE_TIMEOUT, byref(meeting))
    _rendezvous[id(group)] = (group, meeting)
    return meeting


class GSanSymmetricMemoryHandle:
    """A tensor of each rank, mapped in this process."""

    def __init__(
        self,
        *,
        group: Any,
        rank: int,
        world_size: int,
        device_index: int,
        buffer_size: int,
        peer_ptrs: tuple[int, ...],
        peer_offsets: tuple[int, ...],
        barrier_tensor: Any = None,
        barrier_handle: Any = None,
        cache_key: Any = None,
    ) -> None:
        self._group = group
        self._rank = rank
        self._world_size = world_size
        self._device_index = device_index
        self._buffer_size = buffer_size
        self._peer_ptrs = peer_ptrs
        self._peer_offsets = peer_offsets
        self._barrier_tensor = barrier_tensor
        self._barrier_handle = barrier_handle
        self._cache_key = cache_key
        self._closed = False
        self._keep: Any = None

    @property
    def rank(self) -> int:
        """The rank of this process."""
        self._check_open()
        return self._rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        self._check_open()
        return self._world_size

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """A barrier of all ranks on the current stream: what each did before is ordered before what
        any does after. Returns when all have come; `timeout_ms` 0: that may take ten minutes.

        Raises:
            NotImplementedError: another channel than 0.
            ValueError: `timeout_ms` is out of range.
            RuntimeError: a rank did not come in time; the message says which.
        """
        self._check_open()
        if channel != 0:
            raise NotImplementedError("Only channel=0 is supported in GSan symmetric memory.")
        if not 0 <= timeout_ms <= 0xFFFF_FFFF:
            raise ValueError(f"timeout_ms is {timeout_ms}; it must be from 0 to 2**32 - 1")
        if self._barrier_handle is None:
            raise RuntimeError("GSan symmetric-memory barrier counter is unavailable.")
        import torch

        stream = torch._C._cuda_getCurrentRawStream(self._device_index)
        library().group_barrier(self._barrier_handle, stream, timeout_ms)

    def get_buffer(
        self, rank: int, sizes: Sequence[int], dtype: Any, storage_offset: int = 0
    ) -> Any:
        """The memory of a rank as a tensor: `sizes` elements of `dtype`, `storage_offset` elements
        from the start. The tensor keeps the handle.

        Raises:
            TypeError: `sizes` is no sequence.
            ValueError: no such rank, or a slice that is not inside the buffer.
        """
        self._check_open()
        if not 0 <= rank < self._world_size:
            raise ValueError(f"Invalid peer rank: {rank}; they go from 0 to {self._world_size - 1}")
        if storage_offset < 0:
            raise ValueError(f"storage_offset must be >= 0, got {storage_offset}")
        if not isinstance(sizes, Sequence):
            raise TypeError(f"sizes is {sizes!r}; it must be a sequence such as ({sizes!r},)")
        numel = 1
        for extent in sizes:
            numel *= int(extent)
        if numel < 0:
            raise ValueError(f"numel must be >= 0, got {numel}")
        last = (storage_offset + numel) * dtype.itemsize
        if last > self._buffer_size:
            raise ValueError(
                f"Requested slice ({last} bytes) exceeds buffer size {self._buffer_size} bytes."
            )
        first = self._peer_ptrs[rank] + self._peer_offsets[rank] + storage_offset * dtype.itemsize
        memory = tensor_over(first, numel * dtype.itemsize, self._device_index, self)
        return memory.view(dtype).view(tuple(sizes))

    def close(self) -> None:
        """Unmaps the other ranks' memory. Tensors of `get_buffer` must not be used any more."""
        if self._closed:
            return
        self._closed = True
        if self._cache_key is not None:
            _cache.pop(self._cache_key, None)
        for rank, address in enumerate(self._peer_ptrs):
            if rank == self._rank or not address:
                continue
            # A tensor may lie anywhere in what was mapped for it.
            if (mapped := _memory.find_allocation(address)) is not None:
                _memory.free_allocation(mapped.address, self._device_index)
        self._keep = None

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("GSanSymmetricMemoryHandle has been closed.")

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def barrier_of_world(rank: int, world_size: int) -> None:
    """A barrier of all ranks of the world on the current stream, for callers with counters of their
    own.
    """
    import torch
    import torch.distributed as dist

    if dist.get_rank() != rank or dist.get_world_size() != world_size:
        raise ValueError(
            f"rank {rank} of {world_size} is not this process: "
            f"it is rank {dist.get_rank()} of {dist.get_world_size()}"
        )
    device = torch.cuda.current_device()
    group = dist.group.WORLD
    opened = collectives.open_group(group, device, _exchange_device_ranks(group, device))
    library().group_barrier(opened, torch._C._cuda_getCurrentRawStream(device), 0)


def _leave() -> None:
    """Leaves all groups. A rank that goes without it would let the others wait."""
    collectives.close_groups()
    while _rendezvous:
        _, meeting = _rendezvous.popitem()[1]
        with contextlib.suppress(Error):
            library().rendezvous_close(meeting)


def forget() -> None:
    """Closes what is open, before everything is reset."""
    for handle in list(_cache.values()):
        handle.close()
    _leave()
    _pools.clear()


def _at_exit() -> None:
    """What is mapped goes with the process: work that nobody waited for may still use it."""
    for handle in list(_cache.values()):
        handle._closed = True
    if os.getpid() == _process:
        _leave()


#: Children that are forked leave nothing that is their parent's.
_process = os.getpid()
atexit.register(_at_exit)
