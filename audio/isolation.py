"""Decoding in a process of its own: a crash, a hang or a flood of memory costs one file.

Codecs are large programs in C that read what strangers wrote. Limits bound what they give; nothing within a process
bounds what they do. Here they run in a worker process, one to a file, with bounds on memory and on the time of each
block. The worker is a new interpreter, never a fork: it has none of the caller's threads, locks or memory. It talks in
JSON and raw samples, so that nothing it sends can run code in the caller.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from signal import Signals
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from audio import errors
from audio.decoders.base import DecoderBase
from audio.decoders.protocol import Block
from audio.errors import AudioError, DecodeError
from audio.info import AudioInfo, StreamInfo
from audio.isolation_channel import Ended, receive, send
from audio.limits import DecodeLimits
from audio.source import READ_SIZE, Source

if TYPE_CHECKING:
    from audio.decoders.protocol import Decoder

_START_SECONDS = 60.0
"""A worker that has not answered by then never will, be the machine as busy as it may."""

_ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, AudioError)}
"""What a worker may say went wrong."""


@dataclass(frozen=True)
class Isolation:
    """Bounds on a worker process.

    Attributes
    ----------
    max_memory_bytes : int
        Address space that a decode may take beyond what the worker's libraries take.
    max_block_seconds : float
        Time for opening the source, and then for each block.

    Raises
    ------
    ValueError
        A bound is not above 0.

    """

    max_memory_bytes: int = 1 << 30
    max_block_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} is {value!r}; give a number above 0")


class IsolatedDecoder(DecoderBase):
    """A decoder whose work is done by another process.

    Closing it ends the process. Its warnings are complete when the blocks are exhausted.

    Parameters
    ----------
    source : Source
        What to decode; not an array. What is not a file on disk is copied to an unnamed one.
    isolation : Isolation
        The bounds.
    open_there : callable
        A function of a module, called in the worker with a source and `options`; it gives the decoder.
    options : dict
        Its keyword arguments; they are pickled.

    Raises
    ------
    AudioError
        What `open_there` raised in the worker.
    DecodeError
        The worker ended or took longer than it may.

    """

    def __init__(
        self, source: Source, isolation: Isolation, open_there: Callable[..., Decoder], options: dict[str, Any]
    ) -> None:
        self._name = source.name
        self._limits: DecodeLimits = options.get("limits") or DecodeLimits()
        self._isolation = isolation
        file = _copy(source) if source.path is None else None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _started(theirs.fileno(), file.fileno() if file is not None else None)
        self._socket = ours
        self._finalizer = weakref.finalize(self, _end, self._process, ours, file)
        try:
            self._send_request(source, open_there, options)
            self._expect("ready", _START_SECONDS)
            header = self._expect("open", isolation.max_block_seconds)
        except BaseException:
            self.close()
            raise
        super().__init__(_info_of(header["info"]), header["doubt"])
        self._warnings.extend(header["warnings"])

    def _send_request(self, source: Source, open_there: Callable[..., Decoder], options: dict[str, Any]) -> None:
        setup = {
            "name": source.name,
            "path": source.path,
            "size": source.size,
            "memory": self._isolation.max_memory_bytes,
            "seconds": self._isolation.max_block_seconds,
            "backend": options.get("backend", "auto"),
        }
        try:
            send(self._socket, setup, pickle.dumps((open_there, options)))
        except OSError as error:
            raise DecodeError(self._name, "the process that was to decode it did not start; try again") from error

    def _expect(self, kind: str, seconds: float) -> dict[str, Any]:
        header, _ = self._answer(seconds)
        if header.get("kind") != kind:
            raise DecodeError(self._name, "the process that decodes it gave a wrong answer")
        return header

    def _answer(self, seconds: float) -> tuple[dict[str, Any], bytearray]:
        """Return the worker's next message, or raise what it says or what became of it."""
        try:
            header, payload = receive(self._socket, seconds)
        except TimeoutError:
            self.close()
            raise DecodeError(
                self._name, f"decoding hung for {seconds:g} s and was ended; the file is damaged, or meant to do harm"
            ) from None
        except Ended:
            raise DecodeError(self._name, self._fate()) from None
        if header.get("kind") == "error":
            raise _error_of(header, self._name)
        return header, payload

    def _fate(self) -> str:
        """Return what ended the worker."""
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "the process that decodes it stopped talking"
        if code == -Signals.SIGALRM:
            seconds = self._isolation.max_block_seconds
            return f"decoding hung for {seconds:g} s and was ended; the file is damaged, or meant to do harm"
        cause = f"signal {Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"the decoder crashed on it ({cause}); the file is damaged, or meant to do harm"

    def blocks(self) -> Iterator[Block]:
        """Yield the audio.

        Raises
        ------
        DecodeError
            The worker crashed, hung or took too much memory. What was yielded before is good.

        """
        rate, channels, frames = self._info.sample_rate, self._info.channels, 0
        while True:
            header, payload = self._answer(self._isolation.max_block_seconds)
            if header.get("kind") == "end":
                self._warnings[:] = [str(each) for each in header.get("warnings", ())]
                self.close()
                return
            if header.get("kind") != "block" or not payload or len(payload) % (4 * channels):
                raise DecodeError(self._name, "the process that decodes it gave a wrong answer")
            block = np.frombuffer(payload, np.float32).reshape(-1, channels)
            frames += len(block)
            self._limits.check_decoded(self._name, frames, rate, channels)  # the worker may be under a file's control
            yield block

    def close(self) -> None:
        """End the worker and let go of the source."""
        self._finalizer()


