"""A sequence lock: a reader takes what it read only if the version did not change meanwhile."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

READERS = 15
ROUNDS = 32
BLOCK = 128


@triton.jit(do_not_specialize=["zero"])
def share(version, data, out, zero, ATOMIC: tl.constexpr, ROUNDS: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    if p == 0:
        for r in range(ROUNDS):
            tl.atomic_add(version, 1)
            tl.debug_barrier()
            if ATOMIC:
                tl.atomic_store(data + i, i * 0 + r, sem="relaxed")
            else:
                tl.store(data + i, i * 0 + r)  # @write
            tl.debug_barrier()
            tl.atomic_add(version, 1)
    else:
        taken = tl.zeros((B,), tl.int32)
        for _ in range(ROUNDS):
            before = tl.atomic_load(version)
            tl.debug_barrier()
            if ATOMIC:
                v = tl.atomic_load(data + i, sem="relaxed")
            else:
                v = tl.load(data + i)  # @read
            tl.debug_barrier()
            # Unlike a load, an atomic that also releases stays behind the loads of data.
            after = tl.atomic_add(version, zero)
            same = (before == after) & (before % 2 == 0)
            taken = tl.where(same, v, taken)
        tl.store(out + p * B + i, taken)


def run(atomic: bool) -> None:
    version = torch.zeros(1, dtype=torch.int32, device="cuda")
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros(READERS + 1, BLOCK, dtype=torch.int32, device="cuda")
    options = {"ATOMIC": atomic, "ROUNDS": ROUNDS, "B": BLOCK, "num_warps": 4}
    share[(READERS + 1,)](version, data, out, 0, **options)
    torch.cuda.synchronize()
    if atomic:
        assert (out == out[:, :1]).all().item()
        assert version.item() == 2 * ROUNDS


CASES = [
    Case("atomic data", lambda: run(True)),
    Case("plain data", lambda: run(False), races=(Race("write", "read"),)),
]
