"""Memory that large computations reuse instead of returning."""

import ctypes
import sys

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1


def keep_large_blocks() -> bool:
    """Tell the C library to keep freed memory for reuse, and return whether it will.

    An encoder allocates and frees blocks of tens of megabytes for each clip. By default glibc maps and unmaps each of
    them, and the page faults cost 15 to 25 % of the encoding time (measured: bench/engine.py). This changes the whole
    process, so it is for programs, such as the command line, and not for libraries. Where the C library is another one
    nothing is changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "gnu_get_libc_version"):
        return False
    # One arena: blocks of other arenas cannot exceed 64 MB and would be mapped again.
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_ARENA_MAX, 1))
    return all(library.mallopt(parameter, value) == 1 for parameter, value in wanted)
