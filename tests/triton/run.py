"""Runs the programs of this folder under GSan and counts verdicts.

usage: run.py [--json FILE] [--known FILE ...] [--runs N] [--limit SECONDS] [--until SECONDS]
              [--gsan COMMAND] [--plain] [--jobs N] [--brief] [--list] [NAME ...]

Each module runs in a process of its own, its cases one after another, with `gsan.reset()` after
every run; a case that ends the process or takes too long is a failure, and the module goes on
behind it in a new process. A correct case must be clean in every run; a racy one must be found,
with the lines that it names and no others, in 95 % of its runs. Then all correct and all racy cases
run once more under `gsan run`, for its exit code. `--plain` runs every case without GSan: results
must be right there, too. NAME is a module's name, or a part of a module's or case's name. `--jobs`
says how many processes run at once; modules with many cases are divided among several then. The
table goes to standard output, with `--brief` a line for each module and for what failed; exit code
1 if something failed. `--list` says what there is, and runs nothing.

`--until` ends it all after some time, and says what was not reached; with `--known`, what a file of
`--json` says to be right is not run again, so that several calls together run everything.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import faulthandler
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gsan_programs
from gsan_programs import Case, Race

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
#: How many cases a process runs when several run at once: each takes seconds to start.
CASES_OF_A_PROCESS = 6

Lines = frozenset[tuple[str, int]]


def load(name: str) -> ModuleType:
    """The module of a program."""
    path = PROGRAMS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def wanted_lines(path: Path, races: tuple[Race, ...]) -> set[Lines]:
    """The pairs of lines of races."""
    marks = gsan_programs.marks(path)
    return {
        frozenset((path.name, marks[mark]) for mark in (race.first, race.second)) for race in races
    }


def verdict(must: set[Lines], may: set[Lines], found: set[Lines]) -> str:
    """What a run showed: "clean", "found", "missed", or "wrong"."""
    if found - must - may:
        return "wrong"
    if not found and not must:
        return "clean"
    return "found" if must <= found else "missed"


def needed(racy: bool, runs: int) -> int:
    """In how many runs the verdict must be right."""
    return runs - runs // 20 if racy else runs


def found_lines(races: list[Any]) -> set[Lines]:
    return {
        frozenset((Path(file or "?").name, line) for file, line in race.lines) for race in races
    }


def in_process(name: str, numbers: list[int], runs: int, output: Path, limit: float) -> None:
    """Runs cases of a module, and appends a JSON line for each.

    If it takes too long, it says where it is before it is stopped.
    """
    import gsan

    faulthandler.dump_traceback_later(0.9 * limit, exit=True)

    gsan.install()
    path = PROGRAMS / f"{name}.py"
    cases: list[Case] = load(name).CASES
    with gsan.enable(), output.open("a") as file:
        for number in numbers:
            case = cases[number]
            print(json.dumps({"start": number}), file=file, flush=True)
            result = run_case(case, path, case.runs or runs)
            print(json.dumps({"number": number, **result}), file=file, flush=True)


def cases_of(name: str, only: list[str]) -> list[tuple[int, str, bool, int]]:
    """The cases of a module that are wanted: number, name, whether it is racy, how many runs."""
    return [
        (number, case.name, case.racy, case.runs)
        for number, case in enumerate(load(name).CASES)
        if is_wanted(name, case, only)
    ]


def run_case(case: Case, path: Path, runs: int) -> dict[str, Any]:
    import gsan

    must, may = wanted_lines(path, case.races), wanted_lines(path, case.also)
    counts: dict[str, int] = {}
    notes: list[str] = []
    start = time.monotonic()
    for _ in range(runs):
        # What was found before is part of the process's report, and not of this run's.
        gsan.forget_races()
        try:
            case.run()
            races = gsan.races()
            answer = verdict(must, may, found_lines(races))
            if answer != ("found" if must else "clean") and len(notes) < 3:
                notes.append("; ".join(map(str, races)) or "no race")
        except Exception as error:
            answer = "failed"
            notes.append(f"{type(error).__name__}: {error}"[:2000])
        counts[answer] = counts.get(answer, 0) + 1
        try:
            gsan.reset()
        except Exception as error:
            notes.append(f"reset: {type(error).__name__}: {error}"[:2000])
            counts["failed"] = counts.get("failed", 0) + 1
            break
    right = counts.get("found" if must else "clean", 0)
    return {
        "case": case.name,
        "racy": bool(must),
        "runs": runs,
        "counts": counts,
        "ok": right >= needed(bool(must), runs) and not counts.get("failed"),
        "seconds": round(time.monotonic() - start, 2),
        "notes": notes[:4],
    }


def once(name: str, racy: bool, only: list[str]) -> None:
    """Runs all correct or all racy cases of a module once, as a program does."""
    for case in load(name).CASES:
        if case.racy == racy and is_wanted(name, case, only):
            case.run()


def is_wanted(name: str, case: Case, only: list[str]) -> bool:
    return not only or any(part in name or part in case.name for part in only)


def plain(name: str, only: list[str]) -> None:
    """Runs every case of a module once without GSan."""
    for case in load(name).CASES:
        if is_wanted(name, case, only):
            case.run()


running: set[subprocess.Popen[str]] = set()


def run(command: list[str], limit: float, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output; 124 when it took too long, and then all of it is stopped."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    running.add(process)
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 124, output
    finally:
        running.discard(process)


def stop(signum: int, frame: object) -> None:
    """Stops what was started, which has sessions of its own, before the runner itself."""
    for process in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(128 + signum)


class Table:
    """The lines of the table, and all that is written to the JSON file."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.results: list[dict[str, Any]] = []
        self.brief: bool = options.brief
        self.json: Path | None = options.json
        self._end = time.monotonic() + options.until
        self._lock = threading.Lock()

    def left(self) -> float:
        """How many seconds are left."""
        return self._end - time.monotonic()

    def add(self, module: str, result: dict[str, Any]) -> None:
        with self._lock:
            self.results.append({"module": module, **result})
            if not self.brief or not result["ok"]:
                self.show(module, result)
            if self.json:
                self.json.write_text(json.dumps(self.results, indent=1))

    def show(self, module: str, result: dict[str, Any]) -> None:
        counts = ", ".join(f"{count} {word}" for word, count in result.get("counts", {}).items())
        word = "ok" if result["ok"] else "FAILED"
        seconds = result.get("seconds", 0.0)
        print(f"{word:<7} {seconds:7.1f} s  {module}: {result['case']}  {counts}", flush=True)
        if not result["ok"]:
            notes = [note[:400] if self.brief else note for note in result.get("notes", [])]
            for note in notes[: 2 if self.brief else None]:
                print("        " + note.replace("\n", "\n        "), flush=True)

    def end(self, module: str) -> None:
        """The line of a module, in a brief table."""
        results = [result for result in self.results if result["module"] == module]
        failed = sum(not result["ok"] for result in results)
        seconds = sum(result.get("seconds", 0.0) for result in results)
        if self.brief:
            print(f"{module}: {len(results)} results, {failed} failed, {seconds:.1f} s", flush=True)


