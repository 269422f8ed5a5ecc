"""Accesses of several sizes to the same 8 bytes."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

# Many words: two accesses that happen at the very same moment may miss each other. Barriers keep
# the compiler from making one store of two.
WORDS = 64


@triton.jit
def halves(x, low, WORDS: tl.constexpr):
    for word in range(WORDS):
        if tl.program_id(0) == 0:
            tl.store((x + word).to(tl.pointer_type(tl.int32)) + low, 7)  # @half
            tl.debug_barrier()
        else:
            # The other way round, so that the two are not in step.
            tl.store((x + WORDS - 1 - word).to(tl.pointer_type(tl.int32)) + 1, 9)  # @high


@triton.jit
def whole(x, other, WORDS: tl.constexpr):
    for word in range(WORDS):
        if tl.program_id(0) == 0:
            tl.store(x + word + other * WORDS, 1)  # @whole
            tl.debug_barrier()
        else:
            tl.store((x + word).to(tl.pointer_type(tl.int8)) + 5, 2)  # @byte


@triton.jit
def atomic_beside(x, at, WORDS: tl.constexpr):
    for word in range(WORDS):
        if tl.program_id(0) == 0:
            tl.atomic_add((x + word).to(tl.pointer_type(tl.int32)), 1, sem="relaxed")  # @atomic
        else:
            tl.store((x + word).to(tl.pointer_type(tl.int16)) + at, 3)  # @short


def run(kernel, argument: int) -> None:
    x = torch.zeros(2 * WORDS, dtype=torch.int64, device="cuda")
    kernel[(2,)](x, argument, WORDS=WORDS, num_warps=1)
    torch.cuda.synchronize()


CASES = [
    Case("two halves", lambda: run(halves, 0)),
    Case("one half twice", lambda: run(halves, 1), races=(Race("half", "high"),)),
    Case("a word and a byte of another", lambda: run(whole, 1)),
    Case("a word and a byte of it", lambda: run(whole, 0), races=(Race("whole", "byte"),)),
    Case("an atomic and the short beside it", lambda: run(atomic_beside, 2)),
    Case(
        "an atomic and a short in it",
        lambda: run(atomic_beside, 1),
        races=(Race("atomic", "short"),),
    ),
]
