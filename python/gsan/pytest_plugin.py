"""`pytest --gsan`: a test in which a race was found fails, and shows it.

The marker `@pytest.mark.gsan(False)` turns it off for a test, a class or a module.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gsan", "data races in Triton kernels")
    group.addoption(
        "--gsan",
        action="store_true",
        default=False,
        help="check the kernels of all tests for data races; a race fails its test",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "gsan(on): with --gsan, whether races of this test are looked for (True)"
    )
    if config.getoption("gsan"):
        import gsan

        try:
            gsan.install()
            _warn_of_files(config)
        except gsan.Error as error:
            raise pytest.UsageError(f"--gsan: {error}") from error


def _warn_of_files(config: pytest.Config) -> None:
    """Each test begins by forgetting races, so a file written at the exit would have the last
    test's; `gsan run` forgets none.
    """
    from . import _settings

    forms = _settings.value("report", "formats") or ""
    if not os.environ.get("GSAN_RUN") and ("json" in forms or "sarif" in forms):
        text = (
            "report.formats asks for files, which would hold the races of the last test only; "
            "for those of all: gsan run -- pytest --gsan"
        )
        config.issue_config_time_warning(pytest.PytestWarning(text), stacklevel=2)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tests that pass where nothing was checked say nothing of races."""
    if config.getoption("gsan"):
        _show_of_others(terminalreporter)
    if not config.getoption("gsan") or config.getoption("numprocesses", None):
        # With pytest-xdist, what was checked is known to the workers alone.
        return
    terminalreporter.write_line(f"gsan: {_checked()}")


def _checked() -> str:
    from ._errors import Error
    from ._native import library

    try:
        usage = json.loads(library().text("usage"))
    except Error:
        usage = {"accesses": 0, "launches": 0}
    accesses, launches = usage["accesses"], usage["launches"]
    if not accesses:
        return "nothing was checked: no instrumented kernel accessed memory that GSan manages"
    ending = "" if launches == 1 else "es"
    return f"checked {accesses} accesses in {launches} launch{ending} since the start or last reset"


def _wanted(item: pytest.Item) -> bool:
    if not item.config.getoption("gsan"):
        return False
    marker = item.get_closest_marker("gsan")
    if marker is None:
        return True
    return marker.kwargs.get("on", marker.args[0] if marker.args else True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Markers that nobody would understand are refused before anything runs."""
    for item in items:
        for marker in item.iter_markers("gsan"):
            given = [*marker.args, *marker.kwargs.values()]
            known = not set(marker.kwargs) - {"on"} and len(given) <= 1
            if not known or not all(isinstance(value, bool) for value in given):
                shown = [repr(value) for value in marker.args]
                shown += [f"{name}={value!r}" for name, value in marker.kwargs.items()]
                raise pytest.UsageError(
                    f"{item.nodeid}: the marker gsan takes True or False, not ({', '.join(shown)})"
                )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: Any) -> Generator[None, Any, Any]:
    """Fixtures are checked as well, so that what they allocate is managed."""
    if not _wanted(item):
        return (yield)
    import gsan

    with gsan.enable():
        # What is found from now on belongs to this test, up to the moment when the GPU has done all
        # of it.
        gsan.race_count()
        gsan.forget_races()
        return (yield)


_FOUND = pytest.StashKey[str]()
_SECTION = "data races"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _looked_at(item, "the setup of this test"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _looked_at(item, "this test"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _looked_at(item, "the teardown of this test"))


def _looked_at(item: pytest.Item, phase: str) -> Generator[None, Any, Any]:
    """A phase of a test, which fails if a race was found in it."""
    if not _wanted(item):
        return (yield)
    try:
        result = yield
    except (Exception, pytest.fail.Exception, pytest.skip.Exception):
        # It has ended in its own way; what was found is shown beside that.
        from ._errors import Error

        with contextlib.suppress(Error):
            if text := _taken(phase):
                item.stash[_FOUND] = text
        raise
    if text := _taken(phase):
        item.stash[_FOUND] = text
        pytest.fail(text, pytrace=False)
    return result


def _taken(phase: str) -> str | None:
    """What there is to say of the races that were found since the last question."""
    import gsan

    count = gsan.race_count()
    if not count:
        return None
    races = "1 data race" if count == 1 else f"{count} data races"
    text = (
        f"{races} in {phase}\n\n{gsan.report('human').rstrip()}\n\n"
        "Notes and what was checked are counted since the start or last reset."
    )
    gsan.forget_races()
    return text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    """Shows the races of a test that failed by itself, was skipped, or was expected to fail."""
    report = yield
    text = item.stash.get(_FOUND, None)
    if text is not None:
        del item.stash[_FOUND]
        if not report.failed or text not in report.longreprtext:
            report.sections.append((_SECTION, text))
    return report


def _show_of_others(terminalreporter: Any) -> None:
    """Races of tests that are not shown as failures."""
    for outcome in ("skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, text in report.sections:
                if name == _SECTION:
                    terminalreporter.write_sep("_", f"{report.nodeid} ({outcome})")
                    terminalreporter.write_line(text)
