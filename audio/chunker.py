"""From samples to chunks: detection, the costs of cuts, planning and condensing, one page of 30 s after the other."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk, Span
from audio.condense import Condenser, take_spans
from audio.energy import SILENCE_DB, SPEECH_EVIDENCE, EnvelopeMeter, SpeechDetector, mono_samples
from audio.errors import SplitError
from audio.pauses import CONTEXT_FRAMES, FORCED_COST, cut_costs
from audio.planner import CutPlanner
from audio.running import CELL_FRAMES, FloatArray, PagedFilter, dilate, true_runs

_GROUP_CELLS = 4  # of cells without a pause only the best of so many is a candidate
_PAGE_FRAMES = 6000
_TILE_FRAMES = 400
_PIECE_PRICE = 5.0
_LOOK_AHEAD_CHUNKS = 8


@dataclass(frozen=True)
class ChunkSettings:
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


class _Section:
    """What lies between two long silences that are left out: planned on its own.

    The planner works on positions among the kept samples, for which a pause that is left out has no length.
    """

    def __init__(self, settings: ChunkSettings) -> None:
        self._planner = CutPlanner(
            settings.shortest,
            settings.longest,
            piece_price=_PIECE_PRICE,
            look_ahead=_LOOK_AHEAD_CHUNKS * settings.longest,
        )
        self._cuts: deque[tuple[int, bool]] = deque()  # where candidates lie in the recording, and whether in speech
        self._first = 0  # the number of the first of them
        self._positions: list[int] = []
        self._costs: list[float] = []
        self.kept = 0  # samples

    def offer(self, positions: list[int], costs: list[float], begin: int) -> None:
        """Offer cuts.

        Parameters
        ----------
        positions : list of int
            Where, in samples of the recording.
        costs : list of float
            What they cost.
        begin : int
            The position in the recording that follows on the samples kept so far.

        """
        shift = self.kept - begin
        if shift + positions[0] <= 0:  # nothing is kept before it that a cut could divide
            positions, costs = positions[1:], costs[1:]
        self._cuts.extend((position, cost >= FORCED_COST) for position, cost in zip(positions, costs, strict=True))
        self._positions.extend(position + shift for position in positions)
        self._costs.extend(costs)

    def decide(self) -> list[tuple[int, bool]]:
        """Return the cuts that have become final: where, and whether in speech."""
        numbers = self._planner.feed(self._positions, self._costs, self.kept)
        self._positions, self._costs = [], []
        return self._numbered(numbers)

    def finish(self) -> list[tuple[int, bool]]:
        """Return the remaining cuts."""
        while self._positions and self._positions[-1] >= self.kept:  # a cut there would leave an empty chunk
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


class Chunker:
    """Turns the blocks of one recording into chunks.

    Parameters
    ----------
    settings : ChunkSettings
        Checked limits.
    detector : SpeechDetector
        What tells speech from pauses.

    """

    def __init__(self, settings: ChunkSettings, detector: SpeechDetector) -> None:
        self._settings = settings
        self._hop = settings.hop
        self._meter = EnvelopeMeter(settings.sample_rate)
        self._detector = detector
        self._levels: FloatArray = np.empty(0, np.float32)  # of frames the detector has not answered for
        margin = settings.margin or 0
        self._context = CONTEXT_FRAMES + margin + -margin % CELL_FRAMES
        fill = np.array([SILENCE_DB, 0], np.float32)
        self._filter = PagedFilter(_PAGE_FRAMES, self._context, fill, self._judge)
        self._store = Condenser(_PAGE_FRAMES * self._hop, keeps_all=settings.margin is None)
        self._page: FloatArray = np.empty(0, np.float32)
        self._page_frames = _TILE_FRAMES  # of the next page; a short recording gets no long one
        self._filled = 0  # samples of the page
        self._measured = 0
        self._fresh: list[FloatArray] = []  # levels of what is measured
        self._section = _Section(settings)
        self._frame = 0  # frames judged
        self._start = 0  # where the next chunk starts
        self._index = 0
        self._skipped: tuple[int, int] | None = None  # frames being left out
        self._stretches: deque[Span] = deque()

    def feed(self, block: NDArray[np.generic]) -> Iterator[Chunk]:
        """Take the next block, shape (n,), and give the chunks that are decided."""
        samples = mono_samples(block)
        size = _PAGE_FRAMES * self._hop
        while len(samples):
            if not self._filled and len(samples) >= size:  # whole pages need no copy
                yield from self._detect(samples[:size], foreign=True)
                samples = samples[size:]
                continue
            if not self._filled:
                self._page = self._store.page(self._page_frames * self._hop)
                self._page_frames = min(2 * self._page_frames, _PAGE_FRAMES)
            part = samples[: len(self._page) - self._filled]
            self._page[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            samples = samples[len(part) :]
            if self._filled - self._measured >= _TILE_FRAMES * self._hop:
                self._measure()  # while the samples are in the processor's cache
            if self._filled == len(self._page):
                yield from self._flush()

    def finish(self) -> Iterator[Chunk]:
        """Give the remaining chunks."""
        if self._filled:
            yield from self._flush()
        levels = self._meter.finish()
        self._levels = np.concatenate([self._levels, levels])
        nothing = np.empty(0, np.float32)
        yield from self._advance(np.concatenate([self._detector.feed(nothing, levels), self._detector.finish()]))
        if len(self._levels):
            raise SplitError(f"the speech detector left {len(self._levels)} frames unanswered: it must answer for all.")
        for judged in self._filter.finish():
            yield from self._decide(judged)
        if self._store.total:
            yield from self._end()

    def _measure(self) -> None:
        """Measure the samples of the page that have come since the last time."""
        self._fresh.append(self._meter.feed(self._page[self._measured : self._filled]))
        self._measured = self._filled

    def _flush(self) -> Iterator[Chunk]:
        """Hand the page over, as far as it is filled."""
        page = self._page[: self._filled]
        self._measure()
        self._filled = self._measured = 0
        yield from self._detect(page)

    def _detect(self, page: FloatArray, *, foreign: bool = False) -> Iterator[Chunk]:
        """Take over a page, measured unless it is foreign."""
        self._store.add(page, foreign=foreign)
        levels = self._meter.feed(page) if foreign else np.concatenate(self._fresh)
        self._fresh = []
        self._levels = np.concatenate([self._levels, levels])
        yield from self._advance(self._detector.feed(page, levels))

    def _advance(self, evidence: FloatArray) -> Iterator[Chunk]:
        surplus = len(evidence) - len(self._levels)
        if surplus > 0:
            raise SplitError(f"the speech detector answered for {surplus} frames too many: it must match the levels.")
        rows = np.stack([self._levels[: len(evidence)], evidence], axis=1)
        self._levels = self._levels[len(evidence) :]
        for judged in self._filter.feed(rows):
            yield from self._decide(judged)

    def _judge(self, rows: FloatArray) -> FloatArray:
        """Return for each frame of a page what a cut before it costs, whether it is speech, and whether it is kept."""
        evidence = np.ascontiguousarray(rows[:, 1])
        judged = np.ones((len(rows), 3), np.float32)
        judged[:, 0] = cut_costs(np.ascontiguousarray(rows[:, 0]), evidence)
        speech = evidence >= SPEECH_EVIDENCE
        judged[:, 1] = speech
        if self._settings.margin is not None:
            judged[:, 2] = dilate(speech, self._settings.margin, self._settings.margin)
        return judged[self._context : -self._context]

    def _decide(self, judged: FloatArray) -> Iterator[Chunk]:
        """Take the judgement of a page's frames: keep or leave out their samples, and cut."""
        costs, kept = judged[:, 0], judged[:, 2] > 0
        self._note_speech(judged[:, 1] > 0)
        runs = true_runs(kept).tolist()
        frame = 0
        for start, stop in runs:
            self._skip(frame, start)
            yield from self._resume()
            self._keep(start, stop, costs)
            frame = stop
        self._skip(frame, len(judged))
        self._frame += len(judged)
        for position, forced in self._section.decide():
            yield self._chunk(position, forced=forced)

    def _note_speech(self, speech: NDArray[np.bool_]) -> None:
        for start, stop in true_runs(speech).tolist():
            begin, end = self._position(start), self._position(stop)
            if self._stretches and self._stretches[-1][1] == begin:
                begin = self._stretches.pop()[0]
            self._stretches.append((begin, end))

    def _position(self, frame: int) -> int:
        """Return where a frame of the page being decided begins, in samples of the recording."""
        return min((self._frame + frame) * self._hop, self._store.total)

    def _skip(self, start: int, stop: int) -> None:
        """Leave frames of the page out."""
        if start < stop:
            first = self._skipped[0] if self._skipped else self._frame + start
            self._skipped = (first, self._frame + stop)
            self._store.leave_out(self._position(stop))

    def _resume(self) -> Iterator[Chunk]:
        """End what is being left out, if anything is."""
        if self._skipped is None:
            return
        first, stop = self._skipped
        self._skipped = None
        if stop - first > self._settings.skip:
            yield from self._end_section(first * self._hop, stop * self._hop)
        else:
            middle = (first + stop) // 2 * self._hop
            self._section.offer([middle], [0.0], middle)

    def _keep(self, start: int, stop: int, costs: FloatArray) -> None:
        """Keep frames of the page, and offer the cheapest frames among them as cuts."""
        frames = start + candidates(costs[start:stop], self._settings.cell)
        begin, end = self._position(start), self._position(stop)
        self._section.offer(((self._frame + frames) * self._hop).tolist(), costs[frames].tolist(), begin)
        self._section.kept += end - begin
        self._store.keep(begin, end)

    def _end_section(self, stop: int, resume: int) -> Iterator[Chunk]:
        """End a section before a long silence, and make the silence a chunk of its own."""
        yield from self._finish_section(stop)
        yield self._chunk(resume, forced=False)
        self._section = _Section(self._settings)

    def _finish_section(self, stop: int) -> Iterator[Chunk]:
        for position, forced in self._section.finish():
            yield self._chunk(position, forced=forced)
        if self._section.kept:
            yield self._chunk(stop, forced=False)

    def _end(self) -> Iterator[Chunk]:
        total = self._store.total
        if self._skipped is not None and self._skipped[1] - self._skipped[0] > self._settings.skip:
            yield from self._end_section(self._skipped[0] * self._hop, total)
        elif self._section.kept:
            yield from self._finish_section(total)
        else:
            yield self._chunk(total, forced=False)

    def _chunk(self, stop: int, *, forced: bool) -> Chunk:
        kept, samples = self._store.take(stop)
        speech = take_spans(self._stretches, stop)
        chunk = Chunk(self._index, self._start, stop, self._settings.sample_rate, samples, kept, speech, forced)
        self._index += 1
        self._start = stop
        return chunk


def candidates(costs: FloatArray, cell: int) -> NDArray[np.intp]:
    """Return the frames worth considering for a cut, ascending and at most eight cells apart.

    Parameters
    ----------
    costs : ndarray, shape (frames,), float32
        What a cut before each frame costs.
    cell : int
        Frames in a cell. The cheapest frame of each cell counts if it lies in a pause, and the cheapest of every four
        cells anyway.

    """
    rows = np.pad(costs, (0, -len(costs) % (cell * _GROUP_CELLS)), constant_values=np.inf).reshape(-1, cell)
    best = rows.argmin(axis=1)
    cheapest = rows[np.arange(len(rows)), best]
    chosen = cheapest < FORCED_COST
    chosen[np.arange(0, len(rows), _GROUP_CELLS) + cheapest.reshape(-1, _GROUP_CELLS).argmin(axis=1)] = True
    cells = np.flatnonzero(chosen)
    frames: NDArray[np.intp] = best[cells] + cells * cell
    return frames
