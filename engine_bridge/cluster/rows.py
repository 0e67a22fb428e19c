"""How the messages of a job on a cluster travel, and how a journal keeps them.

Each row of a Ray dataset carries one message, pickled, as Ray's own transport does between processes of one cluster.
What a journal keeps of them is JSON: a file on disk is not to be trusted with code.
"""

import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from audio.chunk import Chunk
from engine_bridge.cluster.messages import Heard, Message, Piece
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.transcript import Gap, Segment, Word

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE = "message"
"""Name of the datasets' only column."""

_FULL_SCALE = 1 << 15


def packed(message: Message) -> dict[str, bytes]:
    """Return the row that carries a message. Samples of 16 bits travel as these: half as much, and the same."""
    if isinstance(message, Piece):
        message = replace(message, chunk=_narrowed(message.chunk), seam=_narrowed(message.seam))
    return {MESSAGE: pickle.dumps(message, protocol=5)}


def unpacked(row: Mapping[str, Any]) -> Any:
    """Return the message that a row carries."""
    message = pickle.loads(row[MESSAGE])  # noqa: S301 - between processes of one cluster, as Ray's own
    if isinstance(message, Piece):
        message = replace(message, chunk=_widened(message.chunk), seam=_widened(message.seam))
    return message


def messages_of(rows: "pa.Table") -> list[Any]:
    """Return the messages that an Arrow table of rows carries."""
    return [unpacked({MESSAGE: item.as_py()}) for item in rows.column(MESSAGE)]


def rows_of(messages: Iterable[Message]) -> "pa.Table":
    """Return the Arrow table of rows that carries messages."""
    import pyarrow as pa

    return pa.table({MESSAGE: pa.array([packed(message)[MESSAGE] for message in messages], pa.binary())})


def _narrowed(chunk: Chunk | None) -> Any:
    """Return the chunk with samples of 16 bits, if they are as many."""
    if chunk is None:
        return None
    scaled = chunk.samples * np.float32(_FULL_SCALE)
    whole = scaled.astype(np.int16) if len(scaled) and np.abs(scaled).max() < _FULL_SCALE else None
    if whole is None or not np.array_equal(whole, scaled):
        return chunk
    return replace(chunk, samples=whole)  # type: ignore[arg-type]  # only while it travels


def _widened(chunk: Any) -> Any:
    if chunk is None or chunk.samples.dtype == np.float32:
        return chunk
    return replace(chunk, samples=chunk.samples.astype(np.float32) / np.float32(_FULL_SCALE))


def as_json(heard: Heard) -> bytes:
    """Return what a journal keeps of a chunk; floats come back as they were."""
    kept = {"stop": heard.stop_seconds, "seconds": heard.seconds, "outcome": heard.outcome, "seam": heard.seam}
    # `asdict` would copy each word, which takes most of the time that a job's own process has.
    return json.dumps(kept, separators=(",", ":"), default=vars).encode()


def from_json(text: bytes, number: int, part: int, index: int) -> Heard:
    """Return what `as_json` wrote of a chunk."""
    kept = json.loads(text)
    seam = None if kept["seam"] is None else _outcome(kept["seam"])
    return Heard(number, part, index, kept["stop"], kept["seconds"], _outcome(kept["outcome"]), seam)


def _outcome(kept: Mapping[str, Any]) -> Outcome:
    return Outcome(
        tuple(
            Segment(**{**segment, "words": tuple(Word(**word) for word in segment["words"])})
            for segment in kept["segments"]
        ),
        tuple(Gap(**gap) for gap in kept["gaps"]),
    )
