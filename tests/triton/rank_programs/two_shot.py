"""All-reduce in two shots: each rank sums a part of all, and hands it out to all."""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, meet, words
from gsan_programs import Case, Race
from gsan_ranks import addresses, world

CTAS = 4
BLOCK = 1024


@triton.jit(do_not_specialize=["me", "way", "wait_way", "second", "second_wait"])
def two_shot(
    parts, sums, flags, out, me, way, wait_way, second, second_wait, W: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    p, n = tl.program_id(0), tl.num_programs(0)
    i = p * B + tl.arange(0, B)
    for chunk in range(W):
        tl.store(words(parts, me) + chunk * n * B + i, (me + 1) * 1000 + chunk + i)  # @offer
    meet(flags, p, me, W, way, wait_way)
    sum = tl.zeros((B,), tl.int32)
    for r in range(W):
        sum += tl.load(words(parts, r) + me * n * B + i)  # @reduce
    for r in range(W):
        tl.store(words(sums, r) + me * n * B + i, sum)  # @scatter
    meet(flags, n + p, me, W, second, second_wait)
    for chunk in range(W):
        whole = words(sums, me) + chunk * n * B + i
        tl.store(out + chunk * n * B + i, tl.load(whole))  # @collect


def run_two_shot(ways: list[str], check: bool) -> None:
    ranks = world()
    many = ranks.size * CTAS * BLOCK
    parts, sums = ranks.take(many), ranks.take(many)
    flags = ranks.take(2 * CTAS * ranks.size * APART.value)
    out = torch.zeros(ranks.size, CTAS * BLOCK, dtype=torch.int32, device="cuda")
    tables = addresses(parts), addresses(sums), addresses(flags)
    ranks.barrier()
    numbers = [WAYS[way] for way in ways]
    two_shot[(CTAS,)](*tables, out, ranks.me, *numbers, W=ranks.size, B=BLOCK)
    torch.cuda.synchronize()
    if check:
        i = torch.arange(CTAS * BLOCK, dtype=torch.int32)
        thousands = 500 * ranks.size * (ranks.size + 1)
        for chunk in range(ranks.size):
            assert torch.equal(out[chunk].cpu(), thousands + ranks.size * (chunk + i))


def case(name: str, place: int = 0, way: str = "right", races: tuple[Race, ...] = ()) -> Case:
    ways = ["right"] * 4
    ways[place] = way
    # Atomics of scopes that do not reach the other GPU race, too.
    also = (Race("put-near", "wait-right"),) if way == "gpu" else ()
    return Case(name, lambda: run_two_shot(ways, not races), races=races, also=also)


FIRST, SECOND = (Race("offer", "reduce"),), (Race("scatter", "collect"),)

CASES = [
    case("right"),
    case("relaxed arrival", 0, "relaxed", FIRST),
    case("relaxed wait", 1, "relaxed", FIRST),
    case("relaxed arrival, second", 2, "relaxed", SECOND),
    case("relaxed wait, second", 3, "relaxed", SECOND),
    case("arrival for one GPU, second", 2, "gpu", SECOND),
]
