"""Gluon kernels whose clusters move boxes through shared memory, stage by stage.

Element rows are divided among the CTAs of a cluster. Partitions of warps load, multiply and store;
mbarriers lie between them.
"""

from typing import Any

import torch
from gsan_programs import Case, Race
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

STAGES = 3
#: Rows of a box that are one CTA's, and columns.
ROWS, COLUMNS = 32, 64
CLUSTERS = 6
STEPS = 8


@gluon.jit
def start_load(x, at, barrier, tile, MULTICAST: gl.constexpr = False):
    mbarrier.expect(barrier, x.nbytes_per_cta)
    tma.async_load(x, at, barrier, tile, multicast=MULTICAST)  # @box-load


@gluon.jit
def doubled(x, out, shift, STAGES: gl.constexpr, STEPS: gl.constexpr, layout: gl.constexpr):
    """Loads run ahead of stores; both are copies by the hardware."""
    M: gl.constexpr = x.block_shape[0]
    N: gl.constexpr = x.block_shape[1]
    tiles = gl.allocate_shared_memory(x.dtype, [STAGES, M, N], x.layout)
    result = gl.allocate_shared_memory(out.dtype, [M, N], out.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    m = gl.program_id(0) * M
    for k in gl.static_range(STAGES):
        start_load(x, [m + shift, k * N], full.index(k), tiles.index(k))
    for k in range(STEPS):
        s = k % STAGES
        mbarrier.wait(full.index(s), k // STAGES & 1)
        v = tiles.index(s).load(layout)
        tma.store_wait(0)
        result.store(v + v)
        fence_async_shared()
        tma.async_store(out, [m, k * N], result)  # @box-store
        if k + STAGES < STEPS:
            gl.barrier()
            start_load(x, [m + shift, (k + STAGES) * N], full.index(s), tiles.index(s))
    tma.store_wait(0, read_only=False)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))


@gluon.jit
def shared_out(
    x, out, shift, columns, STAGES: gl.constexpr, STEPS: gl.constexpr, layout: gl.constexpr
):
    """Every CTA gets the whole box, at once, and stores its own rows of it."""
    M: gl.constexpr = x.block_shape[0]
    N: gl.constexpr = x.block_shape[1]
    tiles = gl.allocate_shared_memory(x.dtype, [STAGES, M, N], x.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    m = gl.program_id(0) * M
    rows = gl.arange(0, M, gl.SliceLayout(1, layout))[:, None]
    inner = gl.arange(0, N, gl.SliceLayout(0, layout))[None, :]
    for k in gl.static_range(STAGES):
        start_load(x, [m + shift, k * N], full.index(k), tiles.index(k), True)
    for k in range(STEPS):
        s = k % STAGES
        mbarrier.wait(full.index(s), k // STAGES & 1)
        v = tiles.index(s).load(layout)
        gl.store(out + (m + rows) * columns + k * N + inner, v + v)  # @own-rows
        # The others have read theirs, too.
        cluster.barrier()
        if k + STAGES < STEPS:
            start_load(x, [m + shift, (k + STAGES) * N], full.index(s), tiles.index(s), True)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))


