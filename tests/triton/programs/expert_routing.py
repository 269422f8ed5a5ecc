"""Tokens are sent to experts: each takes the next place of its expert."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

TOKENS, EXPERTS, CAPACITY, WIDTH = 512, 8, 64, 64


@triton.jit
def route(
    x,
    experts,
    counts,
    out,
    places,
    capacity,
    ATOMIC: tl.constexpr,
    CUT: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
):
    """A block of tokens; a token beyond an expert's capacity is dropped."""
    t = tl.program_id(0) * T + tl.arange(0, T)
    i = tl.arange(0, D)
    expert = tl.load(experts + t)
    if ATOMIC:
        place = tl.atomic_add(counts + expert, 1, sem="relaxed")
    else:
        place = tl.load(counts + expert)  # @count
        tl.store(counts + expert, place + 1)  # @counted
    kept = place < capacity if CUT else place >= 0
    tl.store(places + t, place)
    v = tl.load(x + t[:, None] * D + i[None, :])
    at = (expert * capacity + place)[:, None] * D + i[None, :]
    tl.store(out + at, v, kept[:, None])  # @row


def run(atomic: bool, cut: bool) -> None:
    x = torch.randn(TOKENS, WIDTH, device="cuda")
    # The first two experts get more than the others.
    experts = torch.arange(TOKENS) * 7 % (EXPERTS + 2) % EXPERTS
    counts = torch.zeros(EXPERTS, dtype=torch.int32, device="cuda")
    out = torch.zeros(EXPERTS * CAPACITY + TOKENS, WIDTH, device="cuda")
    places = torch.zeros(TOKENS, dtype=torch.int32, device="cuda")
    arguments = (x, experts.to(torch.int32).to("cuda"), counts, out, places, CAPACITY)
    options = {"ATOMIC": atomic, "CUT": cut, "T": 16, "D": WIDTH, "num_warps": 4}
    route[(TOKENS // 16,)](*arguments, **options)
    torch.cuda.synchronize()
    if atomic and cut:
        assert torch.equal(counts.cpu().long(), experts.bincount(minlength=EXPERTS))
        at = experts * CAPACITY + places.cpu()
        kept = places.cpu() < CAPACITY
        assert torch.equal(out.cpu()[at[kept]], x.cpu()[kept])


CASES = [
    Case("places by atomics", lambda: run(True, True)),
    Case("capacity not minded", lambda: run(True, False), races=(Race("row", "row"),)),
    Case(
        "places without atomics",
        lambda: run(False, True),
        races=(Race("count", "counted"),),
        also=(Race("counted", "counted"), Race("row", "row")),
    ),
]
