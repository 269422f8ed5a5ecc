"""The seam in Triton's compiler: our device library instead of its own.

`CUDABackend.parse_options` says which library is linked and how a kernel may use an SM; `make_llir`
lowers and links. How much shared memory a kernel needs is known in between only. `make_cubin` finds
out whether a kernel can do with the registers that it is given.
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
from types import ModuleType
from typing import Any

from .. import _settings
from .._native import device_library

#: Shared memory that the library's variant with the state in shared memory takes, in bytes.
SHARED_STATE = 1024
#: Up to here Triton does not ask the driver for more shared memory than is always allowed.
ALWAYS_ALLOWED = 48 * 1024
#: 32-bit registers of an SM, which one CTA may use up.
REGISTERS = 64 * 1024
#: The name of the other variant in the options. It is there for its hash, and never linked as such.
BY_SM = "gsan-by-sm"


@functools.cache
def _records() -> int:
    return _settings.number("shadow", "records", 4)


@functools.cache
def _most_registers() -> int:
    return _settings.number("launch", "max_registers", 128)


def forget_settings() -> None:
    """Asks for the settings again at the next compilation."""
    _records.cache_clear()
    _most_registers.cache_clear()


def is_instrumented(options: Any) -> bool:
    """Whether parsed options, or the metadata of a kernel, say that accesses are checked."""
    mode = getattr(options, "instrumentation_mode", "") or ""
    return "gsan" in (name.strip() for name in mode.split(","))


def registers_bound(num_warps: int, bound: int) -> int | None:
    """The bound on registers of a thread: checks would take all there are, and so one CTA an SM.

    `None`, no bound, if it is 0 or a CTA of that many warps does not have as many registers.
    """
    if bound <= 0 or num_warps * 32 * bound > REGISTERS:
        return None
    return bound


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


def _most_shared() -> int:
    from triton.runtime.driver import driver

    device = driver.active.get_current_device()
    return driver.active.utils.get_device_properties(device)["max_shared_mem"]


def _with_library(options: Any, asked_shared: int | None) -> Any:
    records = _records()
    libraries = dict(options.extern_libs)
    libraries["gsan"] = str(device_library(records, by_sm=False))
    libraries[BY_SM] = str(device_library(records, by_sm=True))
    changed = dataclasses.replace(
        options,
        min_shared_mem=asked_shared,
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

    @functools.wraps(parse_options)
    def parse(self: Any, opts: dict[str, Any]) -> Any:
        _tell_files_apart()
        if "instrumentation_mode" not in opts and (mode := _mode()):
            # `triton.compile` alone, as torch.compile calls it, does not ask for it.
            opts = {**opts, "instrumentation_mode": mode}
        options = parse_options(self, opts)
        if not is_instrumented(options):
            return options
        return _with_library(options, opts.get("min_shared_mem"))

    @functools.wraps(make_llir)
    def lower(self: Any, src: Any, metadata: Any, options: Any, capability: int) -> Any:
        if not is_instrumented(options) or BY_SM not in dict(options.extern_libs):
            return make_llir(self, src, metadata, options, capability)
        most = _most_shared()
        lowered = make_llir(self, src, metadata, _LateChoice(options, src, most), capability)
        shared = metadata["shared"]
        if shared_variant_fits(shared, most):
            metadata["shared"] = shared_to_ask_for(shared)
        return lowered

    @functools.wraps(make_cubin)
    def assemble(self: Any, src: str, metadata: Any, options: Any, capability: int) -> Any:
        unbounded = without_registers_bound(src) if is_instrumented(options) else src
        if unbounded == src:
            return make_cubin(self, src, metadata, options, capability)
        from triton.runtime.errors import PTXASError

        try:
            with _quietly():
                return make_cubin(self, src, metadata, options, capability)
        except PTXASError:
            # Large tensor-core instructions alone can need more registers than the bound.
            return make_cubin(self, unbounded, metadata, options, capability)

    compiler.print = _print  # type: ignore[attr-defined]
    backend.parse_options = parse
    backend.make_llir = lower
    backend.make_cubin = assemble
