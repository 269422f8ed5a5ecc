"""Stock Triton 3.9 compiles kernels with this project's library. Needs Triton, no torch, no GPU."""

from __future__ import annotations

import gzip
import re
import sys
from typing import Any, NoReturn

import gsan
import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.__version__.startswith("3.9"):
    pytest.skip(f"Triton {triton.__version__} is not supported", allow_module_level=True)
# A library that says what is configured is needed to choose the number of records.
gsan.install()

import triton.language as tl  # noqa: E402
from gsan._plugin import compiling, linking  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.runtime.driver import driver  # noqa: E402


class NoDriver:
    """A machine without a GPU: compiling for a target must not ask about a device."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"0 active drivers, asked for {name}")


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(driver, "_active", NoDriver())
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "_records", lambda: 4)
    monkeypatch.setattr(compiling, "_most_registers", lambda: 128)
    monkeypatch.setattr(compiling, "_may_be_in_parts", lambda: True)


@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) + tl.sum(tl.load(x + i, i < n), 0), i < n)


def compile(mode: str | None = "gsan", warps: int = 4, capability: int = 90, **more: Any):
    signature = dict(x="*fp32", y="*fp32", n="i32", B="constexpr")
    source = ASTSource(fn=add, signature=signature, constexprs=dict(B=1024))
    options: dict = dict(num_warps=warps, **more)
    if mode is not None:
        options["instrumentation_mode"] = mode
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def test_our_library_is_linked_and_assembles(monkeypatch) -> None:
    kernel = compile()
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert dict(kernel.metadata.extern_libs)["gsan"].endswith("gsan-shared-4-kernel.bc")
    assert kernel.metadata.gsan_linked_to == "gsan-once"
    assert ".maxnreg 128" in kernel.asm["ptx"]
    # The start of a CTA is compiled once.
    assert re.search(r"\.extern \.func\s+_ZN4gsan13start_by_warp", kernel.asm["ptx"])
    monkeypatch.setattr(linking, "works", lambda *_: False)
    assert not re.search(r"\.extern \.func\s+_ZN4gsan", compile().asm["ptx"])
    # The state of a CTA, in shared memory, and room beside it for other CTAs.
    assert "[1024];" in kernel.asm["ptx"] and kernel.metadata.shared < 1024


def test_a_kernel_that_needs_all_shared_memory_has_its_state_elsewhere(monkeypatch) -> None:
    monkeypatch.setattr(compiling, "most_shared", lambda _: 1024)
    ptx = compile().asm["ptx"]
    assert ".align 1024 .b8" not in ptx and "%smid" in ptx


@pytest.mark.parametrize("capability", [80, 86, 90, 100, 120])
def test_kernels_are_compiled_for_a_target_without_its_gpu(capability: int) -> None:
    kernel = compile(capability=capability)
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert re.search(rf"^\.target sm_{capability}a?\b", kernel.asm["ptx"], re.MULTILINE)
    assert kernel.metadata.gsan_linked_to == "gsan-once"


def test_what_a_kernel_asks_for_besides_is_kept() -> None:
    kernel = compile(mode=" gsan , fpsan", min_shared_mem=8192)
    assert kernel.metadata.instrumentation_mode == " gsan , fpsan"
    assert kernel.metadata.shared == 8192
    assert kernel.metadata.gsan_linked_to == "gsan-once"


def test_functions_linked_to_a_large_cta_use_few_registers() -> None:
    assert compiling.registers_of_called(".reqntid 128", 128) == 128
    assert compiling.registers_of_called(".reqntid 128", 0) == 255
    assert compiling.registers_of_called("\t.maxntid 1024, 1, 1", 128) == 64
    assert compiling.registers_of_called(".reqntid 384", 0) == 168
    assert compile(warps=32).asm["cubin"][:4] == b"\x7fELF"


def test_functions_of_both_parts_keep_the_same_registers() -> None:
    kernel = compile().asm["ptx"]
    assert linking.can_keep(kernel, 128) and not linking.can_keep(kernel, 64)
    assert not linking.can_keep(kernel.replace(".version 9", ".version 8"), 128)

    def kept(ptx: str) -> dict[str, int]:
        head = r"^\.(?:weak|extern) \.func[^;{]*?(_ZN\w+)\s*\([^;{]*\)\s*"
        text = re.sub(r"//.*", "", linking.keeping(ptx))
        found: dict[str, int] = {}
        for name, count in re.findall(head + r"\.abi_preserve (\d+)\s*[;{]", text, re.MULTILINE):
            assert found.setdefault(name, int(count)) == int(count)
        return found

    once = gzip.decompress(compiling.device_library(4, False, compiling.ONCE).read_bytes()).decode()
    called = re.findall(r"^\.extern \.func[^;]*?(_ZN\w+)\s*\(", kernel, re.MULTILINE)
    assert "_ZN4gsan13start_by_warpEP17gsan_global_statejjPKvm" in called
    for name in called:
        assert kept(kernel)[name] == kept(once)[name]


@pytest.mark.parametrize("records", [2, 4])
@pytest.mark.parametrize("by_sm", [False, True])
def test_functions_that_keep_registers_are_there(records: int, by_sm: bool) -> None:
    once = compiling.device_library(records, by_sm, compiling.ONCE).read_bytes()
    heads = map(linking.FUNCTION.match, gzip.decompress(once).decode().split("\n"))
    there = {head[2] for head in heads if head}
    kernel = compiling.device_library(records, by_sm, compiling.IN_KERNEL).read_bytes()
    for name in linking.KEEPS.keys() - there:
        assert f"{len(name)}{name}".encode() in kernel


@pytest.mark.parametrize(
    ("version", "target", "fence"),
    [
        ("8.6", "sm_90a", "fence.release.gpu;"),
        ("9.0", "sm_100", "fence.release.gpu;"),
        ("8.5", "sm_90", "fence.acq_rel.gpu; // gsan: release"),
        ("9.0", "sm_80", "fence.acq_rel.gpu; // gsan: release"),
    ],
)
def test_fences_are_halved_where_that_can_be(version: str, target: str, fence: str) -> None:
    head = f".version {version}\n.target {target}\n"
    own = "\tfence.acq_rel.sys;\n\tfence.acq_rel.gpu; // release the lock\n"
    said = "\tfence.acq_rel.gpu; // gsan: release\n"
    assert linking.with_half_fences(head + said + own) == f"{head}\t{fence}\n{own}"


def test_every_half_fence_of_the_library_is_found() -> None:
    once = gzip.decompress(compiling.device_library(4, False, compiling.ONCE).read_bytes()).decode()
    halved = linking.with_half_fences(".version 9.0\n.target sm_90\n" + once)
    assert "fence.acquire.gpu;" in halved and "fence.release.sys;" in halved
    assert "// gsan: " not in halved


def test_what_cannot_be_linked_says_why(monkeypatch) -> None:
    for linker in linking.linkers():
        if isinstance(linker, linking.NvJitLink):
            with pytest.raises(linking.LinkError, match="nvJitLink"):
                linker.link("sm_90a", [b"no machine code"])
    library = compiling.device_library(4, False, compiling.ONCE)
    target = linking.Target("sm_90a", "false", "0")
    with pytest.raises(linking.LinkError, match="false does not assemble"):
        linking.assembled(library, target, 128)
    assert not linking.works(library, target, 128)
    monkeypatch.setattr(linking, "linkers", lambda: ())
    with pytest.raises(linking.LinkError, match="nvidia-nvjitlink.*GSAN_LAUNCH_LINK=whole"):
        linking.link(target, [b""])


def test_kernels_that_are_not_instrumented_are_left_alone() -> None:
    kernel = compile(mode="")
    assert "gsan" not in kernel.asm["ptx"] and ".maxnreg" not in kernel.asm["ptx"]
    assert "gsan" not in dict(kernel.metadata.extern_libs)


def test_kernels_that_torch_compiles_follow_the_mode_that_is_on(monkeypatch) -> None:
    assert "gsan" not in compile(mode=None).asm["ptx"]
    monkeypatch.setattr(triton.knobs.compilation, "instrumentation_mode", "gsan")
    kernel = compile(mode=None)
    assert compiling.is_instrumented(kernel.metadata)
    assert dict(kernel.metadata.extern_libs)["gsan"].endswith("gsan-shared-4-kernel.bc")


def test_registers_that_do_not_suffice_are_not_bounded(monkeypatch, capfd) -> None:
    monkeypatch.setattr(compiling, "_most_registers", lambda: 8)
    assert compile().asm["cubin"][:4] == b"\x7fELF"
    assert "ptxas" not in capfd.readouterr().out


def test_the_old_names_are_ours() -> None:
    import triton.experimental.gsan as module
    from triton.experimental.gsan import _allocator, _stream_sync

    assert module.configure is gsan.configure is _allocator.configure
    assert module.__file__.startswith(str(gsan.__path__[0]))
    assert _stream_sync.get_launch_state.__module__.startswith("gsan.")
    assert sys.modules["triton.experimental.gsan"] is module
