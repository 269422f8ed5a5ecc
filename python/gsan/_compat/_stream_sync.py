"""`triton.experimental.gsan._stream_sync`: what Triton's launcher asks before a launch."""

from __future__ import annotations

from typing import Any

from .._memory import get_device_rank, get_runtime_state_layout
from .._plugin.launching import get_launch_state
from ..testing import uint8_cuda_tensor_from_ptr

__all__ = [
    "get_device_rank",
    "get_launch_state",
    "get_runtime_state_layout",
    "synchronize_process_group_barrier",
    "uint8_cuda_tensor_from_ptr",
]


def synchronize_process_group_barrier(
    counters: Any, rank: int, epoch: int, world_size: int
) -> None:
    """A barrier of all ranks, on the current stream. The counters are kept elsewhere."""
    from .. import symmetric_memory

    symmetric_memory.barrier_of_world(rank, world_size)
