"""Word times out of the path that aligns tokens to audio."""

from collections.abc import Sequence

import numpy as np

from engine_bridge.engines.protocol import ClipWord
from engine_bridge.engines.whisper_tokens import TokenWord

SECONDS_PER_STATE = 0.02
"""Audio that one encoder state stands for: two feature frames of 10 ms."""

ALIGNMENT_LAG = 0.08
"""How late attention turns to the next word, in seconds: the median over 2 405 words of eight recordings, against a
forced aligner that shares nothing with Whisper (bench/word_times.py; 0.08 to 0.09 in each recording, with tiny.en)."""


def words_from_alignment(
    words: Sequence[TokenWord],
    path: Sequence[tuple[int, int]],
    token_probabilities: Sequence[float],
    clip_seconds: float,
) -> list[ClipWord]:
    """Time words by a monotonic alignment path.

    Parameters
    ----------
    words : sequence of TokenWord
        The words in order; their tokens are the aligned ones, in order and complete.
    path : sequence of (token index, encoder state index)
        A path that never steps back in either index, as dynamic time warping gives it. A token starts at the first
        state on the path that belongs to it.
    token_probabilities : sequence of float
        One for each token, in [0, 1].
    clip_seconds : float
        Length of the clip; times are clamped to it.

    Returns
    -------
    list of ClipWord
        Ascending, not overlapping, texts with their leading spaces; earlier than the path by `ALIGNMENT_LAG`.

    """
    if not words or not path:
        return []
    token_indices, state_indices = np.asarray(path, dtype=np.int64).T
    count = sum(len(word.tokens) for word in words)
    # The first state of each token; the one after the last token (end of text) closes the last word.
    starts = state_indices[np.minimum(np.searchsorted(token_indices, np.arange(count + 1)), len(token_indices) - 1)]
    # CTranslate2 gives state -1 where a clip is too short to align.
    seconds = np.clip(starts * SECONDS_PER_STATE - ALIGNMENT_LAG, 0.0, clip_seconds)
    timed: list[ClipWord] = []
    first = 0
    for word in words:
        last = first + len(word.tokens)
        probability = float(np.mean(token_probabilities[first:last])) if last <= len(token_probabilities) else 0.0
        timed.append(ClipWord(float(seconds[first]), float(seconds[last]), word.text, probability))
        first = last
    return timed
