"""All-reduce in one shot: each rank reads the parts of all, between two barriers of flags."""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, meet, words
from gsan_programs import Case, Race
from gsan_ranks import addresses, world

CTAS = 4
BLOCK = 1024
ROUNDS = 2


@triton.jit(do_not_specialize=["me", "way", "wait_way", "before", "after"])
def one_shot(
    parts, flags, out, me, way, wait_way, before, after, W: tl.constexpr, ROUNDS: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    p, n = tl.program_id(0), tl.num_programs(0)
    i = p * B + tl.arange(0, B)
    for round in range(ROUNDS):
        tl.store(words(parts, me) + i, (me + 1) * 1000 + i + round)  # @give
        if before:
            meet(flags, 2 * round * n + p, me, W, way, wait_way)
        sum = tl.zeros((B,), tl.int32)
        for r in range(W):
            sum += tl.load(words(parts, r) + i)  # @take
        tl.store(out + round * n * B + i, sum)
        if after:
            meet(flags, (2 * round + 1) * n + p, me, W, 4, 4)


def run_one_shot(way: str, wait_way: str, before: bool, after: bool, check: bool) -> None:
    ranks = world()
    parts = ranks.take(CTAS * BLOCK)
    flags = ranks.take(2 * ROUNDS * CTAS * ranks.size * APART.value)
    out = torch.zeros(ROUNDS, CTAS * BLOCK, dtype=torch.int32, device="cuda")
    tables = addresses(parts), addresses(flags)
    ways = WAYS[way], WAYS[wait_way], int(before), int(after)
    ranks.barrier()
    one_shot[(CTAS,)](*tables, out, ranks.me, *ways, W=ranks.size, ROUNDS=ROUNDS, B=BLOCK)
    torch.cuda.synchronize()
    if check:
        i = torch.arange(CTAS * BLOCK, dtype=torch.int32)
        thousands = 500 * ranks.size * (ranks.size + 1)
        for round in range(ROUNDS):
            assert torch.equal(out[round].cpu(), thousands + ranks.size * (i + round))


def case(name: str, way: str = "right", wait_way: str = "right", before: bool = True,
        after: bool = True, racy: bool = True, also: tuple[Race, ...] = ()) -> Case:  # fmt: skip
    return Case(
        name,
        lambda: run_one_shot(way, wait_way, before, after, not racy),
        races=(Race("give", "take"),) if racy else (),
        also=also,
    )


CASES = [
    case("right", racy=False),
    case("acq_rel", "acq_rel", racy=False),
    case("relaxed arrival", "relaxed"),
    case("relaxed wait", wait_way="relaxed"),
    case("arrival for one GPU", "gpu", also=(Race("put-near", "wait-right"),)),
    case("no barrier before", before=False),
    case("no barrier after", after=False),
]
