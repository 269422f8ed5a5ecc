"""What the detector remembers, for tests of programs and of GSan itself.

The names with `smid` and `tensor` are those of Triton's module; cells have another layout here, so
tensors of their bytes are for looking at, and the typed objects for reading.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint32
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._native import library

SCOPE_NAMES = ("none", "cta", "gpu", "system")


class ScalarClock:
    """One moment of a logical thread, as a record of an access has it.

    `scope`: none 0, cta 1, gpu 2, system 3; an ordinary access has none. Compares equal to Triton's
    own `ScalarClock` of the same values.
    """

    __slots__ = ("epoch", "thread_id", "scope", "is_release")

    def __init__(
        self, epoch: int, thread_id: int, scope: int = 0, is_release: bool = False
    ) -> None:
        self.epoch = int(epoch)
        self.thread_id = int(thread_id)
        self.scope = _number(scope)
        self.is_release = bool(is_release)

    @property
    def scope_name(self) -> str:
        """The scope in words."""
        return SCOPE_NAMES[self.scope] if self.scope < len(SCOPE_NAMES) else "unknown"

    def _values(self) -> tuple[int, int, int, bool]:
        return self.epoch, self.thread_id, self.scope, self.is_release

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarClock):
            return self._values() == other._values()
        try:
            theirs = (
                int(other.epoch),  # type: ignore[attr-defined]
                int(other.thread_id),  # type: ignore[attr-defined]
                _number(other.scope),  # type: ignore[attr-defined]
                bool(other.is_release),  # type: ignore[attr-defined]
            )
        except (AttributeError, TypeError, ValueError):
            return NotImplemented
        return self._values() == theirs

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return (
            f"ScalarClock(epoch={self.epoch}, thread_id={self.thread_id}, "
            f"scope={self.scope_name!r}, is_release={self.is_release})"
        )


def _number(scope: Any) -> int:
    return int(getattr(scope, "value", scope))


@dataclass(frozen=True)
class ShadowCell:
    """What is remembered of 8 bytes of real memory."""

    #: How many reads were seen since the last write, sampled ones included.
    num_reads: int
    #: The newest write; epoch 0: none.
    write_clock: ScalarClock
    #: The reads that are kept.
    read_clocks: list[ScalarClock]


@dataclass(frozen=True)
class ThreadState:
    """What a logical thread knows."""

    thread_id: int
    num_reads: int
    num_threads: int
    clock_buffer_head: int
    clock_buffer_dirty: bool
    clock_buffer_size: int
    #: For each thread id, the newest epoch known to have happened before.
    vector_clock: list[int]
    #: Released clocks that are kept. Here they are not copies of vector clocks, so this is empty.
    clock_buffer: list[list[int]] = field(default_factory=list)
    reserve_base: int = 0
    globals_ptr: int = 0


@dataclass(frozen=True)
class GlobalState:
    """The numbers of a device's state region."""

    num_sms: int
    num_threads: int
    num_devices: int
    rng_seed: int
    clock_buffer_size: int
    reserve_base: int = 0
    globals_base: int = 0


def _clock(clock: Any) -> ScalarClock:
    return ScalarClock(clock.epoch, clock.thread_id, clock.scope, bool(clock.is_release))


def _device(index: int | None) -> int:
    if index is not None:
        return index
    import torch

    return torch.cuda.current_device()


def shadow_cell_from_address(
    real_address: int, *, device_index: int | None = None
) -> ShadowCell | ScalarClock:
    """The cell of an address; for write-once memory the clock of the write."""
    from ._memory import is_write_once_allocation

    cell = _native.Cell()
    library().cell_at(real_address, byref(cell))
    if is_write_once_allocation(real_address):
        return _clock(cell.write_clock)
    reads = [_clock(cell.read_clocks[index]) for index in range(min(cell.read_count, 4))]
    return ShadowCell(cell.num_reads, _clock(cell.write_clock), reads)


def thread_state_from_smid(smid: int, *, device_index: int | None = None) -> ThreadState:
    """The state of a logical thread; `smid` is its number."""
    device = _device(device_index)
    state, entries = _native.ThreadState(), c_size_t(0)
    library().thread_state_at(device, smid, byref(state), None, byref(entries))
    clock = (c_uint32 * max(entries.value, 1))()
    library().thread_state_at(device, smid, byref(state), clock, byref(entries))
    base, globals_ptr = _bases(device)
    return ThreadState(
        thread_id=state.thread_id,
        num_reads=state.num_reads,
        num_threads=state.num_threads,
        clock_buffer_head=state.clock_buffer_head,
        clock_buffer_dirty=bool(state.clock_buffer_dirty),
        clock_buffer_size=state.clock_buffer_size,
        vector_clock=list(clock[: entries.value]),
        reserve_base=base,
        globals_ptr=globals_ptr,
    )


def global_state_of(device: int) -> GlobalState:
    """The global state of a device."""
    state = _native.GlobalState()
    library().global_state_of(device, byref(state))
    base, globals_base = _bases(device)
    return GlobalState(
        num_sms=state.num_sms,
        num_threads=state.num_threads,
        num_devices=state.num_devices,
        rng_seed=state.rng_seed,
        clock_buffer_size=state.clock_buffer_size,
        reserve_base=base,
        globals_base=globals_base,
    )


def global_state(*, device_index: int | None = None) -> GlobalState:
    """The global state of the current device, or of another one."""
    return global_state_of(_device(device_index))


def _bases(device: int) -> tuple[int, int]:
    from ._memory import get_device_rank, get_global_state_pointer, get_reserve_pointer

    states = get_global_state_pointer()
    stride = library().state_stride()
    return get_reserve_pointer(), states + get_device_rank(device) * stride


