"""What a person at a terminal sees of a job."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from engine_bridge.batch.failing import FailingSource
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.report import Summary
from engine_bridge.batch.result_tables import source_name
from engine_bridge.batch.results import Failure, JobProgress, RecordingResult
from engine_bridge.commands.printing import named, print_segment, timings_line
from engine_bridge.commands.terminal import StatusLine, clock, losses
from engine_bridge.transcript import Segment, Transcript


class JobScreen:
    """Prints what a job does: text of a single recording on standard output, all else on standard error.

    Parameters
    ----------
    recordings : int
        How many there are; 0 where that is not known.
    audio_seconds : float or None
        How much audio they claim to hold; None where that is not known.
    complain : callable
        Says a line on standard error.
    quiet : bool
        Whether neither text nor progress is shown.
    timings : bool
        Whether each recording's seconds in each stage are told.

    """

    def __init__(
        self,
        recordings: int,
        audio_seconds: float | None,
        complain: Callable[[str], None],
        *,
        quiet: bool = False,
        timings: bool = False,
    ) -> None:
        self._recordings = recordings
        self._audio_seconds = audio_seconds
        self._complain = complain
        self._timings = timings
        self._prints = recordings == 1 and not quiet
        self._printed = False
        self._line = StatusLine() if not quiet and sys.stderr.isatty() else None

    def close(self) -> None:
        """Take the progress off the screen."""
        if self._line is not None:
            self._line.close()

    def heard(self, recording: Recording, segment: Segment) -> None:  # noqa: ARG002 - there is only one then
        """Print text of the single recording as it becomes known."""
        if self._prints:
            self._printed = True
            with self._line.hidden() if self._line is not None else nullcontext():
                print_segment(segment)

    def update(self, progress: JobProgress) -> None:
        """Show how far the job is."""
        if self._line is None:
            return
        total = f" of {self._recordings}" if self._recordings else ""
        failed = f", {progress.failed} failed" if progress.failed else ""
        audio, left = clock(progress.audio_seconds)[:-3], ""
        if self._audio_seconds:
            audio += f" of {clock(self._audio_seconds)[:-3]}"
            if progress.speed:
                seconds = max(0.0, self._audio_seconds - progress.audio_seconds) / progress.speed
                left = f", {clock(seconds)[:-3]} left"
        self._line.show(f"{progress.finished}{total} recordings{failed}: {audio} of audio, {progress.speed:.0f}x{left}")

    def finished(
        self,
        result: RecordingResult,
        transcript: Transcript | None,
        wrote: Sequence[Path],
        kept: Sequence[Path],
        timings: Mapping[str, float],
    ) -> None:
        """Tell which files were written of a recording, and what is lacking in it."""
        if self._prints and not self._printed and result.transcript is not None:
            for segment in result.transcript.segments:
                print_segment(segment)
        for path in wrote:
            self._say(f"wrote {path}")
        if self._recordings == 1:
            for path in kept:
                self._say(f"kept {path}, which is done already")
        if transcript is None or result.known:
            return
        source = source_name(result.recording.source)
        for warning in transcript.warnings:
            self._say(named(source, warning))
        for sentence in losses(transcript):
            self._say(named(source, sentence))
        if self._timings:
            self._say(named(source, timings_line(transcript, timings)))

    def failed(self, result: RecordingResult, failure: Failure) -> None:
        """Tell why a recording failed."""
        source = result.recording.source
        reason = failure.reason if isinstance(source, FailingSource) else named(source_name(source), failure.reason)
        self._say(reason + (" (as before; --retry-failed tries it again)" if result.known else ""))

    def ended(self, summary: Summary, report: Path) -> None:
        """Tell what became of the job, where it had more than one recording or was interrupted."""
        self.close()
        before = f" ({summary.known} of them before)" if summary.known else ""
        failed = f", {summary.failed} failed" if summary.failed else ""
        if summary.state == "interrupted":
            self._complain(
                f"interrupted; {summary.known + summary.done} recordings are done{before}{failed}; the same command "
                "goes on from here"
            )
        elif summary.recordings != 1:
            self._complain(
                f"{summary.recordings} recordings: {summary.known + summary.done} done{before}{failed}; see {report}"
            )

    def _say(self, text: str) -> None:
        with self._line.hidden() if self._line is not None else nullcontext():
            self._complain(text)
