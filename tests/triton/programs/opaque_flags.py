"""Assembly and volatile loads that may order, beside assembly that only computes.

What the former may order is only a possible race.
"""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 128
# More than run at once: two that store at the very same moment may miss each other.
CTAS = 4096


@triton.jit
def put(flag, value):
    tl.inline_asm_elementwise(
        "st.release.gpu.global.u32 [$1], $2; mov.u32 $0, $2;",
        "=r,l,r",
        [flag, value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def get(flag):
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.u32 $0, [$1];",
        "=r,l",
        [flag],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def swap_bytes(x):
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $1, 0x0123;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def by_assembly(data, flag, out, limit, B: tl.constexpr):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)
        tl.debug_barrier()
        put(flag, 1)
    else:
        tries = 0
        while (get(flag) == 0) & (tries < limit):
            tries += 1
        tl.debug_barrier()
        tl.store(out + i, tl.load(data + i))


@triton.jit
def by_volatile_load(data, flag, out, limit, B: tl.constexpr):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)
        tl.atomic_xchg(flag, 1, sem="release")
    else:
        tries = 0
        while (tl.load(flag, volatile=True) == 0) & (tries < limit):
            tries += 1
        tl.debug_barrier()
        tl.store(out + i, tl.load(data + i))


@triton.jit
def computes(x, out, step, B: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, B)
    tl.store(out + i, swap_bytes(tl.load(x + i)))  # @swapped


def run_flags(kernel) -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    kernel[(2,)](data, flag, out, 1_000_000, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if kernel is by_assembly:
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


def run_computes(step: int) -> None:
    x = torch.arange(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    computes[(CTAS,)](x, out, step, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if step == BLOCK:
        pairs = x.cpu().numpy().byteswap()
        assert torch.equal(out.cpu(), torch.from_numpy(pairs))


CASES = [
    Case("flag by assembly", lambda: run_flags(by_assembly)),
    Case("flag by a volatile load", lambda: run_flags(by_volatile_load)),
    Case("assembly that computes", lambda: run_computes(BLOCK)),
    Case(
        "assembly that computes, blocks that overlap",
        lambda: run_computes(BLOCK - 16),
        races=(Race("swapped", "swapped"),),
    ),
]
