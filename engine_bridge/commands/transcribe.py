"""What `auricle transcribe` does, once its arguments are understood."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from audio.errors import BackendUnavailableError
from engine_bridge.errors import EngineBridgeError, EngineSpecError, UnsupportedOptionError

if TYPE_CHECKING:
    from engine_bridge.batch.job import Job
    from engine_bridge.batch.queue import RecordingResults
    from engine_bridge.cluster import ClusterResults
    from engine_bridge.commands.screen import JobScreen
    from engine_bridge.engines.protocol import Engine

SEVERAL_IN_ONE = (None, ("txt",), ("json",))
"""The ways to print that stay readable when several recordings follow each other."""

INTERRUPTED = 130


@dataclass(frozen=True)
class JobOptions:
    """How a job is to be done.

    Attributes
    ----------
    restart, retry_failed : bool
        As for `transcribe_many`.
    report, results : path or None
        Where the report and a table of all results go besides.
    cluster : str or None
        The Ray cluster to work on.

    """

    restart: bool = False
    retry_failed: bool = False
    report: Path | None = None
    results: Path | None = None
    cluster: str | None = None

    def check(self, output: Path | None) -> None:
        """Raise click.UsageError where the options do not go together."""
        given = {
            "--restart": self.restart,
            "--retry-failed": self.retry_failed,
            "--report": self.report,
            "--results": self.results,
            "--on": self.cluster,
        }
        if output is None:
            for name in (name for name, value in given.items() if value):
                raise click.UsageError(f"{name} needs a folder to write to: add -o DIR")


@dataclass(frozen=True)
class TranscribeCommand:
    """One call of `auricle transcribe`.

    Attributes
    ----------
    inputs : sequence of str
        As they were given.
    output : path or None
        The folder for outputs.
    formats : sequence of str or None
        What was chosen.
    engine : str
        The engine's specification.
    options : mapping
        Those of `stream_transcript`.
    job : JobOptions
        How the job is to be done.
    quiet, timings, dry_run : bool
        As in the command's help.
    tell : callable
        Says a line on standard error.

    """

    inputs: Sequence[str]
    output: Path | None
    formats: tuple[str, ...] | None
    engine: str
    options: Mapping[str, Any]
    job: JobOptions
    quiet: bool
    timings: bool
    dry_run: bool
    tell: Callable[[str], None]

    def run(self) -> int:
        """Do what is asked and return the exit code.

        Raises
        ------
        click.UsageError
            If that cannot be asked.

        """
        from engine_bridge.engines.allocator import keep_large_blocks

        self.job.check(self.output)
        if self.output is None and self.formats is not None and len(self.formats) > 1:
            raise click.UsageError("several formats need a folder to write to: add -o DIR")
        keep_large_blocks()
        try:
            return self._look() if self.dry_run else self._print() if self.output is None else self._write(self.output)
        except UnsupportedOptionError as error:
            raise click.UsageError(str(error)) from error
        except (EngineBridgeError, BackendUnavailableError) as error:
            self.tell(str(error))
            return 1
        except KeyboardInterrupt:
            self.tell("interrupted")
            leave_at_once(INTERRUPTED)
        except BrokenPipeError:
            leave_at_once(1)

    def _open_engine(self) -> "Engine":
        from engine_bridge.engines.open import open_engine

        try:
            return open_engine(self.engine)
        except EngineSpecError as error:
            raise click.BadParameter(str(error), param_hint="--engine") from error

    def _print(self) -> int:
        """Print the text of each recording as it becomes known."""
        from engine_bridge.batch.inputs import find_recordings
        from engine_bridge.batch.working import complete_settings
        from engine_bridge.commands.printing import Printer, first_two

        found = find_recordings(self.inputs)
        first = first_two(found)
        several = len(first) > 1
        form = None if self.formats is None else self.formats[0]
        if several and self.formats not in SEVERAL_IN_ONE:
            raise click.UsageError(f"several recordings as {form} need a folder to write to: add -o DIR")
        engine = self._open_engine()
        try:
            printer = Printer(
                engine,
                complete_settings(self.options),
                form,
                self.tell,
                quiet=self.quiet,
                timings=self.timings,
                titles=several and form != "json",
            )
            succeeded = [printer.print(recording) for recording in chain(first, found)]
        except (KeyboardInterrupt, BrokenPipeError):
            raise  # without waiting for the engine, whose batch under way can take half a minute
        except BaseException:
            engine.close()
            raise
        engine.close()
        return 0 if all(succeeded) else 1

    def _look(self) -> int:
        """Tell what can be known of the job, and do nothing."""
        from engine_bridge.batch.inputs import find_recordings
        from engine_bridge.batch.preflight import preflight, report

        with ExitStack() as stack:
            engine = None if self.job.cluster else self._open_engine()
            if engine is not None:
                stack.callback(engine.close)
            found = preflight(
                find_recordings(self.inputs, skipped=[] if self.output is None else [self.output]),
                output=self.output,
                formats=self.formats or ("txt",),
                engine=engine,
                options=self.options,
            )
        for line in report(found):
            click.echo(line)
        return 0 if found.is_clear else 1

    def _write(self, output: Path) -> int:
        """Do the job whose outputs go to a folder."""
        from engine_bridge.batch.interrupting import stopping_on_interrupt
        from engine_bridge.batch.job import Job
        from engine_bridge.commands.screen import JobScreen

        with ExitStack() as stack:
            reports = [] if self.job.report is None else [self.job.report]
            engine = None if self.job.cluster else self._open_engine()
            if engine is not None:
                stack.callback(engine.close)
            job = stack.enter_context(
                Job(self.inputs, output, self.formats or ("txt",), reports=reports, table=self.job.results)
            )
            looked = job.plan(self.options)
            for problem in looked.problems if looked is not None else ():
                self.tell(problem)
            if looked is not None and looked.problems:
                return 1
            audio = None if looked is None else looked.audio_seconds
            screen = JobScreen(len(job.names), audio, self.tell, quiet=self.quiet, timings=self.timings)
            stack.callback(screen.close)
            results = stack.enter_context(self._results(job, engine, screen))
            stack.enter_context(stopping_on_interrupt(getattr(results, "stop", None)))
            try:
                summary = job.run(results, self.engine, screen)
            except EngineBridgeError:
                screen.close()
                self.tell(
                    "the job cannot go on; what was done until now is kept, and the same command goes on from there"
                )
                raise
            screen.ended(summary, job.report_path)
        if summary.state == "interrupted":
            return INTERRUPTED
        return 1 if summary.failed else 0

    def _results(self, job: "Job", engine: "Engine | None", screen: "JobScreen") -> "RecordingResults | ClusterResults":
        if engine is None:
            from engine_bridge.cluster import parse_address, transcribe_on_ray

            return transcribe_on_ray(
                job.recordings(),
                address=parse_address(self.job.cluster or ""),
                engine=self.engine,
                journal=job.journal,
                restart=self.job.restart,
                retry_failed=self.job.retry_failed,
                on_progress=screen.update,
                **self.options,
            )
        from engine_bridge.batch.many import transcribe_many

        return transcribe_many(
            job.recordings(),
            engine=engine,
            journal=job.journal,
            ordered=self.job.results is not None,
            restart=self.job.restart,
            retry_failed=self.job.retry_failed,
            on_progress=screen.update,
            on_segment=screen.heard,
            **self.options,
        )


def leave_at_once(code: int) -> NoReturn:
    """End the process without waiting for the engine, whose batch under way can take half a minute."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)
