"""`python -m gsan doctor`."""

from __future__ import annotations

import json

import gsan
from gsan import __main__, _doctor


def test_every_line_says_what_is_there_or_what_to_do(capsys) -> None:
    assert __main__.main(["doctor", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)
    names = {"python", "libgsan.so", "device library", "linker", "torch", "triton"}
    assert {check["subject"] for check in checks} == names
    for check in checks:
        assert (check["found"] is None) == (check["why"] is not None) == (check["cure"] is not None)


def test_text(monkeypatch, capsys) -> None:
    checks = [
        _doctor.Check("python", "3.12.1"),
        _doctor.Check("triton", why="Triton 3.7.0 has no pass", cure="install another"),
    ]
    assert _doctor.as_text(checks) == (
        "ok       python  3.12.1\n"
        "missing  triton  Triton 3.7.0 has no pass\n"
        "                 help: install another\n"
    )


def test_an_unsupported_triton_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(_doctor, "_version", lambda name: "3.7.0" if name == "triton" else None)
    triton = _doctor._triton()
    assert triton.found is None and "no pass" in str(triton.why)
    assert str(triton.cure).startswith("install a supported one")


def test_version_is_the_one_of_the_library() -> None:
    from gsan._native import library

    assert library().version().decode() == gsan.__version__
