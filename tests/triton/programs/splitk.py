"""Partial sums, added up by whoever comes last."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

TILES = 16
SPLIT = 8
BLOCK = 128


@triton.jit
def splitk(a, part, out, count, SEM: tl.constexpr, SPLIT: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0)
    s = tl.program_id(1)
    i = tl.arange(0, B)
    tl.store(part + (t * SPLIT + s) * B + i, tl.load(a + (t * SPLIT + s) * B + i))  # @part
    tl.debug_barrier()
    c = tl.atomic_add(count + t, 1, sem=SEM)
    if c == SPLIT - 1:
        sums = tl.zeros((B,), tl.float32)
        for j in range(SPLIT):
            sums += tl.load(part + (t * SPLIT + j) * B + i)  # @sum
        tl.store(out + t * B + i, sums)


def run(sem: str) -> None:
    a = torch.ones(TILES * SPLIT * BLOCK, device="cuda")
    part = torch.zeros_like(a)
    out = torch.zeros(TILES * BLOCK, device="cuda")
    count = torch.zeros(TILES, dtype=torch.int32, device="cuda")
    splitk[(TILES, SPLIT)](a, part, out, count, SEM=sem, SPLIT=SPLIT, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if sem == "acq_rel":
        assert (out == SPLIT).all().item()


CASES = [
    Case("acquire and release", lambda: run("acq_rel")),
    Case("relaxed", lambda: run("relaxed"), races=(Race("part", "sum"),)),
    Case("release only", lambda: run("release"), races=(Race("part", "sum"),)),
    Case("acquire only", lambda: run("acquire"), races=(Race("part", "sum"),)),
]
