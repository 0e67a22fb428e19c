"""The SoX resampler, by way of the soxr package."""

import numpy as np
import soxr

from audio.resamplers.blocks import BlockResampler, Samples, time_blocks

QUALITY = "HQ"
"""soxr's recipe with 20-bit precision: pass band to 0.913 of the Nyquist frequency, stop band from it."""


class SoxrResampler(BlockResampler):
    """Streams through `soxr.ResampleStream`, which gives its output without delay.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.
    quality : {"VHQ", "HQ", "MQ", "LQ", "QQ"}
        soxr's quality recipe.

    """

    def __init__(self, source_rate: int, target_rate: int, quality: str = QUALITY) -> None:
        super().__init__(source_rate, target_rate, time_blocks(source_rate))
        self._stream = soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32", quality=quality)

    def _convert(self, block: Samples) -> Samples:
        output: Samples = np.asarray(self._stream.resample_chunk(block), dtype=np.float32)
        return output
