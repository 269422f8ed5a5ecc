"""Tests that need neither torch, nor Triton, nor a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest_plugins = ["pytester"]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def python() -> Run:
    """Runs Python code in a process of its own, with more environment."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
