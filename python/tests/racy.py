"""A program whose two CTAs write one word, on the host backend. Arguments: `ordered` (they do not),
then how it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from gsan import _memory, _native
from gsan._native import library

ORDERED = "ordered" in sys.argv


def launch() -> None:
    address = _memory.gsan_malloc(4096, 0)

    @_native.Cta
    def kernel(cta, index, user) -> None:
        place = address + (index[0] * 8 if ORDERED else 0)
        value = ctypes.c_uint32(index[0])
        line = 7 if index[0] else 9
        library().host_write(cta, place, ctypes.byref(value), 4, b"kernel.py", line)

    info = _native.LaunchInfo(kernel=b"racy")
    info.grid[:], info.block[:] = (2, 1, 1), (1, 1, 1)
    stream = ctypes.c_void_p()
    library().host_stream_create(0, 1, ctypes.byref(stream))
    library().host_launch(0, stream, ctypes.byref(info), kernel, None)
    library().host_stream_synchronize(0, stream)
    library().host_stream_destroy(0, stream)
    _memory.gsan_free(address, 0)


def main() -> None:
    end = sys.argv[-1]
    if end == "fork":
        launch()
        child = os.fork()
        if child == 0:
            sys.exit(0)
        sys.exit(os.waitpid(child, 0)[1])
    launch()
    if end == "_exit":
        os._exit(0)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    if end == "raises":
        raise ValueError("of the program")
    if end == "code":
        sys.exit(3)


if __name__ == "__main__":
    main()
