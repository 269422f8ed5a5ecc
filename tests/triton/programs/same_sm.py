"""CTAs that share an SM, at once and one after the other, write the same word."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race, is_counted


@triton.jit
def everybody(word, own, ATOMIC: tl.constexpr):
    p = tl.program_id(0)
    tl.store(own + p, p)
    if ATOMIC:
        tl.atomic_add(word, 1, sem="relaxed")
    else:
        tl.store(word, 1)  # @everybody


@triton.jit
def first_and_last(word, own, last):
    p = tl.program_id(0)
    tl.store(own + p, p)
    if (p == 0) | (p == last):
        tl.store(word, 1)  # @two


def run_everybody(atomic: bool) -> None:
    ctas = 4 * torch.cuda.get_device_properties(0).multi_processor_count
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    own = torch.zeros(ctas, dtype=torch.int32, device="cuda")
    everybody[(ctas,)](word, own, ATOMIC=atomic, num_warps=1)
    torch.cuda.synchronize()
    assert word.item() == (ctas if atomic else 1)


def run_as_many_as_slots() -> None:
    """CTAs of one warp with 128 registers a thread: 16 are on an SM at once, and one that starts
    takes the slot of one that has just left."""
    ctas = 512 * torch.cuda.get_device_properties(0).multi_processor_count
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    own = torch.zeros(ctas, dtype=torch.int32, device="cuda")
    first_and_last[(ctas,)](word, own, 0, num_warps=1)
    assert torch.equal(own.cpu(), torch.arange(ctas, dtype=torch.int32))
    assert not is_counted("no-slot")


def run_first_and_last(last: int) -> None:
    ctas = 64 * torch.cuda.get_device_properties(0).multi_processor_count
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    own = torch.zeros(ctas, dtype=torch.int32, device="cuda")
    first_and_last[(ctas,)](word, own, ctas - 1 if last else 0, num_warps=1)
    torch.cuda.synchronize()
    assert word.item() == 1


CASES = [
    Case("atomics", lambda: run_everybody(True)),
    Case("stores", lambda: run_everybody(False), races=(Race("everybody", "everybody"),)),
    Case("as many at once as there are slots", run_as_many_as_slots),
    Case("one writer", lambda: run_first_and_last(False)),
    Case("one after the other", lambda: run_first_and_last(True), races=(Race("two", "two"),)),
]
