"""What engines that encode have in common: what they let in, and chunk after chunk through the encoder."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from engine_bridge.embeddings import AudioEmbedding, checked_states, state_times
from engine_bridge.errors import EmbeddingError
from engine_bridge.levels import level_speech
from engine_bridge.models.info import AudioModelInfo
from engine_bridge.models.limits import allowance


class Intake:
    """What an engine lets in: audio unless it is turned off, embeddings where they are enabled and sound.

    Parameters
    ----------
    spec : str
        The engine's specification, for messages.
    info : AudioModelInfo
        The model.
    limit_mm_per_prompt : mapping or None
        ``{"audio": 0}`` turns audio off.
    enable_mm_embeds : bool
        Whether embeddings are taken in place of audio.

    Raises
    ------
    UnsupportedOptionError
        If the limit is not one that the model can keep to.

    """

    def __init__(
        self, spec: str, info: AudioModelInfo, limit_mm_per_prompt: Mapping[str, int] | None, *, enable_mm_embeds: bool
    ) -> None:
        self._spec = spec
        self._allowance = allowance(info, limit_mm_per_prompt, enable_mm_embeds=enable_mm_embeds)

    def check_audio(self) -> None:
        """Raise UnsupportedOptionError if audio is turned off."""
        self._allowance.check(self._spec, waveforms=1)

    def admitted(self, embedding: AudioEmbedding, shape: Callable[[], tuple[int, int]]) -> NDArray[np.float32]:
        """Return an embedding's states, shape (frames, hidden size), if the engine may be given them.

        Parameters
        ----------
        embedding : AudioEmbedding
            Of the same model as the engine's.
        shape : callable
            Tells the shape that the model takes; not asked where embeddings are not enabled.

        Raises
        ------
        UnsupportedOptionError
            If embeddings are not enabled.
        EmbeddingError
            If the embedding is another model's, or its states are not what the decoder takes.

        """
        self._allowance.check(self._spec, embeddings=1)
        if not isinstance(embedding, AudioEmbedding):
            raise EmbeddingError(
                f"{self._spec} takes an AudioEmbedding, not {type(embedding).__name__}: encode audio, or load a file"
            )
        if embedding.model != self._spec:
            raise EmbeddingError(
                f"{self._spec} cannot use the states of {embedding.model}: encode the audio with this engine"
            )
        frames, hidden_size = shape()
        return checked_states(embedding.states, frames=frames, hidden_size=hidden_size)


def encoded_chunks(
    chunks: Iterable[Chunk],
    submit: "Callable[[NDArray[np.float32]], Future[Any]]",
    *,
    in_flight: int,
    samples_per_state: int,
    model: str,
) -> Iterator[AudioEmbedding]:
    """Yield the encoder's states of each chunk in turn, with a bounded number of those after it at work.

    Parameters
    ----------
    chunks : iterable of Chunk
        At the model's sample rate. Quiet speech is raised first, as before recognition.
    submit : callable
        Hands one clip to the encoder.
    in_flight : int
        The most clips at work at once.
    samples_per_state : int
        How far apart states are.
    model : str
        The engine's specification, kept with the states.

    """
    waiting: deque[tuple[Chunk, Future[Any]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, submit(level_speech(chunk))))
            if len(waiting) >= in_flight:
                yield _finished(*waiting.popleft(), samples_per_state, model)
        while waiting:
            yield _finished(*waiting.popleft(), samples_per_state, model)
    finally:
        for _, future in waiting:
            future.cancel()


def _finished(chunk: Chunk, future: "Future[Any]", samples_per_state: int, model: str) -> AudioEmbedding:
    states = future.result()
    return AudioEmbedding(
        states=states,
        times=state_times(chunk, len(states), samples_per_state),
        clip_seconds=len(chunk.samples) / chunk.sample_rate,
        start=chunk.start_seconds,
        stop=chunk.stop_seconds,
        model=model,
    )
