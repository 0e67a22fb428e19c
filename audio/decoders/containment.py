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

_SIGNATURES: tuple[tuple[int, bytes], ...] = (
    *((0, mark) for mark in (b"RIFF", b"RIFX", b"RF64", b"BW64", b"FORM", b"riff", b"caff", b".snd", b"dns.")),
    *((0, mark) for mark in (b"fLaC", b"OggS", b"ID3", b"\x1a\x45\xdf\xa3", b"FLV\x01", b"#!AMR", b"wvpk", b"MAC ")),
    *((0, mark) for mark in (b"MPCK", b"MP+", b"TTA1", b"tBaK", b"\x0b\x77", b"\x77\x0b", b"\x7f\xfe\x80\x01")),
    *(
        (0, mark)
        for mark in (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", b"\x00\x00\x01\xba", b".RMF", b"NIST_1A", b"Creative")
    ),
    *((4, mark) for mark in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"styp", b"moof", b"pnot")),
    (4, b"\xf8\x72\x6f"),  # MLP and TrueHD
)
"""Where and how the formats of recordings begin."""

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


def is_recording_format(head: bytes) -> bool:
    """Return whether a file begins as the formats of recordings do, for decoders that cannot be told which to open.

    Parameters
    ----------
    head : bytes
        The first 1024 bytes of the file, or all of it.

    """
    if any(head.startswith(mark, at) for at, mark in _SIGNATURES):
        return True
    # Frames of MPEG audio and ADTS begin with eleven or twelve set bits; packets of a transport stream, 188 bytes long,
    # with 0x47.
    frame = head.lstrip(b"\0")  # some editors leave zeros before the first frame
    mpeg_audio = len(frame) > 1 and frame[0] == 0xFF and frame[1] & 0xE0 == 0xE0
    transport = len(head) > 376 and head[0] == head[188] == head[376] == 0x47
    return mpeg_audio or transport
