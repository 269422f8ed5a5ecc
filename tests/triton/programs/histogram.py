"""A histogram with atomics, with one per CTA, and with loads and stores."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BINS = 64
COUNT = 1 << 15
BLOCK = 512


@triton.jit
def atomics(x, bins, SEM: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(bins + tl.load(x + i), 1, sem=SEM)


@triton.jit
def plain(x, bins, BINS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    b = tl.arange(0, BINS)
    own = tl.histogram(tl.load(x + i), BINS)
    tl.store(bins + b, tl.load(bins + b) + own)  # @plain


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = (torch.arange(COUNT, dtype=torch.int32) * 7919 % BINS).to("cuda")
    return x, torch.zeros(BINS, dtype=torch.int32, device="cuda")


def run_atomics(sem: str) -> None:
    x, bins = data()
    atomics[(COUNT // BLOCK,)](x, bins, SEM=sem, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    assert (bins == COUNT // BINS).all().item()


def run_plain() -> None:
    x, bins = data()
    plain[(COUNT // BLOCK,)](x, bins, BINS=BINS, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()


CASES = [
    Case("relaxed atomics", lambda: run_atomics("relaxed")),
    Case("acquire-release atomics", lambda: run_atomics("acq_rel")),
    Case("loads and stores", run_plain, races=(Race("plain", "plain"),)),
]
