"""What the command's options take: lists, terms, times, tracks and channels, each checked as it is read."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import click

FORMATS = ("txt", "srt", "vtt", "tsv", "json")
REDUCTIONS = ("mean", "first", "max", "sum", "left", "right")
EACH = "each"
"""The choice of channels that gives one transcript for each."""

SHARDS = ("webdataset", "parquet", "lhotse")
"""The forms of shards."""

TIMELINES = ("container", "file")

DETECTORS = ("energy", "silero")
"""The detectors of speech that `audio.open_detector` knows."""

LIMITS = (
    "max_encoded_bytes",
    "max_seconds",
    "max_decoded_bytes",
    "max_channels",
    "max_sample_rate",
    "max_open_seconds",
)
"""The fields of `audio.DecodeLimits`, which is imported only where one is given: --help should not wait for it."""


class FormatList(click.ParamType[tuple[str, ...]]):
    """Format names, separated by commas."""

    name = "format,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names, each once."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(part.strip().lower() for part in str(value).split(",") if part.strip()))
        unknown = [name for name in names if name not in FORMATS]
        if unknown or not names:
            self.fail(f"{value!r}: choose among {', '.join(FORMATS)}", param, ctx)
        return names


class Glossary(click.ParamType[tuple[str, ...]]):
    """Terms separated by commas, or a file of them."""

    name = "terms|@file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the terms in their order, each once."""
        if isinstance(value, tuple):
            return value
        text = str(value)
        if text.startswith("@"):
            try:
                text = Path(text[1:]).read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                self.fail(f"{text[1:]}: the file cannot be read as UTF-8 text: {error}", param, ctx)
        return tuple(dict.fromkeys(text.replace(",", "\n").splitlines()))


class TimeOfRecording(click.ParamType[float]):
    """A time in a recording: seconds, minutes:seconds or hours:minutes:seconds, with decimals where wanted."""

    name = "[[h:]m:]s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time in seconds."""
        if isinstance(value, float):
            return value
        parts = str(value).strip().split(":")
        *whole, last = parts
        plain = last.replace(".", "", 1)
        if not (len(parts) <= 3 and all(part.isdecimal() for part in whole) and plain.isdecimal()):
            self.fail(f"{value!r}: give a time such as 90, 1:30 or 1:02:03.5", param, ctx)
        seconds = 0.0
        for part in parts:
            seconds = 60 * seconds + float(part)
        return seconds


class Track(click.ParamType[int | str]):
    """A track by number or language."""

    name = "number|language"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the language as it is."""
        text = str(value).strip()
        if not text or text.startswith("-"):
            self.fail(f"{value!r}: give a track's number from 0, or a language such as de", param, ctx)
        return int(text) if text.isdecimal() else text


class Channels(click.ParamType[int | str]):
    """A choice of channels: a reduction, one channel, or each."""

    name = "|".join((*REDUCTIONS, "n", EACH))

    def __init__(self, *, each: bool = False) -> None:
        self._names = (*REDUCTIONS, EACH) if each else REDUCTIONS

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the name, or a channel's number."""
        text = str(value).strip().lower()
        if text not in self._names and not text.isdecimal():
            self.fail(
                f"{value!r}: choose among {', '.join(self._names)}, or give a channel's number from 0", param, ctx
            )
        return int(text) if text.isdecimal() else text


