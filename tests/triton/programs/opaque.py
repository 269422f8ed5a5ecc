"""A fence in inline assembly, which nobody reports: what it orders is only a possible race."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case

BLOCK = 128


@triton.jit
def fence(x):
    return tl.inline_asm_elementwise(
        "fence.acq_rel.gpu; mov.u32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def pass_message(data, flag, out, B: tl.constexpr):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)
        one = tl.max(fence(i * 0 + 1), 0)
        tl.debug_barrier()
        tl.atomic_xchg(flag, one, sem="relaxed")
    else:
        tries = 0
        while (tl.atomic_add(flag, 0, sem="relaxed") == 0) & (tries < 10_000_000):
            tries += 1
        tl.debug_barrier()
        tl.store(out + i, tl.load(data + fence(i)))


def run() -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    pass_message[(2,)](data, flag, out, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()


CASES = [Case("relaxed flag between fences", run)]
