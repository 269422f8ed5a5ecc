"""What programs of two ranks have in common: memory that both map, and a barrier between runs.

A module in ``rank_programs`` has a list ``CASES``, as those in ``programs`` have; every rank runs
each case at the same time. ``ranks.py`` starts the ranks.
"""

from __future__ import annotations

import os
from typing import Any

#: Words of memory that a rank shares.
WORDS = 1 << 23
#: How long ranks wait for each other, in milliseconds.
PATIENCE = 20_000


class World:
    """All ranks, as one of them sees them, with a GPU each or one for all."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.gpus = torch.cuda.device_count()
        self.size = int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
        torch.cuda.set_device(local % self.gpus)
        # NCCL refuses two ranks on one GPU.
        self.nccl = self.gpus >= self.size and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if self.nccl else "gloo")
        self.me = dist.get_rank()
        self.other = (self.me + 1) % self.size
        self.handle: Any = None
        self.words: Any = None
        self._taken = 0

    def share(self) -> None:
        """Gives this process its rank, and shares its memory."""
        import torch
        import torch.distributed as dist
        from triton.experimental.gsan import symmetric_memory

        symmetric_memory.configure(dist.group.WORLD)
        self.words = symmetric_memory.empty(WORDS, dtype=torch.int32)
        self.handle = symmetric_memory.rendezvous(self.words, dist.group.WORLD)

    def take(self, words: int) -> list[Any]:
        """So many words of each rank's memory, as tensors. The own ones are zero, those of others
        after the next barrier.

        They were not used by earlier runs, as long as there are such: of a flag that was, it is
        remembered how far releases of that run reached.
        """
        import torch

        first = self._taken if self._taken + words <= WORDS else 0
        self._taken = first + (words + 63) // 64 * 64
        self.words[first : first + words].zero_()
        return [
            self.handle.get_buffer(rank, (words,), torch.int32, first) for rank in range(self.size)
        ]

    def barrier(self) -> None:
        """All that ranks did before comes before all that they do after."""
        self.handle.barrier(timeout_ms=PATIENCE)

    def close(self) -> None:
        """Leaves the others."""
        import torch.distributed as dist

        dist.barrier()
        self.handle.close()
        dist.destroy_process_group()


_world: World | None = None


def world() -> World:
    """The ranks, of which this process is one."""
    global _world
    if _world is None:
        _world = World()
    return _world


def addresses(tensors: list[Any]) -> Any:
    """Where tensors lie, for kernels that choose among them."""
    import torch

    return torch.tensor([t.data_ptr() for t in tensors], dtype=torch.int64, device="cuda")
