"""Compile Triton kernels, instrumented, against device libraries, for GPUs that are not there.

usage: link_triton.py LIBRARY...

Needs triton 3.9.0, no torch, no GPU. Fails unless every library links into every kernel for every
architecture and ptxas accepts the result. Prints what ptxas says of registers and stack.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas
from triton.compiler import ASTSource
from triton.runtime.driver import driver

ARCHITECTURES = [80, 90, 100]


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


def ptxas_says(kernel, architecture):
    suffix = "a" if architecture >= 90 else ""
    with tempfile.TemporaryDirectory() as place:
        ptx = pathlib.Path(place, "kernel.ptx")
        ptx.write_text(kernel.asm["ptx"])
        command = [get_ptxas(architecture).path, "-v", f"--gpu-name=sm_{architecture}{suffix}"]
        command += [str(ptx), "-o", str(ptx.with_suffix(".cubin"))]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.findall(r"Used (\d+) registers", said)
    stack = re.findall(r"(\d+) bytes cumulative stack size|(\d+) bytes stack frame", said)
    stack = max((int(a or b) for a, b in stack), default=0)
    return f"{', '.join(registers)} registers, {stack} bytes of stack"


def main():
    if triton.__version__ != "3.9.0":
        sys.exit(f"triton {triton.__version__} is installed; the check is for 3.9.0")
    driver.set_active(NoDevice())
    triton.knobs.compilation.instrumentation_mode = "gsan"
    triton.knobs.compilation.always_compile = True
    for library in sys.argv[1:]:
        for architecture in ARCHITECTURES:
            for name, source, options, first in sources():
                if architecture < first:
                    continue
                kernel = compile_with(library, source, options, architecture)
                said = ptxas_says(kernel, architecture)
                print(
                    f"{pathlib.Path(library).name}, sm_{architecture}, {name}: {said}", flush=True
                )


main()
