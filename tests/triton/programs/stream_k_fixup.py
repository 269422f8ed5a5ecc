"""A product whose tiles are split among programs: parts go to those that store the tiles."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIZE = 256
TILE = 64
DEEP = 32
CTAS = 13


@triton.jit
def stream_k(
    a,
    b,
    c,
    parts,
    flags,
    SIZE: tl.constexpr,
    WAITS: tl.constexpr,
    SEM: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
):
    """Who does the first step of a tile stores it, with the parts of the programs behind it."""
    across: tl.constexpr = SIZE // T
    steps: tl.constexpr = SIZE // D
    all_steps: tl.constexpr = across * across * steps
    p = tl.program_id(0)
    each = tl.cdiv(all_steps, tl.num_programs(0))
    work = p * each
    end = tl.minimum(work + each, all_steps)
    i = tl.arange(0, T)
    while work < end:
        tile = work // steps
        first = work % steps
        last = tl.minimum(first + end - work, steps)
        rm, rn = tile // across * T + i, tile % across * T + i
        sums = tl.zeros((T, T), tl.float32)
        for k in range(first, last):
            rk = k * D + tl.arange(0, D)
            x = tl.load(a + rm[:, None] * SIZE + rk[None, :])
            y = tl.load(b + rk[:, None] * SIZE + rn[None, :])
            sums = tl.dot(x, y, sums)
        at = i[:, None] * T + i[None, :]
        if first > 0:
            # Only the first tile of a program begins in its middle.
            tl.store(parts + p * T * T + at, sums)  # @part
            tl.atomic_xchg(flags + p, 1, sem=SEM)
        else:
            other = p + 1
            while other * each < (tile + 1) * steps:
                if WAITS:
                    tries = 0
                    while (tl.atomic_load(flags + other) == 0) & (tries < 1_000_000):
                        tries += 1
                sums += tl.load(parts + other * T * T + at)  # @fixup
                other += 1
            tl.store(c + rm[:, None] * SIZE + rn[None, :], sums)
        work += last - first


def run(waits: bool, sem: str) -> None:
    torch.manual_seed(17)
    a = torch.randn(SIZE, SIZE, dtype=torch.float16)
    b = torch.randn(SIZE, SIZE, dtype=torch.float16)
    c = torch.zeros(SIZE, SIZE, device="cuda")
    parts = torch.zeros(CTAS, TILE, TILE, device="cuda")
    flags = torch.zeros(CTAS, dtype=torch.int32, device="cuda")
    options = {"SIZE": SIZE, "T": TILE, "D": DEEP, "num_warps": 4}
    arguments = (a.to("cuda"), b.to("cuda"), c, parts, flags)
    stream_k[(CTAS,)](*arguments, WAITS=waits, SEM=sem, **options)
    torch.cuda.synchronize()
    if waits and sem == "release":
        assert torch.allclose(c.cpu(), a.float() @ b.float(), atol=0.1, rtol=1e-2)


RACE = (Race("part", "fixup"),)

CASES = [
    Case("waits for the parts", lambda: run(True, "release")),
    Case("parts put relaxed", lambda: run(True, "relaxed"), RACE),
    Case("does not wait", lambda: run(False, "release"), RACE),
]
