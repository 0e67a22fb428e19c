"""Memory that is kept for reuse, and given back when nobody reuses it; in processes of their own, which it changes."""

import subprocess
import sys

import pytest

from tests.recordings import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has glibc's allocator")

HELD_AFTER_FREEING = """
import sys, time
import numpy as np
from pathlib import Path
from engine_bridge.engines.allocator import keep_large_blocks

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

if not keep_large_blocks(return_seconds=float(sys.argv[1])):
    sys.exit("this C library cannot be told")
before = resident()
large = [np.ones(8 << 20, np.uint8) for _ in range(16)]
small = np.ones(1000, np.uint8)  # above the others, so that the heap cannot shrink
del large
kept = resident() - before
deadline = time.monotonic() + float(sys.argv[2])
while resident() - before > 32 and time.monotonic() < deadline:
    time.sleep(0.01)
print(kept, resident() - before)
"""


def held(return_seconds: float, wait_seconds: float) -> tuple[int, int]:
    """Return how many of 128 MiB are held at once after they were freed, and later."""
    done = subprocess.run(
        [sys.executable, "-c", HELD_AFTER_FREEING, str(return_seconds), str(wait_seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot be told" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    first, later = map(int, done.stdout.split())
    return first, later


def test_freed_memory_is_kept_for_the_next_block():
    first, later = held(return_seconds=3600, wait_seconds=0.2)
    assert first >= 120
    assert later >= 120


def test_what_nobody_takes_up_again_is_returned():
    _, later = held(return_seconds=0.5, wait_seconds=30)
    assert later <= 32