@gluon.jit
def loading(x, m, tiles, full, empty, STAGES: gl.constexpr, STEPS: gl.constexpr):
    N: gl.constexpr = x.block_shape[1]
    for k in range(STEPS):
        s = k % STAGES
        mbarrier.wait(empty.index(s), k // STAGES & 1 ^ 1)
        start_load(x, [m, k * N], full.index(s), tiles.index(s))


@gluon.jit
def all_meet(done, go):
    """All CTAs arrive at the first one's barrier, which waits, and tells the others."""
    mbarrier.arrive(done)
    mbarrier.wait(done, 0)
    mbarrier.arrive(go, from_cta=0)
    mbarrier.wait(go, 0)


@gluon.jit
def storing(
    out,
    sums,
    got,
    m,
    columns,
    tiles,
    full,
    empty,
    done,
    go,
    MEET: gl.constexpr,
    STAGES: gl.constexpr,
    STEPS: gl.constexpr,
    layout: gl.constexpr,
):
    M: gl.constexpr = tiles.shape[1]
    N: gl.constexpr = tiles.shape[2]
    row = gl.arange(0, M, gl.SliceLayout(1, layout))
    inner = gl.arange(0, N, gl.SliceLayout(0, layout))[None, :]
    total = gl.zeros([M], gl.float32, gl.SliceLayout(1, layout))
    for k in range(STEPS):
        s = k % STAGES
        mbarrier.wait(full.index(s), k // STAGES & 1)
        v = tiles.index(s).load(layout)
        mbarrier.arrive(empty.index(s))
        gl.store(out + (m + row[:, None]) * columns + k * N + inner, v + v)  # @worker-store
        total += gl.sum(v, axis=1)
    gl.store(sums + m + row, total)  # @sum
    if MEET:
        all_meet(done, go)
    gl.store(got + m + row, gl.load(sums + m + (row + 32) % M))  # @sum-of-next
    if not MEET:
        all_meet(done, go)


@gluon.jit
def specialised(
    x,
    out,
    sums,
    got,
    step,
    columns,
    MEET: gl.constexpr,
    STAGES: gl.constexpr,
    STEPS: gl.constexpr,
    layout: gl.constexpr,
    group: gl.constexpr,
):
    """One partition loads, one stores and then reads what another CTA of the cluster has stored."""
    M: gl.constexpr = x.block_shape[0]
    N: gl.constexpr = x.block_shape[1]
    tiles = gl.allocate_shared_memory(x.dtype, [STAGES, M, N], x.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = gl.allocate_shared_memory(gl.int64, [1], group)
    go = mbarrier.allocate_mbarrier()
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(go, count=1)
    m = gl.program_id(0) * step
    gl.warp_specialize(
        [
            (
                storing,
                (
                    out,
                    sums,
                    got,
                    m,
                    columns,
                    tiles,
                    full,
                    empty,
                    done,
                    go,
                    MEET,
                    STAGES,
                    STEPS,
                    layout,
                ),
            ),
            (loading, (x, m, tiles, full, empty, STAGES, STEPS)),
        ],
        [1],
        [24],
    )


@gluon.jit
def start_loads(a, b, m, n, k, barrier, a_tile, b_tile):
    mbarrier.expect(barrier, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [m, k], barrier, a_tile)
    tma.async_load(b, [k, n], barrier, b_tile, multicast=True)


@gluon.jit
def product(a, b, c, step, K, STAGES: gl.constexpr, accumulator: gl.constexpr):
    """A matrix product whose CTAs have rows of `a` of their own and share `b`."""
    M: gl.constexpr = a.block_shape[0]
    BK: gl.constexpr = a.block_shape[1]
    N: gl.constexpr = b.block_shape[1]
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES, M, BK], a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES, BK, N], b.layout)
    result = gl.allocate_shared_memory(c.dtype, [M, N], c.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    m = gl.program_id(0) * step
    n = gl.program_id(1) * N
    sums = gl.zeros([M, N], gl.float32, accumulator)
    for k in gl.static_range(STAGES - 1):
        start_loads(a, b, m, n, k * BK, full.index(k), a_tiles.index(k), b_tiles.index(k))
    for k in range(K // BK):
        s = k % STAGES
        mbarrier.wait(full.index(s), k // STAGES & 1)
        sums = warpgroup_mma(a_tiles.index(s), b_tiles.index(s), sums, is_async=True)
        sums = warpgroup_mma_wait(0, deps=[sums])
        # What is shared is overwritten next.
        cluster.barrier()
        ahead = k + STAGES - 1
        if ahead < K // BK:
            s = ahead % STAGES
            start_loads(a, b, m, n, ahead * BK, full.index(s), a_tiles.index(s), b_tiles.index(s))
    result.store(sums.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [m, n], result)  # @product
    tma.store_wait(0, read_only=False)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))


def bases(ctas: int, *basis: int) -> list[list[int]]:
    """A layout of CTAs along the dimension where `basis` is not 0."""
    return [[b << n for b in basis] for n in range(ctas.bit_length() - 1)]


def described(tensor: torch.Tensor, box: list[int], cga: list[list[int]]) -> TensorDescriptor:
    dtype = gl.float16 if tensor.dtype == torch.float16 else gl.float32
    layout = gl.NVMMASharedLayout.get_default_for(box, dtype, cga_layout=cga)
    return TensorDescriptor.from_tensor(tensor, box, layout)


def options(ctas: int) -> dict[str, Any]:
    """What kernels that go through a matrix step by step are launched with."""
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=bases(ctas, 1, 0))
    sizes = {"STAGES": STAGES, "STEPS": STEPS}
    return {**sizes, "layout": layout, "num_warps": 4, "num_ctas": ctas}


def matrix(ctas: int, value: float) -> torch.Tensor:
    """Its last column is not a multiple of 16 bytes away."""
    pitch = STEPS * COLUMNS
    whole = torch.full((CLUSTERS * ctas * ROWS, pitch), float(value), device="cuda")
    return whole[:, : pitch - 3]


