"""Boxes of tensors of every rank, cut off at odd sizes, and what lies next to a box."""

import math

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def corner(number, counts, steps, FASTEST: tl.constexpr):
    """Where box `number` of a tensor starts: dimension `FASTEST` is counted fastest."""
    first = number % counts[FASTEST] * steps[FASTEST]
    number //= counts[FASTEST]
    at = ()
    for d in tl.static_range(len(steps) - 1, -1, -1):
        if d == FASTEST:
            at = (first,) + at  # type: ignore[assignment]
        else:
            at = (number % counts[d] * steps[d],) + at  # type: ignore[assignment]
            number //= counts[d]
    return at


@triton.jit
def copy(x, out, counts, steps, boxes, FASTEST: tl.constexpr, EACH: tl.constexpr):
    """Each CTA copies some boxes in a row: it ends with the one that the next began beside."""
    for i in range(EACH):
        n = tl.program_id(0) * EACH + i
        if n < boxes:
            at = corner(n, counts, steps, FASTEST)
            out.store(at, x.load(at))  # @copied


@triton.jit
def copy_made(
    x,
    out,
    sizes,
    strides,
    counts,
    steps,
    boxes,
    box: tl.constexpr,
    FASTEST: tl.constexpr,
    EACH: tl.constexpr,
):
    source = tl.make_tensor_descriptor(x, sizes, strides, box)
    target = tl.make_tensor_descriptor(out, sizes, strides, box)
    for i in range(EACH):
        n = tl.program_id(0) * EACH + i
        if n < boxes:
            at = corner(n, counts, steps, FASTEST)
            target.store(at, source.load(at))  # @copied-made


@triton.jit
def cut_store(x, out, past, first, columns, M: tl.constexpr, N: tl.constexpr):
    """CTA 0 stores a box that ends within 16 bytes; CTA 1 stores what follows `first`."""
    rows = tl.arange(0, M)[:, None]
    n = first + tl.arange(0, N)[None, :]
    if tl.program_id(0) == 0:
        out.store([0, 0], x.load([0, 0]))  # @cut-off
    else:
        tl.store(past + rows * columns + n, 3.0, n < columns)  # @next-to-it


@triton.jit
def cut_load(x, out, past, first, columns, M: tl.constexpr, N: tl.constexpr):
    """CTA 0 loads a box; CTA 1 stores what follows `first`."""
    rows = tl.arange(0, M)[:, None]
    n = first + tl.arange(0, N)[None, :]
    if tl.program_id(0) == 0:
        out.store([0, 0], x.load([0, 0]))  # @read
    else:
        tl.store(past + rows * columns + n, 3.0, n < columns)  # @written


#: Boxes that a CTA copies.
EACH = 2
#: Element, sizes, distance of rows (elements), box.
SHAPES = [
    (torch.float32, (10_003,), 0, (128,)),
    (torch.float16, (300, 250), 256, (32, 16)),
    (torch.int8, (17, 19, 45), 64, (2, 4, 32)),
    (torch.float8_e4m3fn, (9, 8, 9, 50), 64, (2, 2, 4, 32)),
    (torch.float16, (7, 3, 4, 5, 20), 24, (2, 1, 2, 4, 16)),
]


def filled(dtype: torch.dtype, sizes: tuple[int, ...], pitch: int, value: int) -> torch.Tensor:
    """A tensor whose rows are `pitch` elements apart."""
    rows = (*sizes[:-1], pitch or sizes[-1])
    whole = torch.full(rows, value, dtype=torch.int8, device="cuda").to(dtype)
    return whole[..., : sizes[-1]]


def steps_of(dtype: torch.dtype, box: tuple[int, ...], overlap: str) -> tuple[int, ...]:
    """From box to box: a whole one, or less in one dimension, by multiples of 16 bytes."""
    steps = list(box)
    if overlap == "inner":
        steps[-1] -= 16 // dtype.itemsize
    elif overlap == "outer":
        steps[0] //= 2
    return tuple(steps)


def run_copy(number: int, overlap: str = "", made: bool = False) -> None:
    def scratch(bytes: int, alignment: int, stream: int | None) -> torch.Tensor:
        return torch.empty(bytes, dtype=torch.int8, device="cuda")

    dtype, sizes, pitch, box = SHAPES[number]
    x, out = filled(dtype, sizes, pitch, 2), filled(dtype, sizes, pitch, 0)
    steps = steps_of(dtype, box, overlap)
    counts = tuple(triton.cdiv(size, step) for size, step in zip(sizes, steps, strict=True))
    boxes = math.prod(counts)
    grid = (triton.cdiv(boxes, EACH),)
    fastest = 0 if overlap == "outer" else len(box) - 1
    options = {"FASTEST": fastest, "EACH": EACH, "num_warps": 2}
    if made:
        triton.set_allocator(scratch)
        copy_made[grid](x, out, sizes, x.stride(), counts, steps, boxes, box=box, **options)
    else:
        described = [TensorDescriptor.from_tensor(t, list(box)) for t in (x, out)]
        copy[grid](*described, counts, steps, boxes, **options)
    torch.cuda.synchronize()
    assert (out.to(torch.float32) == 2).all().item()


def run_cut(store: bool, first: int) -> None:
    """30 of 32 columns are copied; somebody else has those behind."""
    rows, columns = 64, 64
    whole = torch.zeros(rows, columns, device="cuda")
    other = torch.ones(rows, columns, device="cuda")
    cut, full = whole[:, :30], other[:, :30]
    if store:
        described = [TensorDescriptor.from_tensor(t, [rows, 32]) for t in (full, cut)]
        cut_store[(2,)](*described, whole, first, columns, M=rows, N=64, num_warps=4)
    else:
        described = [TensorDescriptor.from_tensor(t, [rows, 32]) for t in (cut, full)]
        cut_load[(2,)](*described, whole, first, columns, M=rows, N=64, num_warps=4)
    torch.cuda.synchronize()
    assert (whole[:, 32:] == 3).all().item()


COPIED = (Race("copied", "copied"),)
COPIED_MADE = (Race("copied-made", "copied-made"),)
CASES = [
    *(Case(f"rank {n + 1}", lambda n=n: run_copy(n)) for n in range(5)),
    *(
        Case(f"rank {n + 1}, overlap", lambda n=n: run_copy(n, "outer"), races=COPIED)
        for n in range(5)
    ),
    *(
        Case(f"rank {n + 1}, rows overlap", lambda n=n: run_copy(n, "inner"), races=COPIED)
        for n in range(5)
    ),
    *(Case(f"rank {n + 1}, made here", lambda n=n: run_copy(n, "", True)) for n in range(5)),
    *(
        Case(
            f"rank {n + 1}, made here, overlap",
            lambda n=n: run_copy(n, "outer", True),
            races=COPIED_MADE,
        )
        for n in range(5)
    ),
    Case("behind the last 16 bytes of a store", lambda: run_cut(True, 32)),
    Case(
        "within the last 16 bytes of a store",
        lambda: run_cut(True, 30),
        races=(Race("cut-off", "next-to-it"),),
    ),
    Case("behind the end of a load", lambda: run_cut(False, 30)),
    Case("within a load", lambda: run_cut(False, 29), races=(Race("read", "written"),)),
]
