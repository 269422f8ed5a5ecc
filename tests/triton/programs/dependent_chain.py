"""Dependent launches with work before and after the wait for the predecessor."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

COUNT = 1 << 14
BLOCK = 1024
KERNELS = 6


@triton.jit
def add(x, weight, out, rounds, EARLY: tl.constexpr, B: tl.constexpr):
    """Weights are nobody's output: they may be loaded before the wait."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    w = tl.load(weight + i)
    if EARLY:
        v = tl.load(x + i)  # @early
        gdc_wait()
    else:
        gdc_wait()
        v = tl.load(x + i)
    gdc_launch_dependents()
    noise = v
    for _ in range(rounds):
        noise = noise * 1664525 + 1013904223
    tl.store(out + i, tl.where(noise == 7, v + w + 1, v + w))  # @store


def run(early: bool, dependent: bool) -> None:
    x = [torch.zeros(COUNT, dtype=torch.int32, device="cuda") for _ in range(KERNELS)]
    weight = torch.full((COUNT,), 3, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    for before, after in zip(x, x[1:], strict=False):
        rounds = 100_000 if early else 1
        options = {"EARLY": early, "B": BLOCK, "num_warps": 4, "launch_pdl": dependent}
        add[(COUNT // BLOCK,)](before, weight, after, rounds, **options)
    torch.cuda.synchronize()
    if not (early and dependent):
        assert (x[-1] == 3 * (KERNELS - 1)).all().item()


CASES = [
    Case("loaded after the wait", lambda: run(False, True)),
    Case("loaded early, launched one after the other", lambda: run(True, False)),
    Case("loaded early", lambda: run(True, True), races=(Race("early", "store"),)),
]
