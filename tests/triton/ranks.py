"""Runs the programs of two ranks that share memory, and counts verdicts.

usage: ranks.py [--runs N] [--jobs N] [--limit SECONDS] [--json FILE] [--gsan COMMAND]
                [--no-endings] [NAME ...]

With two GPUs each rank has one; on a machine with one GPU both use it. Each module of
``rank_programs`` runs in two processes, its cases one after another, and all runs of a case in the
same processes. A correct case must be clean in every run, and its results right; in a racy one the
lines that it names, one of each rank, and no others must be found in 95 % of its runs. Then ranks
that end in every way are started by torchrun under `gsan run`. NAME is a part of a module's, case's
or ending's name. The table goes to standard output; exit code 1 if something failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gsan_programs
from gsan_programs import Case, marks

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "rank_programs"
RANKS = 2

#: Two places, each a file, a line, and whose GPU it ran on.
Pair = frozenset[tuple[str, int, int]]


def rank_of(side: Any) -> int:
    return int(side.device_rank)


def pairs(races: list[Any]) -> list[list[list[Any]]]:
    """The places of races, for the other ranks."""
    return [
        [[Path(side.file or "?").name, side.line, rank_of(side)] for side in (r.earlier, r.later)]
        for r in races
    ]


def judge(case: Case, path: Path, found: list[list[list[Any]]]) -> str:
    """What a run showed, over all ranks: "clean", "found", "missed", or "wrong"."""
    lines = {
        mark: (file.name, line)
        for file in (PROGRAMS / "flags.py", path)
        for mark, line in marks(file).items()
    }

    def places(races: Any) -> set[frozenset[tuple[str, int]]]:
        return {frozenset((lines[race.first], lines[race.second])) for race in races}

    must, may = places(case.races), places(case.also)
    seen = {frozenset((file, line) for file, line, _ in race) for race in found}
    between = {
        frozenset((file, line) for file, line, _ in race)
        for race in found
        if len({rank for _, _, rank in race}) == 2
    }
    if seen - must - may:
        return "wrong"
    if not found and not must:
        return "clean"
    return "found" if must <= between else "missed"


def is_wanted(module: str, case: Case, only: list[str]) -> bool:
    return not only or any(part in module or part in case.name for part in only)


def inside(name: str, runs: int, only: list[str], output: Path, limit: float) -> None:
    """What a rank does: the cases of a module. Rank 0 appends a JSON line for each."""
    import gsan

    faulthandler.dump_traceback_later(0.9 * limit, exit=True)
    gsan.install()
    sys.path.insert(0, str(PROGRAMS))
    with gsan.enable():
        from gsan_ranks import world

        ranks = world()
        ranks.share()
        path = PROGRAMS / f"{name}.py"
        for case in importlib.import_module(name).CASES:
            if is_wanted(name, case, only):
                result = run_case(case, path, case.runs or runs, ranks)
                if ranks.me == 0:
                    with output.open("a") as file:
                        print(json.dumps(result), file=file, flush=True)
        ranks.close()


def run_case(case: Case, path: Path, runs: int, ranks: Any) -> dict[str, Any]:
    """Runs a case in this rank, and says what all saw."""
    import gsan
    import torch.distributed as dist

    counts: dict[str, int] = {}
    notes: list[str] = []
    start = time.monotonic()
    for _ in range(runs):
        gsan.forget_races()
        ranks.barrier()
        error, told = "", ""
        try:
            case.run()
        except Exception as problem:
            error = f"rank {ranks.me}: {type(problem).__name__}: {problem}"[:1500]
        races = gsan.races()
        told = "; ".join(map(str, races))[:800]
        every: list[Any] = [None] * ranks.size
        dist.all_gather_object(every, (pairs(races), error, told))
        answer = judge(case, path, [race for found, _, _ in every for race in found])
        failed = [error for _, error, _ in every if error]
        if failed:
            answer = "failed"
            notes += failed
        elif answer != ("found" if case.racy else "clean"):
            notes += [
                f"rank {rank}: {told or 'no race'}" for rank, (_, _, told) in enumerate(every)
            ]
        counts[answer] = counts.get(answer, 0) + 1
    right = counts.get("found" if case.racy else "clean", 0)
    return {
        "case": case.name,
        "runs": runs,
        "counts": counts,
        "ok": right >= (runs - runs // 20 if case.racy else runs) and not counts.get("failed"),
        "seconds": round(time.monotonic() - start, 2),
        "notes": notes[:4],
    }


@dataclass(frozen=True)
class Ending:
    """Ranks that end in some way under `gsan run`."""

    name: str
    act: Callable[[Any], None]
    #: The exit code of `gsan run`, and what the output must hold.
    code: int
    says: tuple[str, ...] = ()


def hand_over(ranks: Any, ordered: bool = True) -> None:
    """Rank 0 writes memory of rank 1, which reads it."""
    import torch
    from hosts import BLOCK, CTAS, read, told, write

    data = ranks.take(CTAS * BLOCK)[1]
    out = torch.zeros(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    ranks.barrier()
    if ranks.me == 0:
        write[(CTAS,)](data, B=BLOCK)
    if ordered:
        ranks.barrier()
    else:
        told()
    if ranks.me == 1:
        read[(CTAS,)](data, out, B=BLOCK)
        torch.cuda.synchronize()
        assert torch.equal(out.cpu(), torch.arange(CTAS * BLOCK, dtype=torch.int32))


def closes_all(ranks: Any) -> None:
    hand_over(ranks)
    ranks.close()


def races(ranks: Any) -> None:
    hand_over(ranks, ordered=False)
    ranks.close()


def closes_nothing(ranks: Any) -> None:
    hand_over(ranks)


def destroys_the_group_first(ranks: Any) -> None:
    import torch.distributed as dist

    hand_over(ranks)
    dist.barrier()
    dist.destroy_process_group()
    ranks.handle.close()


def destroys_the_group_alone(ranks: Any) -> None:
    import torch.distributed as dist

    hand_over(ranks)
    dist.destroy_process_group()


def starts_anew(ranks: Any) -> None:
    import gsan
    import torch.distributed as dist

    hand_over(ranks)
    # Nobody gives memory back that another one still uses.
    dist.barrier()
    ranks.handle = ranks.words = None
    gsan.reset()
    ranks.share()
    hand_over(ranks)
    ranks.close()


def leaves_work(ranks: Any) -> None:
    """Its last kernels still run when it ends."""
    import torch
    from hosts import BLOCK, CTAS, write

    data = ranks.take(CTAS * BLOCK)[ranks.other]
    ranks.barrier()
    torch.cuda._sleep(200_000_000)
    write[(CTAS,)](data, B=BLOCK)


def one_raises(ranks: Any) -> None:
    hand_over(ranks)
    if ranks.me == 1:
        raise ValueError("rank 1 has had enough")
    ranks.barrier()


def one_leaves_early(ranks: Any) -> None:
    hand_over(ranks)
    if ranks.me == 1:
        return
    time.sleep(3)
    try:
        ranks.handle.barrier(timeout_ms=500)
    except RuntimeError as error:
        print("left alone:", error, flush=True)


def both_leave_at_once(ranks: Any) -> None:
    hand_over(ranks, ordered=False)
    os._exit(0)


ENDINGS = [
    Ending("closes all", closes_all, 0),
    Ending("races", races, 66, ("hosts.py", "read-after-write")),
    Ending("closes nothing", closes_nothing, 0),
    Ending("destroys the group first", destroys_the_group_first, 0),
    Ending("destroys the group alone", destroys_the_group_alone, 0),
    Ending("starts anew", starts_anew, 0),
    Ending("leaves work", leaves_work, 0),
    Ending("one raises", one_raises, 1, ("rank 1 has had enough",)),
    Ending("one leaves early", one_leaves_early, 0, ("left alone:", "rank 1")),
    Ending("both leave at once", both_leave_at_once, 66, ("hosts.py",)),
]


def end(name: str) -> None:
    """What a rank does that ends in some way."""
    faulthandler.dump_traceback_later(60, exit=True)
    sys.path.insert(0, str(PROGRAMS))
    from gsan_ranks import world

    ranks = world()
    ranks.share()
    next(ending for ending in ENDINGS if ending.name == name).act(ranks)


def run(commands: list[list[str]], environments: list[dict[str, str]], limit: float) -> Any:
    """Exit codes and outputs of processes that run together; 124 when they took too long."""
    processes = []
    for command, environment in zip(commands, environments, strict=True):
        output = tempfile.TemporaryFile("w+", errors="replace")
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        processes.append((process, output))
    until = time.monotonic() + limit
    while any(process.poll() is None for process, _ in processes):
        ended = [process.returncode for process, _ in processes if process.returncode]
        # Whoever is left alone gives up soon, and is not waited for longer.
        if ended:
            until = min(until, time.monotonic() + 30)
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    results = []
    for process, output in processes:
        code = process.returncode
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = 124
        output.seek(0)
        results.append((code, output.read()))
        output.close()
    return results


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def show(module: str, result: dict[str, Any]) -> dict[str, Any]:
    """Prints the line of a result."""
    counts = ", ".join(f"{count} {word}" for word, count in result.get("counts", {}).items())
    word = "ok" if result["ok"] else "FAILED"
    text = f"{word:<7} {result.get('seconds', 0.0):7.1f} s  {module}: {result['case']}  {counts}"
    if not result["ok"]:
        for note in result.get("notes", []):
            text += "\n        " + note.replace("\n", "\n        ")
    print(text, flush=True)
    return {"module": module, **result}


def environment() -> dict[str, str]:
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    # Multicast over NVLink is not to be had everywhere.
    more = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "NCCL_NVLS_ENABLE": "0"}
    return {**os.environ, **more}


def run_module(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.jsonl"
        command = [sys.executable, __file__, "--inside", name, "--runs", str(options.runs)]
        command += ["--output", str(output), "--limit", str(options.limit), *options.names]
        common = {
            **environment(),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        environments = [{**common, "RANK": str(r), "LOCAL_RANK": str(r)} for r in range(RANKS)]
        ended = run([command] * RANKS, environments, options.limit)
        lines = output.read_text().splitlines() if output.exists() else []
    results = [show(name, json.loads(line)) for line in lines]
    if any(code for code, _ in ended):
        notes = [f"rank {r}: exit code {c}: {text[-2500:]}" for r, (c, text) in enumerate(ended)]
        result = {"case": f"after {len(lines)} cases", "ok": False, "notes": notes}
        results.append(show(name, result))
    return results


def run_ending(ending: Ending, options: argparse.Namespace) -> list[dict[str, Any]]:
    command = [options.gsan, "run", "--", sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", f"--nproc-per-node={RANKS}", __file__, "--end", ending.name]
    start = time.monotonic()
    ((code, text),) = run([command], [environment()], options.limit)
    problems = [] if code == ending.code else [f"exit code {code}, not {ending.code}"]
    problems += [f"does not say {words!r}" for words in ending.says if words not in text]
    result = {
        "case": ending.name,
        "ok": not problems,
        "seconds": round(time.monotonic() - start, 2),
        "notes": ["; ".join(problems) + "\n" + text[-4000:].strip()],
    }
    return [show("torchrun", result)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20, help="runs of each case (20)")
    parser.add_argument("--jobs", type=int, default=3, help="pairs of ranks at once (3)")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a pair (120)")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--gsan", default=shutil.which("gsan"), help="the gsan command")
    parser.add_argument("--no-endings", action="store_true", help="leave out `gsan run`")
    parser.add_argument("names", nargs="*", help="parts of the names of modules and cases")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--end", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.inside, options.runs, options.names, options.output, options.limit)
        return 0
    if options.end:
        end(options.end)
        return 0
    if not gsan_programs.has_gpu():
        print(f"ranks.py: {gsan_programs.NO_GPU}", file=sys.stderr)
        return 2
    modules = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "flags")
    wanted = [n for n in modules if not options.names or any(w in n for w in options.names)]
    endings = [e for e in ENDINGS if not options.names or any(w in e.name for w in options.names)]
    if options.no_endings or not options.gsan:
        endings = []
    if options.names and not wanted and not endings:
        # Names of cases: each module knows its own.
        wanted = modules
    with ThreadPoolExecutor(options.jobs) as pool:
        told = [pool.submit(run_module, name, options) for name in wanted]
        told += [pool.submit(run_ending, ending, options) for ending in endings]
        results = [result for future in told for result in future.result()]
    if not results:
        print(f"no module and no case has a name with {' or '.join(options.names)} in it")
        return 2
    failed = sum(not result["ok"] for result in results)
    print(f"{len(results)} results, {failed} failed")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
