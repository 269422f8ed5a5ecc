"""A persistent matrix product with tensor descriptors, whose programs go from tile to tile."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.tools.tensor_descriptor import TensorDescriptor

M, N, K = 512, 384, 256
BM, BN, BK = 64, 64, 64
CTAS = 18


@triton.jit
def product(
    a,
    b,
    c,
    tiles,
    step,
    N,
    K,
    FLATTEN: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    across = N // BN
    for tile in tl.range(tl.program_id(0), tiles, step, flatten=FLATTEN):
        m, n = tile // across * BM, tile % across * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(a.load([m, k]), b.load([n, k]).T, sums)
        c.store([m, n], sums.to(tl.float16))  # @tile


def run(short: int, height: int = M, flatten: bool = True) -> None:
    torch.manual_seed(4)
    a = torch.randn(M, K, dtype=torch.float16, device="cuda")
    b = torch.randn(N, K, dtype=torch.float16, device="cuda")
    c = torch.zeros(M, N, dtype=torch.float16, device="cuda")
    described = [
        TensorDescriptor.from_tensor(a, [BM, BK]),
        TensorDescriptor.from_tensor(b, [BN, BK]),
        TensorDescriptor.from_tensor(c[:height], [BM, BN]),
    ]
    tiles = M // BM * (N // BN)
    shape = (tiles, CTAS - short, N, K)
    options = {"FLATTEN": flatten, "BM": BM, "BN": BN, "BK": BK, "num_warps": 4}
    product[(CTAS,)](*described, *shape, **options)
    torch.cuda.synchronize()
    expected = a.float() @ b.float().T
    assert torch.allclose(c[:height].float(), expected[:height], atol=0.2, rtol=1e-2)


CASES = [
    Case("each tile once", lambda: run(0)),
    Case("cut at the end", lambda: run(0, M - 40)),
    Case("loops apart", lambda: run(0, flatten=False)),
    Case("step one short", lambda: run(1), races=(Race("tile", "tile"),)),
]
