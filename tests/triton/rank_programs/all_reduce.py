"""All-reduce in one shot (each rank reads all others' parts) and in two (each sums a part and hands
it out), with flags that each program raises in all ranks.
"""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, put, wait
from gsan_programs import Case, Race
from gsan_ranks import addresses, world

CTAS = 4
BLOCK = 1024
ROUNDS = 2


@triton.jit
def words(table, rank):
    return tl.load(table + rank).to(tl.pointer_type(tl.int32))


@triton.jit
def meet(flags, place, me, W: tl.constexpr, way, wait_way):
    for r in range(W):
        put(words(flags, r) + (place * W + me) * APART, 1, way)
    for r in range(W):
        wait(words(flags, me) + (place * W + r) * APART, 1, wait_way)


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


def one(name: str, way: str = "right", wait_way: str = "right", before: bool = True,
        after: bool = True, racy: bool = True, also: tuple[Race, ...] = ()) -> Case:  # fmt: skip
    return Case(
        f"one shot, {name}",
        lambda: run_one_shot(way, wait_way, before, after, not racy),
        races=(Race("give", "take"),) if racy else (),
        also=also,
    )


def two(name: str, place: int = 0, way: str = "right", races: tuple[Race, ...] = ()) -> Case:
    ways = ["right"] * 4
    ways[place] = way
    return Case(f"two shots, {name}", lambda: run_two_shot(ways, not races), races=races)


FIRST, SECOND = (Race("offer", "reduce"),), (Race("scatter", "collect"),)

CASES = [
    one("right", racy=False),
    one("acq_rel", "acq_rel", racy=False),
    one("relaxed arrival", "relaxed"),
    one("relaxed wait", wait_way="relaxed"),
    one("arrival for one GPU", "gpu", also=(Race("put-near", "wait-right"),)),
    one("no barrier before", before=False),
    one("no barrier after", after=False),
    two("right"),
    two("relaxed arrival", 0, "relaxed", FIRST),
    two("relaxed wait", 1, "relaxed", FIRST),
    two("relaxed arrival, second", 2, "relaxed", SECOND),
    two("relaxed wait, second", 3, "relaxed", SECOND),
]
