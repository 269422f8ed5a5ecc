"""The seam in Triton's launcher: what a launch starts after, and that it was given to its stream.

The stream is this thread's from the choice of what the launch starts after until the launch was
given to the stream, so that two threads may launch on one stream.
"""

from __future__ import annotations

import functools
import threading
from ctypes import byref, c_int, c_uint64, c_void_p
from types import ModuleType
from typing import Any

from .._errors import Error
from .._native import LaunchInfo, library
from . import driver as cuda
from .compiling import is_instrumented


class _Current(threading.local):
    """The launch that this thread is making."""

    state: tuple[int, int] | None = None
    waiting: list | None = None
    #: Whether it may start before the launch before it on its stream has ended.
    programmatic = False


_current = _Current()
_groups: dict[int, dict] = {}
_opaque: dict[int, bool] = {}


def current() -> tuple[int, int] | None:
    """Launch table and index of the launch that this thread is making."""
    return _current.state


def after_launch(call: Any, *arguments: Any) -> bool:
    """Calls a function when the launch that this thread is making, if any, was given to its stream.

    For what may be called at any moment, such as while garbage is collected: the stream is taken.
    """
    if _current.waiting is None:
        call(*arguments)
        return True
    _current.waiting.append((call, arguments))
    return False


def begin(launch: c_void_p, device: int, stream: int, info: LaunchInfo) -> tuple[int, int]:
    """Begins a launch; returns the launch table and the index.

    `launch` becomes what `gsan_launch_end` takes: the caller has it also where a signal's handler
    raises before this returns.
    """
    table, index = c_uint64(), c_uint64()
    library().launch_begin(device, stream, byref(info), byref(launch), byref(table), byref(index))
    return table.value, index.value


def plan_alone(device: int, stream: int, programmatic: bool) -> tuple[int, int]:
    """For launchers that are not Triton's: a launch that is told complete before it is made."""
    info = LaunchInfo(kernel=b"<unknown>", programmatic=programmatic)
    info.grid[:] = info.block[:] = (1, 1, 1)
    launch = c_void_p()
    try:
        state = begin(launch, device, stream, info)
        library().launch_end(launch, 1)
    except BaseException:
        if launch.value:
            library().try_launch_end(launch, 1)
        raise
    return state


def _remember(module: Any, function: int, name: str, group: dict, hash: str) -> None:
    _groups[function] = group
    _opaque.pop(function, None)


def _forget(module: Any, function: int, name: str, group: dict, hash: str) -> None:
    _groups.pop(function, None)
    _opaque.pop(function, None)


def _is_opaque(function: int) -> bool:
    """Whether a kernel orders memory by means that its instrumentation does not see, or may do so,
    since its representation is not there.
    """
    known = _opaque.get(function)
    if known is None:
        group = _groups.get(function, {})
        path = next((path for name, path in group.items() if name.endswith(".ttgir")), None)
        known = _opaque[function] = path is None or _may_hide(path)
    return known


