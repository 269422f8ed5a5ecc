"""`triton.experimental.gsan._testing_utils`: what tests of Triton's module use.

The Triton kernels here are Gluon- and Triton-level helpers of this project with the same names.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import triton
import triton.language as tl

from .._memory import get_global_state_pointer, is_write_once_allocation
from .._plugin.driver import check, cuda
from ..testing import (
    global_state,
    global_state_tensor,
    shadow_address,
    shadow_cell_from_address,
    shadow_cell_tensor_from_address,
    shadow_size,
    shadow_tensor_for,
    thread_state_from_smid,
    thread_state_tensor,
    uint8_cuda_tensor_from_ptr,
)
from ._testing import (
    GLOBAL_STATE_SIZE_BYTES,
    decode_global_state_tensor,
    decode_shadow_cell_tensor,
    decode_thread_state_tensor,
    shadow_cell_address,
    shadow_cell_size,
    thread_state_stride_bytes,
)

__all__ = [
    "GLOBAL_STATE_SIZE_BYTES",
    "PER_DEVICE_STATE_STRIDE_BYTES",
    "ExplicitGraph",
    "atomic_poll",
    "decode_global_state_tensor",
    "decode_shadow_cell_tensor",
    "decode_thread_state_tensor",
    "get_global_state_pointer",
    "global_state",
    "global_state_tensor",
    "is_write_once_address",
    "load_one_i32",
    "nanosleep",
    "shadow_address",
    "shadow_cell_address",
    "shadow_cell_from_address",
    "shadow_cell_size",
    "shadow_cell_tensor_from_address",
    "shadow_granularity",
    "shadow_size",
    "shadow_tensor_for",
    "store_one_i32",
    "thread_state_from_smid",
    "thread_state_stride_bytes",
    "thread_state_tensor",
    "uint8_cuda_tensor_from_ptr",
]

#: The bytes between the state regions of two ranks.
PER_DEVICE_STATE_STRIDE_BYTES = 1 << 30


def is_write_once_address(address: int) -> bool:
    """Whether an address lies in write-once memory."""
    return is_write_once_allocation(address)


def shadow_granularity(address: int) -> int:
    """The bytes of real memory that one cell stands for."""
    return 8


@triton.jit
def load_one_i32(ptr):
    """Loads a word."""
    return tl.load(ptr)


@triton.jit
def store_one_i32(ptr, value):
    """Stores a word."""
    tl.store(ptr, value)


@triton.jit
def nanosleep(nanoseconds: tl.constexpr):
    """Waits for about that long."""
    tl.inline_asm_elementwise(
        "nanosleep.u32 $1; mov.u32 $0, 0;",
        "=r,r",
        [nanoseconds],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def atomic_poll(ptr, expected, SEM: tl.constexpr, SCOPE: tl.constexpr):
    """Waits until a word has a value."""
    while tl.atomic_add(ptr, 0, sem=SEM, scope=SCOPE) != expected:
        pass


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2."""

    _fields_ = [
        ("func", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("parameters", ctypes.POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kern", c_void_p),
        ("context", c_void_p),
    ]


class ExplicitGraph:
    """A CUDA graph that is built node by node, in the order of its plan's nodes."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.cuda = cuda()
        self.graph, self.executable = c_void_p(), c_void_p()
        self.nodes: list[c_void_p] = []
        self.compiled: list[Any] = []
        self._kept: list[Any] = []
        self._call("cuGraphCreate", byref(self.graph), c_uint(0))

    def _call(self, name: str, *arguments: Any) -> None:
        check(getattr(self.cuda, name)(*arguments), name)

    def add_kernel(self, compiled: Any, arguments: tuple[int, ...], grid: int) -> None:
        """Adds the next node of the plan: a compiled kernel of pointers and 64-bit numbers."""
        number = len(self.nodes)
        hidden = self.plan.node_launch_args(number)
        # Two scratch pointers follow what a kernel is given.
        values = [c_uint64(value) for value in (*arguments, *hidden, 0, 0)]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        node = self.plan.nodes[number]
        edges = [*node.dependencies, *node.programmatic_dependencies]
        before = (c_void_p * len(edges))(*(self.nodes[edge] for edge in edges))
        what = _KernelNode(func=compiled.function, shared=compiled.metadata.shared)
        what.grid[:] = (grid, 1, 1)
        what.block[:] = (32 * compiled.metadata.num_warps, 1, 1)
        what.parameters = ctypes.cast(pointers, ctypes.POINTER(c_void_p))
        added = c_void_p()
        self._call(
            "cuGraphAddKernelNode_v2",
            byref(added),
            self.graph,
            before,
            c_size_t(len(edges)),
            byref(what),
        )
        self.nodes.append(added)
        self.compiled.append(compiled)
        self._kept.append((values, pointers))

    def instantiate(self) -> None:
        """Makes the graph one that can be launched."""
        assert len(self.nodes) == len(self.plan.nodes)
        name = "cuGraphInstantiateWithFlags"
        self._call(name, byref(self.executable), self.graph, ctypes.c_ulonglong(0))

    def launch(self, stream: Any = None, dependencies: tuple = ()) -> Any:
        """Launches it, and returns its completion."""
        import torch

        queue = (stream or torch.cuda.current_stream()).cuda_stream
        launch = self.plan.prepare_launch(queue, dependencies)
        submitted = False
        try:
            self._call("cuGraphLaunch", self.executable, c_void_p(queue))
            submitted = True
        finally:
            launch.finish(submitted)
        return launch.completion

    def __enter__(self) -> ExplicitGraph:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.executable.value:
            self.cuda.cuGraphExecDestroy(self.executable)
        if self.graph.value:
            self.cuda.cuGraphDestroy(self.graph)
        self.plan.close()
