"""Memory that large computations reuse instead of returning."""

import ctypes
import itertools
import sys
import threading
import time
from typing import Any

from engine_bridge.budget import resident_bytes

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1

_LOOK_SECONDS = 0.02
_LOOKS_A_COUNT = 12
"""Looking and, every so often, counting what is in use took half a millisecond a look in the mean."""

_SPARE = 1.2
"""What may be held: so many times the most that was in use of late, and what is held beside the heap. What is returned
has to be mapped again: a job of a hundred short recordings takes 2 % longer at 1.2 than at 1.3, and a tenth at 1.1."""

_FADING = 0.995
"""What the most counts for at the next count, a quarter of a second later: the largest steps of all workers meet now
and then, and what that took is not needed for good."""

_GROWTH = 1.03
"""After returning, at least so many times what was left: some of what is free cannot be returned."""


class _HeapUse(ctypes.Structure):
    """The struct mallinfo2 of glibc 2.33 and later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def keep_large_blocks() -> bool:
    """Tell the C library to keep freed memory for reuse, and return whether it will.

    An encoder allocates and frees blocks of tens of megabytes for each clip. By default glibc maps and unmaps each of
    them, and the page faults cost 15 to 25 % of the encoding time (measured: bench/engine.py). This changes the whole
    process, so it is for programs, such as the command line, and not for libraries. Where the C library is another one
    nothing is changed.

    Small blocks that come to lie in a freed large one keep the next from fitting there. Over hours the heap would grow
    by such holes, so a thread gives back whatever is free where much more is held than was in use of late.
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
    most, beside, allowed = 0.0, 0.0, 0.0
    for look in itertools.count():
        if look % _LOOKS_A_COUNT == 0:
            most = max(_FADING * most, _bytes_in_use(library))
        if (resident_bytes() or 0) > max(beside + _SPARE * most, allowed):
            library.malloc_trim(0)
            left = resident_bytes() or 0
            allowed = _GROWTH * left
            # Others allocate and free between the two readings, so that one difference alone says little.
            apart = left - _bytes_in_use(library)
            beside = beside + 0.2 * (apart - beside) if beside else apart
        time.sleep(_LOOK_SECONDS)


def _bytes_in_use(library: Any) -> int:
    """Return what of the heap is not free; 0 where the C library does not tell it in 64 bits."""
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _HeapUse
    return int(library.mallinfo2().uordblks)
