"""A prefix sum in one pass: each CTA takes up the sum of the one before it."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 64
BLOCK = 256


@triton.jit
def scan(x, out, sums, flags, PUT: tl.constexpr, GET: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    own = tl.cumsum(tl.load(x + i), 0)
    before = 0
    if p > 0:
        tries = 0
        while (tl.atomic_add(flags + p - 1, 0, sem=GET) == 0) & (tries < 10_000_000):
            tries += 1
        before = tl.load(sums + p - 1)  # @take
    tl.store(out + i, own + before)
    total = tl.sum(tl.load(x + i), 0)
    tl.store(sums + p, before + total)  # @give
    tl.atomic_xchg(flags + p, 1, sem=PUT)


def run(put: str, get: str) -> None:
    x = torch.ones(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    sums = torch.zeros(CTAS, dtype=torch.int32, device="cuda")
    flags = torch.zeros_like(sums)
    scan[(CTAS,)](x, out, sums, flags, PUT=put, GET=get, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if (put, get) == ("release", "acquire"):
        assert torch.equal(out.cpu(), torch.arange(1, CTAS * BLOCK + 1, dtype=torch.int32))


CASES = [
    Case("release and acquire", lambda: run("release", "acquire")),
    Case("relaxed put", lambda: run("relaxed", "acquire"), races=(Race("give", "take"),)),
    Case("relaxed get", lambda: run("release", "relaxed"), races=(Race("give", "take"),)),
]
