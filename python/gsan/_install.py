"""Plugging into Triton and PyTorch, once, whenever they are imported."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import warnings
from types import ModuleType
from typing import Any

from . import _imports
from ._errors import Error, UnsupportedTriton
from ._native import library, loaded

#: The versions of Triton that the plug-in is made for.
SUPPORTED = ("3.9",)
#: The first version with the compiler pass that GSan builds on.
FIRST_WITH_PASS = (3, 8)

#: Modules of Triton that this package stands in for, and what stands there.
REPLACED = {
    "triton.experimental.gsan": "gsan._compat",
    "triton.experimental.gsan._allocator": "gsan._compat._allocator",
    "triton.experimental.gsan._stream_sync": "gsan._compat._stream_sync",
    "triton.experimental.gsan._utils": "gsan._compat._utils",
    "triton.experimental.gsan._testing": "gsan._compat._testing",
    "triton.experimental.gsan._testing_utils": "gsan._compat._testing_utils",
    "triton.experimental.gsan.symmetric_memory": "gsan.symmetric_memory",
    "triton.experimental.gsan.graph": "gsan.graph",
}


class _State:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.installed = False
        self.process = os.getpid()
        # How many `enable()`s are open, whether a whole run is checked, whether one ever was.
        self.enabled = 0
        self.always = False
        self.ever = False
        # Settings of Inductor as they were before.
        self.inductor: dict[str, Any] = {}


_state = _State()


def is_installed() -> bool:
    """Whether `install` was called."""
    return _state.installed


def is_on() -> bool:
    """Whether kernels are instrumented now because of `enable` or `gsan run`."""
    return _state.always or _state.enabled > 0


def was_ever_on() -> bool:
    """Whether kernels are or were instrumented because of `enable` or `gsan run`."""
    return _state.always or _state.ever


def unsupported(version: str) -> UnsupportedTriton | None:
    """What is to be said of a version of Triton; `None` if it is supported."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if ".".join(str(number) for number in numbers) in SUPPORTED:
        return None
    names = " and ".join(SUPPORTED)
    cure = f'install a supported one: pip install "triton=={SUPPORTED[-1]}.*"'
    if numbers < FIRST_WITH_PASS:
        why = "has no pass that instruments kernels (3.8 was the first), so nothing can be checked"
    else:
        why = "calls another interface than the one this GSan provides"
    return UnsupportedTriton(
        f"Triton {version} {why}. GSan supports Triton {names}; {cure}", "GSAN_UNSUPPORTED"
    )


def install() -> None:
    """Plugs GSan into Triton and PyTorch, now or as soon as they are imported.

    After it `triton.experimental.gsan` is this project. Kernels are instrumented, and memory is
    managed, only where a program asks for it: with `enable`, under `gsan run`, or in the way that
    Triton documents (`triton.knobs.compilation.instrumentation_mode = "gsan"` and
    `create_mem_pool`). Nothing is imported. It may be called again.

    Raises:
        UnsupportedTriton: Triton was imported already, in a version that is not supported. If it is
            imported later, its first kernel fails with this error instead, where kernels are to be
            checked.
        LibraryNotFound: `libgsan.so` is not there, or is of another version.
    """
    with _state.lock:
        library()
        _watch_imports()
        triton = sys.modules.get("triton")
        version = getattr(triton, "__version__", None)
        if version is not None and (error := unsupported(version)):
            raise error


def _watch_imports() -> None:
    if _state.installed:
        return
    _state.installed = True
    for name, instead in REPLACED.items():
        _imports.replace(name, instead)
    os.register_at_fork(after_in_child=_forked)
    atexit.register(_at_exit)
    _imports.when_imported("torch", _plug_into_torch)
    _imports.when_imported("triton", _plug_into_triton)


def _is_library_there() -> bool:
    """A program that is run under GSan goes on without it where its library is not there."""
    try:
        library()
    except Error as error:
        print(f"gsan: cannot check this process: {error}", file=sys.stderr)
        return False
    return True


