"""`pytest --gsan`, with a library that is told what it found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CONFTEST = """
import contextlib, gsan, pytest
found = []
pytest.found = found
gsan.install = lambda: None
gsan.enable = contextlib.nullcontext
gsan.race_count = lambda: len(found)
gsan.forget_races = found.clear
gsan.report = lambda form: f"the report of {found}"
"""

TESTS = """
import pytest
def test_clean(): pass
def test_racy(): pytest.found.append("a race")
def test_after_it(): pass
@pytest.mark.gsan(False)
def test_known(): pytest.found.append("known")
def test_fails(): pytest.found.append("late"); assert False, "itself"
"""


def test_pytest_does_not_mind_that_gsan_run_imported_the_package() -> None:
    import gsan
    from _pytest.assertion.rewrite import AssertionRewriter

    assert AssertionRewriter.is_rewrite_disabled(gsan.__doc__ or "")


def test_a_race_fails_its_test_and_no_other(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("--gsan", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*1 data race in this test*", "*the report of ?'a race'?*"])
    # A test that fails by itself is that, and shows its race as well.
    result.stdout.fnmatch_lines(["*AssertionError: itself*", "*data races*", "*of ?'late'?*"])


PHASES = """
import pytest
@pytest.fixture
def sets_up_racy(): pytest.found.append("before")
@pytest.fixture
def tears_down_racy():
    yield
    pytest.found.append("after")
def test_in_setup(sets_up_racy): pass
def test_in_teardown(tears_down_racy): pass
def test_clean(): pass
def test_skipped(): pytest.found.append("hidden one"); pytest.skip("now")
@pytest.mark.xfail
def test_expected(): pytest.found.append("hidden two")
"""


def test_races_of_fixtures_and_of_tests_that_do_not_fail_are_shown(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(PHASES)
    result = pytester.runpytest_subprocess("--gsan", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*1 data race in the setup of this test*", "*of ?'before'?*"])
    result.stdout.fnmatch_lines(["*1 data race in the teardown of this test*", "*of ?'after'?*"])
    result.stdout.fnmatch_lines(["*::test_skipped (skipped)*", "*of ?'hidden one'?*"])
    result.stdout.fnmatch_lines(["*::test_expected (xfailed)*", "*of ?'hidden two'?*"])


@pytest.mark.parametrize("given", ["'no'", "True, False", "of=True", "0"])
def test_a_marker_that_says_something_else_is_refused(
    pytester: pytest.Pytester, given: str
) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.gsan({given})\ndef test(): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*::test: the marker gsan takes True or False, not ({given})"])


@pytest.mark.parametrize("wrong", ["variable", "file"])
def test_a_wrong_configuration_is_said_in_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    if wrong == "variable":
        monkeypatch.setenv("GSAN_SHADOW_RECORDS", "many")
    else:
        (pytester.path / "gsan.toml").write_text("[shadow]\nrecords = 'many'\n")
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_subprocess("--gsan", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gsan: *records*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("launches", [0, 1])
def test_the_summary_says_what_was_checked(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    monkeypatch.setenv("GSAN_TOPOLOGY_BACKEND", "host")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    code = "import racy; racy.ORDERED = True; racy.launch()" if launches else "pass"
    pytester.makepyfile(f"def test(): {code}")
    result = pytester.runpytest_subprocess("--gsan", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    said = "checked 2 accesses in 1 launch since" if launches else "nothing was checked"
    result.stdout.fnmatch_lines([f"gsan: {said}*"])


def test_without_the_option_nothing_is_looked_for(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.runpytest_subprocess().assert_outcomes(passed=4, failed=1)


def test_a_library_that_is_not_there_is_said_at_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSAN_LIBRARY", "/dev/null")
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_subprocess("--gsan")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gsan: /dev/null cannot be loaded*"])


@pytest.mark.parametrize(
    ("formats", "inside", "warned"),
    [("human", False, 0), ("human,sarif", False, 1), ("json", False, 1), ("sarif", True, 0)],
)
def test_files_that_would_lack_races_are_warned_of(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    formats: str,
    inside: bool,
    warned: int,
) -> None:
    monkeypatch.setenv("GSAN_REPORT_FORMATS", formats)
    monkeypatch.setenv("GSAN_REPORT_PATH", str(pytester.path / "report"))
    monkeypatch.setenv("GSAN_RUN", str(pytester.path) if inside else "")
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_subprocess("--gsan", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, warnings=warned)
    assert ("gsan run -- pytest --gsan" in result.stdout.str()) == bool(warned)
