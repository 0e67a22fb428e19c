"""Fixed blocks: what makes every resampler give the same samples however its input is cut.

A resampler is always run on blocks of one size, whatever sizes arrive. Feeding a recording in any pieces therefore runs
exactly the same arithmetic as feeding it whole, and the results agree bit for bit. It also keeps the cost of a call
small where pieces are short, and each call far below the 2**29 samples at which FFmpeg's resampler overflows.
"""

from abc import ABC, abstractmethod
from math import gcd

import numpy as np
from numpy.typing import NDArray

from audio.errors import ChannelLayoutError, InvalidSourceError, ResampleError

BLOCK_SECONDS = 0.5
"""Length of a block. Between 0.25 and 1 s the speed is flat for every implementation (see bench/resample.py)."""

Samples = NDArray[np.float32]


def checked_samples(samples: Samples) -> Samples:
    """Return one channel of samples as contiguous float32.

    Raises
    ------
    ChannelLayoutError
        If there is more than one dimension.
    InvalidSourceError
        If the samples are not floats.

    """
    if samples.ndim != 1:
        raise ChannelLayoutError(
            f"a resampler takes one channel, and an array of shape {samples.shape} was given: "
            "reduce it with normalize_audio, or resample its channels one by one."
        )
    if samples.dtype.kind != "f":
        raise InvalidSourceError(
            f"a resampler takes floats in [-1, 1], and samples of type {samples.dtype} were given: "
            "scale them with normalize_audio first."
        )
    return np.ascontiguousarray(samples, dtype=np.float32)


def resampled_frames(frames: int, source_rate: int, target_rate: int) -> int:
    """Return how many samples a recording has after resampling: ``ceil(frames * target_rate / source_rate)``.

    Output sample k stands at the time k / target_rate; these are the ones that fall within the recording's
    ``[0, frames / source_rate)`` seconds.

    """
    return -(-frames * target_rate // source_rate)


class BlockResampler(ABC):
    """A streaming resampler that runs a library on blocks of one fixed size.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.
    block_frames : int
        Input samples of each block.
    delay : int
        How many output samples the conversion gives before the one that stands at time 0.

    """

    def __init__(self, source_rate: int, target_rate: int, block_frames: int, delay: int = 0) -> None:
        self.source_rate = source_rate
        self.target_rate = target_rate
        self.block_frames = block_frames
        self._to_drop = delay
        self._pending = np.zeros(block_frames, dtype=np.float32)
        self._filled = 0
        self._received = 0
        self._emitted = 0
        self._flushed = False

    @abstractmethod
    def _convert(self, block: Samples) -> Samples:
        """Run the library on one block of `block_frames` samples, which may be overwritten afterwards."""

    def process(self, samples: Samples) -> Samples:
        """Take the next samples and return those that can be given by now.

        Parameters
        ----------
        samples : ndarray, shape (frames,), float32
            The next stretch of the recording, of any length.

        Returns
        -------
        resampled : ndarray, shape (frames,), float32
            The next samples at the target rate; fewer than `samples` stands for, as the rest follows later.

        Raises
        ------
        ResampleError
            After `flush`.
        ChannelLayoutError, InvalidSourceError
            If `samples` is not one channel of floats.

        """
        if self._flushed:
            raise ResampleError("this resampler has been flushed: open a new one for the next recording.")
        samples = checked_samples(samples)
        self._received += len(samples)
        return self._joined(self._push(samples))

    def flush(self) -> Samples:
        """End the recording and return its remaining samples; nothing on a second call.

        The recording is taken to be followed by silence. Over all calls,
        ``ceil(received * target_rate / source_rate)`` samples are returned.
        """
        if self._flushed:
            return np.zeros(0, dtype=np.float32)
        self._flushed = True
        remaining = resampled_frames(self._received, self.source_rate, self.target_rate) - self._emitted
        outputs: list[Samples] = []
        found = 0
        while found < remaining:
            silence = np.zeros(self.block_frames - self._filled, dtype=np.float32)
            for output in self._push(silence):
                outputs.append(output)
                found += len(output)
        return self._joined(outputs)[:remaining]

    def _push(self, samples: Samples) -> list[Samples]:
        """Convert every block that is complete and keep the rest."""
        outputs: list[Samples] = []
        position = 0
        if self._filled:
            position = min(self.block_frames - self._filled, len(samples))
            self._pending[self._filled : self._filled + position] = samples[:position]
            self._filled += position
            if self._filled < self.block_frames:
                return outputs
            outputs.append(self._converted(self._pending))
            self._filled = 0
        while len(samples) - position >= self.block_frames:
            outputs.append(self._converted(samples[position : position + self.block_frames]))
            position += self.block_frames
        self._filled = len(samples) - position
        self._pending[: self._filled] = samples[position:]
        return outputs

    def _converted(self, block: Samples) -> Samples:
        """Convert a block and drop what lies before time 0."""
        output = self._convert(block)
        if self._to_drop:
            dropped = min(self._to_drop, len(output))
            self._to_drop -= dropped
            output = output[dropped:]
        return output

    def _joined(self, outputs: list[Samples]) -> Samples:
        """Return the outputs in one array."""
        outputs = [output for output in outputs if len(output)]
        if not outputs:
            return np.zeros(0, dtype=np.float32)
        joined = outputs[0] if len(outputs) == 1 else np.concatenate(outputs)
        self._emitted += len(joined)
        return joined


def time_blocks(source_rate: int) -> int:
    """Return the input samples in a block of `BLOCK_SECONDS`, at least 1."""
    return max(1, round(source_rate * BLOCK_SECONDS))


class WindowResampler(BlockResampler):
    """A resampler for libraries that convert whole arrays: each block is converted within a window around it.

    The rates' ratio in lowest terms is ``up / down``: `down` input samples span the time of `up` output samples. Blocks
    and the context on either side are whole multiples of `down`, so every window starts on an output instant and the
    middle of its conversion is exactly what converting the whole recording would give.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.
    context_frames : int
        How many input samples on either side of an output sample have a say in it.

    """

    def __init__(self, source_rate: int, target_rate: int, context_frames: int) -> None:
        divisor = gcd(source_rate, target_rate)
        self.up, self.down = target_rate // divisor, source_rate // divisor
        context_steps = -(-context_frames // self.down)
        # At rates of a few Hz the context is far longer than half a second: a block as long as it keeps the work for a
        # window to three times that for its block.
        steps = max(1, round(source_rate * BLOCK_SECONDS / self.down), context_steps)
        super().__init__(source_rate, target_rate, steps * self.down, delay=context_steps * self.up)
        self._context = context_steps * self.down
        self._kept = slice(context_steps * self.up, (context_steps + steps) * self.up)
        # Context, block, context. The block that has just arrived is the window's end; what is kept of the conversion
        # lies one context earlier, so the first `delay` outputs stand before time 0.
        self._window = np.zeros(2 * self._context + self.block_frames, dtype=np.float32)

    @abstractmethod
    def _convert_window(self, window: Samples) -> Samples:
        """Convert a window as a recording of its own: output sample 0 stands at its first input sample."""

    def _convert(self, block: Samples) -> Samples:
        window = self._window
        window[: -self.block_frames] = window[self.block_frames :]
        window[-self.block_frames :] = block
        # Copied, because a view would keep the whole conversion alive.
        return self._convert_window(window)[self._kept].copy()
