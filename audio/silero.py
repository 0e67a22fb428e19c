"""Where somebody speaks, told by Silero's neural network: voices are known from music and noise.

The weights (MIT licence) are the ONNX file that the package silero-vad brings, run by onnxruntime. The package itself
is not imported, for that would import torch.

The network tells voices from music and noise, but not to the frame: it hears the soft beginnings of words late, and
runs over pauses of a tenth of a second. So it is asked where a voice is, and the energy, there, where words begin and
end.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from audio.energy import DIP_FRAMES, DOUBT, FADE_FRAMES, ONSET_FRAMES, SPEECH_EVIDENCE, EnergyDetector, frame_length
from audio.errors import BackendUnavailableError
from audio.resample import open_resampler
from audio.running import FloatArray, PagedFilter, dilate, erode

MODEL_RATE = 16_000
"""Samples per second that the network hears."""

REMEDY = "Install it with: pip install 'auricle[silero]'"

# What the network takes: windows of 512 samples, each with the 64 samples before it, and the state that the window
# before left (silero_vad/sequence_vad.py of silero-vad 6.2.3).
_WINDOW = 512
_LEAD = 64
_STATE = (1, 1, 128)
_MODEL_FILE = "data/silero_vad_16k_sequence.onnx"

# Windows given at a time, 8.2 s. As the blocks lie at fixed positions, what comes out does not depend on how the
# recording arrives.
_BLOCK = 256

# The network hears speech of usual levels: over one reading it found as much at -63 dBFS as at -23, less at -74 and
# nothing at -83. Blocks whose loud windows stay below -40 dBFS are raised to that, which found 96.5 % of the speech at
# -83 dBFS. By 60 dB at most, so that the rounding noise of 16-bit samples stays faint, and no window above -20 dBFS:
# one word in a long silence is as loud as it is.
_LOUD_SHARE = 0.9
_LEAST_LEVEL = 0.01
_MOST_GAIN = 1000.0
_MOST_LEVEL = 0.1

# Silero's own thresholds: speech begins at 0.5 and goes on until 0.15 less (get_speech_timestamps of silero-vad).
_CERTAIN = 0.5
_POSSIBLE = 0.35
_NEAR_FRAMES = 25
# In doubt is what the network does not rule out, with the margins that `EnergyDetector` gives to onset, end and dips.
_DOUBTFUL = 0.15
# In doubt is as well what rises above the background this close to it: the padding of speech that faster-whisper takes
# for this network (speech_pad_ms of its VadOptions). Up to 0.31 s of soft beginnings were missed in one reading.
_EDGE_FRAMES = 40

_PAGE_FRAMES = 1000
_CONTEXT_FRAMES = 100


class _Session(Protocol):
    """The part of onnxruntime's InferenceSession that is used here."""

    def run(self, output_names: list[str], input_feed: dict[str, FloatArray]) -> list[FloatArray]: ...


