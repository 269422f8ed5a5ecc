"""A sum over a tree: the last of a group adds up the group, the last group adds up the groups."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

GROUPS = 8
EACH = 8
WIDTH = 32
BLOCK = 1024


@triton.jit
def tree_sum(
    x,
    leaves,
    branches,
    counts,
    out,
    LEAF: tl.constexpr,
    BRANCH: tl.constexpr,
    RESET: tl.constexpr,
    GROUPS: tl.constexpr,
    EACH: tl.constexpr,
    W: tl.constexpr,
    B: tl.constexpr,
):
    """Sums of columns: `B` rows of `W` columns for each program."""
    p = tl.program_id(0)
    group = p // EACH
    w = tl.arange(0, W)
    rows = p * (B // W) + tl.arange(0, B // W)
    tl.store(leaves + p * W + w, tl.sum(tl.load(x + rows[:, None] * W + w[None, :]), 0))  # @leaf
    if tl.atomic_add(counts + group, 1, sem=LEAF) == EACH - 1:
        e = group * EACH + tl.arange(0, EACH)
        v = tl.load(leaves + e[:, None] * W + w[None, :])  # @leaves
        tl.store(branches + group * W + w, tl.sum(v, 0))  # @branch
        if tl.atomic_add(counts + GROUPS, 1, sem=BRANCH) == GROUPS - 1:
            g = tl.arange(0, GROUPS)
            v = tl.load(branches + g[:, None] * W + w[None, :])  # @branches
            tl.store(out + w, tl.sum(v, 0))
            if RESET:
                # For the next launch: nobody else counts any more.
                tl.store(counts + g, 0)
                tl.store(counts + GROUPS, 0)


def run(leaf: str = "acq_rel", branch: str = "acq_rel", reset: bool = False) -> None:
    count = GROUPS * EACH
    x = (torch.arange(count * BLOCK, dtype=torch.int32) % 1009).to("cuda")
    leaves = torch.zeros(count, WIDTH, dtype=torch.int32, device="cuda")
    branches = torch.zeros(GROUPS, WIDTH, dtype=torch.int32, device="cuda")
    counts = torch.zeros(GROUPS + 1, dtype=torch.int32, device="cuda")
    out = torch.zeros(WIDTH, dtype=torch.int32, device="cuda")
    options = {"LEAF": leaf, "BRANCH": branch, "RESET": reset, "num_warps": 4}
    sizes = {"GROUPS": GROUPS, "EACH": EACH, "W": WIDTH, "B": BLOCK}
    for _ in range(3 if reset else 1):
        tree_sum[(count,)](x, leaves, branches, counts, out, **options, **sizes)
    torch.cuda.synchronize()
    if (leaf, branch) == ("acq_rel", "acq_rel"):
        assert torch.equal(out.cpu(), x.cpu().view(-1, WIDTH).sum(0).to(torch.int32))


LEAVES, BRANCHES = (Race("leaf", "leaves"),), (Race("branch", "branches"),)

CASES = [
    Case("acquire and release", run),
    Case("counters put back by the last", lambda: run(reset=True)),
    Case("leaves counted relaxed", lambda: run(leaf="relaxed"), LEAVES),
    Case("leaves counted without acquire", lambda: run(leaf="release"), LEAVES),
    Case("branches counted relaxed", lambda: run(branch="relaxed"), BRANCHES),
    Case("branches counted without release", lambda: run(branch="acquire"), BRANCHES),
]
