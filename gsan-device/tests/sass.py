"""Reads machine code, as `nvdisasm -c` prints it, for return addresses that are taken for values.

Before a call, the caller puts the address to return to into a pair of registers. With
`.abi_preserve` (PTX ISA), that pair depends on how many registers the callee keeps, and the
registers of a function's own parameters on how many the function keeps. Where the two meet, ptxas
may not notice: the address overwrites a parameter that is still needed, and what reads the
parameter behind the call gets the address.

So the registers that may hold such an address are followed through each function. None but the
callee is to read one. A finding is an instruction of the caller that does; its own return is one as
well, since it would go back into the caller itself. Which registers a call passes on is not written
in it: a parameter that is only handed to another function is not looked at.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Where a function starts, its instructions, and its labels.
FUNCTION = re.compile(r"^\.text\.(\S+):$", flags=re.MULTILINE)
INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(?:@(!?U?P\w)\s+)?([\w.]+)\s*(.*?)\s*(?:;|$)")
LABEL = re.compile(r"(\.L_x_(\d+))")
#: Operands end at commas outside of brackets.
COMMA = re.compile(r",\s*(?![^\[]*\])")
REGISTER = re.compile(r"(?<![\w.])R(\d+)((?:\.\w+)*)")
PREDICATE = re.compile(r"(U?P[\dTR])$")
#: What an instruction writes comes first: a register, of this kind or another.
WRITTEN = re.compile(r"(?:R\d+|U?RZ|UR\d+|B\d+)$")
#: What writes no register, or no predicate either, whatever comes first.
WRITES_PREDICATES = re.compile(r"\w*SETP2?|FCHK|R2P")
WRITES_NOTHING = re.compile(r"BAR|BRA|BREAK|BRX|BSSY|BSYNC|EXIT|NANOSLEEP|RET|WARPSYNC")
MEMORY = re.compile(r"LD|ST|ATOM|RED(?!UX)|CCTL|QSPC|SYNCS")
MATRIX = re.compile(r"[HIQO](G?)MMA")
#: What takes pairs of registers only: numbers of 64 bits, two at once, and places in code.
PAIRS = re.compile(r"D(?:ADD|MUL|FMA|SETP)|F(?:ADD|MUL|FMA)2|LEPC|BRX|CALL|RET")
#: Predicates that are put away are bits of a register whose other bits hold nothing; so is half a
#: register a value of 16 bits. What changes some bits of a register, and what looks at some only.
CHANGES_BITS = re.compile(
    r"(?:LOP3\.LUT R(?P<and>\d+), R(?P=and)(?:\.reuse)?, (?P<kept>0x[0-9a-f]+), RZ, 0xc0, !PT"
    r"|LOP3\.LUT R(?P<or>\d+), R(?P=or)(?:\.reuse)?, (?P<set>0x[0-9a-f]+), RZ, 0xfc, !PT"
    r"|P2R R(?P<to>\d+), PR, R(?P=to)(?:\.reuse)?, (?P<put>0x[0-9a-f]+)"
    r"|PRMT R(?P<half>\d+), RZ, 0x(?P<bytes>7610|3254), R(?P=half)(?:\.reuse)?)$"
)
LOOKS_AT_BITS = re.compile(
    r"(?:LOP3\.LUT P\d, RZ, R\d+(?:\.reuse)?, (0x[0-9a-f]+), RZ, 0xc0, !PT"
    r"|R2P PR, R\d+(?:\.reuse)?, (0x[0-9a-f]+)"
    r"|PRMT R\d+, R\d+(?:\.reuse)?, 0x(5410), R\d+(?:\.reuse)?)$"
)
ALL_BITS = 0xFFFF_FFFF
#: Which half is cleared, or is looked at in both operands, by which choice of bytes.
HALVES = {"7610": "0xffff", "3254": "0xffff0000", "5410": "0xffff"}
#: How many registers a value of more than 32 bits takes.
SIZES = {"64": 2, "U64": 2, "S64": 2, "F64": 2, "F32x2": 2, "128": 4}


class SassError(Exception):
    """The text has what this module does not know."""


@dataclass(frozen=True)
class Finding:
    """An instruction that reads what may be a return address."""

    function: str
    address: str
    instruction: str
    registers: tuple[int, ...]

    def __str__(self) -> str:
        names = " and ".join(f"R{number}" for number in self.registers)
        where = f"{self.function} at {self.address}"
        return f"{where}: `{self.instruction}` reads {names}, where a return address may be"


@dataclass(frozen=True)
class Guard:
    """That a predicate has a value."""

    predicate: str
    value: bool

    def negated(self) -> Guard:
        return Guard(self.predicate, not self.value)


@dataclass
class Instruction:
    """What an instruction does, where its guard holds."""

    address: str
    text: str
    guard: Guard | None
    makes_return_address: bool = False
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    #: Bits that are looked at in what it reads, and bits that stay in what it writes.
    looks_at: int = ALL_BITS
    keeps: int = 0
    #: Predicates that may change; all may if `PR` is among them.
    predicates: set[str] = field(default_factory=set)
    #: Labels to which it may jump, and whether it may go on behind itself.
    labels: list[str] = field(default_factory=list)
    goes_on: bool = True


def findings(text: str) -> list[Finding]:
    """What is found in the functions of a text.

    Raises:
        SassError: there is no function, or a return address is made in a way that is not known.
    """
    # What precedes the first function, then names and bodies.
    _, *parts = FUNCTION.split(text)
    if not parts:
        raise SassError("there is no function")
    found: list[Finding] = []
    for function, body in zip(parts[::2], parts[1::2], strict=True):
        if reads := _reads_of_addresses(_numbered_anew(body)):
            code, _ = _parsed(body)
            found += (
                Finding(function, code[at].address, code[at].text, registers)
                for at, registers in reads
            )
    return found


def _numbered_anew(body: str) -> str:
    """A function whose labels count from 0: it is the same in all programs then."""
    numbers: dict[str, int] = {}
    return LABEL.sub(lambda label: f".L_x_{numbers.setdefault(label[2], len(numbers))}", body)


@functools.lru_cache(maxsize=1024)
def _reads_of_addresses(body: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Which instructions of a function may read return addresses, and from which registers."""
    if "@srel" not in body and "LEPC" not in body:
        return ()
    code, labels = _parsed(body)
    made_at: dict[int, list[int]] = defaultdict(list)
    for at, instruction in enumerate(code):
        if instruction.makes_return_address:
            for register in instruction.writes:
                made_at[register].append(at)
    found: dict[int, tuple[int, ...]] = defaultdict(tuple)
    for register in sorted(made_at):
        for at in _reads(code, labels, register, made_at[register]):
            found[at] += (register,)
    return tuple(sorted(found.items()))


