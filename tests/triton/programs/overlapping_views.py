"""Copies between views of one tensor that overlap: shifts, reversals, rows that share elements."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 14
BLOCK = 512


@triton.jit
def copy(source, target, count, step, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(source + i * step, i < count)  # @load
    tl.store(target + i, v, i < count)  # @store


@triton.jit
def swap_ends(x, count, HALF: tl.constexpr, B: tl.constexpr):
    """Reverses in place: a program for each block of the first half, or for all blocks."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = count - 1 - i
    here, there = tl.load(x + i), tl.load(x + j)  # @ends
    tl.debug_barrier()
    tl.store(x + i, there)  # @front
    if HALF:
        tl.store(x + j, here)


@triton.jit
def add_to_rows(x, stride, B: tl.constexpr):
    i = tl.program_id(0) * stride + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + 1.0)  # @row


def run_copy(shift: int, step: int = 1, parts: int = 1) -> None:
    """In `parts` launches, one after the other, each of which moves no element over another's."""
    x = torch.arange(2 * COUNT + BLOCK, dtype=torch.int32, device="cuda")
    each = COUNT // parts
    for part in range(parts):
        begin = part * each
        source, target = x[begin + shift :], x[begin:]
        copy[(triton.cdiv(each, BLOCK),)](source, target, each, step, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if step == 1 and (shift == 0 or parts > 1):
        expected = torch.arange(COUNT, dtype=torch.int32) + shift
        assert torch.equal(x[:COUNT].cpu(), expected)


def run_reversal(half: bool) -> None:
    x = torch.arange(COUNT, dtype=torch.int32, device="cuda")
    blocks = COUNT // BLOCK
    swap_ends[(blocks // 2 if half else blocks,)](x, COUNT, HALF=half, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if half:
        assert torch.equal(x.cpu(), torch.arange(COUNT, dtype=torch.int32).flip(0))


def run_rows(expanded: bool) -> None:
    """Rows of a matrix, or of a vector that was expanded to one: they are the same memory."""
    x = torch.zeros(32, BLOCK, device="cuda") if not expanded else torch.zeros(1, BLOCK).cuda()
    rows = x.expand(32, BLOCK)
    add_to_rows[(32,)](rows, rows.stride(0), B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if not expanded:
        assert (x == 1).all().item()


SHIFTED = (Race("load", "store"),)

CASES = [
    Case("onto itself", lambda: run_copy(0)),
    Case("shifted by a block, block after block", lambda: run_copy(BLOCK, parts=COUNT // BLOCK)),
    Case("shifted by one", lambda: run_copy(1), SHIFTED),
    Case("shifted by a block", lambda: run_copy(BLOCK), SHIFTED),
    Case("gathered in place", lambda: run_copy(0, step=2), SHIFTED),
    Case("reversed from both ends", lambda: run_reversal(True)),
    Case("reversed, all blocks at once", lambda: run_reversal(False), (Race("ends", "front"),)),
    Case("rows", lambda: run_rows(False)),
    Case("rows of an expanded vector", lambda: run_rows(True), (Race("row", "row"),)),
]
