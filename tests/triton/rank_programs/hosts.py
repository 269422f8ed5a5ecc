"""Rank 0 writes memory of rank 1, which reads it in a kernel of its own: what the hosts do between
the two orders them, or does not.
"""

import itertools
from collections.abc import Callable

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from gsan_programs import Case, Race
from gsan_ranks import world

CTAS = 16
BLOCK = 1024


@triton.jit
def write(x, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, i)  # @write


@triton.jit
def read(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))  # @read


def run(between: Callable[[], None], before: Callable[[], None] | None, check: bool) -> None:
    ranks = world()
    data = ranks.take(CTAS * BLOCK)[1]
    out = torch.zeros(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    ranks.barrier()
    if before is not None:
        before()
    if ranks.me == 0:
        write[(CTAS,)](data, B=BLOCK)
    between()
    if ranks.me == 1:
        read[(CTAS,)](data, out, B=BLOCK)
        torch.cuda.synchronize()
        if check:
            assert torch.equal(out.cpu(), torch.arange(CTAS * BLOCK, dtype=torch.int32))
    torch.cuda.synchronize()


def host_barrier() -> None:
    torch.cuda.synchronize()
    dist.barrier()


def objects() -> None:
    torch.cuda.synchronize()
    every = [None] * world().size
    dist.all_gather_object(every, world().me)


def all_reduce() -> None:
    x = torch.full((1,), 1 + world().me, dtype=torch.int32, device="cuda")
    dist.all_reduce(x)
    assert x.item() == world().size * (world().size + 1) // 2


def all_reduce_and_wait() -> None:
    x = torch.ones(1, device="cuda")
    dist.all_reduce(x, async_op=True).wait()


def broadcast() -> None:
    dist.broadcast(torch.ones(1, device="cuda"), 0)


_numbers = itertools.count()


def told() -> None:
    """The hosts know that one comes after the other, and no device does."""
    torch.cuda.synchronize()
    store = dist.distributed_c10d._get_default_store()
    key = f"written {next(_numbers)}"
    if world().me == 0:
        store.set(key, "yes")
    store.wait([key])


_works: list = []


def all_reduce_without_wait() -> None:
    _works.append((x := torch.ones(1, device="cuda"), dist.all_reduce(x, async_op=True)))


def nothing() -> None:
    pass


def on_other_stream(waits: bool) -> None:
    """The write goes to another stream, which the one with the barrier waits for or not."""
    ranks = world()
    data = ranks.take(CTAS * BLOCK)[1]
    out = torch.zeros(CTAS * BLOCK, dtype=torch.int32, device="cuda")
    ranks.barrier()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    if ranks.me == 0:
        with torch.cuda.stream(side):
            write[(CTAS,)](data, B=BLOCK)
    if waits:
        torch.cuda.current_stream().wait_stream(side)
    ranks.barrier()
    if ranks.me == 1:
        read[(CTAS,)](data, out, B=BLOCK)
    torch.cuda.synchronize()
    if waits and ranks.me == 1:
        assert torch.equal(out.cpu(), torch.arange(CTAS * BLOCK, dtype=torch.int32))


RACE = (Race("write", "read"),)

CASES = [
    Case("barrier", lambda: run(lambda: world().barrier(), None, True)),
    Case("barrier of hosts", lambda: run(host_barrier, None, True)),
    Case("objects", lambda: run(objects, None, True)),
    Case("all_reduce", lambda: run(all_reduce, None, True)),
    Case("all_reduce, wait", lambda: run(all_reduce_and_wait, None, True)),
    Case("broadcast", lambda: run(broadcast, None, True)),
    Case("another stream", lambda: on_other_stream(True)),
    Case("hosts alone", lambda: run(told, None, False), races=RACE),
    Case("nothing", lambda: run(nothing, None, False), races=RACE),
    Case("barrier too early", lambda: run(nothing, lambda: world().barrier(), False), races=RACE),
    Case("all_reduce too early", lambda: run(nothing, all_reduce, False), races=RACE),
    Case("all_reduce without wait", lambda: run(all_reduce_without_wait, None, False), races=RACE),
    Case("another stream, no wait", lambda: on_other_stream(False), races=RACE),
]
