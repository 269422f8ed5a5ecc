"""A rotary embedding in place: pairs of elements are turned, each pair by one program or by two."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

TOKENS, HEADS, WIDTH = 64, 4, 128


@triton.jit
def rotate(x, cos, sin, heads, D: tl.constexpr):
    """A program for a token and a head: it has both halves."""
    token, head = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, D // 2)
    at = x + (token * heads + head) * D + i
    c, s = tl.load(cos + token * (D // 2) + i), tl.load(sin + token * (D // 2) + i)
    a, b = tl.load(at), tl.load(at + D // 2)
    tl.store(at, a * c - b * s)
    tl.store(at + D // 2, b * c + a * s)


@triton.jit
def rotate_half(x, out, cos, sin, heads, D: tl.constexpr):
    """A program for each half: it loads the other's."""
    token, head, half = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i = tl.arange(0, D // 2)
    row = (token * heads + head) * D
    c, s = tl.load(cos + token * (D // 2) + i), tl.load(sin + token * (D // 2) + i)
    own = tl.load(x + row + half * (D // 2) + i)
    other = tl.load(x + row + (1 - half) * (D // 2) + i)  # @other
    tl.debug_barrier()
    turned = tl.where(half == 0, own * c - other * s, own * c + other * s)
    tl.store(out + row + half * (D // 2) + i, turned)  # @own


def run(halves: bool, in_place: bool) -> None:
    torch.manual_seed(10)
    x = torch.randn(TOKENS, HEADS, WIDTH, device="cuda")
    angles = torch.arange(TOKENS)[:, None] * 10_000.0 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    cos, sin = angles.cos().cuda(), angles.sin().cuda()
    a, b = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    expected = torch.cat([a * c - b * s, b * c + a * s], -1)
    out = x if in_place else torch.zeros_like(x)
    if halves:
        rotate_half[(TOKENS, HEADS, 2)](x, out, cos, sin, HEADS, D=WIDTH, num_warps=1)
    else:
        rotate[(TOKENS, HEADS)](x, cos, sin, HEADS, D=WIDTH, num_warps=1)
    torch.cuda.synchronize()
    if not (halves and in_place):
        assert torch.allclose(out, expected, atol=1e-5)


CASES = [
    Case("pairs, in place", lambda: run(False, True)),
    Case("halves, two tensors", lambda: run(True, False)),
    Case("halves, in place", lambda: run(True, True), races=(Race("other", "own"),)),
]
