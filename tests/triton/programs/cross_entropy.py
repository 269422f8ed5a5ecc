"""Cross entropy whose gradient takes the place of the logits, a program a row or several."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ROWS, CLASSES = 64, 1000
PART = 256


@triton.jit
def by_row(logits, labels, losses, N, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    label = tl.load(labels + row)
    v = tl.load(logits + row * N + i, i < N, other=-float("inf"))
    right = tl.load(logits + row * N + label)
    tl.debug_barrier()
    log_sum = tl.max(v, 0) + tl.log(tl.sum(tl.exp(v - tl.max(v, 0)), 0))
    tl.store(losses + row, log_sum - right)
    tl.store(logits + row * N + i, tl.exp(v - log_sum) - tl.where(i == label, 1.0, 0.0), i < N)


@triton.jit
def log_sums(logits, sums, N, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(logits + row * N + i, i < N, other=-float("inf"))
    tl.store(sums + row, tl.max(v, 0) + tl.log(tl.sum(tl.exp(v - tl.max(v, 0)), 0)))


@triton.jit
def by_part(logits, out, labels, sums, losses, N, B: tl.constexpr):
    """Programs that share a row; the last one also computes the loss."""
    row, part = tl.program_id(0), tl.program_id(1)
    i = part * B + tl.arange(0, B)
    label = tl.load(labels + row)
    log_sum = tl.load(sums + row)
    v = tl.load(logits + row * N + i, i < N, other=-float("inf"))
    tl.debug_barrier()
    g = tl.exp(v - log_sum) - tl.where(i == label, 1.0, 0.0)
    tl.store(out + row * N + i, g, i < N)  # @gradient
    if part == tl.num_programs(1) - 1:
        tl.store(losses + row, log_sum - tl.load(logits + row * N + label))  # @loss


def run(parts: bool, in_place: bool) -> None:
    torch.manual_seed(12)
    logits = torch.randn(ROWS, CLASSES, device="cuda")
    # None of the labels is in the last part.
    labels = torch.arange(ROWS) * 11 % (CLASSES - PART)
    expected = logits.cpu().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(expected, labels, reduction="none")
    (gradient,) = torch.autograd.grad(wanted.sum(), expected)
    out = logits if in_place else torch.zeros_like(logits)
    losses, sums = torch.zeros(ROWS, device="cuda"), torch.zeros(ROWS, device="cuda")
    places = labels.to(torch.int32).to("cuda")
    if parts:
        log_sums[(ROWS,)](logits, sums, CLASSES, B=1024, num_warps=4)
        grid = (ROWS, triton.cdiv(CLASSES, PART))
        by_part[grid](logits, out, places, sums, losses, CLASSES, B=PART, num_warps=4)
    else:
        by_row[(ROWS,)](logits, places, losses, CLASSES, B=1024, num_warps=4)
    torch.cuda.synchronize()
    if not (parts and in_place):
        assert torch.allclose(losses.cpu(), wanted.detach(), atol=1e-4)
        assert torch.allclose(out.cpu(), gradient, atol=1e-4)


CASES = [
    Case("a program a row, in place", lambda: run(False, True)),
    Case("several programs a row", lambda: run(True, False)),
    Case(
        "several programs a row, in place",
        lambda: run(True, True),
        races=(Race("gradient", "loss"),),
    ),
]
