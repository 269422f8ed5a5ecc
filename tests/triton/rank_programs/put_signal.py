"""Each rank puts data into the other's memory and raises a flag there."""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, put, wait
from gsan_programs import Case, Race
from gsan_ranks import world

CTAS = 4
BLOCK = 1024


@triton.jit(do_not_specialize=["way", "wait_way", "early"])
def put_and_get(
    theirs, their_flags, mine, my_flags, out, way, wait_way, early, B: tl.constexpr
):  # fmt: skip
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    if early != 0:
        tl.atomic_xchg(their_flags + p * APART, 1, sem="release", scope="sys")
    tl.store(theirs + i, i + 1)  # @put
    if early == 0:
        put(their_flags + p * APART, 1, way)
    wait(my_flags + p * APART, 1, wait_way)
    tl.store(out + i, tl.load(mine + i))  # @get


def run(way: str, wait_way: str, early: bool, check: bool) -> None:
    ranks = world()
    data, flags = ranks.take(CTAS * BLOCK), ranks.take(CTAS * APART.value)
    out = torch.zeros(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    ranks.barrier()
    me, other = ranks.me, ranks.other
    ways = WAYS[way], WAYS[wait_way], int(early)
    put_and_get[(CTAS,)](data[other], flags[other], data[me], flags[me], out, *ways, B=BLOCK)
    torch.cuda.synchronize()
    if check:
        assert torch.equal(out.cpu(), torch.arange(1, CTAS * BLOCK + 1, dtype=torch.int32))


def correct(name: str, way: str = "right") -> Case:
    return Case(name, lambda: run(way, "right", False, True))


def racy(name: str, way: str = "right", wait_way: str = "right", early: bool = False,
         also: tuple[Race, ...] = ()) -> Case:  # fmt: skip
    races = (Race("put", "get"),)
    return Case(name, lambda: run(way, wait_way, early, False), races=races, also=also)


CASES = [
    correct("right"),
    correct("acq_rel", "acq_rel"),
    racy("relaxed signal", "relaxed"),
    racy("relaxed wait", wait_way="relaxed"),
    # Atomics of scopes that do not reach the other GPU race, too.
    racy("signal for one GPU", "gpu", also=(Race("put-near", "wait-right"),)),
    racy("wait for one GPU", wait_way="gpu", also=(Race("put-right", "wait-near"),)),
    racy("signal too early", early=True),
]
