"""Six kernels, timed bare, under Triton's own GSan, and under this one, in tables.

usage: kernels.py [--modes bare,stock,ours,ours2] [--parts times,host,slots,streams]
                  [--json FILE] [KERNEL ...]

`ours` keeps four records in a cell, `ours2` two. Each mode is a process of its own, with a cache of
compiled kernels of its own that is empty at its start.

- times: the median of up to 20 launches, by CUDA events; the seconds of the first launch, which
  compiles; device memory that the first launch of the process took
- host: the host's time for a launch of a kernel that does next to nothing
- slots, streams: how times change with `launch.slots_per_sm` and with the number of streams

`bare` and `ours` must compute the same bits: a digest of every output is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import torch
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    sys.exit(f"kernels.py: {error}; it needs torch and Triton 3.9")

#: Modes, how tables call them, and how many records a cell has.
MODES = {
    "bare": ("bare", None),
    "stock": ("stock", None),
    "ours": ("ours S=4", 4),
    "ours2": ("ours S=2", 2),
}
PARTS = ("times", "host", "slots", "streams")
SLOTS = (1, 4, 16, 32)
STREAMS = (1, 4, 16, 32)
ELEMENTS = 1 << 24
SIDE = 2048
REPETITIONS = 20
#: Seconds for the repetitions of one kernel; three are made in any case.
BUDGET = 3.0


@triton.jit
def nothing(x):
    tl.store(x, 0)


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


def data(*shape: int, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def kernels() -> dict[str, Callable[[], tuple[Callable[[], None], Callable[[], Any]]]]:
    """For each kernel what allocates, and returns what launches it and what gives its output."""

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
    launch, output = make()
    torch.cuda.synchronize()
    start = time.monotonic()
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
        "first_s": round(first, 3),
        "digest": digest,
    }


def measure_host() -> dict[str, Any]:
    """The host's median time for a launch, over groups that the device's queue has room for."""
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    group = 50
    times: list[float] = []
    until = time.monotonic() + BUDGET
    while len(times) < 41 and (time.monotonic() < until or len(times) < 3):
        start = time.perf_counter()
        for _ in range(group):
            nothing[(1,)](x)
        times.append((time.perf_counter() - start) / group * 1e6)
        torch.cuda.synchronize()
    # The first group has what is done once.
    return {"host_us": round(statistics.median(times[1:]), 2), "groups": len(times)}


def measure_streams(count: int) -> dict[str, Any]:
    """Microseconds of a vector addition, and of the host for its launch, over `count` streams."""
    elements, launches = ELEMENTS // 4, 128
    x, y = data(elements), data(elements)
    outputs = [torch.empty_like(x) for _ in range(count)]
    streams = [torch.cuda.Stream() for _ in range(count)]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())

    def launch(index: int) -> None:
        with torch.cuda.stream(streams[index % count]):
            add[(elements // 1024,)](x, y, outputs[index % count], elements, B=1024, num_warps=4)

    for index in range(2 * count):
        launch(index)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for index in range(launches):
        launch(index)
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    whole = time.perf_counter() - start
    return {
        "us": round(whole / launches * 1e6, 2),
        "host_us": round(host / launches * 1e6, 2),
    }


def losses() -> dict[str, int]:
    """How often this process's session met each limit."""
    from gsan._native import library

    return {line["loss"]: line["times"] for line in json.loads(library().text("usage"))["losses"]}


def say(part: str, key: object, result: dict[str, Any]) -> None:
    """Hands a result to the process that makes the tables."""
    print(json.dumps({"part": part, "key": str(key), **result}), flush=True)


def attempt(measured: Callable[[], dict[str, Any]], ours: bool) -> dict[str, Any]:
    """What is measured, or what went wrong."""
    try:
        result = measured()
        if ours:
            import gsan

            result["races"] = gsan.race_count()
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"[:500]}
    return result


