"""Chunks: a recording, whole or as a stream, taken apart in its pauses."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk, Span
from audio.energy import (
    FRAMES_PER_SECOND,
    EnergyDetector,
    EnvelopeMeter,
    FloatArray,
    PagedFilter,
    SpeechDetector,
    dilate,
    frame_length,
    mono_samples,
    true_runs,
)
from audio.errors import SplitError
from audio.pauses import CUT_CONTEXT_FRAMES, FORCED_COST, cut_costs
from audio.planner import CutPlanner
from audio.positions import samples_from_seconds

_PAGE_FRAMES = 3000
_CELL_FRAMES = (25, 20, 15, 12, 10, 8, 6, 5, 4, 3, 2, 1)  # one candidate each; all divide a page
_PIECE_PRICE = 1.0
_LOOK_AHEAD_CHUNKS = 4
_SHORTEST_MARGIN = 0.1
_LEAST_DURATION = 0.1


def split_audio(
    audio_data: NDArray[np.generic],
    sample_rate: float,
    max_clip_duration_s: float,
    overlap_duration_s: float,
    min_energy_window_size: int,
) -> list[FloatArray]:
    """Cut a waveform into clips at the quietest point near the end of each.

    Takes the arguments of vLLM's function of this name. Each clip but the last ends in the last `overlap_duration_s`
    before the limit, in the middle of the window with the least energy there; the first of equals counts.
    `stream_chunks` chooses better cuts, and says where its chunks lie.

    Parameters
    ----------
    audio_data : ndarray, shape (frames,)
        One channel.
    sample_rate : float
        Samples per second.
    max_clip_duration_s : float
        The longest clip, in seconds.
    overlap_duration_s : float
        How much of the end of a clip is searched, in seconds; less than `max_clip_duration_s`. The clips do not
        overlap.
    min_energy_window_size : int
        Samples in a window. Windows lie side by side, as many as fit whole; a search range shorter than a window is
        searched as one.

    Returns
    -------
    list of ndarray
        Views of `audio_data` that joined give it back exactly; none for an empty array.

    Raises
    ------
    SplitError
        The array is not one-dimensional, or the lengths cannot be satisfied.

    """
    waveform = np.asarray(audio_data)
    if waveform.ndim != 1:
        raise SplitError(
            f"split_audio takes one channel of shape (frames,), not an array of shape {waveform.shape}: "
            "reduce the channels first."
        )
    longest, overlap = _clip_lengths(sample_rate, max_clip_duration_s, overlap_duration_s)
    if min_energy_window_size < 1:
        raise SplitError(f"min_energy_window_size must be at least 1 sample, not {min_energy_window_size}.")
    clips = []
    start = 0
    while len(waveform) - start > longest:
        begin, end = start + longest - overlap, start + longest
        cut = begin + _quietest(waveform[begin:end], min_energy_window_size) if overlap else end
        clips.append(waveform[start:cut])
        start = cut
    if start < len(waveform):
        clips.append(waveform[start:])
    return clips


def _clip_lengths(sample_rate: float, longest_seconds: float, overlap_seconds: float) -> tuple[int, int]:
    """Return the longest clip and the search range in samples."""
    for name, value in (("sample_rate", sample_rate), ("max_clip_duration_s", longest_seconds)):
        if not 0 < value < math.inf:
            raise SplitError(f"{name} must be a positive number, not {value}.")
    if not 0 <= overlap_seconds < longest_seconds:
        raise SplitError(
            f"overlap_duration_s must be at least 0 and less than max_clip_duration_s ({longest_seconds} s), "
            f"not {overlap_seconds}."
        )
    longest, overlap = round(longest_seconds * sample_rate), round(overlap_seconds * sample_rate)
    if longest <= overlap:
        raise SplitError(
            f"a clip of {longest_seconds} s at {sample_rate} Hz has {longest} samples, no more than the {overlap} "
            "that are searched: allow longer clips or search less."
        )
    return longest, overlap


def _quietest(samples: NDArray[np.generic], window: int) -> int:
    """Return the middle of the window with the least energy; never 0 unless there is one sample."""
    window = min(window, len(samples))
    count = len(samples) // window
    rows = samples[: count * window].reshape(count, window).astype(np.float64)
    return int(np.argmin(np.einsum("ij,ij->i", rows, rows))) * window + window // 2


@dataclass(frozen=True)
class _Settings:
    """What `stream_chunks` was asked for, in samples and frames.

    Attributes
    ----------
    sample_rate, hop : int
        Samples per second and per frame.
    longest, shortest : int
        Limits of a chunk's samples.
    cell : int
        Frames to each candidate cut.
    margin : int or None
        Frames of silence kept at each edge of speech; None keeps all.
    skip : int
        Frames left out in one go that end a chunk and become a chunk of their own.

    """

    sample_rate: int
    hop: int
    longest: int
    shortest: int
    cell: int
    margin: int | None
    skip: int


def stream_chunks(
    blocks: Iterable[NDArray[np.generic]],
    sample_rate: int,
    *,
    max_duration: float = 30.0,
    min_duration: float | None = None,
    keep_silence: float | None = None,
    detector: SpeechDetector | None = None,
) -> Iterator[Chunk]:
    """Cut a recording into chunks while it streams in.

    The cuts are planned together, several chunks ahead: in the longest pauses there are, with chunks as full as those
    allow. The chunks do not depend on how the recording is divided into blocks, they tile it, and what is held in
    memory does not grow with its length.

    Parameters
    ----------
    blocks : iterable of ndarray, shape (n,), float in [-1, 1]
        The recording's one channel, in blocks of any length. A block may be overwritten once the next is asked for.
    sample_rate : int
        Samples per second.
    max_duration : float
        The most that a chunk's samples may last, in seconds, at least 0.1.
    min_duration : float, optional
        The least, in seconds, at most half of `max_duration`; a thirtieth of it unless given. Only the last chunk
        before the end, or before a long silence that is left out, may be shorter, if nothing else is possible.
    keep_silence : float, optional
        Shorten pauses to this many seconds, half of it at the end of the speech before and half at the start of the
        speech after, though never less than 0.1 s each. Silence of more than `max_duration` that is left out becomes a
        chunk of its own, without samples. All silence is kept unless this is given.
    detector : SpeechDetector, optional
        What tells speech from pauses, unused so far; an `EnergyDetector` unless given.

    Returns
    -------
    iterator of Chunk
        In the order of the recording; none for an empty recording.

    Raises
    ------
    SplitError
        At the call: lengths that contradict each other. While iterating: a block that is not one-dimensional.

    """
    settings = _settings(sample_rate, max_duration, min_duration, keep_silence)
    return _chunks(blocks, settings, EnergyDetector() if detector is None else detector)


def _settings(
    sample_rate: int, max_duration: float, min_duration: float | None, keep_silence: float | None
) -> _Settings:
    hop = frame_length(sample_rate)
    if not _LEAST_DURATION <= max_duration < math.inf:
        raise SplitError(f"max_duration must be at least {_LEAST_DURATION} s, not {max_duration}.")
    least = max_duration / 30 if min_duration is None else min_duration
    if not 0 <= least <= max_duration / 2:
        raise SplitError(
            f"min_duration must be at least 0 and at most half of max_duration ({max_duration} s), not {min_duration}."
        )
    if keep_silence is not None and not 0 <= keep_silence < math.inf:
        raise SplitError(f"keep_silence must be at least 0 s, or None to keep all silence, not {keep_silence}.")
    longest = samples_from_seconds(max_duration, sample_rate)
    shortest = max(1, samples_from_seconds(least, sample_rate))
    # Candidates lie up to two cells apart, and one of them must always be allowed.
    room = (longest - shortest) // (2 * hop)
    if room < 1:
        raise SplitError(
            f"chunks of {shortest} to {longest} samples at {sample_rate} Hz leave no room to choose a cut: "
            "allow longer chunks."
        )
    cell = next(cell for cell in _CELL_FRAMES if cell <= room)
    margin = None
    if keep_silence is not None:
        margin = max(1, round(max(keep_silence / 2, _SHORTEST_MARGIN) * FRAMES_PER_SECOND))
    return _Settings(sample_rate, hop, longest, shortest, cell, margin, max(1, longest // hop))


def _chunks(blocks: Iterable[NDArray[np.generic]], settings: _Settings, detector: SpeechDetector) -> Iterator[Chunk]:
    chunker = _Chunker(settings, detector)
    for page in _pages(blocks, _PAGE_FRAMES * settings.hop):
        yield from chunker.feed(page)
    yield from chunker.finish()


def _pages(blocks: Iterable[NDArray[np.generic]], size: int) -> Iterator[FloatArray]:
    """Copy blocks of any length into arrays of one size; the last may be shorter."""
    page = np.empty(size, np.float32)
    filled = 0
    for block in blocks:
        samples = mono_samples(block)
        while len(samples):
            part = samples[: size - filled]
            page[filled : filled + len(part)] = part
            filled += len(part)
            samples = samples[len(part) :]
            if filled == size:
                yield page
                page = np.empty(size, np.float32)
                filled = 0
    if filled:
        yield page[:filled]


class _Store:
    """The samples that chunks still need: whole as they come in, then what is kept of them."""

    def __init__(self) -> None:
        self._raw: deque[tuple[int, FloatArray]] = deque()  # undecided
        self._kept: deque[tuple[int, FloatArray]] = deque()  # decided, not yet in a chunk
        self.total = 0

    def add(self, samples: FloatArray) -> None:
        self._raw.append((self.total, samples))
        self.total += len(samples)

    def keep(self, start: int, stop: int) -> None:
        """Keep a stretch; everything before its start that was not kept is left out."""
        self.leave_out(start)
        while self._raw and self._raw[0][0] < stop:
            begin, samples = self._raw[0]
            part = samples[: stop - begin]
            # A short part must not hold on to the page it comes from.
            self._kept.append((begin, part if 2 * len(part) > len(samples) else part.copy()))
            self._drop(stop)

    def leave_out(self, stop: int) -> None:
        """Forget undecided samples before a position."""
        while self._raw and self._raw[0][0] < stop:
            self._drop(stop)

    def _drop(self, stop: int) -> None:
        begin, samples = self._raw.popleft()
        if begin + len(samples) > stop:
            self._raw.appendleft((stop, samples[stop - begin :]))

    def take(self, stop: int) -> tuple[tuple[Span, ...], FloatArray]:
        """Hand over what is kept before a position: its spans, and its samples in one array."""
        spans: list[Span] = []
        parts = []
        while self._kept and self._kept[0][0] < stop:
            begin, samples = self._kept.popleft()
            part = samples[: stop - begin]
            if len(part) < len(samples):
                self._kept.appendleft((stop, samples[len(part) :]))
            end = begin + len(part)
            if spans and spans[-1][1] == begin:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((begin, end))
            parts.append(part)
        joined = np.concatenate(parts) if parts else np.empty(0, np.float32)
        return tuple(spans), joined


class _Section:
    """What lies between two long silences that are left out: planned on its own.

    The planner works on positions among the kept samples, for which a pause that is left out has no length.
    """

    def __init__(self, settings: _Settings) -> None:
        self._planner = CutPlanner(
            settings.shortest,
            settings.longest,
            piece_price=_PIECE_PRICE,
            look_ahead=_LOOK_AHEAD_CHUNKS * settings.longest,
        )
        self._cuts: deque[tuple[int, bool]] = deque()  # where candidates lie in the recording, and whether in speech
        self._first = 0
        self._positions: list[int] = []
        self._costs: list[float] = []
        self.kept = 0  # samples

    def offer(self, position: int, kept: int, cost: float) -> None:
        """Offer a cut at a position of the recording that has so many kept samples before it."""
        if kept > 0:
            self._cuts.append((position, cost >= FORCED_COST))
            self._positions.append(kept)
            self._costs.append(cost)

    def decide(self) -> list[tuple[int, bool]]:
        """Return the cuts that have become final."""
        numbers = self._planner.feed(self._positions, self._costs, self.kept)
        self._positions, self._costs = [], []
        return self._numbered(numbers)

    def finish(self) -> list[tuple[int, bool]]:
        """Return the remaining cuts."""
        # Nothing is left to cut off at the very end.
        while self._positions and self._positions[-1] >= self.kept:
            self._positions.pop()
            self._costs.pop()
        cuts = self.decide()
        return cuts + self._numbered(self._planner.finish(self.kept)) if self.kept else cuts

    def _numbered(self, numbers: list[int]) -> list[tuple[int, bool]]:
        cuts = []
        for number in numbers:
            while self._first < number:
                self._cuts.popleft()
                self._first += 1
            cuts.append(self._cuts[0])
        return cuts


class _Chunker:
    """Turns pages of samples into chunks."""

    def __init__(self, settings: _Settings, detector: SpeechDetector) -> None:
        self._settings = settings
        self._meter = EnvelopeMeter(settings.sample_rate)
        self._detector = detector
        self._levels: FloatArray = np.empty(0, np.float32)  # of frames the detector has not answered for
        margin = settings.margin or 0
        self._context = CUT_CONTEXT_FRAMES + margin
        fill = np.array([-120.0, 0.0], np.float32)
        self._filter = PagedFilter(_PAGE_FRAMES, self._context, fill, self._judge)
        self._store = _Store()
        self._section = _Section(settings)
        self._frame = 0  # frames judged
        self._start = 0  # where the next chunk starts
        self._index = 0
        self._skipped: tuple[int, int] | None = None  # frames being left out
        self._stretches: deque[Span] = deque()

    def feed(self, page: FloatArray) -> list[Chunk]:
        self._store.add(page)
        return self._detect(page, self._meter.feed(page))

    def finish(self) -> list[Chunk]:
        chunks = self._detect(np.empty(0, np.float32), self._meter.finish())
        chunks += self._advance(self._detector.finish())
        if len(self._levels):
            raise SplitError(f"the speech detector did not answer for the last {len(self._levels)} frames.")
        for judged in self._filter.finish():
            chunks += self._page(judged)
        return chunks + self._end()

    def _detect(self, samples: FloatArray, levels: FloatArray) -> list[Chunk]:
        self._levels = np.concatenate([self._levels, levels])
        return self._advance(self._detector.feed(samples, levels))

    def _advance(self, evidence: FloatArray) -> list[Chunk]:
        decided = len(evidence)
        if decided > len(self._levels):
            raise SplitError(f"the speech detector answered for {decided - len(self._levels)} frames too many.")
        rows = np.stack([self._levels[:decided], evidence], axis=1)
        self._levels = self._levels[decided:]
        chunks = []
        for judged in self._filter.feed(rows):
            chunks += self._page(judged)
        return chunks

    def _judge(self, rows: FloatArray) -> FloatArray:
        """Return for each frame of a page what a cut before it costs, whether it is speech, and whether it is kept."""
        speech = rows[:, 1] >= 0.5
        costs = cut_costs(rows[:, 0], speech)
        kept = np.ones(len(rows), bool)
        if self._settings.margin is not None:
            kept = dilate(speech, self._settings.margin, self._settings.margin)
        judged: FloatArray = np.stack([costs, speech, kept], axis=1)[self._context : -self._context]
        return judged

    def _page(self, judged: FloatArray) -> list[Chunk]:
        costs, speech, kept = judged[:, 0], judged[:, 1] > 0, judged[:, 2] > 0
        self._note_speech(speech)
        chunks = []
        best = self._candidates(np.where(kept, costs, np.float32(np.inf)))
        frame = 0
        for start, stop in true_runs(kept):
            if start > frame:
                self._skip(frame, int(start))
            chunks += self._resume(self._frame + int(start))
            self._keep(int(start), int(stop), best, costs)
            frame = int(stop)
        if frame < len(kept):
            self._skip(frame, len(kept))
        self._frame += len(judged)
        for position, forced in self._section.decide():
            chunks.append(self._chunk(position, forced=forced))
        return chunks

    def _candidates(self, costs: FloatArray) -> NDArray[np.intp]:
        """Return the cheapest frame of each cell."""
        cell = self._settings.cell
        rows = np.pad(costs, (0, -len(costs) % cell), constant_values=np.inf).reshape(-1, cell)
        best = np.arange(0, rows.size, cell) + rows.argmin(axis=1)
        return best[np.isfinite(rows.min(axis=1))]

    def _note_speech(self, speech: NDArray[np.bool_]) -> None:
        hop = self._settings.hop
        for start, stop in true_runs(speech):
            begin = (self._frame + int(start)) * hop
            end = min((self._frame + int(stop)) * hop, self._store.total)
            if self._stretches and self._stretches[-1][1] == begin:
                begin = self._stretches.pop()[0]
            self._stretches.append((begin, end))

    def _skip(self, start: int, stop: int) -> None:
        """Leave frames of this page out."""
        first = self._skipped[0] if self._skipped else self._frame + start
        self._skipped = (first, self._frame + stop)
        self._store.leave_out(min((self._frame + stop) * self._settings.hop, self._store.total))

    def _resume(self, frame: int) -> list[Chunk]:
        """End the frames being left out, if any."""
        if self._skipped is None:
            return []
        first, stop = self._skipped
        self._skipped = None
        hop = self._settings.hop
        if stop - first > self._settings.skip:
            return self._end_section(first * hop, stop * hop)
        self._section.offer((first + stop) // 2 * hop, self._section.kept, 0.0)
        return []

    def _keep(self, start: int, stop: int, best: NDArray[np.intp], costs: FloatArray) -> None:
        """Keep a run of frames of this page."""
        hop = self._settings.hop
        offset = self._frame * hop
        begin, end = offset + start * hop, min(offset + stop * hop, self._store.total)
        inside = best[np.searchsorted(best, start) : np.searchsorted(best, stop)]
        before = self._section.kept - begin
        for frame, cost in zip(inside.tolist(), costs[inside].tolist(), strict=True):
            position = offset + frame * hop
            self._section.offer(position, before + position, cost)
        self._section.kept += end - begin
        self._store.keep(begin, end)

    def _end_section(self, stop: int, resume: int) -> list[Chunk]:
        """End a section before a long silence, and make the silence a chunk of its own."""
        chunks = [self._chunk(position, forced=forced) for position, forced in self._section.finish()]
        if self._section.kept:
            chunks.append(self._chunk(stop, forced=False))
        chunks.append(self._chunk(resume, forced=False))
        self._section = _Section(self._settings)
        return chunks

    def _end(self) -> list[Chunk]:
        total = self._store.total
        if not total:
            return []
        if self._skipped is not None and self._skipped[1] - self._skipped[0] > self._settings.skip:
            return self._end_section(self._skipped[0] * self._settings.hop, total)
        chunks = [self._chunk(position, forced=forced) for position, forced in self._section.finish()]
        return [*chunks, self._chunk(total, forced=False)]

    def _chunk(self, stop: int, *, forced: bool) -> Chunk:
        kept, samples = self._store.take(stop)
        speech = self._speech_until(stop)
        chunk = Chunk(self._index, self._start, stop, self._settings.sample_rate, samples, kept, speech, forced)
        self._index += 1
        self._start = stop
        return chunk

    def _speech_until(self, stop: int) -> tuple[Span, ...]:
        spans = []
        while self._stretches and self._stretches[0][0] < stop:
            begin, end = self._stretches.popleft()
            spans.append((begin, min(end, stop)))
            if end > stop:
                self._stretches.appendleft((stop, end))
        return tuple(spans)
