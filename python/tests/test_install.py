"""Versions of Triton, and processes that plug in."""

from __future__ import annotations

from pathlib import Path

import gsan
import pytest
from gsan import _install

INJECT = Path(gsan.__file__).parent / "_inject"


@pytest.mark.parametrize("version", ["3.9.0", "3.9.1", "3.9.0+git1234"])
def test_supported(version: str) -> None:
    assert _install.unsupported(version) is None


@pytest.mark.parametrize("version", ["3.8.0", "3.10.0", "4.0.0"])
def test_other_versions_with_the_pass_name_the_supported_ones(version: str) -> None:
    text = str(_install.unsupported(version))
    assert f"Triton {version}" in text and "supports Triton 3.9" in text
    assert 'pip install "triton==3.9.*"' in text


@pytest.mark.parametrize("version", ["3.7.0", "2.3.1"])
def test_versions_without_the_pass_are_told_so(version: str) -> None:
    assert "has no pass that instruments kernels (3.8 was the first)" in str(
        _install.unsupported(version)
    )


def test_an_unsupported_triton_runs_no_kernel_that_is_to_be_checked(python, tmp_path) -> None:
    triton = tmp_path / "triton"
    (triton / "runtime").mkdir(parents=True)
    (triton / "__init__.py").write_text("__version__ = '3.10.1'\n")
    (triton / "runtime" / "__init__.py").write_text("")
    jit = "class JITFunction:\n    def run(self): return 'ran'\n"
    (triton / "runtime" / "jit.py").write_text(jit)
    code = (
        "import triton.runtime.jit as jit\n"
        "try:\n    print(jit.JITFunction().run())\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    path = f"{INJECT}:{tmp_path}"
    checked = python(code, PYTHONPATH=path)
    assert "UnsupportedTriton Triton 3.10.1" in checked.stdout, checked.stderr
    assert python(code, PYTHONPATH=str(tmp_path)).stdout.strip() == "ran"


def test_sitecustomize_makes_way_for_the_next_one(python, tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.ran = __file__\n")
    code = "import sys; print(sys.ran, 'gsan' in sys.modules)"
    answer = python(code, PYTHONPATH=f"{INJECT}:{tmp_path}")
    assert answer.stdout.split() == [str(tmp_path / "sitecustomize.py"), "True"], answer.stderr


def test_sitecustomize_without_a_next_one(python) -> None:
    answer = python("print('here')", PYTHONPATH=str(INJECT))
    assert (answer.returncode, answer.stdout.strip()) == (0, "here"), answer.stderr


def test_processes_of_processes_are_plugged_in(python) -> None:
    code = (
        "import subprocess, sys\n"
        "inner = 'import gsan._install as i; print(i.is_on())'\n"
        "subprocess.run([sys.executable, '-c', inner])\n"
    )
    assert python(code, PYTHONPATH=str(INJECT)).stdout.strip() == "True"


def test_a_program_goes_on_where_the_library_is_not(python, tmp_path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '3.9.0'\n")
    place = tmp_path / "libgsan.so"
    place.write_text("not a library")
    path = f"{INJECT}:{tmp_path}"
    answer = python("import triton; print('on')", PYTHONPATH=path, GSAN_LIBRARY=str(place))
    assert answer.stdout.strip() == "on"
    assert "gsan: cannot check this process" in answer.stderr and str(place) in answer.stderr


def test_a_library_that_is_not_there_is_named(python) -> None:
    code = "import gsan\ntry: gsan.install()\nexcept gsan.LibraryNotFound as e: print(e.status, e)"
    answer = python(code, GSAN_LIBRARY="/dev/null")
    assert "GSAN_IO /dev/null cannot be loaded" in answer.stdout, answer
