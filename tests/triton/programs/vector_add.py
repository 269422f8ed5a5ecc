"""The sum of two vectors, with tails, and its mistakes: masks, strides and outputs that overlap."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 98_432 - 37
BLOCK = 1024


@triton.jit
def add(x, y, out, count, step, MASKED: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, B)
    v = tl.load(x + i, i < count) + tl.load(y + i, i < count)  # @load
    if MASKED:
        tl.store(out + i, v, i < count)  # @store
    else:
        tl.store(out + i, v)  # @unmasked


def sums(step: int, out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, masked: bool) -> None:
    def grid(meta):
        return (triton.cdiv(COUNT, step),)

    add[grid](x, y, out, COUNT, step, MASKED=masked, B=BLOCK, num_warps=4)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(COUNT, dtype=torch.float32, device="cuda")
    return x, torch.ones(COUNT, device="cuda")


def run(step: int) -> None:
    x, y = inputs()
    out = torch.zeros_like(x)
    sums(step, out, x, y, True)
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


def run_in_place(shift: int) -> None:
    x, y = inputs()
    both = torch.zeros(COUNT + 64, device="cuda")
    sums(BLOCK, both[shift : shift + COUNT], both[:COUNT], y, True)
    torch.cuda.synchronize()


def run_two_outputs(masked: bool) -> None:
    """Two streams, each with its part of one tensor: the tail of the first lies in the second."""
    x, y = inputs()
    out = torch.zeros(2 * COUNT + BLOCK, device="cuda")
    torch.cuda.synchronize()
    for part in (out[:COUNT], out[COUNT:]):
        with torch.cuda.stream(torch.cuda.Stream()):
            sums(BLOCK, part, x, y, masked)
    torch.cuda.synchronize()
    if masked:
        assert torch.equal(out[: 2 * COUNT].view(2, COUNT), (x + y).expand(2, COUNT))


CASES = [
    Case("sum", lambda: run(BLOCK)),
    Case("blocks that overlap", lambda: run(BLOCK - 8), races=(Race("store", "store"),)),
    Case("in place", lambda: run_in_place(0)),
    Case("in place, shifted", lambda: run_in_place(64), races=(Race("load", "store"),)),
    Case("two outputs side by side", lambda: run_two_outputs(True)),
    Case(
        "two outputs side by side, mask missing",
        lambda: run_two_outputs(False),
        races=(Race("unmasked", "unmasked"),),
    ),
]
