"""One CTA writes data and raises a flag, another waits for the flag and reads the data."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BLOCK = 256


@triton.jit
def pass_message(
    data, flag, out, PUT: tl.constexpr, GET: tl.constexpr, SCOPE: tl.constexpr, B: tl.constexpr
):
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i + 1)  # @put
        tl.atomic_xchg(flag, 1, sem=PUT, scope=SCOPE)  # @raise
    else:
        tries = 0
        while (tl.atomic_add(flag, 0, sem=GET, scope=SCOPE) == 0) & (tries < 1_000_000):  # @see
            tries += 1
        tl.store(out + i, tl.load(data + i))  # @get


def run(put: str, get: str, scope: str, check: bool) -> None:
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    pass_message[(2,)](data, flag, out, PUT=put, GET=get, SCOPE=scope, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if check:
        assert torch.equal(out.cpu(), torch.arange(1, BLOCK + 1, dtype=torch.int32))


def correct(put: str, get: str, scope: str) -> Case:
    return Case(f"{put}, {get}, {scope}", lambda: run(put, get, scope, True))


def racy(put: str, get: str, scope: str) -> Case:
    # Atomics of scopes that do not reach each other race, too.
    also = (Race("raise", "see"),) if scope == "cta" else ()
    name, races = f"{put}, {get}, {scope}", (Race("put", "get"),)
    return Case(name, lambda: run(put, get, scope, False), races=races, also=also)


CASES = [
    correct("release", "acquire", "gpu"),
    correct("release", "acquire", "sys"),
    correct("acq_rel", "acq_rel", "gpu"),
    correct("release", "acq_rel", "sys"),
    racy("relaxed", "acquire", "gpu"),
    racy("release", "relaxed", "gpu"),
    racy("relaxed", "relaxed", "sys"),
    racy("release", "acquire", "cta"),
]
