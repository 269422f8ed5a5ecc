"""Atomics on whole tensors, which are an acquire and a release for each element by default."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 20
BLOCK = 1024


@triton.jit
def add(x, CTAS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) % CTAS * B + tl.arange(0, B)
    tl.atomic_add(x + i, 1)


@triton.jit
def add_and_read(x, out, PARTS: tl.constexpr, B: tl.constexpr):
    """Programs begin with different parts: those that add at once clear each other's records."""
    p = tl.program_id(0)
    for n in range(PARTS):
        i = (p + n) % PARTS * B + tl.arange(0, B)
        tl.atomic_add(x + i, 1, sem="relaxed")  # @add
        tl.store(out + p * PARTS * B + i, tl.load(x + i))  # @read


def run_add() -> None:
    x = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    ctas = COUNT // BLOCK
    add[(2 * ctas,)](x, CTAS=ctas, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    assert (x == 2).all().item()


def run_add_and_read() -> None:
    x = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros(8 * BLOCK, dtype=torch.int32, device="cuda")
    add_and_read[(8,)](x, out, PARTS=8, B=BLOCK // 8, num_warps=4)
    torch.cuda.synchronize()


CASES = [
    Case("acquire and release of 2^20 elements, twice", run_add, runs=3),
    Case("plain read beside atomics", run_add_and_read, races=(Race("add", "read"),)),
]
