"""The seam in Triton's compiler: our device library instead of its own.

`CUDABackend.parse_options` says which library is linked and how a kernel may use an SM; `make_llir`
lowers, and links what is compiled with each kernel. How much shared memory a kernel needs is known
in between only. `make_cubin` finds out whether a kernel can do with the registers that it is given,
and links the rest of the library.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import hashlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import _settings
from .._native import IN_KERNEL, ONCE, WHOLE, device_library
from . import linking

#: Shared memory that the library's variant with the state in shared memory takes, in bytes.
SHARED_STATE = 1024
#: Up to here Triton does not ask the driver for more shared memory than is always allowed.
ALWAYS_ALLOWED = 48 * 1024
#: The most that a block may ask for, in KiB, by compute capability (CUDA Programming Guide,
#: technical specifications). No driver is asked: a target's GPU need not be there.
MOST_SHARED = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99}
MOST_SHARED |= {90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
#: 32-bit registers of an SM, which one CTA may use up.
REGISTERS = 64 * 1024
#: Most registers that a thread can have, and the fewest that functions can do with.
MOST_REGISTERS, FEWEST_REGISTERS = 255, 32
#: The names of the other variant in the options, and of what is compiled once, of either. They are
#: there for their hashes, and never linked as such.
BY_SM = "gsan-by-sm"
ONCE_SHARED, ONCE_BY_SM = "gsan-once", "gsan-once-by-sm"
#: Where the metadata of a kernel says which of these its machine code is linked to.
LINKED_TO = "gsan_linked_to"


@functools.cache
def _records() -> int:
    return _settings.number("shadow", "records", 4)


@functools.cache
def _most_registers() -> int:
    return _settings.number("launch", "max_registers", 128)


@functools.cache
def _may_be_in_parts() -> bool:
    return _settings.text("launch", "link", "parts") == "parts"


def most_shared(capability: int) -> int:
    """How much shared memory a block may have, in bytes; if unknown, what is always allowed."""
    return MOST_SHARED.get(capability, ALWAYS_ALLOWED // 1024) * 1024


def _in_parts(target: linking.Target) -> bool:
    """Whether the library is linked in two parts: if what is there can link what is there."""
    library = device_library(_records(), by_sm=False, part=ONCE)
    return _may_be_in_parts() and linking.works(
        library, target, _most_registers() or MOST_REGISTERS
    )


def forget_settings() -> None:
    """Asks for the settings again at the next compilation."""
    _records.cache_clear()
    _most_registers.cache_clear()
    _may_be_in_parts.cache_clear()


def is_instrumented(options: Any) -> bool:
    """Whether parsed options, or the metadata of a kernel, say that accesses are checked."""
    return "gsan" in _modes(getattr(options, "instrumentation_mode", ""))


def _modes(mode: str | None) -> list[str]:
    return [name.strip() for name in (mode or "").split(",")]


def registers_bound(num_warps: int, bound: int) -> int | None:
    """The bound on registers of a thread: checks would take all there are, and so one CTA an SM.

    `None`, no bound, if it is 0 or a CTA of that many warps does not have as many registers.
    """
    if bound <= 0 or num_warps * 32 * bound > REGISTERS:
        return None
    return bound


def registers_of_called(ptx: str, bound: int) -> int:
    """How many registers of a thread the functions may use that a kernel is linked to."""
    threads = re.search(r"^\s*\.(?:req|max)ntid\s+(\d+)", ptx, flags=re.MULTILINE)
    there = REGISTERS // int(threads[1]) // 8 * 8 if threads else MOST_REGISTERS
    return max(min(bound or MOST_REGISTERS, there, MOST_REGISTERS), FEWEST_REGISTERS)


def shared_variant_fits(shared: int | None, most: int) -> bool:
    """Whether a kernel with `shared` bytes leaves the room that the state of a CTA needs."""
    return (shared or 0) + SHARED_STATE <= most


def shared_to_ask_for(shared: int) -> int:
    """How much dynamic shared memory to ask for, so that Triton asks the driver for enough.

    It looks at dynamic memory alone when it decides whether more than the 48 KiB that are always
    allowed must be asked for.
    """
    if ALWAYS_ALLOWED - SHARED_STATE < shared <= ALWAYS_ALLOWED:
        return ALWAYS_ALLOWED + 16
    return shared


class _LateChoice:
    """Options that name the library to link once the kernel's shared memory is known."""

    def __init__(self, options: Any, module: Any, most_shared: int) -> None:
        self._options = options
        self._module = module
        self._most_shared = most_shared

    @property
    def extern_libs(self) -> tuple[tuple[str, str], ...]:
        libraries = dict(self._options.extern_libs)
        by_sm = libraries.pop(BY_SM)
        if not shared_variant_fits(self._module.get_int_attr("ttg.shared"), self._most_shared):
            libraries["gsan"] = by_sm
        for once in (ONCE_SHARED, ONCE_BY_SM):
            libraries.pop(once, None)
        return tuple(libraries.items())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)

    def __hash__(self) -> int:
        return hash(self._options)

    def __eq__(self, other: object) -> bool:
        return self._options == getattr(other, "_options", other)


def without_registers_bound(ptx: str) -> str:
    """PTX whose kernels may use all registers that there are."""
    return re.sub(r"^\s*\.maxnreg\s+\d+\s*$", "", ptx, flags=re.MULTILINE)


class _Quiet(threading.local):
    """Whether this thread tries what may fail, so that Triton's compiler shall not print why."""

    now = False


_quiet = _Quiet()


