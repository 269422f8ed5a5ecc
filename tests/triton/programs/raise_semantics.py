"""Every atomic that writes, with every semantics and scope, raises a flag that is seen rightly."""

from collections.abc import Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 128
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")


@triton.jit
def put(flag, value, start, HOW: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    if HOW == "store":
        tl.atomic_store(flag, value, sem=SEM, scope=SCOPE)  # @store
    elif HOW == "xchg":
        tl.atomic_xchg(flag, value, sem=SEM, scope=SCOPE)  # @xchg
    elif HOW == "cas":
        tl.atomic_cas(flag, start, value, sem=SEM, scope=SCOPE)  # @cas
    elif HOW == "add":
        tl.atomic_add(flag, value, sem=SEM, scope=SCOPE)  # @add
    elif HOW == "max":
        tl.atomic_max(flag, value, sem=SEM, scope=SCOPE)  # @max
    elif HOW == "min":
        tl.atomic_min(flag, value, sem=SEM, scope=SCOPE)  # @min
    elif HOW == "and":
        tl.atomic_and(flag, value, sem=SEM, scope=SCOPE)  # @and
    elif HOW == "or":
        tl.atomic_or(flag, value, sem=SEM, scope=SCOPE)  # @or
    elif HOW == "xor":
        tl.atomic_xor(flag, value, sem=SEM, scope=SCOPE)  # @xor


# Semantics and scope are numbers: one compilation has them all.
@triton.jit(do_not_specialize=["semantics", "scope"])
def pass_message(
    data,
    flag,
    out,
    start,
    semantics,
    scope,
    HOW: tl.constexpr,
    ALL: tl.constexpr,
    REACHES: tl.constexpr,
    B: tl.constexpr,
):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)  # @put
        for s in tl.static_range(len(ALL)):
            for r in tl.static_range(len(REACHES)):
                if (semantics == s) & (scope == r):
                    put(flag, 1, start, HOW, ALL[s], REACHES[r])
    else:
        tries = 0
        while (tl.atomic_load(flag) == start) & (tries < 1_000_000):  # @load
            tries += 1
        tl.store(out + i, tl.load(data + i))  # @get


def run(how: str, semantics: str, scope: str, check: bool) -> None:
    start = 3 if how in ("min", "and") else 0
    which = ("relaxed", "release") if how == "store" else SEMANTICS
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.full((1,), start, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    arguments = (data, flag, out, start, which.index(semantics), SCOPES.index(scope))
    pass_message[(2,)](*arguments, HOW=how, ALL=which, REACHES=SCOPES, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if check:
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


def run_all_that_order(how: str) -> None:
    for semantics in ("release",) if how == "store" else ("release", "acq_rel"):
        for scope in ("gpu", "sys"):
            run(how, semantics, scope, True)


def racy(how: str, semantics: str, scope: str) -> Case:
    # Atomics of scopes that do not reach each other race, too.
    also = (Race(how, "load"),) if scope == "cta" else ()
    name, races = f"{how}, {semantics}, {scope}", (Race("put", "get"),)
    return Case(name, lambda: run(how, semantics, scope, False), races=races, also=also)


def cases() -> Iterator[Case]:
    for how in ("store", "xchg", "cas", "add", "max", "min", "and", "or", "xor"):
        yield Case(f"{how}, all that order", partial(run_all_that_order, how))
        for semantics in ("relaxed", "release") if how == "store" else SEMANTICS:
            for scope in SCOPES:
                if semantics in ("relaxed", "acquire") or scope == "cta":
                    yield racy(how, semantics, scope)


CASES = list(cases())
