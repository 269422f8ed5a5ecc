"""What a program of this folder is: code to run, and the races that it has.

A module in ``programs`` has a list ``CASES``. Lines of its source that end in ``# @name`` are
*marked*; a :class:`Race` names two marks. ``run.py`` says how often each case is run and what
counts as right.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = re.compile(r"#\s*@([a-z][a-z0-9-]*)\s*$")


@dataclass(frozen=True)
class Race:
    """Two marked lines that race with each other, in either order."""

    first: str
    second: str


@dataclass(frozen=True)
class Case:
    """One way to run a program."""

    name: str
    #: Allocates, launches, checks results where they are certain, and keeps no tensor.
    run: Callable[[], None]
    #: Races that must be found; none: it must be clean.
    races: tuple[Race, ...] = ()
    #: Races that may be found beside them.
    also: tuple[Race, ...] = ()
    #: How often it is run; 0: as often as the runner does by itself.
    runs: int = 0

    @property
    def racy(self) -> bool:
        return bool(self.races)


#: What is said where `has_gpu` is false.
NO_GPU = "torch sees no NVIDIA GPU here; `gsan doctor` says what is missing"


def has_gpu() -> bool:
    """Whether PyTorch can use a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def is_counted(counter: str) -> bool:
    """Whether a limit was met so far; without GSan none is."""
    gsan = sys.modules.get("gsan")
    return gsan is not None and f"[{counter}]" in gsan.report()


def marks(source: Path) -> dict[str, int]:
    """The marked lines of a file: their numbers by the names of their marks."""
    found: dict[str, int] = {}
    for number, line in enumerate(source.read_text().splitlines(), start=1):
        if match := MARK.search(line):
            name = match.group(1)
            if name in found:
                raise ValueError(
                    f"{source}:{number}: the mark @{name} is taken by line {found[name]}"
                )
            found[name] = number
    return found
