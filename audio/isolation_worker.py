"""The process that a decode runs in, when it is kept apart (see `audio.isolation`)."""

from __future__ import annotations

import math
import os
import pickle
import resource
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from audio.errors import AudioError
from audio.isolation_channel import receive, send
from audio.source import Source

_GRACE_SECONDS = 2.0
"""The caller notices first; this ends the worker where the caller is gone."""


def main() -> None:
    """Decode what the caller asks for, under its bounds, and end.

    The arguments are two descriptors, of the channel and of a file.
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    setup, request = receive(channel, None)
    try:
        open_there, options = pickle.loads(bytes(request))  # noqa: S301 - the caller's own
        _load_backends(setup["backend"])
        # Linux opens the same file afresh by this name, so that every reader has a position of its own.
        path = setup["path"] if setup["path"] is not None else f"/proc/self/fd/{sys.argv[2]}"
        source = Source(setup["name"], path=path, size=setup["size"])
        _bound_memory(setup["memory"])
        send(channel, {"kind": "ready"})
        _decode(channel, source, open_there, options, setup["seconds"])
    except AudioError as error:
        send(channel, {"kind": "error", "error": type(error).__name__, "arguments": [str(each) for each in error.args]})
    except MemoryError:
        reason = "decoding it takes more memory than allowed; raise max_memory_bytes of the Isolation if you trust it"
        send(channel, {"kind": "error", "error": "DecodeError", "arguments": [setup["name"], reason]})
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller has to hear of it
        reason = f"decoding it failed ({type(error).__name__}: {error})"
        send(channel, {"kind": "error", "error": "DecodeError", "arguments": [setup["name"], reason]})
    channel.close()
    os._exit(0)  # at once: nothing is left to do, and a library's own end may hang


def _load_backends(wanted: str) -> None:
    """Load the libraries before memory is bounded: what they take themselves is no cost of the file."""
    from audio.decoders import AUTO_ORDER, BACKENDS
    from audio.errors import BackendUnavailableError

    for name in AUTO_ORDER if wanted == "auto" else (wanted,):
        if wanted == "auto" and name == "torchcodec":
            BACKENDS[name].rule_out("it is not loaded for one file in a process of its own")
        try:
            BACKENDS[name].load()
        except (BackendUnavailableError, KeyError):
            continue  # the decode tells of it


def _bound_memory(size: int) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + size
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _decode(channel: socket.socket, source: Source, open_there: Any, options: dict[str, Any], seconds: float) -> None:
    """Open the source and send its blocks. The alarm ends the process, in the midst of native code as well."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    allowed = math.ceil(seconds + _GRACE_SECONDS)
    signal.alarm(allowed)
    with open_there(source, **options) as decoder:
        header = {"info": asdict(decoder.info), "doubt": decoder.doubt, "warnings": decoder.warnings}
        send(channel, {"kind": "open", **header})
        blocks = decoder.blocks()
        while True:
            signal.alarm(allowed)
            block = next(blocks, None)
            signal.alarm(0)
            if block is None:
                break
            # Waits here while the caller is busy, so the worker is never more than a block ahead.
            send(channel, {"kind": "block"}, np.ascontiguousarray(block).data.cast("B"))
        send(channel, {"kind": "end", "warnings": decoder.warnings})
