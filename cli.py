"""The `auricle` command: arguments, progress, exit codes.

Exit codes: 0 when all inputs are done, 1 when one of them failed (the others are done), 2 for wrong usage, 130 when
interrupted.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click

from engine_bridge.arguments import (
    EACH,
    FORMATS,
    SHARDS,
    Channels,
    FormatList,
    Glossary,
    selection_of,
    selection_options,
)

if TYPE_CHECKING:
    from engine_bridge.engines.protocol import Engine
    from engine_bridge.outputs import OutputPlan
    from engine_bridge.terminal import ProgressBar
    from engine_bridge.transcript import Segment, Transcript

BACKENDS = ("auto", "soundfile", "torchcodec", "pyav")
STANDARD_INPUT = "-"
SEVERAL_IN_ONE = (None, ("txt",), ("json",))
"""The ways to print that stay readable when several recordings follow each other."""


def complain(message: str) -> None:
    """Say one line on standard error."""
    click.echo(f"auricle: {message}", err=True)


backend_option = click.option(
    "--audio-backend", type=click.Choice(BACKENDS), default="auto", show_default=True, help="What decodes the file."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="auricle")
def main() -> None:
    """Turn long recordings into timed text that accounts for every second of speech."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A file name or a text that the terminal's encoding lacks is no reason to fail.
            stream.reconfigure(errors="backslashreplace")


@main.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write files to; without it the text goes to standard output alone.",
)
@click.option(
    "-f",
    "--format",
    "formats",
    type=FormatList(),
    help=f"One or more of {','.join(FORMATS)}. With -o: which files to write [default: txt]. Without: how to print.",
)
@click.option(
    "--engine",
    "engine_spec",
    metavar="SPEC",
    default="embedded:tiny.en",
    show_default=True,
    help="embedded:MODEL (a name such as large-v3, a folder, a hub repository), vllm:MODEL, or http://HOST:PORT/v1#MODEL.",
)
@click.option("--language", metavar="CODE", help="Language spoken, such as en or de [default: detected].")
@click.option("--per-chunk-language", is_flag=True, help="Detect it for each chunk, for talk in several languages.")
@click.option(
    "--task", type=click.Choice(["transcribe", "translate"]), default="transcribe", help="translate: into English."
)
@click.option("--beam-size", type=click.IntRange(1, 32), default=1, show_default=True, help="1 searches greedily.")
@click.option("--prompt", metavar="TEXT", help="Names and spellings to expect; given to the engine with every chunk.")
@click.option(
    "--glossary",
    type=Glossary(),
    default=(),
    help="Terms to expect, separated by commas, or @FILE with commas or one term a line; the most important first.",
)
@click.option(
    "--channels",
    type=Channels(each=True),
    default="mean",
    show_default=True,
    help="How several channels become one; n: the one of that number, from 0; each: one text for each, with labels.",
)
@selection_options
@backend_option
@click.option("-q", "--quiet", is_flag=True, help="No text on standard output when -o is given, and no progress.")
@click.option("--timings", is_flag=True, help="Report the seconds spent in each stage.")
def transcribe(
    inputs: tuple[str, ...],
    output: Path | None,
    formats: tuple[str, ...] | None,
    engine_spec: str,
    language: str | None,
    per_chunk_language: bool,
    task: str,
    beam_size: int,
    prompt: str | None,
    glossary: tuple[str, ...],
    channels: int | str,
    audio_backend: str,
    quiet: bool,
    timings: bool,
    **part: Any,
) -> None:
    """Transcribe recordings of any length and format; - reads standard input.

    The text is printed as it becomes known, each line with its start time. With -o, files are written as well, each
    whole or not at all.
    """
    from engine_bridge.engines.allocator import keep_large_blocks
    from engine_bridge.outputs import plan_outputs

    if output is None and formats is not None and len(formats) > 1:
        raise click.UsageError("several formats need a folder to write to: add -o DIR")
    if output is None and formats not in SEVERAL_IN_ONE and len(inputs) > 1:
        raise click.UsageError(f"several recordings as {formats[0]} need a folder to write to: add -o DIR")
    selection = selection_of(part)
    keep_large_blocks()
    plan = None if output is None else plan_outputs([_stem(source) for source in inputs], formats or ("txt",), output)
    engine = _open_engine(engine_spec)
    run = _Run(
        engine=engine,
        options={
            "language": language,
            "per_chunk_language": per_chunk_language,
            "task": task,
            "beam_size": beam_size,
            "prompt": prompt,
            "glossary": glossary,
            "audio_backend": audio_backend,
            "channel_reduction": channels,
            **selection,
        },
        formats=formats,
        plan=plan,
        quiet=quiet,
        timings=timings,
        titles=len(inputs) > 1 and formats != ("json",),
    )
    try:
        succeeded = [run.transcribe(source) for source in inputs]
    except KeyboardInterrupt:
        complain("interrupted; files written so far are complete")
        _leave_at_once(130)
    except BrokenPipeError:
        _leave_at_once(1)
    finally:
        engine.close()
    sys.exit(0 if all(succeeded) else 1)


