"""CUDA graphs that a program builds by hand, and completions that it hands from stream to stream.

A `GraphPlan` knows the nodes of a graph and their edges. Each kernel node has hidden arguments that
never change (`node_launch_args`). Around every launch of the graph stands a `GraphLaunch`. Nothing
of this waits for anything: the program orders its work, and tells here how.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from ._native import LaunchInfo, library

#: Completions are events that only the ordering knows. No address of CUDA's is so large.
_events = itertools.count(0xC0DE_0000_0000_0000)


@dataclass(frozen=True)
class GraphNode:
    """A node of a graph, in the order in which nodes are numbered.

    `dependencies` are the numbers of nodes that it starts after; of `programmatic_dependencies` it
    waits for itself, with `griddepcontrol.wait`.
    """

    dependencies: tuple[int, ...] = ()
    programmatic_dependencies: tuple[int, ...] = ()
    is_kernel: bool = True


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel that a program adds to its graph: CUfunction, CTAs, threads, bytes, arguments."""

    function: int
    grid: int
    block: int
    shared: int
    arguments: tuple[int, ...]


def dependency_frontiers(
    nodes: Sequence[GraphNode],
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """For each node the kernels that it starts right after, and its programmatic predecessors.

    Nodes that are no kernels are passed through.

    Raises:
        ValueError: an edge that does not go forward, or a programmatic one with a node that is no
        kernel.
    """
    last: list[tuple[int, ...]] = []
    frontiers = []
    for number, node in enumerate(nodes):
        edges = (*node.dependencies, *node.programmatic_dependencies)
        for edge in edges:
            if not 0 <= edge < number:
                raise ValueError(
                    f"Graph dependencies must refer to earlier nodes: node {number} names {edge}"
                )
        if node.programmatic_dependencies:
            if not node.is_kernel:
                raise ValueError("Programmatic dependencies require kernel nodes")
            if not all(nodes[edge].is_kernel for edge in node.programmatic_dependencies):
                raise ValueError("A programmatic predecessor must be a kernel")
        before = {kernel for edge in node.dependencies for kernel in last[edge]}
        frontiers.append(tuple(sorted(before)))
        last.append((number,) if node.is_kernel else frontiers[-1])
    return tuple(frontiers), tuple(tuple(node.programmatic_dependencies) for node in nodes)


class Completion:
    """What had been given to a stream at some point, for others to start after."""

    def __init__(self, device: int, clock: int | None = None) -> None:
        self.device = device
        self.clock = next(_events) if clock is None else clock
        self._forget = weakref.finalize(self, _forget, self.clock)


def _forget(event: int) -> None:
    library().try_event_forgotten(event)


def _check_stream(stream: int) -> None:
    if not isinstance(stream, int):
        raise TypeError(
            f"a stream is its CUDA handle (torch.cuda.Stream.cuda_stream), not {stream!r}"
        )


def record_completion(device: int, stream: int) -> Completion:
    """The completion of all that was given to a stream so far, a CUDA handle."""
    _check_stream(stream)
    completion = Completion(device)
    library().event_recorded(completion.clock, device, stream)
    return completion


def acquire_completions(device: int, stream: int, dependencies: Iterable[Completion]) -> None:
    """The next launches of a stream start after these: the program made sure of that."""
    _check_stream(stream)
    for completion in dependencies:
        library().event_waited(completion.clock, device, stream)


class GraphLaunch:
    """One launch of a graph, between `GraphPlan.prepare_launch` and `finish`.

    `begin` and `end` are what the boundary kernels of the graph are to be set to, `completion` is
    what others can start after once the launch is finished.
    """

    def __init__(self, plan: GraphPlan, stream: int, replay: int) -> None:
        self._plan, self._stream = plan, stream
        self._replay: int | None = replay
        self._abandon = weakref.finalize(self, _abandon, replay)
        self._abandon.atexit = False
        self.begin, self.end = plan.boundary_kernels
        self.completion = Completion(plan.device)

    def finish(self, submitted: bool = True) -> None:
        """The graph was launched, or could not be."""
        replay, self._replay = self._replay, None
        if replay is None:
            return
        self._abandon.detach()
        library().replay_end(replay, int(submitted))
        event, device = self.completion.clock, self._plan.device
        library().event_recorded(event, device, self._stream)


def _abandon(replay: int) -> None:
    """A launch that nobody can finish any more did not take place; its stream goes on."""
    from ._plugin.launching import after_launch

    after_launch(library().try_replay_end, replay, 0)


_live_plans: weakref.WeakSet[GraphPlan] = weakref.WeakSet()


class GraphPlan:
    """The plan of a graph whose nodes the program adds itself, on a device.

    Raises:
        ValueError: see `dependency_frontiers`.
    """

    def __init__(self, device: int, nodes: Iterable[GraphNode], stream: int = 0) -> None:
        self.device = device
        self.nodes = tuple(nodes)
        self.stream = stream
        self._graph: int | None = None
        self._launches: dict[int, tuple[int, int]] = {}
        dependency_frontiers(self.nodes)
        self._build()
        _live_plans.add(self)

    def _build(self) -> None:
        builder = c_void_p()
        library().graph_begin(self.device, byref(builder))
        graph = c_void_p()
        try:
            self._add_nodes(builder)
        except BaseException:
            # Nobody ends it later.
            if library().try_graph_finish(builder, byref(graph)) == 0:
                library().try_graph_close(graph)
            raise
        library().graph_finish(builder, byref(graph))
        self._graph = graph.value
        self._close = weakref.finalize(self, _close_graph, graph.value)

    def _add_nodes(self, builder: c_void_p) -> None:
        numbers: list[int] = []
        for place, node in enumerate(self.nodes):
            dependencies = _array([numbers[edge] for edge in node.dependencies])
            added = c_uint32()
            if not node.is_kernel:
                library().graph_other(builder, dependencies, len(dependencies), byref(added))
            else:
                programmatic = _array([numbers[edge] for edge in node.programmatic_dependencies])
                info = LaunchInfo(kernel=None, programmatic=int(bool(len(programmatic))))
                info.grid[:] = info.block[:] = (1, 1, 1)
                table, index = c_uint64(), c_uint64()
                library().graph_kernel(
                    builder,
                    dependencies,
                    len(dependencies),
                    programmatic,
                    len(programmatic),
                    byref(info),
                    byref(added),
                    byref(table),
                    byref(index),
                )
                self._launches[place] = (table.value, index.value)
            numbers.append(added.value)

    @property
    def boundary_kernels(self) -> tuple[KernelLaunch, KernelLaunch]:
        """Kernels that the program puts before and behind all nodes. Here they do nothing: what is
        to be joined is joined around the graph.
        """
        nothing = KernelLaunch(_no_operation(self.device), 1, 1, 0, ())
        return nothing, nothing

    def node_launch_args(self, node: int) -> tuple[int, int, int]:
        """The hidden arguments of a kernel node: global state, launch table, launch index."""
        if node not in self._launches:
            raise ValueError(f"node {node} is no kernel of this plan")
        from ._memory import get_device_rank, get_global_state_pointer

        state = get_global_state_pointer()
        state += get_device_rank(self.device) * library().state_stride()
        return (state, *self._launches[node])

    def prepare_launch(self, stream: int, dependencies: Iterable[Completion] = ()) -> GraphLaunch:
        """Right before the graph is launched on a stream, after `dependencies`."""
        if self._graph is None:
            raise RuntimeError("the plan is closed")
        acquire_completions(self.device, stream, dependencies)
        replay = c_void_p()
        library().replay_begin(self._graph, self.device, stream, byref(replay))
        assert replay.value is not None
        return GraphLaunch(self, stream, replay.value)

    def close(self) -> None:
        """The graph is gone, and will not be launched again."""
        if self._graph is not None:
            self._graph = None
            self._close()
        _live_plans.discard(self)


def _close_graph(graph: int | None) -> None:
    if graph is not None:
        library().try_graph_close(graph)


def _array(numbers: list[int]) -> Any:
    return (c_uint32 * len(numbers))(*numbers)


_NO_OPERATION = b""".version 6.0
.target sm_70
.address_size 64
.visible .entry gsan_no_operation() { ret; }
"""


@functools.cache
def _no_operation(device: int) -> int:
    """A kernel that does nothing, as a CUfunction."""
    import torch

    from ._plugin.driver import check, cuda

    with torch.cuda.device(device):
        torch.cuda.current_stream().query()
        module, function = c_void_p(), c_void_p()
        code = cuda().cuModuleLoadData(byref(module), c_char_p(_NO_OPERATION))
        check(code, "cuModuleLoadData")
        code = cuda().cuModuleGetFunction(byref(function), module, b"gsan_no_operation")
        check(code, "cuModuleGetFunction")
    assert function.value is not None
    return function.value
