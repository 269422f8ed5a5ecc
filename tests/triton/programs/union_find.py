"""Components of a graph: trees hung under others by compare-and-swap, paths made shorter."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 32
EACH = 16
NODES = 512


@triton.jit
def parent_of(parent, node):
    return tl.atomic_load(parent + node, sem="relaxed")  # @look


@triton.jit
def find(parent, node, SHORTEN: tl.constexpr):
    above = parent_of(parent, node)
    while above != node:
        next_above = parent_of(parent, above)
        if (SHORTEN == "atomic") & (next_above != above):
            tl.atomic_store(parent + node, next_above, sem="relaxed")
        if (SHORTEN == "plain") & (next_above != above):
            tl.store(parent + node, next_above)  # @shorten
        node = above
        above = next_above
    return node


@triton.jit
def join(parent, left, right, EACH: tl.constexpr, SHORTEN: tl.constexpr):
    """Numbers of parents are smaller than their children's: there are no circles."""
    for n in range(EACH):
        edge = tl.program_id(0) * EACH + n
        a = tl.load(left + edge)
        b = tl.load(right + edge)
        joined = False
        tries = 0
        while (not joined) & (tries < 10_000):
            tries += 1
            a = find(parent, a, SHORTEN)
            b = find(parent, b, SHORTEN)
            high, low = tl.maximum(a, b), tl.minimum(a, b)
            joined = high == low
            if high != low:
                joined = tl.atomic_cas(parent + high, high, low, sem="relaxed") == high  # @hang


def run(shorten: str) -> None:
    # Two rings, of even and of odd nodes, their edges far apart in order.
    order = torch.arange(NODES) * 37 % NODES
    left, right = order.to(torch.int32).to("cuda"), ((order + 2) % NODES).to(torch.int32).to("cuda")
    parent = torch.arange(NODES, dtype=torch.int32, device="cuda")
    join[(CTAS,)](parent, left, right, EACH=EACH, SHORTEN=shorten, num_warps=1)
    torch.cuda.synchronize()
    if shorten != "plain":
        up = parent.cpu().long()
        for _ in range(10):
            up = up[up]
        assert torch.equal(up, torch.arange(NODES) % 2)


CASES = [
    Case("paths left as they are", lambda: run("no")),
    Case("paths made shorter by atomics", lambda: run("atomic")),
    Case(
        "paths made shorter by stores",
        lambda: run("plain"),
        races=(Race("shorten", "look"),),
        also=(Race("shorten", "shorten"), Race("shorten", "hang")),
    ),
]
