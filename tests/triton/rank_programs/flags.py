"""Flags and counters that other ranks see, raised and waited for in a way that is chosen at run
time, so that one compilation serves all cases. It is right, or weaker than it must be.
"""

import triton
import triton.language as tl

#: The ways by their names.
WAYS = {"relaxed": 2, "gpu": 3, "right": 4, "acq_rel": 5}
RELAXED = tl.constexpr(2)
NEAR = tl.constexpr(3)
BOTH = tl.constexpr(5)
#: How long a flag is waited for.
WAIT = tl.constexpr(3_000_000_000)
TRIES = tl.constexpr(3_000_000)
#: Words from one flag to the next: each has a line of its own.
APART = tl.constexpr(32)


@triton.jit
def put(flag, value, way):
    if way == RELAXED:
        tl.atomic_xchg(flag, value, sem="relaxed", scope="sys")
    elif way == NEAR:
        tl.atomic_xchg(flag, value, sem="release", scope="gpu")  # @put-near
    elif way == BOTH:
        tl.atomic_xchg(flag, value, sem="acq_rel", scope="sys")
    else:
        tl.atomic_xchg(flag, value, sem="release", scope="sys")  # @put-right


@triton.jit
def wait(flag, value, way):
    if way == RELAXED:
        seen = tl.atomic_poll(flag, value, "relaxed", "sys", WAIT)
    elif way == NEAR:
        seen = tl.atomic_poll(flag, value, "acquire", "gpu", WAIT)  # @wait-near
    else:
        seen = tl.atomic_poll(flag, value, "acquire", "sys", WAIT)  # @wait-right
    return seen


@triton.jit
def count(counter, way):
    if way == RELAXED:
        tl.atomic_add(counter, 1, sem="relaxed", scope="sys")
    elif way == NEAR:
        tl.atomic_add(counter, 1, sem="release", scope="gpu")  # @count-near
    elif way == BOTH:
        tl.atomic_add(counter, 1, sem="acq_rel", scope="sys")
    else:
        tl.atomic_add(counter, 1, sem="release", scope="sys")  # @count-right


@triton.jit
def wait_for_count(counter, needed, way):
    tries = 0
    if way == RELAXED:
        while (tl.atomic_load(counter, sem="relaxed", scope="sys") < needed) & (tries < TRIES):
            tries += 1
    elif way == NEAR:
        while (
            tl.atomic_load(counter, sem="acquire", scope="gpu")  # @look-near
            < needed
        ) & (tries < TRIES):
            tries += 1
    else:
        while (
            tl.atomic_load(counter, sem="acquire", scope="sys")  # @look-right
            < needed
        ) & (tries < TRIES):
            tries += 1


@triton.jit
def words(table, rank):
    """The memory of a rank, from a table of addresses."""
    return tl.load(table + rank).to(tl.pointer_type(tl.int32))


@triton.jit
def meet(flags, place, me, W: tl.constexpr, way, wait_way):
    """A barrier of the programs at a place of all ranks; each has a flag for each other."""
    for r in range(W):
        put(words(flags, r) + (place * W + me) * APART, 1, way)
    for r in range(W):
        wait(words(flags, me) + (place * W + r) * APART, 1, wait_way)
