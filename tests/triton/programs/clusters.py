"""CTAs of a cluster that meet at cluster barriers and mbarriers, and some that should have.

Element `i` of a tensor belongs to CTA `i // EACH` of the cluster.
"""

import torch
from gsan_programs import Case, Race
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import cluster, mbarrier

EACH = 128
CLUSTERS = 8


@gluon.jit
def meet(BARRIER: gl.constexpr):
    if BARRIER == "relaxed":
        cluster.barrier(relaxed=True)
    elif BARRIER == "full":
        cluster.barrier()


@gluon.jit
def exchange(x, out, rounds, BEFORE: gl.constexpr, AFTER: gl.constexpr, layout: gl.constexpr):
    """Each CTA writes, then reads what the next one wrote."""
    N: gl.constexpr = gl.num_ctas() * 128
    i = gl.arange(0, N, layout)
    x += gl.program_id(0) * N
    got = i
    for r in range(rounds):
        gl.store(x + i, r * N + i)  # @write
        meet(BEFORE)
        got = gl.load(x + (i + 128) % N)  # @read
        meet(AFTER)
    gl.store(out + gl.program_id(0) * N + i, got)


@gluon.jit
def all_meet(done, go, phase):
    """All CTAs arrive at the first one's barrier, which waits, and tells the others."""
    mbarrier.arrive(done)
    mbarrier.wait(done, phase)
    mbarrier.arrive(go, from_cta=0)
    mbarrier.wait(go, phase)


@gluon.jit
def take_turns(x, out, rounds, layout: gl.constexpr, group: gl.constexpr):
    N: gl.constexpr = gl.num_ctas() * 128
    done = gl.allocate_shared_memory(gl.int64, [1], group)
    go = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    mbarrier.init(go, count=1)
    i = gl.arange(0, N, layout)
    x += gl.program_id(0) * N
    got = i
    for r in range(rounds):
        gl.store(x + i, r * N + i)
        all_meet(done, go, 0)
        got = gl.load(x + (i + 128) % N)
        all_meet(done, go, 1)
    gl.store(out + gl.program_id(0) * N + i, got)
    mbarrier.invalidate(done)
    mbarrier.invalidate(go)


@gluon.jit
def one_turn(x, out, HOW: gl.constexpr, layout: gl.constexpr, group: gl.constexpr):
    """Like a round of `take_turns`, but with something wrong."""
    N: gl.constexpr = gl.num_ctas() * 128
    done = gl.allocate_shared_memory(gl.int64, [1], group)
    go = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    mbarrier.init(go, count=1)
    i = gl.arange(0, N, layout)
    x += gl.program_id(0) * N
    if HOW == "arrives early":
        mbarrier.arrive(done)
        gl.store(x + i, i)  # @late-put
        mbarrier.wait(done, 0)
        mbarrier.arrive(go, from_cta=0)
        mbarrier.wait(go, 0)
        got = gl.load(x + (i + 128) % N)  # @late-get
    elif HOW == "the first does not wait":
        gl.store(x + i, i)  # @lone-put
        mbarrier.arrive(done)
        mbarrier.arrive(go, from_cta=0)
        mbarrier.wait(go, 0)
        got = gl.load(x + (i + 128) % N)  # @lone-get
        mbarrier.wait(done, 0)
    elif HOW == "others do not wait":
        gl.store(x + i, i)  # @hasty-put
        mbarrier.arrive(done)
        mbarrier.wait(done, 0)
        got = gl.load(x + (i + 128) % N)  # @hasty-get
        mbarrier.arrive(go, from_cta=0)
        mbarrier.wait(go, 0)
    elif HOW == "wrong parity":
        gl.store(x + i, i)  # @odd-put
        mbarrier.wait(go, 1)
        got = gl.load(x + (i + 128) % N)  # @odd-get
        mbarrier.arrive(done)
        mbarrier.wait(done, 0)
        mbarrier.arrive(go, from_cta=0)
        mbarrier.wait(go, 0)
    else:
        # To the first one only: what follows is in the order of its program.
        mine = i < 128
        gl.store(x + i, i, mask=i >= 128)
        mbarrier.arrive(done)
        mbarrier.wait(done, 0)
        got = gl.load(x + (i + 128) % N, mask=mine, other=0)
        gl.store(x + i + 128, got, mask=mine)
    gl.store(out + gl.program_id(0) * N + i, got)
    mbarrier.invalidate(done)
    mbarrier.invalidate(go)


