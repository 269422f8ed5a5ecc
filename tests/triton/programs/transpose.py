"""A transposition, in place and into a second matrix, and a scatter with repeated places."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIZE = 256
TILE = 32


@triton.jit
def transpose(x, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + i[:, None] * N + j[None, :])  # @from
    tl.store(out + j[None, :] * N + i[:, None], v)  # @to


@triton.jit
def scatter(x, places, out, PARTS: tl.constexpr, B: tl.constexpr):
    """Those in the second half of the grid begin elsewhere: at the same places at once, they may
    miss those in the first half.
    """
    p = tl.program_id(0)
    first = p * 2 // tl.num_programs(0) * 2
    for n in range(PARTS):
        i = (p * PARTS + (first + n) % PARTS) * B + tl.arange(0, B)
        tl.store(out + tl.load(places + i), tl.load(x + i))  # @scatter


def run_transpose(in_place: bool) -> None:
    x = torch.arange(SIZE * SIZE, dtype=torch.int32, device="cuda").view(SIZE, SIZE)
    out = x if in_place else torch.zeros_like(x)
    transpose[(SIZE // TILE, SIZE // TILE)](x, out, SIZE, B=TILE, num_warps=4)
    torch.cuda.synchronize()
    if not in_place:
        assert torch.equal(out.cpu(), x.cpu().t())


def run_scatter(places: int) -> None:
    x = torch.arange(1 << 12, dtype=torch.int32, device="cuda")
    where = (torch.arange(1 << 12) * 5 % places).to(device="cuda", dtype=torch.int32)
    out = torch.zeros_like(x)
    scatter[(8,)](x, where, out, PARTS=4, B=128, num_warps=4)
    torch.cuda.synchronize()


CASES = [
    Case("two matrices", lambda: run_transpose(False)),
    Case("in place", lambda: run_transpose(True), races=(Race("from", "to"),)),
    Case("scatter", lambda: run_scatter(1 << 12)),
    Case(
        "scatter, places repeated",
        lambda: run_scatter(1 << 11),
        races=(Race("scatter", "scatter"),),
    ),
]
