"""RMS norm with a residual that is added in place, several rows a program, and its gradient."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ROWS, COLUMNS = 203, 384
CTAS = 32


@triton.jit
def add_and_norm(
    x, residual, weight, out, scales, rows, N, each, CUT: tl.constexpr, B: tl.constexpr
):
    """Without a cut, the rows of the last programs are those of others, too."""
    i = tl.arange(0, B)
    first = tl.program_id(0) * each
    if not CUT:
        first = tl.minimum(first, rows - each)
    for row in range(first, tl.minimum(first + each, rows)):
        at = row * N + i
        old = tl.load(residual + at, i < N, other=0.0)  # @old
        v = tl.load(x + at, i < N, other=0.0) + old
        tl.store(residual + at, v, i < N)  # @new
        s = tl.rsqrt(tl.sum(v * v, 0) / N + 1e-6)
        tl.store(scales + row, s)  # @scale
        tl.store(out + at, v * s * tl.load(weight + i, i < N, other=0.0), i < N)  # @out


@triton.jit
def weight_gradient(grad, x, scales, sums, rows, N, each, ATOMIC: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    first = tl.program_id(0) * each
    part = tl.zeros((B,), tl.float32)
    for row in range(first, tl.minimum(first + each, rows)):
        xhat = tl.load(x + row * N + i, i < N, other=0.0) * tl.load(scales + row)
        part += tl.load(grad + row * N + i, i < N, other=0.0) * xhat
    if ATOMIC:
        tl.atomic_add(sums + i, part, i < N, sem="relaxed")
    else:
        tl.store(sums + i, tl.load(sums + i, i < N, other=0.0) + part, i < N)  # @sums


def run(cut: bool = True, atomic: bool = True) -> None:
    torch.manual_seed(11)
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    residual = torch.randn(ROWS, COLUMNS, device="cuda")
    added = x + residual
    weight = torch.randn(COLUMNS, device="cuda")
    grad = torch.randn(ROWS, COLUMNS, device="cuda")
    out = torch.zeros_like(x)
    scales = torch.zeros(ROWS, device="cuda")
    sums = torch.zeros(COLUMNS, device="cuda")
    each = triton.cdiv(ROWS, CTAS)
    sizes = (ROWS, COLUMNS, each)
    options = {"B": 512, "num_warps": 4}
    add_and_norm[(CTAS,)](x, residual, weight, out, scales, *sizes, CUT=cut, **options)
    weight_gradient[(CTAS,)](grad, residual, scales, sums, *sizes, ATOMIC=atomic, **options)
    torch.cuda.synchronize()
    if cut and atomic:
        xhat = added * torch.rsqrt((added * added).mean(1, keepdim=True) + 1e-6)
        assert torch.allclose(residual, added)
        assert torch.allclose(out, xhat * weight, atol=1e-4)
        assert torch.allclose(sums, (grad * xhat).sum(0), atol=1e-3)


CASES = [
    Case("rows cut at the end", run),
    Case(
        "last rows twice",
        lambda: run(cut=False),
        races=(Race("old", "new"),),
        also=(Race("new", "new"), Race("scale", "scale"), Race("out", "out")),
    ),
    Case("gradient without atomics", lambda: run(atomic=False), races=(Race("sums", "sums"),)),
]