def run_mode(mode: str, parts: list[str], names: list[str]) -> None:
    """Measures in this process, and prints a JSON line for each result."""
    ours = MODES[mode][1] is not None
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    start = time.monotonic()
    context: Any = contextlib.nullcontext()
    if ours:
        import gsan

        context = gsan.enable()
    if mode == "stock":
        from triton.experimental import gsan as stock

        triton.knobs.compilation.instrumentation_mode = "gsan"
        context = torch.cuda.use_mem_pool(stock.create_mem_pool())
    with context:
        nothing[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"))
        torch.cuda.synchronize()
        state = {"first_s": round(time.monotonic() - start, 3)}
        state["taken_bytes"] = free - torch.cuda.mem_get_info()[0]
        if ours:
            from gsan import _memory

            layout = _memory.layout()
            state |= {"state_bytes": layout["offsets"]["end"], **layout["topology"]}
        if "times" in parts:
            say("state", mode, state)
        for name, make in kernels().items():
            if "times" in parts and (not names or name in names):
                result = attempt(lambda make=make: measure(make), ours)  # type: ignore[misc]
                say("times", name, result)
                if "CUDA" in result.get("error", ""):
                    return
        if "host" in parts:
            say("host", mode, attempt(measure_host, ours))
        if "slots" in parts:
            result = attempt(lambda: measure(kernels()["vector add"]), ours)
            say("slots", state["slots_per_sm"], {**state, **result, "losses": losses()})
        if "streams" in parts:
            for count in STREAMS:
                result = attempt(lambda count=count: measure_streams(count), ours)  # type: ignore[misc]
                if ours:
                    result["losses"] = losses()
                say("streams", count, result)


#: Results by part, key (a kernel, a number) and mode.
Results = dict[str, dict[str, dict[str, dict[str, Any]]]]


def run_process(
    mode: str, parts: list[str], names: list[str], cache: Path, results: Results, **more: str
) -> None:
    """Measures in a process of its own, with an empty cache unless `cache` has something."""
    command = [sys.executable, __file__, "--inside", mode, "--parts", ",".join(parts), *names]
    # A mode must not find what another compiled.
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache / mode), **more}
    if records := MODES[mode][1]:
        environment["GSAN_SHADOW_RECORDS"] = str(records)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout or []:
            if not line.startswith("{"):
                continue
            print(f"{mode}: {line}", end="", file=sys.stderr, flush=True)
            result = json.loads(line)
            of_part = results.setdefault(result.pop("part"), {})
            of_part.setdefault(result.pop("key"), {})[mode] = result
    if process.returncode:
        print(f"{mode}: exit code {process.returncode}", file=sys.stderr)


def run_all(modes: list[str], parts: list[str], names: list[str]) -> Results:
    """Runs each mode, and `ours` once for each number of slots."""
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="gsan-bench-") as place:
        for mode in modes:
            here = [part for part in parts if part in ("times", "host")]
            if "streams" in parts and mode in ("bare", "ours"):
                here.append("streams")
            run_process(mode, here, names, Path(place), results)
        if "slots" in parts:
            for slots in SLOTS:
                more = {"GSAN_LAUNCH_SLOTS_PER_SM": str(slots)}
                run_process("ours", ["slots"], names, Path(place) / "slots", results, **more)
    return results


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def times_tables(results: Results, modes: list[str]) -> list[str]:
    """Milliseconds and how many times those of the first mode; seconds of first launches."""
    titles = [MODES[mode][0] for mode in modes]
    heads = ["kernel", *(f"{t} ms" for t in titles), *(f"{t} ×" for t in titles[1:])]
    rows = []
    for kernel, by_mode in results.get("times", {}).items():
        times = [by_mode.get(mode, {}).get("ms") for mode in modes]
        factors = [v / times[0] if v and times[0] else None for v in times[1:]]
        rows.append(
            [kernel, *(shown(v, ".3f") for v in times), *(shown(f, ".1f") for f in factors)]
        )
    first = ["first launch, with compilation", *(f"{t} s" for t in titles)]
    firsts = [
        [kernel, *(shown(by_mode.get(mode, {}).get("first_s"), ".2f") for mode in modes)]
        for kernel, by_mode in results.get("times", {}).items()
    ]
    state = {mode: results.get("state", {}).get(mode, {}).get(mode, {}) for mode in modes}
    seconds = [shown(state[mode].get("first_s"), ".2f") for mode in modes]
    firsts.append(["first kernel of the process, which sets up", *seconds])
    memory = [
        [
            MODES[mode][0],
            shown(mebibytes(state[mode].get("state_bytes")), ".1f"),
            shown(mebibytes(state[mode].get("taken_bytes")), ".1f"),
        ]
        for mode in modes
    ]
    heads_memory = ["mode", "runtime state MiB", "device memory taken by the first launch MiB"]
    return [table(heads, rows), table(first, firsts), table(heads_memory, memory)]


def mebibytes(count: int | None) -> float | None:
    return None if count is None else count / (1 << 20)


