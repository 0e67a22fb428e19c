"""How many clips are decoded together: as many as fit into the memory that is free, found with dummy clips.

Nothing here knows an engine. It is told how to run a number of dummy clips, watches what that takes, and shares out
what is free. Should memory run out all the same, as when other programs take it, batches are halved and tried again.
"""

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

MIB = 1 << 20

USED_SHARE = 0.5
"""Share of the free memory that batches may take: the rest is for longer texts than the dummy's, for the audio on its
way, and for the other programs."""

DUMMY_BATCH = 4
"""Clips in the larger of the two dummy runs: what each further clip takes is the difference to a run of one."""

_OUT_OF_MEMORY = (
    "out of memory",  # CUDA, torch, vLLM
    "bad_alloc",  # std::bad_alloc, as CTranslate2 passes it on
    "alloc_failed",  # CUBLAS_STATUS_ALLOC_FAILED
    "failed to allocate",
    "cannot allocate memory",  # ENOMEM
)
_LEAST_CLIP_BYTES = MIB  # no clip takes less: its spectrogram alone is a megabyte
_SAMPLE_SECONDS = 0.002
_PAGE_BYTES = mmap.PAGESIZE
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class BatchChoice:
    """A batch size and why it is that.

    Attributes
    ----------
    size : int
        Clips.
    free_bytes : int or None
        Memory that was free, where that could be told.
    clip_bytes : int or None
        What a clip takes: measured, or at the most.
    measured : bool
        Whether `clip_bytes` was measured with dummy clips.
    reduced_from : int or None
        The size before memory ran out.

    """

    size: int
    free_bytes: int | None = None
    clip_bytes: int | None = None
    measured: bool = False
    reduced_from: int | None = None

    def __str__(self) -> str:
        """Say it for people."""
        batches = f"batches of {self.size}"
        if self.reduced_from is not None:
            return f"{batches}, reduced from {self.reduced_from} when memory ran out"
        if self.free_bytes is None or self.clip_bytes is None:
            return batches
        least = "" if self.measured else "at most "
        return f"{batches} ({least}{self.clip_bytes / MIB:.0f} MiB a clip, {self.free_bytes / MIB:.0f} MiB free)"


@dataclass
class BatchBudget:
    """The batch size in force; it only shrinks.

    Attributes
    ----------
    choice : BatchChoice
        The size and why it is that.

    """

    choice: BatchChoice
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def size(self) -> int:
        """Clips that may be decoded together."""
        return self.choice.size

    def shrink(self, failed: int) -> None:
        """Halve the size after a batch of so many clips ran out of memory."""
        with self._lock:
            size = max(1, failed // 2)
            if size < self.choice.size:
                first = self.choice.reduced_from or self.choice.size
                self.choice = BatchChoice(size, reduced_from=first)

    def process(
        self, batch: Sequence[_Item], work: Callable[[Sequence[_Item]], Sequence[_Result]]
    ) -> Sequence[_Result]:
        """Return what `work` makes of a batch; where memory runs out, of its halves, down to single clips.

        Raises whatever `work` raises for another reason, or for a single clip.
        """
        try:
            return work(batch)
        except Exception as error:
            if len(batch) == 1 or not is_out_of_memory(error):
                raise
            self.shrink(len(batch))
        # Outside the handler: the error's traceback would keep the failed batch's arrays alive.
        half = len(batch) // 2
        return [*self.process(batch[:half], work), *self.process(batch[half:], work)]


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory, of the machine or of a device, has run out."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _OUT_OF_MEMORY)


def choose_batch(
    most: int,
    *,
    workers: int,
    device: str,
    clip_bound: int,
    run: Callable[[int], object],
) -> BatchChoice:
    """Choose how many clips each worker may decode together.

    Where the most that the batches can take fits easily, that is enough and no time is spent on measuring. Otherwise
    dummy clips are run, one and then several.

    Parameters
    ----------
    most : int
        The size beyond which nothing is gained.
    workers : int
        Batches at work at once.
    device : {"cpu", "cuda"}
        Where they are.
    clip_bound : int
        Bytes that a clip takes at the most.
    run : callable
        Runs so many dummy clips, the largest there are, in one batch.

    """
    free = free_memory(device)
    if free is None:
        return BatchChoice(most)
    usable = int(USED_SHARE * free) // workers
    if usable >= most * clip_bound:
        return BatchChoice(most, free, clip_bound)
    try:
        one, several = _peaks(run, device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return BatchChoice(1, free, clip_bound)
    if one is None or several is None:
        return BatchChoice(max(1, min(most, usable // clip_bound)), free, clip_bound)
    clip = max((several - one) // (DUMMY_BATCH - 1), _LEAST_CLIP_BYTES)
    fixed = max(one - clip, 0)
    # What the dummies took is held ready by the allocator and is no longer free; it is there to be used again.
    return BatchChoice(max(1, min(most, (usable - fixed) // clip)), free, clip, measured=True)


def _peaks(run: Callable[[int], object], device: str) -> tuple[int | None, int | None]:
    """Return by how much memory grows, from now, when one and when several dummy clips are run."""
    with _watched(device) as peak:
        run(1)
        one = peak()
        run(DUMMY_BATCH)
        return one, peak()


@contextlib.contextmanager
def _watched(device: str) -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the most bytes in use so far beyond those at the beginning."""
    if device != "cpu":
        before = free_memory(device)

        def taken() -> int | None:
            # CTranslate2's allocator keeps what it once had, so that what is gone is the peak.
            now = free_memory(device)
            return None if before is None or now is None else max(0, before - now)

        yield taken
        return
    first = resident_bytes()
    if first is None:
        yield lambda: None
        return
    highest = first
    done = threading.Event()

    def sample() -> None:
        nonlocal highest
        while not done.wait(_SAMPLE_SECONDS):
            highest = max(highest, resident_bytes() or 0)

    sampler = threading.Thread(target=sample, name="auricle-memory", daemon=True)
    sampler.start()
    try:
        yield lambda: max(highest, resident_bytes() or 0) - first
    finally:
        done.set()
        sampler.join()


def free_memory(device: str) -> int | None:
    """Return the bytes of memory that are free, or None where that cannot be told.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        "cpu": what the system can give without swapping, and what is left of this control group's limit. "cuda": what
        the driver can give on the first device.

    """
    if device != "cpu":
        return _free_device_bytes()
    known = [bytes_free for bytes_free in (_available_bytes(), _control_group_bytes()) if bytes_free is not None]
    return min(known, default=None)


def _available_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _control_group_bytes() -> int | None:
    """Return what is left of the control group's limit (version 2), counting what the kernel can drop as free."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/sys/fs/cgroup")
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                own = group / line[3:].lstrip("/")
                group = own if (own / "memory.max").exists() else group
        limit = int((group / "memory.max").read_text(encoding="ascii"))  # "max" is no number: no limit
        used = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        droppable = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return max(0, limit - used + droppable)
    return None


def resident_bytes() -> int | None:
    """Return the bytes of memory that this process holds, or None where that cannot be told."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    return None


def _free_device_bytes() -> int | None:
    """Ask the driver, which knows the device by the number that CTranslate2 knows it by; None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    try:
        if driver.cuCtxPushCurrent_v2(context):
            return None
        failed = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        return None if failed else free.value
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
