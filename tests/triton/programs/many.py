"""Many launches, many releases: what wears epochs and tokens out."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race


@triton.jit
def add_one(x, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + 1)


@triton.jit
def release(flag, count):
    for _ in range(count):
        tl.atomic_add(flag, 1, sem="release")


@triton.jit(do_not_specialize=["first"])
def write(x, first, step, count):
    """Two that go opposite ways are at the same place at the same moment, where each may miss the
    other, hardly more than once.
    """
    for n in range(count):
        tl.store(x + first + n * step, n)  # @write


def launches(count: int, ctas: int) -> None:
    x = torch.zeros(ctas * 64, dtype=torch.int32, device="cuda")
    for _ in range(count):
        add_one[(ctas,)](x, B=64, num_warps=1)
    torch.cuda.synchronize()
    assert (x == count).all().item()


def releases(count: int) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    release[(1,)](flag, count, num_warps=1)
    torch.cuda.synchronize()
    assert flag.item() == count


def race_after(count: int, ctas: int) -> None:
    launches(count, ctas)
    x = torch.zeros(256, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    for first, step in ((0, 2), (254, -2)):
        with torch.cuda.stream(torch.cuda.Stream()):
            write[(1,)](x, first, step, 128, num_warps=1)
    torch.cuda.synchronize()


CASES = [
    Case("5,000 launches of 4,096 CTAs", lambda: launches(5_000, 4_096), runs=2),
    Case("1,000,000 releases", lambda: releases(1_000_000), runs=1),
    Case(
        "a race after 1,000 launches",
        lambda: race_after(1_000, 4_096),
        races=(Race("write", "write"),),
    ),
]
