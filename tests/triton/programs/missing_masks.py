"""Tiles and rows whose ends are not where a block ends, with masks, with wrong ones, with none."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ROWS, COLUMNS = 77, 93
TILE = 32


@triton.jit
def tiles(x, out, rows, columns, MASK: tl.constexpr, B: tl.constexpr):
    """Padded to whole tiles, `x` has what lies outside, too."""
    r = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.program_id(1) * B + tl.arange(0, B)
    padded = tl.num_programs(1) * B
    v = tl.load(x + r[:, None] * padded + c[None, :])
    at = out + r[:, None] * columns + c[None, :]
    if MASK == "both":
        tl.store(at, v, (r < rows)[:, None] & (c < columns)[None, :])
    elif MASK == "rows":
        tl.store(at, v, (r < rows)[:, None])  # @rows
    elif MASK == "too wide":
        tl.store(at, v, (r < rows)[:, None] & (c <= columns)[None, :])  # @wide
    else:
        tl.store(at, v)  # @none


@triton.jit
def lengths(x, starts, out, MASKED: tl.constexpr, B: tl.constexpr):
    """Rows of different lengths, one behind the other."""
    row = tl.program_id(0)
    start = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    for at in range(start, end, B):
        i = at + tl.arange(0, B)
        v = tl.load(x + i, i < end, other=0)
        if MASKED:
            tl.store(out + i, v + row, i < end)
        else:
            tl.store(out + i, v + row)  # @ragged


def run_tiles(mask: str) -> None:
    down, across = triton.cdiv(ROWS, TILE), triton.cdiv(COLUMNS, TILE)
    x = torch.randn(down * TILE, across * TILE, device="cuda")
    out = torch.zeros((down * TILE + 1) * across * TILE, device="cuda")
    tiles[(down, across)](x, out, ROWS, COLUMNS, MASK=mask, B=TILE, num_warps=4)
    torch.cuda.synchronize()
    if mask == "both":
        assert torch.equal(out[: ROWS * COLUMNS].view(ROWS, COLUMNS), x[:ROWS, :COLUMNS])


def run_lengths(masked: bool) -> None:
    sizes = torch.arange(64) * 13 % 150 + 1
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    total = int(starts[-1])
    x = torch.zeros(total, dtype=torch.int32, device="cuda")
    out = torch.zeros(total + 64, dtype=torch.int32, device="cuda")
    places = starts.to(torch.int32).to("cuda")
    lengths[(len(sizes),)](x, places, out, MASKED=masked, B=64, num_warps=2)
    torch.cuda.synchronize()
    if masked:
        expected = torch.arange(len(sizes)).repeat_interleave(sizes).to(torch.int32)
        assert torch.equal(out[:total].cpu(), expected)


CASES = [
    Case("tiles", lambda: run_tiles("both")),
    Case("tiles, columns not masked", lambda: run_tiles("rows"), (Race("rows", "rows"),)),
    Case("tiles, one column too many", lambda: run_tiles("too wide"), (Race("wide", "wide"),)),
    Case("tiles, no mask", lambda: run_tiles("none"), (Race("none", "none"),)),
    Case("rows of all lengths", lambda: run_lengths(True)),
    Case("rows of all lengths, no mask", lambda: run_lengths(False), (Race("ragged", "ragged"),)),
]
