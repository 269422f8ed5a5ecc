"""Tensor descriptors, made on the host and on the device: loads, stores, reductions."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS = 300, 200
M, N = 64, 64


@triton.jit
def scale(x, out, step, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.program_id(0) * step, tl.program_id(1) * N
    v = x.load([m, n])
    out.store([m, n], v + v)  # @store


@triton.jit
def scale_in_place(x, shift, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.program_id(0) * M, tl.program_id(1) * N
    v = x.load([m + shift, n])  # @from
    x.store([m, n], v + v)  # @to


@triton.jit
def made_here(x, out, rows, columns, step, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    m, n = tl.program_id(0) * step, tl.program_id(1) * N
    target.store([m, n], source.load([m, n]) * 2)  # @made


@triton.jit
def reduce(x, out, M: tl.constexpr, N: tl.constexpr):
    v = x.load([tl.program_id(0) * M, tl.program_id(1) * N])
    out.atomic_add([0, tl.program_id(1) * N], v)


def grid(step: int) -> tuple[int, int]:
    return triton.cdiv(ROWS, step), triton.cdiv(COLUMNS, N)


def described(tensor: torch.Tensor) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, [M, N])


def run(step: int) -> None:
    x = torch.ones(ROWS, COLUMNS, device="cuda")
    out = torch.zeros_like(x)
    scale[grid(step)](described(x), described(out), step, M=M, N=N, num_warps=4)
    torch.cuda.synchronize()
    assert (out == 2).all().item()


def run_in_place(shift: int) -> None:
    x = torch.ones(ROWS, COLUMNS, device="cuda")
    scale_in_place[grid(M)](described(x), shift, M=M, N=N, num_warps=4)
    torch.cuda.synchronize()


def run_made_here(step: int) -> None:
    def scratch(bytes: int, alignment: int, stream: int | None) -> torch.Tensor:
        return torch.empty(bytes, dtype=torch.int8, device="cuda")

    triton.set_allocator(scratch)
    x = torch.ones(ROWS, COLUMNS, device="cuda")
    out = torch.zeros_like(x)
    made_here[grid(step)](x, out, ROWS, COLUMNS, step, M=M, N=N, num_warps=4)
    torch.cuda.synchronize()
    assert (out == 2).all().item()


def run_reduce() -> None:
    x = torch.ones(ROWS, COLUMNS, device="cuda")
    out = torch.zeros(M, COLUMNS, device="cuda")
    reduce[(ROWS // M, triton.cdiv(COLUMNS, N))](
        described(x), described(out), M=M, N=N, num_warps=4
    )
    torch.cuda.synchronize()
    assert (out == ROWS // M).all().item()


CASES = [
    Case("tiles", lambda: run(M)),
    Case("tiles that overlap", lambda: run(M - 1), races=(Race("store", "store"),)),
    Case("in place", lambda: run_in_place(0)),
    Case("in place, shifted", lambda: run_in_place(1), races=(Race("from", "to"),)),
    Case("descriptors of the device", lambda: run_made_here(M)),
    Case(
        "descriptors of the device, overlap",
        lambda: run_made_here(M - 1),
        races=(Race("made", "made"),),
    ),
    Case("reduction", run_reduce),
]
