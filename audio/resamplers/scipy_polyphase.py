"""A polyphase filter, by way of scipy."""

from math import gcd

import numpy as np
from scipy.signal import firwin, upfirdn

from audio.errors import ResampleError
from audio.resamplers.blocks import Samples, WindowResampler
from audio.resamplers.kaiser import BETA, MAX_COEFFICIENTS, ROLLOFF, ZERO_CROSSINGS


class ScipyResampler(WindowResampler):
    """Runs `scipy.signal.upfirdn` over windows.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.

    Raises
    ------
    ResampleError
        If the rates would take a filter of more than `MAX_COEFFICIENTS`.

    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        divisor = gcd(source_rate, target_rate)
        up, down = target_rate // divisor, source_rate // divisor
        # Half the filter, counted at `up` times the source rate and rounded up to whole output samples, so that its
        # delay is a whole number of them.
        half_outputs = -(-round(ZERO_CROSSINGS * max(up, down) / ROLLOFF) // down)
        half = half_outputs * down
        if 2 * half + 1 > MAX_COEFFICIENTS:
            raise ResampleError(
                f"{source_rate} Hz to {target_rate} Hz would take scipy a filter of {2 * half + 1} coefficients, "
                f'more than the limit of {MAX_COEFFICIENTS}: use implementation="soxr".'
            )
        super().__init__(source_rate, target_rate, context_frames=-(-half // up))
        taps = firwin(2 * half + 1, ROLLOFF / max(up, down), window=("kaiser", BETA)) * up
        self._taps = taps.astype(np.float32)
        self._half_outputs = half_outputs

    def _convert_window(self, window: Samples) -> Samples:
        converted: Samples = upfirdn(self._taps, window, self.up, self.down)[self._half_outputs :]
        return converted
