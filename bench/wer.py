"""Word error rate, counted the way published Whisper figures are: normalised text, then edit distance on words."""

import math
from functools import cache
from typing import NamedTuple

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer


class WordErrors(NamedTuple):
    """How far a text is from its reference.

    `wer` is (substitutions + deletions + insertions) / `words`, where `words` counts the normalised reference.
    Without a word in the reference it is 0 for an empty text and infinite for any other.
    """

    wer: float
    substitutions: int
    deletions: int
    insertions: int
    words: int


@cache
def _normalizer(language: str) -> EnglishTextNormalizer | BasicTextNormalizer:
    return EnglishTextNormalizer() if language == "en" else BasicTextNormalizer()


def word_errors(reference: str, hypothesis: str, *, language: str = "en") -> WordErrors:
    """Count the word errors of `hypothesis` against `reference`.

    English goes through Whisper's English normaliser (spelling, numbers, contractions), other languages through
    its basic one (case and punctuation).
    """
    normalize = _normalizer(language)
    expected, heard = normalize(reference).split(), normalize(hypothesis).split()
    if not expected:
        return WordErrors(math.inf if heard else 0.0, 0, 0, len(heard), 0)
    counts = jiwer.process_words(" ".join(expected), " ".join(heard))
    errors = counts.substitutions + counts.deletions + counts.insertions
    return WordErrors(errors / len(expected), counts.substitutions, counts.deletions, counts.insertions, len(expected))
