"""Compile Triton kernels, instrumented, against device libraries, for GPUs that are not there.

usage: link_triton.py LIBRARY...

Needs triton 3.9.0 and an nvJitLink as new as its assemblers, no torch, no GPU. Fails unless every
kernel, for every architecture, is assembled with the library's part for kernels and linked to the
other part, and one kernel is assembled with the whole library. What is linked must not read return
addresses (`sass`), whether it is assembled by what Triton takes for the architecture or, if that is
too old for functions to keep registers, by the newest assembler that Triton has. Prints how many
registers and bytes of stack each takes.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import sass
import triton
import triton.language as tl
from gsan._native import IN_KERNEL, ONCE, WHOLE
from gsan._plugin.linking import Target, assembled, can_keep, keeping, link, with_half_fences
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas, sm_arch_from_capability
from triton.compiler import ASTSource
from triton.runtime.driver import driver

ARCHITECTURES = [80, 90, 100]
TOOLS = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin"
NEWEST = TOOLS / "ptxas-blackwell"
#: Kernels that call most of a library.
ATOMICS = ["last_block_sums", "all_atomics"]
#: Where Triton looks which assembler it is to take.
ASSEMBLERS = ["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"]


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def last_block_sums(x, part, out, count, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    tl.store(part + block, tl.sum(tl.load(x + block * BLOCK + tl.arange(0, BLOCK))))
    tl.debug_barrier()
    if tl.atomic_add(count, 1, sem="acq_rel", scope="gpu") == n - 1:
        total = 0.0
        for i in range(n):
            total += tl.load(part + i)
        tl.store(out, total)


@triton.jit
def all_atomics(x, bins, lock, count, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    tl.atomic_add(bins + v, 1, v < n, sem="relaxed")
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.atomic_max(bins + i, v, i < n, sem="release", scope="cta")
    tl.atomic_xchg(lock, 0, sem="release")
    if tl.atomic_add(count, 1, sem="acq_rel", scope="sys") == n - 1:
        tl.store(bins + BLOCK + i, tl.load(bins + i))


@triton.jit
def matmul_tma(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_map = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b_map = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    c_map = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_map.load([m, k]), b_map.load([k, n]), total)
    c_map.store([m, n], total.to(tl.float16))


@triton.jit
def splitk_tma(x, part, out, count, BM: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr):
    x_map = tl.make_tensor_descriptor(x, [BM, BN * SPLIT], [BN * SPLIT, 1], [BM, BN])
    part_map = tl.make_tensor_descriptor(part, [BM * SPLIT, BN], [BN, 1], [BM, BN])
    out_map = tl.make_tensor_descriptor(out, [BM, BN], [BN, 1], [BM, BN])
    split = tl.program_id(0)
    value = x_map.load([0, split * BN])
    part_map.store([split * BM, 0], value)
    tl.debug_barrier()
    if tl.atomic_add(count, 1, sem="acq_rel", scope="gpu") == SPLIT - 1:
        total = tl.zeros((BM, BN), tl.float32)
        for i in range(SPLIT):
            total += part_map.load([i * BM, 0])
        out_map.store([0, 0], total)
    out_map.atomic_add([0, 0], value)


@triton.jit
def permute_rows(x, out, rows, M, N, BLOCK: tl.constexpr):
    x_map = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, BLOCK])
    out_map = tl.make_tensor_descriptor(out, [M, N], [N, 1], [1, BLOCK])
    i = tl.load(rows + tl.program_id(0) * 32 + tl.arange(0, 32))
    out_map.scatter(x_map.gather(i, 0), i, 0)


def sources():
    """Names, sources, options, and the first architecture that has what is needed."""
    for element, alignment in [("fp32", 16), ("fp16", 16), ("fp16", 2)]:
        pointers = {name: f"*{element}" for name in ["x", "y", "out"]}
        signature = dict(**pointers, n="i32", BLOCK="constexpr")
        attributes = {(i,): [["tt.divisibility", alignment]] for i in range(4)}
        source = ASTSource(add, signature, dict(BLOCK=1024), attributes)
        yield f"add {element}, aligned to {alignment}", source, {}, 80
    signature = dict(x="*fp32", part="*fp32", out="*fp32", count="*i32", n="i32", BLOCK="constexpr")
    yield "last_block_sums", ASTSource(last_block_sums, signature, dict(BLOCK=1024)), {}, 80

    def aligned(arguments):
        return {(i,): [["tt.divisibility", 16]] for i in range(arguments)}

    signature = dict(x="*i32", bins="*i32", lock="*i32", count="*i32", n="i32", BLOCK="constexpr")
    atomics = ASTSource(all_atomics, signature, dict(BLOCK=512), aligned(4))
    yield "all_atomics", atomics, {}, 80

    blocks = dict(BM="constexpr", BN="constexpr", BK="constexpr")
    signature = dict(a="*fp16", b="*fp16", c="*fp16", M="i32", N="i32", K="i32", **blocks)
    matmul = ASTSource(matmul_tma, signature, dict(BM=128, BN=128, BK=64), aligned(6))
    blocks = dict(BM="constexpr", BN="constexpr", SPLIT="constexpr")
    signature = dict(x="*fp32", part="*fp32", out="*fp32", count="*i32", **blocks)
    splitk = ASTSource(splitk_tma, signature, dict(BM=64, BN=64, SPLIT=4), aligned(4))
    for ctas in [1, 2, 4]:
        yield f"matmul_tma, {ctas} CTAs a cluster", matmul, dict(num_ctas=ctas), 90
        yield f"splitk_tma, {ctas} CTAs a cluster", splitk, dict(num_ctas=ctas), 90
    signature = dict(x="*fp16", out="*fp16", rows="*i32", M="i32", N="i32", BLOCK="constexpr")
    permute = ASTSource(permute_rows, signature, dict(BLOCK=64), aligned(5))
    yield "permute_rows", permute, {}, 100


class NoDevice:
    """Answers the few questions Triton's compiler asks about a device."""

    architecture = 0

    class utils:
        @staticmethod
        def get_device_properties(_device):
            return {"max_shared_mem": 232448 if NoDevice.architecture >= 90 else 166912}

    @staticmethod
    def get_current_device():
        return 0

    @staticmethod
    def get_current_target():
        return GPUTarget("cuda", NoDevice.architecture, 32)


