"""Memory that large computations reuse instead of returning."""

import ctypes
import sys
import threading
import time
from typing import Any

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1

RETURN_SECONDS = 30.0
"""How often what nobody has reused is returned after all. It takes 20 to 60 ms."""


def keep_large_blocks(*, return_seconds: float = RETURN_SECONDS) -> bool:
    """Tell the C library to keep freed memory for reuse, and return whether it will.

    An encoder allocates and frees blocks of tens of megabytes for each clip. By default glibc maps and unmaps each of
    them, and the page faults cost 15 to 25 % of the encoding time (measured: bench/engine.py). This changes the whole
    process, so it is for programs, such as the command line, and not for libraries. Where the C library is another one
    nothing is changed.

    Small blocks that come to lie in a freed large one keep the next from fitting there. Over hours the heap would grow
    by such holes, so a thread gives back from time to time whatever is free.

    Parameters
    ----------
    return_seconds : float
        How often that is.

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
    threading.Thread(target=_return, args=(library, return_seconds), name="auricle-memory-return", daemon=True).start()
    return True


def _return(library: Any, seconds: float) -> None:
    while True:
        time.sleep(seconds)
        library.malloc_trim(0)
