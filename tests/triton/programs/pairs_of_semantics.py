"""All semantics and scopes of an exchange that raises a flag and of an addition that sees it."""

from collections.abc import Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 128
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")


# Semantics and scopes are numbers: one compilation has them all.
@triton.jit(do_not_specialize=["zero", "put", "put_scope", "get", "get_scope", "limit"])
def pass_message(
    data,
    flag,
    out,
    zero,
    put,
    put_scope,
    get,
    get_scope,
    limit,
    ALL: tl.constexpr,
    REACHES: tl.constexpr,
    B: tl.constexpr,
):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)  # @put
        for s in tl.static_range(len(ALL)):
            for r in tl.static_range(len(REACHES)):
                if (put == s) & (put_scope == r):
                    tl.atomic_xchg(flag, 1, sem=ALL[s], scope=REACHES[r])  # @raise
    else:
        seen = 0
        tries = 0
        while (seen == 0) & (tries < limit):
            for s in tl.static_range(len(ALL)):
                for r in tl.static_range(len(REACHES)):
                    if (get == s) & (get_scope == r):
                        # Of a constant 0 the compiler would make a load.
                        seen = tl.atomic_add(flag, zero, sem=ALL[s], scope=REACHES[r])  # @see
            tries += 1
        tl.store(out + i, tl.load(data + i))  # @get


Side = tuple[str, str]


def orders(put: Side, get: Side) -> bool:
    """Release and acquire, of scopes that both reach the other CTA."""
    releases, acquires = put[0] in ("release", "acq_rel"), get[0] in ("acquire", "acq_rel")
    return releases and acquires and "cta" not in (put[1], get[1])


def run(put: Side, get: Side) -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    numbers = [n for s in (put, get) for n in (SEMANTICS.index(s[0]), SCOPES.index(s[1]))]
    limit = 10_000 if "cta" in (put[1], get[1]) else 1_000_000
    options = {"ALL": SEMANTICS, "REACHES": SCOPES, "B": BLOCK, "num_warps": 4}
    pass_message[(2,)](data, flag, out, 0, *numbers, limit, **options)
    torch.cuda.synchronize()
    if orders(put, get):
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


SIDES = [(semantics, scope) for semantics in SEMANTICS for scope in SCOPES]


def run_all(pairs: list[tuple[Side, Side]]) -> None:
    for put, get in pairs:
        run(put, get)


def racy(name: str, pairs: list[tuple[Side, Side]]) -> Case:
    # Atomics of scopes that do not reach each other race, too.
    also = (Race("raise", "see"),) if any("cta" in put + get for put, get in pairs) else ()
    return Case(name, partial(run_all, pairs), (Race("put", "get"),), also)


def cases() -> Iterator[Case]:
    """Alone what is most like a mistake; the others together."""
    pairs = [(put, get) for put in SIDES for get in SIDES]
    yield Case("all that order", partial(run_all, [pair for pair in pairs if orders(*pair)]))
    left = [pair for pair in pairs if not orders(*pair)]
    for put, get in left:
        if {put[1], get[1]} == {"gpu"} or {put[0], get[0]} == {"acq_rel"}:
            yield racy(f"{' '.join(put)}, {' '.join(get)}", [(put, get)])
    for semantics in SEMANTICS:
        rest = [pair for pair in left if pair[0][0] == semantics]
        yield racy(f"{semantics}, all others", rest)


CASES = list(cases())
