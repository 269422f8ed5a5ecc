"""A search over a graph, level by level: marks of the same value are races, too."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

NODES = 1024
DEGREE = 8
BLOCK = 32


@triton.jit
def step(
    edges,
    level,
    frontier,
    count,
    next_frontier,
    next_count,
    depth,
    ATOMIC: tl.constexpr,
    D: tl.constexpr,
    B: tl.constexpr,
):
    """A program takes `B` nodes of the frontier, and gives those they lead to their level."""
    f = tl.program_id(0) * B + tl.arange(0, B)
    inside = f < tl.load(count)
    node = tl.load(frontier + f, inside, other=0)
    for d in range(D):
        to = tl.load(edges + node * D + d, inside, other=0)
        if ATOMIC:
            # The smallest level stays; who lowered it first puts the node into the frontier.
            before = tl.atomic_min(level + to, depth, inside, sem="relaxed")
        else:
            before = tl.load(level + to, inside, other=0)  # @seen
            tl.store(level + to, depth, inside & (before > depth))  # @mark
        new = inside & (before > depth)
        at = tl.atomic_add(next_count + to * 0, 1, new, sem="relaxed")
        tl.store(next_frontier + at, to, new)


def run(atomic: bool) -> None:
    # Many edges lead to the same node.
    nodes = torch.arange(NODES)[:, None] * 3 + torch.arange(DEGREE)[None, :] ** 2
    edges = (nodes % NODES).to(torch.int32)
    level = torch.full((NODES,), NODES, dtype=torch.int32, device="cuda")
    level[0] = 0
    # Without atomics a node may come into the frontier more than once.
    frontiers = torch.zeros(2, NODES * DEGREE, dtype=torch.int32, device="cuda")
    counts = torch.zeros(2, dtype=torch.int32, device="cuda")
    counts[0] = 1
    table = edges.to("cuda")
    for depth in range(1, 8):
        here, there = (depth - 1) % 2, depth % 2
        counts[there] = 0
        arguments = (table, level, frontiers[here], counts[here:], frontiers[there], counts[there:])
        step[(NODES // BLOCK,)](*arguments, depth, ATOMIC=atomic, D=DEGREE, B=BLOCK, num_warps=1)
    torch.cuda.synchronize()
    if not atomic:
        return
    expected = torch.full((NODES,), NODES, dtype=torch.int32)
    expected[0] = 0
    for depth in range(1, 8):
        to = edges[expected == depth - 1].flatten().long()
        expected[to] = expected[to].clamp(max=depth)
    assert torch.equal(level.cpu(), expected)


CASES = [
    Case("levels by atomics", lambda: run(True)),
    Case(
        "levels by stores of the same value",
        lambda: run(False),
        races=(Race("seen", "mark"),),
        also=(Race("mark", "mark"),),
    ),
]
