"""What can go wrong, as exceptions."""

from __future__ import annotations


class Error(RuntimeError):
    """A call that GSan refused. `status` is its name in `gsan.h`, such as `"GSAN_LIVE"`."""

    def __init__(self, message: str, status: str = "GSAN_INTERNAL") -> None:
        super().__init__(message)
        self.status = status


class LibraryNotFound(Error):
    """`libgsan.so` is not there or cannot be loaded."""


class UnsupportedTriton(Error):
    """The Triton that is installed is not one that GSan plugs into."""


class RaceFound(AssertionError):
    """Raised by `assert_no_races`. `races` are the races, the message is the report."""

    def __init__(self, message: str, races: list) -> None:
        super().__init__(message)
        self.races = races
