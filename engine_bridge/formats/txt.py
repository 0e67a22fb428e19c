"""Plain text: one segment a line."""

from typing import TextIO

from engine_bridge.formats.base import Format, labelled
from engine_bridge.transcript import Transcript


def write(transcript: Transcript, file: TextIO) -> None:
    """Write each segment's text on a line of its own; segments without text are left out.

    Parameters
    ----------
    transcript : Transcript
        What to write. Suspect segments are left out: this is `Transcript.text` in lines.
    file : text stream
        Where to write it.

    """
    for segment in transcript.segments:
        line = labelled(segment)
        if line and segment.suspect is None:
            file.write(line + "\n")


FORMAT = Format("txt", ".txt", write)