def _reads(
    code: list[Instruction], labels: dict[str, int], register: int, made_at: list[int]
) -> set[int]:
    """The instructions that may read what those of `made_at` put into a register."""
    reads: set[int] = set()
    # Instructions that leave bits of an address in the register: always, or where a guard holds.
    leave = [(at, code[at].guard, ALL_BITS) for at in made_at]
    seen: set[tuple[int, Guard | None, int]] = set()
    while leave:
        before, guarded, bits = leave.pop()
        for at, where in _next(code, labels, before, guarded):
            if (at, where, bits) in seen or at == len(code):
                continue
            seen.add((at, where, bits))
            instruction = code[at]
            guard = instruction.guard
            if where is not None and guard == where.negated():
                leave.append((at, where, bits))
                continue
            if register in instruction.reads and bits & instruction.looks_at:
                reads.add(at)
            if register not in instruction.writes:
                leave.append((at, where, bits))
            elif guard in (None, where):
                if bits & instruction.keeps:
                    leave.append((at, where, bits & instruction.keeps))
            else:
                # Where the guard does not hold, all is as it was; elsewhere, as far as it is kept.
                leave.append((at, where if where or instruction.keeps else guard.negated(), bits))
    return reads


def _next(
    code: list[Instruction], labels: dict[str, int], at: int, where: Guard | None
) -> Iterator[tuple[int, Guard | None]]:
    """What comes behind an instruction that leaves an address where `where` holds."""
    instruction = code[at]
    guard = instruction.guard
    jumps = guard is None or where != guard.negated()
    goes_on = instruction.goes_on or guard not in (None, where)
    if where is not None and instruction.predicates & {where.predicate, "PR"}:
        where = None
    if jumps:
        for label in instruction.labels:
            if label not in labels:
                raise SassError(f"there is no {label}: {instruction.text}")
            yield labels[label], where
    if goes_on:
        yield at + 1, where


