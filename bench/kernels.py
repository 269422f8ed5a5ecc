"""Six kernels, timed bare, under Triton's own GSan, and under this one, in one table.

usage: kernels.py [--modes bare,stock,ours] [--json FILE] [KERNEL ...]

Each mode is a process of its own. Times are the median of up to 20 launches, by CUDA events, after
one that compiles. `bare` and `ours` must compute the same bits: a digest of every output is
compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

MODES = ("bare", "stock", "ours")
ELEMENTS = 1 << 24
SIDE = 2048
REPETITIONS = 20
BUDGET = 6.0


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(out + i, tl.load(x + i, m) + tl.load(y + i, m), m)


@triton.jit
def softmax(x, out, stride, n, B: tl.constexpr):
    row = tl.program_id(0) * stride
    c = tl.arange(0, B)
    v = tl.load(x + row + c, c < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + row + c, v / tl.sum(v, 0), c < n)


@triton.jit
def product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    for _ in range(0, K, BK):
        sums = tl.dot(tl.load(pa), tl.load(pb), sums)
        pa += BK
        pb += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], sums.to(tl.float16))


@triton.jit
def product_tma(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a.load([m, k]), b.load([k, n]), sums)
    c.store([m, n], sums.to(tl.float16))


@triton.jit
def partial_sums(x, out, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    tl.atomic_add(out + p % 64, tl.sum(tl.load(x + i, i < n, other=0), 0), sem="relaxed")


@triton.jit
def flag(buffer, turn, B: tl.constexpr):
    p = tl.program_id(0)
    if p > 0:
        while tl.atomic_add(turn, 0, sem="acquire") != p:
            pass
    i = tl.arange(0, B)
    tl.store(buffer + i, tl.load(buffer + i) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(turn, p + 1, sem="release")


def kernels() -> dict[str, Callable[[], tuple[Callable[[], None], Callable[[], Any]]]]:
    """For each kernel what allocates, and returns what launches it and what gives its output."""

    def data(*shape: int, dtype: Any = torch.float32) -> Any:
        torch.manual_seed(sum(shape))
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    def make_add():
        x, y = data(ELEMENTS), data(ELEMENTS)
        out = torch.empty_like(x)
        grid = (ELEMENTS // 1024,)
        return lambda: add[grid](x, y, out, ELEMENTS, B=1024, num_warps=4), lambda: out

    def make_softmax():
        x = data(8192, SIDE)
        out = torch.empty_like(x)
        return lambda: softmax[(8192,)](x, out, SIDE, SIDE, B=SIDE, num_warps=8), lambda: out

    def operands():
        a, b = (data(SIDE, SIDE, dtype=torch.float16) for _ in range(2))
        return a, b, torch.empty_like(a)

    grid = (SIDE // 128, SIDE // 128)
    blocks = {"BM": 128, "BN": 128, "BK": 64}

    def make_product():
        a, b, c = operands()
        return lambda: product[grid](a, b, c, SIDE, SIDE, **blocks, num_warps=8), lambda: c

    def make_product_tma():
        a, b, c = operands()
        shapes = ([128, 64], [64, 128], [128, 128])
        described = [TensorDescriptor.from_tensor(t, s) for t, s in zip((a, b, c), shapes)]  # noqa: B905
        return lambda: product_tma[grid](*described, SIDE, **blocks, num_warps=8), lambda: c

    def make_sums():
        # Whole numbers, so that the order of additions does not change the sums.
        x = (data(ELEMENTS) * 4).round()
        out = torch.zeros(64, device="cuda")

        def launch() -> None:
            partial_sums[(ELEMENTS // 1024,)](x, out, ELEMENTS, B=1024, num_warps=4)

        return launch, lambda: out

    def make_flag():
        buffer = data(1024).round()
        turn = torch.zeros(1, dtype=torch.int32, device="cuda")

        def launch() -> None:
            turn.zero_()
            flag[(100,)](buffer, turn, B=1024, num_warps=4)

        return launch, lambda: buffer

    return {
        "vector add": make_add,
        "softmax": make_softmax,
        "product": make_product,
        "product, TMA": make_product_tma,
        "partial sums": make_sums,
        "flag": make_flag,
    }


def measure(make: Callable[[], Any]) -> dict[str, Any]:
    """The median time of a launch, and a digest of the output of the first."""
    start = time.monotonic()
    launch, output = make()
    launch()
    torch.cuda.synchronize()
    first = time.monotonic() - start
    digest = hashlib.sha256(output().cpu().numpy().tobytes()).hexdigest()[:16]
    times: list[float] = []
    until = time.monotonic() + BUDGET
    while len(times) < REPETITIONS and (time.monotonic() < until or len(times) < 3):
        before, after = torch.cuda.Event(True), torch.cuda.Event(True)
        before.record()
        launch()
        after.record()
        torch.cuda.synchronize()
        times.append(before.elapsed_time(after))
    return {
        "ms": statistics.median(times),
        "launches": len(times),
        "first_s": round(first, 2),
        "digest": digest,
    }


def run_mode(mode: str, names: list[str]) -> None:
    """Measures in this process, and prints a JSON line for each kernel."""
    import contextlib

    context: Any = contextlib.nullcontext()
    if mode == "ours":
        import gsan

        context = gsan.enable()
    if mode == "stock":
        from triton.experimental import gsan as stock

        triton.knobs.compilation.instrumentation_mode = "gsan"
        context = torch.cuda.use_mem_pool(stock.create_mem_pool())
    with context:
        for name, make in kernels().items():
            if names and name not in names:
                continue
            try:
                result = measure(make)
                if mode == "ours":
                    result["races"] = gsan.race_count()
            except Exception as error:
                result = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(json.dumps({"kernel": name, **result}), flush=True)
            if "CUDA" in result.get("error", ""):
                return


def run_all(modes: list[str], names: list[str]) -> dict[str, dict[str, Any]]:
    """Results by kernel and mode."""
    results: dict[str, dict[str, Any]] = {}
    for mode in modes:
        command = [sys.executable, __file__, "--inside", mode, *names]
        environment = dict(os.environ)
        # A mode must not find what another compiled.
        cache = Path(environment.get("TRITON_CACHE_DIR", "/tmp/triton-cache")) / mode
        environment["TRITON_CACHE_DIR"] = str(cache)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                result = json.loads(line)
                results.setdefault(result.pop("kernel"), {})[mode] = result
        if done.returncode:
            print(f"{mode}: exit code {done.returncode}", file=sys.stderr)
    return results


def table(results: dict[str, dict[str, Any]], modes: list[str]) -> str:
    """Milliseconds, and how many times those of the first mode."""
    heads = ["kernel", *(f"{mode} ms" for mode in modes), *(f"{mode} ×" for mode in modes[1:])]
    rows = [heads, ["---"] * len(heads)]
    for kernel, by_mode in results.items():
        times = [by_mode.get(mode, {}).get("ms") for mode in modes]
        factors = [f"{value / times[0]:.1f}" if value and times[0] else "–" for value in times[1:]]
        rows.append([kernel, *(f"{v:.3f}" if v else "–" for v in times), *factors])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Times kernels bare, under Triton's GSan, and ours"
    )
    parser.add_argument("--modes", default=",".join(MODES), help="which, in this order")
    parser.add_argument("--json", type=Path, help="where all results go")
    parser.add_argument("--inside", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="KERNEL", help="which kernels")
    options = parser.parse_args()
    if options.inside:
        run_mode(options.inside, options.names)
        return 0
    modes = options.modes.split(",")
    results = run_all(modes, options.names)
    print(table(results, modes))
    wrong = []
    for kernel, by_mode in results.items():
        for mode, result in by_mode.items():
            if "error" in result:
                wrong.append(f"{kernel}, {mode}: {result['error']}")
            if result.get("races"):
                wrong.append(f"{kernel}, {mode}: {result['races']} races in a correct kernel")
        digests = {m: r["digest"] for m, r in by_mode.items() if m != "stock" and "digest" in r}
        if len(set(digests.values())) > 1:
            wrong.append(f"{kernel}: results differ: {digests}")
    print("\n".join(wrong) or "all results are the same bits, no races")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
