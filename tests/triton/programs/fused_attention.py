"""Attention with and without a causal mask, forward and backward, the latter with atomics."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

HEADS, LENGTH, WIDTH, BLOCK = 6, 256, 64, 64


@triton.jit
def forward(q, k, v, out, logs, scale, N, CAUSAL: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    rm = block * B + tl.arange(0, B)
    rd = tl.arange(0, D)
    base = head * N * D
    x = tl.load(q + base + rm[:, None] * D + rd[None, :])
    largest = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    sums = tl.zeros((B, D), tl.float32)
    end = (block + 1) * B if CAUSAL else N
    for start in range(0, end, B):
        rn = start + tl.arange(0, B)
        keys = tl.load(k + base + rn[None, :] * D + rd[:, None])
        scores = tl.dot(x, keys) * scale
        if CAUSAL:
            scores = tl.where(rm[:, None] >= rn[None, :], scores, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        fade = tl.exp(largest - higher)
        total = total * fade + tl.sum(weights, 1)
        values = tl.load(v + base + rn[:, None] * D + rd[None, :])
        sums = tl.dot(weights.to(tl.float16), values, sums * fade[:, None])
        largest = higher
    tl.store(logs + head * N + rm, largest + tl.log(total))
    tl.store(out + base + rm[:, None] * D + rd[None, :], sums / total[:, None])


@triton.jit
def backward(
    q,
    k,
    v,
    grad,
    logs,
    delta,
    dq,
    dk,
    dv,
    scale,
    N,
    CAUSAL: tl.constexpr,
    ATOMIC: tl.constexpr,
    D: tl.constexpr,
    B: tl.constexpr,
):
    """A program has a block of keys; all programs of a head add to the gradients of queries."""
    block, head = tl.program_id(0), tl.program_id(1)
    rn = block * B + tl.arange(0, B)
    rd = tl.arange(0, D)
    base = head * N * D
    own = base + rn[:, None] * D + rd[None, :]
    keys, values = tl.load(k + own), tl.load(v + own)
    key_sums = tl.zeros((B, D), tl.float32)
    value_sums = tl.zeros((B, D), tl.float32)
    for start in range(block * B if CAUSAL else 0, N, B):
        rm = start + tl.arange(0, B)
        at = base + rm[:, None] * D + rd[None, :]
        x, g = tl.load(q + at), tl.load(grad + at)
        weights = tl.exp(tl.dot(x, tl.trans(keys)) * scale - tl.load(logs + head * N + rm)[:, None])
        if CAUSAL:
            weights = tl.where(rm[:, None] >= rn[None, :], weights, 0.0)
        value_sums = tl.dot(tl.trans(weights.to(tl.float16)), g, value_sums)
        slope = tl.dot(g, tl.trans(values)) - tl.load(delta + head * N + rm)[:, None]
        slope = (weights * slope * scale).to(tl.float16)
        key_sums = tl.dot(tl.trans(slope), x, key_sums)
        part = tl.dot(slope, keys)
        if ATOMIC:
            tl.atomic_add(dq + at, part, sem="relaxed")
        else:
            tl.store(dq + at, tl.load(dq + at) + part)  # @queries
    tl.store(dk + own, key_sums)
    tl.store(dv + own, value_sums)


def reference(causal: bool, q, k, v) -> torch.Tensor:
    scores = q @ k.transpose(1, 2) * WIDTH**-0.5
    if causal:
        above = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(above, -float("inf"))
    return torch.softmax(scores, -1) @ v


def run(causal: bool, atomic: bool | None) -> None:
    torch.manual_seed(1)
    shape = (HEADS, LENGTH, WIDTH)
    q, k, v, grad = (torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(4))
    out = torch.zeros(shape, device="cuda")
    logs = torch.zeros(HEADS, LENGTH, device="cuda")
    grid = (LENGTH // BLOCK, HEADS)
    common = {"CAUSAL": causal, "D": WIDTH, "B": BLOCK, "num_warps": 4}
    forward[grid](q, k, v, out, logs, WIDTH**-0.5, LENGTH, **common)
    if atomic is not None:
        delta = (out * grad).sum(-1)
        grads = [torch.zeros(shape, device="cuda") for _ in range(3)]
        arguments = (q, k, v, grad, logs, delta, *grads, WIDTH**-0.5, LENGTH)
        backward[grid](*arguments, ATOMIC=atomic, **common)
    torch.cuda.synchronize()
    if atomic is False:
        return
    sources = [x.float().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        expected = reference(causal, *sources)
    assert torch.allclose(out, expected, atol=2e-2)
    if atomic:
        for got, want in zip(grads, torch.autograd.grad(expected, sources, grad), strict=True):
            assert torch.allclose(got, want, atol=5e-2)


CASES = [
    Case("forward", lambda: run(False, None)),
    Case("forward, causal", lambda: run(True, None)),
    Case("backward", lambda: run(False, True)),
    Case("backward, causal", lambda: run(True, True)),
    Case(
        "backward without atomics", lambda: run(False, False), races=(Race("queries", "queries"),)
    ),
]
