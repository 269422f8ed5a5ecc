"""Runs the programs of this folder under GSan and counts verdicts.

usage: run.py [--json FILE] [--runs N] [--limit SECONDS] [--gsan COMMAND] [--plain] [--jobs N]
              [--brief] [--list] [NAME ...]

Each module runs in a process of its own, its cases one after another, with `gsan.reset()` after
every run; a case that ends the process or takes too long is a failure, and the module goes on
behind it in a new process. A correct case must be clean in every run; a racy one must be found,
with the lines that it names and no others, in 95 % of its runs. Then all correct and all racy cases
run once more under `gsan run`, for its exit code. `--plain` runs every case without GSan: results
must be right there, too. NAME is a module's name, or a part of a module's or case's name. `--jobs`
says how many modules run at once, those that are named first before the others. The table goes to
standard output, with `--brief` a line for each module and for what failed; exit code 1 if something
failed. `--list` says what there is, and runs nothing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import faulthandler
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import gsan_programs
from gsan_programs import Case, Race

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"

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


def in_process(
    name: str, runs: int, first: int, only: list[str], output: Path, limit: float
) -> None:
    """Runs the cases of a module from number `first` on, and appends a JSON line for each.

    If it takes too long, it says where it is before it is stopped.
    """
    import gsan

    faulthandler.dump_traceback_later(0.9 * limit, exit=True)

    gsan.install()
    path = PROGRAMS / f"{name}.py"
    cases: list[Case] = load(name).CASES
    with gsan.enable(), output.open("a") as file:
        for number, case in enumerate(cases):
            if number < first or not is_wanted(name, case, only):
                continue
            print(json.dumps({"start": number}), file=file, flush=True)
            result = run_case(case, path, case.runs or runs)
            print(json.dumps({"number": number, **result}), file=file, flush=True)


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

    def __init__(self, brief: bool = False) -> None:
        self.results: list[dict[str, Any]] = []
        self.brief = brief

    def add(self, module: str, result: dict[str, Any]) -> None:
        self.results.append({"module": module, **result})
        if not self.brief or not result["ok"]:
            self.show(module, result)

    def show(self, module: str, result: dict[str, Any]) -> None:
        counts = ", ".join(f"{count} {word}" for word, count in result.get("counts", {}).items())
        word = "ok" if result["ok"] else "FAILED"
        seconds = result.get("seconds", 0.0)
        print(f"{word:<7} {seconds:7.1f} s  {module}: {result['case']}  {counts}", flush=True)
        if not result["ok"]:
            notes = [note[:400] if self.brief else note for note in result.get("notes", [])]
            for note in notes[: 2 if self.brief else None]:
                print("        " + note.replace("\n", "\n        "), flush=True)

    def end(self, module: str, seconds: float) -> None:
        """The line of a module, in a brief table."""
        results = [result for result in self.results if result["module"] == module]
        failed = sum(not result["ok"] for result in results)
        if self.brief:
            print(f"{module}: {len(results)} results, {failed} failed, {seconds:.1f} s", flush=True)


def run_module(name: str, options: argparse.Namespace, table: Table, environment: Any) -> None:
    """Runs a module's cases in as many processes as it takes."""
    first = 0
    while True:
        output = Path(options.scratch) / f"{name}.{first}.jsonl"
        output.unlink(missing_ok=True)
        command = [sys.executable, __file__, "--inside", name, "--first", str(first)]
        command += ["--output", str(output), "--runs", str(options.runs)]
        command += ["--limit", str(options.limit), *options.names]
        code, text = run(command, options.limit, environment)
        lines = output.read_text().splitlines() if output.exists() else []
        begun = None
        for line in map(json.loads, lines):
            if "start" in line:
                begun = line["start"]
            else:
                begun = None
                table.add(name, line)
        if code == 0 and begun is None:
            return
        why = f"took more than {options.limit} s" if code == 124 else f"exit code {code}"
        case = "(start)" if begun is None else f"case {begun}"
        tail = text[-3000:].strip()
        table.add(name, {"case": case, "ok": False, "notes": [f"{why}: {tail}"]})
        if begun is None:
            return
        first = begun + 1


def run_for_exit_codes(name: str, options: argparse.Namespace, table: Table, env: Any) -> None:
    for racy in (False, True):
        command = [options.gsan, "run", "--", sys.executable, __file__, "--once", name]
        command += ["--racy"] * racy + options.names
        start = time.monotonic()
        code, text = run(command, options.limit, env)
        if "nothing to run" in text:
            continue
        right = 66 if racy else 0
        result = {
            "case": f"gsan run, {'racy' if racy else 'correct'}",
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--runs", type=int, default=20, help="runs of each case (20)")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a process (300)")
    parser.add_argument("--gsan", default=shutil.which("gsan"), help="the gsan command")
    parser.add_argument("--no-exit-codes", action="store_true", help="leave out `gsan run`")
    parser.add_argument("--plain", action="store_true", help="only without GSan")
    parser.add_argument("--jobs", type=int, default=1, help="modules that run at once (1)")
    parser.add_argument("--brief", action="store_true", help="lines for modules and failures only")
    parser.add_argument("--list", action="store_true", help="only say what programs there are")
    parser.add_argument("--scratch", default="/tmp", help="where processes leave their results")
    parser.add_argument("names", nargs="*", help="parts of the names of modules and cases")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--plainly", help=argparse.SUPPRESS)
    parser.add_argument("--racy", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.inside:
        first, names, output = options.first, options.names, options.output
        in_process(options.inside, options.runs, first, names, output, options.limit)
        return 0
    if options.once:
        module = load(options.once)
        cases = [c for c in module.CASES if c.racy == options.racy]
        if not any(is_wanted(options.once, case, options.names) for case in cases):
            print("nothing to run")
            return 0
        once(options.once, options.racy, options.names)
        return 0
    if options.plainly:
        plain(options.plainly, options.names)
        return 0
    return run_all(options)


def run_all(options: argparse.Namespace) -> int:
    table = Table(options.brief)
    signal.signal(signal.SIGTERM, stop)
    environment = dict(os.environ)
    paths = [str(HERE), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    names = sorted(path.stem for path in PROGRAMS.glob("*.py"))
    matching = [n for n in options.names if n in names]
    matching = matching or [n for n in names if any(part in n for part in options.names)]
    if options.list:
        for name in matching or names:
            about = ast.get_docstring(ast.parse((PROGRAMS / f"{name}.py").read_text())) or ""
            print(f"{name:<{max(map(len, names))}}  {about.splitlines()[0]}")
        return 0

    def run_one(name: str) -> None:
        start = time.monotonic()
        if options.plain:
            run_plainly(name, options, table, environment)
        else:
            run_module(name, options, table, environment)
            if options.gsan and not options.no_exit_codes:
                run_for_exit_codes(name, options, table, environment)
        table.end(name, time.monotonic() - start)

    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        list(pool.map(run_one, matching or names))
    if not table.results:
        print(f"no module and no case has a name with {' or '.join(options.names)} in it")
        return 2
    failed = sum(not result["ok"] for result in table.results)
    print(f"{len(table.results)} results, {failed} failed")
    if options.json:
        options.json.write_text(json.dumps(table.results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