def _print(*values: Any, **options: Any) -> None:
    """`print` for Triton's compiler."""
    if not _quiet.now:
        builtins.print(*values, **options)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    _quiet.now = True
    try:
        yield
    finally:
        _quiet.now = False


def _with_library(options: Any, asked: dict[str, Any], target: linking.Target) -> Any:
    """What was parsed of the options that were asked for, with our library."""
    records = _records()
    part = IN_KERNEL if _in_parts(target) else WHOLE
    libraries = dict(options.extern_libs)
    libraries["gsan"] = str(device_library(records, by_sm=False, part=part))
    libraries[BY_SM] = str(device_library(records, by_sm=True, part=part))
    if part == IN_KERNEL:
        libraries[ONCE_SHARED] = str(device_library(records, by_sm=False, part=ONCE))
        libraries[ONCE_BY_SM] = str(device_library(records, by_sm=True, part=ONCE))
    changed = dataclasses.replace(
        options,
        instrumentation_mode=asked["instrumentation_mode"],
        maxnreg=registers_bound(options.num_warps, _most_registers()),
    )
    # Making the options anew puts Triton's own library back, so ours comes last.
    object.__setattr__(changed, "extern_libs", tuple(libraries.items()))
    return changed


@functools.cache
def _tell_files_apart() -> None:
    """Makes the file part of what a kernel is cached by.

    Triton's key has a kernel's text and its first line, so that equal kernels in two files are
    compiled once, with the lines of one of them, which is what reports would name.
    """
    from triton.compiler.compiler import ASTSource

    key = ASTSource.hash

    @functools.wraps(key)
    def with_file(self: Any) -> str:
        code = getattr(getattr(self.fn, "fn", None), "__code__", None)
        file = getattr(code, "co_filename", "")
        return hashlib.sha256(f"{key(self)}-{file}".encode()).hexdigest()

    ASTSource.hash = with_file


def _mode() -> str:
    """How kernels are to be instrumented that do not say it."""
    import triton

    return triton.knobs.compilation.instrumentation_mode


def plug_in(compiler: ModuleType) -> None:
    """Puts the seam into `triton.backends.nvidia.compiler`."""
    backend = compiler.CUDABackend
    parse_options, make_llir = backend.parse_options, backend.make_llir
    make_cubin = backend.make_cubin

    def target_of(capability: int) -> linking.Target:
        tool = compiler.get_ptxas(capability)
        architecture = compiler.sm_arch_from_capability(capability)
        return linking.Target(architecture, str(tool.path), str(tool.version))

    @functools.wraps(parse_options)
    def parse(self: Any, opts: dict[str, Any]) -> Any:
        _tell_files_apart()
        if "instrumentation_mode" not in opts and (mode := _mode()):
            # `triton.compile` alone, as torch.compile calls it, does not ask for it.
            opts = {**opts, "instrumentation_mode": mode}
        modes = _modes(opts.get("instrumentation_mode"))
        if "gsan" not in modes:
            return parse_options(self, opts)
        # For its own library Triton asks the driver how much shared memory there is, and takes all.
        others = ",".join(name for name in modes if name != "gsan")
        options = parse_options(self, {**opts, "instrumentation_mode": others})
        return _with_library(options, opts, target_of(self.target.arch))

    @functools.wraps(make_llir)
    def lower(self: Any, src: Any, metadata: Any, options: Any, capability: int) -> Any:
        if not is_instrumented(options) or BY_SM not in dict(options.extern_libs):
            return make_llir(self, src, metadata, options, capability)
        most = most_shared(self.target.arch)
        lowered = make_llir(self, src, metadata, _LateChoice(options, src, most), capability)
        shared = metadata["shared"]
        metadata[LINKED_TO] = ONCE_BY_SM
        if shared_variant_fits(shared, most):
            metadata[LINKED_TO] = ONCE_SHARED
            metadata["shared"] = shared_to_ask_for(shared)
        return lowered

    def assemble_alone(self: Any, src: str, metadata: Any, options: Any, capability: int) -> Any:
        unbounded = without_registers_bound(src)
        if unbounded == src:
            return make_cubin(self, src, metadata, options, capability)
        from triton.runtime.errors import PTXASError

        try:
            with _quietly():
                return make_cubin(self, src, metadata, options, capability)
        except PTXASError:
            # Large tensor-core instructions alone can need more registers than the bound.
            return make_cubin(self, unbounded, metadata, options, capability)

    @functools.wraps(make_cubin)
    def assemble(self: Any, src: str, metadata: Any, options: Any, capability: int) -> Any:
        if not is_instrumented(options):
            return make_cubin(self, src, metadata, options, capability)
        src = linking.with_half_fences(src)
        once = dict(options.extern_libs).get(metadata.get(LINKED_TO))
        if once is None:
            return assemble_alone(self, src, metadata, options, capability)
        further = " ".join(filter(None, [options.ptx_options, "--compile-only"]))
        for_linking = dataclasses.replace(options, ptx_options=further)
        target = target_of(self.target.arch)
        registers = registers_of_called(src, _most_registers())
        keeps = linking.can_keep(src, registers)
        rest = linking.assembled(Path(once), target, registers, keeps)
        text = linking.keeping(src) if keeps else src
        if (options.maxnreg or MOST_REGISTERS) < FEWEST_REGISTERS:
            text = without_registers_bound(text)
        code = assemble_alone(self, text, metadata, for_linking, capability)
        return linking.link(target, [code, rest])

    compiler.print = _print  # type: ignore[attr-defined]
    backend.parse_options = parse
    backend.make_llir = lower
    backend.make_cubin = assemble
