"""Edges of graphs that are built by hand."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import gsan.graph
import pytest
from gsan.graph import GraphLaunch
from gsan.graph import GraphNode as Node
from gsan.graph import dependency_frontiers as frontiers


def test_nodes_that_are_no_kernels_are_passed_through() -> None:
    nodes = [Node(), Node((0,)), Node((0,), is_kernel=False), Node((1, 2))]
    assert frontiers(nodes) == (((), (0,), (0,), (0, 1)), ((), (), (), ()))


def test_programmatic_edges_stand_apart() -> None:
    assert frontiers([Node(), Node((), (0,))]) == (((), ()), ((), (0,)))


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ([Node((0,))], "must refer to earlier nodes: node 0 names 0"),
        ([Node(), Node((7,))], "must refer to earlier nodes: node 1 names 7"),
        ([Node((-1,))], "must refer to earlier nodes"),
        ([Node(is_kernel=False), Node((), (0,))], "predecessor must be a kernel"),
        ([Node(), Node((), (0,), is_kernel=False)], "require kernel nodes"),
    ],
)
def test_edges_that_cannot_be(nodes: list[Node], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        frontiers(nodes)


@pytest.fixture
def told(monkeypatch) -> list[Any]:
    """How replays ended, by a library that only says so."""
    told: list[Any] = []
    library = SimpleNamespace(
        replay_end=lambda *given: told.append(given),
        try_replay_end=lambda *given: told.append(given),
        event_recorded=lambda *given: None,
        try_event_forgotten=lambda event: None,
    )
    monkeypatch.setattr(gsan.graph, "library", lambda: library)
    return told


@pytest.mark.parametrize("finished", [True, False])
def test_a_launch_that_nobody_finishes_is_ended_when_it_goes(told, finished: bool) -> None:
    plan: Any = SimpleNamespace(device=0, boundary_kernels=(None, None))
    made = GraphLaunch(plan, stream=11, replay=7)
    if finished:
        made.finish()
    del made
    gc.collect()
    assert told == [(7, 1 if finished else 0)]


def test_a_launch_that_cannot_be_made_does_not_take_place(told) -> None:
    class Plan:
        device = 0

        @property
        def boundary_kernels(self) -> Any:
            raise OSError("no driver")

    with pytest.raises(OSError, match="no driver"):
        GraphLaunch(Plan(), stream=11, replay=7)  # type: ignore[arg-type]
    gc.collect()
    assert told == [(7, 0)]


def test_a_stream_is_its_handle() -> None:
    stream: Any = object()
    said = r"its CUDA handle \(torch.cuda.Stream.cuda_stream\)"
    with pytest.raises(TypeError, match=said):
        gsan.graph.record_completion(0, stream)
    with pytest.raises(TypeError, match=said):
        gsan.graph.acquire_completions(0, stream, ())
