"""A matrix product whose programs go through the tiles in groups of rows, with an activation."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

# So many tiles that they do not all run at once: two programs that store the same tile at the very
# same moment may miss each other.
M, N, K = 2112, 2048, 64
TILES = {"BM": 64, "BN": 64, "BK": 32}


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    CLAMPED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    p = tl.program_id(0)
    down = tl.cdiv(M, BM)
    across = tl.cdiv(N, BN)
    first = p // (GROUP * across) * GROUP
    # The last group has fewer rows of tiles.
    size = tl.minimum(down - first, GROUP) if CLAMPED else GROUP
    m = first + p % (GROUP * across) % size
    n = p % (GROUP * across) // size
    if not CLAMPED:
        m = tl.minimum(m, down - 1)
    rm = (m * BM + tl.arange(0, BM)) % M
    rn = (n * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    x = a + rm[:, None] * K + rk[None, :]
    y = b + rk[:, None] * N + rn[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        sums = tl.dot(
            tl.load(x, rk[None, :] < left, other=0.0),
            tl.load(y, rk[:, None] < left, other=0.0),
            sums,
        )
        x += BK
        y += BK * N
    sums = leaky(sums)
    cm = m * BM + tl.arange(0, BM)
    cn = n * BN + tl.arange(0, BN)
    inside = (cm[:, None] < M) & (cn[None, :] < N)
    tl.store(c + cm[:, None] * N + cn[None, :], sums.to(tl.float16), inside)  # @tile


def run(clamped: bool) -> None:
    a = torch.randn(M, K, dtype=torch.float16, device="cuda")
    b = torch.randn(K, N, dtype=torch.float16, device="cuda")
    c = torch.zeros(M, N, dtype=torch.float16, device="cuda")
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 64),)
    options = {**TILES, "GROUP": 4, "num_warps": 4, "num_stages": 3}
    matmul[grid](a, b, c, M, N, K, CLAMPED=clamped, **options)
    torch.cuda.synchronize()
    if clamped:
        expected = torch.nn.functional.leaky_relu(a.float() @ b.float(), 0.01)
        assert torch.allclose(c.float(), expected, atol=0.1, rtol=1e-2)


CASES = [
    Case("tiles in groups", lambda: run(True)),
    Case("last group not cut", lambda: run(False), races=(Race("tile", "tile"),)),
]
