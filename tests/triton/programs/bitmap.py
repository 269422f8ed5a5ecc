"""Sets of bits: words that programs have in common, set by atomics and by loads and stores."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 14
BLOCK = 256


@triton.jit
def mark(items, words, ATOMIC: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    item = tl.load(items + i)
    bit = 1 << (item % 32)
    if ATOMIC:
        tl.atomic_or(words + item // 32, bit, sem="relaxed")
    else:
        word = tl.load(words + item // 32)  # @word
        tl.store(words + item // 32, word | bit)  # @set


@triton.jit
def claim(words, owner, B: tl.constexpr):
    """All programs try to get all items; who sets an item's bit has it, and writes its name."""
    p = tl.program_id(0)
    for start in range(0, 4):
        item = (start + p) % 4 * B + tl.arange(0, B)
        bit = 1 << (item % 32)
        before = tl.atomic_or(words + item // 32, bit, sem="relaxed")
        mine = (before & bit) == 0
        tl.store(owner + item, p + 1, mine)


@triton.jit
def claim_unread(words, owner, B: tl.constexpr):
    """Looks whether the bit is free, and sets it, in two steps."""
    p = tl.program_id(0)
    for start in range(0, 4):
        item = (start + p) % 4 * B + tl.arange(0, B)
        bit = 1 << (item % 32)
        before = tl.atomic_load(words + item // 32, sem="relaxed")
        tl.debug_barrier()
        tl.atomic_or(words + item // 32, bit, sem="relaxed")
        tl.store(owner + item, p + 1, (before & bit) == 0)  # @owner


def run_mark(atomic: bool) -> None:
    items = (torch.arange(COUNT, dtype=torch.int32) * 5 % COUNT).to("cuda")
    words = torch.zeros(COUNT // 32, dtype=torch.int32, device="cuda")
    mark[(COUNT // BLOCK,)](items, words, ATOMIC=atomic, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if atomic:
        assert (words == -1).all().item()


def run_claim(kernel) -> None:
    words = torch.zeros(4 * BLOCK // 32, dtype=torch.int32, device="cuda")
    owner = torch.zeros(4 * BLOCK, dtype=torch.int32, device="cuda")
    kernel[(32,)](words, owner, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    assert (owner > 0).all().item()


CASES = [
    Case("atomics", lambda: run_mark(True)),
    Case("owners of bits", lambda: run_claim(claim)),
    Case(
        "loads and stores",
        lambda: run_mark(False),
        races=(Race("word", "set"),),
        also=(Race("set", "set"),),
    ),
    Case("owners in two steps", lambda: run_claim(claim_unread), races=(Race("owner", "owner"),)),
]
