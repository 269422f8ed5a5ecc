"""`pytest --gsan`: a test in which a race was found fails, and shows it.

The marker `@pytest.mark.gsan(False)` turns it off for a test, a class or a module.
"""

from __future__ import annotations

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
        except gsan.Error as error:
            raise pytest.UsageError(f"--gsan: {error}") from error
        _warn_of_files(config)


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
    return bool(marker.kwargs.get("on", marker.args[0] if marker.args else True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: Any) -> Generator[None, Any, Any]:
    """Fixtures are checked as well, so that what they allocate is managed."""
    if not _wanted(item):
        return (yield)
    import gsan

    with gsan.enable():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if not _wanted(item):
        return (yield)
    import gsan

    # What is found later belongs to this test, up to the moment when the GPU has done all of it.
    gsan.race_count()
    gsan.forget_races()
    result = yield
    count = gsan.race_count()
    if count:
        races = "1 data race" if count == 1 else f"{count} data races"
        pytest.fail(f"{races} in this test\n\n{gsan.report('human')}", pytrace=False)
    return result
