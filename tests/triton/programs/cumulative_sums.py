"""Cumulative sums in three launches: sums of blocks, sums of sums, and all elements."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 16
BLOCK = 1024


@triton.jit
def add_up(a, b):
    return a + b


@triton.jit
def sum_blocks(x, sums, B: tl.constexpr):
    p = tl.program_id(0)
    tl.store(sums + p, tl.sum(tl.load(x + p * B + tl.arange(0, B)), 0))  # @sum


@triton.jit
def scan_sums(sums, blocks, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(sums + i, i < blocks, other=0)  # @sums
    tl.store(sums + i, tl.cumsum(v, 0) - v, i < blocks)  # @before


@triton.jit
def scan_blocks(x, sums, out, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    v = tl.associative_scan(tl.load(x + i), 0, add_up)
    tl.store(out + i, v + tl.load(sums + p))  # @after


def run(first_waits: bool = True, second_waits: bool = True) -> None:
    x = (torch.arange(COUNT, dtype=torch.int32) % 13).to("cuda")
    sums = torch.zeros(COUNT // BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    sum_blocks[(COUNT // BLOCK,)](x, sums, B=BLOCK, num_warps=4)
    if first_waits:
        side.wait_stream(main)
    with torch.cuda.stream(side):
        scan_sums[(1,)](sums, COUNT // BLOCK, B=64, num_warps=1)
    if second_waits:
        main.wait_stream(side)
    scan_blocks[(COUNT // BLOCK,)](x, sums, out, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if first_waits and second_waits:
        assert torch.equal(out.cpu(), x.cpu().cumsum(0).to(torch.int32))


CASES = [
    Case("each waits", run),
    Case(
        "second does not wait for the first",
        lambda: run(first_waits=False),
        races=(Race("sum", "before"),),
        also=(Race("sum", "sums"),),
    ),
    Case(
        "third does not wait for the second",
        lambda: run(second_waits=False),
        races=(Race("before", "after"),),
    ),
]