class SileroDetector:
    """Finds voices with Silero's network: a `SpeechDetector` for recordings with much music or noise.

    It takes about 100 times the work of an `EnergyDetector`. In doubt a frame counts as speech. Answers come up to 77 s
    late, and do not depend on how the recording is cut into blocks.

    Parameters
    ----------
    sample_rate : int
        Samples per second of the recording; what is not 16 kHz is resampled for the network.

    Raises
    ------
    BackendUnavailableError
        silero-vad or onnxruntime is missing or does not load.
    ResampleError, SplitError
        The sample rate cannot be converted.

    """

    def __init__(self, sample_rate: int = MODEL_RATE) -> None:
        self._network = _Network(_session())
        self._rate = sample_rate
        self._hop = frame_length(sample_rate)
        self._resampler = open_resampler(sample_rate, MODEL_RATE)
        self._probabilities: FloatArray = np.empty(0, np.float32)  # of windows from `_first` on
        self._first = 0
        self._frames = 0  # frames given
        self._voiced = _Row()
        self._energy = EnergyDetector()
        self._loud = _Row()
        self._filter = PagedFilter(_PAGE_FRAMES, _CONTEXT_FRAMES, np.zeros(2, np.float32), _evidence)

    def feed(self, samples: FloatArray, levels: FloatArray) -> FloatArray:
        """Take the next samples and frames, and return what is decided; see `SpeechDetector.feed`."""
        self._frames += len(levels)
        self._loud.add(self._energy.feed(samples, levels))
        self._listen(self._network.feed(self._resampler.process(_audible(samples))))
        heard = (self._first + len(self._probabilities)) * _WINDOW * self._rate // (MODEL_RATE * self._hop)
        self._frame(min(heard, self._frames))
        return _joined(self._filter.feed(self._rows()))

    def finish(self) -> FloatArray:
        """Return the frames that are still owed."""
        self._loud.add(self._energy.finish())
        self._listen(self._network.feed(self._resampler.flush()))
        self._listen(self._network.finish())
        self._frame(self._frames)
        pages = self._filter.feed(self._rows())
        return _joined([*pages, *self._filter.finish()])

    def _listen(self, probabilities: FloatArray) -> None:
        self._probabilities = np.concatenate([self._probabilities, probabilities])

    def _frame(self, until: int) -> None:
        """Take the probabilities of the frames up to this one from those of the windows that they lie in."""
        if until <= self._voiced.total:
            return
        frames = np.arange(self._voiced.total, until, dtype=np.int64)
        window = _WINDOW * self._rate  # in units that keep whole numbers at every rate
        first = frames * self._hop * MODEL_RATE // window - self._first
        last = ((frames + 1) * self._hop * MODEL_RATE - 1) // window - self._first
        end = len(self._probabilities) - 1
        # A frame is no longer than a window, and so lies in two of them at most.
        self._voiced.add(
            np.maximum(self._probabilities[np.minimum(first, end)], self._probabilities[np.minimum(last, end)])
        )
        used = min(int(first[-1]), end)
        self._probabilities = self._probabilities[used:]
        self._first += used

    def _rows(self) -> FloatArray:
        """Return the frames of which both are known: the probability of a voice, and the evidence of the energy."""
        count = min(self._voiced.waiting, self._loud.waiting)
        return np.stack([self._voiced.take(count), self._loud.take(count)], axis=1)


class _Row:
    """Values of frames that wait to be taken, in their order."""

    def __init__(self) -> None:
        self._values: FloatArray = np.empty(0, np.float32)
        self.total = 0  # added so far

    @property
    def waiting(self) -> int:
        return len(self._values)

    def add(self, values: FloatArray) -> None:
        self._values = np.concatenate([self._values, values])
        self.total += len(values)

    def take(self, count: int) -> FloatArray:
        taken, self._values = self._values[:count], self._values[count:]
        return taken


