"""A stencil in place: a CTA reads its neighbours' elements while they are written."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 14
BLOCK = 256


@triton.jit
def smooth(x, out, count, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    left = tl.load(x + i - 1, i > 0, other=0)  # @left
    right = tl.load(x + i + 1, i < count - 1, other=0)  # @right
    tl.debug_barrier()
    tl.store(out + i, left + right)  # @store


def run(in_place: bool) -> None:
    x = torch.ones(COUNT, dtype=torch.int32, device="cuda")
    out = x if in_place else torch.zeros_like(x)
    smooth[(COUNT // BLOCK,)](x, out, COUNT, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if not in_place:
        assert (out[1:-1] == 2).all().item()


CASES = [
    Case("two buffers", lambda: run(False)),
    Case("in place", lambda: run(True), races=(Race("left", "store"), Race("right", "store"))),
]
