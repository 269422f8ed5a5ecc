"""A lock that many readers hold at once, or one writer."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 24
ROUNDS = 4
BLOCK = 128


@triton.jit
def enter(lock, WRITES: tl.constexpr):
    """The lock is the number of readers, or -1 when a writer holds it."""
    tries = 0
    inside = False
    while (not inside) & (tries < 1_000_000):
        if WRITES:
            inside = tl.atomic_cas(lock, 0, -1, sem="acquire") == 0
        else:
            seen = tl.atomic_load(lock, sem="relaxed")
            if seen >= 0:
                inside = tl.atomic_cas(lock, seen, seen + 1, sem="acquire") == seen
        tries += 1


@triton.jit
def share(
    lock,
    data,
    out,
    READER: tl.constexpr,
    WRITER: tl.constexpr,
    ROUNDS: tl.constexpr,
    B: tl.constexpr,
):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    for r in range(ROUNDS):
        # Everybody writes once in four rounds: nobody is done before the others begin.
        if (p + r) % 4 == 0:
            enter(lock, True)
            v = tl.load(data + i)  # @change
            tl.store(data + i, v + 1)  # @write
            tl.debug_barrier()
            tl.atomic_xchg(lock, 0, sem=WRITER)
        else:
            enter(lock, False)
            v = tl.load(data + i)  # @read
            tl.debug_barrier()
            tl.atomic_add(lock, -1, sem=READER)
            tl.store(out + (p * ROUNDS + r) * B + i, v)


def run(reader: str, writer: str) -> None:
    lock = torch.zeros(1, dtype=torch.int32, device="cuda")
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    out = torch.zeros(CTAS, ROUNDS, BLOCK, dtype=torch.int32, device="cuda")
    options = {"READER": reader, "WRITER": writer, "ROUNDS": ROUNDS, "B": BLOCK, "num_warps": 4}
    share[(CTAS,)](lock, data, out, **options)
    torch.cuda.synchronize()
    if (reader, writer) == ("release", "release"):
        assert (data == CTAS * ROUNDS // 4).all().item()
        # Nobody read in the middle of a write.
        assert (out == out[:, :, :1]).all().item()


CASES = [
    Case("release", lambda: run("release", "release")),
    Case("readers leave relaxed", lambda: run("relaxed", "release"), (Race("read", "write"),)),
    Case(
        "writers leave relaxed",
        lambda: run("release", "relaxed"),
        races=(Race("write", "read"),),
        also=(Race("write", "write"), Race("write", "change")),
    ),
]
