"""Messages between a decode and the process that it runs in: a header in JSON, then raw bytes."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

_LENGTHS = struct.Struct("<II")
_MOST_HEADER = 1 << 24
_MOST_PAYLOAD = 1 << 28
"""One second of 64 channels at 768 kHz is under 200 MB."""


class Ended(Exception):  # noqa: N818 - it is no error as such
    """The other side has gone."""


def send(channel: socket.socket, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
    """Send one message, and wait until the other side has taken it.

    Parameters
    ----------
    channel : socket
        One end of a pair.
    header : dict
        What JSON can say.
    payload : bytes-like
        Raw bytes.

    Raises
    ------
    OSError
        The other side has gone.

    """
    text = json.dumps(header).encode()
    channel.settimeout(None)
    channel.sendall(_LENGTHS.pack(len(text), len(payload)) + text)
    if len(payload):
        channel.sendall(payload)


def receive(channel: socket.socket, seconds: float | None) -> tuple[dict[str, Any], bytearray]:
    """Return the next message: its header and its raw bytes.

    Parameters
    ----------
    channel : socket
        One end of a pair.
    seconds : float or None
        How long it may take to come, as a whole; None waits for ever.

    Raises
    ------
    TimeoutError
        It took longer.
    Ended
        The other side has gone, or what it sent is no message.

    """
    end = None if seconds is None else time.monotonic() + seconds
    header, payload = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size, end))
    if header > _MOST_HEADER or payload > _MOST_PAYLOAD:
        raise Ended
    try:
        fields = json.loads(bytes(_exactly(channel, header, end)))
    except ValueError:
        raise Ended from None
    if not isinstance(fields, dict):
        raise Ended
    return fields, _exactly(channel, payload, end)


def _exactly(channel: socket.socket, size: int, end: float | None) -> bytearray:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        if end is not None:
            channel.settimeout(max(end - time.monotonic(), 1e-3))
        try:
            got = channel.recv_into(view[filled:])
        except TimeoutError:
            raise
        except OSError:
            raise Ended from None
        if got == 0:
            raise Ended
        filled += got
    view.release()
    return data
