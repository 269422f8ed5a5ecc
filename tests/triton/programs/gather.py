"""Rows that the hardware gathers and scatters, where it does: from compute capability 10 on."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS = 256, 100
EACH = 32


@triton.jit
def permute(x, out, order, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """Row `i` of `out` becomes row `order[i]` of `x`."""
    i = tl.program_id(0) * EACH + tl.arange(0, EACH)
    column = tl.program_id(1) * BLOCK
    out.scatter(x.gather(tl.load(order + i), column), i, column)  # @scattered


@triton.jit
def permute_in_place(x, order, EACH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * EACH + tl.arange(0, EACH)
    column = tl.program_id(1) * BLOCK
    v = x.gather(tl.load(order + i), column)  # @gathered
    x.scatter(v, i, column)  # @back


@triton.jit
def spread(x, out, order, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """Row `order[i]` of `out` becomes row `i` of `x`."""
    i = tl.program_id(0) * EACH + tl.arange(0, EACH)
    column = tl.program_id(1) * BLOCK
    out.scatter(x.gather(i, column), tl.load(order + i), column)  # @spread


def described(tensor: torch.Tensor) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, [1, 64])


def rows(value: int) -> torch.Tensor:
    """Rows that end within 16 bytes."""
    whole = torch.full((ROWS, 128), value, dtype=torch.float16, device="cuda")
    return whole[:, :COLUMNS]


GRID = (ROWS // EACH, triton.cdiv(COLUMNS, 64))


def reversed_rows() -> torch.Tensor:
    return torch.arange(ROWS - 1, -1, -1, dtype=torch.int32, device="cuda")


def run_permute() -> None:
    x, out = rows(2), rows(0)
    permute[GRID](described(x), described(out), reversed_rows(), EACH=EACH, BLOCK=64)
    torch.cuda.synchronize()
    assert (out == 2).all().item()


def run_in_place() -> None:
    permute_in_place[GRID](described(rows(2)), reversed_rows(), EACH=EACH, BLOCK=64)
    torch.cuda.synchronize()


def run_spread(twice: bool) -> None:
    x, out, order = rows(2), rows(0), reversed_rows()
    if twice:
        order //= 2
    spread[GRID](described(x), described(out), order, EACH=EACH, BLOCK=64)
    torch.cuda.synchronize()
    if not twice:
        assert (out == 2).all().item()


CASES = [
    Case("rows", run_permute),
    Case("rows, in place", run_in_place, races=(Race("gathered", "back"),)),
    Case("scattered rows", lambda: run_spread(False)),
    Case("half of the rows twice", lambda: run_spread(True), races=(Race("spread", "spread"),)),
]
if torch.cuda.get_device_capability()[0] < 10:
    CASES = []
