"""GSan finds data races in GPU global memory, in the kernels of stock Triton.

The simplest way needs no change to a program: `gsan run -- python my_kernel.py`. In a program:

    import gsan

    with gsan.enable():          # before tensors are made
        y = my_kernel_launcher(x)
        gsan.assert_no_races()   # waits for the GPU

In a test suite: `pytest --gsan`. Importing this package imports neither torch nor Triton, and needs
neither, nor a GPU.

There is no `assert` here for pytest to rewrite: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._errors import Error, LibraryNotFound, RaceFound, UnsupportedTriton
from ._install import enable, install, reset
from ._races import (
    Race,
    Side,
    assert_no_races,
    forget_races,
    on_race,
    race_count,
    races,
    report,
    write_report,
)

if TYPE_CHECKING:
    from ._memory import (
        ShareableHandleType,
        configure,
        create_mem_pool,
        freeze_config,
        get_allocator,
        has_live_allocations,
    )

__version__ = "0.1.0"

__all__ = [
    "Error",
    "LibraryNotFound",
    "Race",
    "RaceFound",
    "ShareableHandleType",
    "Side",
    "UnsupportedTriton",
    "assert_no_races",
    "configure",
    "create_mem_pool",
    "enable",
    "forget_races",
    "freeze_config",
    "get_allocator",
    "graph",
    "has_live_allocations",
    "install",
    "on_race",
    "race_count",
    "races",
    "report",
    "reset",
    "symmetric_memory",
    "testing",
    "write_report",
]

_FROM_MEMORY = {
    "ShareableHandleType",
    "configure",
    "create_mem_pool",
    "freeze_config",
    "get_allocator",
    "has_live_allocations",
}
_MODULES = {"graph", "symmetric_memory", "testing"}


def __getattr__(name: str) -> Any:
    if name in _FROM_MEMORY:
        return getattr(importlib.import_module("._memory", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
