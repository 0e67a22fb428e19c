"""WebVTT subtitles (https://www.w3.org/TR/webvtt1/)."""

from typing import TextIO

from engine_bridge.formats.base import Format
from engine_bridge.formats.cues import cues, timestamp
from engine_bridge.transcript import Transcript

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def write(transcript: Transcript, file: TextIO) -> None:
    """Write a WebVTT file with cues of readable size.

    Parameters
    ----------
    transcript : Transcript
        What to write. Suspect segments are left out: nothing on the screen is better than invented speech.
    file : text stream
        Where to write it.

    """
    file.write("WEBVTT\n\n")
    for cue in cues(transcript):
        text = "\n".join(cue.lines).translate(_ESCAPES)
        file.write(f"{timestamp(cue.start_ms, '.')} --> {timestamp(cue.end_ms, '.')}\n{text}\n\n")


FORMAT = Format("vtt", ".vtt", write)
