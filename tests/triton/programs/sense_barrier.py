"""A barrier of all CTAs that is used again and again, with a sense that it reverses."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 32
ROUNDS = 6
BLOCK = 128


@triton.jit
def barrier(count, sense, ctas, mine, ARRIVE: tl.constexpr, LEAVE: tl.constexpr):
    if tl.atomic_add(count, 1, sem=ARRIVE) == ctas - 1:
        # Nobody counts before the sense has changed.
        tl.atomic_store(count, 0, sem="relaxed")
        tl.atomic_store(sense, mine, sem=LEAVE)
    else:
        tries = 0
        while (tl.atomic_load(sense) != mine) & (tries < 1_000_000):
            tries += 1


@triton.jit
def rounds(
    x,
    out,
    count,
    sense,
    ctas,
    ARRIVE: tl.constexpr,
    LEAVE: tl.constexpr,
    TWICE: tl.constexpr,
    ROUNDS: tl.constexpr,
    B: tl.constexpr,
):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    mine = 1
    sums = tl.zeros((B,), tl.int32)
    for r in range(ROUNDS):
        tl.store(x + p * B + i, p + r + i)  # @own
        barrier(count, sense, ctas, mine, ARRIVE, LEAVE)
        mine = 1 - mine
        sums += tl.load(x + (p + 1 + r) % ctas * B + i)  # @other
        if TWICE:
            barrier(count, sense, ctas, mine, ARRIVE, LEAVE)
            mine = 1 - mine
    tl.store(out + p * B + i, sums)


def run(arrive: str = "acq_rel", leave: str = "release", twice: bool = True) -> None:
    x = torch.zeros(CTAS, BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    words = torch.zeros(2, 64, dtype=torch.int32, device="cuda")
    options = {"ARRIVE": arrive, "LEAVE": leave, "TWICE": twice, "ROUNDS": ROUNDS, "B": BLOCK}
    rounds[(CTAS,)](x, out, words[0], words[1], CTAS, **options, num_warps=4)
    torch.cuda.synchronize()
    if (arrive, leave, twice) == ("acq_rel", "release", True):
        p, r, i = torch.arange(CTAS), torch.arange(ROUNDS), torch.arange(BLOCK)
        others = (p[:, None] + 1 + r[None, :]) % CTAS + r[None, :]
        assert torch.equal(out.cpu(), (others.sum(1)[:, None] + ROUNDS * i).to(torch.int32))


RACE = (Race("own", "other"),)

CASES = [
    Case("two barriers a round", run),
    Case("one barrier a round", lambda: run(twice=False), RACE),
    Case("arrival relaxed", lambda: run(arrive="relaxed"), RACE),
    Case("arrival without acquire", lambda: run(arrive="release"), RACE),
    Case("sense relaxed", lambda: run(leave="relaxed"), RACE),
]
