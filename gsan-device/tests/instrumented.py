"""Compile the Triton fixtures of gsan-ptx, instrumented, with a device library.

usage: instrumented.py LIBRARY DIRECTORY NAME...

Writes DIRECTORY/NAME.ptx for each fixture named. Needs triton 3.9.0, no torch, no GPU.
"""

import importlib.util
import pathlib
import sys

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "gsan-ptx/fixtures/build.py"


def main():
    library, directory, *names = sys.argv[1:]
    library = str(pathlib.Path(library).resolve())
    directory = pathlib.Path(directory).resolve()

    import triton
    from triton.backends.nvidia.compiler import CUDABackend

    triton.knobs.compilation.instrumentation_mode = "gsan"
    parse_options, compile_kernel = CUDABackend.parse_options, triton.compile

    def with_library(self, options):
        parsed = parse_options(self, options)
        libraries = [
            (name, library if name == "gsan" else path) for name, path in parsed.extern_libs
        ]
        object.__setattr__(parsed, "extern_libs", tuple(libraries))
        object.__setattr__(parsed, "min_shared_mem", None)
        return parsed

    def compile_instrumented(source, target, options):
        options = dict(options or {}, instrumentation_mode="gsan")
        return compile_kernel(source, target=target, options=options)

    # PTX is all that is needed, and making machine code of it takes longest.
    CUDABackend.make_cubin = lambda *_: b""
    CUDABackend.parse_options = with_library
    triton.compile = compile_instrumented

    spec = importlib.util.spec_from_file_location("fixtures", FIXTURES)
    fixtures = importlib.util.module_from_spec(spec)
    sys.modules["fixtures"] = fixtures
    spec.loader.exec_module(fixtures)
    for fixture in fixtures.build_triton(set(names)):
        (directory / f"{fixture.name}.ptx").write_text(fixture.text)


main()
