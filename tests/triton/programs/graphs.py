"""A captured graph over two streams, replayed."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 14
BLOCK = 1024


@triton.jit
def fill(x, value, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(value) + i)  # @fill


@triton.jit
def read(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))  # @read


@triton.jit
def step(value):
    tl.store(value, tl.load(value) + 1)


def launch(kernel, *tensors) -> None:
    kernel[(COUNT // BLOCK,)](*tensors, B=BLOCK, num_warps=4)


def run(joined: bool, replays: int = 50) -> None:
    x = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    value = torch.zeros(1, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    launch(fill, x, value)
    launch(read, x, out)
    step[(1,)](value)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        step[(1,)](value)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            launch(fill, x, value)
        if joined:
            main.wait_stream(side)
        launch(read, x, out)
        if not joined:
            main.wait_stream(side)
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    if joined:
        expected = torch.arange(COUNT, dtype=torch.int32) + replays + 1
        assert torch.equal(out.cpu(), expected)
    graph.reset()


CASES = [
    Case("joined", lambda: run(True)),
    Case("read before the join", lambda: run(False), races=(Race("fill", "read"),)),
]
