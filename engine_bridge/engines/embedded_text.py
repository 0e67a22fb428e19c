"""From the encoder's states to text with times, on CTranslate2."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_bridge.engines.protocol import ClipResult, ClipSegment, DecodingOptions
from engine_bridge.engines.whisper_tokens import MAX_CONTEXT_TOKENS, WhisperTokens
from engine_bridge.engines.word_times import words_from_alignment
from engine_bridge.features import HOP_FRAMES, SAMPLE_RATE
from engine_bridge.timing import ALIGN, DECODE_TEXT, TimingContext

DOUBTFUL_LOG_PROBABILITY = -0.12
"""A text whose tokens have less than this mean log probability, a mean probability of 0.89, is searched for again.

Chosen among -0.2 to -0.1, and always, by what eighteen recordings of seven minutes gave with tiny.en. A beam of 5 for
the quarter of the clips below it made word errors 1.88 % to 1.78 % on eight and 3.6 % to 3.0 % on ten; for all clips
1.76 % and 3.2 %. On six more of the same voice, of other texts, which had no part in the choice, 4.2 % became 3.8 %,
and 3.4 % with a beam for all clips. Single recordings may lose: an Opus version of one of the eight has 2.41 % with it
and 2.16 % without.
"""


class TextDecoder:
    """Writes the text of encoded clips, and times it.

    Parameters
    ----------
    model : ctranslate2.models.Whisper
        Safe to use from several threads.
    tokens : WhisperTokens
        The model's vocabulary.
    timing : TimingContext
        Where the time for text and alignment is counted.
    align_together : int
        Most clips whose words are aligned in one call.
    search_together : int
        Most clips for which a beam is searched in one call: each holds as many texts as the beam is wide.

    """

    def __init__(
        self,
        model: Any,
        tokens: WhisperTokens,
        timing: TimingContext,
        *,
        align_together: int,
        search_together: int,
    ) -> None:
        from ctranslate2 import StorageView

        self._storage = StorageView
        self._model = model
        self._tokens = tokens
        self._timing = timing
        self._aligned_together = align_together
        self._searched_together = search_together

    def decode(
        self, encoded: NDArray[Any], frames: Sequence[int], language: str, options: DecodingOptions
    ) -> list[ClipResult]:
        """Return what is said in each clip.

        Parameters
        ----------
        encoded : ndarray, shape (clips, states, hidden size)
            The encoder's states.
        frames : sequence of int
            Each clip's samples.
        language : str
            ISO 639-1 code, the same for all.
        options : DecodingOptions
            How they are to be recognised, the same for all.

        """
        encoded = np.ascontiguousarray(encoded)
        with self._timing.stage(DECODE_TEXT):
            outputs = self.written(encoded, language, options, options.beam_size)
            if options.doubt_beam_size > options.beam_size:
                self._search_again(outputs, encoded, language, options)
        tokens = [list(output.sequences_ids[0]) for output in outputs]
        if options.timestamps == "tokens":
            segments = [
                self._tokens.segments(written, length / SAMPLE_RATE)
                for written, length in zip(tokens, frames, strict=True)
            ]
        elif options.timestamps == "none":
            segments = [self._one_segment(written, length) for written, length in zip(tokens, frames, strict=True)]
        else:
            with self._timing.stage(ALIGN):
                segments = self._aligned(encoded, frames, tokens, language, options.task)
        return [
            ClipResult(
                segments=found,
                language=language,
                average_log_probability=float(output.scores[0]),
                no_speech_probability=float(output.no_speech_prob),
            )
            for found, output in zip(segments, outputs, strict=True)
        ]

    def written(
        self,
        encoded: NDArray[Any],
        language: str,
        options: DecodingOptions,
        beam_size: int,
        max_tokens: int = MAX_CONTEXT_TOKENS,
    ) -> list[Any]:
        """Return CTranslate2's result for each clip.

        Parameters
        ----------
        encoded : ndarray, shape (clips, states, hidden size)
            The encoder's states.
        language : str
            ISO 639-1 code, the same for all.
        options : DecodingOptions
            How they are to be recognised, the same for all.
        beam_size : int
            Texts that are followed side by side, 1 for greedy search.
        max_tokens : int
            Where a text ends at the latest, in tokens.

        """
        sampling = {"sampling_topk": 0, "sampling_temperature": options.temperature} if options.temperature > 0 else {}
        together = len(encoded) if beam_size == 1 else self._searched_together
        outputs: list[Any] = []
        for first in range(0, len(encoded), together):
            group = encoded[first : first + together]
            outputs += self._model.generate(
                self._storage.from_array(group),
                [self._tokens.prompt(language, options)] * len(group),
                beam_size=beam_size,
                max_length=max_tokens,
                return_scores=True,
                return_no_speech_prob=True,
                **sampling,
            )
        return outputs

    def _search_again(self, outputs: list[Any], encoded: NDArray[Any], language: str, options: DecodingOptions) -> None:
        """Put a wider search's text in the place of a doubtful one, where it is likelier.

        Where the first search found no text there is no doubt: a beam finds some in every noise.
        """
        doubtful = [
            index
            for index, output in enumerate(outputs)
            if output.scores[0] < DOUBTFUL_LOG_PROBABILITY and self._tokens.text_tokens(output.sequences_ids[0])
        ]
        if not doubtful:
            return
        searched = self.written(encoded[doubtful], language, options, options.doubt_beam_size)
        for index, output in zip(doubtful, searched, strict=True):
            if output.scores[0] > outputs[index].scores[0]:
                outputs[index] = output

    def _one_segment(self, tokens: Sequence[int], frames: int) -> tuple[ClipSegment, ...]:
        text = self._tokens.decode(tokens).strip()
        return (ClipSegment(0.0, frames / SAMPLE_RATE, text),) if text else ()

    def _aligned(
        self,
        encoded: NDArray[Any],
        frames: Sequence[int],
        tokens: Sequence[Sequence[int]],
        language: str,
        task: str,
    ) -> list[tuple[ClipSegment, ...]]:
        """Time the words of decoded clips by the decoder's attention; on a CPU each alone, so that no other tells."""
        texts = [self._tokens.text_tokens(written) for written in tokens]
        spoken = [index for index, text in enumerate(texts) if text]
        segments: list[tuple[ClipSegment, ...]] = [()] * len(texts)
        alignments = [
            alignment
            for group in (
                spoken[at : at + self._aligned_together] for at in range(0, len(spoken), self._aligned_together)
            )
            for alignment in self._model.align(
                self._storage.from_array(encoded[group]),
                self._tokens.start_sequence(language, task),
                [texts[index] for index in group],
                [max(2, frames[index] // HOP_FRAMES) for index in group],
            )
        ]
        for index, alignment in zip(spoken, alignments, strict=True):
            words = words_from_alignment(
                self._tokens.words(texts[index], language),
                alignment.alignments,
                alignment.text_token_probs,
                frames[index] / SAMPLE_RATE,
            )
            segments[index] = (
                ClipSegment(words[0].start, words[-1].end, self._tokens.decode(texts[index]).strip(), tuple(words)),
            )
        return segments
