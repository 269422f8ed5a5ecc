"""Triton's launcher with our subclass in its place, over a launcher that does nothing."""

from __future__ import annotations

import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Library:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.handle = 0
        #: What begin and end answer.
        self.begins, self.ends = 0, 0
        #: Handles that were begun and not ended.
        self.open: list[int] = []

    def launch_begin(self, device, stream, info, launch, table, index) -> int:
        given = info._obj
        grid = tuple(given.grid)
        kernel, early = given.kernel.decode(), given.programmatic
        self.told.append(("begin", device.value, stream.value, kernel, grid, early))
        if self.begins:
            return self.begins
        self.handle += 1
        launch._obj.value, table._obj.value, index._obj.value = self.handle, 1000, 5
        self.open.append(self.handle)
        return 0

    def launch_end(self, launch, submitted) -> int:
        self.told.append(("end", submitted))
        if launch.value not in self.open:
            return 1
        self.open.remove(launch.value)
        return self.ends

    def unconverted(self, name: str) -> Any:
        return lambda *arguments: getattr(self, name)(*arguments)

    def error(self, status: int) -> Exception:
        return OSError(status)

    def try_event_forgotten(self, event) -> None:
        self.told.append(("forgotten", event))


class Memory(tuple):
    """As much of a tensor as scratch needs."""

    def numel(self) -> int:
        return len(self)

    def __getitem__(self, index: Any) -> Any:
        return Memory(super().__getitem__(index))


class Hooks:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add(self, call) -> None:
        self.calls.append(call)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch):
    """A package with as much of Triton as the launcher needs."""

    class CudaLauncher:
        def __init__(self, src: Any, metadata: Any) -> None:
            self.gsan_enabled = "gsan" in metadata.instrumentation_mode
            self.num_ctas, self.launch_pdl = metadata.num_ctas, metadata.launch_pdl
            self.scratch = metadata.scratch

        def __call__(self, x, y, z, stream, function, packed, metadata, enter, leave, *args) -> Any:
            from gsan._plugin import launching

            if utils.is_stream_capturing(stream):
                raise RuntimeError("GSan does not support CUDA graph capture")
            if enter is not None:
                enter(metadata)
            if self.scratch:
                scratches.append(active.allocate_default_profile_scratch(self.scratch, 16, stream))
            launches.append((launching.current(), args))
            if leave is not None:
                leave(metadata)
            return "launched"

    class CudaDriver:
        launcher_cls = CudaLauncher

        def __init__(self) -> None:
            self.utils = utils

        device = 3

        def get_current_device(self) -> int:
            return self.device

        def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int) -> Any:
            zeroed.append(size)
            return Memory(range(size))

    utils = SimpleNamespace(is_stream_capturing=lambda stream: stream == 99)
    launches: list[Any] = []
    scratches: list[Any] = []
    zeroed: list[int] = []
    active = CudaDriver()
    knobs = SimpleNamespace(
        runtime=SimpleNamespace(kernel_load_end_hook=Hooks(), kernel_unload_hook=Hooks())
    )
    runtime = SimpleNamespace(active=active, _active=active)
    names = {
        "triton": {"knobs": knobs, "runtime": SimpleNamespace(driver=runtime)},
        "triton.runtime": {},
        "triton.runtime.driver": {"driver": runtime},
    }
    for name, values in names.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
    launching = importlib.import_module("gsan._plugin.launching")
    library = Library()
    monkeypatch.setattr(launching, "library", lambda: library)
    monkeypatch.setattr(launching.cuda, "is_capturing", lambda stream: stream == 99)
    launching.scratch.drop()
    driver = SimpleNamespace(CudaLauncher=CudaLauncher, CudaDriver=CudaDriver)
    launching.plug_in(driver)
    return SimpleNamespace(
        active=active,
        library=library,
        launches=launches,
        scratches=scratches,
        zeroed=zeroed,
        driver=driver,
        launching=launching,
    )


def launcher(triton: Any, mode: str = "gsan", pdl: bool = False, scratch: int = 0) -> Any:
    metadata = SimpleNamespace(
        name="kernel", instrumentation_mode=mode, num_ctas=2, launch_pdl=pdl, scratch=scratch
    )
    return triton.active.launcher_cls(None, metadata)


def launch(made: Any, *args: Any, grid=(4, 5, 6), stream=11, enter=None, leave=None) -> Any:
    return made(*grid, stream, 0xF, (8, 2, 0), None, enter, leave, *args)


def test_the_launcher_in_use_becomes_ours(triton) -> None:
    assert triton.active.launcher_cls is triton.driver.CudaLauncher
    assert triton.active.launcher_cls.__name__ == "CudaLauncher"


