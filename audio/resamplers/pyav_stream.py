"""FFmpeg's resampler (libswresample), by way of PyAV."""

from collections.abc import Mapping
from math import ceil, gcd

import av
import numpy as np
from av.audio.resampler import AudioResampler

from audio.errors import ResampleError
from audio.resamplers.blocks import BlockResampler, Samples, time_blocks
from audio.resamplers.kaiser import MAX_COEFFICIENTS

FILTER_SIZE = 64
"""Filter length, in samples at the lower rate.

Twice libswresample's default, with which tones just above the Nyquist frequency come back as aliases only 43 dB down,
and the pass band has lost 1 dB at 7.2 kHz of 8.
"""

MAX_PHASES = 1024
"""libswresample's default: rates that would take more filter phases are served by the nearest of these."""


class PyavResampler(BlockResampler):
    """Streams through `av.AudioResampler`.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.
    options : mapping, optional
        Further options of libswresample.

    Raises
    ------
    ResampleError
        If the rates would take a filter of more than `MAX_COEFFICIENTS`.

    """

    def __init__(self, source_rate: int, target_rate: int, options: Mapping[str, str] | None = None) -> None:
        phases = min(target_rate // gcd(source_rate, target_rate), MAX_PHASES)
        coefficients = phases * ceil(FILTER_SIZE * max(source_rate / target_rate, 1))
        if coefficients > MAX_COEFFICIENTS:
            raise ResampleError(
                f"{source_rate} Hz to {target_rate} Hz would take FFmpeg a filter of {coefficients} coefficients, "
                f'more than the limit of {MAX_COEFFICIENTS}: use implementation="soxr".'
            )
        super().__init__(source_rate, target_rate, time_blocks(source_rate))
        settings = {"filter_size": str(FILTER_SIZE), **(options or {})}
        self._resampler = AudioResampler(format="flt", layout="mono", rate=target_rate, options=settings)

    def _convert(self, block: Samples) -> Samples:
        frame = av.AudioFrame.from_ndarray(block[None, :], format="flt", layout="mono")
        frame.sample_rate = self.source_rate
        outputs: list[Samples] = [output.to_ndarray()[0] for output in self._resampler.resample(frame)]
        if not outputs:
            return np.zeros(0, dtype=np.float32)
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)
