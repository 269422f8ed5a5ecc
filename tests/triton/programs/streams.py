"""Two kernels on two streams, and everything that can order them."""

import torch
import triton
import triton.language as tl
from gsan_programs import Case, Race

COUNT = 1 << 16
BLOCK = 1024


@triton.jit
def fill(x, value, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, i + value)  # @fill


@triton.jit
def read(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))  # @read


def run(order) -> None:
    x = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    early = torch.cuda.Event()
    early.record(first)
    with torch.cuda.stream(first):
        fill[(COUNT // BLOCK,)](x, 7, B=BLOCK, num_warps=4)
    certain = order(first, second, early)
    with torch.cuda.stream(second):
        read[(COUNT // BLOCK,)](x, out, B=BLOCK, num_warps=4)
    torch.cuda.synchronize()
    if certain:
        assert torch.equal(out.cpu(), torch.arange(7, COUNT + 7, dtype=torch.int32))


def event(first, second, early):
    done = torch.cuda.Event()
    done.record(first)
    second.wait_event(done)
    return True


def wait_stream(first, second, early):
    second.wait_stream(first)
    return True


def device(first, second, early):
    torch.cuda.synchronize()
    return True


def stream(first, second, early):
    first.synchronize()
    return True


def event_synchronize(first, second, early):
    done = torch.cuda.Event()
    done.record(first)
    done.synchronize()
    return True


def event_query(first, second, early):
    done = torch.cuda.Event()
    done.record(first)
    while not done.query():
        pass
    return True


def stream_query(first, second, early):
    while not first.query():
        pass
    return True


def item(first, second, early):
    with torch.cuda.stream(first):
        torch.zeros(1, device="cuda").item()
    return True


def nothing(first, second, early):
    return False


def event_too_early(first, second, early):
    second.wait_event(early)
    return False


def wrong_way(first, second, early):
    first.wait_stream(second)
    return False


RACE = (Race("fill", "read"),)

CASES = [
    Case("event", lambda: run(event)),
    Case("wait_stream", lambda: run(wait_stream)),
    Case("device synchronise", lambda: run(device)),
    Case("stream synchronise", lambda: run(stream)),
    Case("event synchronise", lambda: run(event_synchronize)),
    Case("event query", lambda: run(event_query)),
    Case("stream query", lambda: run(stream_query)),
    Case("item", lambda: run(item)),
    Case("nothing", lambda: run(nothing), races=RACE),
    Case("event recorded too early", lambda: run(event_too_early), races=RACE),
    Case("waiting the wrong way", lambda: run(wrong_way), races=RACE),
]
