"""A barrier of all programs of all ranks, by a counter in the memory of rank 0."""

import torch
import triton
import triton.language as tl
from flags import WAYS, count, wait_for_count
from gsan_programs import Case, Race
from gsan_ranks import world

CTAS = 4
BLOCK = 1024


@triton.jit(do_not_specialize=["way", "wait_way", "needed"])
def cross(theirs, mine, counter, out, way, wait_way, needed, B: tl.constexpr):
    p, n = tl.program_id(0), tl.num_programs(0)
    i = tl.arange(0, B)
    tl.store(theirs + p * B + i, p * B + i)  # @write
    count(counter, way)
    wait_for_count(counter, needed, wait_way)
    j = (n - 1 - p) * B + i
    tl.store(out + j, tl.load(mine + j))  # @read


def run(way: str, wait_way: str, missing: int, check: bool) -> None:
    ranks = world()
    data, counter = ranks.take(CTAS * BLOCK), ranks.take(1)[0]
    out = torch.zeros(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    ranks.barrier()
    numbers = WAYS[way], WAYS[wait_way], CTAS * ranks.size - missing
    cross[(CTAS,)](data[ranks.other], data[ranks.me], counter, out, *numbers, B=BLOCK)
    torch.cuda.synchronize()
    if check:
        assert torch.equal(out.cpu(), torch.arange(CTAS * BLOCK, dtype=torch.int32))


def racy(name: str, way: str = "right", wait_way: str = "right", missing: int = 0) -> Case:
    races = (Race("write", "read"),)
    return Case(name, lambda: run(way, wait_way, missing, False), races=races)


CASES = [
    Case("release", lambda: run("right", "right", 0, True)),
    Case("acq_rel", lambda: run("acq_rel", "right", 0, True)),
    racy("relaxed arrival", "relaxed"),
    racy("relaxed wait", wait_way="relaxed"),
    racy("waits for half of them", missing=CTAS),
]
