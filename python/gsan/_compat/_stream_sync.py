"""`triton.experimental.gsan._stream_sync`: what Triton's launcher asks before a launch."""

from __future__ import annotations

from typing import Any

from .._memory import get_device_rank, get_runtime_state_layout
from .._plugin import launching
from ..testing import uint8_cuda_tensor_from_ptr

__all__ = [
    "get_device_rank",
    "get_launch_state",
    "get_runtime_state_layout",
    "synchronize_process_group_barrier",
    "uint8_cuda_tensor_from_ptr",
]


def get_launch_state(device: int, stream: int, launch_pdl: bool = False) -> tuple[int, int]:
    """Launch table and index of a launch on a stream, for the kernel's hidden arguments.

    For the launch that Triton's launcher makes right now in this thread; else for one that another
    launcher is about to make, which then counts as made.
    """
    return launching.current() or launching.plan_alone(device, stream, bool(launch_pdl))


def synchronize_process_group_barrier(
    counters: Any, rank: int, epoch: int, world_size: int
) -> None:
    """A barrier of all ranks, on the current stream. The counters are kept elsewhere."""
    from .. import symmetric_memory

    symmetric_memory.barrier_of_world(rank, world_size)