def test_a_launch_is_told_with_its_name_and_ctas(triton) -> None:
    assert launch(launcher(triton, pdl=True), "x") == "launched"
    assert triton.launches == [((1000, 5), ("x",))]
    # A cluster of two CTAs for each program.
    assert triton.library.told == [("begin", 3, 11, "kernel", (8, 5, 6), 1), ("end", 1)]
    assert triton.launching.current() is None


def test_kernels_that_are_not_instrumented_are_not_told(triton) -> None:
    assert launch(launcher(triton, mode="")) == "launched"
    assert triton.library.told == []


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 0, 1), (4, 4, 0)])
def test_an_empty_grid_is_no_launch(triton, grid) -> None:
    assert launch(launcher(triton), grid=grid) == "launched"
    assert triton.library.told == [] and triton.launches == [((0, 0), ())]


def fail(metadata: Any) -> None:
    raise KeyError("of the program")


def test_a_launch_that_fails_is_taken_back(triton) -> None:
    with pytest.raises(KeyError):
        launch(launcher(triton), enter=fail)
    assert triton.library.told[-1] == ("end", 0)
    assert triton.launching.current() is None
    # The next one is not touched by it.
    made = launcher(triton)
    with pytest.raises(KeyError):
        launch(made, enter=fail)
    assert launch(made) == "launched"
    assert triton.library.told[-1] == ("end", 1)


def test_a_launch_that_cannot_be_begun_is_not_ended(triton) -> None:
    made = launcher(triton)
    launch(made)
    triton.library.begins = 3
    with pytest.raises(OSError, match="3"):
        launch(made)
    assert [what[0] for what in triton.library.told] == ["begin", "end", "begin"]
    assert len(triton.launches) == 1 and triton.launching.current() is None


def test_a_launch_whose_end_fails_is_ended_once(triton) -> None:
    triton.library.ends = 3
    with pytest.raises(OSError, match="3"):
        launch(launcher(triton))
    assert [what[0] for what in triton.library.told] == ["begin", "end"]


def test_what_changes_from_launch_to_launch_is_told(triton) -> None:
    made = launcher(triton)
    launch(made)
    launch(made)
    launch(made, grid=(1, 1, 1))
    launch(made, stream=12)
    triton.active.device = 4
    launch(made)
    made.launch_pdl = True
    launch(made)
    assert [what for what in triton.library.told if what[0] == "begin"] == [
        ("begin", 3, 11, "kernel", (8, 5, 6), 0),
        ("begin", 3, 11, "kernel", (8, 5, 6), 0),
        ("begin", 3, 11, "kernel", (2, 1, 1), 0),
        ("begin", 3, 12, "kernel", (8, 5, 6), 0),
        ("begin", 4, 11, "kernel", (8, 5, 6), 0),
        ("begin", 4, 11, "kernel", (8, 5, 6), 1),
    ]


def test_a_kernel_may_be_launched_in_the_middle_of_its_own_launch(triton) -> None:
    library, made = triton.library, launcher(triton)
    current, later = triton.launching.current, triton.launching.after_launch

    def inner(metadata: Any) -> None:
        assert len(library.open) == 2
        later(library.try_event_forgotten, 41)

    def outer(metadata: Any) -> None:
        launch(made, stream=12, enter=inner)
        assert current() == (1000, 5) and len(library.open) == 1
        later(library.try_event_forgotten, 42)

    launch(made, enter=outer)
    # The outer launch has its stream until its own end.
    assert [what[0] for what in library.told[-4:]] == ["end", "end", "forgotten", "forgotten"]
    assert library.told[-2:] == [("forgotten", 41), ("forgotten", 42)]
    assert library.open == [] and current() is None


def test_threads_launch_one_kernel_at_once(triton) -> None:
    made, library = launcher(triton), triton.library
    both = threading.Barrier(2, timeout=60)

    def meet(metadata: Any) -> None:
        both.wait()
        assert triton.launching.current() == (1000, 5)
        both.wait()

    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(launch, made, stream=s, enter=meet) for s in (11, 12)]
        assert [future.result() for future in futures] == ["launched"] * 2
    begun = [what for what in library.told if what[0] == "begin"]
    assert sorted(what[2] for what in begun) == [11, 12]
    assert library.open == []


def test_a_launch_whose_exit_hook_fails_was_made(triton) -> None:
    with pytest.raises(KeyError):
        launch(launcher(triton), leave=fail)
    assert triton.library.told[-1] == ("end", 1)