def shadow_size() -> int:
    """The bytes of a cell."""
    from . import _settings

    return 8 * _settings.number("shadow", "records", 4)


#: Shadow memory has tiles of so many units of 16 bytes of real memory.
_TILE = 8


def shadow_address(real_address: int) -> int:
    """The address of the first words of the cell of an address.

    In a tile of shadow memory the first 16 bytes of the cells of the units' first granules come
    first, then their next 16 bytes, if cells have more, then the same of the second granules.
    """
    from ._memory import get_reserve_pointer, get_reserve_size

    base, size = get_reserve_pointer(), get_reserve_size()
    if not base + size // 2 <= real_address < base + size:
        raise ValueError(f"{real_address:#x} is not managed memory, which has shadow memory")
    unit, second = divmod((real_address - base - size // 2) // 8, 2)
    tile, in_tile = divmod(unit, _TILE)
    return base + (2 * tile + second) * _TILE * shadow_size() + in_tile * 16


def granule_of_shadow(shadow_address: int) -> int:
    """The address of the granule whose cell an address of shadow memory belongs to."""
    from ._memory import get_reserve_pointer, get_reserve_size

    base, size = get_reserve_pointer(), get_reserve_size()
    half_tile, in_half = divmod(shadow_address - base, _TILE * shadow_size())
    unit = half_tile // 2 * _TILE + in_half // 16 % _TILE
    return base + size // 2 + 8 * (2 * unit + half_tile % 2)


def shadow_cell_tensor_from_address(real_address: int, *, device_index: int | None = None) -> Any:
    """The bytes of the cell of an address, as a `uint8` tensor: rows of 16, which lie apart."""
    address, device = shadow_address(real_address), _device(device_index)
    rows = shadow_size() // 16
    span = uint8_cuda_tensor_from_ptr(address, (rows - 1) * _TILE * 16 + 16, device)
    return span.as_strided((rows, 16), (_TILE * 16, 1))


def shadow_tensor_for(real: Any) -> Any:
    """The shadow memory of a tensor, as a `uint8` tensor: whole tiles."""
    first, last = real.data_ptr(), real.data_ptr() + real.numel() * real.element_size() - 1
    tiles = last // (16 * _TILE) - first // (16 * _TILE) + 1
    device = real.device.index
    address = shadow_address(first // (16 * _TILE) * (16 * _TILE))
    return uint8_cuda_tensor_from_ptr(address, tiles * 2 * _TILE * shadow_size(), device)


def global_state_tensor(*, device_index: int | None = None) -> Any:
    """The first bytes of the state region, as a `uint8` tensor."""
    device = _device(device_index)
    return uint8_cuda_tensor_from_ptr(_bases(device)[1], 32, device)


#: The bytes of a thread id in its device's table of epochs.
THREAD_STATE_BYTES = 4


def _epochs(device: int) -> tuple[int, int, int]:
    """Where a device's table of epochs lies, its first thread id, and how many there are."""
    from ._memory import get_device_rank, layout

    known = layout()
    count = known["topology"]["ids_per_device"]
    first = get_device_rank(device) * count
    return _bases(device)[1] + known["offsets"]["epochs"], first, count


def thread_state_tensor(smid: int, *, device_index: int | None = None) -> Any:
    """The epoch of a logical thread, as a `uint8` tensor: what the state region has of it alone.

    What the thread knows of others lies with its CTA; `thread_state_from_smid` says the rest.
    """
    device = _device(device_index)
    base, first, count = _epochs(device)
    if not first <= smid < first + count:
        raise ValueError(
            f"thread id {smid} is none of device {device}, which has {first} to {first + count - 1}"
        )
    address = base + (smid - first) * THREAD_STATE_BYTES
    return uint8_cuda_tensor_from_ptr(address, THREAD_STATE_BYTES, device)


def thread_of_state(address: int, device: int) -> int | None:
    """The logical thread whose tensor of `thread_state_tensor` lies at an address."""
    base, first, count = _epochs(device)
    place = (address - base) // THREAD_STATE_BYTES
    return first + place if 0 <= place < count else None


class _Memory:
    """Device memory in the form that `torch.as_tensor` takes; tensors keep it and what maps it."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def uint8_cuda_tensor_from_ptr(data_ptr: int, numel: int, device_index: int) -> Any:
    """A tensor over memory at an address, which must outlive it."""
    return tensor_over(data_ptr, numel, device_index, None)


def tensor_over(data_ptr: int, numel: int, device_index: int, owner: Any) -> Any:
    """The same, which keeps `owner` for as long as it, or a view of it, is there."""
    import torch

    if numel < 0:
        raise ValueError(f"a tensor cannot have {numel} elements")
    device = torch.device("cuda", device_index)
    if numel == 0:
        return torch.empty(0, dtype=torch.uint8, device=device)
    with torch.cuda.device(device):
        memory = _Memory(data_ptr, numel, owner)
        tensor = torch.as_tensor(memory, device=device)
        # Memory of another device would be copied: its tensor is that device's then.
        return tensor if tensor.data_ptr() == data_ptr else torch.as_tensor(memory)


def read_memory(address: int, size: int) -> bytes:
    """Bytes of device memory."""
    from ._plugin.driver import check, cuda

    buffer = ctypes.create_string_buffer(size)
    code = cuda().cuMemcpyDtoH_v2(buffer, ctypes.c_uint64(address), c_size_t(size))
    check(code, "cuMemcpyDtoH")
    return buffer.raw
