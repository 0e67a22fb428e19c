"""The language of a recording, by a vote of several of its chunks."""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import numpy as np

from audio.chunk import Chunk
from audio.positions import seconds_from_samples
from engine_bridge.engines.protocol import Engine, LanguageProbabilities
from engine_bridge.levels import clip_stretches, rms

CANDIDATES = 8
VOTES = 5
"""Of so many chunks with speech, from the beginning on, so many are asked: the loudest, which are heard best. The first
half minute alone is often an intro, music or another language."""

LEAST_CERTAINTY = 0.5
"""Probability that a chunk's own language needs; below it the chunk is taken to be in the recording's language. The
same as faster-whisper's ``language_detection_threshold``."""


def spoken_language(heard: LanguageProbabilities, otherwise: str | None) -> str | None:
    """Return the language of one chunk: its likeliest if that is certain enough, else the recording's."""
    return heard[0][0] if heard and heard[0][1] >= LEAST_CERTAINTY else otherwise


def elected(votes: Mapping[str, float]) -> tuple[str | None, float | None]:
    """Return the language with the most votes and its share of them; neither where there are no votes."""
    if not votes:
        return None, None
    language = max(votes, key=lambda code: votes[code])
    return language, votes[language] / sum(votes.values())


def most_audible(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return those of some chunks with speech that are to vote, in their order."""
    return [chunks[index] for index in _most_audible(chunks)]


def _most_audible(chunks: Sequence[Chunk]) -> list[int]:
    by_level = sorted(range(len(chunks)), key=lambda index: -_speech_level(chunks[index]))
    return sorted(by_level[:VOTES])


def _speech_level(chunk: Chunk) -> float:
    heard = [chunk.samples[start:stop] for start, stop in clip_stretches(chunk)]
    return rms(np.concatenate(heard)) if heard else 0.0


class LanguageVote:
    """Asks the loudest of the first chunks with speech for their language; each counts with its seconds of speech.

    Parameters
    ----------
    engine : Engine
        One that detects languages.
    every_chunk : bool
        Ask the chunks that come after the vote as well, for their own sake.

    Attributes
    ----------
    decided : Future of (str or None)
        The language, once enough chunks have been heard; None when there was no speech at all.
    probability : float or None
        The language's share of all votes, once it is decided.

    """

    def __init__(self, engine: Engine, *, every_chunk: bool = False) -> None:
        self._engine = engine
        self._every_chunk = every_chunk
        self._lock = threading.Lock()
        self._candidates: list[tuple[Chunk, Future[LanguageProbabilities] | None]] = []
        self._asked = 0
        self._counted = 0
        self._closed = False
        self._votes: defaultdict[str, float] = defaultdict(float)
        self._ballots: list[Future[LanguageProbabilities]] = []
        self.decided: Future[str | None] = Future()
        self.probability: float | None = None

    def offer(self, chunk: Chunk) -> "Future[LanguageProbabilities] | None":
        """Take a chunk with speech as a candidate while there is room; return its ballot if every chunk has one."""
        if not chunk.speech:
            return None
        ballot = self._ask(chunk) if self._every_chunk else None
        if not self._closed:
            self._candidates.append((chunk, ballot))
            if len(self._candidates) == CANDIDATES:
                self.close()
        return ballot

    def close(self) -> None:
        """Say that no more chunks will come. Called by the thread that offers."""
        if self._closed:
            return
        chosen = [self._candidates[index] for index in _most_audible([chunk for chunk, _ in self._candidates])]
        self._candidates.clear()
        self._closed, self._asked = True, len(chosen)
        for chunk, ballot in chosen:
            spoken = sum(stop - start for start, stop in chunk.speech)
            self._cast(ballot or self._ask(chunk), seconds_from_samples(spoken, chunk.sample_rate))
        self._decide()

    def _ask(self, chunk: Chunk) -> "Future[LanguageProbabilities]":
        ballot = self._engine.detect_language(chunk.samples)
        self._ballots = [waiting for waiting in self._ballots if not waiting.done()] + [ballot]
        return ballot

    def _cast(self, ballot: "Future[LanguageProbabilities]", weight: float) -> None:
        ballot.add_done_callback(lambda future: self._count(future, weight))

    def cancel(self) -> None:
        """Give up: what the engine has not begun is not computed. Called by the thread that offers."""
        self._candidates.clear()
        for ballot in self._ballots:
            ballot.cancel()

    def _count(self, ballot: "Future[LanguageProbabilities]", weight: float) -> None:
        failure = None if ballot.cancelled() else ballot.exception()
        with self._lock:
            self._counted += 1
            if failure is None and not ballot.cancelled():
                for language, probability in ballot.result():
                    self._votes[language] += weight * probability
            elif failure is not None and not self.decided.done():
                self.decided.set_exception(failure)
        self._decide()

    def _decide(self) -> None:
        with self._lock:
            if not self._closed or self._counted < self._asked or self.decided.done():
                return
            language, self.probability = elected(self._votes)
            self.decided.set_result(language)
