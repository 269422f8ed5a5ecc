"""A hash table with open addresses: keys go in by compare-and-swap, values beside them."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 32
EACH = 16
SLOTS = 2048
EMPTY = -1
WIDTH = 32


@triton.jit
def insert(
    keys,
    slots,
    values,
    ready,
    EACH: tl.constexpr,
    SLOTS: tl.constexpr,
    EMPTY: tl.constexpr,
    ATOMIC: tl.constexpr,
    READY: tl.constexpr,
    W: tl.constexpr,
):
    i = tl.arange(0, W)
    for n in range(EACH):
        key = tl.load(keys + tl.program_id(0) * EACH + n)
        slot = (key * 10007) % SLOTS
        done = False
        tries = 0
        while (not done) & (tries < SLOTS):
            if ATOMIC:
                found = tl.atomic_cas(slots + slot, EMPTY, key, sem="relaxed")
            else:
                found = tl.load(slots + slot)  # @look
                if found == EMPTY:
                    tl.store(slots + slot, key)  # @take
            done = (found == EMPTY) | (found == key)
            if found == EMPTY:
                tl.store(values + slot * W + i, key + i)  # @value
                tl.atomic_xchg(ready + slot, 1, sem=READY)
            slot = slot if done else (slot + 1) % SLOTS
            tries += 1


@triton.jit
def insert_and_find(
    keys,
    slots,
    values,
    ready,
    found,
    EACH: tl.constexpr,
    SLOTS: tl.constexpr,
    EMPTY: tl.constexpr,
    READY: tl.constexpr,
    W: tl.constexpr,
):
    """Even programs insert, odd ones wait for the keys of the program before them."""
    p = tl.program_id(0)
    i = tl.arange(0, W)
    if p % 2 == 0:
        insert(keys, slots, values, ready, EACH, SLOTS, EMPTY, True, READY, W)
    else:
        for n in range(EACH):
            key = tl.load(keys + (p - 1) * EACH + n)
            slot = (key * 10007) % SLOTS
            tries = 0
            here = tl.atomic_load(slots + slot, sem="relaxed")
            while (here != key) & (tries < 1_000_000):
                # An empty slot may be taken by the key yet.
                slot = slot if here == EMPTY else (slot + 1) % SLOTS
                here = tl.atomic_load(slots + slot, sem="relaxed")
                tries += 1
            while (tl.atomic_load(ready + slot, sem="acquire") == 0) & (tries < 1_000_000):
                tries += 1
            v = tl.load(values + slot * W + i)  # @find
            tl.store(found + (p * EACH + n) * W + i, v)


def tables() -> list[torch.Tensor]:
    keys = torch.arange(CTAS * EACH, dtype=torch.int32) * 7919 % 100_003
    slots = torch.full((SLOTS,), EMPTY, dtype=torch.int32)
    values = torch.zeros(SLOTS, WIDTH, dtype=torch.int32)
    return [x.to("cuda") for x in (keys, slots, values, torch.zeros_like(slots))]


SIZES = {"EACH": EACH, "SLOTS": SLOTS, "EMPTY": EMPTY, "W": WIDTH, "num_warps": 1}


def run_insert(atomic: bool, keys_in_common: int) -> None:
    keys, slots, values, ready = tables()
    if keys_in_common > 1:
        keys = keys[: keys.numel() // keys_in_common].repeat(keys_in_common)
    insert[(CTAS,)](keys, slots, values, ready, ATOMIC=atomic, READY="release", **SIZES)
    torch.cuda.synchronize()
    if atomic:
        here = slots.cpu()
        assert torch.equal(here[here != EMPTY].sort().values, keys.cpu().unique())


def run_find(ready_by: str) -> None:
    keys, slots, values, ready = tables()
    found = torch.zeros(CTAS * EACH, WIDTH, dtype=torch.int32, device="cuda")
    insert_and_find[(CTAS,)](keys, slots, values, ready, found, READY=ready_by, **SIZES)
    torch.cuda.synchronize()
    if ready_by == "release":
        pairs = found.view(CTAS, EACH, WIDTH)[1::2, :, 0]
        assert torch.equal(pairs, keys.view(CTAS, EACH)[0::2])


CASES = [
    Case("insert", lambda: run_insert(True, 1)),
    Case("insert, keys in common", lambda: run_insert(True, 4)),
    Case("insert and find", lambda: run_find("release")),
    Case("found before it is ready", lambda: run_find("relaxed"), races=(Race("value", "find"),)),
    Case(
        "insert without atomics",
        lambda: run_insert(False, 4),
        races=(Race("look", "take"),),
        also=(Race("take", "take"), Race("value", "value")),
    ),
]
