"""What no decoder is given: files that are text, or scripts that name other files."""

from __future__ import annotations

import codecs

from audio.errors import UnreadableAudioError
from audio.source import Source

_HEAD = 4096

_SCRIPTS = {
    b"ffconcat": "a concat script",
    b"#extm3u": "an HLS playlist",
    b"[playlist]": "a playlist",
    b"[reference]": "a playlist",
    b"<?xml": "an XML document",
    b"<mpd": "a DASH manifest",
    b"<smoothstreamingmedia": "a Smooth Streaming manifest",
    b"<smil": "a playlist",
    b"<asx": "a playlist",
    b"# vobsub index file": "a subtitle index",
    b"v=0\n": "an SDP session description",
    b"v=0\r": "an SDP session description",
    b"rtsptext": "a redirection",
    b"smptext": "a redirection",
}
"""How scripts begin that make FFmpeg open another file or address, in lower case."""

_AUDIO_WITH_TEXT_HEADER = (b"NIST_1A", b"#!AMR", b"#!SILK", b"ajkg")
"""Audio formats whose first bytes are text."""

_CONTROL_BYTES = bytes(set(range(0x20)) - set(b"\t\n\f\r\x1b")) + b"\x7f"


def _is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without control characters; the last character may be cut."""
    if data.translate(None, _CONTROL_BYTES) != data:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def refuse_scripts(source: Source) -> None:
    """Refuse a source whose beginning shows that it is text, whatever its name says.

    An `ffconcat` script or a playlist named ``.mp3`` makes FFmpeg open the files that it lists. Text is told from
    audio, compressed or not, by being valid UTF-8 without control characters over its first 4 KiB.

    Raises
    ------
    UnreadableAudioError
        The source is a script, a web page or other text.

    """
    head = source.head(_HEAD)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for opening, kind in _SCRIPTS.items():
        if start.startswith(opening):
            raise UnreadableAudioError(
                source.name, f"it is {kind}, which is never followed; give the recording that it points to"
            )
    if start.startswith((b"<!doctype html", b"<html")):
        raise UnreadableAudioError(source.name, "it is a web page, not audio; download the recording again")
    if len(head) >= 16 and not head.startswith(_AUDIO_WITH_TEXT_HEADER) and _is_text(head):
        raise UnreadableAudioError(source.name, "it is text, not audio; give the recording itself")
