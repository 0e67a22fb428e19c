"""Tab-separated values, laid out as openai-whisper's: start and end in whole milliseconds, and the text."""

from typing import TextIO

from engine_bridge.formats.base import Format, labelled
from engine_bridge.transcript import Transcript


def write(transcript: Transcript, file: TextIO) -> None:
    """Write a heading line and one line a segment.

    Parameters
    ----------
    transcript : Transcript
        What to write; suspect segments are left out. Tabs and line ends in a text become spaces.
    file : text stream
        Where to write it.

    """
    file.write("start\tend\ttext\n")
    for segment in transcript.segments:
        if segment.suspect is not None:
            continue
        start_ms, end_ms = round(segment.start * 1000), round(segment.end * 1000)
        file.write(f"{start_ms}\t{end_ms}\t{labelled(segment)}\n")


FORMAT = Format("tsv", ".tsv", write)
