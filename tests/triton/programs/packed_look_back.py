"""A prefix sum in one pass, whose state and value are one word, so that no order is needed."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 96
BLOCK = 256


@triton.jit
def scan(x, out, tickets, states, sums, PACKED: tl.constexpr, PUT: tl.constexpr, B: tl.constexpr):
    """State 1: the sum of the block; 2: of all up to it. Blocks are numbered as they start."""
    p = tl.atomic_add(tickets, 1, sem="relaxed")
    i = p * B + tl.arange(0, B)
    v = tl.load(x + i)
    own = tl.sum(v, 0).to(tl.int64)
    if PACKED:
        tl.atomic_xchg(states + p, (1 << 32) | own, sem="relaxed")
    else:
        tl.store(sums + 2 * p, own)  # @own
        tl.atomic_xchg(states + p, 1, sem=PUT)
    before = tl.zeros((), tl.int64)
    at = p - 1
    tries = 0
    while (at >= 0) & (tries < 1_000_000):
        tries += 1
        state = tl.atomic_load(states + at, sem="relaxed" if PACKED else "acquire")
        kind = state >> 32 if PACKED else state
        if kind > 0:
            if PACKED:
                before += state & 0xFFFFFFFF
            elif kind == 1:
                before += tl.load(sums + 2 * at)  # @part
            else:
                before += tl.load(sums + 2 * at + 1)  # @total
            at = -1 if kind == 2 else at - 1
    if PACKED:
        tl.atomic_xchg(states + p, (2 << 32) | (before + own), sem="relaxed")
    else:
        tl.store(sums + 2 * p + 1, before + own)  # @all
        tl.atomic_xchg(states + p, 2, sem=PUT)
    tl.store(out + i, tl.cumsum(v, 0) + before.to(tl.int32))


def run(packed: bool, put: str = "release") -> None:
    x = (torch.arange(CTAS * BLOCK, dtype=torch.int32) % 7).to("cuda")
    out = torch.zeros_like(x)
    tickets = torch.zeros(1, dtype=torch.int32, device="cuda")
    states = torch.zeros(CTAS, dtype=torch.int64, device="cuda")
    sums = torch.zeros(CTAS, 2, dtype=torch.int64, device="cuda")
    arguments = (x, out, tickets, states, sums)
    scan[(CTAS,)](*arguments, PACKED=packed, PUT=put, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if packed or put == "release":
        assert torch.equal(out.cpu(), x.cpu().cumsum(0).to(torch.int32))


CASES = [
    Case("state and sum in one word", lambda: run(True)),
    Case("state and sum apart", lambda: run(False)),
    Case(
        "state relaxed",
        lambda: run(False, "relaxed"),
        races=(Race("own", "part"),),
        also=(Race("all", "total"),),
    ),
]
