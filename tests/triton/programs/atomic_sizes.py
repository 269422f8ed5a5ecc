"""Flags of 16, 32 and 64 bits, side by side: loaded, stored, polled and swapped."""

from collections.abc import Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

PAIRS = 8
BLOCK = 128
TYPES = {"int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint32": torch.uint32}


@triton.jit
def pass_messages(
    data, flags, out, PUT: tl.constexpr, GET: tl.constexpr, SEM: tl.constexpr, B: tl.constexpr
):
    """Even CTAs give to odd ones; the flags of all pairs are neighbours."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    mine = data + p // 2 * B + i
    flag = flags + p // 2
    one = tl.full((), 1, flags.dtype.element_ty)
    zero = tl.full((), 0, flags.dtype.element_ty)
    if p % 2 == 0:
        tl.store(mine, p + i)  # @put
        if PUT == "store":
            tl.atomic_store(flag, one, sem=SEM)
        else:
            tl.atomic_cas(flag, zero, one, sem=SEM)
    else:
        tries = 0
        seen = False
        while (not seen) & (tries < 100_000):
            tries += 1
            if GET == "poll":
                seen = tl.atomic_poll(flag, one, timeout_ns=10_000)
            else:
                seen = tl.atomic_load(flag) == one
        tl.store(out + p // 2 * B + i, tl.load(mine))  # @get


def run(name: str, put: str, get: str, sem: str) -> None:
    data = torch.zeros(PAIRS, BLOCK, dtype=torch.int32, device="cuda")
    flags = torch.zeros(PAIRS, dtype=torch.int32).to(TYPES[name]).to("cuda")
    out = torch.zeros_like(data)
    options = {"PUT": put, "GET": get, "SEM": sem, "B": BLOCK, "num_warps": 4}
    pass_messages[(2 * PAIRS,)](data, flags, out, **options)
    torch.cuda.synchronize()
    if sem == "release":
        expected = 2 * torch.arange(PAIRS)[:, None] + torch.arange(BLOCK)[None, :]
        assert torch.equal(out.cpu(), expected.to(torch.int32))


def cases() -> Iterator[Case]:
    for name in TYPES:
        ways = [("store", "poll"), ("cas", "load")]
        if name == "uint32":
            ways = [("store", "load")]
        for put, get in ways:
            yield Case(f"{name}, {put}, {get}", partial(run, name, put, get, "release"))
        races = (Race("put", "get"),)
        yield Case(f"{name}, relaxed", partial(run, name, *ways[0], "relaxed"), races)


CASES = list(cases())