def open_isolated(
    source: Source, isolation: Isolation, open_there: Callable[..., Decoder] | None = None, **options: Any
) -> IsolatedDecoder:
    """Begin to decode a source in a process of its own.

    In it, `auto` is soundfile, then PyAV: torchcodec would cost seconds and gigabytes of address space to load for each
    file, and reads nothing that PyAV does not. By name it is used as well.

    Parameters
    ----------
    source : Source
        What to decode; not an array.
    isolation : Isolation
        The bounds on memory and time.
    open_there : callable, optional
        What gives the decoder in the worker; `audio.decoders.open_decoder` by default.
    **options
        Its keyword arguments.

    Returns
    -------
    IsolatedDecoder
        A context manager, as `open_decoder` returns.

    """
    if open_there is None:
        from audio.decoders import open_decoder

        open_there = open_decoder
    return IsolatedDecoder(source, isolation, open_there, options)


def _copy(source: Source) -> IO[bytes]:
    """Return an unnamed file with the source's bytes."""
    copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the decoder
    with source.open() as reader:
        while data := reader.read(READ_SIZE):
            copy.write(data)
    copy.flush()
    return copy


def _started(channel: int, file: int | None) -> subprocess.Popen[bytes]:
    """Start an interpreter that finds the modules that this one finds."""
    code = "import sys; sys.path[:] = sys.argv[3:]; import audio.isolation_worker as worker; worker.main()"
    descriptors = (channel,) if file is None else (channel, file)
    arguments = [str(channel), str(file if file is not None else -1), *sys.path]
    return subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-c", code, *arguments],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes], channel: socket.socket, file: IO[bytes] | None) -> None:
    channel.close()
    if file is not None:
        file.close()
    process.kill()
    process.wait()


def _info_of(fields: dict[str, Any]) -> AudioInfo:
    streams = tuple(StreamInfo(**each) for each in fields.pop("streams"))
    return AudioInfo(streams=streams, **fields)


def _error_of(header: dict[str, Any], name: str) -> AudioError:
    kind = _ERRORS.get(str(header.get("error")), DecodeError)
    arguments = [str(each) for each in header.get("arguments", ())]
    try:
        return kind(*arguments)
    except TypeError:
        return DecodeError(name, "; ".join(arguments) or "it cannot be decoded")
