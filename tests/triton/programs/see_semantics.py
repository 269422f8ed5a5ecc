"""Every atomic that reads, with every semantics and scope, sees a flag that is raised rightly."""

from collections.abc import Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 128
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")
RAISED = 5
# What each operation is given so that it leaves a raised flag as it is.
UNCHANGED = {"xchg": 0, "cas": RAISED, "add": 0, "max": 0, "min": 9, "and": 15, "or": 0, "xor": 0}


@triton.jit
def get(flag, value, raised, HOW: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    if HOW == "load":
        seen = tl.atomic_load(flag, sem=SEM, scope=SCOPE)  # @load
    elif HOW == "poll":
        done = tl.atomic_poll(flag, raised, sem=SEM, scope=SCOPE, timeout_ns=1_000_000)  # @poll
        seen = tl.where(done, raised, 0)
    elif HOW == "xchg":
        seen = tl.atomic_xchg(flag, value, sem=SEM, scope=SCOPE)  # @xchg
    elif HOW == "cas":
        seen = tl.atomic_cas(flag, raised, value, sem=SEM, scope=SCOPE)  # @cas
    elif HOW == "add":
        seen = tl.atomic_add(flag, value, sem=SEM, scope=SCOPE)  # @add
    elif HOW == "max":
        seen = tl.atomic_max(flag, value, sem=SEM, scope=SCOPE)  # @max
    elif HOW == "min":
        seen = tl.atomic_min(flag, value, sem=SEM, scope=SCOPE)  # @min
    elif HOW == "and":
        seen = tl.atomic_and(flag, value, sem=SEM, scope=SCOPE)  # @and
    elif HOW == "or":
        seen = tl.atomic_or(flag, value, sem=SEM, scope=SCOPE)  # @or
    elif HOW == "xor":
        seen = tl.atomic_xor(flag, value, sem=SEM, scope=SCOPE)  # @xor
    return seen


# Semantics and scope are numbers: one compilation has them all.
@triton.jit(do_not_specialize=["value", "raised", "semantics", "scope", "limit"])
def pass_message(
    data,
    flag,
    out,
    value,
    raised,
    semantics,
    scope,
    limit,
    HOW: tl.constexpr,
    ALL: tl.constexpr,
    REACHES: tl.constexpr,
    B: tl.constexpr,
):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)  # @put
        tl.atomic_store(flag, raised)  # @raise
    else:
        seen = 0
        tries = 0
        while (seen != raised) & (tries < limit):
            for s in tl.static_range(len(ALL)):
                for r in tl.static_range(len(REACHES)):
                    if (semantics == s) & (scope == r):
                        seen = get(flag, value, raised, HOW, ALL[s], REACHES[r])
            tries += 1
        tl.store(out + i, tl.load(data + i))  # @get


def run(how: str, semantics: str, scope: str, check: bool) -> None:
    which = ("relaxed", "acquire") if how in ("load", "poll") else SEMANTICS
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    numbers = (UNCHANGED.get(how, 0), RAISED, which.index(semantics), SCOPES.index(scope))
    # At a scope that does not reach, the flag may never be seen.
    limit = (20 if how == "poll" else 10_000) if scope == "cta" else 1_000_000
    options = {"HOW": how, "ALL": which, "REACHES": SCOPES, "B": BLOCK, "num_warps": 4}
    pass_message[(2,)](data, flag, out, *numbers, limit, **options)
    torch.cuda.synchronize()
    if check:
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


def run_all(how: str, all_semantics: tuple[str, ...], scopes: tuple[str, ...], check: bool) -> None:
    for semantics in all_semantics:
        for scope in scopes:
            run(how, semantics, scope, check)


def racy(how: str, semantics: str, *scopes: str) -> Case:
    # Atomics of scopes that do not reach each other race, too.
    also = (Race("raise", how),) if "cta" in scopes else ()
    act = partial(run_all, how, (semantics,), scopes, False)
    return Case(f"{how}, {semantics}, {' and '.join(scopes)}", act, (Race("put", "get"),), also)


def cases() -> Iterator[Case]:
    for how in ("load", "poll", *UNCHANGED):
        acquires = ("acquire", "acq_rel") if how in UNCHANGED else ("acquire",)
        act = partial(run_all, how, acquires, ("gpu", "sys"), True)
        yield Case(f"{how}, all that order", act)
        yield racy(how, "acquire", "cta")
        yield racy(how, "relaxed", "gpu")
        if how in UNCHANGED:
            yield racy(how, "release", "gpu")
            yield racy(how, "acq_rel", "cta")
            yield racy(how, "release", "cta", "sys")
        yield racy(how, "relaxed", "cta", "sys")


CASES = list(cases())