@dataclass
class Piece:
    """What one worker does: cases of a module, or a run for the exit code."""

    module: str
    #: Names of cases by their numbers.
    cases: dict[int, str]
    act: Callable[[], None]
    #: How long it took before, if that is known.
    seconds: float


def run_cases(
    name: str, cases: dict[int, str], options: argparse.Namespace, table: Table, environment: Any
) -> None:
    """Runs cases of a module in as many processes as it takes."""
    numbers = list(cases)
    while numbers and table.left() > 0:
        limit = min(options.limit, table.left())
        output = Path(options.scratch) / f"{name}.{numbers[0]}.{os.getpid()}.jsonl"
        output.unlink(missing_ok=True)
        command = [sys.executable, __file__, "--inside", name, "--limit", str(options.limit)]
        command += ["--numbers", ",".join(map(str, numbers))]
        command += ["--output", str(output), "--runs", str(options.runs)]
        code, text = run(command, limit, environment)
        lines = output.read_text().splitlines() if output.exists() else []
        begun = None
        for line in map(json.loads, lines):
            begun = line.get("start")
            if begun is None:
                numbers.remove(line["number"])
                table.add(name, line)
        if code == 0 or table.left() <= 0:
            return
        why = f"took more than {limit:.0f} s" if code == 124 else f"exit code {code}"
        case = "(start)" if begun is None else cases[begun]
        table.add(name, {"case": case, "ok": False, "notes": [f"{why}: {text[-3000:].strip()}"]})
        if begun is None:
            return
        numbers.remove(begun)


