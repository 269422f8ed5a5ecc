"""Layers of a network: attention, layer norm and its backward pass, dropout."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

HEADS, LENGTH, WIDTH = 4, 256, 64
ROWS, COLUMNS, GROUPS = 64, 256, 8


@triton.jit
def attention(q, k, v, out, stride, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    head = tl.program_id(1) * N * D
    x = tl.load(q + head + rm[:, None] * D + rd[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        rn = start + tl.arange(0, BN)
        keys = tl.load(k + head + rn[None, :] * D + rd[:, None])
        scores = tl.dot(x, keys)
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        fade = tl.exp(largest - higher)
        total = total * fade + tl.sum(weights, 1)
        values = tl.load(v + head + rn[:, None] * D + rd[None, :])
        sums = tl.dot(weights.to(tl.float16), values, sums * fade[:, None])
        largest = higher
    at = out + tl.program_id(1) * stride + rm[:, None] * D + rd[None, :]
    tl.store(at, (sums / total[:, None]).to(tl.float16))  # @head


@triton.jit
def norm(x, out, mean, scale, N, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * N + i, i < N, other=0.0)
    m = tl.sum(v, 0) / N
    centred = tl.where(i < N, v - m, 0.0)
    s = 1 / tl.sqrt(tl.sum(centred * centred, 0) / N + 1e-5)
    tl.store(mean + row, m)
    tl.store(scale + row, s)
    tl.store(out + row * N + i, centred * s, i < N)


@triton.jit
def norm_backward(grad, x, mean, scale, weight, locks, N, G, LOCKED: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    xhat = (tl.load(x + row * N + i) - tl.load(mean + row)) * tl.load(scale + row)
    part = tl.load(grad + row * N + i) * xhat
    group = row % G
    if LOCKED:
        tries = 0
        while (tl.atomic_cas(locks + group, 0, 1) == 1) & (tries < 10_000_000):
            tries += 1
    so_far = tl.load(weight + group * N + i)  # @load
    tl.store(weight + group * N + i, so_far + part)  # @store
    if LOCKED:
        tl.debug_barrier()
        tl.atomic_xchg(locks + group, 0)


@triton.jit
def dropout(x, out, shift, seed, p, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i + shift)  # @from
    kept = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(kept, v / (1 - p), 0.0))  # @to


def run_attention(stride: int) -> None:
    q = torch.full((HEADS, LENGTH, WIDTH), 0.1, dtype=torch.float16, device="cuda")
    v = torch.ones_like(q)
    out = torch.zeros_like(q)
    grid = (LENGTH // 64, HEADS)
    attention[grid](q, q, v, out, stride, LENGTH, D=WIDTH, BM=64, BN=64, num_warps=4)
    torch.cuda.synchronize()
    if stride:
        assert ((out - 1).abs() < 1e-2).all().item()


def run_norm(locked: bool) -> None:
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    out = torch.zeros_like(x)
    mean = torch.zeros(ROWS, device="cuda")
    scale = torch.zeros_like(mean)
    weight = torch.zeros(GROUPS, COLUMNS, device="cuda")
    locks = torch.zeros(GROUPS, dtype=torch.int32, device="cuda")
    norm[(ROWS,)](x, out, mean, scale, COLUMNS, B=COLUMNS, num_warps=4)
    more = {"LOCKED": locked, "B": COLUMNS, "num_warps": 4}
    norm_backward[(ROWS,)](x, x, mean, scale, weight, locks, COLUMNS, GROUPS, **more)
    torch.cuda.synchronize()
    if locked:
        assert torch.allclose(weight.sum(0), (x * out).sum(0), atol=1e-3)


def run_dropout(in_place: bool, shift: int) -> None:
    x = torch.ones((1 << 14) + 1024, device="cuda")
    out = x if in_place else torch.zeros_like(x)
    dropout[(16,)](x, out, shift, 42, 0.5, B=1024, num_warps=4)
    torch.cuda.synchronize()


CASES = [
    Case("attention", lambda: run_attention(LENGTH * WIDTH)),
    Case(
        "attention, heads on top of each other",
        lambda: run_attention(0),
        races=(Race("head", "head"),),
    ),
    Case("layer norm", lambda: run_norm(True)),
    Case(
        "layer norm without locks",
        lambda: run_norm(False),
        races=(Race("load", "store"),),
        also=(Race("store", "store"),),
    ),
    Case("dropout", lambda: run_dropout(False, 1)),
    Case("dropout in place", lambda: run_dropout(True, 0)),
    Case("dropout in place, shifted", lambda: run_dropout(True, 1), races=(Race("from", "to"),)),
]
