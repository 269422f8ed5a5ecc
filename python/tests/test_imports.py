"""When modules are imported, and with what."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from gsan import _imports


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_import_of_gsan_imports_neither_torch_nor_triton(python) -> None:
    code = "import gsan, sys; print(sorted({'torch', 'triton', 'ctypes.util'} & set(sys.modules)))"
    assert python(code).stdout.strip() == "[]"


def test_act_is_called_after_the_module_has_run(on_path: Path) -> None:
    (on_path / "watched_one.py").write_text("value = 7\n")
    seen: list[int] = []
    _imports.when_imported("watched_one", lambda module: seen.append(module.value))
    assert seen == []
    import watched_one  # noqa: F401

    assert seen == [7]


def test_act_is_called_at_once_for_a_module_that_is_there(on_path: Path) -> None:
    (on_path / "watched_two.py").write_text("")
    import watched_two

    seen: list[object] = []
    _imports.when_imported("watched_two", seen.append)
    assert seen == [watched_two]


RUNNING = """
from gsan import _imports
import sys
_imports.when_imported("watched_{name}", sys.seen.append)
{then}
whole = True
"""


def test_act_is_called_after_a_module_that_is_running(on_path: Path, monkeypatch) -> None:
    (on_path / "watched_five.py").write_text(RUNNING.format(name="five", then=""))
    seen: list[object] = []
    monkeypatch.setattr(sys, "seen", seen, raising=False)
    import watched_five

    assert seen == [watched_five] and watched_five.whole
    assert type(watched_five.__spec__) is ModuleSpec
    assert not vars(watched_five.__spec__)["_initializing"]


def test_a_running_module_that_fails_is_not_acted_on(on_path: Path, monkeypatch) -> None:
    file = on_path / "watched_six.py"
    file.write_text(RUNNING.format(name="six", then="raise KeyError"))
    seen: list[object] = []
    monkeypatch.setattr(sys, "seen", seen, raising=False)
    with pytest.raises(KeyError):
        import watched_six
    assert seen == []
    file.write_text("good = 'second time'\n")
    import watched_six

    assert seen == [watched_six]


def test_act_is_called_for_a_module_that_another_thread_imports(on_path: Path, monkeypatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "steps", (begun, go_on), raising=False)
    code = "import sys\nsys.steps[0].set()\nsys.steps[1].wait(10)\nwhole = True\n"
    (on_path / "watched_seven.py").write_text(code)
    thread = threading.Thread(target=importlib.import_module, args=("watched_seven",))
    thread.start()
    assert begun.wait(10)
    seen: list[bool] = []
    _imports.when_imported("watched_seven", lambda module: seen.append(module.whole))
    assert seen == []
    go_on.set()
    thread.join()
    assert seen == [True]


def test_the_module_keeps_its_own_loader(on_path: Path) -> None:
    (on_path / "watched_three.py").write_text("")
    _imports.when_imported("watched_three", lambda module: None)
    import watched_three

    assert type(watched_three.__loader__).__name__ == "SourceFileLoader"
    assert watched_three.__spec__.loader is watched_three.__loader__


def test_a_module_that_fails_is_not_acted_on_and_can_be_imported_again(on_path: Path) -> None:
    file = on_path / "watched_four.py"
    file.write_text("raise KeyError('first')\n")
    seen: list[object] = []
    _imports.when_imported("watched_four", seen.append)
    with pytest.raises(KeyError):
        import watched_four
    assert seen == []
    file.write_text("good = 'second time'\n")
    import watched_four

    assert seen == [watched_four]


def test_a_module_that_is_nowhere_is_missed_as_ever() -> None:
    _imports.when_imported("watched_nowhere", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="watched_nowhere"):
        import watched_nowhere  # noqa: F401


def test_replaced_modules_are_one_object_under_both_names(on_path: Path) -> None:
    package = on_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("owner = 'theirs'\n")
    (on_path / "ours_part.py").write_text("owner = 'ours'\n")
    _imports.replace("theirs.part", "ours_part")
    try:
        import ours_part
        import theirs.part
        from theirs import part

        assert theirs.part is ours_part is part
        assert sys.modules["theirs.part"] is ours_part
    finally:
        _imports.restore("theirs.part")
