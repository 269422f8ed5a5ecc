"""All-gather: each rank pushes its part into the memory of all, and counts it there."""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, count, wait_for_count
from gsan_programs import Case, Race
from gsan_ranks import addresses, world

CTAS = 4
BLOCK = 1024


@triton.jit(do_not_specialize=["me", "way", "wait_way", "early"])
def gather(wholes, counts, out, me, way, wait_way, early, W: tl.constexpr, B: tl.constexpr):
    p, n = tl.program_id(0), tl.num_programs(0)
    i = p * B + tl.arange(0, B)
    for r in range(W):
        counter = tl.load(counts + r).to(tl.pointer_type(tl.int32)) + p * APART
        if early != 0:
            tl.atomic_add(counter, 1, sem="release", scope="sys")
        theirs = tl.load(wholes + r).to(tl.pointer_type(tl.int32))
        tl.store(theirs + me * n * B + i, me * 1000 + i)  # @push
        if early == 0:
            count(counter, way)
    counter = tl.load(counts + me).to(tl.pointer_type(tl.int32)) + p * APART
    wait_for_count(counter, W, wait_way)
    mine = tl.load(wholes + me).to(tl.pointer_type(tl.int32))
    for r in range(W):
        tl.store(out + r * n * B + i, tl.load(mine + r * n * B + i))  # @pull


def run(way: str, wait_way: str, early: bool, check: bool) -> None:
    ranks = world()
    wholes, counts = ranks.take(ranks.size * CTAS * BLOCK), ranks.take(CTAS * APART.value)
    out = torch.zeros(ranks.size, CTAS * BLOCK, dtype=torch.int32, device="cuda")
    tables = addresses(wholes), addresses(counts)
    ways = WAYS[way], WAYS[wait_way], int(early)
    ranks.barrier()
    gather[(CTAS,)](*tables, out, ranks.me, *ways, W=ranks.size, B=BLOCK)
    torch.cuda.synchronize()
    if check:
        i = torch.arange(CTAS * BLOCK, dtype=torch.int32)
        for r in range(ranks.size):
            assert torch.equal(out[r].cpu(), r * 1000 + i)


def racy(name: str, way: str = "right", wait_way: str = "right", early: bool = False) -> Case:
    races = (Race("push", "pull"),)
    return Case(name, lambda: run(way, wait_way, early, False), races=races)


CASES = [
    Case("right", lambda: run("right", "right", False, True)),
    Case("acq_rel", lambda: run("acq_rel", "right", False, True)),
    racy("relaxed count", "relaxed"),
    racy("relaxed look", wait_way="relaxed"),
    racy("counted before it is pushed", early=True),
]
