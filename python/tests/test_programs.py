"""The programs of `tests/triton` say of themselves what is there."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "tests" / "triton"
PROGRAMS = sorted((FOLDER / "programs").glob("*.py"))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch):
    """The module that says what a program is."""
    spec = importlib.util.spec_from_file_location("gsan_programs", FOLDER / "gsan_programs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def named(tree: ast.AST) -> set[str]:
    """The marks that are written out in races."""
    return {
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Race"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def test_there_are_at_least_sixty() -> None:
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_marks_are_where_they_are_named(path: Path, programs) -> None:
    tree = ast.parse(path.read_text())
    marks = programs.marks(path)
    assert named(tree) <= set(marks)
    # Triton gives a call the line on which it begins.
    begins = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert set(marks.values()) <= begins


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_says_what_it_is(path: Path) -> None:
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[:1]
    assert first and first[0].endswith(".")
