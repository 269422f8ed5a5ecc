"""A cache of keys and values: new tokens are appended while attention reads those before them."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

SEQUENCES = 8
LENGTH = 64
EACH = 8
WIDTH = 64


@triton.jit
def append(new, slots, cache, EACH: tl.constexpr, D: tl.constexpr):
    i = tl.arange(0, D)
    for n in range(EACH):
        token = tl.program_id(0) * EACH + n
        slot = tl.load(slots + token)
        tl.store(cache + slot * D + i, tl.load(new + token * D + i))  # @append


@triton.jit
def attend(q, cache, lengths, out, scale, MAX: tl.constexpr, D: tl.constexpr):
    """One query for each sequence; keys are values, too."""
    s = tl.program_id(0)
    i = tl.arange(0, D)
    t = tl.arange(0, MAX)
    length = tl.load(lengths + s)
    at = cache + (s * MAX + t[:, None]) * D + i[None, :]
    v = tl.load(at, (t < length)[:, None], other=0.0)  # @attend
    scores = tl.sum(v * tl.load(q + s * D + i)[None, :], 1) * scale
    weights = tl.exp(tl.where(t < length, scores, -float("inf")))
    tl.store(out + s * D + i, tl.sum(v * weights[:, None], 0) / tl.sum(weights, 0))


def run(kind: str) -> None:
    torch.manual_seed(8)
    new = torch.randn(SEQUENCES * 2 * EACH, WIDTH, device="cuda")
    q = torch.randn(SEQUENCES, WIDTH, device="cuda")
    cache = torch.randn(SEQUENCES, LENGTH, WIDTH, device="cuda")
    out = torch.zeros_like(q)
    # Two programs append to each sequence, behind 40 tokens that are there; the mistake is to count
    # half of what the first one appends.
    begins = torch.tensor([40, 40 + (EACH // 2 if kind == "same slots" else EACH)])
    slots = torch.arange(SEQUENCES)[:, None, None] * LENGTH + begins[:, None] + torch.arange(EACH)
    # Who reads the tokens before the new ones only need not wait.
    length = 40 if kind == "reads the old ones" else 40 + 2 * EACH
    lengths = torch.full((SEQUENCES,), length, dtype=torch.int32, device="cuda")
    places = slots.flatten().to(torch.int32).to("cuda")
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        append[(SEQUENCES * 2,)](new, places, cache, EACH=EACH, D=WIDTH, num_warps=1)
    if kind in ("waits", "same slots"):
        second.wait_stream(first)
    with torch.cuda.stream(second):
        attend[(SEQUENCES,)](q, cache, lengths, out, 0.1, MAX=LENGTH, D=WIDTH, num_warps=4)
    torch.cuda.synchronize()
    if kind in ("waits", "reads the old ones"):
        v = cache[:, :length]
        weights = torch.softmax((v * q[:, None]).sum(-1) * 0.1, -1)
        assert torch.allclose(out, (v * weights[..., None]).sum(1), atol=1e-4)


CASES = [
    Case("waits for the new tokens", lambda: run("waits")),
    Case("reads the old ones", lambda: run("reads the old ones")),
    Case("does not wait", lambda: run("does not wait"), races=(Race("append", "attend"),)),
    Case("slots used twice", lambda: run("same slots"), races=(Race("append", "append"),)),
]
