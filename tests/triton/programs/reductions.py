"""Reductions of boxes, alone and beside other accesses."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def reduce(x, out, KIND: tl.constexpr, WHO: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    v = x.load([tl.program_id(0) * M, 0])
    if WHO == "one stores":
        if tl.program_id(0) == 0:
            out.store([0, 0], v)  # @stores
            return
    if WHO == "one loads":
        if tl.program_id(0) == 0:
            v += out.load([0, 0])  # @loads
    if KIND == "add":
        out.atomic_add([0, 0], v)  # @adds
    elif KIND == "min":
        out.atomic_min([0, 0], v)
    elif KIND == "max":
        out.atomic_max([0, 0], v)
    elif KIND == "and":
        out.atomic_and([0, 0], v)
    elif KIND == "or":
        out.atomic_or([0, 0], v)
    else:
        out.atomic_xor([0, 0], v)


@triton.jit
def reduce_and_add(x, out, sums, columns, M: tl.constexpr, N: tl.constexpr):
    """CTA 0 reduces a box into a tensor to which the others add one by one."""
    if tl.program_id(0) == 0:
        out.atomic_add([0, 0], x.load([0, 0]))
    else:
        i = tl.arange(0, M)[:, None] * columns + tl.arange(0, N)[None, :]
        tl.atomic_add(sums + i, 1.0, sem="relaxed")


@triton.jit
def cut_reduction(x, out, past, first, columns, M: tl.constexpr, N: tl.constexpr):
    """CTA 0 reduces into a box that ends within 16 bytes; CTA 1 stores what follows `first`."""
    n = first + tl.arange(0, N)[None, :]
    if tl.program_id(0) == 0:
        out.atomic_add([0, 0], x.load([0, 0]))  # @cut-off
    else:
        tl.store(past + tl.arange(0, M)[:, None] * columns + n, 3.0, n < columns)  # @next-to-it


def run_reduce(kind: str, dtype: torch.dtype, who: str = "all reduce") -> None:
    ctas, rows, columns, pitch = 16, 32, 30, 32
    x = torch.ones(ctas * rows, pitch, dtype=dtype, device="cuda")[:, :columns]
    start = {"add": 0, "min": 7, "max": 0, "and": 3, "or": 2, "xor": 0}[kind]
    end = {"add": ctas, "min": 1, "max": 1, "and": 1, "or": 3, "xor": 0}[kind]
    out = torch.full((rows, pitch), start, dtype=dtype, device="cuda")[:, :columns]
    described = [TensorDescriptor.from_tensor(t, [rows, 32]) for t in (x, out)]
    reduce[(ctas,)](*described, KIND=kind, WHO=who, M=rows, N=32, num_warps=4)
    torch.cuda.synchronize()
    if who == "all reduce":
        assert (out == end).all().item()


def run_reduce_and_add() -> None:
    rows, columns = 64, 32
    x = torch.ones(rows, columns, device="cuda")
    out = torch.zeros_like(x)
    described = [TensorDescriptor.from_tensor(t, [rows, columns]) for t in (x, out)]
    reduce_and_add[(8,)](*described, out, columns, M=rows, N=columns, num_warps=4)
    torch.cuda.synchronize()
    assert (out == 8).all().item()


def run_cut(first: int) -> None:
    """30 of 32 columns are reduced into; somebody else has those behind."""
    rows, columns = 64, 64
    whole = torch.zeros(rows, columns, device="cuda")
    x = torch.ones(rows, columns, device="cuda")
    described = [TensorDescriptor.from_tensor(t[:, :30], [rows, 32]) for t in (x, whole)]
    cut_reduction[(2,)](*described, whole, first, columns, M=rows, N=64, num_warps=4)
    torch.cuda.synchronize()
    assert (whole[:, 32:] == 3).all().item()


CASES = [
    *(
        Case(f"{kind} {str(dtype)[6:]}", lambda k=kind, d=dtype: run_reduce(k, d))
        for kind, dtype in [
            ("add", torch.float32),
            ("add", torch.float16),
            ("add", torch.int32),
            ("min", torch.int32),
            ("max", torch.float16),
            ("and", torch.int32),
            ("or", torch.int32),
            ("xor", torch.int32),
        ]
    ),
    Case("beside atomic adds", run_reduce_and_add),
    Case("behind the last 16 bytes", lambda: run_cut(32)),
    Case(
        "within the last 16 bytes",
        lambda: run_cut(30),
        races=(Race("cut-off", "next-to-it"),),
    ),
    Case(
        "one stores",
        lambda: run_reduce("add", torch.float32, "one stores"),
        races=(Race("stores", "adds"),),
    ),
    Case(
        "one loads",
        lambda: run_reduce("add", torch.float32, "one loads"),
        races=(Race("loads", "adds"),),
    ),
]
