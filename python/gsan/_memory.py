"""Configuration, managed memory, and what two processes need to share it."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64
from enum import IntEnum
from typing import Any

from . import _install
from ._errors import Error
from ._native import Allocation, Config, SharedAllocation, SharedState, library


class ShareableHandleType(IntEnum):
    """How memory is handed to another process."""

    POSIX_FILE_DESCRIPTOR = 1
    FABRIC = 8


_NO_RANK = 0xFFFF_FFFF


def configure(
    *,
    device_ranks: dict[int, int] | None = None,
    num_devices: int | None = None,
    rng_seed: int | None = None,
    clock_buffer_size: int | None = None,
    handle_type: ShareableHandleType | None = None,
    **unknown: Any,
) -> None:
    """Settings of this process, over those of environment and files.

    Args:
        device_ranks: the logical rank of each CUDA device of this process. Goes with `num_devices`.
        num_devices: how many devices there are, over all processes.
        rng_seed: the seed of sampling, from 0 to 2**32 - 1.
        clock_buffer_size: released clocks that are kept for each device.
        handle_type: how memory is handed over.

    Raises:
        RuntimeError: memory was allocated or a kernel launched already: settings are fixed then.
        ValueError: a setting is out of range, or one of a pair is missing.
        TypeError: there is no such setting.
    """
    for name in unknown:
        raise TypeError(f"configure has no setting {name!r}{_similar(name)}")
    if (device_ranks is None) != (num_devices is None):
        raise ValueError("device_ranks and num_devices must be given together")
    config = Config()
    if device_ranks is not None and num_devices is not None:
        _check_ranks(device_ranks, num_devices)
        local = max(device_ranks, default=-1) + 1
        ranks = (c_uint32 * max(local, 1))(*([_NO_RANK] * max(local, 1)))
        for device, rank in device_ranks.items():
            ranks[device] = rank
        config.num_devices = num_devices
        config.num_local = local
        config.device_ranks = ctypes.cast(ranks, ctypes.POINTER(c_uint32))
    if rng_seed is not None:
        if not isinstance(rng_seed, int) or not 0 <= rng_seed <= 0xFFFF_FFFF:
            raise ValueError(f"rng_seed is {rng_seed!r}; it must be from 0 to 2**32 - 1")
        config.seed, config.has_seed = rng_seed, 1
    if clock_buffer_size is not None:
        if not isinstance(clock_buffer_size, int) or not 1 <= clock_buffer_size <= 0xFFFF_FFFF:
            raise ValueError(
                f"clock_buffer_size is {clock_buffer_size!r}; it must be from 1 to 2**32 - 1"
            )
        config.clock_publications = clock_buffer_size
    if handle_type is not None:
        try:
            config.handle_type = int(ShareableHandleType(handle_type))
        except ValueError as error:
            there = ", ".join(f"{kind.name} ({kind.value})" for kind in ShareableHandleType)
            raise ValueError(f"{error}; there are {there}") from None
    try:
        library().configure(byref(config))
    except Error as error:
        if error.status == "GSAN_INVALID_ARGUMENT":
            raise ValueError(str(error)) from error
        raise


_SETTINGS = ("device_ranks", "num_devices", "rng_seed", "clock_buffer_size", "handle_type")


def _similar(name: str) -> str:
    import difflib

    inside = [setting for setting in _SETTINGS if name in setting]
    near = inside or difflib.get_close_matches(name, _SETTINGS, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(_SETTINGS)}"


def _check_ranks(device_ranks: dict[int, int], num_devices: int) -> None:
    if not 1 <= num_devices <= 0xFFFF_FFFF:
        raise ValueError(f"num_devices is {num_devices}; it must be from 1 to 2**32 - 1")
    for device, rank in device_ranks.items():
        if device < 0:
            raise ValueError(f"device_ranks names device {device}; devices count from 0")
        if not 0 <= rank < num_devices:
            raise ValueError(
                f"device_ranks gives device {device} rank {rank}; "
                f"with {num_devices} devices ranks are from 0 to {num_devices - 1}"
            )


def freeze_config() -> None:
    """Fixes the settings, as the first allocation does."""
    library().freeze()


def get_allocator(*, write_once: bool = False) -> Any:
    """The `torch.cuda.memory.CUDAPluggableAllocator` of managed memory.

    `write_once`: each byte may be written once in the life of its allocation.
    """
    from ._plugin.memory import allocator

    return allocator(write_once)


def create_mem_pool(*, write_once: bool = False) -> Any:
    """A `torch.cuda.MemPool` of managed memory, for `torch.cuda.use_mem_pool`.

    That covers the calling thread; `gsan.enable()` covers all.
    """
    from ._plugin.memory import new_pool

    return new_pool(write_once)


def reset() -> None:
    """Puts everything back to the start.

    Raises:
        AssertionError: allocations or graphs are live; the message says which.
    """
    _install.reset()


def live_allocations() -> list[Allocation]:
    """All allocations that were not freed."""
    while True:
        count = c_size_t(0)
        library().live_allocations(None, byref(count))
        room = (Allocation * max(count.value, 1))(*(Allocation() for _ in range(count.value)))
        filled = c_size_t(count.value)
        library().live_allocations(room, byref(filled))
        if filled.value <= count.value:
            return list(room[: filled.value])


def has_live_allocations() -> bool:
    """Whether memory of the allocator was not freed yet."""
    gc.collect()
    count = c_size_t(0)
    library().live_allocations(None, byref(count))
    return count.value > 0


def gsan_malloc(size: int, device: int, stream: int = 0, *, write_once: bool = False) -> int:
    """Allocates `size` bytes of managed memory and returns the address.

    Raises:
        RuntimeError: there is none; the message says what was asked and what is free.
    """
    allocate = library().gsanMallocWriteOnce if write_once else library().gsanMalloc
    address = allocate(size, device, stream)
    if not address and size:
        message = (library().last_error() or b"").decode(errors="replace")
        raise Error(message or f"no {size} bytes on device {device}", "GSAN_OUT_OF_MEMORY")
    return address or 0


def gsan_free(ptr: int, device: int, size: int = 0, stream: int = 0) -> None:
    """Frees what `gsan_malloc` returned, once `stream` has passed this point."""
    library().gsanFree(ptr, size, device, stream)


def free_allocation(ptr: int, device: int) -> None:
    """Frees an allocation, imported ones as well."""
    library().gsanFree(ptr, 0, device, 0)


def find_allocation(ptr: int) -> Allocation | None:
    """The live allocation that holds an address."""
    found = Allocation()
    status = library().try_find_allocation(ptr, byref(found))
    return found if status == 0 else None


def is_write_once_allocation(ptr: int) -> bool:
    """Whether an address lies in write-once memory."""
    found = find_allocation(ptr)
    return found is not None and bool(found.write_once)


def get_reserve_pointer() -> int:
    """The first address of the reservation: shadow in its lower half, real memory in the upper."""
    return _reserve()[0]


def get_reserve_size() -> int:
    """The size of the reservation in bytes."""
    return _reserve()[1]


def _reserve() -> tuple[int, int]:
    base, size = c_uint64(), c_uint64()
    library().reserve(byref(base), byref(size))
    return base.value, size.value


@functools.cache
def get_global_state_pointer() -> int:
    """The address of the runtime state of rank 0; that of rank r is r strides behind it."""
    base = c_uint64()
    library().state_pointer(byref(base))
    return base.value


@functools.cache
def get_device_rank(device: int) -> int:
    """The logical rank of a CUDA device of this process."""
    rank = c_uint32()
    library().device_rank(device, byref(rank))
    return rank.value


def forget_states() -> None:
    """Asks for ranks and addresses of states again. Launches need both, and they stay as they are
    until `reset`.
    """
    get_global_state_pointer.cache_clear()
    get_device_rank.cache_clear()


# A child that was forked has no session.
os.register_at_fork(after_in_child=forget_states)


def supports_fabric_handles(device: int) -> bool:
    """Whether memory of a device can be handed over by fabric handles."""
    yes = c_int()
    library().supports_fabric(device, byref(yes))
    return bool(yes.value)


def export_allocation_handles(ptr: int, handle_type: int, *, write_once: bool = False) -> tuple:
    """What another process needs to map an allocation: real handle, shadow handle, size.

    Handles are descriptors, the caller's to close, or the 64 bytes of fabric handles.
    """
    shared = SharedAllocation()
    library().export_allocation(ptr, byref(shared))
    try:
        _check_kind(shared.kind, handle_type)
        if write_once and not shared.write_once:
            raise ValueError(f"the allocation at {ptr:#x} is not write-once")
    except ValueError:
        _close(shared.kind, shared.real_fd, shared.shadow_fd)
        raise
    if handle_type == ShareableHandleType.FABRIC:
        return bytes(shared.fabric[0]), bytes(shared.fabric[1]), shared.bytes
    return shared.real_fd, shared.shadow_fd, shared.bytes


def import_allocation_handles(
    real_handle: Any,
    shadow_handle: Any,
    alloc_size: int,
    device: int,
    handle_type: int,
    *,
    write_once: bool = False,
) -> int:
    """Maps what another process exported, and returns the address here."""
    shared = SharedAllocation(bytes=alloc_size, kind=int(handle_type), write_once=int(write_once))
    if handle_type == ShareableHandleType.FABRIC:
        for place, handle in enumerate((real_handle, shadow_handle)):
            ctypes.memmove(shared.fabric[place], bytes(handle), 64)
        shared.real_fd = shared.shadow_fd = -1
    else:
        shared.real_fd, shared.shadow_fd = real_handle, shadow_handle
    address = c_uint64()
    library().import_allocation(byref(shared), device, byref(address))
    return address.value


def export_allocation_memhandle_regions(ptr: int) -> tuple[int, int, int, int]:
    """Address and size of an allocation's real memory, address and size of its shadow memory."""
    found = find_allocation(ptr)
    if found is None:
        raise Error(f"no live allocation holds {ptr:#x}", "GSAN_NOT_FOUND")
    from .testing import shadow_address, shadow_size

    shadow = shadow_size() * ((found.bytes + 7) // 8)
    return found.address, found.bytes, shadow_address(found.address), shadow


def export_runtime_state_handle(device: int, handle_type: int) -> tuple:
    """What another process needs to map a device's runtime state: handle and size."""
    shared = SharedState()
    library().export_state(device, byref(shared))
    try:
        _check_kind(shared.kind, handle_type)
    except ValueError:
        _close(shared.kind, shared.fd)
        raise
    if handle_type == ShareableHandleType.FABRIC:
        return bytes(shared.fabric), shared.bytes
    return shared.fd, shared.bytes


def import_runtime_state_handle(
    handle: Any, alloc_size: int, peer_device: int, device: int, handle_type: int
) -> None:
    """Maps the runtime state of the device with rank `peer_device`."""
    shared = SharedState(bytes=alloc_size, rank=peer_device, kind=int(handle_type), fd=-1)
    if handle_type == ShareableHandleType.FABRIC:
        ctypes.memmove(shared.fabric, bytes(handle), 64)
    else:
        shared.fd = handle
    library().import_state(byref(shared), device)


def _check_kind(kind: int, wanted: int) -> None:
    if kind != int(wanted):
        have, want = ShareableHandleType(kind).name, ShareableHandleType(wanted).name
        raise ValueError(
            f"memory is handed over as {have} here, not as {want}; "
            f"gsan.configure(handle_type=gsan.ShareableHandleType.{want}) before the first "
            "allocation changes that"
        )


def _close(kind: int, *descriptors: int) -> None:
    """Closes the handles of an export that is refused, if they are descriptors."""
    if kind == ShareableHandleType.POSIX_FILE_DESCRIPTOR:
        for descriptor in descriptors:
            os.close(descriptor)


def layout() -> dict[str, Any]:
    """Layout version, offsets and sizes of the state region."""
    import json

    return json.loads(library().text("layout"))


def get_runtime_state_layout(device: int) -> dict[str, int]:
    """The numbers of the state region of a device."""
    from .testing import global_state_of

    state = global_state_of(device)
    numbers = {name: value for name, value in layout().items() if isinstance(value, int)}
    return {
        **numbers,
        "num_sms": state.num_sms,
        "num_threads": state.num_threads,
        "num_devices": state.num_devices,
        "clock_buffer_size": state.clock_buffer_size,
    }
