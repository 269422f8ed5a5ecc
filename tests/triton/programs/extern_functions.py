"""Functions of CUDA's library for devices, on a vector."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.language.extra import libdevice

COUNT = 98_432
BLOCK = 1024


@triton.jit
def arcs(x, out, count, step, B: tl.constexpr):
    # By halves: what neighbours have in common is the second of one and the first of the other.
    for half in range(2):
        i = tl.program_id(0) * step + half * (B // 2) + tl.arange(0, B // 2)
        v = libdevice.asin(tl.load(x + i, i < count))
        tl.store(out + i, libdevice.fma(v, 2.0, libdevice.erf(v)), i < count)  # @store


def run(step: int) -> None:
    x = torch.linspace(-1, 1, COUNT, device="cuda")
    out = torch.zeros_like(x)
    arcs[(triton.cdiv(COUNT, step),)](x, out, COUNT, step, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    v = torch.asin(x)
    assert torch.allclose(out, 2 * v + torch.erf(v), atol=1e-5)


CASES = [
    Case("blocks", lambda: run(BLOCK)),
    Case("blocks that overlap", lambda: run(BLOCK // 2), races=(Race("store", "store"),)),
]
