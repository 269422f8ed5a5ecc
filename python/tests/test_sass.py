"""`gsan-device/tests/sass.py`, with pieces of machine code written by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "gsan-device" / "tests" / "sass.py"

#: A call of a function that keeps 32 registers.
CALL = (
    "MOV R46, 32@lo((caller + .L_x_22@srel))",
    "MOV R47, 32@hi((caller + .L_x_22@srel))",
    "CALL.ABS.NOINC `(callee)",
    ".L_x_22:",
)
RETURN = ("EXIT",)


@pytest.fixture(scope="module")
def sass() -> Any:
    spec = importlib.util.spec_from_file_location("sass", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def function(*lines: str, name: str = "caller") -> str:
    """A function as nvdisasm prints it; a line that ends with a colon is a label."""
    printed = [f".text.{name}:", f"        .type           {name},@function", f"{name}:"]
    address = 0
    for line in lines:
        if line.endswith(":"):
            printed.append(line)
            continue
        guard, space, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        printed.append(f"        /*{address:04x}*/ {guard:>18}{space or ' '}{rest} ;")
        address += 16
    return "\n".join(printed) + "\n"


def found(sass: Any, *lines: str) -> list[str]:
    """The instructions that are found in a function."""
    return [finding.instruction for finding in sass.findings(function(*lines))]


def test_a_parameter_that_the_return_address_overwrote_is_found(sass: Any) -> None:
    text = function(*CALL, "PRMT R46, R46, 0x7770, RZ", *RETURN)
    finding = sass.Finding("caller", "0030", "PRMT R46, R46, 0x7770, RZ", (46,))
    assert sass.findings(text) == [finding]
    assert "caller at 0030: `PRMT R46, R46, 0x7770, RZ` reads R46" in str(finding)


def test_what_reads_both_halves_is_one_finding(sass: Any) -> None:
    text = function(*CALL, "LD.E R4, desc[UR4][R46.64]", *RETURN)
    assert [finding.registers for finding in sass.findings(text)] == [(46, 47)]


@pytest.mark.parametrize(
    "before, behind",
    [
        (["MOV R10, R46"], ["PRMT R4, R10, 0x7770, RZ"]),
        (["STL [R1+0x8], R46"], ["LDL R46, [R1+0x8]", "PRMT R4, R46, 0x7770, RZ"]),
        (["STL.64 [R1], R46"], ["LDL.LU.64 R46, [R1]", "PRMT R4, R47, 0x7770, RZ"]),
        (["STL.128 [R1], R44"], ["LDL.128 R44, [R1]", "PRMT R4, R47, 0x7770, RZ"]),
        ([], ["CS2R R46, SRZ", "PRMT R4, R47, 0x7770, RZ"]),
        ([], ["LD.E.64.STRONG.SYS R46, desc[UR4][R8.64]", "IMAD.X R4, R47, 0x1, RZ, P0"]),
        ([], ["IMAD.WIDE.U32 R46, R4, 0x10, R6", "STL.64 [R1], R46"]),
        ([], ["HFMA2.MMA R46, -RZ, RZ, 0, 0", "MOV R4, R46"]),
        ([], ["SHFL.IDX PT, R46, R4, R5, 0x1f", "MOV R4, R46"]),
        ([], ["IADD3 R46, P0, P1, R4, R5, R6", "MOV R4, R46"]),
    ],
)
def test_what_was_put_elsewhere_or_is_written_again_is_not_found(
    sass: Any, before: list[str], behind: list[str]
) -> None:
    assert found(sass, *before, *CALL, *behind, *RETURN) == []


@pytest.mark.parametrize(
    "reads",
    [
        "ISETP.NE.U32.AND P0, PT, R46, RZ, PT",
        "FCHK P0, R46, R4",
        "HSETP2.EQ.AND P0, PT, R46, R4, PT",
        "R2UR UR4, R47",
        "SEL R4, RZ, R47.reuse, !P0",
        "LEA R4, P0, R5, -R46, 0x2",
        "LOP3.LUT P1, RZ, R4, UR5, R47, 0x40, !PT",
        "LOP3.LUT R46, R46, 0x40, RZ, 0x3c, !PT",
        "IADD3.X R4, ~R47, R5, RZ, P0, P1",
        "FSETP.GT.AND P0, PT, |R46|, 8.5e+37, PT",
        "BMOV.32 B6, R46",
        "WARPSYNC R46",
        "WARPSYNC.COLLECTIVE R46, `(.L_x_22)",
        "SHFL.IDX PT, R4, R5, R46, 0x1f",
        "ST.E.U8 desc[UR4][R8.64], R46",
        "ATOMG.E.CAS.64.STRONG.SYS PT, RZ, [R8+-0x188], R4, R46",
        # Pairs and fours of which it is not the first.
        "STL.64 [R1], R46",
        "STL.128 [R1+0x10], R44",
        "ST.E.128 desc[UR4][R8.64+0xe0], R44",
        "ATOMG.E.CAS.64.STRONG.SYS PT, RZ, [R46], R4, R6",
        "LD.E R46, [R46+0x4]",
        "LDG.E.U8 R46, desc[UR4][R46.64]",
        "LDGSTS.E.BYPASS.128 [R4], [R46.64]",
        "IMAD.WIDE.U32 R4, R5, 0x10, R46",
        "IMAD.HI.U32 R46, R4, R5, R46",
        "MATCH.ANY.U64 R46, R46",
        "I2F.U64.RP R46, R46",
        "CALL.ABS.NOINC R46",
        "IADD.64 R4, R46, R4",
        "STG.E.ENL2.256 desc[UR4][R8.64], R48, R44",
        "STSM.16.M88.4 [R4], R44",
        "HMMA.16816.F32 R4, R44, R8, R4",
        "HGMMA.64x64x16.F32 R48, R44, gdesc[UR16], R48",
        "HGMMA.64x64x16.F32 R24, gdesc[UR16].tnspB, R24, gsb0",
    ],
)
def test_reads_are_known(sass: Any, reads: str) -> None:
    assert found(sass, *CALL, reads, *RETURN) == [reads]


@pytest.mark.parametrize(
    "reads_others",
    [
        "STL [R1], R45",
        "STL.64 [R1], R44",
        "LDS R4, [R45+UR4]",
        "LDG.E R4, desc[UR4][R45.U32+UR8]",
        "LDGSTS.E.BYPASS.128 [R45+0x3000], desc[UR36][R20.64+0x40], P5",
        "IMAD.WIDE.U32 R4, R45, R45, R8",
        "SHF.R.U64 R4, R45, 0x4, R45",
        "LEA.HI.X R4, R45, R45, RZ, 0x2, P0",
        "UIADD3 UR46, UR46, UR47, URZ",
        "LDC.64 R46, c[0x0][0x208]",
        "P2R R46, PR, RZ, 0x2",
        "IADD.64 R46, R44, R48",
        "LDG.E.ENL2.256 R48, R44, desc[UR4][R8.64]",
        "HMMA.16816.F32 R44, R4, R8, R12",
        "BMOV.32.CLEAR R46, B8",
        "@!PT MOV R4, R46",
    ],
)
def test_other_registers_are_not_taken_for_it(sass: Any, reads_others: str) -> None:
    assert found(sass, *CALL, reads_others, *RETURN) == []


def test_a_write_of_one_half_leaves_the_other(sass: Any) -> None:
    behind = ["CS2R.32 R46, SR_CLOCKLO", "MOV R4, R46", "MOV R5, R47"]
    assert found(sass, *CALL, *behind, *RETURN) == ["MOV R5, R47"]


def test_a_guarded_write_helps_only_where_the_guard_holds(sass: Any) -> None:
    write = "@P0 MOV R46, R10"
    assert found(sass, *CALL, write, "MOV R4, R46", *RETURN) == ["MOV R4, R46"]
    assert found(sass, *CALL, write, "@!P0 MOV R4, R46", *RETURN) == ["@!P0 MOV R4, R46"]
    assert found(sass, *CALL, write, "@P1 MOV R4, R46", *RETURN) == ["@P1 MOV R4, R46"]
    assert found(sass, *CALL, write, "@P0 MOV R4, R46", *RETURN) == []
    assert found(sass, *CALL, write, "@!P0 MOV R46, R9", "MOV R4, R46", *RETURN) == []


@pytest.mark.parametrize(
    "changes",
    [
        "ISETP.NE.U32.AND P0, PT, R4, RZ, PT",
        "ISETP.NE.U32.AND P1, P0, R4, RZ, PT",
        "LOP3.LUT P0, RZ, R4, 0x1, RZ, 0xc0, !PT",
        "IADD3 R4, P0, R1, UR4, RZ",
        "R2P PR, R4, 0x7f",
        "CALL.ABS.NOINC `(callee)",
    ],
)
def test_a_guard_says_nothing_once_its_predicate_changed(sass: Any, changes: str) -> None:
    code = ["@P0 MOV R46, R10", changes, "@P0 MOV R4, R46"]
    assert found(sass, *CALL, *code, *RETURN) == ["@P0 MOV R4, R46"]


def test_a_guarded_call_makes_an_address_where_the_guard_holds(sass: Any) -> None:
    call = [f"@P0 {CALL[0]}", f"@P0 {CALL[1]}"]
    assert found(sass, *call, "@!P0 MOV R4, R46", *RETURN) == []
    assert found(sass, *call, "@P0 MOV R4, R46", *RETURN) == ["@P0 MOV R4, R46"]


@pytest.mark.parametrize("data", ["gsanLocation_0", "gsan_message3"])
def test_an_address_of_data_is_no_return_address(sass: Any, data: str) -> None:
    code = [f"MOV R34, 32@lo({data})", f"MOV R35, 32@hi({data})", "STL.64 [R1], R34"]
    assert found(sass, *code, *CALL, *RETURN) == []


@pytest.mark.parametrize(
    "put_away, is_found",
    [
        (["LOP3.LUT R46, R46, 0xffffffbf, RZ, 0xc0, !PT"], False),
        (["LOP3.LUT R46, R46.reuse, 0x40, RZ, 0xfc, !PT"], False),
        (["P2R R46, PR, R46, 0x40"], False),
        (
            [
                "LOP3.LUT R46, R46, 0xffffffbf, RZ, 0xc0, !PT",
                "@P3 LOP3.LUT R46, R46, 0x40, RZ, 0xfc, !PT",
            ],
            False,
        ),
        (["@P3 LOP3.LUT R46, R46, 0x40, RZ, 0xfc, !PT"], True),
        (["LOP3.LUT R46, R46, 0xffffffdf, RZ, 0xc0, !PT"], True),
        (["P2R R46, PR, R46, 0x20"], True),
        ([], True),
    ],
)
def test_predicates_are_put_into_bits_of_what_holds_nothing(
    sass: Any, put_away: list[str], is_found: bool
) -> None:
    reads = ["LOP3.LUT P0, RZ, R46, 0x40, RZ, 0xc0, !PT", "R2P PR, R46, 0x40"]
    for looks_at in reads:
        assert (looks_at in found(sass, *CALL, *put_away, looks_at, *RETURN)) is is_found
        assert "MOV R4, R46" in found(sass, *CALL, *put_away, "MOV R4, R46", *RETURN)


@pytest.mark.parametrize(
    ("half", "looks_at", "is_found"),
    [
        ("0x7610", "0xffff", False),
        ("0x7610", "0x10000", True),
        ("0x3254", "0xffff0000", False),
        ("0x3254", "0x1", True),
    ],
)
def test_half_a_register_is_cleared(sass: Any, half: str, looks_at: str, is_found: bool) -> None:
    clears = f"PRMT R46, RZ, {half}, R46"
    packs = "PRMT R4, R5, 0x5410, R46"
    assert (packs in found(sass, *CALL, clears, packs, *RETURN)) is (half == "0x3254")
    looks = f"LOP3.LUT P0, RZ, R46, {looks_at}, RZ, 0xc0, !PT"
    assert found(sass, *CALL, clears, looks, *RETURN) == ([looks] if is_found else [])


def test_a_parameter_that_is_masked_in_place_is_found_where_it_is_used(sass: Any) -> None:
    mask, use = "LOP3.LUT R46, R46, 0x1, RZ, 0xc0, !PT", "ISETP.NE.U32.AND P0, PT, R46, 0x1, PT"
    assert found(sass, *CALL, mask, use, *RETURN) == [use]


READ, OTHER = "MOV R4, R46", "MOV R46, RZ"


@pytest.mark.parametrize(
    "code, is_found",
    [
        # A jump leaves out what is behind it, and a guarded one may.
        (["BRA `(.L_x_1)", READ, ".L_x_1:"], False),
        (["BRA `(.L_x_1)", OTHER, ".L_x_1:", READ], True),
        (["@P0 BRA `(.L_x_1)", OTHER, ".L_x_1:", READ], True),
        (["BRA P1, `(.L_x_1)", OTHER, ".L_x_1:", READ], True),
        (["@P0 BRA `(.L_x_1)", READ, ".L_x_1:"], True),
        (["BRA.U UP0, `(.L_x_1)", READ, ".L_x_1:"], True),
        (["BRA.DIV UR4, `(.L_x_1)", OTHER, ".L_x_1:", READ], True),
        (["BRA.DIV UR4, `(.L_x_1)", READ, ".L_x_1:"], True),
        (["BRA.CONV UR4, `(.L_x_1)", OTHER, ".L_x_1:", READ], True),
        (["@!P0 CALL.REL.NOINC `(.L_x_1)", OTHER, ".L_x_1:", READ], True),
        # Both ways write it.
        (["@P0 BRA `(.L_x_1)", OTHER, "BRA `(.L_x_2)", ".L_x_1:", OTHER, ".L_x_2:", READ], False),
        # Where the guard of the write is that of the jump.
        (["@P0 MOV R46, RZ", "@P0 BRA `(.L_x_1)", "EXIT", ".L_x_1:", READ], False),
        (["@P0 MOV R46, RZ", "@P0 BRA `(.L_x_1)", READ, ".L_x_1:"], True),
        (["@P0 MOV R46, RZ", "@!P0 BRA `(.L_x_1)", READ, ".L_x_1:"], False),
        (["@P0 MOV R46, RZ", "@!P0 EXIT", READ], False),
        (["@P0 MOV R46, RZ", "@P0 EXIT", READ], True),
        # Barriers of convergence do not jump.
        (["BSSY B0, `(.L_x_1)", OTHER, "BSYNC B0", ".L_x_1:", READ], False),
        (["BSSY B0, `(.L_x_1)", "@P0 BREAK P1, B0", "BSYNC B0", ".L_x_1:", READ], True),
        # Ends.
        (["EXIT", READ], False),
        (["RET.ABS.NODEC R20 0x0", READ], False),
        (["@P0 RET.REL.NODEC P1, R20 `(caller)", READ], True),
        # Tables.
        (['BRX R8 -0x100 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)', ".L_x_1:", READ, ".L_x_2:"], True),
        (['BRX R8 -0x100 (*"BRANCH_TARGETS .L_x_2,.L_x_2"*)', ".L_x_1:", READ, ".L_x_2:"], False),
    ],
)
def test_jumps_are_followed(sass: Any, code: list[str], is_found: bool) -> None:
    assert found(sass, *CALL, *code, *RETURN) == ([READ] if is_found else [])


def test_a_loop_is_followed(sass: Any) -> None:
    code = [".L_x_0:", READ, *CALL, "@P0 BRA `(.L_x_0)"]
    assert found(sass, *code, *RETURN) == [READ]


def test_a_return_into_the_function_itself_is_found(sass: Any) -> None:
    ret = "RET.ABS.NODEC R46 0x0"
    assert found(sass, *CALL, ret) == [ret]
    assert found(sass, "MOV R50, R46", "MOV R51, R47", *CALL, "RET.ABS.NODEC R50 0x0") == []


def test_the_address_of_an_indirect_call_is_followed(sass: Any) -> None:
    call = ["LEPC R20, `(.L_x_337)", "CALL.ABS.NOINC R14", ".L_x_337:"]
    assert found(sass, *call, "MOV R4, R21", *RETURN) == ["MOV R4, R21"]


def test_functions_are_told_apart(sass: Any) -> None:
    first = function(*CALL, *RETURN, name="first")
    second = function(READ, *CALL, *RETURN, name="second")
    third = function(*CALL, READ, *RETURN, name="third")
    names = [finding.function for finding in sass.findings(first + second + third)]
    assert names == ["third"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        function("UMOV UR4, 32@lo((caller + .L_x_22@srel))"),
        function(*CALL, "BRX R4 -0x100"),
        function(*CALL, "BRA `(.L_x_5)"),
    ],
)
def test_what_is_not_known_is_said(sass: Any, text: str) -> None:
    with pytest.raises(sass.SassError):
        sass.findings(text)
