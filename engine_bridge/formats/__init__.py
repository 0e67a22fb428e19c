"""Transcripts on disk: the known formats by name."""

import io

from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.formats import json, srt, tsv, txt, vtt
from engine_bridge.formats.base import Format
from engine_bridge.formats.json import read_json
from engine_bridge.transcript import Transcript

__all__ = ["FORMATS", "Format", "find_format", "read_json", "render"]

FORMATS: dict[str, Format] = {each.name: each for each in (txt.FORMAT, srt.FORMAT, vtt.FORMAT, tsv.FORMAT, json.FORMAT)}


def find_format(name: str) -> Format:
    """Look a format up.

    Parameters
    ----------
    name : str
        The format's name, such as "srt".

    Returns
    -------
    Format
        The format.

    Raises
    ------
    UnsupportedOptionError
        If there is no such format; the message lists those there are.

    """
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise UnsupportedOptionError(f"{name!r} is not a transcript format; choose one of {known}") from None


def render(transcript: Transcript, format_name: str) -> str:
    """Write a transcript into a string.

    Parameters
    ----------
    transcript : Transcript
        What to write.
    format_name : str
        The format's name, one of `FORMATS`.

    Returns
    -------
    str
        What a file of that format would hold.

    Raises
    ------
    UnsupportedOptionError
        If there is no such format.

    """
    file = io.StringIO()
    find_format(format_name).write(transcript, file)
    return file.getvalue()