@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_launch_that_is_interrupted_is_ended(triton, when: str) -> None:
    library = triton.library
    call = getattr(library, f"launch_{when}")

    made, interrupts = launcher(triton), 1
    launch(made)

    def interrupted(*arguments: Any) -> int:
        # A signal's handler runs before the caller goes on.
        nonlocal interrupts
        interrupts -= 1
        if when == "begin" or interrupts < 0:
            call(*arguments)
        if interrupts == 0:
            raise KeyboardInterrupt
        return 0

    setattr(library, f"launch_{when}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(made)
    assert library.told[-1] == ("end", int(when == "end"))
    assert library.open == [] and triton.launching.current() is None
    launch(made)
    assert library.told[-1] == ("end", 1) and library.open == []


def test_a_launch_may_be_interrupted_anywhere(triton) -> None:
    """By a signal's handler that raises: Python runs them at calls and when they return."""
    made, library = launcher(triton), triton.library
    launch(made)

    def interrupted(at: int) -> bool:
        left = at

        def count(*_: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            launch(made, leave=lambda metadata: None)
        except KeyboardInterrupt:
            return True
        finally:
            left = 0
            sys.setprofile(before)
        return False

    at = 1
    while interrupted(at):
        assert library.open == [] and triton.launching.current() is None, at
        assert launch(made) == "launched"
        assert library.told[-1] == ("end", 1)
        at += 1
    assert at > 20


def test_captured_streams_are_not_refused(triton) -> None:
    made = launcher(triton)
    assert launch(made, stream=99) == "launched"
    # Whoever else asks is told the truth, and kernels that are not instrumented are none of ours.
    assert triton.active.utils.is_stream_capturing(99)
    with pytest.raises(RuntimeError):
        launch(launcher(triton, mode=""), stream=99)


def test_launches_that_may_start_early_share_out_what_was_zeroed_before(triton) -> None:
    made = launcher(triton, pdl=True, scratch=700)
    # 768 bytes each, of 64 at a time.
    for _ in range(65):
        launch(made)
    assert triton.zeroed == [768 * 64, 768 * 64]
    assert [list(given)[:1] for given in triton.scratches[:3]] == [[0], [768], [1536]]
    assert {len(given) for given in triton.scratches} == {700}
    # Streams share nothing, and nobody goes on where memory was given back.
    launch(made, stream=12)
    assert len(triton.zeroed) == 3
    triton.launching.scratch.drop()
    launch(made)
    assert len(triton.zeroed) == 4


@pytest.mark.parametrize(
    "why, options, stream",
    [
        ("starts in its turn", {"scratch": 700}, 11),
        ("is zeroed at each replay", {"scratch": 700, "pdl": True}, 99),
        ("is too much to have ahead", {"scratch": 3 << 20, "pdl": True}, 11),
        ("is of another tool", {"scratch": 700, "pdl": True, "mode": "other"}, 11),
    ],
)
def test_other_scratch_is_zeroed_at_each_launch(triton, why, options, stream) -> None:
    made = launcher(triton, **options)
    for _ in range(2):
        launch(made, stream=stream)
    assert triton.zeroed == [options["scratch"]] * 2, why


def test_what_comes_in_the_middle_of_a_launch_waits_for_its_end(triton) -> None:
    library, later = triton.library, triton.launching.after_launch

    def collect(metadata: Any) -> None:
        later(library.try_event_forgotten, 42)

    launch(launcher(triton), enter=collect)
    assert [what[0] for what in library.told] == ["begin", "end", "forgotten"]
    later(library.try_event_forgotten, 43)
    assert library.told[-1] == ("forgotten", 43)


def test_whether_a_kernel_is_opaque_is_asked_once(triton, tmp_path, monkeypatch) -> None:
    asked: list[bytes] = []

    def try_kernel_is_opaque(ir, answer, why, room) -> int:
        asked.append(ir)
        answer._obj.value = 1
        return 0

    triton.library.try_kernel_is_opaque = try_kernel_is_opaque
    file = tmp_path / "kernel.ttgir"
    file.write_text("tt.func")
    (load,) = sys.modules["triton"].knobs.runtime.kernel_load_end_hook.calls
    (unload,) = sys.modules["triton"].knobs.runtime.kernel_unload_hook.calls
    load(1, 0xF, "kernel", {"kernel.ttgir": str(file)}, "hash")
    for _ in range(3):
        launch(launcher(triton))
    assert asked == [b"tt.func"]
    unload(1, 0xF, "kernel", {}, "hash")
    launch(launcher(triton))
    assert asked == [b"tt.func"]


@pytest.mark.parametrize("there", ["", "nowhere", "kernel"])
@pytest.mark.parametrize("status", [0, 1])
def test_a_kernel_is_opaque_if_nobody_can_tell(triton, tmp_path, there: str, status: int) -> None:
    triton.library.try_kernel_is_opaque = lambda ir, answer, why, room: status
    (tmp_path / "kernel").write_text("tt.func")
    (load,) = sys.modules["triton"].knobs.runtime.kernel_load_end_hook.calls
    group = {"kernel.cubin": "cubin"}
    if there:
        group["kernel.ttgir"] = str(tmp_path / there)
    load(1, 0xF, "kernel", group, "hash")
    opaque = triton.launching._is_opaque(0xF)
    assert opaque == (there != "kernel" or status != 0)