def compile_with(library, source, options, architecture):
    """Compiled with a file of bitcode."""
    NoDevice.architecture = architecture
    parse_options = CUDABackend.parse_options

    def with_library(self, options):
        parsed = parse_options(self, options)
        libraries = [
            (name, library if name == "gsan" else path) for name, path in parsed.extern_libs
        ]
        object.__setattr__(parsed, "extern_libs", tuple(libraries))
        object.__setattr__(parsed, "min_shared_mem", None)
        return parsed

    CUDABackend.parse_options = with_library
    try:
        options = dict(num_warps=4, instrumentation_mode="gsan", **options)
        return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    finally:
        CUDABackend.parse_options = parse_options


def linked(library, source, options, architecture):
    """Machine code of a kernel and the part of a library that is compiled once, and whether their
    functions keep registers."""
    ahead = dict(options, ptx_options="--compile-only")
    make_cubin = CUDABackend.make_cubin

    def make_keeping(self, ptx, *rest):
        ptx = with_half_fences(ptx)
        return make_cubin(self, keeping(ptx) if can_keep(ptx, 128) else ptx, *rest)

    CUDABackend.make_cubin = make_keeping
    try:
        kernel = compile_with(library + IN_KERNEL, source, ahead, architecture)
    finally:
        CUDABackend.make_cubin = make_cubin
    keeps = can_keep(kernel.asm["ptx"], 128)
    tool = get_ptxas(architecture)
    target = Target(sm_arch_from_capability(architecture), tool.path, tool.version)
    once = assembled(pathlib.Path(library + ONCE), target, 128, keeps)
    return link(target, [kernel.asm["cubin"], once]), keeps


def said_of(code, tool, option):
    """What a tool says of machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [TOOLS / tool, option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def usage(code):
    """What the kernel in machine code takes."""
    said = said_of(code, "cuobjdump", "-res-usage")
    registers, stack = max(
        (int(registers), int(stack))
        for registers, stack in re.findall(r"REG:(\d+) STACK:(\d+)", said)
    )
    return f"{registers} registers, {stack} bytes of stack"


def check_linked(library, architecture, names=None):
    """Links each kernel, or those of `names`, and looks at what is linked; whether functions keep
    registers, and how many instructions read return addresses."""
    said = f"{pathlib.Path(library).name}, sm_{architecture}"
    kept, wrong = False, 0
    for name, source, options, first in sources():
        if architecture < first or (names and name not in names):
            continue
        code, keeps = linked(library, source, options, architecture)
        added = ", functions keep registers" if keeps else ""
        print(f"{said}, {name}: {usage(code)}{added}", flush=True)
        found = sass.findings(said_of(code, "nvdisasm", "-c"))
        for finding in found:
            print(f"{said}, {name}: {finding}", flush=True)
        kept |= keeps
        wrong += len(found)
    return kept, wrong


def check_whole(library, architecture):
    """Assembles the first kernel with the whole library."""
    name, source, options, _ = next(sources())
    code = compile_with(library + WHOLE, source, options, architecture).asm["cubin"]
    said = f"{pathlib.Path(library).name}, sm_{architecture}"
    print(f"{said}, {name}, whole: {usage(code)}", flush=True)


def main():
    if triton.__version__ != "3.9.0":
        sys.exit(f"triton {triton.__version__} is installed; the check is for 3.9.0")
    driver.set_active(NoDevice())
    triton.knobs.compilation.instrumentation_mode = "gsan"
    triton.knobs.compilation.always_compile = True
    wrong = 0
    for library in (argument.removesuffix(WHOLE) for argument in sys.argv[1:]):
        for architecture in ARCHITECTURES:
            kept, found = check_linked(library, architecture)
            wrong += found
            check_whole(library, architecture)
            if kept:
                continue
            with mock.patch.dict(os.environ, dict.fromkeys(ASSEMBLERS, str(NEWEST))):
                kept, found = check_linked(library, architecture, ATOMICS)
            wrong += found
            if not kept:
                sys.exit(f"{NEWEST} is not told what functions keep for sm_{architecture}")
    if wrong:
        sys.exit(f"{wrong} instructions read return addresses")


main()
