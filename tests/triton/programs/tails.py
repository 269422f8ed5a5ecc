"""Rows whose length is no power of two, with the mask that this needs, and without."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ROWS = 96
EACH = 4
COLUMNS = 100


@triton.jit
def scale(x, out, columns, MASKED: tl.constexpr, EACH: tl.constexpr, B: tl.constexpr):
    """Every other program goes backwards: at neighbouring rows at once, they may miss them."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    for n in range(EACH):
        row = tl.where(p % 2 == 0, n, EACH - 1 - n) * tl.num_programs(0) + p
        v = tl.load(x + row * columns + i, i < columns, other=0.0)
        if MASKED:
            tl.store(out + row * columns + i, 2 * v, i < columns)
        else:
            tl.store(out + row * columns + i, 2 * v)  # @unmasked


def run(dtype: torch.dtype, masked: bool) -> None:
    x = torch.ones(ROWS * COLUMNS, dtype=dtype, device="cuda")
    out = torch.zeros(ROWS * COLUMNS + 128, dtype=dtype, device="cuda")
    scale[(ROWS // EACH,)](x, out, COLUMNS, MASKED=masked, EACH=EACH, B=128, num_warps=4)
    torch.cuda.synchronize()
    if masked:
        assert (out[: ROWS * COLUMNS].float() == 2).all().item()


CASES = [
    Case("fp32, masked", lambda: run(torch.float32, True)),
    Case("fp16, masked", lambda: run(torch.float16, True)),
    Case(
        "fp32, mask missing",
        lambda: run(torch.float32, False),
        races=(Race("unmasked", "unmasked"),),
    ),
    Case(
        "fp16, mask missing",
        lambda: run(torch.float16, False),
        races=(Race("unmasked", "unmasked"),),
    ),
]