class _Network:
    """The network over a stream of samples at its own rate, in blocks of fixed size."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._waiting: FloatArray = np.empty(0, np.float32)
        self._lead: FloatArray = np.zeros(_LEAD, np.float32)
        self._hidden: FloatArray = np.zeros(_STATE, np.float32)
        self._cell: FloatArray = np.zeros(_STATE, np.float32)

    def feed(self, samples: FloatArray) -> FloatArray:
        """Return the probabilities of a voice in the windows of the blocks that these samples complete."""
        self._waiting = np.concatenate([self._waiting, samples])
        size = _BLOCK * _WINDOW
        found = []
        done = 0
        while len(self._waiting) - done >= size:
            found.append(self._hear(self._waiting[done : done + size].reshape(_BLOCK, _WINDOW)))
            done += size
        self._waiting = self._waiting[done:].copy() if done else self._waiting
        return np.concatenate(found) if found else np.empty(0, np.float32)

    def finish(self) -> FloatArray:
        """Return the probabilities of the windows that are left, the last filled up with silence."""
        count = len(self._waiting)
        if not count:
            return np.empty(0, np.float32)
        probabilities = self.feed(np.zeros(_BLOCK * _WINDOW - count, np.float32))
        return probabilities[: -(-count // _WINDOW)]

    def _hear(self, windows: FloatArray) -> FloatArray:
        windows = np.clip(windows * _gain(windows), -1.0, 1.0)
        leads = np.concatenate([self._lead[np.newaxis], windows[:-1, -_LEAD:]])
        self._lead = windows[-1, -_LEAD:].copy()
        probabilities, self._hidden, self._cell = self._session.run(
            ["speech_probs", "hn", "cn"],
            {"input": np.concatenate([leads, windows], axis=1), "h": self._hidden, "c": self._cell},
        )
        return probabilities.reshape(-1)


def _gain(windows: FloatArray) -> np.float32:
    """Return what raises a faint block to where the network hears well; at least 1."""
    levels = np.sort(np.sqrt(np.mean(windows * windows, axis=1)))
    loud, loudest = float(levels[int(_LOUD_SHARE * (len(levels) - 1))]), float(levels[-1])
    wanted = min(_LEAST_LEVEL / loud if loud else _MOST_GAIN, _MOST_LEVEL / loudest if loudest else 1.0, _MOST_GAIN)
    return np.float32(max(wanted, 1.0))


def _audible(samples: FloatArray) -> FloatArray:
    """Return samples within [-1, 1] with silence for what is no number: one of those would spoil all that follows."""
    return np.nan_to_num(np.clip(samples, -1.0, 1.0))


def _evidence(rows: FloatArray) -> FloatArray:
    """Return the evidence of the frames of a page, from `_rows` of them and their surroundings."""
    probabilities, energy = rows[:, 0], rows[:, 1]
    loud = energy >= SPEECH_EVIDENCE
    certain = probabilities >= _CERTAIN
    voice = certain | ((probabilities >= _POSSIBLE) & dilate(certain, _NEAR_FRAMES, _NEAR_FRAMES))
    doubtful = probabilities >= _DOUBTFUL
    wide = dilate(doubtful, ONSET_FRAMES + DIP_FRAMES, FADE_FRAMES + DIP_FRAMES)
    doubt = erode(wide, DIP_FRAMES, DIP_FRAMES) | (loud & dilate(doubtful, _EDGE_FRAMES, _EDGE_FRAMES))
    evidence = np.where(voice & (energy > DOUBT), np.float32(1), doubt * np.float32(DOUBT))
    return evidence[_CONTEXT_FRAMES:-_CONTEXT_FRAMES]


def _joined(pages: list[FloatArray]) -> FloatArray:
    return np.concatenate(pages) if pages else np.empty(0, np.float32)


@cache
def _session() -> _Session:
    """Return the network, loaded once: recordings that are done at the same time share it."""
    package = find_spec("silero_vad")  # finds the folder without running what lies in it
    folders = list(package.submodule_search_locations or ()) if package is not None else []
    if not folders:
        raise BackendUnavailableError("silero", "the package silero-vad, which brings the network, is missing", REMEDY)
    model = Path(folders[0]) / _MODEL_FILE
    if not model.is_file():
        reason = f"this release of silero-vad does not bring {model.name}"
        raise BackendUnavailableError("silero", reason, "Update it with: pip install --upgrade 'silero-vad>=6.2.3'")
    try:
        import onnxruntime
    except (ImportError, OSError) as error:
        raise BackendUnavailableError("silero", f"onnxruntime does not load ({error})", REMEDY) from error
    options = onnxruntime.SessionOptions()
    # Its steps are too small to be worth sharing out, and the cores are the engine's.
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    try:
        session: _Session = onnxruntime.InferenceSession(
            str(model), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's own errors have no other base
        raise BackendUnavailableError("silero", f"onnxruntime cannot load {model.name} ({error})", REMEDY) from error
    return session
