"""Programs that end in every way, start others, or were written against Triton's own module.

usage: processes.py [--gsan COMMAND] [--limit SECONDS] [--jobs N] [--json FILE] [NAME ...]

Each runs in a process of its own, most under `gsan run`; its exit code must be right, and what it
prints must hold certain words. NAME is a part of a name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KERNEL = """
import os, signal, sys, threading
import torch, triton
import triton.language as tl

@triton.jit
def racy(x):
    tl.store(x, tl.program_id(0))

@triton.jit
def clean(x):
    tl.store(x + tl.program_id(0), tl.program_id(0))

# So many that they cannot all run at once: accesses at the same moment may miss each other.
CTAS = 16384

def launch(kernel):
    x = torch.zeros(CTAS, dtype=torch.int32, device="cuda")
    kernel[(CTAS,)](x, num_warps=1)
    torch.cuda.synchronize()
"""

RACE = "write-after-write"


@dataclass(frozen=True)
class Program:
    """A program, how it is started, and how it must end."""

    name: str
    text: str
    code: int
    #: What the output must hold, and what it must not.
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    #: The command that runs the file; `gsan run -- python FILE` if not given. `{gsan}`, `{python}`,
    #: and `{file}` are filled in.
    command: tuple[str, ...] = ("{gsan}", "run", "--", "{python}", "{file}")
    environment: dict[str, str] = field(default_factory=dict)
    #: A module without which it is passed over.
    needs: str = "triton"


PLAIN = ("{python}", "{file}")

PROGRAMS = [
    Program("racy", KERNEL + "launch(racy)", 66, (RACE, "racy")),
    Program("clean", KERNEL + "launch(clean)", 0, (), (RACE,)),
    Program("a race wins over the code", KERNEL + "launch(racy); sys.exit(3)", 66, (RACE,)),
    Program("the program's own code", KERNEL + "launch(clean); sys.exit(3)", 3),
    Program("a mistake of the program", KERNEL + "launch(clean); 1 / 0", 1, ("ZeroDivisionError",)),
    Program("left by os._exit", KERNEL + "launch(racy); os._exit(0)", 66, (RACE,)),
    Program("killed", KERNEL + "launch(racy); os.kill(os.getpid(), signal.SIGKILL)", 66, (RACE,)),
    Program("killed, clean", KERNEL + "launch(clean); os.kill(os.getpid(), signal.SIGKILL)", 137),
    Program("crashes", KERNEL + "launch(racy); os.kill(os.getpid(), signal.SIGSEGV)", 66, (RACE,)),
    Program("interrupted", KERNEL + "launch(clean); os.kill(os.getpid(), signal.SIGINT)", 130),
    Program("terminated", KERNEL + "launch(racy); os.kill(os.getpid(), signal.SIGTERM)", 66),
    Program(
        "forks",
        KERNEL + "launch(clean)\nif os.fork() == 0: sys.exit(0)\nos.wait(); launch(racy)",
        66,
        (RACE,),
    ),
    Program(
        "forks before CUDA starts",
        KERNEL + "pid = os.fork()\nlaunch(racy if pid == 0 else clean)\nif pid: os.wait()",
        66,
        (RACE,),
    ),
    Program(
        "starts another",
        KERNEL
        + "import subprocess\n"
        + "if sys.argv[1:]: launch(racy)\n"
        + "else: subprocess.run([sys.executable, __file__, 'child'])",
        66,
        (RACE,),
    ),
    Program(
        "threads",
        KERNEL
        + "import faulthandler; faulthandler.dump_traceback_later(45, exit=True)\n"
        + "def work():\n    with torch.cuda.stream(torch.cuda.Stream()): launch(clean)\n"
        + "ts = [threading.Thread(target=work) for _ in range(8)]\n"
        + "[t.start() for t in ts]; [t.join() for t in ts]",
        0,
    ),
    Program(
        "runs out of memory",
        KERNEL
        + "launch(racy)\ntry:\n    torch.empty(1 << 50, dtype=torch.int8, device='cuda')\n"
        + "except torch.OutOfMemoryError as error: print('caught', error)",
        66,
        (RACE, "caught", "out of memory"),
    ),
    Program(
        "statistics of memory",
        KERNEL
        + "x = torch.empty(1 << 20, device='cuda')\n"
        + "assert torch.cuda.memory_allocated() == 4 << 20\n"
        + "del x; assert torch.cuda.memory_allocated() == 0\n"
        + "assert torch.cuda.max_memory_allocated() == 4 << 20\n"
        + "torch.cuda.empty_cache(); print(torch.cuda.memory_summary()[:100])",
        0,
    ),
    Program(
        "pools that go",
        KERNEL
        + "import gsan\n"
        + "from triton.experimental.gsan import create_mem_pool, symmetric_memory\n"
        + "pool = create_mem_pool()\n"
        + "with torch.cuda.use_mem_pool(pool): x = torch.ones(1024, device='cuda')\n"
        + "del pool, x\n"
        + "x = symmetric_memory.empty(1024, device='cuda')\n"
        + "del x; gsan.reset(); launch(clean)\n"
        + "for n in range(3):\n"
        + "    x, graph = torch.ones(1024, device='cuda'), torch.cuda.CUDAGraph()\n"
        + "    with torch.cuda.graph(graph): y = x * 2\n"
        + "    graph.replay(); assert y.sum().item() == 2048\n"
        + "    del y; graph.reset()\n"
        + "del x, graph; gsan.reset(); launch(clean); print('done')",
        0,
        ("done",),
    ),
    Program(
        "halts",
        KERNEL + "try: launch(racy)\nexcept Exception as e: print('stopped', type(e)); os._exit(9)",
        66,
        (RACE,),
        environment={"GSAN_REPORT_ON_RACE": "halt"},
    ),
    Program(
        "torch.compile",
        KERNEL
        + "import gsan\n"
        + "@torch.compile\ndef sums(x): return torch.relu(x * 2 + 1).sum(dim=1)\n"
        + "x = torch.randn(512, 512, device='cuda', requires_grad=True)\n"
        + "y = sums(x); y.sum().backward()\n"
        + "torch.testing.assert_close(y, torch.relu(x * 2 + 1).sum(dim=1))\n"
        + "torch.testing.assert_close(x.grad, 2.0 * (x * 2 + 1 > 0))\n"
        + "import re\n"
        + "checked = re.search(r'checked: ([0-9]+) accesses', gsan.report())\n"
        + "assert int(checked.group(1)) > 0, gsan.report()\n",
        0,
        silent=(RACE,),
    ),
    Program(
        "a race within torch.compile",
        KERNEL
        + "@torch.compile\ndef twice(x):\n    racy[(CTAS,)](x)\n    return x * 2\n"
        + "twice(torch.zeros(64, dtype=torch.int32, device='cuda')); torch.cuda.synchronize()",
        66,
        (RACE, "racy"),
    ),
    Program(
        "in a program",
        "import gsan\n"
        + KERNEL
        + "with gsan.enable():\n    launch(racy); print(gsan.race_count())\n"
        + "    (race,) = gsan.races(); print(race.kind, race.later.place)\n"
        + "gsan.reset(); gsan.forget_races()\nwith gsan.enable(): launch(clean)\n"
        + "gsan.assert_no_races(); print('done')",
        0,
        (RACE, "done"),
        command=PLAIN,
    ),
    Program(
        "written against Triton's module",
        "import gsan; gsan.install()\n"
        + KERNEL
        + "from triton.experimental import gsan as module\n"
        + "module.configure(rng_seed=7, clock_buffer_size=4096)\n"
        + "triton.knobs.compilation.instrumentation_mode = 'gsan'\n"
        + "pool = module.create_mem_pool()\n"
        + "with torch.cuda.use_mem_pool(pool):\n    launch(racy)\n"
        + "from triton.experimental.gsan import _testing_utils as utils\n"
        + "assert utils.global_state().rng_seed == 7, utils.global_state()\n"
        + "assert gsan.race_count() == 1\n"
        + "try: module.configure(rng_seed=8)\nexcept RuntimeError as error: print('fixed', error)\n"
        + "assert module.has_live_allocations()\n"
        + "try: module.reset()\nexcept AssertionError as error: print('live', error)\n",
        0,
        ("fixed",),
        command=PLAIN,
    ),
    Program(
        "a graph built with Triton's module",
        "import gsan; gsan.install()\n"
        + KERNEL
        + "from triton.experimental.gsan import create_mem_pool, graph\n"
        + "from triton.experimental.gsan._testing_utils import ExplicitGraph\n"
        + "triton.knobs.compilation.instrumentation_mode = 'gsan'\n"
        + "@triton.jit\ndef put(x):\n    i = tl.arange(0, 1024)\n    tl.store(x + i, i)\n"
        + "@triton.jit\ndef get(x, y):\n    i = tl.arange(0, 1024)\n"
        + "    tl.store(y + i, tl.load(x + i))\n"
        + "def run(edges):\n"
        + "    nodes = graph.GraphNode(), graph.GraphNode(dependencies=edges)\n"
        + "    plan = graph.GraphPlan(0, nodes)\n"
        + "    with ExplicitGraph(plan) as built:\n"
        + "        for code, given in ((first, (x,)), (second, (x, y))):\n"
        + "            built.add_kernel(code, tuple(t.data_ptr() for t in given), 1)\n"
        + "        built.instantiate()\n"
        + "        for _ in range(20): built.launch()\n"
        + "        torch.cuda.synchronize()\n"
        + "    return gsan.race_count()\n"
        + "with torch.cuda.use_mem_pool(create_mem_pool()):\n"
        + "    x = torch.zeros(1024, dtype=torch.int32, device='cuda'); y = torch.zeros_like(x)\n"
        + "    first, second = put[(1,)](x), get[(1,)](x, y)\n"
        + "    y.zero_()\n"
        + "    assert run((0,)) == 0, gsan.report()\n"
        + "    assert torch.equal(y, torch.arange(1024, device='cuda', dtype=torch.int32))\n"
        + "    assert run(()) > 0; print('done')\n",
        0,
        ("done",),
        command=PLAIN,
    ),
    Program(
        "python -m triton.tools.gsan",
        KERNEL + "launch(racy)",
        66,
        (RACE,),
        command=("{gsan}", "run", "--", "{python}", "-m", "triton.tools.gsan", "{file}"),
    ),
    Program(
        "a test suite",
        "import pytest\n"
        + KERNEL
        + "def test_racy(): launch(racy)\ndef test_clean(): launch(clean)\n"
        + "@pytest.mark.gsan(False)\ndef test_known(): launch(racy)\n",
        1,
        ("1 failed", "2 passed", RACE),
        needs="pytest",
        command=("{python}", "-m", "pytest", "-q", "-p", "gsan.pytest_plugin", "--gsan", "{file}"),
    ),
]


def run(program: Program, options: argparse.Namespace, folder: Path) -> tuple[bool, str]:
    """Whether it ended as it must, and if not, what it did."""
    file = folder / "program.py"
    file.write_text(program.text)
    values = {"gsan": options.gsan, "python": sys.executable, "file": str(file)}
    process = subprocess.Popen(
        [part.format(**values) for part in program.command],
        env={**os.environ, **program.environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    problems = []
    try:
        output, _ = process.communicate(timeout=options.limit)
        if process.returncode != program.code:
            problems.append(f"exit code {process.returncode}, not {program.code}")
    except subprocess.TimeoutExpired:
        # What the program started holds the pipe, too.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        problems.append(f"took more than {options.limit} s")
    problems += [f"does not say {words!r}" for words in program.says if words not in output]
    problems += [f"says {words!r}" for words in program.silent if words in output]
    return not problems, "; ".join(problems) + "\n" + output[-2500:]


def timed(program: Program, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a program and prints its line."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        good, output = run(program, options, Path(folder))
    seconds = time.monotonic() - start
    text = f"{'ok' if good else 'FAILED':<7} {seconds:6.1f} s  {program.name}"
    if not good:
        text += "\n        " + output.strip().replace("\n", "\n        ")
    print(text, flush=True)
    return {"name": program.name, "ok": good, "output": "" if good else output}


def is_wanted(program: Program, names: list[str]) -> bool:
    return not names or any(part in program.name for part in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gsan", default=shutil.which("gsan"), help="the gsan command")
    parser.add_argument("--limit", type=float, default=90, help="seconds for a program (90)")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at once (1)")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("names", nargs="*", help="parts of the names of programs")
    options = parser.parse_args()
    if not options.gsan:
        parser.error("the gsan command is not on PATH; name it with --gsan")
    options.gsan = str(Path(options.gsan).resolve())
    programs = []
    for program in PROGRAMS:
        if not is_wanted(program, options.names):
            continue
        if importlib.util.find_spec(program.needs) is None:
            print(f"skipped           {program.name}: no {program.needs}", flush=True)
            continue
        programs.append(program)
    if not programs:
        print(f"no program has a name with {' or '.join(options.names)} in it")
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda program: timed(program, options), programs))
    failed = sum(not result["ok"] for result in results)
    print(f"{len(results)} programs, {failed} failed")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
