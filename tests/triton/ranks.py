"""Two processes that write each other's memory, ordered by a barrier or not.

usage: ranks.py [--gsan COMMAND]

Each case starts two ranks by torchrun under `gsan run`; on a machine with one GPU both use it. Rank
0 writes memory of rank 1, which reads it. With `barrier` and `all_reduce` there is an edge between
them; with `store` only the host knows that one comes after the other, and the detector is not told.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time

CASES = {"barrier": 0, "all_reduce": 0, "store": 66}
COUNT = 1024


def rank(case: str) -> None:
    """What a rank does."""
    import gsan
    import torch
    import torch.distributed as dist
    from gsan import symmetric_memory
    from rank_kernels import read, write

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")
    me, world = dist.get_rank(), dist.group.WORLD
    symmetric_memory.configure(world)
    mine = symmetric_memory.empty(COUNT, dtype=torch.int32)
    handle = symmetric_memory.rendezvous(mine, world)
    out = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    if me == 0:
        theirs = handle.get_buffer(1, (COUNT,), torch.int32)
        write[(1,)](theirs, B=COUNT)
        torch.cuda.synchronize()
    if case == "barrier":
        handle.barrier(timeout_ms=20_000)
    elif case == "all_reduce":
        dist.all_reduce(torch.zeros(1))
    else:
        store = dist.distributed_c10d._get_default_store()
        if me == 0:
            store.set("written", "yes")
        store.wait(["written"])
    if me == 1:
        read[(1,)](mine, out, B=COUNT)
        torch.cuda.synchronize()
        assert torch.equal(out.cpu(), torch.arange(COUNT, dtype=torch.int32))
    print(f"rank {me}: {gsan.race_count()} races", flush=True)
    dist.barrier()
    handle.close()
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gsan", default=shutil.which("gsan"), help="the gsan command")
    parser.add_argument("--rank", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.rank)
        return 0
    failed = 0
    for case, code in CASES.items():
        start = time.monotonic()
        command = [options.gsan, "run", "--", sys.executable, "-m", "torch.distributed.run"]
        command += ["--standalone", "--nproc-per-node=2", __file__, "--rank", case]
        try:
            ended = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=150,
            )
            output, got = ended.stdout, ended.returncode
        except subprocess.TimeoutExpired as error:
            output, got = str(error.stdout), 124
        good = got == code
        failed += not good
        seconds = time.monotonic() - start
        print(
            f"{'ok' if good else 'FAILED':<7} {seconds:6.1f} s  {case}: exit code {got}", flush=True
        )
        if not good:
            print("        " + output[-4000:].strip().replace("\n", "\n        "), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
