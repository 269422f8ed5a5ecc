"""Products of several shapes in one launch of programs that take tile after tile."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SHAPES = [(256, 192, 128), (128, 320, 64), (64, 64, 256), (192, 128, 32)]
CTAS = 20
TILE = 64


@triton.jit
def grouped(table, shapes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    passed = 0
    for g in range(groups):
        m = tl.load(shapes + 3 * g)
        n = tl.load(shapes + 3 * g + 1)
        k = tl.load(shapes + 3 * g + 2)
        across = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * across
        while (tile >= passed) & (tile < passed + tiles):
            a = tl.load(table + 3 * g).to(tl.pointer_type(tl.float16))
            b = tl.load(table + 3 * g + 1).to(tl.pointer_type(tl.float16))
            c = tl.load(table + 3 * g + 2).to(tl.pointer_type(tl.float16))
            rm = (tile - passed) // across * BM + tl.arange(0, BM)
            rn = (tile - passed) % across * BN + tl.arange(0, BN)
            rk = tl.arange(0, BK)
            sums = tl.zeros((BM, BN), tl.float32)
            for start in range(0, k, BK):
                x = tl.load(a + rm[:, None] * k + (start + rk)[None, :])
                y = tl.load(b + (start + rk)[:, None] * n + rn[None, :])
                sums = tl.dot(x, y, sums)
            tl.store(c + rm[:, None] * n + rn[None, :], sums.to(tl.float16))  # @tile
            tile += tl.num_programs(0)
        passed += tiles


def run(overlap: bool) -> None:
    torch.manual_seed(3)
    options = {"dtype": torch.float16, "device": "cuda"}
    a = [torch.randn(m, k, **options) for m, _, k in SHAPES]
    b = [torch.randn(k, n, **options) for _, n, k in SHAPES]
    room = torch.zeros(sum(m * n for m, n, _ in SHAPES), **options)
    c, at = [], 0
    for m, n, _ in SHAPES:
        c.append(room[at : at + m * n].view(m, n))
        # Each result begins a row before the one before it has ended.
        at += m * n - (n if overlap else 0)
    pointers = [x.data_ptr() for three in zip(a, b, c, strict=True) for x in three]
    table = torch.tensor(pointers, dtype=torch.int64, device="cuda")
    shapes = torch.tensor(SHAPES, dtype=torch.int32, device="cuda")
    tiles = {"BM": TILE, "BN": TILE, "BK": 32}
    grouped[(CTAS,)](table, shapes, len(SHAPES), **tiles, num_warps=4)
    torch.cuda.synchronize()
    if not overlap:
        for x, y, z in zip(a, b, c, strict=True):
            assert torch.allclose(z.float(), x.float() @ y.float(), atol=0.1, rtol=1e-2)


RACE = (Race("tile", "tile"),)

CASES = [
    Case("four shapes", lambda: run(False)),
    Case("outputs overlap", lambda: run(True), RACE),
]
