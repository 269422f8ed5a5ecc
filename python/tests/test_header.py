"""The bindings against the recorded interface of `libgsan.so`."""

from __future__ import annotations

import re
from ctypes import Array, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64
from pathlib import Path
from typing import Any

import pytest
from gsan import _native

INTERFACE = Path(__file__).parents[2] / "gsan-ffi" / "abi" / f"{_native.ABI_VERSION}.txt"

#: Structures by their names in C.
STRUCTURES: dict[str, Any] = {
    "gsan_config": _native.Config,
    "gsan_allocation": _native.Allocation,
    "gsan_shared_allocation": _native.SharedAllocation,
    "gsan_shared_state": _native.SharedState,
    "gsan_launch_info": _native.LaunchInfo,
    "gsan_side": _native.Side,
    "gsan_race": _native.Race,
    "gsan_clock_info": _native.Clock,
    "gsan_cell_info": _native.Cell,
    "gsan_thread_info": _native.ThreadState,
    "gsan_device_info": _native.GlobalState,
}

TYPES = {
    "size_t": c_size_t,
    "uint8_t": c_uint8,
    "uint32_t": c_uint32,
    "uint64_t": c_uint64,
    "int": c_int,
}


def lines() -> list[str]:
    if not INTERFACE.exists():
        pytest.skip("only in the repository")
    return INTERFACE.read_text().splitlines()


def shape(kind: Any) -> tuple[Any, list[int]]:
    """The innermost type of an array, and its lengths."""
    lengths: list[int] = []
    while issubclass(kind, Array):
        lengths.append(kind._length_)
        kind = kind._type_
    return kind, lengths


def fields_of_c(text: str) -> list[tuple[str, Any, list[int]]]:
    fields: list[tuple[str, Any, list[int]]] = []
    for declaration in filter(None, (part.strip() for part in text.split(";"))):
        match = re.fullmatch(r"(?:const )?(?:struct )?(\w+) (\*?)(\w+)((?:\[\d+\])*)", declaration)
        assert match, declaration
        kind, is_pointer, name, lengths = match.groups()
        wanted: Any = "pointer" if is_pointer else TYPES.get(kind) or STRUCTURES[kind]
        fields.append((name, wanted, [int(length) for length in re.findall(r"\d+", lengths)]))
    return fields


def fields_of_python(structure: Any) -> list[tuple[str, Any, list[int]]]:
    fields: list[tuple[str, Any, list[int]]] = []
    for name, kind, *_ in structure._fields_:
        inner, lengths = shape(kind)
        if inner is c_char_p or hasattr(inner, "contents"):
            inner = "pointer"
        fields.append((name, inner, lengths))
    return fields


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_has_the_fields_of_c(name: str) -> None:
    pattern = re.compile(rf"typedef struct {name} {{(.*)}} {name}")
    found = [match for line in lines() if (match := pattern.fullmatch(line))]
    assert len(found) == 1
    assert fields_of_python(STRUCTURES[name]) == fields_of_c(found[0].group(1))


def test_every_function_exists_and_has_as_many_arguments() -> None:
    counts: dict[str, int] = {}
    for line in lines():
        if match := re.fullmatch(r"enum gsan_status gsan_(\w+)\((.*)\)", line):
            name, arguments = match.groups()
            counts[name] = 0 if arguments == "void" else arguments.count(",") + 1
    for name, arguments in _native._CHECKED.items():
        assert counts.get(name) == len(arguments), name
