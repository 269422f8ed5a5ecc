"""CTAs that write neighbouring elements of small types, in the same granules."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 64
ROWS, ROW = 8, CTAS * 7 + 8


@triton.jit
def fill(out, each, value, ROWS: tl.constexpr, ROW: tl.constexpr, B: tl.constexpr):
    """Neighbours are never in the same row at once: writing in step, they may miss each other."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = (i * 0 + value).to(tl.float32).to(out.dtype.element_ty)
    for n in range(ROWS):
        row = (p * 3 + n) % ROWS
        tl.store(out + row * ROW + p * 7 + i, v, i < each)  # @store


def run(dtype: torch.dtype, each: int) -> None:
    out = torch.zeros(ROWS, ROW, dtype=torch.uint8, device="cuda").to(dtype)
    fill[(CTAS,)](out, each, 3, ROWS=ROWS, ROW=ROW, B=8, num_warps=1)
    torch.cuda.synchronize()
    written = out.float().cpu()[:, : CTAS * 7]
    assert (written == 3).all()


TYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e5m2,
    "int8": torch.int8,
}


def correct(name: str, dtype: torch.dtype) -> Case:
    return Case(f"{name}, seven each", lambda: run(dtype, 7))


def racy(name: str, dtype: torch.dtype) -> Case:
    return Case(f"{name}, one too many", lambda: run(dtype, 8), races=(Race("store", "store"),))


CASES = [make(name, dtype) for make in (correct, racy) for name, dtype in TYPES.items()]
