"""Edit distances by tiles: each needs the tile above it and the one on its left."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIZE = 96
TILE = 8


@triton.jit
def distances(
    left,
    above,
    table,
    flags,
    N,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
    SEM: tl.constexpr,
    T: tl.constexpr,
):
    """A program for a row of tiles, from left to right; `table` has a border."""
    p = tl.program_id(0)
    width = N + 1
    for q in range(ROWS):
        if p > 0:
            tries = 0
            while (tl.atomic_load(flags + p - 1) < q + 1 - EARLY) & (tries < 1_000_000):
                tries += 1
        for r in range(T):
            y = p * T + r
            a = tl.load(left + y)
            for s in range(T):
                x = q * T + s
                at = table + y * width + x
                corner, up = tl.load(at), tl.load(at + 1)  # @edge
                side = tl.load(at + width)
                best = tl.minimum(
                    tl.minimum(up, side) + 1, corner + tl.where(a == tl.load(above + x), 0, 1)
                )
                tl.debug_barrier()
                tl.store(at + width + 1, best)  # @cell
                tl.debug_barrier()
        tl.atomic_xchg(flags + p, q + 1, sem=SEM)


def reference(a: list[int], b: list[int]) -> torch.Tensor:
    table = torch.zeros(SIZE + 1, SIZE + 1, dtype=torch.int32)
    rows = [[0] * (SIZE + 1)]
    for x in a:
        row = [0]
        for n, y in enumerate(b):
            row.append(min(rows[-1][n + 1] + 1, row[n] + 1, rows[-1][n] + (x != y)))
        rows.append(row)
    table[:] = torch.tensor(rows)
    return table


def run(early: int = 0, sem: str = "release") -> None:
    a, b = torch.arange(SIZE) * 7 % 4, torch.arange(SIZE) * 5 % 3
    table = torch.zeros(SIZE + 1, SIZE + 1, dtype=torch.int32, device="cuda")
    tiles = SIZE // TILE
    flags = torch.zeros(tiles, dtype=torch.int32, device="cuda")
    words = [x.to(torch.int32).to("cuda") for x in (a, b)]
    options = {"ROWS": tiles, "EARLY": early, "SEM": sem, "T": TILE, "num_warps": 1}
    distances[(tiles,)](*words, table, flags, SIZE, **options)
    torch.cuda.synchronize()
    if early == 0 and sem == "release":
        assert torch.equal(table.cpu(), reference(a.tolist(), b.tolist()))


RACE = (Race("edge", "cell"),)

CASES = [
    Case("waits for the tile above", run),
    Case("waits for one tile less", lambda: run(early=1), RACE),
    Case("tiles put relaxed", lambda: run(sem="relaxed"), RACE),
]
