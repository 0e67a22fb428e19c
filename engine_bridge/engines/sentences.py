"""Segments out of timed words: one for each sentence, or less where a sentence is long or broken by a pause."""

from collections.abc import Sequence

from engine_bridge.engines.protocol import ClipSegment, ClipWord

SENTENCE_ENDS = (".", "?", "!", "…", "。", "?", "!", "।", "۔")
"""Marks that end a sentence."""

LONGEST_PAUSE = 1.0
"""Seconds of silence between two words that end a segment wherever they fall."""

LONGEST_SEGMENT = 15.0
"""Seconds after which a segment ends at the next mark or at the widest pause."""

_ABBREVIATIONS = frozenset({"mr.", "mrs.", "ms.", "dr.", "st.", "prof.", "vs.", "e.g.", "i.e.", "no."})


def segments_from_words(words: Sequence[ClipWord]) -> tuple[ClipSegment, ...]:
    """Group timed words into segments.

    Parameters
    ----------
    words : sequence of ClipWord
        Ascending in time; texts may start with the space that separates them from the word before.

    """
    segments: list[ClipSegment] = []
    current: list[ClipWord] = []
    for word in words:
        if current and word.start - current[-1].end > LONGEST_PAUSE:
            segments += _finish(current)
            current = []
        current.append(word)
        if _ends_sentence(word.text):
            segments += _finish(current)
            current = []
    if current:
        segments += _finish(current)
    return tuple(segments)


def _ends_sentence(text: str) -> bool:
    bare = text.strip().rstrip("\"'”)]")
    if not bare.endswith(SENTENCE_ENDS):
        return False
    initial = len(bare) == 2 and bare[0].isupper()
    return not initial and bare.lower() not in _ABBREVIATIONS


def _finish(words: Sequence[ClipWord]) -> list[ClipSegment]:
    if words[-1].end - words[0].start > LONGEST_SEGMENT and len(words) > 1:
        at = _best_break(words)
        return _finish(words[:at]) + _finish(words[at:])
    text = "".join(word.text for word in words).strip()
    if not text:
        return []
    stripped = tuple(ClipWord(w.start, w.end, w.text.strip(), w.probability) for w in words if w.text.strip())
    return [ClipSegment(words[0].start, words[-1].end, text, stripped)]


def _best_break(words: Sequence[ClipWord]) -> int:
    """Return where to break a long run: after a comma or the widest pause, near the middle rather than at the ends."""
    middle = (words[0].start + words[-1].end) / 2
    half = (words[-1].end - words[0].start) / 2

    def merit(index: int) -> float:
        before, after = words[index - 1], words[index]
        pause = after.start - before.end
        mark = 0.5 if before.text.rstrip().endswith((",", ";", ":", "、", ",")) else 0.0
        centred = 1.0 - abs(after.start - middle) / half
        return pause + mark + centred

    return max(range(1, len(words)), key=merit)
