"""The softmax of rows, by programs that each take many rows."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ROWS, COLUMNS = 1823, 781
CTAS = 128


@triton.jit
def softmax(x, out, stride, out_stride, rows, columns, B: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        i = tl.arange(0, B)
        v = tl.load(x + row * stride + i, i < columns, other=-float("inf"))  # @load
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + row * out_stride + i, e / tl.sum(e, 0), i < columns)  # @store


def launch(x: torch.Tensor, out: torch.Tensor, stride: int, out_stride: int) -> None:
    shape = (stride, out_stride, ROWS, COLUMNS)
    softmax[(CTAS,)](x, out, *shape, B=1024, STAGES=2, num_warps=8)
    torch.cuda.synchronize()


def run(in_place: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    expected = torch.softmax(x, 1)
    out = x if in_place else torch.empty_like(x)
    launch(x, out, COLUMNS, COLUMNS)
    assert torch.allclose(out, expected, atol=1e-6)


def run_stride() -> None:
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    launch(x, torch.empty_like(x), COLUMNS, COLUMNS - 1)


def run_packed() -> None:
    """The result, packed into the memory of padded rows."""
    x = torch.randn(ROWS, 1024, device="cuda")
    launch(x, x, 1024, COLUMNS)


CASES = [
    Case("two matrices", lambda: run(False)),
    Case("in place", lambda: run(True)),
    Case("stride one short", run_stride, races=(Race("store", "store"),)),
    Case("packed in place", run_packed, races=(Race("load", "store"),)),
]
