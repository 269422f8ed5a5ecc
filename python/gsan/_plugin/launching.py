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


class _Call:
    """A launch between its begin and its end, and the memory in which C reads and writes of it.

    Later launches of the kernel use it again, and tell only what has changed: to make and convert
    objects of ctypes takes longer than the library needs.
    """

    __slots__ = (
        "_arguments",
        "_begin",
        "_described",
        "_end",
        "_handle",
        "_index",
        "_info",
        "_stream",
        "_table",
        "hook",
        "later",
        "programmatic",
        "state",
        "submitted",
    )

    def __init__(self, kernel: bytes) -> None:
        self._begin = library().unconverted("launch_begin")
        self._end = library().unconverted("launch_end")
        self._info = LaunchInfo(kernel=kernel)
        self._handle, self._stream = c_void_p(), c_void_p()
        self._table, self._index = c_uint64(), c_uint64()
        self._described: tuple[Any, ...] = ()
        self._arguments: tuple[Any, ...] = ()
        #: Launch table and index, once it was begun.
        self.state: tuple[int, int] | None = None
        #: Whether it may start before the launch before it on its stream has ended.
        self.programmatic = False
        #: Whether it was given to its stream.
        self.submitted = False
        #: The program's exit hook.
        self.hook: Any = None
        #: What waits for the end: functions and their arguments.
        self.later: list[tuple[Any, tuple]] = []

    def begin(self, described: tuple[Any, ...]) -> None:
        """Begins a launch: its device and stream, grid in CTAs, threads of a CTA, whether it is
        programmatic and opaque.
        """
        if described != self._described:
            self._describe(*described)
            self._described = described
        # C writes the handle: it is there also where a signal's handler raises before this returns.
        if status := self._begin(*self._arguments):
            raise library().error(status)
        self.state = self._table.value, self._index.value

    def _describe(
        self,
        device: int,
        stream: int,
        x: int,
        y: int,
        z: int,
        threads: int,
        programmatic: bool,
        opaque: bool,
    ) -> None:
        # Whatever goes wrong in between, the next launch is described anew.
        self._described = ()
        info = self._info
        info.grid[:] = (x, y, z)
        info.block[:] = (threads, 1, 1)
        info.programmatic, info.opaque = bool(programmatic), bool(opaque)
        self._stream.value = stream
        self._arguments = (
            c_int(device),
            self._stream,
            byref(info),
            byref(self._handle),
            byref(self._table),
            byref(self._index),
        )

    def end(self) -> None:
        """Says that the launch was given to its stream."""
        status = self._end(self._handle, 1)
        self._handle.value = None
        if status:
            raise library().error(status)

    def give_up(self) -> None:
        """Ends the launch, if it was begun and not ended, after something has gone wrong."""
        if self._handle.value:
            # What went wrong is said, and not what comes of it. A launch that has ended already is
            # none to the library.
            self._end(self._handle, int(self.submitted))
            self._handle.value = None

    def leave(self, metadata: Any) -> None:
        """Stands for the program's exit hook, which is called once the launch was submitted."""
        self.submitted = True
        self.hook(metadata)


class _Current(threading.local):
    """The launch that this thread is making, and the one in whose middle it does."""

    call: _Call | None = None


_current = _Current()
_groups: dict[int, dict] = {}
_opaque: dict[int, bool] = {}


def current() -> tuple[int, int] | None:
    """Launch table and index of the launch that this thread is making."""
    call = _current.call
    return None if call is None else call.state


def get_launch_state(device: int, stream: int, launch_pdl: bool = False) -> tuple[int, int]:
    """Launch table and index of a launch on a stream, for the kernel's hidden arguments.

    For the launch that Triton's launcher makes right now in this thread; else for one that another
    launcher is about to make, which then counts as made.
    """
    return current() or _plan_alone(device, stream, launch_pdl)


def after_launch(call: Any, *arguments: Any) -> bool:
    """Calls a function when the launch that this thread is making, if any, was given to its stream.

    For what may be called at any moment, such as while garbage is collected: the stream is taken.
    """
    launch = _current.call
    if launch is None:
        call(*arguments)
        return True
    launch.later.append((call, arguments))
    return False


def _plan_alone(device: int, stream: int, programmatic: bool) -> tuple[int, int]:
    """A launch that is told complete before it is made."""
    call = _Call(b"<unknown>")
    call.submitted = True
    try:
        call.begin((device, stream, 1, 1, 1, 1, programmatic, False))
        state = call.state
        call.end()
    except BaseException:
        call.give_up()
        raise
    assert state is not None
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
    launch = stock.__call__

    class Launcher(stock):  # type: ignore[misc, valid-type]
        """Triton's launcher, which tells the ordering of each launch of an instrumented kernel."""

        def __init__(self, src: Any, metadata: Any) -> None:
            super().__init__(src, metadata)
            self.gsan_name = str(getattr(metadata, "name", "<unknown>")).encode()
            #: Those that no launch uses. Lists are changed by one thread at a time.
            self.gsan_calls: list[_Call] = []
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
            if not self.gsan_enabled:
                return launch(
                    self,
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
            try:
                call = self.gsan_calls.pop()
            except IndexError:
                call = _Call(self.gsan_name)
            outer = _current.call
            try:
                _current.call = call
                told = gridX > 0 and gridY > 0 and gridZ > 0
                call.programmatic = bool(self.launch_pdl)
                if told:
                    call.begin(
                        (
                            triton.runtime.driver.active.get_current_device(),
                            stream,
                            gridX * self.num_ctas,
                            gridY,
                            gridZ,
                            kernel_metadata[0] * 32,
                            self.launch_pdl,
                            _is_opaque(function),
                        )
                    )
                else:
                    # Nothing is launched, but the stock launcher asks before it knows.
                    call.state = (0, 0)
                call.hook = launch_exit_hook
                result = launch(
                    self,
                    gridX,
                    gridY,
                    gridZ,
                    stream,
                    function,
                    kernel_metadata,
                    launch_metadata,
                    launch_enter_hook,
                    None if launch_exit_hook is None else call.leave,
                    *args,
                )
                call.submitted = True
                if told:
                    call.end()
                return result
            except BaseException:
                call.give_up()
                raise
            finally:
                _current.call = outer
                call.state, call.submitted, call.hook = None, False, None
                if call.later:
                    later, call.later = call.later, []
                    if outer is None:
                        for each, arguments in later:
                            each(*arguments)
                    else:
                        outer.later += later
                self.gsan_calls.append(call)

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
        call = _current.call
        early = call is not None and call.programmatic
        if not early or stream is None or cuda.is_capturing(stream):
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
        call = _current.call
        return (call is None or call.state is None) and ask(stream)

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