@gluon.jit
def sums(x, out, layout: gl.constexpr):
    """All CTAs add up one tensor: the compiler has them meet for that as well."""
    N: gl.constexpr = gl.num_ctas() * 128
    i = gl.arange(0, N, layout)
    x += gl.program_id(0) * N
    gl.store(x + i, i)
    total = gl.sum(i, axis=0)
    cluster.barrier()
    other = gl.load(x + (i + 128) % N)
    gl.store(out + gl.program_id(0) * N + i, other + total)


def layouts(ctas: int) -> dict[str, object]:
    bases = [[1], [2]][: ctas.bit_length() - 1]
    layout = gl.BlockedLayout([1], [32], [4], [0], cga_layout=bases)
    return {"layout": layout, "group": mbarrier.MBarrierLayout([[0]] * len(bases))}


def tensors(ctas: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What is exchanged, where it goes, and what each element gets in round 0."""
    x = torch.zeros(CLUSTERS, ctas * EACH, dtype=torch.int32, device="cuda")
    got = (torch.arange(ctas * EACH, device="cuda") + EACH) % (ctas * EACH)
    return x, torch.zeros_like(x), got


def run_exchange(ctas: int, rounds: int, before: str = "full", after: str = "full") -> None:
    x, out, got = tensors(ctas)
    clusters = CLUSTERS if rounds < 1000 else 1
    exchange[(clusters,)](
        x,
        out,
        rounds,
        BEFORE=before,
        AFTER=after,
        layout=layouts(ctas)["layout"],
        num_warps=4,
        num_ctas=ctas,
    )
    torch.cuda.synchronize()
    if before == after == "full":
        assert (out[:clusters] == got + (rounds - 1) * ctas * EACH).all().item()


def run_turns(ctas: int, rounds: int) -> None:
    x, out, got = tensors(ctas)
    clusters = CLUSTERS if rounds < 1000 else 1
    take_turns[(clusters,)](x, out, rounds, **layouts(ctas), num_warps=4, num_ctas=ctas)
    torch.cuda.synchronize()
    assert (out[:clusters] == got + (rounds - 1) * ctas * EACH).all().item()


def run_one_turn(ctas: int, how: str) -> None:
    x, out, _ = tensors(ctas)
    one_turn[(CLUSTERS,)](x, out, HOW=how, **layouts(ctas), num_warps=4, num_ctas=ctas)
    torch.cuda.synchronize()


def run_sums(ctas: int) -> None:
    x, out, got = tensors(ctas)
    layout = layouts(ctas)["layout"]
    sums[(CLUSTERS,)](x, out, layout=layout, num_warps=4, num_ctas=ctas)
    torch.cuda.synchronize()
    assert (out == got + (ctas * EACH - 1) * ctas * EACH // 2).all().item()


def cases(ctas: int) -> list[Case]:
    def name(what: str) -> str:
        return f"{ctas} CTAs: {what}"

    def one(how: str, *races: Race) -> Case:
        return Case(name(how), lambda: run_one_turn(ctas, how), races=races)

    exchanged = (Race("write", "read"),)
    return [
        Case(name("cluster barriers"), lambda: run_exchange(ctas, 10)),
        Case(name("no barrier at all"), lambda: run_exchange(ctas, 1, "", ""), races=exchanged),
        Case(
            name("no barrier before the read"),
            lambda: run_exchange(ctas, 3, before=""),
            races=exchanged,
        ),
        Case(
            name("no barrier after the read"),
            lambda: run_exchange(ctas, 3, after=""),
            races=exchanged,
        ),
        Case(
            name("relaxed barrier"),
            lambda: run_exchange(ctas, 1, before="relaxed"),
            races=exchanged,
        ),
        Case(name("mbarriers"), lambda: run_turns(ctas, 10)),
        one("only the first reads"),
        one("arrives early", Race("late-put", "late-get")),
        one("others do not wait", Race("hasty-put", "hasty-get")),
        one("wrong parity", Race("odd-put", "odd-get")),
        Case(name("sums"), lambda: run_sums(ctas)),
        Case(name("100,000 cluster barriers"), lambda: run_exchange(ctas, 50_000), runs=1),
        # Two barriers, two phases a round.
        Case(name("100,000 phases of mbarriers"), lambda: run_turns(ctas, 25_000), runs=1),
    ]


CASES = [
    *cases(2),
    *cases(4),
    Case(
        "4 CTAs: the first does not wait",
        lambda: run_one_turn(4, "the first does not wait"),
        races=(Race("lone-put", "lone-get"),),
    ),
]
