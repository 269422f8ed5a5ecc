"""Flags raised and seen by every atomic there is, in orders that order and in those that do not."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 128


@triton.jit
def raise_flag(flag, HOW: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    if HOW == "store":
        tl.atomic_store(flag, 1, sem=SEM, scope=SCOPE)  # @store
    elif HOW == "xchg":
        tl.atomic_xchg(flag, 1, sem=SEM, scope=SCOPE)
    elif HOW == "cas":
        tl.atomic_cas(flag, 0, 1, sem=SEM, scope=SCOPE)
    elif HOW == "add":
        tl.atomic_add(flag, 1, sem=SEM, scope=SCOPE)
    elif HOW == "max":
        tl.atomic_max(flag, 1, sem=SEM, scope=SCOPE)
    elif HOW == "or":
        tl.atomic_or(flag, 1, sem=SEM, scope=SCOPE)
    elif HOW == "xor":
        tl.atomic_xor(flag, 1, sem=SEM, scope=SCOPE)  # @xor


@triton.jit
def is_raised(flag, HOW: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    if HOW == "load":
        seen = tl.atomic_load(flag, sem=SEM, scope=SCOPE) == 1  # @load
    elif HOW == "add":
        seen = tl.atomic_add(flag, 0, sem=SEM, scope=SCOPE) == 1
    elif HOW == "cas":
        seen = tl.atomic_cas(flag, 1, 1, sem=SEM, scope=SCOPE) == 1
    elif HOW == "and":
        seen = tl.atomic_and(flag, 1, sem=SEM, scope=SCOPE) == 1
    elif HOW == "poll":
        seen = tl.atomic_poll(flag, 1, sem=SEM, scope=SCOPE, timeout_ns=100_000_000)  # @poll
    return seen


@triton.jit
def pass_message(
    data,
    flag,
    out,
    RAISE: tl.constexpr,
    PUT: tl.constexpr,
    SEE: tl.constexpr,
    GET: tl.constexpr,
    SCOPE: tl.constexpr,
    LIMIT: tl.constexpr,
    B: tl.constexpr,
):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)  # @put
        raise_flag(flag, RAISE, PUT, SCOPE)
    else:
        tries = 0
        seen = is_raised(flag, SEE, GET, SCOPE)
        while (not seen) & (tries < LIMIT):
            tries += 1
            seen = is_raised(flag, SEE, GET, SCOPE)
        tl.store(out + i, tl.load(data + i))  # @get


def run(how: str, put: str, see: str, get: str, scope: str, check: bool) -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    options = {"RAISE": how, "PUT": put, "SEE": see, "GET": get, "SCOPE": scope}
    # Who polls at a scope that does not reach may never see the flag.
    limit = 1 if see == "poll" else 1_000_000
    pass_message[(2,)](data, flag, out, **options, LIMIT=limit, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if check:
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


def correct(how: str, put: str, see: str, get: str, scope: str = "gpu") -> Case:
    return Case(f"{how} {put}, {see} {get}, {scope}", lambda: run(how, put, see, get, scope, True))


def racy(how: str, put: str, see: str, get: str, scope: str = "gpu") -> Case:
    # Atomics of scopes that do not reach each other race, too.
    also = (Race(how, see),) if scope == "cta" else ()
    return Case(
        f"{how} {put}, {see} {get}, {scope}",
        lambda: run(how, put, see, get, scope, False),
        races=(Race("put", "get"),),
        also=also,
    )


CASES = [
    correct("store", "release", "load", "acquire"),
    correct("store", "release", "poll", "acquire", "sys"),
    correct("xchg", "acq_rel", "poll", "acquire"),
    correct("cas", "release", "load", "acquire"),
    correct("cas", "acq_rel", "cas", "acquire"),
    correct("add", "release", "add", "acquire"),
    correct("max", "release", "and", "acquire"),
    correct("or", "acq_rel", "and", "acq_rel"),
    correct("xor", "release", "cas", "acq_rel", "sys"),
    racy("store", "relaxed", "load", "acquire"),
    racy("store", "release", "load", "relaxed"),
    racy("store", "release", "poll", "relaxed"),
    racy("store", "release", "poll", "acquire", "cta"),
    racy("cas", "acquire", "cas", "acquire"),
    racy("cas", "release", "cas", "release"),
    racy("add", "acquire", "add", "acquire"),
    racy("max", "relaxed", "and", "acquire"),
    racy("or", "release", "and", "release"),
    racy("xor", "release", "load", "acquire", "cta"),
]
