"""A grid that is relaxed again and again, in many launches or in one with barriers."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SIZE = 64
ROWS = 4
ROUNDS = 8


@triton.jit
def relax(source, target, N: tl.constexpr, ROWS: tl.constexpr):
    """Some rows of a torus."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, N)
    up, down = (r + N - 1) % N, (r + 1) % N
    before, after = (c + N - 1) % N, (c + 1) % N
    v = tl.load(source + up[:, None] * N + c[None, :])  # @up
    v += tl.load(source + down[:, None] * N + c[None, :])  # @down
    v += tl.load(source + r[:, None] * N + before[None, :])
    v += tl.load(source + r[:, None] * N + after[None, :])
    tl.debug_barrier()
    tl.store(target + r[:, None] * N + c[None, :], v % 1021)  # @relaxed


@triton.jit
def relax_all(
    x, y, count, ROUNDS: tl.constexpr, BARRIER: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr
):
    for r in tl.static_range(ROUNDS):
        if r % 2 == 0:
            relax(x, y, N, ROWS)
        else:
            relax(y, x, N, ROWS)
        if BARRIER:
            tl.atomic_add(count, 1)
            tries = 0
            while (tl.atomic_load(count) < (r + 1) * (N // ROWS)) & (tries < 1_000_000):
                tries += 1


def run(how: str) -> None:
    x = (torch.arange(SIZE * SIZE, dtype=torch.int32) * 37 % 1021).view(SIZE, SIZE)
    one = x.to("cuda")
    other = one if how == "in place" else torch.zeros_like(one)
    count = torch.zeros(1, dtype=torch.int32, device="cuda")
    grid = (SIZE // ROWS,)
    if how in ("launches", "in place"):
        for r in range(ROUNDS):
            source, target = (one, other) if r % 2 == 0 else (other, one)
            relax[grid](source, target, N=SIZE, ROWS=ROWS, num_warps=4)
    else:
        options = {"ROUNDS": ROUNDS, "BARRIER": how == "barriers", "N": SIZE, "ROWS": ROWS}
        relax_all[grid](one, other, count, **options, num_warps=4)
    torch.cuda.synchronize()
    if how in ("launches", "barriers"):
        for _ in range(ROUNDS):
            x = (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)) % 1021
        assert torch.equal(one.cpu(), x)


RACES = (Race("up", "relaxed"), Race("down", "relaxed"))

CASES = [
    Case("a launch a round", lambda: run("launches")),
    Case("barriers", lambda: run("barriers")),
    Case("one launch without barriers", lambda: run("no barriers"), RACES),
    Case("in place", lambda: run("in place"), RACES),
]
