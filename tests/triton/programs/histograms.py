"""Histograms by way of private copies, and of bins that are smaller than a word."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BINS = 128
COUNT = 1 << 15
BLOCK = 512
COPIES = 32


@triton.jit
def count(
    x, copies, bins, done, SEM: tl.constexpr, BINS: tl.constexpr, C: tl.constexpr, B: tl.constexpr
):
    """Programs share a few copies; who comes last adds them up."""
    p = tl.program_id(0)
    b = tl.arange(0, BINS)
    own = tl.histogram(tl.load(x + p * B + tl.arange(0, B)), BINS)
    # Programs that share a copy begin with different halves, so as not to meet: those of each warp,
    # since warps do not wait for each other.
    for half in range(2):
        mine = (half + p // C) % 2 == b // 2 % 2
        tl.atomic_add(copies + p % C * BINS + b, own, mine, sem="relaxed")  # @copy
    if tl.atomic_add(done, 1, sem=SEM) == tl.num_programs(0) - 1:
        c = tl.arange(0, C)
        v = tl.load(copies + c[:, None] * BINS + b[None, :])  # @copies
        tl.store(bins + b, tl.sum(v, 0))


@triton.jit
def count_small(x, bins, each, WIDE: tl.constexpr, BINS: tl.constexpr, B: tl.constexpr):
    """A program has a few bins of a byte each, and looks at everything."""
    p = tl.program_id(0)
    b = tl.arange(0, BINS)
    mine = (b >= p * each) & (b < p * each + each)
    sums = tl.zeros((BINS,), tl.int32)
    for start in range(0, 4 * B, B):
        sums += tl.histogram(tl.load(x + start + tl.arange(0, B)), BINS)
    if WIDE:
        # Writes what it has into whole words, and so over its neighbours' bins.
        word = p * each // 4 * 4 + tl.arange(0, 8)
        v = tl.gather(sums, word % BINS, 0)
        tl.store(bins + word, v.to(tl.uint8), word < BINS)  # @wide
    else:
        tl.store(bins + b, sums.to(tl.uint8), mine)


def run_copies(sem: str) -> None:
    x = (torch.arange(COUNT, dtype=torch.int32) * 7919 % BINS).to("cuda")
    copies = torch.zeros(COPIES, BINS, dtype=torch.int32, device="cuda")
    bins = torch.zeros(BINS, dtype=torch.int32, device="cuda")
    done = torch.zeros(1, dtype=torch.int32, device="cuda")
    sizes = {"BINS": BINS, "C": COPIES, "B": BLOCK, "num_warps": 4}
    count[(COUNT // BLOCK,)](x, copies, bins, done, SEM=sem, **sizes)
    torch.cuda.synchronize()
    if sem == "acq_rel":
        assert (bins == COUNT // BINS).all().item()


def run_small(wide: bool) -> None:
    x = (torch.arange(4 * BLOCK, dtype=torch.int32) * 7919 % BINS).to("cuda")
    bins = torch.zeros(BINS, dtype=torch.uint8, device="cuda")
    grid = (triton.cdiv(BINS, 3),)
    count_small[grid](x, bins, 3, WIDE=wide, BINS=BINS, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    assert (bins == 4 * BLOCK // BINS).all().item()


CASES = [
    Case("copies", lambda: run_copies("acq_rel")),
    Case("bins of a byte", lambda: run_small(False)),
    Case("copies, counted relaxed", lambda: run_copies("relaxed"), (Race("copy", "copies"),)),
    Case("bins of a byte, whole words", lambda: run_small(True), (Race("wide", "wide"),)),
]