def _parsed(body: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of a function, and which of them labels precede."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in body.split("\n"):
        if found := INSTRUCTION.match(line):
            if found[2] not in ("!PT", "!UPT"):
                code.append(_instruction(*found.groups()))
        elif found := LABEL.match(line):
            labels[found[1]] = len(code)
    return code, labels


def _instruction(address: str, guard: str | None, name: str, rest: str) -> Instruction:
    text = " ".join(filter(None, [guard and f"@{guard}", name, rest]))
    made = Instruction(address, text, None)
    if guard is not None and not guard.endswith("T"):
        made.guard = Guard(guard.lstrip("!"), not guard.startswith("!"))
    kind, *modifiers = name.split(".")
    operands = COMMA.split(rest) if rest else []
    if kind in ("BRA", "BRX", "CALL", "WARPSYNC"):
        # Some calls are jumps within the function. Where a BRX goes is said behind it.
        made.labels = [label[1] for label in LABEL.finditer(rest)]
    if kind == "BRX":
        made.goes_on = False
        if not made.labels:
            raise SassError(f"it is not said where this goes: {text}")
    elif kind in ("BRA", "EXIT", "RET"):
        # A further operand is a condition.
        made.goes_on = len(operands) > (kind != "EXIT")
    _operands(made, kind, modifiers, operands)
    _bits(made, f"{name} {rest}")
    # Without a label, LEPC gives its own address, and what returns is reckoned from it.
    if "@srel" in rest or (kind == "LEPC" and LABEL.search(rest)):
        made.makes_return_address = True
        if not made.writes:
            raise SassError(f"a return address is not made in a register: {text}")
    return made


def _operands(made: Instruction, kind: str, modifiers: list[str], operands: list[str]) -> None:
    """What an instruction reads and writes."""
    written, read = _sizes(kind, modifiers)
    sources = list(operands)
    if kind == "CALL":
        # The callee may have changed any.
        made.predicates.add("PR")
    elif not WRITES_NOTHING.fullmatch(kind):
        _take_predicates(made, sources)
        if not WRITES_PREDICATES.fullmatch(kind):
            # 256 bits are loaded into two runs of registers.
            for _ in range(2 if kind.startswith("LD") and "ENL2" in modifiers else 1):
                if sources and WRITTEN.match(sources[0]):
                    made.writes |= _run(sources.pop(0), written)
            _take_predicates(made, sources)
    for place, operand in enumerate(sources):
        for register in REGISTER.finditer(operand):
            suffixes = register[2].split(".")[1:]
            if "[" in operand:
                # The name says whether an address has 64 bits, but for copies to shared memory.
                wide = "E" in modifiers and kind != "LDGSTS" and "U32" not in suffixes
                count = 2 if wide else 1
            else:
                count = read[min(place, len(read) - 1)]
            count = max([count, *(SIZES.get(suffix, 1) for suffix in suffixes)])
            made.reads |= _run(register[0], count)


def _bits(made: Instruction, unguarded: str) -> None:
    """Which bits an instruction looks at or keeps, if not all or none."""
    if found := CHANGES_BITS.match(unguarded):
        cleared = found["set"] or found["put"] or HALVES.get(found["bytes"])
        made.keeps = ALL_BITS & ~int(cleared, 16) if cleared else int(found["kept"], 16)
        made.reads.clear()
    elif found := LOOKS_AT_BITS.match(unguarded):
        made.looks_at = int(HALVES.get(found[3]) or found[1] or found[2], 16)


def _take_predicates(made: Instruction, operands: list[str]) -> None:
    for _ in range(2):
        if operands and (found := PREDICATE.match(operands[0])):
            made.predicates.add(found[1])
            del operands[0]


def _run(register: str, count: int) -> set[int]:
    """A register and those behind it."""
    found = REGISTER.match(register)
    return {int(found[1]) + further for further in range(count)} if found else set()


def _sizes(kind: str, modifiers: list[str]) -> tuple[int, list[int]]:
    """How many registers are written, and read for each source; for further ones as for the last.

    Where it is not plain, fewer are written and more are read.
    """
    said = set(modifiers)
    size = max([SIZES.get(modifier, 1) for modifier in said], default=1)
    if MEMORY.match(kind):
        if "ENL2" in said:
            size = 4
        elif kind in ("LDSM", "STSM"):
            size = max([int(matrices) for matrices in said & {"2", "4"}], default=1)
        elif kind in ("LDTM", "STTM"):
            size = _tensor_memory_size(".".join(modifiers))
        return size, [size]
    if kind == "CS2R":
        return 1 if "32" in said else 2, [1]
    if kind == "IMAD" and said & {"WIDE", "HI"}:
        return 2 if "WIDE" in said else 1, [1, 1, 2, 1]
    if found := MATRIX.fullmatch(kind):
        return _matrix_sizes(modifiers, by_group=bool(found[1]))
    if PAIRS.fullmatch(kind):
        return 2, [2]
    if kind == "SHF":
        return 1, [1]
    return 2 if "64" in said else 1, [size]


def _tensor_memory_size(modifiers: str) -> int:
    """How many registers go to or come from tensor memory."""
    times = re.search(r"\bx(\d+)", modifiers)
    lane_bits = re.search(r"dp(\d+)bit", modifiers)
    return int(times[1] if times else 1) * max(1, int(lane_bits[1] if lane_bits else 32) // 64)


def _matrix_sizes(modifiers: list[str], by_group: bool) -> tuple[int, list[int]]:
    """Sizes of a product of matrices, by a warp or by four."""
    half = "F16" in modifiers and "F32" not in modifiers
    shape = next((modifier for modifier in modifiers if modifier[0].isdigit()), "")
    if by_group:
        total = int(shape.split("x")[1]) // 2 >> half
        # The first may be a descriptor; then the second is what is added to.
        return total, [4, total]
    total = (4 if shape.startswith("16") else 2) >> half
    return total, [4, 2, total, 1]
