"""Chunks as vLLM cuts them, recognised once each and not looked at again: what its server does with a recording."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from audio.positions import seconds_from_samples
from engine_bridge import open_engine
from engine_bridge.engines.protocol import DecodingOptions

RATE = 16_000
LONGEST = 30 * RATE
SEARCHED = RATE
WINDOW = 1600


def vllm_chunks(waveform: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each chunk and where it starts, by vLLM's rule (0.32): a chunk ends where the quietest window begins.

    That is the quietest of the windows of 0.1 s which lie side by side in the last second, the very last left out.
    """
    start = 0
    while start + LONGEST < len(waveform):
        first = start + LONGEST - SEARCHED
        windows = waveform[first : first + SEARCHED - WINDOW].reshape(-1, WINDOW)
        stop = first + WINDOW * int(np.argmin(np.mean(windows.astype(np.float64) ** 2, axis=1)))
        yield start, waveform[start:stop]
        start = stop
    yield start, waveform[start:]


def vllm_cuts(beam: int, model: str) -> Any:
    """Return a function from a waveform to the text and the span, in seconds, of each chunk."""
    engine = open_engine(f"embedded:{model}")
    options = DecodingOptions(language="en", beam_size=beam, timestamps="none")

    def run(waveform: np.ndarray) -> list[tuple[str, tuple[float, float]]]:
        chunks = list(vllm_chunks(waveform))
        answers = [engine.submit(samples, options) for _, samples in chunks]
        return [
            (
                " ".join(segment.text for segment in answer.result().segments),
                (seconds_from_samples(start, RATE), seconds_from_samples(start + len(samples), RATE)),
            )
            for (start, samples), answer in zip(chunks, answers, strict=True)
        ]

    return run
