"""Layer norm; backward with partial sums behind locks, which a second stage adds up."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ROWS, COLUMNS, GROUPS = 128, 512, 16


@triton.jit
def forward(x, out, weight, bias, mean, scale, N, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * N + i, i < N, other=0.0)
    m = tl.sum(v, 0) / N
    centred = tl.where(i < N, v - m, 0.0)
    s = tl.rsqrt(tl.sum(centred * centred, 0) / N + 1e-5)
    tl.store(mean + row, m)
    tl.store(scale + row, s)
    w, b = tl.load(weight + i, i < N, other=0.0), tl.load(bias + i, i < N, other=0.0)
    tl.store(out + row * N + i, centred * s * w + b, i < N)


@triton.jit
def backward(
    grad,
    x,
    weight,
    mean,
    scale,
    grad_x,
    parts,
    locks,
    N,
    G,
    LOCK: tl.constexpr,
    UNLOCK: tl.constexpr,
    B: tl.constexpr,
):
    """A lock and the number of rows added so far for each group; the first row need not load."""
    row = tl.program_id(0)
    i = tl.arange(0, B)
    inside = i < N
    s = tl.load(scale + row)
    xhat = (tl.load(x + row * N + i, inside, other=0.0) - tl.load(mean + row)) * s
    xhat = tl.where(inside, xhat, 0.0)
    g = tl.load(grad + row * N + i, inside, other=0.0)
    wg = g * tl.load(weight + i, inside, other=0.0)
    a, b = tl.sum(xhat * wg, 0) / N, tl.sum(wg, 0) / N
    tl.store(grad_x + row * N + i, (wg - (xhat * a + b)) * s, inside)
    group = row % G
    at = parts + group * 2 * N + i
    tries = 0
    while (tl.atomic_cas(locks + group, 0, 1, sem=LOCK) == 1) & (tries < 1_000_000):
        tries += 1
    dw, db = g * xhat, g
    if tl.load(locks + G + group) == 0:  # @count
        tl.store(locks + G + group, 1)  # @counted
    else:
        dw += tl.load(at, inside, other=0.0)  # @weight
        db += tl.load(at + N, inside, other=0.0)  # @bias
    tl.store(at, dw, inside)  # @weights
    tl.store(at + N, db, inside)  # @biases
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0, sem=UNLOCK)


@triton.jit
def backward_by_atomics(grad, x, mean, scale, sums, N, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    inside = i < N
    xhat = (tl.load(x + row * N + i, inside) - tl.load(mean + row)) * tl.load(scale + row)
    g = tl.load(grad + row * N + i, inside)
    tl.atomic_add(sums + i, g * xhat, inside, sem="relaxed")
    tl.atomic_add(sums + N + i, g, inside, sem="relaxed")


@triton.jit
def add_parts(parts, sums, N, G: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.arange(0, G)
    v = tl.load(parts + g[:, None] * N + i[None, :], (i < N)[None, :], other=0.0)  # @parts
    tl.store(sums + i, tl.sum(v, 0), i < N)


def run(lock: str = "acquire", unlock: str = "release", how: str = "one stream") -> None:
    torch.manual_seed(2)
    x = torch.randn(ROWS, COLUMNS, device="cuda", requires_grad=True)
    grad = torch.randn(ROWS, COLUMNS, device="cuda")
    weight = torch.randn(COLUMNS, device="cuda", requires_grad=True)
    bias = torch.randn(COLUMNS, device="cuda", requires_grad=True)
    out, grad_x = torch.empty_like(grad), torch.empty_like(grad)
    mean, scale = torch.empty(ROWS, device="cuda"), torch.empty(ROWS, device="cuda")
    parts = torch.zeros(GROUPS, 2, COLUMNS, device="cuda")
    locks = torch.zeros(2 * GROUPS, dtype=torch.int32, device="cuda")
    sums = torch.zeros(2, COLUMNS, device="cuda")
    side = torch.cuda.Stream()
    with torch.no_grad():
        forward[(ROWS,)](x, out, weight, bias, mean, scale, COLUMNS, B=512, num_warps=4)
        if how == "atomics":
            backward_by_atomics[(ROWS,)](grad, x, mean, scale, sums, COLUMNS, B=512, num_warps=4)
        else:
            side.wait_stream(torch.cuda.current_stream())
            arguments = (grad, x, weight, mean, scale, grad_x, parts, locks, COLUMNS, GROUPS)
            options = {"LOCK": lock, "UNLOCK": unlock, "B": 512, "num_warps": 4}
            backward[(ROWS,)](*arguments, **options)
            if how == "two streams":
                side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(torch.cuda.current_stream() if how == "one stream" else side):
                grid = (triton.cdiv(2 * COLUMNS, 128),)
                add_parts[grid](parts, sums, 2 * COLUMNS, G=GROUPS, B=128, num_warps=4)
        torch.cuda.synchronize()
    if (lock, unlock) == ("acquire", "release") and how != "no wait":
        expected = torch.nn.functional.layer_norm(x, (COLUMNS,), weight, bias)
        assert torch.allclose(out, expected, atol=1e-4)
        wanted = torch.autograd.grad(expected, (x, weight, bias), grad)
        if how != "atomics":
            assert torch.allclose(grad_x, wanted[0], atol=1e-4)
        assert torch.allclose(sums, torch.stack(wanted[1:]), atol=1e-3)


INSIDE = (Race("weight", "weights"), Race("bias", "biases"))
BESIDE = (
    Race("weights", "weights"),
    Race("biases", "biases"),
    Race("count", "counted"),
    Race("counted", "counted"),
)

CASES = [
    Case("locks", run),
    Case("atomics", lambda: run(how="atomics")),
    Case("second stage on another stream", lambda: run(how="two streams")),
    Case("lock relaxed", lambda: run("relaxed", "release"), INSIDE, BESIDE),
    Case("unlock relaxed", lambda: run("acquire", "relaxed"), INSIDE, BESIDE),
    Case(
        "second stage does not wait",
        lambda: run(how="no wait"),
        races=(Race("weights", "parts"), Race("biases", "parts")),
    ),
]
