"""Two races at different lines in one kernel."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 32
# Two accesses that happen at the very same moment may miss each other.
WORDS = 64


@triton.jit
def both(x, y, FIRST: tl.constexpr, SECOND: tl.constexpr, WORDS: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, WORDS)
    if FIRST:
        tl.store(x + i, p)  # @first
    else:
        tl.store(x + p * WORDS + i, p)
    if SECOND:
        tl.store(y + p // 2 * WORDS + i, p)  # @second
    else:
        tl.store(y + p * WORDS + i, p)


def run(first: bool, second: bool) -> None:
    x = torch.zeros(CTAS * WORDS, dtype=torch.int32, device="cuda")
    y = torch.zeros_like(x)
    both[(CTAS,)](x, y, FIRST=first, SECOND=second, WORDS=WORDS, num_warps=1)
    torch.cuda.synchronize()


FIRST, SECOND = Race("first", "first"), Race("second", "second")

CASES = [
    Case("none", lambda: run(False, False)),
    Case("first", lambda: run(True, False), races=(FIRST,)),
    Case("both", lambda: run(True, True), races=(FIRST, SECOND)),
]
