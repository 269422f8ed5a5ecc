"""Loads ahead of time: of what may be written yet, whose value is thrown away then."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

ITEMS = 48
BLOCK = 128


@triton.jit
def pump(data, flags, out, HOW: tl.constexpr, ITEMS: tl.constexpr, B: tl.constexpr):
    """The consumer takes item after item, and loads the next one while it works on one."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        for n in range(ITEMS):
            if HOW == "atomic":
                tl.atomic_store(data + n * B + i, n + i, sem="relaxed")
            else:
                tl.store(data + n * B + i, n + i)  # @produce
            tl.debug_barrier()
            tl.atomic_store(flags + n, 1)
    else:
        ahead = tl.zeros((B,), tl.int32)
        was_ready = 0
        for n in range(ITEMS):
            v = ahead
            if was_ready == 0:
                tries = 0
                while (tl.atomic_load(flags + n) == 0) & (tries < 1_000_000):
                    tries += 1
                if HOW == "atomic":
                    v = tl.atomic_load(data + n * B + i, sem="relaxed")
                else:
                    v = tl.load(data + n * B + i)
            if n + 1 < ITEMS:
                if HOW == "checked":
                    was_ready = tl.atomic_load(flags + n + 1)
                    if was_ready == 1:
                        ahead = tl.load(data + (n + 1) * B + i)
                elif HOW == "atomic":
                    ahead = tl.atomic_load(data + (n + 1) * B + i, sem="relaxed")
                    was_ready = 0
                else:
                    ahead = tl.load(data + (n + 1) * B + i)  # @ahead
                    was_ready = 0
            # What was loaded too early changes nothing, and yet must not be left out.
            tl.store(out + n * B + i, v + tl.where(ahead < 0, 1, 0))


def run(how: str) -> None:
    data = torch.zeros(ITEMS, BLOCK, dtype=torch.int32, device="cuda")
    flags = torch.zeros(ITEMS, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(data)
    pump[(2,)](data, flags, out, HOW=how, ITEMS=ITEMS, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    expected = torch.arange(ITEMS)[:, None] + torch.arange(BLOCK)[None, :]
    assert torch.equal(out.cpu(), expected.to(torch.int32))


CASES = [
    Case("only what is ready", lambda: run("checked")),
    Case("by atomics", lambda: run("atomic")),
    Case("what may not be ready", lambda: run("guessed"), races=(Race("ahead", "produce"),)),
]
