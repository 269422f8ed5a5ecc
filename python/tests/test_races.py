"""Races as objects."""

from __future__ import annotations

from ctypes import POINTER, cast, pointer, sizeof

import gsan
import pytest
from gsan import _native, _races


def race(**fields: int) -> _native.Race:
    made = _native.Race(address=0x1000, bytes=4, times=9, **fields)
    made.later = _native.Side(
        known=1, action=1, cta=(3, 7, 0), line=31, file=b"splitk.py", kernel=b"splitk"
    )
    made.earlier = _native.Side(
        known=1, action=2, atomic=1, scope=2, cta=(3, 1, 0), line=24, file=b"splitk.py"
    )
    return made


# By C's rules: size_t, two u32, five u64, two sides; a side: size_t, 10 u32, two u64, two pointers.
def test_structures_have_the_sizes_of_c() -> None:
    assert sizeof(_native.Side) == 8 + 10 * 4 + 2 * 8 + 2 * 8
    assert sizeof(_native.Race) == 8 + 2 * 4 + 5 * 8 + 2 * sizeof(_native.Side)
    assert sizeof(_native.LaunchInfo) == 8 + 8 + 6 * 4 + 2 * 4
    assert sizeof(_native.Config) == 8 + 2 * 4 + 8 + 7 * 4 + 4
    assert sizeof(_native.Cell) == 8 + 4 + 5 * 16 + 4


def test_a_race_says_who_did_what_where() -> None:
    made = _races._race(race(kind=0))
    assert made.kind == "read-after-write" and not made.possible
    assert made.later.cta == (3, 7, 0) and made.later.place == "splitk.py:31"
    assert made.later.action == "read" and made.later.scope is None
    assert made.earlier.atomic and made.earlier.scope == "gpu" and made.earlier.kernel is None
    assert made.lines == {("splitk.py", 31), ("splitk.py", 24)}
    assert str(made).startswith("read-after-write race on 4 bytes at 0x1000: read at splitk.py:31")


def test_a_forgotten_side_says_so() -> None:
    forgotten = race(kind=2)
    forgotten.earlier.known = 0
    assert "by a CTA that was forgotten" in str(_races._race(forgotten))


class Found:
    """A library that found what it is given."""

    def __init__(self, *found: _native.Race) -> None:
        self.found = found

    def races(self, take, user) -> None:
        for one in self.found:
            if take(cast(pointer(one), POINTER(_native.Race)), user):
                return

    def race_count(self, certain, possible) -> None:
        certain._obj.value = sum(not one.possible for one in self.found)
        possible._obj.value = sum(bool(one.possible) for one in self.found)

    def text(self, name: str, *_) -> str:
        return '{"accesses": 9, "launches": 1}' if name == "usage" else f"the {name}"


def test_possible_races_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Found(race(kind=2), race(kind=1, possible=1))
    monkeypatch.setattr(_races, "library", lambda: library)
    monkeypatch.setattr(_races, "loaded", lambda: True)
    assert [one.kind for one in gsan.races()] == ["write-after-write"]
    assert [one.possible for one in gsan.races(possible=True)] == [False, True]
    assert (gsan.race_count(), gsan.race_count(possible=True)) == (1, 2)
    with pytest.raises(gsan.RaceFound, match="the report") as caught:
        gsan.assert_no_races()
    assert len(caught.value.races) == 1
    monkeypatch.setattr(_races, "library", lambda: Found(race(kind=1, possible=1)))
    gsan.assert_no_races()


def test_nothing_was_found_where_nothing_was_loaded(python) -> None:
    code = "import gsan; print(gsan.races(), gsan.race_count(), gsan.assert_no_races())"
    assert python(code).stdout.strip() == "[] 0 None"


@pytest.mark.parametrize(
    ("launches", "ever", "why"),
    [
        (0, False, "kernels are checked inside `with gsan.enable"),
        (0, True, "no instrumented kernel was launched inside"),
        (3, True, "no instrumented kernel accessed memory that GSan manages"),
    ],
)
def test_no_races_where_nothing_was_checked_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, launches: int, ever: bool, why: str
) -> None:
    library = Found()
    library.text = lambda name: f'{{"accesses": 0, "launches": {launches}}}'  # type: ignore
    monkeypatch.setattr(_races, "library", lambda: library)
    monkeypatch.setattr(_races, "loaded", lambda: True)
    monkeypatch.setattr(_races._install, "was_ever_on", lambda: ever)
    with pytest.warns(UserWarning, match=f"nothing was checked: {why}"):
        gsan.assert_no_races()


def test_forms_of_reports_are_named() -> None:
    with pytest.raises(ValueError, match="no report format 'xml'; there are \"human\""):
        gsan.report("xml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no report format 'xml'"):
        gsan.write_report("x", "xml")  # type: ignore[arg-type]
    for wrong in (None, 5):
        with pytest.raises(TypeError):
            gsan.write_report(wrong)  # type: ignore[arg-type]


def test_a_callback_is_something_to_call() -> None:
    with pytest.raises(TypeError, match="takes a function or None, not 5"):
        gsan.on_race(5)  # type: ignore[arg-type]
