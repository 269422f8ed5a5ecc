"""A bounded queue in the memory of rank 1: programs of rank 0 put items in, those of rank 1 take
them out. Each slot has a turn: twice the lap while it is free, one more while it is full.
"""

import torch
import triton
import triton.language as tl
from flags import APART, WAYS, put, wait
from gsan_programs import Case, Race
from gsan_ranks import world

CTAS = 3
SLOTS = 4
ITEMS = 24
BLOCK = 512


@triton.jit(do_not_specialize=["room", "fill"])
def produce(
    slots, turns, ticket, room, fill, SLOTS: tl.constexpr, ITEMS: tl.constexpr, B: tl.constexpr
):
    i = tl.arange(0, B)
    item = tl.atomic_add(ticket, 1, sem="relaxed")
    while item < ITEMS:
        turn, lap = turns + item % SLOTS * APART, item // SLOTS
        seen = wait(turn, 2 * lap, room)
        tl.store(slots + item % SLOTS * B + i, item * 1000 + i)  # @put
        put(turn, 2 * lap + 1, fill)
        # Who waited in vain gives up.
        item = tl.where(seen, tl.atomic_add(ticket, 1, sem="relaxed"), ITEMS)


@triton.jit(do_not_specialize=["full", "free"])
def consume(
    slots, turns, ticket, out, full, free, SLOTS: tl.constexpr, ITEMS: tl.constexpr, B: tl.constexpr
):
    i = tl.arange(0, B)
    item = tl.atomic_add(ticket, 1, sem="relaxed")
    while item < ITEMS:
        turn, lap = turns + item % SLOTS * APART, item // SLOTS
        seen = wait(turn, 2 * lap + 1, full)
        tl.store(out + item * B + i, tl.load(slots + item % SLOTS * B + i))  # @get
        put(turn, 2 * lap + 2, free)
        item = tl.where(seen, tl.atomic_add(ticket, 1, sem="relaxed"), ITEMS)


def run(ways: dict[str, str], check: bool) -> None:
    ranks = world()
    slots, turns = ranks.take(SLOTS * BLOCK)[1], ranks.take(SLOTS * APART.value)[1]
    ticket = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(ITEMS, BLOCK, dtype=torch.int32, device="cuda")
    room, fill, full, free = (
        WAYS[ways.get(what, "right")] for what in ("room", "fill", "full", "free")
    )
    sizes = {"SLOTS": SLOTS, "ITEMS": ITEMS, "B": BLOCK}
    ranks.barrier()
    if ranks.me == 0:
        produce[(CTAS,)](slots, turns, ticket, room, fill, **sizes)
    elif ranks.me == 1:
        consume[(CTAS,)](slots, turns, ticket, out, full, free, **sizes)
    torch.cuda.synchronize()
    if check and ranks.me == 1:
        i = torch.arange(BLOCK, dtype=torch.int32)
        for item in range(ITEMS):
            assert torch.equal(out[item].cpu(), item * 1000 + i)


def racy(what: str, way: str = "relaxed", also: tuple[Race, ...] = ()) -> Case:
    races = (Race("put", "get"),)
    # Items of the same slot have only the queue between them.
    also = (*also, Race("put", "put"), Race("get", "get"))
    return Case(f"{what}: {way}", lambda: run({what: way}, False), races=races, also=also)


CASES = [
    Case("right", lambda: run({}, True)),
    racy("room"),
    racy("fill"),
    racy("full"),
    racy("free"),
    # Later laps count as ordered: a turn that both sides exchange is one release sequence.
    racy("fill", "gpu", also=(Race("put-near", "wait-right"), Race("put-near", "put-right"))),
]