def run_doubled(ctas: int, shift: int, in_place: bool) -> None:
    x = matrix(ctas, 1)
    out = x if in_place else matrix(ctas, 0)
    box, cga = [ctas * ROWS, COLUMNS], bases(ctas, 1, 0)
    doubled[(CLUSTERS,)](
        described(x, box, cga),
        described(out, box, cga),
        shift,
        **options(ctas),
    )
    torch.cuda.synchronize()
    if shift == 0:
        assert (out == 2).all().item()


def run_shared_out(ctas: int, shift: int, in_place: bool) -> None:
    x = torch.ones(CLUSTERS * ctas * ROWS, STEPS * COLUMNS, device="cuda")
    out = x if in_place else torch.zeros_like(x)
    shared_out[(CLUSTERS,)](
        described(x, [ctas * ROWS, COLUMNS], bases(ctas, 0, 0)),
        out,
        shift,
        STEPS * COLUMNS,
        **options(ctas),
    )
    torch.cuda.synchronize()
    if shift == 0:
        assert (out == 2).all().item()


def run_specialised(ctas: int, step: int, meet: bool) -> None:
    rows = CLUSTERS * ctas * ROWS
    x = torch.ones(rows, STEPS * COLUMNS, device="cuda")
    out = torch.zeros_like(x)
    sums, got = torch.zeros(2, rows, device="cuda")
    specialised[(CLUSTERS,)](
        described(x, [ctas * ROWS, COLUMNS], bases(ctas, 1, 0)),
        out,
        sums,
        got,
        step,
        STEPS * COLUMNS,
        MEET=meet,
        group=mbarrier.MBarrierLayout(bases(ctas, 0)),
        **options(ctas),
    )
    torch.cuda.synchronize()
    if step == ctas * ROWS and meet:
        assert (out == 2).all().item() and (got == STEPS * COLUMNS).all().item()


def run_product(ctas: int, short: int) -> None:
    rows, columns, inner, across = 64 * ctas, 128, 64, 4
    a = torch.ones(4 * rows, 512, dtype=torch.float16, device="cuda")
    b = torch.full((512, columns * across), 0.5, dtype=torch.float16, device="cuda")
    c = torch.zeros(4 * rows, columns * across, dtype=torch.float16, device="cuda")
    along = bases(ctas, 1, 0)
    accumulator = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16], cga_layout=along)
    product[(4, across)](
        described(a, [rows, inner], along),
        described(b, [inner, columns], bases(ctas, 0, 0)),
        described(c, [rows, columns], along),
        rows - short,
        512,
        STAGES=STAGES,
        accumulator=accumulator,
        num_warps=4,
        num_ctas=ctas,
    )
    torch.cuda.synchronize()
    if short == 0:
        assert (c == 256).all().item()


def cases(ctas: int) -> list[Case]:
    def name(what: str) -> str:
        return f"{ctas} CTAs: {what}"

    rows = ctas * ROWS
    return [
        Case(name("boxes"), lambda: run_doubled(ctas, 0, False)),
        Case(name("boxes, in place"), lambda: run_doubled(ctas, 0, True)),
        Case(
            name("boxes, in place, shifted"),
            lambda: run_doubled(ctas, 1, True),
            races=(Race("box-load", "box-store"),),
        ),
        Case(name("multicast"), lambda: run_shared_out(ctas, 0, False)),
        Case(
            name("multicast, in place, shifted"),
            lambda: run_shared_out(ctas, 1, True),
            races=(Race("box-load", "own-rows"),),
        ),
        Case(name("partitions"), lambda: run_specialised(ctas, rows, True)),
        Case(
            name("partitions that do not meet"),
            lambda: run_specialised(ctas, rows, False),
            races=(Race("sum", "sum-of-next"),),
        ),
        Case(
            name("partitions, clusters overlap"),
            lambda: run_specialised(ctas, rows - 8, True),
            races=(Race("worker-store", "worker-store"),),
            also=(
                Race("sum", "sum"),
                Race("sum", "sum-of-next"),
                Race("sum-of-next", "sum-of-next"),
            ),
        ),
        Case(name("product"), lambda: run_product(ctas, 0)),
        Case(
            name("product, clusters overlap"),
            lambda: run_product(ctas, 8),
            races=(Race("product", "product"),),
        ),
    ]


CASES = [*cases(2), *cases(4)]
