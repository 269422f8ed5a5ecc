"""Autograd: kernels and tensors of the backward pass, which runs in a thread of its own."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 14
BLOCK = 1024


@triton.jit
def scale(x, weight, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) * tl.load(weight))


@triton.jit
def scale_backward(grad, x, weight, grad_x, grad_weight, ATOMIC: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(grad + i)
    tl.store(grad_x + i, g * tl.load(weight))
    total = tl.sum(g * tl.load(x + i), 0)
    if ATOMIC:
        tl.atomic_add(grad_weight, total, sem="relaxed")
    else:
        tl.store(grad_weight, tl.load(grad_weight) + total)  # @sum


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, atomic):
        ctx.save_for_backward(x, weight)
        ctx.atomic = atomic
        out = torch.empty_like(x)
        scale[(COUNT // BLOCK,)](x, weight, out, B=BLOCK, num_warps=4)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = torch.empty_like(x)
        grad_weight = torch.zeros_like(weight)
        arguments = (grad, x, weight, grad_x, grad_weight)
        scale_backward[(COUNT // BLOCK,)](*arguments, ATOMIC=ctx.atomic, B=BLOCK, num_warps=4)
        return grad_x, grad_weight, None


def run(atomic: bool) -> None:
    x = torch.ones(COUNT, device="cuda", requires_grad=True)
    weight = torch.full((1,), 2.0, device="cuda", requires_grad=True)
    Scale.apply(x, weight, atomic).sum().backward()
    torch.cuda.synchronize()
    assert (x.grad == 2).all().item()
    if atomic:
        assert weight.grad.item() == COUNT


CASES = [
    Case("atomic sum", lambda: run(True)),
    Case("plain sum", lambda: run(False), races=(Race("sum", "sum"),)),
]
