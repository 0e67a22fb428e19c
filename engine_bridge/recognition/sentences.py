"""Segments out of timed words: one for each sentence, or less where a sentence is long or broken by a pause."""

from collections.abc import Sequence

from engine_bridge.engines.protocol import ClipWord

SENTENCE_ENDS = (".", "?", "!", "\u2026", "\u3002", "\uff1f", "\uff01", "\u0964", "\u06d4")
"""Marks that end a sentence: Latin, ellipsis, Chinese and Japanese, Devanagari, Arabic."""

LONGEST_PAUSE = 0.5
PAUSE_OF_PHRASE = 0.18
PAUSE_AT_MARK = 0.1
"""Seconds of silence between two words that end a segment: between any two, between phrases, and where a clause ends.
Subtitles and readers want phrases, not paragraphs."""

PHRASE_WORDS = 3
"""A phrase has at least so many words on either side of a short pause: people also stop in one to think."""

LONGEST_SENTENCE = 15.0
"""Seconds after which a sentence is broken at a mark or at the widest pause."""

CLAUSE_ENDS = (",", ";", ":", "\u3001", "\uff0c")
"""Marks that end a clause within a sentence."""

_ABBREVIATIONS = frozenset({"mr.", "mrs.", "ms.", "dr.", "st.", "prof.", "vs.", "e.g.", "i.e.", "no."})


def sentences_from_words(words: Sequence[ClipWord]) -> list[list[ClipWord]]:
    """Group timed words, ascending in time, into sentences.

    A sentence ends after a mark that ends sentences, before a pause of more than half a second, or less where a clause
    or a phrase ends, and where it would grow longer than 15 s.
    """
    sentences: list[list[ClipWord]] = []
    current: list[ClipWord] = []
    for index, word in enumerate(words):
        if current and word.start - current[-1].end > _longest_pause(current, words[index:]):
            sentences += _shortened(current)
            current = []
        current.append(word)
        if ends_sentence(word.text):
            sentences += _shortened(current)
            current = []
    if current:
        sentences += _shortened(current)
    return sentences


def _longest_pause(before: Sequence[ClipWord], after: Sequence[ClipWord]) -> float:
    """Return how long a pause there may be after some words without ending their segment."""
    if before[-1].text.rstrip().endswith(CLAUSE_ENDS):
        return PAUSE_AT_MARK
    ahead = after[:PHRASE_WORDS]
    phrase = len(before) >= PHRASE_WORDS and len(ahead) == PHRASE_WORDS
    return PAUSE_OF_PHRASE if phrase and not any(ends_sentence(word.text) for word in ahead[:-1]) else LONGEST_PAUSE


def ends_sentence(text: str) -> bool:
    """Return whether a word ends a sentence: it carries such a mark, and is no initial and no abbreviation."""
    bare = text.strip().rstrip("\"'\u201d)]")
    if not bare.endswith(SENTENCE_ENDS):
        return False
    initial = len(bare) == 2 and bare[0].isupper()
    return not initial and bare.lower() not in _ABBREVIATIONS


def _shortened(words: list[ClipWord]) -> list[list[ClipWord]]:
    if words[-1].end - words[0].start <= LONGEST_SENTENCE or len(words) == 1:
        return [words]
    at = _best_break(words)
    return _shortened(words[:at]) + _shortened(words[at:])


def _best_break(words: Sequence[ClipWord]) -> int:
    """Return where to break a long run: after a comma or the widest pause, near the middle rather than at the ends."""
    middle = (words[0].start + words[-1].end) / 2
    half = (words[-1].end - words[0].start) / 2

    def merit(index: int) -> float:
        before, after = words[index - 1], words[index]
        pause = after.start - before.end
        mark = 0.5 if before.text.rstrip().endswith(CLAUSE_ENDS) else 0.0
        centred = 1.0 - abs(after.start - middle) / half
        return pause + mark + centred

    return max(range(1, len(words)), key=merit)
