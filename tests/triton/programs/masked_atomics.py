"""Atomics on tensors, some elements masked off: what is masked off is neither read nor written."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 8
BLOCK = 512


@triton.jit
def even_and_odd(x, out, ALL: tl.constexpr, B: tl.constexpr):
    """Even CTAs add to even elements, the others store the odd ones."""
    i = tl.arange(0, B)
    p = tl.program_id(0)
    x += p // 2 * B
    if p % 2 == 0:
        if ALL:
            tl.atomic_add(x + i, 1, sem="relaxed")  # @all
        else:
            tl.atomic_add(x + i, 1, i % 2 == 0, sem="relaxed")
    else:
        tl.store(x + i, 5, i % 2 == 1)  # @odd


@triton.jit
def raise_many(data, flags, out, MASKED: tl.constexpr, B: tl.constexpr):
    """A flag for each element."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)
        tl.debug_barrier()
        tl.atomic_store(flags + i, 1)
    else:
        seen = tl.atomic_load(flags + i) == 1
        tries = 0
        while (tl.min(seen.to(tl.int32), 0) == 0) & (tries < 100_000):
            seen = tl.atomic_load(flags + i) == 1
            tries += 1
        if MASKED:
            tl.store(out + i, tl.load(data + i, seen, other=0))
        else:
            tl.store(out + i, tl.load(data + i))


@triton.jit
def peek(data, flags, out, MASKED: tl.constexpr, B: tl.constexpr):
    """Reads what is ready; without a mask, what is not ready, too."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        for part in range(8):
            mine = i // (B // 8) == part
            tl.store(data + i, i + 1, mine)  # @give
            tl.debug_barrier()
            tl.atomic_xchg(flags + i, 1, mine, sem="release")
    else:
        for turn in range(8):
            seen = tl.atomic_load(flags + i) == 1
            tl.debug_barrier()
            if MASKED:
                v = tl.load(data + i, seen, other=0)
            else:
                v = tl.load(data + i)  # @peek
            tl.store(out + turn * B + i, v)


def run_even_and_odd(every: bool) -> None:
    x = torch.zeros(CTAS // 2 * BLOCK, dtype=torch.int32, device="cuda")
    even_and_odd[(CTAS,)](x, x, ALL=every, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if not every:
        assert torch.equal(x[:4].cpu(), torch.tensor([1, 5, 1, 5], dtype=torch.int32))


def run_flags(kernel, masked: bool) -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flags = torch.zeros_like(data)
    out = torch.zeros(8 * BLOCK, dtype=torch.int32, device="cuda")
    kernel[(2,)](data, flags, out, MASKED=masked, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()


CASES = [
    Case("halves", lambda: run_even_and_odd(False)),
    Case("mask missing", lambda: run_even_and_odd(True), races=(Race("all", "odd"),)),
    Case("a flag for each element", lambda: run_flags(raise_many, True)),
    Case("reads what is ready", lambda: run_flags(peek, True)),
    Case("reads all", lambda: run_flags(peek, False), races=(Race("give", "peek"),)),
]