def _plug_into_triton(triton: ModuleType) -> None:
    if not _is_library_there():
        # `gsan run` asked for instrumentation; Triton's own runtime is not what was meant.
        _leave_alone(triton)
        return
    from ._plugin import compiling, launching

    if error := unsupported(triton.__version__):
        launching.refuse_when_unsupported(error)
        return
    from triton.backends.nvidia import compiler, driver

    compiling.plug_in(compiler)
    launching.plug_in(driver)
    _replace_imported()
    _follow_mode(triton.knobs.compilation)  # type: ignore[attr-defined]


def _replace_imported() -> None:
    """Puts our modules where Triton's own were imported already."""
    import importlib

    there = [name for name in REPLACED if name in sys.modules]
    for name in there:
        module = importlib.import_module(REPLACED[name])
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], child, module)


def _plug_into_torch(torch: ModuleType) -> None:
    from ._plugin import collectives, events, graphs, memory

    if torch.version.cuda is None or not _is_library_there():  # type: ignore[attr-defined]
        return
    events.plug_in(torch)
    graphs.plug_in(torch)
    _imports.when_imported("torch.distributed", collectives.plug_in)
    if not is_on():
        return
    if error := _without_pools():
        print(f"gsan: cannot check this process: {error}", file=sys.stderr)
    else:
        memory.pools.want()


