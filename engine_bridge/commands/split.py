"""What `auricle split` does: one recording to files, or many to shards; what is told, and how it ends."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

STANDARD_INPUT = "-"

Tell = Callable[[str], None]
"""Says one line on standard error."""


def run_split(
    inputs: Sequence[str],
    output: Path,
    shards: str | None,
    *,
    shard_size: int | None,
    workers: int | None,
    settings: Mapping[str, Any],
    bounds: Mapping[str, Any],
    tell: Tell,
) -> int:
    """Cut recordings in their pauses, and return the exit code.

    Parameters
    ----------
    inputs : sequence of str
        As given.
    output : Path
        The folder to write to.
    shards : str or None
        The form of the shards; None writes the chunks of one recording as files.
    shard_size, workers : int or None
        As for `split_recordings`.
    settings : mapping
        The fields of `SplitSettings`.
    bounds : mapping
        The limits and the isolation for decoding, as `open_stream` takes them.
    tell : callable
        Says one line on standard error.

    Raises
    ------
    click.UsageError
        What is asked for contradicts itself.

    """
    from audio import SplitError

    if shards is None and len(inputs) > 1:
        raise click.UsageError("several recordings go into shards: add --shards webdataset, parquet or lhotse")
    if shards is None and (shard_size is not None or workers is not None):
        raise click.UsageError("--shard-size and --workers are for shards: add --shards webdataset, parquet or lhotse")
    try:
        if shards is None:
            return _split_one(inputs[0], output, settings, bounds, tell)
        return _split_many(inputs, output, shards, shard_size, workers, settings, bounds, tell)
    except SplitError as error:
        raise click.UsageError(str(error)) from error


def _split_one(source: str, output: Path, settings: Mapping[str, Any], bounds: Mapping[str, Any], tell: Tell) -> int:
    from audio import AudioError, SplitError, open_detector, open_stream, stream_chunks
    from engine_bridge.chunk_files import write_chunks
    from engine_bridge.errors import OutputError
    from engine_bridge.outputs import plan_outputs

    stem = "stdin" if source == STANDARD_INPUT else source
    name = plan_outputs([stem], ["txt"], output).names[stem]
    selection = {name: settings[name] for name in ("track", "from_seconds", "to_seconds", "timeline")}
    lengths = {name: settings[name] for name in ("max_duration", "min_duration", "keep_silence")}
    rate = settings["sample_rate"]
    try:
        with open_stream(
            sys.stdin.buffer if source == STANDARD_INPUT else source,
            rate,
            backend=settings["audio_backend"],
            reduction=settings["channels"],
            **selection,
            **bounds,
        ) as stream:
            detector = open_detector(settings["detector"], rate)
            chunks = stream_chunks(stream, rate, detector=detector, **lengths)
            manifest = write_chunks((chunk.moved(stream.offset) for chunk in chunks), output, name, source)
            for warning in stream.warnings:
                tell(_naming(source, warning))
    except SplitError:
        raise
    except (AudioError, OutputError) as error:
        tell(_naming(source, error))
        return 1
    tell(f"wrote {manifest}")
    return 0


def _split_many(
    inputs: Sequence[str],
    output: Path,
    shards: str,
    shard_size: int | None,
    workers: int | None,
    settings: Mapping[str, Any],
    bounds: Mapping[str, Any],
    tell: Tell,
) -> int:
    from audio import AudioError, SplitError
    from engine_bridge.batch.chunking import SplitSettings
    from engine_bridge.batch.inputs import find_recordings
    from engine_bridge.batch.shards import REPORT, SHARD_SIZE, SplitResult, split_recordings
    from engine_bridge.errors import EngineBridgeError

    def on_result(result: SplitResult) -> None:
        for problem in (*result.warnings, *(() if result.error is None else (result.error,))):
            tell(_naming(result.recording.id, problem))

    try:
        summary = split_recordings(
            find_recordings(inputs, skipped=[output]),
            output,
            shards,
            settings=SplitSettings(**settings),
            shard_size=shard_size if shard_size is not None else SHARD_SIZE,
            workers=workers,
            on_result=on_result,
            **bounds,
        )
    except SplitError:
        raise
    except (AudioError, EngineBridgeError) as error:
        tell(str(error))
        return 1
    except KeyboardInterrupt:
        tell("interrupted; the shards that are there are complete, and the same command makes those that are missing")
        return 130
    known = f", {summary.known} were there already" if summary.known else ""
    failed = f", {summary.failed} failed (see {output / REPORT})" if summary.failed else ""
    tell(
        f"{summary.done} recordings cut{known}{failed}: {summary.chunks} chunks of {summary.seconds / 3600:.2f} h in "
        f"{summary.shards} new shards in {output}"
    )
    return 1 if summary.failed else 0


def _naming(name: str, problem: Exception | str) -> str:
    """Return a problem's sentence, with the recording's name in front unless it is there."""
    text = str(problem)
    if name == STANDARD_INPUT:
        name, text = "standard input", text.removeprefix("<file>: ")
    return text if name in text.partition(": ")[0] else f"{name}: {text}"
