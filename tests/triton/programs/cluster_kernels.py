"""Ordinary kernels that are run by clusters, and persistent ones whose warps are divided up."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.tools.tensor_descriptor import TensorDescriptor

SIZE = 512
TILE = 128


@triton.jit
def add(x, y, out, n, step, B: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)  # @added


@triton.jit
def turn_round(x, out, B: tl.constexpr):
    """What is read was written by another CTA of the cluster."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, i)  # @forth
    back = tl.load(x + tl.program_id(0) * B + B - 1 - tl.arange(0, B))  # @back
    tl.store(out + i, back)


@triton.jit
def softmax(x, out, columns, step, B: tl.constexpr):
    row = tl.program_id(0) * step
    i = tl.arange(0, B)
    v = tl.load(x + row + i, i < columns, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + row + i, v / tl.sum(v, 0), i < columns)  # @row


@triton.jit
def product(a, b, c, step, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * step, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a.load([m, k]), b.load([k, n]), sums)
    c.store([m, n], sums.to(tl.float16))  # @tile


@triton.jit
def persistent(a, b, c, M, N, K, step, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The compiler divides the warps of a CTA up among loads and products."""
    across = N // BN
    for t in tl.range(tl.program_id(0), M // BM * across, step, warp_specialize=True):
        m, n = t // across * BM, t % across * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(a.load([m, k]), b.load([k, n]), sums)
        c.store([m, n], sums.to(tl.float16))  # @divided


@triton.jit
def in_one_loop(a, b, c, m_step, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """As before, with one tile a CTA."""
    m, n = tl.program_id(0) * m_step, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        sums = tl.dot(a.load([m, k]), b.load([k, n]), sums)
    c.store([m, n], sums.to(tl.float16))  # @looped


def run_add(ctas: int, overlap: int) -> None:
    n, block = 100_003, 1024
    x, y = torch.ones(2, n, device="cuda")
    out = torch.zeros(n, device="cuda")
    step = block - overlap
    add[(triton.cdiv(n, step),)](x, y, out, n, step, B=block, num_warps=4, num_ctas=ctas)
    torch.cuda.synchronize()
    assert (out == 2).all().item()


def run_turn_round(ctas: int) -> None:
    x = torch.zeros(16 * 1024, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    turn_round[(16,)](x, out, B=1024, num_warps=4, num_ctas=ctas)
    torch.cuda.synchronize()


def run_softmax(ctas: int, overlap: int) -> None:
    rows, columns = 64, 2000
    x = torch.zeros(rows, columns, device="cuda")
    out = torch.zeros_like(x)
    softmax[(rows,)](x, out, columns, columns - overlap, B=2048, num_warps=4, num_ctas=ctas)
    torch.cuda.synchronize()
    if overlap == 0:
        assert torch.allclose(out, torch.full_like(out, 1 / columns))


def matrices() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a = torch.ones(SIZE, SIZE, dtype=torch.float16, device="cuda")
    b = torch.full_like(a, 0.5)
    return a, b, torch.zeros_like(a)


def described(rows: int) -> tuple[torch.Tensor, list[TensorDescriptor]]:
    a, b, c = matrices()
    boxes = ([rows, 64], [64, TILE], [rows, TILE])
    descriptors = [
        TensorDescriptor.from_tensor(t, list(box)) for t, box in zip((a, b, c), boxes, strict=True)
    ]
    return c, descriptors


def blocks(rows: int) -> dict[str, int]:
    return {"BM": rows, "BN": TILE, "BK": 64, "num_warps": 4, "num_stages": 3}


def run_product(ctas: int, overlap: int) -> None:
    c, descriptors = described(TILE)
    grid = (SIZE // TILE, SIZE // TILE)
    product[grid](*descriptors, TILE - overlap, SIZE, **blocks(TILE), num_ctas=ctas)
    torch.cuda.synchronize()
    if overlap == 0:
        assert (c == SIZE / 2).all().item()


#: Rows of a tile where warps are divided up: the compiler gives one group of warps all products.
GROUP_ROWS = 64


def run_persistent(short: int) -> None:
    c, descriptors = described(GROUP_ROWS)
    ctas = 7
    persistent[(ctas,)](*descriptors, SIZE, SIZE, SIZE, ctas - short, **blocks(GROUP_ROWS))
    torch.cuda.synchronize()
    assert (c == SIZE / 2).all().item()


def run_in_one_loop(overlap: int) -> None:
    c, descriptors = described(GROUP_ROWS)
    grid = (SIZE // GROUP_ROWS, SIZE // TILE)
    in_one_loop[grid](*descriptors, GROUP_ROWS - overlap, SIZE, **blocks(GROUP_ROWS))
    torch.cuda.synchronize()
    if overlap == 0:
        assert (c == SIZE / 2).all().item()


def cases(ctas: int) -> list[Case]:
    def name(what: str) -> str:
        return f"{ctas} CTAs: {what}"

    def races(line: str) -> tuple[Race, ...]:
        return (Race(line, line),)

    return [
        Case(name("add"), lambda: run_add(ctas, 0)),
        Case(name("add, overlap"), lambda: run_add(ctas, 128), races=races("added")),
        Case(
            name("what another CTA wrote"),
            lambda: run_turn_round(ctas),
            races=(Race("forth", "back"),),
        ),
        Case(name("softmax"), lambda: run_softmax(ctas, 0)),
        Case(name("softmax, overlap"), lambda: run_softmax(ctas, 16), races=races("row")),
        Case(name("product"), lambda: run_product(ctas, 0)),
        Case(name("product, overlap"), lambda: run_product(ctas, 16), races=races("tile")),
    ]


CASES = [
    *cases(2),
    *cases(4),
    Case("persistent, divided", lambda: run_persistent(0)),
    Case(
        "persistent, divided, step one short",
        lambda: run_persistent(1),
        races=(Race("divided", "divided"),),
    ),
    Case("divided", lambda: run_in_one_loop(0)),
    Case(
        "divided, overlap",
        lambda: run_in_one_loop(16),
        races=(Race("looped", "looped"),),
    ),
]
