"""Memory that is kept for reuse, and given back when nobody reuses it; in processes of their own, which it changes."""

import subprocess
import sys

import pytest

from tests.recordings import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has glibc's allocator")

PROGRAM = """
import sys, time
import numpy as np
from engine_bridge.budget import resident_bytes
from engine_bridge.engines import allocator

allocator._LOOK_SECONDS = {look}
if not allocator.keep_large_blocks():
    sys.exit("this C library cannot be told")

def held():
    return resident_bytes() >> 20

def freed(count):
    large = [np.ones(8 << 20, np.uint8) for _ in range(count)]
    return np.ones(1000, np.uint8)  # above the others, so that the heap cannot shrink

{what}
"""


def run(what: str, look: float) -> str:
    """Run lines in a process whose memory is kept, and return what they print."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(what=what, look=look)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot be told" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_freed_memory_is_kept_for_the_next_block():
    first, later = map(
        int,
        run(
            """
time.sleep(0.5)  # it has looked for the last time
before = held()
small = freed(16)
print(held() - before)
small = [small, freed(16)]
print(held() - before)
""",
            look=3600,
        ).split(),
    )
    assert first >= 120
    assert later - first <= 16


def test_what_nobody_takes_up_again_is_returned():
    left = run(
        """
time.sleep(0.5)
before = held()
small = [freed(16)]
deadline = time.monotonic() + 30
while held() - before > 64 and time.monotonic() < deadline:
    time.sleep(0.01)
print(held() - before)
""",
        look=0.1,
    )
    assert int(left) <= 64


def test_what_is_in_use_is_counted_without_what_is_free():
    taken, freed = map(
        int,
        run(
            """
import ctypes
library = ctypes.CDLL(None)
if not hasattr(library, "mallinfo2"):
    sys.exit("this C library cannot be told")
before = allocator._bytes_in_use(library)
large = [np.ones(8 << 20, np.uint8) for _ in range(16)]
print((allocator._bytes_in_use(library) - before) >> 20)
del large
print((allocator._bytes_in_use(library) - before) >> 20)
""",
            look=3600,
        ).split(),
    )
    assert 128 <= taken < 136
    assert freed <= 8