def exit_case(racy: bool) -> str:
    return f"gsan run, {'racy' if racy else 'correct'}"


def run_for_exit_code(
    name: str, racy: bool, options: argparse.Namespace, table: Table, environment: Any
) -> None:
    command = [options.gsan, "run", "--", sys.executable, __file__, "--once", name]
    command += ["--racy"] * racy + options.names
    start = time.monotonic()
    code, text = run(command, min(options.limit, table.left()), environment)
    if code == 124 and table.left() <= 0:
        return
    right = 66 if racy else 0
    result = {
        "case": exit_case(racy),
        "ok": code == right,
        "seconds": round(time.monotonic() - start, 2),
        "notes": [f"exit code {code}, not {right}: {text[-1500:].strip()}"],
    }
    table.add(name, result)


def run_plainly(name: str, options: argparse.Namespace, table: Table, env: Any) -> None:
    start = time.monotonic()
    command = [sys.executable, __file__, "--plainly", name, *options.names]
    code, text = run(command, options.limit, env)
    seconds = round(time.monotonic() - start, 2)
    notes = [f"exit code {code}: {text[-1500:].strip()}"]
    table.add(name, {"case": "plain", "ok": code == 0, "seconds": seconds, "notes": notes})


def pieces_of(
    names: list[str], options: argparse.Namespace, table: Table, environment: Any
) -> list[Piece]:
    """What there is to do."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for file in options.known:
        known |= {(r["module"], r["case"]): r for r in json.loads(file.read_text())}

    def seconds(module: str, case: str) -> float:
        return known.get((module, case), {}).get("seconds", 0.0)

    def is_known(module: str, case: str, runs: int) -> bool:
        result = known.get((module, case))
        return bool(result and result["ok"] and result.get("runs", runs) >= runs)

    command = [sys.executable, __file__, "--cases-of", ",".join(names), *options.names]
    code, text = run(command, options.limit, environment)
    if code:
        raise RuntimeError(f"the programs cannot be loaded: exit code {code}: {text[-3000:]}")
    listed: dict[str, list[tuple[int, str, bool, int]]] = json.loads(text.splitlines()[-1])
    pieces, for_exit_codes = [], []
    for name in names:
        left = [c for c in listed[name] if not is_known(name, c[1], c[3] or options.runs)]
        together = CASES_OF_A_PROCESS if options.jobs > 1 else max(1, len(left))
        for first in range(0, len(left), together):
            cases = {number: case for number, case, _, _ in left[first : first + together]}
            act = partial(run_cases, name, cases, options, table, environment)
            pieces.append(Piece(name, cases, act, sum(seconds(name, c) for c in cases.values())))
        for racy in (False, True):
            if not options.gsan or options.no_exit_codes or is_known(name, exit_case(racy), 0):
                continue
            if any(case[2] == racy for case in listed[name]):
                act = partial(run_for_exit_code, name, racy, options, table, environment)
                for_exit_codes.append(Piece(name, {-1: exit_case(racy)}, act, 0.0))
    # What takes long comes first, so as not to be left alone at the end.
    return sorted(pieces, key=lambda piece: -piece.seconds) + for_exit_codes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--runs", type=int, default=20, help="runs of each case (20)")
    parser.add_argument(
        "--known", type=Path, action="append", default=[], help="results that stand, from --json"
    )
    parser.add_argument("--limit", type=float, default=300, help="seconds for a process (300)")
    parser.add_argument("--until", type=float, default=math.inf, help="seconds for all of it")
    parser.add_argument("--gsan", default=shutil.which("gsan"), help="the gsan command")
    parser.add_argument("--no-exit-codes", action="store_true", help="leave out `gsan run`")
    parser.add_argument("--plain", action="store_true", help="only without GSan")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (1)")
    parser.add_argument("--brief", action="store_true", help="lines for modules and failures only")
    parser.add_argument("--list", action="store_true", help="only say what programs there are")
    parser.add_argument("--scratch", default="/tmp", help="where processes leave their results")
    parser.add_argument("names", nargs="*", help="parts of the names of modules and cases")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--plainly", help=argparse.SUPPRESS)
    parser.add_argument("--racy", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--numbers", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cases-of", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.inside:
        numbers = [int(number) for number in options.numbers.split(",")]
        in_process(options.inside, numbers, options.runs, options.output, options.limit)
        return 0
    if options.cases_of:
        names = options.cases_of.split(",")
        print(json.dumps({name: cases_of(name, options.names) for name in names}))
        return 0
    if options.once:
        once(options.once, options.racy, options.names)
        return 0
    if options.plainly:
        plain(options.plainly, options.names)
        return 0
    return run_all(options)


def run_all(options: argparse.Namespace) -> int:
    table = Table(options)
    signal.signal(signal.SIGTERM, stop)
    environment = dict(os.environ)
    paths = [str(HERE), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    names = sorted(path.stem for path in PROGRAMS.glob("*.py"))
    matching = [n for n in options.names if n in names]
    matching = matching or [n for n in names if any(part in n for part in options.names)]
    names = matching or names
    if options.list:
        for name in names:
            about = ast.get_docstring(ast.parse((PROGRAMS / f"{name}.py").read_text())) or ""
            print(f"{name:<{max(map(len, names))}}  {about.splitlines()[0]}")
        return 0
    if options.plain:
        pieces = [
            Piece(name, {-1: "plain"}, partial(run_plainly, name, options, table, environment), 0.0)
            for name in names
        ]
    else:
        pieces = pieces_of(names, options, table, environment)
    left = Counter(piece.module for piece in pieces)
    lock = threading.Lock()

    def work(piece: Piece) -> None:
        if table.left() > 0:
            piece.act()
        with lock:
            left[piece.module] -= 1
            if left[piece.module] == 0:
                table.end(piece.module)

    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        list(pool.map(work, pieces))
    if not pieces and not options.known:
        print(f"no module and no case has a name with {' or '.join(options.names)} in it")
        return 2
    return sum_up(pieces, table)


def sum_up(pieces: list[Piece], table: Table) -> int:
    """Says what was not reached, and how it went; the exit code."""
    done = {(result["module"], result["case"]) for result in table.results}
    for piece in pieces:
        missing = [case for case in piece.cases.values() if (piece.module, case) not in done]
        if missing:
            print(f"not reached: {piece.module}: {'; '.join(missing)}")
    failed = sum(not result["ok"] for result in table.results)
    reached = sum((piece.module, case) in done for piece in pieces for case in piece.cases.values())
    unreached = sum(len(piece.cases) for piece in pieces) - reached
    more = f", {unreached} not reached" if unreached else ""
    print(f"{len(table.results)} results, {failed} failed{more}")
    return 1 if failed or unreached else 0


if __name__ == "__main__":
    raise SystemExit(main())
