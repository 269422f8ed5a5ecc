"""Tiles that programs take from a counter, from their own queues, and from those of others."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 24
TASKS = 192
BLOCK = 128


@triton.jit
def work(out, task, rounds, B: tl.constexpr):
    """Later tasks take longer."""
    i = tl.arange(0, B)
    v = i
    for _ in range(task * rounds):
        v = v * 1664525 + 1013904223
    tl.store(out + task * B + i, tl.where(v == 7, task, task + 1))  # @task


@triton.jit
def dynamic(next_task, out, tasks, rounds, ATOMIC: tl.constexpr, B: tl.constexpr):
    if ATOMIC:
        task = tl.atomic_add(next_task, 1, sem="relaxed")
    else:
        task = tl.load(next_task)  # @next
        tl.store(next_task, task + 1)  # @taken
    tries = 0
    while (task < tasks) & (tries < 10_000):
        tries += 1
        work(out, task, rounds, B)
        if ATOMIC:
            task = tl.atomic_add(next_task, 1, sem="relaxed")
        else:
            task = tl.load(next_task)  # @after
            tl.store(next_task, task + 1)  # @moved


@triton.jit
def stealing(queues, out, each, rounds, ATOMIC: tl.constexpr, B: tl.constexpr):
    """A queue is a range in 64 bits: owners take from its begin, others from its end."""
    p = tl.program_id(0)
    ctas = tl.num_programs(0)
    for turn in range(ctas):
        queue = queues + (p + turn) % ctas
        left = True
        tries = 0
        while left & (tries < 10_000):
            tries += 1
            if ATOMIC:
                seen = tl.atomic_load(queue, sem="relaxed")
            else:
                seen = tl.load(queue)  # @seen
            begin = (seen & 0xFFFFFFFF).to(tl.int32)
            end = (seen >> 32).to(tl.int32)
            left = begin < end
            if left:
                if turn == 0:
                    task, begin = begin, begin + 1
                else:
                    task, end = end - 1, end - 1
                new = (end.to(tl.int64) << 32) | begin.to(tl.int64)
                if ATOMIC:
                    mine = tl.atomic_cas(queue, seen, new, sem="relaxed") == seen
                else:
                    tl.store(queue, new)  # @new
                    mine = True
                if mine:
                    work(out, task, rounds, B)


def run_dynamic(atomic: bool) -> None:
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(TASKS, BLOCK, dtype=torch.int32, device="cuda")
    dynamic[(CTAS,)](counter, out, TASKS, 20, ATOMIC=atomic, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if atomic:
        assert torch.equal(out[:, 0].cpu(), torch.arange(1, TASKS + 1, dtype=torch.int32))


def run_stealing(atomic: bool) -> None:
    each = TASKS // CTAS
    begin = torch.arange(CTAS, dtype=torch.int64) * each
    queues = (begin | (begin + each) << 32).to("cuda")
    out = torch.zeros(TASKS, BLOCK, dtype=torch.int32, device="cuda")
    stealing[(CTAS,)](queues, out, each, 20, ATOMIC=atomic, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if atomic:
        assert torch.equal(out[:, 0].cpu(), torch.arange(1, TASKS + 1, dtype=torch.int32))


COUNTER = ("next", "taken", "after", "moved")

CASES = [
    Case("a counter", lambda: run_dynamic(True)),
    Case("queues", lambda: run_stealing(True)),
    Case(
        "a counter without atomics",
        lambda: run_dynamic(False),
        races=(Race("after", "moved"),),
        also=(
            *(Race(a, b) for a in COUNTER for b in ("taken", "moved")),
            Race("task", "task"),
        ),
    ),
    Case(
        "queues without atomics",
        lambda: run_stealing(False),
        races=(Race("seen", "new"),),
        also=(Race("new", "new"), Race("task", "task")),
    ),
]
