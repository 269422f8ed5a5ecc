"""Attention over pages, in parts: who ends last brings the parts of a sequence together."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SEQUENCES = 6
PAGES = 8
PAGE = 16
PARTS = 4
WIDTH = 64


@triton.jit
def attend(
    q,
    new,
    pages,
    table,
    parts,
    largest,
    counts,
    out,
    scale,
    SEM: tl.constexpr,
    PAGES: tl.constexpr,
    PAGE: tl.constexpr,
    PARTS: tl.constexpr,
    D: tl.constexpr,
):
    s, part = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, D)
    t = tl.arange(0, PAGE)
    x = tl.load(q + s * D + i)
    if part == PARTS - 1:
        # The sequence's newest token goes to the end of its last page.
        last = tl.load(table + s * PAGES + PAGES - 1)
        tl.store(pages + (last * PAGE + PAGE - 1) * D + i, tl.load(new + s * D + i))  # @append
        tl.debug_barrier()
    high = -float("inf")
    total = 0.0
    sums = tl.zeros((D,), tl.float32)
    for n in range(part * (PAGES // PARTS), (part + 1) * (PAGES // PARTS)):
        page = tl.load(table + s * PAGES + n)
        v = tl.load(pages + (page * PAGE + t[:, None]) * D + i[None, :])  # @page
        scores = tl.sum(v * x[None, :], 1) * scale
        higher = tl.maximum(high, tl.max(scores, 0))
        weights = tl.exp(scores - higher)
        fade = tl.exp(high - higher)
        total = total * fade + tl.sum(weights, 0)
        sums = sums * fade + tl.sum(v * weights[:, None], 0)
        high = higher
    tl.store(parts + (s * PARTS + part) * D + i, sums)  # @part
    tl.store(largest + (s * PARTS + part) * 2, high)  # @high
    tl.store(largest + (s * PARTS + part) * 2 + 1, total)  # @sum
    if tl.atomic_add(counts + s, 1, sem=SEM) == PARTS - 1:
        every = s * PARTS + tl.arange(0, PARTS)
        highs = tl.load(largest + every * 2)  # @highs
        fades = tl.exp(highs - tl.max(highs, 0))
        totals = tl.sum(tl.load(largest + every * 2 + 1) * fades, 0)  # @sums
        v = tl.load(parts + every[:, None] * D + i[None, :])  # @parts
        tl.store(out + s * D + i, tl.sum(v * fades[:, None], 0) / totals)


def run(sem: str, shared: bool) -> None:
    torch.manual_seed(9)
    q = torch.randn(SEQUENCES, WIDTH, device="cuda")
    new = torch.randn(SEQUENCES, WIDTH, device="cuda")
    pages = torch.randn(SEQUENCES * PAGES, PAGE, WIDTH, device="cuda")
    table = (torch.arange(SEQUENCES * PAGES) * 7 % (SEQUENCES * PAGES)).view(SEQUENCES, PAGES)
    # All sequences begin with the same pages; sharing the last one is the mistake.
    table[1:, :2] = table[0, :2]
    if shared:
        table[1::2, -1] = table[::2, -1]
    table = table.to(torch.int32).to("cuda")
    parts = torch.zeros(SEQUENCES, PARTS, WIDTH, device="cuda")
    largest = torch.zeros(SEQUENCES, PARTS, 2, device="cuda")
    counts = torch.zeros(SEQUENCES, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(q)
    arguments = (q, new, pages, table, parts, largest, counts, out, 0.1)
    sizes = {"PAGES": PAGES, "PAGE": PAGE, "PARTS": PARTS, "D": WIDTH, "num_warps": 4}
    attend[(SEQUENCES, PARTS)](*arguments, SEM=sem, **sizes)
    torch.cuda.synchronize()
    if sem == "acq_rel" and not shared:
        v = pages.cpu()[table.cpu().long()].view(SEQUENCES, -1, WIDTH)
        weights = torch.softmax((v * q.cpu()[:, None]).sum(-1) * 0.1, -1)
        assert torch.allclose(out.cpu(), (v * weights[..., None]).sum(1), atol=1e-4)


CASES = [
    Case("pages of their own", lambda: run("acq_rel", False)),
    Case(
        "last page in common",
        lambda: run("acq_rel", True),
        races=(Race("append", "page"),),
        also=(Race("append", "append"),),
    ),
    Case(
        "parts counted relaxed",
        lambda: run("relaxed", False),
        races=(Race("part", "parts"),),
        also=(Race("high", "highs"), Race("sum", "sums")),
    ),
]