def _leave_at_once(code: int) -> NoReturn:
    """End the process without waiting for the engine, whose batch under way can take half a minute."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _open_engine(spec: str) -> "Engine":
    from engine_bridge.engines.open import open_engine
    from engine_bridge.errors import EngineBridgeError, EngineSpecError

    try:
        return open_engine(spec)
    except EngineSpecError as error:
        raise click.BadParameter(str(error), param_hint="--engine") from error
    except EngineBridgeError as error:
        complain(str(error))
        sys.exit(1)


class _Run:
    """One call of `auricle transcribe`: what all its inputs share."""

    def __init__(
        self,
        *,
        engine: "Engine",
        options: dict[str, Any],
        formats: Sequence[str] | None,
        plan: "OutputPlan | None",
        quiet: bool,
        timings: bool,
        titles: bool,
    ) -> None:
        self.engine = engine
        self.options = options
        self.formats = formats
        self.plan = plan
        self.prints = not (quiet and plan is not None)
        self.shows_progress = not quiet and sys.stderr.isatty()
        self.timings = timings
        self.titles = titles

    def transcribe(self, source: str) -> bool:
        """Transcribe one input and return whether it succeeded; a failure is told in one line."""
        from audio.errors import AudioError
        from engine_bridge.errors import EngineBridgeError, UnsupportedOptionError
        from engine_bridge.terminal import losses
        from engine_bridge.timing import PROCESS, WRITE, TimingContext

        if self.titles and self.prints:
            click.echo(f"# {source}")
        timing = TimingContext(parent=PROCESS)
        try:
            transcript = self._stream(source)
            with timing.stage(WRITE):
                self._write(source, transcript)
        except UnsupportedOptionError as error:
            raise click.UsageError(str(error)) from error
        except (AudioError, EngineBridgeError) as error:
            complain(_naming(source, error))
            return False
        for warning in transcript.warnings:
            complain(_naming(source, warning))
        for sentence in losses(transcript):
            complain(f"{source}: {sentence}")
        if self.timings:
            seconds = {**transcript.timings, **timing.seconds()}
            stages = ", ".join(f"{stage} {taken:.2f} s" for stage, taken in seconds.items())
            complain(f"{source}: {transcript.duration:.1f} s of audio: {stages} ({self.engine.description})")
        return True

    def _stream(self, source: str) -> "Transcript":
        from engine_bridge.channels_apart import transcribe_channels
        from engine_bridge.pipeline import stream_transcript
        from engine_bridge.terminal import ProgressBar

        with ProgressBar(Path(source).name) if self.shows_progress else nullcontext() as bar:
            options = {**self.options, "engine": self.engine, "on_progress": bar.update if bar is not None else None}
            if options["channel_reduction"] == EACH:
                del options["channel_reduction"]
                transcript = transcribe_channels(_opened(source), **options)
                self._print(transcript.segments, bar)
                return transcript
            with stream_transcript(_opened(source), **options) as transcription:
                self._print(transcription, bar)
                return transcription.result()

    def _print(self, segments: "Iterable[Segment]", bar: "ProgressBar | None") -> None:
        """Print segments as they come; where text is not wanted, only let them come."""
        from engine_bridge.formats.base import labelled
        from engine_bridge.terminal import clock

        prints_text = self.prints and (self.plan is not None or self.formats in (None, ("txt",)))
        for segment in segments:
            if prints_text and segment.suspect is None:
                line = labelled(segment)
                if self.formats != ("txt",) or self.plan is not None:
                    line = f"{clock(segment.start)}  {line}"
                _print_line(line, bar)

    def _write(self, source: str, transcript: "Transcript") -> None:
        from engine_bridge.formats import find_format, render
        from engine_bridge.outputs import write_atomically

        if self.plan is not None:
            for name in self.formats or ("txt",):
                path = self.plan.path(_stem(source), name)
                write_atomically(path, partial(find_format(name).write, transcript))
                complain(f"wrote {path}")
        elif self.formats not in (None, ("txt",)):
            assert self.formats is not None  # noqa: S101 - told above; for the type checker
            click.echo(render(transcript, self.formats[0]), nl=False)


def _opened(source: str) -> "str | BinaryIO":
    return sys.stdin.buffer if source == STANDARD_INPUT else source


def _stem(source: str) -> str:
    """Return what output names are made of."""
    return "stdin" if source == STANDARD_INPUT else source


def _naming(source: str, problem: Exception | str) -> str:
    """Return the problem's sentence, with the input's name in front unless it is there."""
    text = str(problem)
    if source == STANDARD_INPUT:
        source, text = "standard input", text.removeprefix("<file>: ")
    return text if text.startswith(f"{source}: ") else f"{source}: {text}"


def _print_line(line: str, bar: "ProgressBar | None") -> None:
    with bar.hidden() if bar is not None else nullcontext():
        click.echo(line)
        sys.stdout.flush()


@main.command()
@click.argument("source", metavar="INPUT")
@backend_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def probe(source: str, audio_backend: str, as_json: bool) -> None:
    """Say what is in a file."""
    import json
    from dataclasses import asdict

    from audio import AudioError
    from audio.probing import probe as look
    from engine_bridge.terminal import description

    try:
        info = look(_opened(source), audio_backend)
    except AudioError as error:
        complain(_naming(source, error))
        sys.exit(1)
    for line in [json.dumps(asdict(info), ensure_ascii=False)] if as_json else description(info):
        click.echo(line)


@main.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder.")
@click.option("--shards", type=click.Choice(SHARDS), help="Put the chunks of many recordings into shards of this form.")
@click.option(
    "--shard-size", type=click.IntRange(1), metavar="N", help="Chunks after which a shard ends [default: 1000]."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Recordings cut at a time [default: one a core].")
@click.option("--max-duration", type=float, default=30.0, show_default=True, help="Longest chunk, in seconds.")
@click.option("--min-duration", type=float, help="Shortest chunk, in seconds [default: a thirtieth of the longest].")
@click.option("--keep-silence", type=float, help="Shorten pauses to this many seconds [default: keep all].")
@click.option("--sample-rate", type=click.IntRange(1, 768_000), default=16_000, show_default=True, help="In Hz.")
@click.option(
    "--channels", type=Channels(), default="mean", show_default=True, help="How several become one, or which."
)
@selection_options
@backend_option
def split(
    inputs: tuple[str, ...],
    output: Path,
    shards: str | None,
    shard_size: int | None,
    workers: int | None,
    **settings: Any,
) -> None:
    """Cut recordings in their pauses: chunks as FLAC files and a manifest, or as shards.

    With --shards, INPUT may be files, folders, patterns, manifests and addresses. Ended and started again, it makes
    the shards that are missing.
    """
    from engine_bridge.split_command import run_split

    chosen = {**selection_of(settings), **settings}
    sys.exit(run_split(inputs, output, shards, shard_size=shard_size, workers=workers, settings=chosen, tell=complain))


@main.command()
def doctor() -> None:
    """Say which decoders, resamplers and engines work here, and how to get the others."""
    from engine_bridge.doctor import examine

    healthy = True
    for finding in examine():
        if finding.problem is None:
            click.echo(f"works    {finding.part}  {finding.detail}".rstrip())
        else:
            click.echo(f"missing  {finding.part}: {finding.problem}")
            healthy = healthy and not finding.required
    sys.exit(0 if healthy else 1)


@main.command()
def models() -> None:
    """List the families of audio models that vllm:MODEL and servers can run, and what each takes."""
    from engine_bridge.errors import EngineBridgeError
    from engine_bridge.models.table import family_table

    try:
        click.echo("\n".join(family_table()))
    except EngineBridgeError as error:
        complain(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