class Limit(click.ParamType[tuple[str, float | None]]):
    """One limit on what a decode may cost, and its value."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float | None]:
        """Return the name of a field of `DecodeLimits` and its value, None for no limit."""
        if isinstance(value, tuple):
            return value
        name, _, given = (part.strip().lower() for part in str(value).partition("="))
        if name not in LIMITS:
            self.fail(f"{value!r}: give NAME=VALUE, with one of the names {', '.join(LIMITS)}", param, ctx)
        if given == "none":
            return name, None
        try:
            number = float(given) if name.endswith("_seconds") else int(given)
        except ValueError:
            number = 0
        if not 0 < number < inf:
            whole = "" if name.endswith("_seconds") else "whole "
            self.fail(f"{value!r}: give a {whole}number above 0, or none for no limit", param, ctx)
        return name, number


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that bound what the decoding of a recording may cost: limit and isolate."""
    for option in (
        click.option(
            "--isolate",
            is_flag=True,
            help="Decode each recording in a process of its own, so that one that crashes a decoder, hangs it or "
            "floods its memory costs itself only.",
        ),
        click.option(
            "--limit",
            "limit",
            type=Limit(),
            multiple=True,
            help="Decode no more than this of a recording, such as max_seconds=7200, and fail it beyond; again for "
            f"other limits. Names: {', '.join(LIMITS)}. none lifts a limit.",
        ),
    ):
        command = option(command)
    return command


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose a part of a recording: track, from, to and timeline."""
    for option in (
        click.option(
            "--timeline",
            type=click.Choice(TIMELINES),
            default="container",
            show_default=True,
            help="container: times fit a film's pictures, also where its sound begins late or has holes. "
            "file: times count from the first sound.",
        ),
        click.option("--to", "to_seconds", type=TimeOfRecording(), help="Stop at this time [default: the end]."),
        click.option("--from", "from_seconds", type=TimeOfRecording(), default=0.0, help="Begin at this time."),
        click.option(
            "--track", type=Track(), help="Audio track, by number from 0 or language [default: the one marked so]."
        ),
    ):
        command = option(command)
    return command


def detector_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that chooses what tells speech from the rest."""
    return click.option(
        "--detector",
        type=click.Choice(DETECTORS),
        default="energy",
        show_default=True,
        help="What finds speech. energy: all that rises above the background, music too. silero: voices, by a neural "
        "network that needs 'auricle[silero]'.",
    )(command)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of jobs whose outputs go to a folder."""
    for option in (
        click.option(
            "--dry-run",
            is_flag=True,
            help="Do nothing, but tell how much audio there is, what cannot be read, and about how long it takes.",
        ),
        click.option(
            "--on",
            "cluster",
            metavar="CLUSTER",
            help="Work on a Ray cluster: ray (this machine), ray:auto (the one it belongs to) or ray://HOST:PORT.",
        ),
        click.option(
            "--results",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write all results to one table as well, .jsonl or .parquet, in the order of the inputs; with --on, "
            "as they are done.",
        ),
        click.option(
            "--report",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write what became of each recording to this JSON file as well [always: .auricle/report.json in -o].",
        ),
        click.option(
            "--retry-failed",
            is_flag=True,
            help="Try recordings again that could not be decoded before; without it that is told again until they "
            "change. What failed for another reason is always tried again.",
        ),
        click.option("--restart", is_flag=True, help="Do again what is done already."),
    ):
        command = option(command)
    return command


def selection_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take the values of `selection_options` out of a command's options, checked against each other.

    Raises
    ------
    click.UsageError
        The range holds no time.

    """
    chosen = {name: options.pop(name) for name in ("track", "from_seconds", "to_seconds", "timeline")}
    if chosen["to_seconds"] is not None and chosen["to_seconds"] <= chosen["from_seconds"]:
        raise click.UsageError("--to is not after --from: the range holds nothing")
    return chosen


def limits_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take the values of `limit_options` out of a command's options.

    Parameters
    ----------
    options : dict
        The command's options; "limit" and "isolate" are removed from it.

    Returns
    -------
    chosen : dict
        "limits", those for one's own files with what was given in their place, and "isolation", as `open_stream` takes
        them. Each only where it was asked for, so that the defaults stay those of the library.

    """
    from audio.isolation import Isolation
    from audio.limits import DecodeLimits

    given, isolate = dict(options.pop("limit")), options.pop("isolate")
    chosen: dict[str, Any] = {}
    if given:
        chosen["limits"] = replace(DecodeLimits.generous(), **given)
    if isolate:
        chosen["isolation"] = Isolation()
    return chosen
