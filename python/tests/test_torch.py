"""What PyTorch does, told to the ordering: over a torch that does nothing."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import time
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Library:
    """Notes what it is told, in the order of the calls."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told
        self.path = "libgsan.so"

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            shown = []
            for argument in arguments:
                if hasattr(argument, "_obj"):
                    if name == "try_find_allocation":
                        argument._obj.address, argument._obj.bytes = 1000, 500
                    elif hasattr(argument._obj, "value"):
                        argument._obj.value = 77
                    shown.append("out")
                else:
                    shown.append(getattr(argument, "value", argument))
            self.told.append((name.removeprefix("try_"), *shown))
            return 0

        return call


class Torch:
    """As much of PyTorch as the plug-in uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.callbacks: dict[str, Any] = {}
        self.told: list[Any] = []
        self.pools = 0
        outer = self

        class Base:
            device = SimpleNamespace(index=1, type="cuda")
            done = True

            def query(self) -> bool:
                return self.done

        class AnyEvent(Base):
            event_id = 5

            def elapsed_time(self, end_event: Any) -> float:
                if not end_event.done:
                    raise RuntimeError("not ready")
                return 0.5

        class Event(AnyEvent):
            cuda_event = 5

            def query(self) -> bool:
                return self.done

            def elapsed_time(self, end_event: Any) -> float:
                return AnyEvent.elapsed_time(self, end_event)

        class AnyStream(Base):
            stream_id, device_index, device_type = 3, 1, 1

        class Stream(AnyStream):
            cuda_stream = 6
            makers = 0
            at_once = 0

            def query(self) -> bool:
                return self.done

            def __new__(cls, **known: int) -> Stream:
                Stream.makers += 1
                Stream.at_once = max(Stream.at_once, Stream.makers)
                time.sleep(0.01)
                Stream.makers -= 1
                return super().__new__(cls)

        class Tensor:
            is_cuda = True
            device = SimpleNamespace(index=1)

            def record_stream(self, s: Any) -> None:
                outer.told.append("record_stream")

            def untyped_storage(self) -> Any:
                return SimpleNamespace(data_ptr=lambda: 1024, nbytes=lambda: 64)

        class CUDAGraph:
            def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
                outer.told.append(("capture", pool, capture_error_mode))

            def capture_end(self) -> None:
                outer.told.append("captured")

            fails = False

            def replay(self) -> None:
                if self.fails:
                    raise RuntimeError("no memory")
                outer.told.append("replay")

            def reset(self) -> None:
                outer.told.append("reset")

        class MemPool:
            def __init__(self, allocator: Any) -> None:
                outer.pools += 1
                self.id = (0, outer.pools)

            def use_count(self) -> int:
                return 1

        trace = ModuleType("torch.cuda._gpu_trace")
        names = "event_record event_wait event_deletion stream_synchronization"
        names += " event_synchronization device_synchronization"
        for name in (names + " memory_allocation memory_deallocation").split():
            function = f"register_callback_for_{name}"
            setattr(trace, function, lambda act, name=name: self.callbacks.update({name: act}))
        cuda = ModuleType("torch.cuda")
        cuda.__dict__.update(
            Event=Event,
            Stream=Stream,
            CUDAGraph=CUDAGraph,
            MemPool=MemPool,
            _gpu_trace=trace,
            graph_pool_handle=lambda: (9, 9),
            graphs=SimpleNamespace(),
            memory=SimpleNamespace(
                CUDAPluggableAllocator=lambda *a: SimpleNamespace(allocator=lambda: a)
            ),
            device_count=lambda: 2,
            is_initialized=lambda: True,
            synchronize=lambda: outer.told.append(("synchronize",)),
            empty_cache=lambda: None,
            _lazy_call=lambda act: act(),
        )
        torch = ModuleType("torch")
        pool = lambda what: lambda device, id: self.told.append((what, device, id))  # noqa: E731
        torch.__dict__.update(
            cuda=cuda,
            Tensor=Tensor,
            Event=AnyEvent,
            Stream=AnyStream,
            _C=SimpleNamespace(
                _activate_gpu_trace=lambda: None,
                _cuda_getDevice=lambda: 1,
                _cuda_getCurrentRawStream=lambda device: 20 + device,
                _cuda_maybeExchangeDevice=lambda device: 0,
                _cuda_beginAllocateToPool=pool("begin"),
                _cuda_endAllocateToPool=pool("end"),
                _cuda_releasePool=pool("release"),
                _cuda_clearCublasWorkspaces=lambda: self.told.append(("workspaces",)),
            ),
        )
        self.module, self.Event, self.Stream = torch, Event, Stream
        self.AnyEvent, self.AnyStream = AnyEvent, AnyStream
        self.Tensor, self.CUDAGraph = Tensor, CUDAGraph
        for module in (torch, cuda, trace):
            monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch(monkeypatch)
    names = ("launching", "driver", "memory", "events", "graphs")
    for name in names:
        monkeypatch.delitem(sys.modules, f"gsan._plugin.{name}", raising=False)
    plugin = {name: importlib.import_module(f"gsan._plugin.{name}") for name in names}
    library = Library(made.told)
    for name in ("launching", "memory", "events", "graphs"):
        monkeypatch.setattr(plugin[name], "library", lambda: library)
    driver = plugin["driver"]

    def waits(name: str) -> Any:
        def wait(*arguments: Any) -> bool:
            made.told.append((name, *arguments))
            return True

        return wait

    for name in ("wait_for_stream", "wait_for_event", "wait_for_device"):
        monkeypatch.setattr(driver, name, waits(name))
    monkeypatch.setattr(driver, "is_capturing", lambda stream: stream == 99)
    plugin["events"].plug_in(made.module)
    plugin["graphs"].plug_in(made.module)
    made.plugin = plugin  # type: ignore[attr-defined]
    return made


def told(torch: Torch) -> list[Any]:
    """What was told since the last question."""
    said = list(torch.told)
    torch.told.clear()
    return said


def test_records_and_waits_are_told_with_the_device_that_is_current(torch: Torch) -> None:
    torch.callbacks["event_record"](5, 6)
    torch.callbacks["event_wait"](5, 7)
    torch.callbacks["event_deletion"](5)
    assert told(torch) == [
        ("event_recorded", 5, 1, 6),
        ("event_waited", 5, 1, 7),
        ("event_forgotten", 5),
    ]


def test_what_the_host_waits_for_is_marked_when_it_has_come(torch: Torch) -> None:
    torch.callbacks["stream_synchronization"](6)
    torch.callbacks["event_synchronization"](5)
    torch.callbacks["device_synchronization"]()
    assert told(torch) == [
        ("wait_for_stream", 6),
        ("stream_synchronized", 1, 6),
        ("wait_for_event", 5),
        ("event_synchronized", 5),
        ("wait_for_device",),
        ("device_synchronized", 1),
    ]


def test_a_captured_stream_is_not_waited_for(torch: Torch) -> None:
    torch.callbacks["stream_synchronization"](99)
    assert told(torch) == []


def test_queries_count_when_they_say_done(torch: Torch) -> None:
    event, stream = torch.Event(), torch.Stream()
    assert event.query() and stream.query()
    assert told(torch) == [("event_synchronized", 5), ("stream_synchronized", 1, 6)]
    event.done = stream.done = False
    assert not event.query() and not stream.query()
    assert told(torch) == []


def test_queries_of_any_device_s_classes_count(torch: Torch) -> None:
    event, stream = torch.AnyEvent(), torch.AnyStream()
    assert event.query() and stream.query()
    assert told(torch) == [("event_synchronized", 5), ("stream_synchronized", 1, 6)]
    event.device = stream.device = SimpleNamespace(index=1, type="cpu")
    assert event.query() and stream.query()
    event.device = None  # type: ignore[assignment]
    assert event.query()
    assert told(torch) == []


@pytest.mark.parametrize("kind", ["Event", "AnyEvent"])
def test_a_time_that_can_be_told_ends_with_an_event_that_came(torch: Torch, kind: str) -> None:
    first, last = (getattr(torch, kind)() for _ in range(2))
    assert first.elapsed_time(last) == 0.5
    assert set(told(torch)) == {("event_synchronized", 5)}
    last.done = False
    with pytest.raises(RuntimeError, match="not ready"):
        first.elapsed_time(last)
    assert told(torch) == []


def test_methods_of_pytorch_s_own_classes_can_be_wrapped(python) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    code = (
        "import torch\n"
        "from gsan._plugin.events import _wrap\n"
        "event, asked = torch.Event('cpu'), []\n"
        "assert event.query()\n"
        "_wrap(torch.Event, 'query', lambda q: lambda self: (asked.append(self), q(self))[1])\n"
        "assert event.query() and torch.Event('cpu').query() and asked[0] is event\n"
        "print(len(asked))\n"
    )
    ended = python(code)
    assert ended.stdout.strip() == "2", ended.stderr


def test_streams_are_made_one_by_one(torch: Torch) -> None:
    threads = [threading.Thread(target=torch.Stream) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.Stream.at_once == 1


def test_memory_that_is_used_elsewhere_is_followed_from_then_on(torch: Torch) -> None:
    assert "memory_allocation" not in torch.callbacks
    torch.Tensor().record_stream(torch.Stream())
    assert told(torch) == ["record_stream", ("memory_used", 1024, 64, 1, 6)]
    torch.callbacks["memory_deallocation"](1024)
    # The segment at 1000 has 500 bytes: whoever gets any of it takes what was freed behind.
    torch.callbacks["memory_allocation"](1024)
    assert told(torch) == [
        ("memory_freed", 1024),
        ("find_allocation", 1024, "out"),
        ("memory_handed_out", 1024, 476, 1, 21),
    ]


def test_a_graph_is_captured_replayed_and_forgotten(torch: Torch) -> None:
    graph = torch.CUDAGraph()
    graph.capture_begin(capture_error_mode="relaxed")
    graph.capture_end()
    graph.replay()
    graph.reset()
    assert told(torch) == [
        ("capture", None, "relaxed"),
        ("capture_id", 1, 21, "out"),
        "captured",
        ("capture_ended", 1, 77, "out"),
        ("replay_begin", 77, 1, 21, "out"),
        "replay",
        ("replay_end", 77, 1),
        "reset",
        ("graph_close", 77),
    ]


def test_a_replay_that_fails_is_taken_back(torch: Torch) -> None:
    graph = torch.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    graph.fails = True
    with pytest.raises(RuntimeError, match="no memory"):
        graph.replay()
    assert told(torch)[-1] == ("replay_end", 77, 0)


def test_a_replay_that_is_interrupted_is_ended(torch: Torch, monkeypatch) -> None:
    graph = torch.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    library = torch.plugin["graphs"].library()  # type: ignore[attr-defined]
    begin = library.replay_begin

    def interrupted(*arguments: Any) -> None:
        begin(*arguments)
        raise KeyboardInterrupt

    library.replay_begin = interrupted
    with pytest.raises(KeyboardInterrupt):
        graph.replay()
    assert told(torch)[-1] == ("replay_end", 77, 0)


def test_captures_get_pools_of_their_own_while_memory_is_managed(torch: Torch) -> None:
    pools = torch.plugin["memory"].pools  # type: ignore[attr-defined]
    assert torch.module.cuda.graph_pool_handle() == (9, 9)  # type: ignore[attr-defined]
    pools.want()
    assert told(torch) == [("begin", 0, (0, 1)), ("begin", 1, (0, 2))]
    first, second = torch.CUDAGraph(), torch.CUDAGraph()
    for graph in (first, second):
        graph.capture_begin()
    given = [entry[1] for entry in told(torch) if entry[0] == "capture"]
    assert given == [(0, 3), (0, 4)]
    assert torch.module.cuda.graph_pool_handle() == (0, 5)  # type: ignore[attr-defined]
    first.reset()
    assert [tuple(id) for id in pools._captures] == [(0, 4), (0, 5)]
    told(torch)
    pools.end()
    assert told(torch) == [
        ("end", 0, (0, 1)),
        ("release", 0, (0, 1)),
        ("end", 1, (0, 2)),
        ("release", 1, (0, 2)),
    ]
    pools.end()
    assert told(torch) == []


def test_a_graphs_pool_serves_the_next_capture_when_the_graph_is_gone(torch: Torch) -> None:
    pools = torch.plugin["memory"].pools  # type: ignore[attr-defined]
    pools.want()
    first, second, third, fourth = (torch.CUDAGraph() for _ in range(4))
    first.capture_begin()
    first.capture_end()
    first.reset()
    told(torch)
    second.capture_begin()
    # Work of the first graph may still run when it is reset.
    assert told(torch)[:2] == [("synchronize",), ("capture", (0, 3), "global")]
    # Its pool is the second one's now.
    third.capture_begin()
    third.capture_end()
    third.reset()
    told(torch)
    # The second is still being captured: nobody may wait for the device.
    fourth.capture_begin()
    assert told(torch)[0] == ("capture", (0, 5), "global")


def test_a_pool_goes_only_when_no_allocation_goes_to_a_pool(torch: Torch) -> None:
    memory = torch.plugin["memory"]  # type: ignore[attr-defined]
    memory.pools.want()
    pool = memory.new_pool()
    known = weakref.ref(pool)
    del pool
    gc.collect()
    assert known() is not None
    memory.pools.drop()
    assert known() is None
    # Nothing is allocated in pools now.
    pool = memory.new_pool()
    known = weakref.ref(pool)
    del pool
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("times, status", [(3, "GSAN_LIVE"), (99, "GSAN_LIVE"), (1, "GSAN_CUDA")])
def test_a_reset_waits_for_what_other_threads_let_go(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, times: int, status: str
) -> None:
    from gsan import _install
    from gsan._errors import Error

    calls: list[str] = []

    def reset() -> None:
        calls.append("reset")
        if len(calls) <= times:
            raise Error("1 allocation is live", status)

    monkeypatch.setattr(_install, "library", lambda: SimpleNamespace(reset=reset))
    monkeypatch.setattr(_install, "loaded", lambda: True)
    monkeypatch.setattr(_install, "_PATIENCE", (0.0,) * 6)
    if times == 3:
        _install.reset()
        assert len(calls) == 4
        return
    # Whoever holds memory is told so; what is no matter of time is not tried again.
    with pytest.raises(AssertionError if times == 99 else Error, match="is live"):
        _install.reset()
    assert len(calls) == (7 if times == 99 else 1)


def test_what_pytorch_gave_to_cublas_goes_with_the_pools(torch: Torch) -> None:
    pools = torch.plugin["memory"].pools  # type: ignore[attr-defined]
    pools.want()
    told(torch)
    pools.drop()
    # Before the pools are left: what comes back belongs to them.
    assert told(torch)[:2] == [("synchronize",), ("workspaces",)]


def test_pools_are_made_anew_after_they_were_dropped(torch: Torch) -> None:
    pools = torch.plugin["memory"].pools  # type: ignore[attr-defined]
    pools.want()
    pools.drop()
    told(torch)
    assert pools.wanted
    pools.want()
    assert told(torch) == [("begin", 0, (0, 3)), ("begin", 1, (0, 4))]
