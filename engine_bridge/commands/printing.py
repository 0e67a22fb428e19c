"""Recordings whose text goes to standard output, one after the other."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from audio.errors import AudioError
from engine_bridge.batch.failing import FailingSource
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import opened
from engine_bridge.batch.result_tables import source_name
from engine_bridge.batch.working import settings_of
from engine_bridge.channels_apart import transcribe_channels
from engine_bridge.commands.arguments import EACH
from engine_bridge.commands.terminal import ProgressBar, clock, losses
from engine_bridge.engines.protocol import Engine
from engine_bridge.errors import EngineBridgeError, UnsupportedOptionError
from engine_bridge.formats import render
from engine_bridge.formats.base import labelled
from engine_bridge.pipeline import stream_transcript
from engine_bridge.timing import PROCESS, WRITE, TimingContext
from engine_bridge.transcript import Segment, Transcript


class Printer:
    """Transcribes recordings and prints their text as it becomes known.

    Parameters
    ----------
    engine : Engine
        Shared by all.
    options : mapping
        Those of `stream_transcript`.
    form : str or None
        How to print: a format's name, or None for lines with times.
    complain : callable
        Says a line on standard error.
    quiet : bool
        Whether no progress is shown.
    timings : bool
        Whether the seconds in each stage are told.
    titles : bool
        Whether each recording's name comes before its text.

    """

    def __init__(
        self,
        engine: Engine,
        options: Mapping[str, Any],
        form: str | None,
        complain: Callable[[str], None],
        *,
        quiet: bool,
        timings: bool,
        titles: bool,
    ) -> None:
        self._engine = engine
        self._options = options
        self._form = form
        self._complain = complain
        self._shows_progress = not quiet and sys.stderr.isatty()
        self._timings = timings
        self._titles = titles

    def print(self, recording: Recording) -> bool:
        """Transcribe one recording and return whether that succeeded; a failure is told in one line.

        Raises
        ------
        UnsupportedOptionError
            If the engine cannot do what is asked.

        """
        name = source_name(recording.source)
        if self._titles:
            click.echo(f"# {name}")
        try:
            with opened(recording.source) as source:
                transcript = self._stream(source, recording, name)
        except UnsupportedOptionError:
            raise
        except (AudioError, EngineBridgeError) as error:
            self._complain(str(error) if isinstance(recording.source, FailingSource) else named(name, str(error)))
            return False
        timing = TimingContext(parent=PROCESS)
        with timing.stage(WRITE):
            if self._form not in (None, "txt"):
                click.echo(render(transcript, self._form or ""), nl=False)
        for sentence in (*transcript.warnings, *losses(transcript)):
            self._complain(named(name, sentence))
        if self._timings:
            self._complain(named(name, f"{timings_line(transcript, timing.seconds())} ({self._engine.description})"))
        return True

    def _stream(self, source: Any, recording: Recording, name: str) -> Transcript:
        with ProgressBar(Path(name).name) if self._shows_progress else nullcontext() as bar:
            options = settings_of(recording, self._options)
            options |= {"engine": self._engine, "on_progress": bar.update if bar is not None else None}
            if options["channel_reduction"] == EACH:
                del options["channel_reduction"]
                transcript = transcribe_channels(source, **options)
                self._print(transcript.segments, bar)
                return transcript
            with stream_transcript(source, **options) as transcription:
                self._print(transcription, bar)
                return transcription.result()

    def _print(self, segments: Iterable[Segment], bar: ProgressBar | None) -> None:
        """Print segments as they come; where text is not wanted, only let them come."""
        for segment in segments:
            if self._form in (None, "txt"):
                with bar.hidden() if bar is not None else nullcontext():
                    print_segment(segment, times=self._form is None)


def print_segment(segment: Segment, *, times: bool = True) -> None:
    """Print a segment as one line, unless its text may be invented."""
    if segment.suspect is None:
        line = labelled(segment)
        click.echo(f"{clock(segment.start)}  {line}" if times else line)
        sys.stdout.flush()


def timings_line(transcript: Transcript, timings: Mapping[str, float]) -> str:
    """Return how long each stage took, those of the transcript and others."""
    stages = ", ".join(f"{stage} {taken:.2f} s" for stage, taken in {**transcript.timings, **timings}.items())
    return f"{transcript.duration:.1f} s of audio: {stages}"


def named(source: str, problem: str) -> str:
    """Return a problem's sentence, with the recording's name in front unless it is there."""
    if source == "<file>":  # files without a name come on standard input
        source, problem = "standard input", problem.removeprefix("<file>: ")
    return problem if problem.startswith(f"{source}: ") else f"{source}: {problem}"


def first_two(recordings: Iterable[Recording]) -> Sequence[Recording]:
    """Return the first recordings, two at the most, to see whether there are several."""
    found: list[Recording] = []
    for recording in recordings:
        found.append(recording)
        if len(found) == 2:
            break
    return found
