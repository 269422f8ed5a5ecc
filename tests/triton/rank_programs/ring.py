"""Reduce-scatter in a ring: sums go to the right through a slot of the neighbour, with a flag that
says it is full and one that says it may be filled again.
"""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, put, wait
from gsan_programs import Case, Race
from gsan_ranks import world

CTAS = 4
BLOCK = 1024
PARTS = 3


@triton.jit
def value(rank, chunk, part, i):
    return rank * 100 + chunk * 10 + part + i


@triton.jit(do_not_specialize=["me", "fill", "full", "free", "room"])
def reduce_scatter(
    right_slot, right_full, left_free, slot, my_full, my_free, out, me, fill, full, free, room,
    W: tl.constexpr, PARTS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    p, n = tl.program_id(0), tl.num_programs(0)
    i = p * B + tl.arange(0, B)
    sent = 0
    for part in range(PARTS):
        sum = value(me, (me + W - 1) % W, part, i)
        for step in range(W - 1):
            wait(my_free + p * APART, sent, room)
            tl.store(right_slot + i, sum)  # @send
            put(right_full + p * APART, sent + 1, fill)
            wait(my_full + p * APART, sent + 1, full)
            sum = tl.load(slot + i) + value(me, (me + 2 * W - step - 2) % W, part, i)  # @receive
            sent += 1
            put(left_free + p * APART, sent, free)
        tl.store(out + part * n * B + i, sum)


def run(ways: dict[str, str], check: bool) -> None:
    ranks = world()
    slots = ranks.take(CTAS * BLOCK)
    fulls, frees = ranks.take(CTAS * APART.value), ranks.take(CTAS * APART.value)
    out = torch.zeros(PARTS, CTAS * BLOCK, dtype=torch.int32, device="cuda")
    me, right, left = ranks.me, (ranks.me + 1) % ranks.size, (ranks.me - 1) % ranks.size
    memory = slots[right], fulls[right], frees[left], slots[me], fulls[me], frees[me]
    numbers = [WAYS[ways.get(what, "right")] for what in ("fill", "full", "free", "room")]
    ranks.barrier()
    reduce_scatter[(CTAS,)](*memory, out, me, *numbers, W=ranks.size, PARTS=PARTS, B=BLOCK)
    torch.cuda.synchronize()
    if check:
        i = torch.arange(CTAS * BLOCK, dtype=torch.int32)
        hundreds = 50 * ranks.size * (ranks.size - 1)
        for part in range(PARTS):
            total = hundreds + ranks.size * (me * 10 + part + i)
            assert torch.equal(out[part].cpu(), total)


def racy(what: str, way: str = "relaxed", also: tuple[Race, ...] = ()) -> Case:
    races = (Race("send", "receive"),)
    return Case(f"{what}: {way}", lambda: run({what: way}, False), races=races, also=also)


CASES = [
    Case("right", lambda: run({}, True)),
    racy("fill"),
    racy("full"),
    racy("free"),
    racy("room"),
    racy("fill", "gpu", also=(Race("put-near", "wait-right"),)),
    racy("free", "gpu", also=(Race("put-near", "wait-right"),)),
]
