"""Edges of graphs that are built by hand."""

from __future__ import annotations

import pytest
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
        ([Node((0,))], "must refer to earlier nodes"),
        ([Node((1,)), Node()], "must refer to earlier nodes"),
        ([Node((-1,))], "must refer to earlier nodes"),
        ([Node(is_kernel=False), Node((), (0,))], "predecessor must be a kernel"),
        ([Node(), Node((), (0,), is_kernel=False)], "require kernel nodes"),
    ],
)
def test_edges_that_cannot_be(nodes: list[Node], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        frontiers(nodes)
