"""Made-up speech that a test can recognise: each word is a tone whose frequency is its name."""

from dataclasses import dataclass, field

import numpy as np

from engine_bridge.testing import clip_result

RATE = 16_000
WORD_SECONDS = 0.3
WORD_GAP = 0.05
NAMES = 90
_LOWEST_HERTZ = 700
_STEP_HERTZ = 30


@dataclass
class Recording:
    """A recording under construction, and the words in it as (start, end, name) in seconds."""

    words: list[tuple[float, float, str]] = field(default_factory=list)
    _parts: list[np.ndarray] = field(default_factory=list)
    _frames: int = 0

    def pause(self, seconds):
        return self._add(np.zeros(round(seconds * RATE), dtype=np.float32))

    def speak(self, words, *, level=0.3):
        """Add a phrase of so many words, with names that follow on those before."""
        for _ in range(words):
            start = self._frames / RATE
            name = len(self.words) % NAMES
            self._add(tone(name, level))
            self.words.append((start, self._frames / RATE, f"w{name}"))
            self.pause(WORD_GAP)
        return self

    def phrases(self, count, *, words=5, pause=0.9):
        for _ in range(count):
            self.pause(pause).speak(words)
        return self.pause(pause)

    def _add(self, samples):
        self._parts.append(samples)
        self._frames += len(samples)
        return self

    @property
    def samples(self):
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.float32)

    @property
    def source(self):
        return self.samples, RATE

    @property
    def seconds(self):
        return self._frames / RATE

    @property
    def names(self):
        return [name for _, _, name in self.words]


def tone(name, level=0.3):
    seconds = np.arange(round(WORD_SECONDS * RATE)) / RATE
    edge = np.minimum(1, np.minimum(seconds, seconds[::-1]) / 0.01)
    return (level * edge * np.sin(2 * np.pi * (_LOWEST_HERTZ + _STEP_HERTZ * name) * seconds)).astype(np.float32)


def listen(samples):
    """Return a clip's tones as (start, end, name) in seconds from its start; fragments below 50 ms are left out."""
    sounding = np.flatnonzero(np.abs(samples) > 1e-3)
    if not len(sounding):
        return []
    breaks = np.flatnonzero(np.diff(sounding) > 0.02 * RATE)
    starts = sounding[np.r_[0, breaks + 1]]
    stops = sounding[np.r_[breaks, len(sounding) - 1]] + 1
    heard = []
    for start, stop in zip(starts, stops, strict=True):
        if stop - start >= 0.05 * RATE:
            spectrum = np.abs(np.fft.rfft(samples[start:stop], n=4096))  # bins of 4 Hz
            name = round((int(spectrum.argmax()) * RATE / 4096 - _LOWEST_HERTZ) / _STEP_HERTZ)
            heard.append((start / RATE, stop / RATE, f"w{name}"))
    return heard


def hear(samples, options):
    """Answer a clip with all its words: a script for `FakeEngine`."""
    return clip_result(listen(samples), language=options.language or "en")
