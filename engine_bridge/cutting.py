"""A recording's chunks as an engine is to hear them, each stage's time counted."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from audio.energy import SpeechDetector
from audio.errors import AudioError
from audio.split import stream_chunks
from audio.stream import MonoStream
from engine_bridge.timing import DECODE_AUDIO, SPLIT, TimingContext

FILLED = 28 / 30
"""Share of the engine's longest clip that a chunk fills. Whisper ends its text best where silence follows: over eight
recordings 28 s in a window of 30 s gave 1.96 % word errors, 29 s 1.94 % and 30 s 2.07 %, and at 30 s a passage of one
of them was lost in the first attempt (tiny.en, int8, greedy; bench/quality.py repeats it)."""

KEPT_SILENCE_SECONDS = 2.0
"""Pauses longer than about this are shortened before the engine sees them: silence costs as much as speech there. Over
the same recordings 1 s gave 2.04 % word errors, 1.5 s 1.93 %, 2 s 1.88 % and 3 s 1.94 %."""


def cut_stream(
    stream: MonoStream, timing: TimingContext, *, max_duration: float, detector: SpeechDetector | None = None
) -> Iterator[Chunk]:
    """Yield a recording's chunks at their places in it.

    Parameters
    ----------
    stream : MonoStream
        The recording, at the engine's sample rate.
    timing : TimingContext
        Where the time that decoding and splitting take is counted.
    max_duration : float
        The most that a chunk may last, in seconds.
    detector : SpeechDetector or None
        What tells speech from pauses.

    Raises
    ------
    AudioError
        Once all that could be decoded has been yielded, if decoding broke off before the end.

    """
    damage: list[AudioError] = []
    chunks = stream_chunks(
        _decoded(stream, timing, damage),
        stream.sample_rate,
        max_duration=max_duration,
        keep_silence=KEPT_SILENCE_SECONDS,
        detector=detector,
    )
    while True:
        with timing.stage(SPLIT):
            chunk = next(chunks, None)
        if chunk is None:
            break
        yield chunk.moved(stream.offset)
    if damage:
        raise damage[0]


def _decoded(stream: MonoStream, timing: TimingContext, damage: list[AudioError]) -> Iterator[NDArray[np.float32]]:
    """Yield the recording's blocks; where decoding breaks off, what came before is still cut and recognised."""
    blocks = iter(stream)
    try:
        while True:
            with timing.stage(DECODE_AUDIO):
                block = next(blocks, None)
            if block is None:
                return
            yield block
    except AudioError as error:
        damage.append(error)
