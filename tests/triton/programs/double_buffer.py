"""Two buffers between two streams: one is filled while the other is read."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 14
BLOCK = 1024
ITEMS = 12


@triton.jit
def fill(x, item, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, i + item)  # @fill


@triton.jit
def consume(x, out, rounds, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    noise = tl.load(out + i)
    for _ in range(rounds):
        noise = noise * 1664525 + 1013904223
    v = tl.load(x + i)  # @consume
    tl.store(out + i, tl.where(noise == 7, 0, v))


def run(buffers: int, wait_for: int | None, filled: bool = True) -> None:
    """Item `n` is filled in when item `n - wait_for` has been read."""
    x = [torch.zeros(COUNT, dtype=torch.int32, device="cuda") for _ in range(buffers)]
    out = torch.zeros(ITEMS, COUNT, dtype=torch.int32, device="cuda")
    source, sink = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    read: list[torch.cuda.Event] = []
    for n in range(ITEMS):
        if wait_for is not None and n >= wait_for:
            source.wait_event(read[n - wait_for])
        with torch.cuda.stream(source):
            fill[(COUNT // BLOCK,)](x[n % buffers], n, B=BLOCK, num_warps=4)
        full = torch.cuda.Event()
        full.record(source)
        if filled:
            sink.wait_event(full)
        with torch.cuda.stream(sink):
            consume[(COUNT // BLOCK,)](x[n % buffers], out[n], 1000, B=BLOCK, num_warps=4)
        read.append(torch.cuda.Event())
        read[-1].record(sink)
    torch.cuda.synchronize()
    if filled and wait_for is not None and wait_for <= buffers:
        expected = torch.arange(COUNT)[None, :] + torch.arange(ITEMS)[:, None]
        assert torch.equal(out.cpu(), expected.to(torch.int32))


RACE = (Race("fill", "consume"),)

CASES = [
    Case("two buffers", lambda: run(2, 2)),
    Case("three buffers", lambda: run(3, 3)),
    Case("two buffers, waits for a later item", lambda: run(2, 1)),
    Case("two buffers, waits for three", lambda: run(2, 3), RACE),
    Case("nobody waits for what was read", lambda: run(2, None), RACE),
    Case("nobody waits for what was filled in", lambda: run(2, 2, False), RACE),
]
