"""What no decoder is given: files that are text, or scripts that name other files."""

from __future__ import annotations

import codecs
import re
from typing import BinaryIO

from audio.errors import UnreadableAudioError
from audio.source import Source

_HEAD = 4096

_PROBED = 1 << 20
"""FFmpeg looks at up to this much of a file to tell its format (PROBE_BUF_MAX in libavformat/internal.h)."""

_MOST_TAGS = 64
"""Editors leave a few ID3 tags in a row at worst; each costs a look."""

_SCRIPT_WITHIN = re.compile(rb"<mpd[\s>]|<compositionplaylist|^c=in ip", re.IGNORECASE | re.MULTILINE)
"""What makes FFmpeg take a file for a DASH or IMF manifest or a session description wherever it stands in the text."""

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

    ID3 tags at the beginning are looked behind, as FFmpeg does: a script behind one is still a script.

    Raises
    ------
    UnreadableAudioError
        The source is a script, a web page or other text.

    """
    with source.open() as reader:
        begin = _behind_tags(reader, source.name)
        for offset in {0, begin}:
            reader.seek(offset)
            head = reader.read(_HEAD)
            _refuse_openings(head, source.name)
            # FFmpeg searches text, which for it ends at the first zero byte.
            text = head if b"\0" in head else head + reader.read(_PROBED - len(head))
            if _SCRIPT_WITHIN.search(text.partition(b"\0")[0]):
                raise UnreadableAudioError(
                    source.name, "it is a manifest, which is never followed; give the recording that it points to"
                )


def _refuse_openings(head: bytes, name: str) -> None:
    """Refuse bytes that begin as scripts and pages do, or are text throughout."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for opening, kind in _SCRIPTS.items():
        if start.startswith(opening):
            raise UnreadableAudioError(
                name, f"it is {kind}, which is never followed; give the recording that it points to"
            )
    if start.startswith((b"<!doctype html", b"<html")):
        raise UnreadableAudioError(name, "it is a web page, not audio; download the recording again")
    if len(head) >= 16 and not head.startswith(_AUDIO_WITH_TEXT_HEADER) and _is_text(head):
        raise UnreadableAudioError(name, "it is text, not audio; give the recording itself")


def _behind_tags(reader: BinaryIO, name: str) -> int:
    """Return the offset behind the ID3v2 tags that a file begins with; 0 if there are none.

    A tag is ten bytes, "ID3", version, flags and a length of four times seven bits, what that counts, and ten more
    bytes where the flags say so (ID3v2.4.0, section 3.1).
    """
    at = 0
    for _ in range(_MOST_TAGS):
        reader.seek(at)
        mark = reader.read(10)
        length = mark[6:]
        if len(mark) < 10 or not mark.startswith(b"ID3") or max(length) > 0x7F:
            return at
        at += 10 + sum(byte << shift for byte, shift in zip(length, (21, 14, 7, 0), strict=True))
        at += 10 if mark[5] & 0x10 else 0
    raise UnreadableAudioError(name, f"it begins with more than {_MOST_TAGS} tags; give the recording itself")


def is_recording(source: Source) -> bool:
    """Return whether a source begins as the formats of recordings do, behind any ID3 tags."""
    with source.open() as reader:
        begin = _behind_tags(reader, source.name)
        reader.seek(begin)
        return is_recording_format(reader.read(1024))


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
