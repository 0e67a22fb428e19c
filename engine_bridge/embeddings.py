"""An encoder's states in place of audio: their times, their checks, and files of them.

::

    engine = open_engine("embedded:tiny.en", enable_mm_embeds=True)
    save_embeddings("talk.safetensors", engine.encode(chunks))
    for embedding in load_embeddings("talk.safetensors"):
        result = engine.submit_embedding(embedding, DecodingOptions(timestamps="none")).result()

States are numbers that steer a decoder directly, so they are not taken unless an engine was opened for it, and never
without checks. Files hold nothing but numbers and text (safetensors); pickled objects, which can run code when they are
read, are refused unread.
"""

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from audio.positions import seconds_from_samples
from engine_bridge.errors import EmbeddingError, EngineUnavailableError, OutputError

FORMAT = "auricle-embeddings"
VERSION = "1"
"""What a file of embeddings calls itself."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class AudioEmbedding:
    """What an encoder made of one clip.

    Attributes
    ----------
    states : ndarray, shape (frames, hidden size), float32
        The encoder's states, with those over the padding behind a clip's end that the decoder expects.
    times : ndarray, shape (frames,), float64
        Where each state's audio starts, in seconds of the recording; over the padding, where the clip ends.
    clip_seconds : float
        Length of the audio that was encoded.
    start, stop : float
        The stretch of the recording that the clip stands for, in seconds.
    model : str
        The specification of the engine that encoded it; its states mean nothing to another model.

    """

    states: NDArray[np.float32]
    times: NDArray[np.float64]
    clip_seconds: float
    start: float
    stop: float
    model: str


def state_times(chunk: Chunk, states: int, samples_per_state: int) -> NDArray[np.float64]:
    """Return where each state's audio starts in the recording, in seconds; silence that was left out is skipped.

    Parameters
    ----------
    chunk : Chunk
        What was encoded.
    states : int
        How many states there are.
    samples_per_state : int
        How far apart they are, in samples at the chunk's rate.

    """
    rate, length = chunk.sample_rate, len(chunk.samples)
    positions = (chunk.recording_position(min(index * samples_per_state, length)) for index in range(states))
    return np.array([seconds_from_samples(position, rate) for position in positions], dtype=np.float64)


def checked_states(states: Any, *, frames: int, hidden_size: int) -> NDArray[np.float32]:
    """Return encoder states as float32, if they are what the model's decoder takes.

    Parameters
    ----------
    states : ndarray or torch.Tensor
        Of floating point numbers.
    frames, hidden_size : int
        The shape that the model takes.

    Raises
    ------
    EmbeddingError
        If they have another rank, length or width, are no floating point numbers, or hold NaN or infinity.

    """
    if hasattr(states, "detach"):  # a torch tensor, told without importing torch; numpy has no bfloat16
        states = states.detach().cpu().float().numpy()
    if not isinstance(states, np.ndarray):
        raise EmbeddingError(
            f"an embedding of type {type(states).__name__} holds no encoder states; give a float32 array (frames, size)"
        )
    if states.dtype.name not in _FLOATS:
        raise EmbeddingError(f"an embedding of type {states.dtype} holds no encoder states; give it as float32")
    if states.ndim != 2:
        raise EmbeddingError(
            f"an embedding of shape {states.shape} has {states.ndim} dimensions; give one clip as (frames, hidden size)"
        )
    if states.shape[1] != hidden_size:
        raise EmbeddingError(
            f"an embedding of shape {states.shape} has a hidden size of {states.shape[1]}, but the model takes "
            f"{hidden_size}; encode the audio with this model"
        )
    if states.shape[0] != frames:
        raise EmbeddingError(
            f"an embedding of shape {states.shape} has {states.shape[0]} frames, but the model takes {frames}; keep "
            "the states over the padding"
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
        converted = np.ascontiguousarray(states, dtype=np.float32)
    if not np.isfinite(converted).all():
        raise EmbeddingError("an embedding holds NaN or infinity; encode the audio again")
    return converted


def save_embeddings(path: str | os.PathLike[str], embeddings: Iterable[AudioEmbedding]) -> Path:
    """Write embeddings to a safetensors file, whole or not at all; return its path.

    Raises
    ------
    EngineUnavailableError
        If safetensors is not installed.
    OutputError
        If the file cannot be written.

    """
    safetensors = _safetensors()
    arrays: dict[str, NDArray[Any]] = {}
    clips: list[dict[str, Any]] = []
    for index, embedding in enumerate(embeddings):
        arrays[f"states.{index}"] = np.ascontiguousarray(embedding.states, dtype=np.float32)
        arrays[f"times.{index}"] = np.ascontiguousarray(embedding.times, dtype=np.float64)
        clips.append(
            {
                "clip_seconds": embedding.clip_seconds,
                "start": embedding.start,
                "stop": embedding.stop,
                "model": embedding.model,
            }
        )
    content = safetensors.save(arrays, {"format": FORMAT, "version": VERSION, "clips": json.dumps(clips)})
    target = Path(path)
    temporary = target.with_name(f".auricle-{secrets.token_hex(8)}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(
            f"{target}: it cannot be written ({error.strerror}); name a folder you can write to"
        ) from error
    return target


def load_embeddings(path: str | os.PathLike[str]) -> list[AudioEmbedding]:
    """Read embeddings from a file that `save_embeddings` wrote.

    Raises
    ------
    EmbeddingError
        If the file is none of these, or is damaged; nothing in it is ever run.
    EngineUnavailableError
        If safetensors is not installed.

    """
    safetensors = _safetensors()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise EmbeddingError(f"{path}: it cannot be read ({error.strerror}); check the path") from error
    try:
        clips = _described_clips(content)
        arrays = safetensors.load(content)
        return [_embedding(arrays, index, clip) for index, clip in enumerate(clips)]
    except Exception as error:
        raise EmbeddingError(
            f"{path}: it is no file of embeddings that can be read here ({type(error).__name__}: {error}); "
            "encode the audio again"
        ) from error


def _described_clips(content: bytes) -> list[dict[str, Any]]:
    """Return what a file says of its clips, from its header: an 8-byte length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    if length > len(content) - 8:
        raise ValueError("its header does not fit into it")
    texts = json.loads(content[8 : 8 + length])["__metadata__"]
    if (texts["format"], texts["version"]) != (FORMAT, VERSION):
        raise ValueError(f"it calls itself {texts['format']} {texts['version']}")
    clips = json.loads(texts["clips"])
    if not isinstance(clips, list):
        raise TypeError("its header lists no clips")
    return clips


def _embedding(arrays: Mapping[str, NDArray[Any]], index: int, clip: Mapping[str, Any]) -> AudioEmbedding:
    states, times = arrays[f"states.{index}"], arrays[f"times.{index}"]
    if states.ndim != 2 or times.shape != states.shape[:1]:
        raise ValueError(f"clip {index} has states of shape {states.shape} at times of shape {times.shape}")
    return AudioEmbedding(
        states=checked_states(states, frames=states.shape[0], hidden_size=states.shape[1]),
        times=np.asarray(times, dtype=np.float64),
        clip_seconds=float(clip["clip_seconds"]),
        start=float(clip["start"]),
        stop=float(clip["stop"]),
        model=str(clip["model"]),
    )


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except (ImportError, OSError) as error:
        raise EngineUnavailableError(
            f"files of embeddings take safetensors, which cannot load here: {error}. "
            "Install it with: pip install 'auricle[embeddings]'"
        ) from error
    return safetensors.numpy
