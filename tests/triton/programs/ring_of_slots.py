"""A queue between a producer and a consumer, one slot at a time."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ITEMS = 32
SLOTS = 4
BLOCK = 128


@triton.jit
def pump(
    slots,
    full,
    empty,
    out,
    EMPTY: tl.constexpr,
    ITEMS: tl.constexpr,
    SLOTS: tl.constexpr,
    B: tl.constexpr,
):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        for n in range(ITEMS):
            s = n % SLOTS
            tries = 0
            while (tl.atomic_add(empty + s, 0, sem="acquire") < n // SLOTS) & (tries < 10_000_000):
                tries += 1
            tl.store(slots + s * B + i, n + i)  # @produce
            tl.atomic_add(full + s, 1, sem="release")
    else:
        for n in range(ITEMS):
            s = n % SLOTS
            tries = 0
            while (tl.atomic_add(full + s, 0, sem="acquire") <= n // SLOTS) & (tries < 10_000_000):
                tries += 1
            v = tl.load(slots + s * B + i)  # @consume
            tl.atomic_add(empty + s, 1, sem=EMPTY)
            tl.store(out + n * B + i, v)


def run(empty: str) -> None:
    slots = torch.zeros(SLOTS * BLOCK, dtype=torch.int32, device="cuda")
    full = torch.zeros(SLOTS, dtype=torch.int32, device="cuda")
    free = torch.zeros_like(full)
    out = torch.zeros(ITEMS * BLOCK, dtype=torch.int32, device="cuda")
    pump[(2,)](slots, full, free, out, EMPTY=empty, ITEMS=ITEMS, SLOTS=SLOTS, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if empty == "release":
        expected = torch.arange(ITEMS)[:, None] + torch.arange(BLOCK)[None, :]
        assert torch.equal(out.cpu().view(ITEMS, BLOCK), expected.to(torch.int32))


CASES = [
    Case("slots given back with release", lambda: run("release")),
    Case("slots given back relaxed", lambda: run("relaxed"), races=(Race("produce", "consume"),)),
]
