"""Races as objects, and the questions about them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import warnings
from collections.abc import Callable
from ctypes import byref, c_uint64
from dataclasses import dataclass
from typing import Any, Literal

from . import _install, _native
from ._errors import Error, RaceFound
from ._native import library, loaded

Format = Literal["human", "json", "sarif"]

#: The names of `GSAN_RACE_KIND_*`, by number.
KINDS = {
    0: "read-after-write",
    1: "write-after-read",
    2: "write-after-write",
    3: "written-twice",
    4: "read-unwritten",
    5: "write-once-atomic",
}
ACTIONS = {0: "unknown", 1: "read", 2: "write", 3: "read and write"}
SCOPES = {0: None, 1: "cta", 2: "gpu", 3: "system"}


@dataclass(frozen=True)
class Side:
    """One of the two accesses of a race."""

    #: False if who made it was forgotten; then launch, CTA and kernel say nothing.
    known: bool
    #: "read", "write" or "read and write".
    action: str
    atomic: bool
    #: "cta", "gpu" or "system" for an atomic access, else `None`.
    scope: str | None
    #: The logical number of the GPU.
    device_rank: int
    #: The number of the launch on its GPU.
    launch: int
    #: The index of the CTA in its grid.
    cta: tuple[int, int, int]
    kernel: str | None
    #: The source file, if it is known, and the line, from 1.
    file: str | None
    line: int
    #: The stream of the launch, as CUDA's handle.
    stream: int
    #: A copy that was still running, as far as the two sides knew.
    asynchronous: bool

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}" if self.file else "<unknown>"

    def __str__(self) -> str:
        if not self.known:
            return f"{self.action} at {self.place} by a CTA that was forgotten"
        cta = ", ".join(map(str, self.cta))
        return f"{self.action} at {self.place} by CTA ({cta}) of {self.kernel}"


@dataclass(frozen=True)
class Race:
    """Two accesses to one byte, at least one a write, that nothing orders."""

    kind: str
    #: It may be none: something about it is not certain.
    possible: bool
    #: The first byte, and how many.
    address: int
    bytes: int
    #: How often it was seen between these two lines.
    times: int
    #: The allocation that holds it: its first byte and size; 0 if it is not known.
    allocation: int
    allocation_bytes: int
    earlier: Side
    later: Side

    @property
    def lines(self) -> frozenset[tuple[str | None, int]]:
        """The two places, in no order: which of two unordered accesses came first is chance."""
        sides = (self.earlier, self.later)
        return frozenset((side.file, side.line) for side in sides)

    def __str__(self) -> str:
        return (
            f"{self.kind} race on {self.bytes} bytes at {self.address:#x}: "
            f"{self.later}; earlier {self.earlier}"
        )


def _text(text: bytes | None) -> str | None:
    return text.decode(errors="replace") if text else None


def _side(side: Any) -> Side:
    return Side(
        known=bool(side.known),
        action=ACTIONS.get(side.action, "unknown"),
        atomic=bool(side.atomic),
        scope=SCOPES.get(side.scope),
        device_rank=side.device_rank,
        launch=side.launch,
        cta=tuple(side.cta),
        kernel=_text(side.kernel),
        file=_text(side.file),
        line=side.line,
        stream=side.stream,
        asynchronous=bool(side.asynchronous),
    )


def _race(race: Any) -> Race:
    return Race(
        kind=KINDS.get(race.kind, f"kind {race.kind}"),
        possible=bool(race.possible),
        address=race.address,
        bytes=race.bytes,
        times=race.times,
        allocation=race.allocation,
        allocation_bytes=race.allocation_bytes,
        earlier=_side(race.earlier),
        later=_side(race.later),
    )


def races(*, possible: bool = False) -> list[Race]:
    """The distinct races that were found, after waiting for the devices.

    `possible` adds those that may be none.
    """
    if not loaded():
        return []
    found: list[Race] = []

    def take(pointer: Any, _: Any) -> int:
        race = _race(pointer.contents)
        if possible or not race.possible:
            found.append(race)
        return 0

    library().races(_native.RaceCallback(take), None)
    return found


def race_count(*, possible: bool = False) -> int:
    """How many distinct races were found, after waiting for the devices."""
    if not loaded():
        return 0
    certain, uncertain = c_uint64(), c_uint64()
    library().race_count(byref(certain), byref(uncertain))
    return certain.value + (uncertain.value if possible else 0)


def assert_no_races(*, possible: bool = False) -> None:
    """Waits for the devices. Warns if nothing was checked.

    Raises:
        RaceFound: a race was found; the message is the report.
    """
    if race_count(possible=possible):
        raise RaceFound(report(), races(possible=possible))
    if why := _why_nothing_was_checked():
        warnings.warn(f"gsan: nothing was checked: {why}", UserWarning, stacklevel=2)


def _why_nothing_was_checked() -> str | None:
    if loaded():
        usage = json.loads(library().text("usage"))
        if usage["accesses"]:
            return None
        if usage["launches"]:
            return (
                "no instrumented kernel accessed memory that GSan manages; "
                "make tensors inside gsan.enable()"
            )
    if _install.was_ever_on():
        return "no instrumented kernel was launched inside gsan.enable()"
    return "kernels are checked inside `with gsan.enable():`, or under `gsan run`"


def report(format: Format = "human") -> str:
    """What was found and checked so far, as text for people, JSON, or SARIF 2.1.0."""
    _check_format(format)
    return library().text("report", format.encode())


def _check_format(format: str) -> None:
    if format not in ("human", "json", "sarif"):
        raise ValueError(f'no report format {format!r}; there are "human", "json" and "sarif"')


def write_report(path: str | bytes | os.PathLike, format: Format = "json") -> None:
    """Writes a report to a file, which appears as a whole. One that is there keeps its mode;
    symbolic links are followed; what is no ordinary file, such as `/dev/stdout`, is written to.

    Raises:
        Error: it cannot be written; the message says why.
    """
    _check_format(format)
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    library().write_report(format.encode(), name)


def forget_races() -> None:
    """Forgets the races that were found so far; what was accessed stays known."""
    if loaded():
        library().forget_races()


_callback: Any = None


@functools.cache
def _tell_until_exit(process: int) -> None:
    """The callback must not be called when the interpreter has ended; what is found until then is
    told at the exit.
    """
    atexit.register(_tell_the_last, process)


def _tell_the_last(process: int) -> None:
    if _callback is None or os.getpid() != process:
        return
    with contextlib.suppress(Error):
        library().finish()
    with contextlib.suppress(Error):
        on_race(None)


def on_race(act: Callable[[Race], None] | None) -> None:
    """Calls `act` once for each distinct race when it is found, from another thread; `None`:
    nothing. Races that are found when the program ends are told as well.

    Raises:
        TypeError: `act` cannot be called.
    """
    global _callback
    if act is not None and not callable(act):
        raise TypeError(f"on_race takes a function or None, not {act!r}")
    if act is None:
        library().on_race(_native.OnRace(), None)
        _callback = None
        return

    def tell(pointer: Any, _: Any) -> None:
        act(_race(pointer.contents))

    callback = _native.OnRace(tell)
    _tell_until_exit(os.getpid())
    library().on_race(callback, None)
    # The library goes on calling it: it must not be collected.
    _callback = callback
