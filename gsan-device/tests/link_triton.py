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


def sources():
    for element, alignment in [("fp32", 16), ("fp16", 16), ("fp16", 2)]:
        pointers = {name: f"*{element}" for name in ["x", "y", "out"]}
        signature = dict(**pointers, n="i32", BLOCK="constexpr")
        attributes = {(i,): [["tt.divisibility", alignment]] for i in range(4)}
        source = ASTSource(add, signature, dict(BLOCK=1024), attributes)
        yield f"add {element}, aligned to {alignment}", source
    signature = dict(x="*fp32", part="*fp32", out="*fp32", count="*i32", n="i32", BLOCK="constexpr")
    yield "last_block_sums", ASTSource(last_block_sums, signature, dict(BLOCK=1024))


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


def compile_with(library, source, architecture):
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
        options = dict(num_warps=4, instrumentation_mode="gsan")
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
            for name, source in sources():
                kernel = compile_with(library, source, architecture)
                said = ptxas_says(kernel, architecture)
                print(
                    f"{pathlib.Path(library).name}, sm_{architecture}, {name}: {said}", flush=True
                )


main()
