"""Adam on many tensors in one launch, by a table of pointers, beside a copy of the weights."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIZES = [4096, 100, 1000, 2048, 77]
BLOCK = 512


@triton.jit
def adam(table, sizes, rate, t, B: tl.constexpr):
    n = tl.program_id(1)
    size = tl.load(sizes + n)
    i = tl.program_id(0) * B + tl.arange(0, B)
    w = tl.load(table + 4 * n).to(tl.pointer_type(tl.float32)) + i
    grad = tl.load(table + 4 * n + 1).to(tl.pointer_type(tl.float32)) + i
    first = tl.load(table + 4 * n + 2).to(tl.pointer_type(tl.float32)) + i
    second = tl.load(table + 4 * n + 3).to(tl.pointer_type(tl.float32)) + i
    inside = i < size
    g = tl.load(grad, inside, other=0.0)
    m = 0.9 * tl.load(first, inside, other=0.0) + 0.1 * g
    v = 0.99 * tl.load(second, inside, other=0.0) + 0.01 * g * g
    tl.store(first, m, inside)
    tl.store(second, v, inside)
    change = (
        rate * m / (1 - tl.exp2(t * -0.152003)) / (tl.sqrt(v / (1 - tl.exp2(t * -0.0145))) + 1e-8)
    )
    old = tl.load(w, inside, other=0.0)  # @old
    tl.store(w, old - change, inside)  # @new


@triton.jit
def copy(source, target, count, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(target + i, tl.load(source + i, i < count), i < count)  # @copy


def run(tied: bool = False, waits: bool = True) -> None:
    torch.manual_seed(18)
    weights = [torch.randn(size, device="cuda") for size in SIZES]
    if tied:
        # The same tensor under two names.
        weights[3] = weights[0][: SIZES[3]]
    rest = [[torch.zeros(size, device="cuda") for size in SIZES] for _ in range(2)]
    grads = [torch.ones(size, device="cuda") for size in SIZES]
    pointers = [x.data_ptr() for four in zip(weights, grads, *rest, strict=True) for x in four]
    table = torch.tensor(pointers, dtype=torch.int64, device="cuda")
    sizes = torch.tensor(SIZES, dtype=torch.int32, device="cuda")
    kept = torch.zeros(SIZES[0], device="cuda")
    before = weights[0].cpu()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy[(triton.cdiv(SIZES[0], BLOCK),)](weights[0], kept, SIZES[0], B=BLOCK, num_warps=4)
    if waits:
        torch.cuda.current_stream().wait_stream(side)
    grid = (triton.cdiv(max(SIZES), BLOCK), len(SIZES))
    for t in range(1, 4):
        adam[grid](table, sizes, 0.01, float(t), B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if waits:
        assert torch.equal(kept.cpu(), before)
        if not tied:
            # With gradients that are all the same, every step is one of the rate.
            assert torch.allclose(weights[0].cpu(), before - 0.03, atol=1e-3)


CASES = [
    Case("tensors of their own", run),
    Case(
        "a tensor twice",
        lambda: run(tied=True),
        races=(Race("old", "new"),),
        also=(Race("new", "new"),),
    ),
    Case("copied without a wait", lambda: run(waits=False), races=(Race("copy", "new"),)),
]