def host_table(results: Results, modes: list[str]) -> str:
    """Microseconds of the host for a launch, and what they are over those of the first mode."""
    times = {mode: results.get("host", {}).get(mode, {}).get(mode, {}) for mode in modes}
    micros = {mode: times[mode].get("host_us") for mode in modes}
    bare = micros[modes[0]]
    rows = []
    for mode in modes:
        value = micros[mode]
        over = value - bare if value is not None and bare is not None else None
        rows.append([MODES[mode][0], shown(value, ".2f"), shown(over, "+.2f")])
    return table(["host, for a launch", "µs", f"over {MODES[modes[0]][0]}"], rows)


def slots_table(results: Results) -> str:
    """What `launch.slots_per_sm` costs."""
    rows = []
    for slots in map(str, SLOTS):
        result = results.get("slots", {}).get(slots, {}).get("ours", {})
        rows.append(
            [
                slots,
                shown(result.get("banks_per_device"), "d"),
                shown(result.get("ms"), ".3f"),
                shown(result.get("losses", {}).get("no-slot", 0), "d"),
                shown(mebibytes(result.get("state_bytes")), ".1f"),
            ]
        )
    heads = ["slots per SM", "streams with ids of their own", "vector add ms"]
    return table([*heads, "CTAs unchecked", "runtime state MiB"], rows)


def streams_table(results: Results) -> str:
    """What a launch costs as streams become more."""
    rows = []
    for count in map(str, STREAMS):
        by_mode = results.get("streams", {}).get(count, {})
        bare, ours = by_mode.get("bare", {}), by_mode.get("ours", {})
        values = [bare.get("us"), ours.get("us"), bare.get("host_us"), ours.get("host_us")]
        shared = ours.get("losses", {}).get("shared-bank", 0)
        rows.append([count, *(shown(value, ".1f") for value in values), str(shared)])
    heads = ["streams", "bare µs a launch", "ours µs a launch", "bare host µs", "ours host µs"]
    return table([*heads, "streams that share ids"], rows)


def wrong_results(results: Results) -> list[str]:
    """Errors, races in correct kernels, and results that differ."""
    wrong = []
    for part, by_key in results.items():
        for key, by_mode in by_key.items():
            for mode, result in by_mode.items():
                if "error" in result:
                    wrong.append(f"{part}, {key}, {mode}: {result['error']}")
                if result.get("races"):
                    wrong.append(
                        f"{part}, {key}, {mode}: {result['races']} races in correct kernels"
                    )
            digests = {m: r["digest"] for m, r in by_mode.items() if m != "stock" and "digest" in r}
            if len(set(digests.values())) > 1:
                wrong.append(f"{key}: results differ: {digests}")
    return wrong


def check_known(name: str, known: Any, what: str) -> None:
    if name not in known:
        names = ", ".join(repr(other) for other in known)
        sys.exit(f"kernels.py: there is no {what} {name!r}; there are {names}")


def listed(text: str, known: Any, what: str) -> list[str]:
    """The words of a list, each of which must be known."""
    words = [word for word in text.split(",") if word]
    for word in words:
        check_known(word, known, what)
    return words


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Times kernels bare, under Triton's GSan, and ours"
    )
    parser.add_argument("--modes", default=",".join(MODES), help="which, in this order")
    parser.add_argument("--parts", default=",".join(PARTS), help="what is measured")
    parser.add_argument("--json", type=Path, help="where all results go")
    parser.add_argument("--inside", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument(
        "--check", action="store_true", help="only say whether a GPU is there, by the exit code"
    )
    parser.add_argument("names", nargs="*", metavar="KERNEL", help="which kernels")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("kernels.py: torch sees no NVIDIA GPU here; `gsan doctor` says what is missing")
    if options.check:
        return 0
    modes = listed(options.modes, MODES, "mode")
    parts = listed(options.parts, PARTS, "part")
    for name in options.names:
        check_known(name, kernels(), "kernel")
    if options.inside:
        run_mode(options.inside, parts, options.names)
        return 0
    start = time.monotonic()
    results = run_all(modes, parts, options.names)
    tables = []
    if "times" in parts:
        tables += times_tables(results, modes)
    if "host" in parts:
        tables.append(host_table(results, modes))
    if "slots" in parts:
        tables.append(slots_table(results))
    if "streams" in parts:
        tables.append(streams_table(results))
    print("\n\n".join(tables))
    wrong = wrong_results(results)
    print("\n" + ("\n".join(wrong) or "all results are the same bits, no races"))
    print(f"measured in {time.monotonic() - start:.0f} s", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
