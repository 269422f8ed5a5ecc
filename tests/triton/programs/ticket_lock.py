"""A ticket lock: who holds it is served in the order of the tickets."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

CTAS = 40
BLOCK = 128


@triton.jit
def count_up(
    tickets, serving, data, order, WAIT: tl.constexpr, LEAVE: tl.constexpr, B: tl.constexpr
):
    i = tl.arange(0, B)
    mine = tl.atomic_add(tickets, 1, sem="relaxed")
    tries = 0
    while (tl.atomic_load(serving, sem=WAIT) != mine) & (tries < 1_000_000):
        tries += 1
    v = tl.load(data + i)  # @load
    tl.store(data + i, v + 1)  # @store
    tl.store(order + mine, tl.program_id(0))
    tl.debug_barrier()
    tl.atomic_store(serving, mine + 1, sem=LEAVE)


def run(wait: str, leave: str) -> None:
    state = torch.zeros(2, 64, dtype=torch.int32, device="cuda")
    data = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    order = torch.zeros(CTAS, dtype=torch.int32, device="cuda")
    options = {"WAIT": wait, "LEAVE": leave, "B": BLOCK, "num_warps": 4}
    count_up[(CTAS,)](state[0], state[1], data, order, **options)
    torch.cuda.synchronize()
    if (wait, leave) == ("acquire", "release"):
        assert (data == CTAS).all().item()
        assert torch.equal(order.cpu().sort().values, torch.arange(CTAS, dtype=torch.int32))


INSIDE, BESIDE = (Race("load", "store"),), (Race("store", "store"),)

CASES = [
    Case("acquire, release", lambda: run("acquire", "release")),
    Case("acquire, relaxed", lambda: run("acquire", "relaxed"), INSIDE, BESIDE),
    Case("relaxed, release", lambda: run("relaxed", "release"), INSIDE, BESIDE),
]
