"""A ring of slots between many producers and many consumers, each slot with a turn of its own."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIDES = 12
EACH = 8
SLOTS = 8
BLOCK = 128


@triton.jit
def pump(
    data,
    turns,
    tickets,
    out,
    FULL: tl.constexpr,
    EMPTY: tl.constexpr,
    SIDES: tl.constexpr,
    EACH: tl.constexpr,
    SLOTS: tl.constexpr,
    B: tl.constexpr,
):
    """Slot `s` may be filled in turn `n` when its word is `n`, and emptied when it is `n + 1`."""
    i = tl.arange(0, B)
    p = tl.program_id(0)
    for _ in range(EACH):
        if p < SIDES:
            n = tl.atomic_add(tickets, 1, sem="relaxed")
            slot = n % SLOTS
            tries = 0
            while (tl.atomic_load(turns + slot) != n) & (tries < 1_000_000):
                tries += 1
            tl.store(data + slot * B + i, n + i)  # @produce
            tl.debug_barrier()
            tl.atomic_store(turns + slot, n + 1, sem=FULL)
        else:
            n = tl.atomic_add(tickets + 1, 1, sem="relaxed")
            slot = n % SLOTS
            tries = 0
            while (tl.atomic_load(turns + slot) != n + 1) & (tries < 1_000_000):
                tries += 1
            v = tl.load(data + slot * B + i)  # @consume
            tl.debug_barrier()
            tl.atomic_store(turns + slot, n + SLOTS, sem=EMPTY)
            tl.store(out + n * B + i, v)


def run(full: str, empty: str) -> None:
    data = torch.zeros(SLOTS, BLOCK, dtype=torch.int32, device="cuda")
    turns = torch.arange(SLOTS, dtype=torch.int32, device="cuda")
    tickets = torch.zeros(2, dtype=torch.int32, device="cuda")
    out = torch.zeros(SIDES * EACH, BLOCK, dtype=torch.int32, device="cuda")
    sizes = {"SIDES": SIDES, "EACH": EACH, "SLOTS": SLOTS, "B": BLOCK, "num_warps": 4}
    pump[(2 * SIDES,)](data, turns, tickets, out, FULL=full, EMPTY=empty, **sizes)
    torch.cuda.synchronize()
    if (full, empty) == ("release", "release"):
        expected = torch.arange(SIDES * EACH)[:, None] + torch.arange(BLOCK)[None, :]
        assert torch.equal(out.cpu(), expected.to(torch.int32))


RACES, ALSO = (Race("produce", "consume"),), (Race("produce", "produce"),)

CASES = [
    Case("slots handed over with release", lambda: run("release", "release")),
    Case("filled relaxed", lambda: run("relaxed", "release"), RACES, ALSO),
    Case("emptied relaxed", lambda: run("release", "relaxed"), RACES, ALSO),
]
