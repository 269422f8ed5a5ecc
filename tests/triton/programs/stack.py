"""A stack as a list: nodes are pushed by compare-and-swap, and all of them taken at once."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

PUSHERS = 16
TAKERS = 4
EACH = 8
WIDTH = 32


@triton.jit
def share(
    head,
    below,
    values,
    taken,
    PUSH: tl.constexpr,
    TAKE: tl.constexpr,
    PUSHERS: tl.constexpr,
    EACH: tl.constexpr,
    W: tl.constexpr,
):
    """Nodes have numbers; -1 is the end of the list."""
    p = tl.program_id(0)
    i = tl.arange(0, W)
    if p < PUSHERS:
        for n in range(EACH):
            node = p * EACH + n
            tl.store(values + node * W + i, node + i)  # @value
            pushed = False
            tries = 0
            while (not pushed) & (tries < 1_000_000):
                tries += 1
                top = tl.atomic_load(head, sem="relaxed")
                tl.store(below + node, top)  # @below
                pushed = tl.atomic_cas(head, top, node, sem=PUSH) == top
    else:
        for _ in range(4 * EACH):
            node = tl.atomic_xchg(head, -1, sem=TAKE)
            steps = 0
            while (node >= 0) & (steps < PUSHERS * EACH):
                steps += 1
                v = tl.load(values + node * W + i)  # @take
                tl.store(taken + node * W + i, v)
                node = tl.load(below + node)  # @walk


def run(push: str, take: str) -> None:
    head = torch.full((1,), -1, dtype=torch.int32, device="cuda")
    nodes = PUSHERS * EACH
    below = torch.full((nodes,), -1, dtype=torch.int32, device="cuda")
    values = torch.zeros(nodes, WIDTH, dtype=torch.int32, device="cuda")
    taken = torch.zeros_like(values)
    options = {"PUSH": push, "TAKE": take, "PUSHERS": PUSHERS, "EACH": EACH, "W": WIDTH}
    share[(PUSHERS + TAKERS,)](head, below, values, taken, **options, num_warps=1)
    torch.cuda.synchronize()
    if (push, take) == ("release", "acquire"):
        # What nobody took is in the list yet.
        node, rest = int(head.item()), below.tolist()
        left = torch.zeros(nodes, dtype=torch.bool)
        while node >= 0:
            left[node] = True
            node = rest[node]
        there = taken.cpu()[:, -1] == torch.arange(nodes) + WIDTH - 1
        assert (there ^ left).all().item()


RACES, ALSO = (Race("value", "take"),), (Race("below", "walk"),)

CASES = [
    Case("release and acquire", lambda: run("release", "acquire")),
    Case("pushed relaxed", lambda: run("relaxed", "acquire"), RACES, ALSO),
    Case("taken relaxed", lambda: run("release", "relaxed"), RACES, ALSO),
]
