"""Memory that large computations reuse instead of returning."""

import ctypes
import sys
import threading
import time
from typing import Any

from engine_bridge.budget import resident_bytes

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1

_LOOK_SECONDS = 0.25
_GROWTH = 1.1
"""What is free is returned when the process holds so many times what it held after returning, at the most, before.
That takes 26 ms in the mean, forty times in 96 s of a job."""


def keep_large_blocks() -> bool:
    """Tell the C library to keep freed memory for reuse, and return whether it will.

    An encoder allocates and frees blocks of tens of megabytes for each clip. By default glibc maps and unmaps each of
    them, and the page faults cost 15 to 25 % of the encoding time (measured: bench/engine.py). This changes the whole
    process, so it is for programs, such as the command line, and not for libraries. Where the C library is another one
    nothing is changed.

    Small blocks that come to lie in a freed large one keep the next from fitting there. Over hours the heap would grow
    by such holes, so a thread gives back whatever is free where the process has grown by a tenth.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "gnu_get_libc_version"):
        return False
    # One arena: blocks of other arenas cannot exceed 64 MB and would be mapped again.
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_ARENA_MAX, 1))
    if not all(library.mallopt(parameter, value) == 1 for parameter, value in wanted):
        return False
    threading.Thread(target=_return, args=(library,), name="auricle-memory-return", daemon=True).start()
    return True


def _return(library: Any) -> None:
    most = 0.0
    while True:
        if (resident_bytes() or 0) > most:
            library.malloc_trim(0)
            most = max(most, _GROWTH * (resident_bytes() or 0))
        time.sleep(_LOOK_SECONDS)