def _may_hide(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            ir = file.read()
    except OSError:
        return True
    answer = c_int()
    status = library().try_kernel_is_opaque(ir, byref(answer), None, None)
    return status != 0 or bool(answer.value)


def plug_in(driver: ModuleType) -> None:
    """Puts the seam into `triton.backends.nvidia.driver`."""
    import triton
    from triton import knobs
    from triton.runtime.driver import driver as runtime

    stock = driver.CudaLauncher

    class Launcher(stock):  # type: ignore[misc, valid-type]
        """Triton's launcher, which tells the ordering of each launch of an instrumented kernel."""

        def __init__(self, src: Any, metadata: Any) -> None:
            super().__init__(src, metadata)
            self.gsan_name = str(getattr(metadata, "name", "<unknown>")).encode()
            if is_instrumented(metadata):
                _let_captures_pass(triton.runtime.driver.active.utils)

        def __call__(
            self,
            gridX: int,
            gridY: int,
            gridZ: int,
            stream: int,
            function: int,
            kernel_metadata: Any,
            launch_metadata: Any,
            launch_enter_hook: Any,
            launch_exit_hook: Any,
            *args: Any,
        ) -> Any:
            launch = super().__call__
            if not self.gsan_enabled:
                return launch(
                    gridX,
                    gridY,
                    gridZ,
                    stream,
                    function,
                    kernel_metadata,
                    launch_metadata,
                    launch_enter_hook,
                    launch_exit_hook,
                    *args,
                )
            submitted = False

            def leave(metadata: Any) -> None:
                nonlocal submitted
                submitted = True
                launch_exit_hook(metadata)

            handle = c_void_p()
            before, outer = _current.state, _current.waiting
            early = _current.programmatic
            _current.waiting = [] if outer is None else outer
            _current.programmatic = bool(self.launch_pdl)
            try:
                if gridX <= 0 or gridY <= 0 or gridZ <= 0:
                    # Nothing is launched, but the stock launcher asks before it knows.
                    _current.state = (0, 0)
                else:
                    info = LaunchInfo(
                        kernel=self.gsan_name,
                        programmatic=bool(self.launch_pdl),
                        opaque=_is_opaque(function),
                    )
                    info.grid[:] = (gridX * self.num_ctas, gridY, gridZ)
                    info.block[:] = (kernel_metadata[0] * 32, 1, 1)
                    device = triton.runtime.driver.active.get_current_device()
                    _current.state = begin(handle, device, stream, info)
                result = launch(
                    gridX,
                    gridY,
                    gridZ,
                    stream,
                    function,
                    kernel_metadata,
                    launch_metadata,
                    launch_enter_hook,
                    leave if launch_exit_hook is not None else None,
                    *args,
                )
                submitted = True
                if handle.value:
                    library().launch_end(handle, 1)
                return result
            except BaseException:
                if handle.value:
                    # What went wrong is said, and not what came of it. A launch that has ended
                    # already is none to the library.
                    library().try_launch_end(handle, int(submitted))
                raise
            finally:
                _current.state, _current.programmatic = before, early
                later, _current.waiting = _current.waiting, outer
                if outer is None:
                    for call, arguments in later:
                        call(*arguments)

    Launcher.__name__ = Launcher.__qualname__ = stock.__name__
    driver.CudaLauncher = Launcher  # type: ignore[attr-defined]
    _zero_scratch_ahead(driver.CudaDriver)
    active: Any = getattr(runtime, "_active", None)
    if getattr(active, "launcher_cls", None) is stock:
        active.launcher_cls = Launcher
    knobs.runtime.kernel_load_end_hook.add(_remember)
    knobs.runtime.kernel_unload_hook.add(_forget)


class _Scratch:
    """Zeroed memory for launches that may start early.

    Kernels with clusters need some at each launch. The stock driver zeroes it on the launch's
    stream, and behind that no launch starts before the one before has ended: what a program does
    wrong then would not happen under GSan. So a piece is zeroed that several launches share out.
    """

    #: Of so many bytes, for so many launches at most.
    BYTES, LAUNCHES = 4 << 20, 64

    def __init__(self) -> None:
        #: By device and stream, whose launches are made one by one.
        self._pieces: dict[tuple[int, int], tuple[Any, int]] = {}

    def take(self, device: int, stream: int, size: int, alignment: int, allocate: Any) -> Any:
        """Zeroed memory for a launch on a stream; `allocate(size)` makes a new piece there."""
        each = -(-size // max(256, alignment)) * max(256, alignment)
        launches = min(self.LAUNCHES, self.BYTES // each)
        if launches < 2:
            return allocate(size)
        piece, used = self._pieces.get((device, stream), (None, 0))
        if piece is None or used + each > piece.numel():
            piece, used = allocate(launches * each), 0
        self._pieces[device, stream] = piece, used + each
        return piece[used : used + size]

    def drop(self) -> None:
        """Gives back all memory."""
        self._pieces.clear()


scratch = _Scratch()


def _zero_scratch_ahead(driver: Any) -> None:
    """Gives the launches of `driver` that may start early scratch that does not hold them up."""
    stock = driver.allocate_default_profile_scratch

    @functools.wraps(stock)
    def allocate(self: Any, size: int, alignment: int, stream: Any) -> Any:
        def zeroed(bytes: int) -> Any:
            return stock(self, bytes, alignment, stream)

        # A graph's scratch is zeroed at each replay.
        if not _current.programmatic or stream is None or cuda.is_capturing(stream):
            return zeroed(size)
        return scratch.take(self.get_current_device(), stream, size, alignment, zeroed)

    driver.allocate_default_profile_scratch = allocate


def _let_captures_pass(utils: Any) -> None:
    """The stock launcher refuses instrumented kernels on captured streams. Here they are nodes of a
    plan, so while this thread makes such a launch the answer is no.
    """
    ask = utils.is_stream_capturing
    if getattr(ask, "of_gsan", False):
        return

    def is_stream_capturing(stream: int) -> bool:
        return _current.state is None and ask(stream)

    is_stream_capturing.of_gsan = True  # type: ignore[attr-defined]
    utils.is_stream_capturing = is_stream_capturing


def refuse_when_unsupported(error: Error) -> None:
    """Makes each launch through Triton fail with `error` while instrumentation is on."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        from .. import _install

        if _install.is_on():
            raise error
        return run(self, *args, **kwargs)

    JITFunction.run = refuse
