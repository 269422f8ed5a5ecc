"""Dependent launches in which one partition of warps waits for the launch before, or none does."""

import torch
from gsan_programs import Case, Race
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ROWS, COLUMNS = 32, 64
CTAS = 8
LAUNCHES = 4


@gluon.jit
def fetch(x, m, tile, ready, WAIT: gl.constexpr):
    if WAIT:
        gdc_wait()
    mbarrier.expect(ready, x.nbytes_per_cta)
    tma.async_load(x, [m, 0], ready, tile)  # @fetch


@gluon.jit
def add_one(out, m, columns, rounds, tile, ready, layout: gl.constexpr):
    rows = gl.arange(0, tile.shape[0], gl.SliceLayout(1, layout))[:, None]
    inner = gl.arange(0, tile.shape[1], gl.SliceLayout(0, layout))[None, :]
    mbarrier.wait(ready, 0)
    v = tile.load(layout)
    # It takes so long that the next launch, should it not wait, starts meanwhile.
    noise = v
    for _ in range(rounds):
        noise = noise * 1664525 + 1013904223
    v = gl.where(noise == 7, v + 2, v + 1)
    gl.store(out + (m + rows) * columns + inner, v)  # @add-one


@gluon.jit
def step(x, out, columns, rounds, WAIT: gl.constexpr, layout: gl.constexpr):
    """The partition that loads is the one to wait; the CTA's other warps go on from there."""
    M: gl.constexpr = x.block_shape[0]
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    gdc_launch_dependents()
    m = gl.program_id(0) * M
    gl.warp_specialize(
        [
            (add_one, (out, m, columns, rounds, tile, ready, layout)),
            (fetch, (x, m, tile, ready, WAIT)),
        ],
        [1],
        [24],
    )


@gluon.jit
def plain_step(x, out, rounds, WAIT: gl.constexpr, layout: gl.constexpr):
    """All warps wait; copies by the hardware."""
    M: gl.constexpr = x.block_shape[0]
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    gdc_launch_dependents()
    m = gl.program_id(0) * M
    if WAIT:
        gdc_wait()
    mbarrier.expect(ready, x.nbytes_per_cta)
    tma.async_load(x, [m, 0], ready, tile)  # @plain-fetch
    mbarrier.wait(ready, 0)
    v = tile.load(layout)
    noise = v
    for _ in range(rounds):
        noise = noise * 1664525 + 1013904223
    tile.store(gl.where(noise == 7, v + 2, v + 1))
    fence_async_shared()
    tma.async_store(out, [m, 0], tile)  # @plain-add
    tma.store_wait(0, read_only=False)
    mbarrier.invalidate(ready)


def described(tensor: torch.Tensor, ctas: int) -> TensorDescriptor:
    box = [ctas * ROWS, COLUMNS]
    cga = [[1 << n, 0] for n in range(ctas.bit_length() - 1)]
    layout = gl.NVMMASharedLayout.get_default_for(box, gl.int32, cga_layout=cga)
    return TensorDescriptor.from_tensor(tensor, box, layout)


def run(ctas: int, partitions: bool, wait: bool) -> None:
    shape = (CTAS * ROWS, COLUMNS)
    x = [torch.zeros(shape, dtype=torch.int32, device="cuda") for _ in range(LAUNCHES + 1)]
    cga = [[1 << n, 0] for n in range(ctas.bit_length() - 1)]
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=cga)
    options = {"WAIT": wait, "layout": layout, "num_warps": 4, "num_ctas": ctas, "launch_pdl": True}
    torch.cuda.synchronize()
    for before, after in zip(x, x[1:], strict=False):
        source = described(before, ctas)
        if partitions:
            step[(CTAS // ctas,)](source, after, COLUMNS, 300_000, **options)
        else:
            target = described(after, ctas)
            plain_step[(CTAS // ctas,)](source, target, 300_000, **options)
    torch.cuda.synchronize()
    if wait:
        assert (x[-1] == LAUNCHES).all().item()


def cases(ctas: int) -> list[Case]:
    several = f", {ctas} CTAs a cluster" if ctas > 1 else ""
    return [
        Case(f"a partition waits{several}", lambda: run(ctas, True, True)),
        Case(
            f"no partition waits{several}",
            lambda: run(ctas, True, False),
            races=(Race("fetch", "add-one"),),
        ),
        Case(f"all wait{several}", lambda: run(ctas, False, True)),
        Case(
            f"none waits{several}",
            lambda: run(ctas, False, False),
            races=(Race("plain-fetch", "plain-add"),),
        ),
    ]


CASES = [*cases(1), *cases(2)]
