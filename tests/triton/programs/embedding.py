"""The gradient of an embedding: rows that tokens have in common are added to, or written."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

TOKENS, VOCABULARY, WIDTH = 512, 64, 128


@triton.jit
def look_up(table, tokens, out, D: tl.constexpr):
    t = tl.program_id(0)
    i = tl.arange(0, D)
    tl.store(out + t * D + i, tl.load(table + tl.load(tokens + t) * D + i))


@triton.jit
def scatter(grad, tokens, grad_table, ATOMIC: tl.constexpr, D: tl.constexpr):
    t = tl.program_id(0)
    i = tl.arange(0, D)
    g = tl.load(grad + t * D + i)
    row = grad_table + tl.load(tokens + t) * D + i
    if ATOMIC:
        tl.atomic_add(row, g, sem="relaxed")
    else:
        tl.store(row, tl.load(row) + g)  # @row


@triton.jit
def by_word(grad, tokens, grad_table, count, D: tl.constexpr):
    """A program for each word, which looks for its tokens."""
    word = tl.program_id(0)
    i = tl.arange(0, D)
    sums = tl.zeros((D,), tl.float32)
    for t in range(count):
        if tl.load(tokens + t) == word:
            sums += tl.load(grad + t * D + i)
    tl.store(grad_table + word * D + i, sums)


def run(how: str, repeated: bool = True) -> None:
    words = TOKENS if not repeated else VOCABULARY
    tokens = (torch.arange(TOKENS) * 37 % words).to(torch.int32).to("cuda")
    table = torch.randn(words, WIDTH, device="cuda")
    out = torch.empty(TOKENS, WIDTH, device="cuda")
    grads = torch.zeros_like(table)
    look_up[(TOKENS,)](table, tokens, out, D=WIDTH, num_warps=4)
    if how == "by word":
        by_word[(words,)](out, tokens, grads, TOKENS, D=WIDTH, num_warps=4)
    else:
        scatter[(TOKENS,)](out, tokens, grads, ATOMIC=how == "atomics", D=WIDTH, num_warps=4)
    torch.cuda.synchronize()
    if how != "plain" or not repeated:
        assert torch.allclose(grads, table * (TOKENS // words), atol=1e-4)


CASES = [
    Case("atomics", lambda: run("atomics")),
    Case("a program for each word", lambda: run("by word")),
    Case("plain, each word once", lambda: run("plain", repeated=False)),
    Case("plain, words repeated", lambda: run("plain"), races=(Race("row", "row"),)),
]
