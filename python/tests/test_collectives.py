"""Collectives and ends of ranks that share memory: over a torch that does nothing."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Tensor:
    def __init__(self, is_cuda: bool = True) -> None:
        self.is_cuda = is_cuda


class ProcessGroup:
    def __init__(self, *members: int) -> None:
        self.members = members


class Work:
    done = False

    def wait(self) -> bool:
        return True

    def is_completed(self) -> bool:
        return self.done


class Distributed:
    """As much of `torch.distributed` as the plug-in uses, and what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Any] = []
        self.world = ProcessGroup(0, 1)
        self.module = ModuleType("torch.distributed")
        c10d = ModuleType("torch.distributed.distributed_c10d")

        def all_reduce(tensor: Any, group: Any = None, async_op: bool = False) -> Any:
            self.told.append("all_reduce")
            return Work() if async_op else None

        def barrier(group: Any = None) -> None:
            self.told.append("barrier")

        for module in (self.module, c10d):
            module.__dict__.update(all_reduce=all_reduce, barrier=barrier)
        self.module.__dict__.update(
            is_available=lambda: True,
            distributed_c10d=c10d,
            ProcessGroup=ProcessGroup,
            group=SimpleNamespace(WORLD=self.world),
            get_process_group_ranks=lambda group: list(group.members),
        )
        torch = ModuleType("torch")
        torch.__dict__.update(
            Tensor=Tensor,
            distributed=self.module,
            _C=SimpleNamespace(
                _cuda_getDevice=lambda: 1,
                _cuda_getCurrentRawStream=lambda device: 20 + device,
            ),
        )
        for module in (torch, self.module, c10d):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        self.plugin: Any = importlib.import_module("gsan._plugin.collectives")
        monkeypatch.setattr(self.plugin, "library", lambda: self)
        monkeypatch.setattr(self.plugin, "_groups", {})
        monkeypatch.setattr(self.plugin.events, "when_device_waited", [])
        monkeypatch.setattr(self.plugin.driver, "wait_for_stream", self.wait)
        monkeypatch.setattr(self.plugin.graphs, "library", lambda: self)
        monkeypatch.setattr(self.plugin.graphs, "_collectives", {})
        self.capture = 0
        self.plugin.plug_in(self.module)
        self.opened = 0

    def wait(self, stream: int) -> bool:
        self.told.append(("wait", stream))
        return True

    def capture_id(self, device: int, stream: int, capture: Any) -> None:
        assert (device, stream) == (1, 21)
        capture._obj.value = self.capture

    def group_open(self, device: int, ranks: Any, count: int, handle: Any) -> None:
        self.opened += 1
        handle._obj.value = 100 * self.opened

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.told.append((name, *arguments))

    def say(self) -> list[Any]:
        said = list(self.told)
        self.told.clear()
        return said


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Distributed:
    made = Distributed(monkeypatch)
    assert made.plugin.open_group(made.world, 1, [0, 1]) == 100
    return made


BEFORE, AFTER = ("group_before_collective", 100, 21), ("group_after_collective", 100, 21)


def test_a_collective_of_the_device_orders_streams(torch: Distributed) -> None:
    torch.module.all_reduce(Tensor())
    assert torch.say() == [BEFORE, "all_reduce", AFTER]


def test_a_captured_collective_is_noted_for_the_replays(torch: Distributed) -> None:
    torch.module.all_reduce(Tensor())
    assert torch.plugin.graphs._collectives == {}
    torch.capture = 7
    for _ in range(2):
        torch.module.all_reduce(Tensor())
    assert torch.plugin.graphs._collectives == {7: [100]}


@pytest.mark.parametrize("arguments", [("barrier",), ("all_reduce", Tensor(is_cuda=False))])
def test_a_collective_of_hosts_waits_for_what_is_told(torch: Distributed, arguments: Any) -> None:
    name, *given = arguments
    getattr(torch.module, name)(*given)
    after = [AFTER, ("wait", 21), ("try_stream_synchronized", 1, 21)]
    assert torch.say() == [BEFORE, ("wait", 21), name, *after]


def test_an_asynchronous_collective_is_over_where_it_was_waited_for(torch: Distributed) -> None:
    work = torch.module.all_reduce(Tensor(), None, True)
    assert torch.say() == [BEFORE, "all_reduce"]
    work.wait()
    assert torch.say() == [AFTER]


def test_an_asynchronous_collective_is_over_when_the_device_was_waited_for(
    torch: Distributed,
) -> None:
    work = torch.module.all_reduce(Tensor(), async_op=True)
    torch.say()
    torch.plugin._device_waited()
    assert torch.say() == []
    work._work.done = True
    torch.plugin._device_waited()
    seen = [AFTER, ("wait", 21), ("try_stream_synchronized", 1, 21)]
    assert torch.say() == seen
    assert work.is_completed() and torch.say() == []


def test_groups_of_the_same_devices_are_one(torch: Distributed) -> None:
    other = ProcessGroup(0, 1)
    assert torch.plugin.open_group(other, 1, [0, 1]) == 100
    torch.module.all_reduce(Tensor(), group=other)
    assert torch.say() == [BEFORE, "all_reduce", AFTER]
    torch.plugin.close_groups()
    assert torch.say() == [("group_close", 100)]
    torch.module.all_reduce(Tensor())
    assert torch.say() == ["all_reduce"]


def test_a_collective_counts_for_groups_inside_its_own(torch: Distributed) -> None:
    torch.module.all_reduce(Tensor(), group=ProcessGroup(0, 1, 2, 3))
    assert torch.say() == [BEFORE, "all_reduce", AFTER]
    # Of a group that not all of its ranks take part in, or none of its groups, nothing is told.
    for group in (ProcessGroup(1, 2), -100):
        torch.module.all_reduce(Tensor(), group=group)
        assert torch.say() == ["all_reduce"]


def test_a_rank_that_ends_leaves_its_groups_and_unmaps_nothing(
    torch: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gsan import symmetric_memory as shared

    monkeypatch.setattr(shared, "collectives", torch.plugin)
    monkeypatch.setattr(shared, "library", lambda: torch)
    monkeypatch.setattr(shared, "_rendezvous", {1: (torch.world, 5)})
    key = ("world", 4096)
    handle = shared.GSanSymmetricMemoryHandle(
        group=torch.world,
        rank=0,
        world_size=2,
        device_index=1,
        buffer_size=4,
        peer_ptrs=(4096, 8192),
        peer_offsets=(0, 0),
        cache_key=key,
    )
    shared._cache[key] = handle
    # A child that was forked has its parent's handles, and leaves them alone.
    monkeypatch.setattr(shared, "_process", os.getpid() + 1)
    shared._at_exit()
    assert torch.say() == []
    monkeypatch.setattr(shared, "_process", os.getpid())
    shared._at_exit()
    assert torch.say() == [("group_close", 100), ("rendezvous_close", 5)]
    handle.close()
    assert torch.say() == []
