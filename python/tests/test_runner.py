"""The runner of `tests/triton`, with programs that need nothing and a package that does nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "tests" / "triton"

PACKAGE = """
import contextlib
found = []
def install(): pass
@contextlib.contextmanager
def enable(): yield
def forget_races(): found.clear()
def races(): return list(found)
def reset(): pass
class Found:
    def __init__(self, *lines): self.lines = [("program.py", line) for line in lines]
"""

PROGRAM = """
\"\"\"Cases that end in every way.\"\"\"
import os, time, gsan
from gsan_programs import Case, Race
write = 1  # @write
def find(): gsan.found.append(gsan.Found(4, 4))
RACES = (Race("write", "write"),)
CASES = [
    Case("clean", lambda: None),
    Case("found", find, RACES),
    Case("missed", lambda: None, RACES),
    Case("wrong", find),
    Case("raises", lambda: 1 / 0),
    Case("dies", lambda: os._exit(7)),
    Case("hangs", lambda: time.sleep(60)),
    Case("behind it", lambda: None),
]
""".lstrip()

Run = Callable[..., tuple[int, str, dict[str, dict[str, Any]]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the runner with options; exit code, what it printed, and the results by cases."""
    for name in ("run.py", "gsan_programs.py"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "program.py").write_text(PROGRAM)
    (tmp_path / "gsan").mkdir()
    (tmp_path / "gsan" / "__init__.py").write_text(PACKAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(*options: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
        output = tmp_path / "results.json"
        output.unlink(missing_ok=True)
        command = [sys.executable, str(tmp_path / "run.py"), "--json", str(output), *options]
        command += ["--no-exit-codes", "--scratch", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        results = json.loads(output.read_text()) if output.exists() else []
        return ended.returncode, ended.stdout, {result["case"]: result for result in results}

    return run


def test_every_case_is_judged_and_the_others_go_on(run: Run) -> None:
    code, _, results = run("--runs", "3", "--limit", "3", "--jobs", "2")
    assert code == 1
    assert len(results) == 8
    right = {name for name, result in results.items() if result["ok"]}
    assert right == {"clean", "found", "behind it"}
    assert results["missed"]["counts"] == {"missed": 3}
    assert results["wrong"]["counts"] == {"wrong": 3}
    assert results["raises"]["counts"] == {"failed": 3}
    assert "exit code 7" in results["dies"]["notes"][0]
    # Where it hung.
    assert "program.py" in results["hangs"]["notes"][0]


def test_what_was_not_reached_is_named_and_run_by_the_next_call(run: Run, tmp_path: Path) -> None:
    code, text, first = run("--runs", "2", "--until", "3", "found", "hangs", "behind it")
    assert code == 1 and list(first) == ["found"]
    assert "not reached: program: hangs; behind it\n" in text
    known = tmp_path / "known.json"
    known.write_text(json.dumps(list(first.values())))
    code, _, second = run("--runs", "2", "--known", str(known), "found", "behind it")
    assert code == 0 and list(second) == ["behind it"]
    # Known is what ran as often.
    _, _, third = run("--runs", "3", "--known", str(known), "found")
    assert third["found"]["counts"] == {"found": 3}


def test_a_name_that_nothing_has_is_said(run: Run) -> None:
    code, text, _ = run("nothing of that name")
    assert code == 2 and "no module and no case" in text
