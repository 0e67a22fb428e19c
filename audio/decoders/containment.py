"""What no decoder is given: files that are text, or scripts that name other files."""

from __future__ import annotations

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

_TEXT_BYTES = bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)) + b"\t\n\f\r\x1b"


def refuse_scripts(source: Source) -> None:
    """Refuse a source whose beginning shows that it is text, whatever its name says.

    An `ffconcat` script or a playlist named ``.mp3`` makes FFmpeg open the files that it lists. Compressed and linear
    audio alike have control bytes within their first 4 KiB, so text is told from audio by having none.

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
    if len(head) >= 16 and not head.startswith(_AUDIO_WITH_TEXT_HEADER) and not head.translate(None, _TEXT_BYTES):
        raise UnreadableAudioError(source.name, "it is text, not audio; give the recording itself")
