"""SubRip subtitles."""

from typing import TextIO

from engine_bridge.formats.base import Format
from engine_bridge.formats.cues import cues, timestamp
from engine_bridge.transcript import Transcript


def write(transcript: Transcript, file: TextIO) -> None:
    """Write numbered cues of readable size.

    Parameters
    ----------
    transcript : Transcript
        What to write. Suspect segments are left out: nothing on the screen is better than invented speech.
    file : text stream
        Where to write it.

    """
    for number, cue in enumerate(cues(transcript), start=1):
        # SubRip has no escapes; an arrow in the text would read as a line of times.
        text = "\n".join(line.replace("-->", "->") for line in cue.lines)
        file.write(f"{number}\n{timestamp(cue.start_ms, ',')} --> {timestamp(cue.end_ms, ',')}\n{text}\n\n")


FORMAT = Format("srt", ".srt", write)
