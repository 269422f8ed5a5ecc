"""A spin lock around a counter."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 48


@triton.jit
def count_up(lock, count, LOCK: tl.constexpr, UNLOCK: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tries = 0
    while (tl.atomic_cas(lock, 0, 1, sem=LOCK) == 1) & (tries < 10_000_000):
        tries += 1
    v = tl.load(count + i)  # @load
    tl.store(count + i, v + 1)  # @store
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=UNLOCK)


def run(lock: str, unlock: str) -> None:
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    count = torch.zeros(128, dtype=torch.int32, device="cuda")
    count_up[(CTAS,)](word, count, LOCK=lock, UNLOCK=unlock, B=128, num_warps=4)
    torch.cuda.synchronize()
    if (lock, unlock) == ("acquire", "release"):
        assert (count == CTAS).all().item()


def racy(lock: str, unlock: str) -> Case:
    races, also = (Race("load", "store"),), (Race("store", "store"),)
    return Case(f"{lock}, {unlock}", lambda: run(lock, unlock), races=races, also=also)


CASES = [
    Case("acquire, release", lambda: run("acquire", "release")),
    racy("acquire", "relaxed"),
    racy("relaxed", "release"),
]
