"""Which channel is which in formats whose library does not say."""

from __future__ import annotations

import struct

_FLAC = {1: "mono", 2: "stereo", 3: "3.0", 4: "quad", 5: "5.0", 6: "5.1", 7: "6.1", 8: "7.1"}
"""By number of channels (RFC 9639, table 15), in FFmpeg's names."""

# The speaker masks of WAVEFORMATEXTENSIBLE, in FFmpeg's names: bits in the order FL FR FC LFE BL BR FLC FRC BC SL SR.
_WAVE_MASKS = {
    0x00B: "2.1",
    0x007: "3.0",
    0x103: "3.0(back)",
    0x00F: "3.1",
    0x107: "4.0",
    0x10F: "4.1",
    0x033: "quad",
    0x603: "quad(side)",
    0x037: "5.0",
    0x607: "5.0(side)",
    0x03F: "5.1",
    0x60F: "5.1(side)",
    0x707: "6.0",
    0x70F: "6.1",
    0x13F: "6.1(back)",
    0x637: "7.0",
    0x63F: "7.1",
    0x0FF: "7.1(wide)",
}
_EXTENSIBLE = 0xFFFE
_FORM = struct.Struct("<H18xI")
"""The tag of a format chunk and, in its extensible form, the mask of its speakers."""


def flac_layout(channels: int) -> str | None:
    """Return FFmpeg's name for the layout of a FLAC stream of so many channels."""
    return _FLAC.get(channels)


def wave_layout(head: bytes) -> str | None:
    """Return FFmpeg's name for the layout that a WAV file states, or None if it states none that has a name.

    Parameters
    ----------
    head : bytes
        The beginning of the file, with its format chunk.

    """
    at = head.find(b"fmt ")
    if at < 0 or len(head) < at + 8 + _FORM.size:
        return None
    tag, mask = _FORM.unpack_from(head, at + 8)
    return _WAVE_MASKS.get(mask) if tag == _EXTENSIBLE else None
