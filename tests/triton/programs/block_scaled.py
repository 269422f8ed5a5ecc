"""A matrix product of small numbers with a scale for each 32 of them."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

M, N, K = 256, 128, 256
PER_SCALE = 32


@triton.jit
def scaled(
    a,
    a_scale,
    b,
    b_scale,
    c,
    step,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PER: tl.constexpr,
):
    rm = tl.program_id(0) * step + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        rs = k // PER + tl.arange(0, BK // PER)
        x = tl.load(a + rm[:, None] * K + rk[None, :])
        y = tl.load(b + rn[None, :] * K + rk[:, None])
        xs = tl.load(a_scale + rm[:, None] * (K // PER) + rs[None, :])
        ys = tl.load(b_scale + rn[:, None] * (K // PER) + rs[None, :])
        sums = tl.dot_scaled(x, xs, "e5m2", y, ys, "e5m2", sums)
    tl.store(c + rm[:, None] * N + rn[None, :], sums)  # @tile


def run(step: int) -> None:
    torch.manual_seed(5)
    a = torch.randn(M + 64, K).to(torch.float8_e5m2)
    b = torch.randn(N, K).to(torch.float8_e5m2)
    # A scale is a power of two: its exponent, with 127 added.
    a_scale = torch.randint(125, 130, (M + 64, K // PER_SCALE), dtype=torch.uint8)
    b_scale = torch.randint(125, 130, (N, K // PER_SCALE), dtype=torch.uint8)
    c = torch.zeros(M + 64, N, device="cuda")
    bytes_of = [x.view(torch.uint8).cuda() for x in (a, b)]
    arguments = (bytes_of[0], a_scale.cuda(), bytes_of[1], b_scale.cuda(), c, step, N, K)
    tiles = {"BM": 64, "BN": 64, "BK": 64, "PER": PER_SCALE}
    scaled[(M // 64, N // 64)](*arguments, **tiles, num_warps=4)
    torch.cuda.synchronize()
    if step == 64:
        x, y = (
            v.float() * torch.exp2(s.float() - 127).repeat_interleave(PER_SCALE, 1)
            for v, s in ((a, a_scale), (b, b_scale))
        )
        assert torch.allclose(c[:M].cpu(), x[:M] @ y.T, atol=1e-1, rtol=1e-2)


CASES = [
    Case("tiles", lambda: run(64)),
    Case("tiles that overlap", lambda: run(63), races=(Race("tile", "tile"),)),
]
