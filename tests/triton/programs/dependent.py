"""Programmatic dependent launches, which start before their predecessor has ended."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

COUNT = 1 << 14
BLOCK = 1024


@triton.jit
def step(x, out, rounds, WAIT: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    gdc_launch_dependents()
    if WAIT:
        gdc_wait()
    v = tl.load(x + i)  # @load
    # It takes so long that its successor, which does not wait, starts meanwhile.
    noise = v
    for _ in range(rounds):
        noise = noise * 1664525 + 1013904223
    tl.store(out + i, tl.where(noise == 7, v + 2, v + 1))  # @store


def run(wait: bool) -> None:
    x = [torch.zeros(COUNT, dtype=torch.int32, device="cuda") for _ in range(5)]
    torch.cuda.synchronize()
    for before, after in zip(x, x[1:], strict=False):
        step[(COUNT // BLOCK,)](
            before, after, 1_000_000, WAIT=wait, B=BLOCK, num_warps=4, launch_pdl=True
        )
    torch.cuda.synchronize()
    if wait:
        assert (x[-1] == 4).all().item()


CASES = [
    Case("each waits", lambda: run(True)),
    Case("none waits", lambda: run(False), races=(Race("store", "load"),)),
]
