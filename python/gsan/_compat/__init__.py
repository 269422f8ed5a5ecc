"""`triton.experimental.gsan`: the names of Triton's module, answered by this project."""

from __future__ import annotations

import importlib
from typing import Any

from .._memory import (
    ShareableHandleType,
    configure,
    create_mem_pool,
    freeze_config,
    get_allocator,
    has_live_allocations,
    reset,
)

__all__ = [
    "ShareableHandleType",
    "configure",
    "create_mem_pool",
    "freeze_config",
    "get_allocator",
    "has_live_allocations",
    "reset",
]

_LAZY = {"graph": "gsan.graph", "symmetric_memory": "gsan.symmetric_memory"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(_LAZY[name])
    raise AttributeError(f"module 'triton.experimental.gsan' has no attribute {name!r}")
