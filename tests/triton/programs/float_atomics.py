"""Additions, maxima and minima of floating-point numbers, and of numbers of 64 bits."""

from collections.abc import Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 16
BLOCK = 256

TYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "int64": torch.int64,
    "uint32": torch.uint32,
}


@triton.jit
def accumulate(x, sums, largest, smallest, COMPARED: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i)
    tl.atomic_add(sums + i, v, sem="relaxed")
    if COMPARED:
        tl.atomic_max(largest + i, v, sem="relaxed")
        tl.atomic_min(smallest + i, v, sem="relaxed")


@triton.jit
def plain(x, sums, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i)
    tl.store(sums + i, tl.load(sums + i) + v)  # @plain


@triton.jit
def beside(x, out, SHIFT: tl.constexpr, B: tl.constexpr):
    """One CTA adds, the others read: its own elements, or those beside them."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.atomic_add(x + 2 * i, (i * 0 + 1).to(x.dtype.element_ty), sem="relaxed")  # @added
    else:
        tl.store(out + tl.program_id(0) * B + i, tl.load(x + 2 * i + SHIFT))  # @read


def inputs(name: str) -> list[torch.Tensor]:
    values = torch.arange(CTAS * BLOCK) % 3
    starts = [torch.full((BLOCK,), start) for start in (0, 0, 2)]
    return [x.to(TYPES[name]).to("cuda") for x in (values, *starts)]


def run(name: str) -> None:
    # Triton has no maximum and no minimum of numbers of 16 bits.
    compared = name not in ("fp16", "bf16")
    x, sums, largest, smallest = inputs(name)
    accumulate[(CTAS,)](x, sums, largest, smallest, COMPARED=compared, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    rows = (torch.arange(CTAS * BLOCK) % 3).view(CTAS, BLOCK)
    assert torch.equal(sums.cpu().to(torch.int64), rows.sum(0))
    if compared:
        assert torch.equal(largest.cpu().to(torch.int64), rows.amax(0))
        assert torch.equal(smallest.cpu().to(torch.int64), rows.amin(0))


def run_plain(name: str) -> None:
    x, sums, _, _ = inputs(name)
    plain[(CTAS,)](x, sums, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()


def run_beside(name: str, shift: int) -> None:
    x = torch.zeros(2 * BLOCK, dtype=torch.int32).to(TYPES[name]).to("cuda")
    out = torch.zeros(CTAS * BLOCK, dtype=torch.int32).to(TYPES[name]).to("cuda")
    beside[(CTAS,)](x, out, SHIFT=shift, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()


def cases() -> Iterator[Case]:
    for name in TYPES:
        yield Case(name, partial(run, name))
    for name in ("bf16", "fp64"):
        races = (Race("plain", "plain"),)
        yield Case(f"{name}, plain sum", partial(run_plain, name), races)
    for name in ("fp16", "bf16"):
        yield Case(f"{name}, read beside", partial(run_beside, name, 1))
        yield Case(
            f"{name}, read what is added to",
            partial(run_beside, name, 0),
            races=(Race("added", "read"),),
        )


CASES = list(cases())
