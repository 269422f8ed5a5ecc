"""`triton.experimental.gsan._testing`: Triton's names for what the detector remembers.

Cells and states have another layout than Triton's, so bytes alone cannot be decoded here.
"""

from __future__ import annotations

from typing import Any

from .._errors import Error
from ..testing import (
    THREAD_STATE_BYTES,
    GlobalState,
    ScalarClock,
    ShadowCell,
    ThreadState,
    shadow_address,
    shadow_size,
)

__all__ = [
    "GLOBAL_STATE_SIZE_BYTES",
    "SHADOW_CELL_SIZE_BYTES",  # noqa: F822
    "GlobalState",
    "ScalarClock",
    "ShadowCell",
    "ThreadState",
    "decode_global_state",
    "decode_global_state_tensor",
    "decode_shadow_cell",
    "decode_shadow_cell_tensor",
    "decode_thread_state",
    "decode_thread_state_tensor",
    "shadow_cell",
    "shadow_cell_address",
    "shadow_cell_size",
    "thread_state_stride_bytes",
]

#: What is looked at of a state region.
GLOBAL_STATE_SIZE_BYTES = 32


def __getattr__(name: str) -> Any:
    if name == "SHADOW_CELL_SIZE_BYTES":
        return shadow_size()
    raise AttributeError(f"module 'triton.experimental.gsan._testing' has no attribute {name!r}")


def shadow_cell_address(real_address: int) -> int:
    """The address of the cell of an address."""
    return shadow_address(real_address)


def shadow_cell_size(real_address: int) -> int:
    """The bytes of the cell of an address."""
    return shadow_size()


def shadow_cell(real_address: int) -> tuple[int, int]:
    """Address and size of the cell of an address."""
    return shadow_address(real_address), shadow_size()


def thread_state_stride_bytes(num_threads: int, clock_buffer_size: int) -> int:
    """The bytes between the tensors of two logical threads, whatever the sizes."""
    return THREAD_STATE_BYTES


def _by_address(what: str, instead: str) -> Error:
    return Error(
        f"{what} cannot be decoded from bytes: their layout is not Triton's. "
        f"gsan.testing.{instead} gives the same object",
        "GSAN_UNSUPPORTED",
    )


def decode_shadow_cell(data: Any) -> ShadowCell:
    """Not from bytes."""
    raise _by_address("A cell", "shadow_cell_from_address(address)")


def decode_shadow_cell_tensor(
    cell_bytes: Any, *, write_once: bool = False
) -> ShadowCell | ScalarClock:
    """The cell that a tensor of `shadow_cell_tensor_from_address` shows."""
    from .._memory import get_reserve_pointer, get_reserve_size
    from ..testing import granule_of_shadow, shadow_cell_from_address

    base, size = get_reserve_pointer(), get_reserve_size()
    if not cell_bytes.is_cuda or not base <= cell_bytes.data_ptr() < base + size // 2:
        raise _by_address("A cell", "shadow_cell_from_address(address)")
    return shadow_cell_from_address(granule_of_shadow(cell_bytes.data_ptr()))


def decode_global_state(data: bytes | bytearray | memoryview) -> GlobalState:
    """Not from bytes."""
    raise _by_address("A global state", "global_state()")


def decode_global_state_tensor(state_bytes: Any) -> GlobalState:
    """The global state that a tensor of `global_state_tensor` shows."""
    from ..testing import global_state_of

    return global_state_of(state_bytes.device.index)


def decode_thread_state(
    data: bytes | bytearray | memoryview, num_threads: int, clock_buffer_size: int
) -> ThreadState:
    """Not from bytes."""
    raise _by_address("A thread state", "thread_state_from_smid(thread_id)")


def decode_thread_state_tensor(
    state_bytes: Any, num_threads: int, clock_buffer_size: int
) -> ThreadState:
    """The state of the logical thread that a tensor of `thread_state_tensor` shows."""
    from ..testing import thread_of_state, thread_state_from_smid

    device = state_bytes.device.index
    thread = thread_of_state(state_bytes.data_ptr(), device) if state_bytes.is_cuda else None
    if thread is None:
        raise _by_address("A thread state", "thread_state_from_smid(thread_id)")
    return thread_state_from_smid(thread, device_index=device)
