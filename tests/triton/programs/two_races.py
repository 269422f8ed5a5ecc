"""Two races at different lines in one kernel."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 32


@triton.jit
def both(x, y, FIRST: tl.constexpr, SECOND: tl.constexpr):
    p = tl.program_id(0)
    if FIRST:
        tl.store(x, p)  # @first
    else:
        tl.store(x + p, p)
    if SECOND:
        tl.store(y + p // 2, p)  # @second
    else:
        tl.store(y + p, p)


def run(first: bool, second: bool) -> None:
    x = torch.zeros(CTAS, dtype=torch.int32, device="cuda")
    y = torch.zeros_like(x)
    both[(CTAS,)](x, y, FIRST=first, SECOND=second, num_warps=1)
    torch.cuda.synchronize()


FIRST, SECOND = Race("first", "first"), Race("second", "second")

CASES = [
    Case("none", lambda: run(False, False)),
    Case("first", lambda: run(True, False), races=(FIRST,)),
    Case("both", lambda: run(True, True), races=(FIRST, SECOND)),
]
