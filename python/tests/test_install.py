"""Versions of Triton, and processes that plug in."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

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


def test_a_library_of_another_kind_is_named(python) -> None:
    files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
    other = next((file for file in files if file.endswith(".so")), None)
    if other is None:
        pytest.skip("this Python has no libraries of its own")
    code = "import gsan\ntry: gsan.install()\nexcept gsan.LibraryNotFound as e: print(e)"
    assert f"{other} is no libgsan.so" in python(code, GSAN_LIBRARY=other).stdout


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch):
    """As much of Triton's settings as there is to follow; nothing is plugged in."""

    class Compilation:
        instrumentation_mode = ""

    monkeypatch.setattr(_install, "_state", _install._State())
    monkeypatch.setattr(_install, "install", lambda: None)
    monkeypatch.setattr(_install, "_prepare_inductor", lambda: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    made = Compilation()
    _install._follow_mode(made)
    _install._follow_mode(made)
    return made


def test_the_mode_is_on_inside_and_the_program_s_own_outside(knobs) -> None:
    assert knobs.instrumentation_mode == ""
    knobs.instrumentation_mode = "consan"
    outer, inner = gsan.enable(), gsan.enable()
    outer.__enter__()
    assert knobs.instrumentation_mode == "consan,gsan"
    inner.__enter__()
    # They need not end in order.
    outer.__exit__(None, None, None)
    assert knobs.instrumentation_mode == "consan,gsan"
    inner.__exit__(None, None, None)
    assert knobs.instrumentation_mode == "consan"


def test_the_mode_stays_on_when_settings_are_read_again_or_put_back(knobs) -> None:
    # As `knobs.scope` does.
    before = dict(knobs.__dict__)
    with gsan.enable():
        # As `knobs.refresh_knobs` does.
        knobs.instrumentation_mode = ""
        assert knobs.instrumentation_mode == "gsan"
        knobs.__dict__.clear()
        knobs.__dict__.update(before)
        assert knobs.instrumentation_mode == "gsan"
        saved = knobs.instrumentation_mode
        knobs.instrumentation_mode = "consan"
        assert knobs.instrumentation_mode == "consan,gsan"
        knobs.instrumentation_mode = saved
    assert knobs.instrumentation_mode == ""
    knobs.instrumentation_mode = "gsan"
    with gsan.enable():
        assert knobs.instrumentation_mode == "gsan"
    assert knobs.instrumentation_mode == "gsan"


def test_enable_that_is_not_entered_is_a_warning(knobs) -> None:
    with pytest.warns(UserWarning, match="write `with gsan.enable"):
        gsan.enable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @gsan.enable()
        def mode() -> str:
            return knobs.instrumentation_mode

        assert (mode(), mode(), knobs.instrumentation_mode) == ("gsan", "gsan", "")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "PYTORCH_CUDA_ALLOC_CONF",
            "backend: cudaMallocAsync",
            "leave backend:cudaMallocAsync out of PYTORCH_CUDA",
        ),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "CACHING is set; unset it"),
    ],
)
def test_an_allocator_without_pools_is_named(
    knobs, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(gsan.Error, match=said):
        with gsan.enable():
            pass
    assert not _install.is_on()


def test_torch_compile_that_was_used_before_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModuleType("torch._inductor.config")
    config.__dict__.update(use_static_cuda_launcher=True, compile_threads=8)
    monkeypatch.setitem(sys.modules, config.__name__, config)
    monkeypatch.setattr(_install, "_state", _install._State())
    monkeypatch.setattr(_install, "install", lambda: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in ("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", "TORCHINDUCTOR_COMPILE_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "4")

    def settings() -> tuple[bool, int]:
        return vars(config)["use_static_cuda_launcher"], vars(config)["compile_threads"]

    with gsan.enable():
        # What the user chose stays.
        assert settings() == (False, 8)
        monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS")
        with gsan.enable():
            assert settings() == (False, 1)
        assert settings() == (False, 1)
    # Code that was compiled before must be found as it was.
    assert settings() == (True, 8)
    del config.__dict__["use_static_cuda_launcher"]
    with gsan.enable():
        assert "use_static_cuda_launcher" not in vars(config)
    for name in ("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ.pop(name)
