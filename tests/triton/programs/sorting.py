"""Sorting by blocks that are merged with their neighbours, and the largest of each row."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 4096
BLOCK = 256


@triton.jit
def merge(x, shift, count, B: tl.constexpr):
    i = tl.program_id(0) * B + shift + tl.arange(0, B)
    v = tl.load(x + i, i < count, other=2147483647)  # @take
    tl.store(x + i, tl.sort(v), i < count)  # @put


@triton.jit
def merge_all(x, count, ROUNDS: tl.constexpr, B: tl.constexpr):
    """All rounds in one launch, though the programs do not wait for each other."""
    for r in range(ROUNDS):
        i = tl.program_id(0) * B + r % 2 * (B // 2) + tl.arange(0, B)
        v = tl.load(x + i, i < count, other=2147483647)  # @load
        tl.store(x + i, tl.sort(v), i < count)  # @store


@triton.jit
def largest(x, out, columns, step, EACH: tl.constexpr, K: tl.constexpr, B: tl.constexpr):
    """Every other program goes backwards: at neighbouring rows at once, they may miss them."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    for n in range(EACH):
        row = tl.where(p % 2 == 0, n, EACH - 1 - n) * tl.num_programs(0) + p
        v = tl.load(x + row * columns + i, i < columns, other=-1)
        tl.store(out + row * step + tl.arange(0, K), tl.topk(v, K))  # @largest


def run_sort(how: str) -> None:
    torch.manual_seed(13)
    x = torch.randperm(COUNT, dtype=torch.int32).to(device="cuda")
    blocks = COUNT // BLOCK
    if how == "one launch":
        merge_all[(blocks,)](x, COUNT, ROUNDS=8, B=BLOCK, num_warps=4)
    else:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        for r in range(2 * blocks + 2 if how == "launches" else 8):
            stream = side if how == "two streams" and r % 2 else torch.cuda.current_stream()
            with torch.cuda.stream(stream):
                merge[(blocks,)](x, r % 2 * (BLOCK // 2), COUNT, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if how == "launches":
        # Half a block a round: so many rounds bring everything to its place.
        assert torch.equal(x.cpu(), torch.arange(COUNT, dtype=torch.int32))


def run_largest(step: int) -> None:
    torch.manual_seed(14)
    x = torch.stack([torch.randperm(200, dtype=torch.int32) for _ in range(64)])
    out = torch.zeros(64, 16, dtype=torch.int32, device="cuda")
    largest[(16,)](x.to(device="cuda"), out, 200, step, EACH=4, K=16, B=256, num_warps=4)
    torch.cuda.synchronize()
    if step == 16:
        assert torch.equal(out.cpu(), x.topk(16, 1).values)


CASES = [
    Case("a launch a round", lambda: run_sort("launches")),
    Case(
        "all rounds in one launch",
        lambda: run_sort("one launch"),
        (Race("load", "store"),),
        (Race("store", "store"),),
    ),
    Case(
        "rounds on two streams",
        lambda: run_sort("two streams"),
        (Race("take", "put"),),
        (Race("put", "put"),),
    ),
    Case("largest of rows", lambda: run_largest(16)),
    Case("largest of rows, too close", lambda: run_largest(12), (Race("largest", "largest"),)),
]
