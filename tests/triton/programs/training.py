"""Training of a small network for 200 steps, over several streams and with CUDA graphs.

Run by itself, it prints the losses' digest, the time and the memory: `python training.py [graphs]`.
"""

import hashlib
import sys
import time

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

STEPS = 200
ROWS, INPUTS, HIDDEN, OUTPUTS = 256, 64, 128, 16
PARTS = 8
RATE = 0.3


@triton.jit
def linear(
    x, w, b, out, K, N, RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rk = start + tl.arange(0, BK)
        v = tl.load(x + rm[:, None] * K + rk[None, :])
        u = tl.load(w + rn[None, :] * K + rk[:, None])
        sums = tl.dot(v, u, sums)
    sums += tl.load(b + rn)[None, :]
    if RELU:
        sums = tl.maximum(sums, 0.0)
    tl.store(out + rm[:, None] * N + rn[None, :], sums)


@triton.jit
def product_of_columns(
    a, b, parts, M, K, N, each, BM: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr
):
    """A part of the sum over rows of `a`'s columns by `b`'s; parts are added up in their order."""
    rk = tl.program_id(0) * BK + tl.arange(0, BK)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    sums = tl.zeros((BK, BN), tl.float32)
    for start in range(part * each, part * each + each, BM):
        rm = start + tl.arange(0, BM)
        v = tl.load(a + rm[None, :] * K + rk[:, None])
        u = tl.load(b + rm[:, None] * N + rn[None, :])
        sums = tl.dot(v, u, sums)
    tl.store(parts + (part * K + rk[:, None]) * N + rn[None, :], sums)


@triton.jit
def step(w, momentum, parts, count, rate, PARTS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    p = tl.arange(0, PARTS)
    g = tl.sum(tl.load(parts + p[:, None] * count + i[None, :], (i < count)[None, :], other=0.0), 0)
    m = 0.9 * tl.load(momentum + i, i < count, other=0.0) + g
    tl.store(momentum + i, m, i < count)
    tl.store(w + i, tl.load(w + i, i < count, other=0.0) - rate * m, i < count)  # @update


@triton.jit
def average(w, mean, count, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(w + i, i < count, other=0.0)  # @average
    tl.store(mean + i, 0.99 * tl.load(mean + i, i < count, other=0.0) + 0.01 * v, i < count)


class Linear(torch.autograd.Function):
    """Gradients of weights go to `parts`, and so to the optimiser, not through autograd."""

    @staticmethod
    def forward(ctx, x, w, b, parts, relu, side):
        out = torch.empty(x.shape[0], w.shape[0], device="cuda")
        ctx.save_for_backward(x, w, out)
        ctx.parts, ctx.relu, ctx.side = parts, relu, side
        grid = (x.shape[0] // 32, w.shape[0] // 16)
        tiles = {"BM": 32, "BN": 16, "BK": 32, "num_warps": 4}
        linear[grid](x, w, b, out, x.shape[1], w.shape[0], RELU=relu, **tiles)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, w, out = ctx.saved_tensors
        grad = (grad * (out > 0) if ctx.relu else grad).contiguous()
        (rows, n), k = grad.shape, x.shape[1]
        # The weights' gradient is computed beside what the layer before needs.
        ctx.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(ctx.side):
            arguments = (grad, x, ctx.parts, rows, n, k, rows // PARTS)
            tiles = {"BM": 32, "BK": 16, "BN": 32, "num_warps": 4}
            product_of_columns[(n // 16, k // 32, PARTS)](*arguments, **tiles)
        for tensor in (grad, x):
            tensor.record_stream(ctx.side)
        return grad @ w, None, grad.sum(0), None, None, None


class Network:
    def __init__(self) -> None:
        torch.manual_seed(6)
        shapes = [(HIDDEN, INPUTS), (HIDDEN, HIDDEN), (OUTPUTS, HIDDEN)]
        self.weights = [(torch.randn(s) * s[1] ** -0.5).cuda() for s in shapes]
        self.biases = [torch.zeros(s[0], device="cuda", requires_grad=True) for s in shapes]
        self.parts = [torch.zeros(PARTS, *s, device="cuda") for s in shapes]
        self.momenta = [torch.zeros(s, device="cuda") for s in shapes]
        self.means = [torch.zeros(s, device="cuda") for s in shapes]
        self.side, self.watcher = torch.cuda.Stream(), torch.cuda.Stream()
        self.x = torch.zeros(ROWS, INPUTS, device="cuda")
        self.y = torch.zeros(ROWS, OUTPUTS, device="cuda")
        self.loss = torch.zeros((), device="cuda")

    def step(self, waits: bool) -> None:
        main = torch.cuda.current_stream()
        x = self.x
        for n, layer in enumerate(zip(self.weights, self.biases, self.parts, strict=True)):
            x = Linear.apply(x, *layer, n < 2, self.side)
        loss = ((x - self.y) ** 2).mean()
        grads = torch.autograd.grad(loss, self.biases)
        main.wait_stream(self.side)
        if waits:
            # What averages the weights has read them.
            main.wait_stream(self.watcher)
        for w, momentum, parts in zip(self.weights, self.momenta, self.parts, strict=True):
            grid = (triton.cdiv(w.numel(), 256),)
            step[grid](w, momentum, parts, w.numel(), RATE, PARTS=PARTS, B=256, num_warps=4)
        with torch.no_grad():
            for bias, grad in zip(self.biases, grads, strict=True):
                bias -= RATE * grad
            self.loss.copy_(loss.detach())
        self.watcher.wait_stream(main)
        with torch.cuda.stream(self.watcher):
            for w, mean in zip(self.weights, self.means, strict=True):
                average[(triton.cdiv(w.numel(), 256),)](w, mean, w.numel(), B=256, num_warps=4)


def train(graphs: bool, waits: bool, steps: int) -> list[float]:
    network = Network()
    torch.manual_seed(7)
    target = torch.randn(INPUTS, OUTPUTS)
    losses = []
    graph = None
    for n in range(steps):
        x = torch.randn(ROWS, INPUTS)
        network.x.copy_(x)
        network.y.copy_(torch.tanh(x @ target))
        if graph is not None:
            graph.replay()
        elif graphs and n == 3:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                network.watcher.wait_stream(torch.cuda.current_stream())
                network.step(waits)
                torch.cuda.current_stream().wait_stream(network.watcher)
            graph.replay()
        else:
            network.step(waits)
        if n % 20 == 19:
            losses.append(network.loss.item())
    torch.cuda.synchronize()
    losses += [mean.double().sum().item() for mean in network.means]
    if graph is not None:
        graph.reset()
    return losses


def run(graphs: bool) -> None:
    losses = train(graphs, True, STEPS)
    assert losses[STEPS // 20 - 1] < 0.5 * losses[0], losses


def run_without_wait() -> None:
    train(False, False, 20)


CASES = [
    Case("streams", lambda: run(False), runs=2),
    Case("graphs", lambda: run(True), runs=2),
    Case(
        "weights averaged while they are updated",
        run_without_wait,
        races=(Race("update", "average"),),
    ),
]

if __name__ == "__main__":
    start = time.monotonic()
    losses = train("graphs" in sys.argv[1:], True, STEPS)
    seconds = time.monotonic() - start
    digest = hashlib.sha256(repr(losses).encode()).hexdigest()[:16]
    memory = torch.cuda.max_memory_allocated() / 2**20
    free, total = torch.cuda.mem_get_info()
    used = (total - free) / 2**20
    print(
        f"{STEPS} steps: losses {losses[0]:.6f} to {losses[STEPS // 20 - 1]:.6f}, digest {digest}, "
        f"{seconds:.2f} s, {memory:.1f} MiB of tensors, {used:.0f} MiB of the device"
    )
