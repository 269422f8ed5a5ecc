"""Memory that is freed and handed out again, on one stream and across two."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 20
BLOCK = 1024


@triton.jit
def slow_fill(x, rounds, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    for r in range(rounds):
        tl.store(x + i, i + r)  # @side


@triton.jit
def fill(x, value, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, i + value)  # @main


def one_stream() -> None:
    for value in range(4):
        x = torch.empty(COUNT, dtype=torch.int32, device="cuda")
        fill[(COUNT // BLOCK,)](x, value, B=BLOCK, num_warps=4)
        del x
    torch.cuda.synchronize()


def two_streams(noted: bool) -> None:
    side = torch.cuda.Stream()
    for _ in range(3):
        x = torch.empty(COUNT, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            slow_fill[(COUNT // BLOCK,)](x, 4, B=BLOCK, num_warps=4)
        if noted:
            x.record_stream(side)
        del x
        y = torch.empty(COUNT, dtype=torch.int32, device="cuda")
        fill[(COUNT // BLOCK,)](y, 1, B=BLOCK, num_warps=4)
        del y
    torch.cuda.synchronize()


CASES = [
    Case("one stream", one_stream),
    Case("record_stream", lambda: two_streams(True)),
    Case("not noted", lambda: two_streams(False), races=(Race("side", "main"),)),
]
