"""Matrix products: persistent, stream-K, grouped, with pipelined loads."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIZE = 512
TILE = 64


@triton.jit
def tile_of(t, n, BN: tl.constexpr):
    across = n // BN
    return t // across, t % across


@triton.jit
def product(a, b, m, n, first, last, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = m * BM + tl.arange(0, BM)
    rn = n * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(first, last):
        rk = k * BK + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :])
        y = tl.load(b + rk[:, None] * N + rn[None, :])
        sums = tl.dot(x, y, sums)
    return sums


@triton.jit
def persistent(a, b, c, M, N, K, step, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles = (M // BM) * (N // BN)
    for t in range(tl.program_id(0), tiles, step):
        m, n = tile_of(t, N, BN)
        sums = product(a, b, m, n, 0, K // BK, N, K, BM, BN, BK)
        at = (m * BM + tl.arange(0, BM))[:, None] * N + (n * BN + tl.arange(0, BN))[None, :]
        tl.store(c + at, sums.to(tl.float16))  # @tile


@triton.jit
def stream_k(
    a,
    b,
    c,
    M,
    N,
    K,
    each,
    ATOMIC: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    steps = K // BK
    work = tl.program_id(0) * each
    end = tl.minimum(work + each, (M // BM) * (N // BN) * steps)
    while work < end:
        t = work // steps
        first = work % steps
        last = tl.minimum(first + end - work, steps)
        m, n = tile_of(t, N, BN)
        sums = product(a, b, m, n, first, last, N, K, BM, BN, BK)
        at = c + (m * BM + tl.arange(0, BM))[:, None] * N + (n * BN + tl.arange(0, BN))[None, :]
        if ATOMIC:
            tl.atomic_add(at, sums, sem="relaxed")
        else:
            tl.store(at, tl.load(at) + sums)  # @fixup
        work += last - first


@triton.jit
def grouped(table, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    g = tl.program_id(1)
    a = tl.load(table + 3 * g).to(tl.pointer_type(tl.float16))
    b = tl.load(table + 3 * g + 1).to(tl.pointer_type(tl.float16))
    c = tl.load(table + 3 * g + 2).to(tl.pointer_type(tl.float16))
    m, n = tile_of(tl.program_id(0), N, BN)
    sums = product(a, b, m, n, 0, K // BK, N, K, BM, BN, BK)
    at = (m * BM + tl.arange(0, BM))[:, None] * N + (n * BN + tl.arange(0, BN))[None, :]
    tl.store(c + at, sums.to(tl.float16))  # @group


TILES = {"BM": TILE, "BN": TILE, "BK": 32}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.ones(SIZE, SIZE, dtype=torch.float16, device="cuda")
    b = torch.full((SIZE, SIZE), 0.5, dtype=torch.float16, device="cuda")
    return a, b


def run_persistent(short: int) -> None:
    a, b = inputs()
    c = torch.zeros_like(a)
    ctas = 24
    persistent[(ctas,)](a, b, c, SIZE, SIZE, SIZE, ctas - short, **TILES, num_warps=4, num_stages=3)
    torch.cuda.synchronize()
    assert (c == SIZE / 2).all().item()


def run_stream_k(atomic: bool) -> None:
    a, b = inputs()
    c = torch.zeros(SIZE, SIZE, device="cuda")
    work = (SIZE // TILE) ** 2 * (SIZE // 32)
    ctas = 48
    each = (work + ctas - 1) // ctas
    stream_k[(ctas,)](a, b, c, SIZE, SIZE, SIZE, each, ATOMIC=atomic, **TILES, num_warps=4)
    torch.cuda.synchronize()
    if atomic:
        assert (c == SIZE / 2).all().item()


def run_grouped(shared: bool) -> None:
    a, b = inputs()
    c = [torch.zeros_like(a) for _ in range(3)]
    if shared:
        c[2] = c[0]
    table = torch.tensor(
        [p.data_ptr() for x in c for p in (a, b, x)], dtype=torch.int64, device="cuda"
    )
    grouped[((SIZE // TILE) ** 2, len(c))](table, SIZE, SIZE, SIZE, **TILES, num_warps=4)
    torch.cuda.synchronize()
    for x in c:
        assert (x == SIZE / 2).all().item()


CASES = [
    Case("persistent", lambda: run_persistent(0)),
    Case("persistent, step one short", lambda: run_persistent(1), races=(Race("tile", "tile"),)),
    Case("stream-K", lambda: run_stream_k(True)),
    Case("stream-K without atomics", lambda: run_stream_k(False), races=(Race("fixup", "fixup"),)),
    Case("grouped", lambda: run_grouped(False)),
    Case("grouped, one output twice", lambda: run_grouped(True), races=(Race("group", "group"),)),
]