def _without_pools() -> Error | None:
    """What is to be said if PyTorch's allocator is one that knows no pools of memory."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        settings = os.environ.get(name, "").replace(" ", "")
        if "backend:cudaMallocAsync" in settings:
            return Error(
                "PyTorch's allocator cudaMallocAsync cannot take GSan's memory; "
                f"leave backend:cudaMallocAsync out of {name}",
                "GSAN_UNSUPPORTED",
            )
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1":
        return Error(
            "PyTorch allocates past GSan's memory while PYTORCH_NO_CUDA_MEMORY_CACHING is set; "
            "unset it",
            "GSAN_UNSUPPORTED",
        )
    return None


def _modes(mode: str | None) -> list[str]:
    return [name.strip() for name in (mode or "").split(",") if name.strip()]


def _follow_mode(compilation: Any) -> None:
    """Makes Triton's instrumentation mode what the program chose, and "gsan" while that is on.

    The program's own choice is kept apart: it may change it, save it and put it back at any time.
    """
    cls, name = type(compilation), "instrumentation_mode"
    default = getattr(cls, name)
    if isinstance(default, property):
        return

    def own(self: Any) -> str:
        return self.__dict__.get(name, default)

    @functools.cache
    def checked(mode: str) -> str:
        names = _modes(mode)
        return mode if "gsan" in names else ",".join([*names, "gsan"])

    def effective(self: Any) -> str:
        # Every launch asks.
        return checked(own(self)) if is_on() else own(self)

    def choose(self: Any, mode: str) -> None:
        # What was read while it is on, and is put back, is not the program's choice.
        if is_on() and "gsan" not in _modes(own(self)):
            mode = ",".join(one for one in _modes(mode) if one != "gsan")
        self.__dict__[name] = mode

    def forget(self: Any) -> None:
        self.__dict__.pop(name, None)

    setattr(cls, name, property(effective, choose, forget))


def _leave_alone(triton: Any) -> None:
    """Instruments no kernels, if Triton is far enough to have been told to."""
    compilation = getattr(getattr(triton, "knobs", None), "compilation", None)
    mode = getattr(compilation, "instrumentation_mode", None)
    if compilation is not None and mode:
        others = [name for name in _modes(mode) if name != "gsan"]
        compilation.instrumentation_mode = ",".join(others)


def _prepare_inductor() -> None:
    """Inductor's own launcher would never pass the hidden arguments, and processes that compile
    for it would not know of this one's settings.
    """
    launcher = os.environ.setdefault("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", "0")
    threads = os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # It reads the environment once.
    if config := sys.modules.get("torch._inductor.config"):
        if launcher == "0":
            _set_inductor(config, "use_static_cuda_launcher", False)
        if threads == "1":
            _set_inductor(config, "compile_threads", 1)


def _set_inductor(config: ModuleType, name: str, value: Any) -> None:
    # Not every version has every setting, and refuses others.
    if hasattr(config, name):
        _state.inductor.setdefault(name, getattr(config, name))
        setattr(config, name, value)


def _put_inductor_back() -> None:
    """What was compiled for its own launcher before cannot be loaded again without it."""
    while _state.inductor:
        name, value = _state.inductor.popitem()
        setattr(sys.modules["torch._inductor.config"], name, value)


def run_checked() -> None:
    """What `gsan run` does in every Python process: everything is checked, from the start.

    The library is loaded when torch or Triton is imported: most processes never do.
    """
    with _state.lock:
        _state.always = True
        _prepare_inductor()
        _watch_imports()


class _Enabled(contextlib.ContextDecorator):
    """What `enable` returns."""

    def __init__(self) -> None:
        self._used = False

    def __enter__(self) -> None:
        self._used = True
        install()
        if error := _without_pools():
            raise error
        with _state.lock:
            _prepare_inductor()
            first = not is_on()
            _state.enabled += 1
            _state.ever = True
            if first:
                _switch_on()

    def __exit__(self, *_: object) -> None:
        with _state.lock:
            # A child that was forked inside has left already.
            if _state.enabled == 0:
                return
            _state.enabled -= 1
            if not is_on():
                _put_inductor_back()
                _switch_off()

    def __call__(self, function: Any) -> Any:
        self._used = True
        return super().__call__(function)

    def __del__(self) -> None:
        if not self._used:
            text = "gsan.enable() alone checks nothing; write `with gsan.enable():`"
            warnings.warn(text, UserWarning, stacklevel=2)


def enable() -> _Enabled:
    """Checks the kernels that are launched inside: instrumented, with managed memory for every
    thread of the process. For `with gsan.enable():`, or `@gsan.enable()` above a function.

    Memory that was allocated before is not checked. May be nested, and under `gsan run` changes
    nothing.

    Raises:
        UnsupportedTriton: see `install`.
        Error: PyTorch was told to allocate without pools of memory, such as with cudaMallocAsync.
    """
    return _Enabled()


def _switch_on() -> None:
    if "torch" in sys.modules:
        from ._plugin.memory import pools

        pools.want()


def _switch_off() -> None:
    if "torch" in sys.modules:
        from ._plugin.memory import pools

        pools.end()


def reset() -> None:
    """Puts everything back to the start: clocks, settings, what was accessed. Races that were found
    stay in the process's report; `forget_races` forgets them.

    Raises:
        AssertionError: allocations, graphs or work are live; the message says which.
    """
    if not loaded():
        return
    from . import _memory
    from ._plugin import compiling

    pools: Any = None
    if shared := sys.modules.get("gsan.symmetric_memory"):
        shared.forget()
    if "torch" in sys.modules:
        from ._plugin import launching, memory

        launching.scratch.drop()
        pools = memory.pools
        pools.drop()
    try:
        _reset_library(pools)
    except Error as error:
        if error.status == "GSAN_LIVE":
            raise AssertionError(str(error)) from error
        raise
    finally:
        compiling.forget_settings()
        _memory.forget_states()
        if pools is not None and pools.wanted:
            pools.want()


#: How long `reset` waits, time after time, for what other threads are about to let go: the one that
#: ran `backward`, and the one that watches collectives. In seconds.
_PATIENCE = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)


def _reset_library(pools: Any) -> None:
    for pause in _PATIENCE:
        try:
            library().reset()
            return
        except Error as error:
            if error.status != "GSAN_LIVE" or pools is None:
                raise
            time.sleep(pause)
            if not pools.collect():
                raise
    library().reset()


def _forked() -> None:
    """A child that was forked after CUDA started has none, and must not end its parent's
    session.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda._is_in_bad_fork():  # type: ignore[attr-defined]
        _state.process = os.getpid()
        return
    _state.always = False
    _state.enabled = 0


def _at_exit() -> None:
    if loaded() and os.getpid() == _state.process:
        with contextlib.suppress(Error):
            library().finish()
