"""A convolution by hand: of images with several channels, and of sequences in place."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

BATCH, CHANNELS, HEIGHT, WIDTH, OUTPUTS = 2, 4, 40, 40, 4
TILE = 16
TAPS = 4


@triton.jit
def image(x, w, out, H, W, step, C: tl.constexpr, F: tl.constexpr, T: tl.constexpr):
    """A 3 by 3 convolution; a program for a tile of one output channel."""
    across = tl.cdiv(W, T)
    r = tl.program_id(0) // across * step + tl.arange(0, T)
    c = tl.program_id(0) % across * T + tl.arange(0, T)
    f, n = tl.program_id(1), tl.program_id(2)
    sums = tl.zeros((T, T), tl.float32)
    for k in range(C):
        for tap in tl.static_range(9):
            y, z = r + tap // 3 - 1, c + tap % 3 - 1
            inside = ((y >= 0) & (y < H))[:, None] & ((z >= 0) & (z < W))[None, :]
            v = tl.load(x + ((n * C + k) * H + y[:, None]) * W + z[None, :], inside, other=0.0)
            sums += v * tl.load(w + (f * C + k) * 9 + tap)
    inside = (r < H)[:, None] & (c < W)[None, :]
    tl.store(out + ((n * F + f) * H + r[:, None]) * W + c[None, :], sums, inside)  # @tile


@triton.jit
def sequence(x, w, out, N, TAPS: tl.constexpr, B: tl.constexpr):
    """Each element becomes a sum over those before it."""
    row = tl.program_id(1) * N
    i = tl.program_id(0) * B + tl.arange(0, B)
    sums = tl.zeros((B,), tl.float32)
    for tap in tl.static_range(TAPS):
        at = i - tap
        v = tl.load(x + row + at, (at >= 0) & (at < N), other=0.0)  # @before
        sums += v * tl.load(w + tap)
    tl.debug_barrier()
    tl.store(out + row + i, sums, i < N)  # @after


def run_image(step: int) -> None:
    torch.manual_seed(15)
    x = torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)
    w = torch.randn(OUTPUTS, CHANNELS, 3, 3)
    out = torch.zeros(BATCH, OUTPUTS, HEIGHT, WIDTH, device="cuda")
    grid = (triton.cdiv(HEIGHT, step) * triton.cdiv(WIDTH, TILE), OUTPUTS, BATCH)
    arguments = (x.to("cuda"), w.to("cuda"), out, HEIGHT, WIDTH, step)
    image[grid](*arguments, C=CHANNELS, F=OUTPUTS, T=TILE, num_warps=4)
    torch.cuda.synchronize()
    expected = torch.nn.functional.conv2d(x, w, padding=1)
    assert torch.allclose(out.cpu(), expected, atol=1e-3)


def run_sequence(in_place: bool) -> None:
    torch.manual_seed(16)
    x = torch.randn(16, 1000, device="cuda")
    w = torch.randn(TAPS)
    before = x.cpu()
    out = x if in_place else torch.zeros_like(x)
    sequence[(triton.cdiv(1000, 128), 16)](
        x, w.to("cuda"), out, 1000, TAPS=TAPS, B=128, num_warps=4
    )
    torch.cuda.synchronize()
    if not in_place:
        padded = torch.nn.functional.pad(before, (TAPS - 1, 0))[:, None]
        expected = torch.nn.functional.conv1d(padded, w.flip(0).view(1, 1, TAPS))[:, 0]
        assert torch.allclose(out.cpu(), expected, atol=1e-3)


CASES = [
    Case("images", lambda: run_image(TILE)),
    Case("images, tiles that overlap", lambda: run_image(TILE - 2), (Race("tile", "tile"),)),
    Case("sequences", lambda: run_sequence(False)),
    Case("sequences in place", lambda: run_sequence(True), (Race("before", "after"),)),
]
