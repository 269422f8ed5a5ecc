"""A barrier of all CTAs of a kernel, from a counter."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 64
ROUNDS = 4
BLOCK = 128


@triton.jit
def rounds(
    x, count, ctas, ARRIVE: tl.constexpr, WAIT: tl.constexpr, ROUNDS: tl.constexpr, B: tl.constexpr
):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    for r in range(ROUNDS):
        here = x + r * ctas * B
        tl.store(here + p * B + i, p + i)  # @own
        tl.atomic_add(count + r, 1, sem=ARRIVE)
        tries = 0
        while (tl.atomic_add(count + r, 0, sem=WAIT) < ctas) & (tries < 10_000_000):
            tries += 1
        other = (p + 1 + r) % ctas
        v = tl.load(here + other * B + i)  # @other
        tl.store(x + (ROUNDS + r) * ctas * B + p * B + i, v)


def run(arrive: str, wait: str) -> None:
    x = torch.zeros(2 * ROUNDS * CTAS * BLOCK, dtype=torch.int32, device="cuda")
    count = torch.zeros(ROUNDS, dtype=torch.int32, device="cuda")
    rounds[(CTAS,)](x, count, CTAS, ARRIVE=arrive, WAIT=wait, ROUNDS=ROUNDS, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()


CASES = [
    Case("release and acquire", lambda: run("release", "acquire")),
    Case("acquire and release twice", lambda: run("acq_rel", "acq_rel")),
    Case("relaxed arrival", lambda: run("relaxed", "acquire"), races=(Race("own", "other"),)),
    Case("relaxed wait", lambda: run("release", "relaxed"), races=(Race("own", "other"),)),
]
