"""Data that is handed on over several CTAs: every link must order, and reach far enough."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 128
LINKS = 4
WRONG = 2


@triton.jit
def see(flag, SEM: tl.constexpr, SCOPE: tl.constexpr, LIMIT: tl.constexpr):
    tries = 0
    # Not by a load: what acquires there is a fence behind it, which releases as well.
    while (tl.atomic_cas(flag, 1, 1, sem=SEM, scope=SCOPE) == 0) & (tries < LIMIT):  # @see
        tries += 1


@triton.jit
def chain(
    data,
    flags,
    out,
    PUT: tl.constexpr,
    GET: tl.constexpr,
    PUT_SCOPE: tl.constexpr,
    GET_SCOPE: tl.constexpr,
    WRONG: tl.constexpr,
    LINKS: tl.constexpr,
    B: tl.constexpr,
):
    """CTA 0 writes, the last one reads, and those between only hand on; one link may be wrong."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    if p == 0:
        tl.store(data + i, i + 1)  # @write
        tl.atomic_xchg(flags, 1, sem="release")
    elif p == WRONG:
        see(flags + (p - 1) * 32, GET, GET_SCOPE, 50_000)
        tl.atomic_xchg(flags + p * 32, 1, sem=PUT, scope=PUT_SCOPE)  # @raise
    else:
        see(flags + (p - 1) * 32, "acquire", "gpu", 1_000_000)
        if p == LINKS:
            tl.store(out + i, tl.load(data + i))  # @read
        else:
            tl.atomic_xchg(flags + p * 32, 1, sem="release")  # @hand-on


def run(put: str = "release", get: str = "acquire", *scopes: str) -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flags = torch.zeros(LINKS, 32, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    put_scope, get_scope = scopes or ("gpu", "gpu")
    options = {"PUT": put, "GET": get, "PUT_SCOPE": put_scope, "GET_SCOPE": get_scope}
    sizes = {"WRONG": WRONG, "LINKS": LINKS, "B": BLOCK, "num_warps": 4}
    chain[(LINKS + 1,)](data, flags, out, **options, **sizes)
    torch.cuda.synchronize()
    if (put, get) == ("release", "acquire") and "cta" not in scopes:
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


RACE = (Race("write", "read"),)
# Atomics of scopes that do not reach each other race, too.
FLAGS = (Race("raise", "see"), Race("hand-on", "see"))

CASES = [
    Case("all links order", run),
    Case("all links order, one at sys", lambda: run("release", "acquire", "sys", "gpu")),
    Case("a link put relaxed", lambda: run("relaxed", "acquire"), RACE),
    Case("a link got relaxed", lambda: run("release", "relaxed"), RACE),
    Case("a link that acquires only", lambda: run("acquire", "acquire"), RACE),
    Case("a link put at cta", lambda: run("release", "acquire", "cta", "gpu"), RACE, FLAGS),
    Case("a link got at cta", lambda: run("release", "acquire", "gpu", "cta"), RACE, FLAGS),
]
