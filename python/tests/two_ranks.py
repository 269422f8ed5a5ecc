"""One of two ranks on the host backend, each with a device of its own. Arguments: the rank, a name
for the pair, and `ordered` if something orders what they do.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_uint32, c_uint64, c_void_p
from typing import Any

import gsan
from gsan import _memory, _native
from gsan._native import library


def main(rank: int, name: str, ordered: bool) -> None:
    _memory.configure(device_ranks={rank: rank}, num_devices=2)
    mine = _memory.gsan_malloc(4096, rank)
    meeting, group, stream = c_void_p(), c_void_p(), c_void_p()
    library().rendezvous_join(name.encode(), rank, 2, 20_000, byref(meeting))
    addresses = (c_uint64 * 2)()
    library().rendezvous_share(meeting, mine, rank, addresses)
    library().group_open(rank, (c_uint32 * 2)(0, 1), 2, byref(group))
    library().host_stream_create(rank, 1, byref(stream))
    word = c_uint32(5)

    def meet() -> None:
        everybody = ctypes.create_string_buffer(2)
        library().rendezvous_exchange(meeting, b"x", 1, everybody)

    def launch(call: Any, line: int) -> None:
        @_native.Cta
        def kernel(cta, index, user) -> None:
            if index[0] == 1:
                call(cta, addresses[1], byref(word), 4, b"kernel.py", line)

        info = _native.LaunchInfo(kernel=b"kernel")
        info.grid[:], info.block[:] = (2, 1, 1), (1, 1, 1)
        library().host_launch(rank, stream, byref(info), kernel, None)
        library().host_stream_synchronize(rank, stream)

    for way in ("barrier", "collective"):
        if rank == 0:
            launch(library().host_write, 3)
        if ordered and way == "barrier":
            library().group_barrier(group, stream, 20_000)
        elif ordered:
            library().group_before_collective(group, stream)
            library().host_stream_synchronize(rank, stream)
            meet()
            library().group_after_collective(group, stream)
        meet()
        if rank == 1:
            launch(library().host_read, 9)
        meet()
        library().group_barrier(group, stream, 20_000)
    for race in gsan.races():
        ranks = race.earlier.device_rank, race.later.device_rank
        print(race.kind, ranks, sorted(line for _, line in race.lines), race.earlier.cta)
    meet()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], "ordered" in sys.argv)
