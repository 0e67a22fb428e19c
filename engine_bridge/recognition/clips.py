"""What an engine hears of a chunk, and its answer at the chunk's own times."""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from audio.chunk import Chunk
from engine_bridge.engines.protocol import ClipResult, DecodingOptions, Engine
from engine_bridge.levels import level_speech

LEAD_SECONDS = 0.4
"""Silence before each clip, as far as the engine's longest clip has room for it.

Over eight recordings, each as it is, 3 % softer and 2 % louder, 1.79 % of the words were wrong with it and 1.95 %
without; over ten others, of other voices, 3.28 % and 3.25 %. With 0.2 s, the eight as they are had 1.77 % (0.4 s:
1.70 %, none: 1.93 %) and the ten 3.20 % (tiny.en, int8; bench/quality.py).
"""


def heard(
    engine: Engine, chunks: Sequence[Chunk], options: DecodingOptions
) -> Generator[Sequence["Future[Any]"], list[Any], list[ClipResult]]:
    """Ask an engine for the text of chunks: yields what it waits for and returns an answer for each.

    The speech is raised to one level (`level_speech`), and silence goes before it. Times in the answers are seconds
    from where the chunk's samples begin.

    Parameters
    ----------
    engine : Engine
        Where the clips go.
    chunks : sequence of Chunk
        At the engine's rate and within its longest clip.
    options : DecodingOptions
        How they are to be recognised.

    """
    leads = [_lead_frames(engine, chunk) for chunk in chunks]
    results = yield [
        engine.submit(np.pad(level_speech(chunk), (lead, 0)), options)
        for chunk, lead in zip(chunks, leads, strict=True)
    ]
    return [
        _earlier(result, lead / chunk.sample_rate) for chunk, lead, result in zip(chunks, leads, results, strict=True)
    ]


def _lead_frames(engine: Engine, chunk: Chunk) -> int:
    longest = round(engine.capabilities.max_clip_seconds * chunk.sample_rate)
    return max(0, min(round(LEAD_SECONDS * chunk.sample_rate), longest - len(chunk.samples)))


def _earlier(result: ClipResult, seconds: float) -> ClipResult:
    """Return a result with all times so many seconds earlier; what began before 0 begins at 0."""

    def moved(part: Any) -> Any:
        return replace(part, start=max(0.0, part.start - seconds), end=max(0.0, part.end - seconds))

    return replace(
        result,
        segments=tuple(
            replace(moved(segment), words=tuple(moved(word) for word in segment.words)) for segment in result.segments
        ),
    )
