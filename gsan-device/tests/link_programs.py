"""Compile the programs of tests/triton, instrumented, against device libraries, without a GPU.

usage: link_programs.py [--sm SM] [--plain] LIBRARY... -- [NAME...]

Needs triton 3.9.0 and torch, no GPU. Every case of a module runs with tensors of the CPU and
launches that do nothing; each kernel is compiled on the way, down to the cubin. NAME is a part of a
module's name. Fails if a kernel does not link, or if ptxas refuses it.
"""

import argparse
import importlib.util
import pathlib
import sys
import tempfile

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler
from triton.runtime.driver import driver

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "tests/triton/programs"


class NoDevice:
    """A device that takes every kernel and runs none."""

    def __init__(self, sm):
        self.sm = sm
        self.kernels = []
        self.utils = self

    def get_device_properties(self, _device):
        return {"max_shared_mem": 232448, "multiprocessor_count": 132}

    def load_binary(self, name, binary, shared, _device):
        self.kernels.append((name, len(binary), shared))
        return 1, 1, 0, 0, 1024

    def unload_module(self, _module):
        pass

    def get_current_device(self):
        return 0

    def get_current_stream(self, _device=0):
        return 0

    def get_device_capability(self, _device=0):
        return divmod(self.sm, 10)

    def get_current_target(self):
        return GPUTarget("cuda", self.sm, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def launcher_cls(self, _source, _metadata):
        return lambda *_: None


class OnTheCpu(TorchFunctionMode):
    """Makes tensors of the GPU those of the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def link_with(library, registers=128):
    """Has what GSan puts into the compiler link `library`, whatever a kernel needs."""
    from gsan._plugin import compiling

    compiling.device_library = lambda _records, by_sm, part=None: library
    compiling._in_parts = lambda _target: False
    # Settings are asked of a library that need not be there.
    compiling._records = lambda: 0
    compiling._most_registers = lambda: registers
    if not hasattr(compiler.CUDABackend.parse_options, "__wrapped__"):
        compiling.plug_in(compiler)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run(case):
    """Runs a case; its results are wrong, which it may say."""
    with OnTheCpu():
        try:
            case.run()
        except AssertionError as error:
            if error.args:
                raise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sm", type=int, default=90)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("arguments", nargs="*")
    before, _, names = " ".join(sys.argv[1:]).partition("-- ")
    options = parser.parse_args(before.split())
    names = names.split()
    sys.path[:0] = [str(PROGRAMS.parent), str(PROGRAMS.parents[2] / "python")]
    torch.cuda.synchronize = lambda *_: None
    device = NoDevice(options.sm)
    driver.set_active(device)
    torch.cuda.get_device_capability = device.get_device_capability
    triton.knobs.compilation.instrumentation_mode = "" if options.plain else "gsan"
    failed = 0
    for library in options.arguments or ["plain"]:
        if not options.plain:
            link_with(str(pathlib.Path(library).resolve()))
        for path in sorted(PROGRAMS.glob("*.py")):
            if names and not any(name in path.stem for name in names):
                continue
            with tempfile.TemporaryDirectory() as cache:
                triton.knobs.cache.dir = cache
                for case in load(path).CASES:
                    device.kernels.clear()
                    try:
                        run(case)
                        said = ", ".join(f"{n} ({s} bytes shared)" for n, _, s in device.kernels)
                        said = f"ok {said}"
                    except Exception as error:
                        failed += 1
                        said = f"FAILED {type(error).__name__}: {error}"
                    print(
                        f"{pathlib.Path(library).name}, {path.stem}: {case.name}: {said}",
                        flush=True,
                    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
