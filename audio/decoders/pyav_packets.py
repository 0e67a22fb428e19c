"""Packets that hold far more than a packet should.

FFmpeg's decoders go on with what is left of a packet until nothing is, and PyAV returns all that came of it at once. A
length that went wrong, or was meant to, so makes a whole file one packet, and some kilobytes of silence many gigabytes
before anybody can count them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from av.codec.context import CodecContext
    from av.packet import Packet

_MOST_BYTES = dict.fromkeys(("aac", "mp1", "mp2", "mp3", "ac3", "eac3", "amr_nb", "amr_wb"), 1 << 15)
"""What is longer is no packet of this codec. The longest: AAC has 768 bytes a channel (ISO/IEC 14496-3, 4.5.3.1) and
at most 24 channels in use, MP2 has 1729 bytes, E-AC-3 4096; AMR goes by some frames of at most 61 bytes."""

_MOST_LOSSY_BYTES = 1 << 20
"""The same for other lossy codecs; those that store samples one by one have packets of any length, and one frame."""

_STORED = ("pcm_", "adpcm_", "dsd_")

_FLAC_FRAMES = 8
_FLAC_BYTES_A_MARK = 4096
"""How many frames of FLAC a packet may seem to hold, and so many more bytes for each further one: the mark of a frame
(RFC 9639, 9.1) is met by chance once in 32 KB. A packet holds one frame, of 14 bytes at the least, which may be 65535
samples of eight channels."""


class PacketCheck:
    """Tells packets that a codec's stream may have from others.

    Parameters
    ----------
    context : CodecContext
        The stream's.

    """

    def __init__(self, context: CodecContext) -> None:
        codec = context.codec
        name = codec.canonical_name
        self._is_flac = name == "flac"
        lossy = codec.lossy and not codec.lossless and not name.startswith(_STORED)
        self._most = _MOST_BYTES.get(name, _MOST_LOSSY_BYTES if lossy else None)

    def admits(self, packet: Packet[Any]) -> bool:
        """Return whether a packet may be decoded."""
        if self._most is not None and packet.size > self._most:
            return False
        if not self._is_flac:
            return True
        data = bytes(packet)
        marks = data.count(b"\xff\xf8") + data.count(b"\xff\xf9")
        return marks <= _FLAC_FRAMES + len(data) // _FLAC_BYTES_A_MARK
