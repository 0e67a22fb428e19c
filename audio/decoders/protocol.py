"""The shape of a decoder and of the backend that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from audio.info import AudioInfo
from audio.selection import EVERYTHING, Selection
from audio.source import Source

Block = NDArray[np.float32]
"""Decoded audio: shape (frames, channels), float32, nominally in [-1, 1]. Its memory may be in either order, as the
library gives it: planes of one channel each, or frames."""


class Decoder(Protocol):
    """One source being decoded, from its beginning to its end, once.

    Attributes
    ----------
    info : AudioInfo
        What the source claims; its `sample_rate` and `channels` hold for every block.
    warnings : list of str
        What the listener should know: packets skipped, changes within the stream, claims that proved false. It is
        complete when the blocks are exhausted.
    doubt : str or None
        A known weakness of the backend with this source. `auto` then prefers a backend without one.

    """

    @property
    def info(self) -> AudioInfo:
        """What the source claims."""
        ...

    @property
    def warnings(self) -> list[str]:
        """What went wrong so far, one sentence each."""
        ...

    @property
    def doubt(self) -> str | None:
        """Why this backend is known to give less of this source than another one would; None if it is not."""
        ...

    def blocks(self) -> Iterator[Block]:
        """Yield the audio in order. No block is empty or longer than a second.

        Raises
        ------
        DecodeError
            The backend cannot go on. What was yielded before is good.

        """
        ...

    def enter(self, selection: Selection) -> bool:
        """Go to the beginning of another range of the same track, or somewhat before, and return whether that is done.

        `info` then tells where that is, and `blocks` begins there. It may be called when the blocks that were asked for
        before are no longer read. After False the decoder is of no more use; opening the source anew is.

        Raises
        ------
        SelectionError
            The recording ends before the range begins.

        """
        ...

    def close(self) -> None:
        """Let go of the source. It may be called at any time and more than once."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Backend(Protocol):
    """A library that decodes.

    Attributes
    ----------
    name : str
        The name it is chosen by.
    remedy : str
        A sentence that tells how to get it.

    """

    name: str
    remedy: str

    def load(self) -> None:
        """Make sure that the library works here, by using it. The verdict is kept for the life of the process.

        Raises
        ------
        BackendUnavailableError
            It does not.

        """
        ...

    def rule_out(self, reason: str) -> None:
        """Treat the library as one that does not work here, for the life of the process."""
        ...

    def open(self, source: Source, selection: Selection = EVERYTHING) -> Decoder:
        """Begin to decode a source.

        Parameters
        ----------
        source : Source
            What to decode.
        selection : Selection
            The part of it that is wanted. The decoder may begin before a range, at its `AudioInfo.offset`, and goes
            on to the end: `audio.decoders.ranges` cuts.

        Raises
        ------
        BackendUnavailableError
            The library does not work here.
        NoAudioStreamError
            The container is valid and holds no audio that can be decoded.
        SelectionError
            The wanted track is not in it, or this backend cannot tell.
        UnreadableAudioError
            This backend cannot read it.

        """
        ...
