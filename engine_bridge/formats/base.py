"""What a transcript format is."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from engine_bridge.transcript import Segment, Transcript


@dataclass(frozen=True)
class Format:
    """A way to write a transcript down.

    Attributes
    ----------
    name : str
        What users call it, such as "srt".
    extension : str
        The file name's ending, with its dot.
    write : callable
        Takes a Transcript and a text stream, and writes the one to the other. The stream is neither closed nor
        flushed, and line ends are single newlines.

    """

    name: str
    extension: str
    write: Callable[[Transcript, TextIO], None]


def one_line(text: str) -> str:
    """Put a text on one line.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The text with each run of white space (line ends and tabs too) made one space, and without control
        characters, which no subtitle or table format can carry.

    """
    line = " ".join(text.split())
    if line.isprintable():
        return line
    kept = "".join(character for character in line if unicodedata.category(character) != "Cc")
    return " ".join(kept.split())


def labelled(segment: Segment) -> str:
    """Put a segment's text on one line, behind its channel in brackets where it has one; nothing for blank text."""
    text = one_line(segment.text)
    return f"[{one_line(segment.channel)}] {text}" if segment.channel is not None and text else text
