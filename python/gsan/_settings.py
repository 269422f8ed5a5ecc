"""The settings that the Python side needs, as the library resolved them."""

from __future__ import annotations

import re

from ._native import library


def value(section: str, key: str) -> str | None:
    """The effective value of a key, as TOML text; `None` if there is no such key."""
    inside = False
    for line in library().text("configuration").splitlines():
        if found := re.match(r"\s*\[+([^\]]+)\]+", line):
            inside = found[1].strip() == section
        elif inside and (found := re.match(rf"\s*{re.escape(key)}\s*=\s*([^#]*)", line)):
            return found[1].strip()
    return None


def text(section: str, key: str, default: str) -> str:
    """The effective value of a key that is a text."""
    found = value(section, key)
    return default if found is None else found.strip('"')


def number(section: str, key: str, default: int) -> int:
    """The effective value of a key that is a whole number."""
    text = value(section, key)
    return default if text is None else int(text.replace("_", ""))
