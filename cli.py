"""The `auricle` command: arguments, progress, exit codes.

Exit codes: 0 when all inputs are done, 1 when one of them failed (the others are done), 2 for wrong usage, 130 when
interrupted.
"""

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from engine_bridge.commands.arguments import (
    FORMATS,
    SHARDS,
    Channels,
    FormatList,
    Glossary,
    detector_option,
    job_options,
    limit_options,
    limits_of,
    selection_of,
    selection_options,
)

BACKENDS = ("auto", "soundfile", "torchcodec", "pyav")
STANDARD_INPUT = "-"


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
@click.option(
    "--beam-size",
    type=click.IntRange(1, 32),
    help="1 searches greedily. By default a greedy text is searched for with 5 beams where it is improbable.",
)
@click.option("--prompt", metavar="TEXT", help="Names and spellings to expect; given to the engine with every chunk.")
@click.option(
    "--glossary",
    type=Glossary(),
    default=(),
    help="Terms to expect, separated by commas, or @FILE with commas or one term a line; the most important first.",
)
@click.option(
    "--channels",
    "channel_reduction",
    type=Channels(each=True),
    default="mean",
    show_default=True,
    help="How several channels become one; n: the one of that number, from 0; each: one text for each, with labels.",
)
@selection_options
@detector_option
@limit_options
@backend_option
@job_options
@click.option("-q", "--quiet", is_flag=True, help="No text on standard output when -o is given, and no progress.")
@click.option("--timings", is_flag=True, help="Report the seconds spent in each stage.")
def transcribe(
    inputs: tuple[str, ...],
    output: Path | None,
    formats: tuple[str, ...] | None,
    engine_spec: str,
    quiet: bool,
    timings: bool,
    **options: Any,
) -> None:
    """Transcribe recordings of any length and format, one or ten thousand.

    INPUT may be files, folders, patterns, manifests (.jsonl, .csv), tables (.parquet) and addresses; - reads standard
    input.

    The text is printed as it becomes known, each line with its start time. With -o, files are written, each whole or
    not at all, and what is done is kept in the folder's .auricle: however the command ends, the same command goes on
    from there. The text of a single recording is printed as well.
    """
    from engine_bridge.commands.transcribe import JobOptions, TranscribeCommand

    part = {**selection_of(options), **limits_of(options)}
    dry_run = options.pop("dry_run")
    job = JobOptions(**{name: options.pop(name) for name in JobOptions.__dataclass_fields__})
    command = TranscribeCommand(
        inputs, output, formats, engine_spec, {**options, **part}, job, quiet, timings, dry_run, complain
    )
    sys.exit(command.run())


def _opened(source: str) -> "str | BinaryIO":
    return sys.stdin.buffer if source == STANDARD_INPUT else source


def _naming(source: str, problem: Exception | str) -> str:
    """Return the problem's sentence, with the input's name in front unless it is there."""
    text = str(problem)
    if source == STANDARD_INPUT:
        source, text = "standard input", text.removeprefix("<file>: ")
    return text if text.startswith(f"{source}: ") else f"{source}: {text}"


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
    from engine_bridge.commands.terminal import description

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
@detector_option
@limit_options
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
    from engine_bridge.commands.split import run_split

    bounds = limits_of(settings)
    chosen = {**selection_of(settings), **settings}
    lengths = {"shard_size": shard_size, "workers": workers}
    sys.exit(run_split(inputs, output, shards, **lengths, settings=chosen, bounds=bounds, tell=complain))


@main.command()
def doctor() -> None:
    """Say which decoders, resamplers and engines work here, and how to get the others."""
    from engine_bridge.commands.doctor import examine

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
