"""FFmpeg's resampler (libswresample), by way of PyAV."""

from fractions import Fraction
from math import ceil, gcd

import av
import numpy as np
from av.filter import Graph

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
    """Streams through FFmpeg's `aresample` filter.

    `av.AudioResampler` would be the same filter, but takes its options in recent releases only.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second.
    filter_size : int
        Filter length, in samples at the lower rate.

    Raises
    ------
    ResampleError
        If the rates would take a filter of more than `MAX_COEFFICIENTS`.

    """

    def __init__(self, source_rate: int, target_rate: int, filter_size: int = FILTER_SIZE) -> None:
        phases = min(target_rate // gcd(source_rate, target_rate), MAX_PHASES)
        coefficients = phases * ceil(filter_size * max(source_rate / target_rate, 1))
        if coefficients > MAX_COEFFICIENTS:
            raise ResampleError(
                f"{source_rate} Hz to {target_rate} Hz would take FFmpeg a filter of {coefficients} coefficients, "
                f'more than the limit of {MAX_COEFFICIENTS}: use implementation="soxr".'
            )
        super().__init__(source_rate, target_rate, time_blocks(source_rate))
        self._time_base = Fraction(1, source_rate)
        self._position = 0
        self._graph = Graph()
        buffer = self._graph.add_abuffer(
            sample_rate=source_rate, format="flt", layout="mono", time_base=self._time_base
        )
        resampler = self._graph.add("aresample", f"{target_rate}:filter_size={filter_size}")
        sink = self._graph.add("abuffersink")
        buffer.link_to(resampler)
        resampler.link_to(sink)
        self._graph.configure()
        self._buffer, self._sink = buffer, sink

    def _convert(self, block: Samples) -> Samples:
        frame = av.AudioFrame.from_ndarray(block[None, :], format="flt", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = self.source_rate, self._time_base, self._position
        self._position += len(block)
        self._buffer.push(frame)
        outputs: list[Samples] = []
        while True:
            try:
                output = self._sink.pull()
            except av.BlockingIOError:  # the filter wants more input
                break
            if isinstance(output, av.AudioFrame):
                outputs.append(output.to_ndarray()[0])
        if not outputs:
            return np.zeros(0, dtype=np.float32)
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)
