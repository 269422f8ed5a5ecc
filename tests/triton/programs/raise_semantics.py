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


def run_all(how: str, all_semantics: tuple[str, ...], scopes: tuple[str, ...], check: bool) -> None:
    for semantics in all_semantics:
        for scope in scopes:
            run(how, semantics, scope, check)


def racy(how: str, semantics: str, *scopes: str) -> Case:
    # Atomics of scopes that do not reach each other race, too.
    also = (Race(how, "load"),) if "cta" in scopes else ()
    act = partial(run_all, how, (semantics,), scopes, False)
    return Case(f"{how}, {semantics}, {' and '.join(scopes)}", act, (Race("put", "get"),), also)


def cases() -> Iterator[Case]:
    for how in ("store", "xchg", "cas", "add", "max", "min", "and", "or", "xor"):
        releases = ("release",) if how == "store" else ("release", "acq_rel")
        act = partial(run_all, how, releases, ("gpu", "sys"), True)
        yield Case(f"{how}, all that order", act)
        yield racy(how, "release", "cta")
        yield racy(how, "relaxed", "gpu")
        if how != "store":
            yield racy(how, "acquire", "gpu")
            yield racy(how, "acq_rel", "cta")
            yield racy(how, "acquire", "cta", "sys")
        yield racy(how, "relaxed", "cta", "sys")


CASES = list(cases())
