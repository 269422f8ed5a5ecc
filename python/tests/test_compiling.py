"""What the seam in the compiler decides."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from gsan._plugin import compiling


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("gsan", True), ("consan, gsan", True), ("", False), ("gsan2", False), (None, False)],
)
def test_mode_is_a_list_of_names(mode: str | None, expected: bool) -> None:
    assert compiling.is_instrumented(SimpleNamespace(instrumentation_mode=mode)) is expected


# 65,536 registers an SM: 16 warps of 32 threads with 128 each take all of them.
@pytest.mark.parametrize(
    ("warps", "bound", "expected"),
    [(4, 128, 128), (16, 128, 128), (32, 128, None), (32, 64, 64), (4, 0, None)],
)
def test_registers_are_bounded_where_a_cta_has_as_many(
    warps: int, bound: int, expected: int | None
) -> None:
    assert compiling.registers_bound(warps, bound) == expected


# An H100 lets a block have 227 KiB; the state of a CTA takes 1 KiB of them.
@pytest.mark.parametrize(
    ("shared", "fits"), [(0, True), (None, True), (226 * 1024, True), (226 * 1024 + 1, False)]
)
def test_state_is_in_shared_memory_unless_the_kernel_needs_all(
    shared: int | None, fits: bool
) -> None:
    assert compiling.shared_variant_fits(shared, 227 * 1024) is fits


# CUDA Programming Guide, technical specifications per compute capability: most shared memory of a
# block, in KiB. What is always allowed where it is not known.
@pytest.mark.parametrize(
    ("capability", "expected"),
    [(75, 64), (80, 163), (86, 99), (87, 163), (90, 227), (100, 227), (120, 99), (999, 48)],
)
def test_a_target_says_how_much_shared_memory_there_is(capability: int, expected: int) -> None:
    assert compiling.most_shared(capability) == expected * 1024


# Triton asks the driver for more than 48 KiB only if its own part is more than that.
@pytest.mark.parametrize(
    ("shared", "asked"),
    [(0, 0), (47 * 1024, 47 * 1024), (47 * 1024 + 1, 49168), (48 * 1024, 49168), (49153, 49153)],
)
def test_shared_memory_near_48_kib_is_asked_for(shared: int, asked: int) -> None:
    assert compiling.shared_to_ask_for(shared) == asked


def test_the_bound_on_registers_can_be_taken_out_of_ptx() -> None:
    ptx = ".visible .entry k()\n.reqntid 256\n.maxnreg 128\n{\n\tret;\n}\n"
    assert ".maxnreg" not in compiling.without_registers_bound(ptx)
    assert ".reqntid 256" in compiling.without_registers_bound(ptx)
    other = "// .maxnreg 128 in a comment\n"
    assert compiling.without_registers_bound(other) == other
