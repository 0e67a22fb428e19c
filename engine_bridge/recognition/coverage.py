"""Which speech has text, and which has none."""

import math
from collections.abc import Sequence

from engine_bridge.recognition.edges import Seconds
from engine_bridge.transcript import Segment

TOLERANCE = 0.15
"""Seconds around a word that count as covered: what is too soft to be seen at the edges of words and of speech."""

SHORTEST_UNCOVERED = 0.6
"""Seconds of speech without text that are worth asking again; a breath or a click is shorter."""

BRIDGED_PAUSE = 2.0
"""Seconds between two uncovered stretches that are still asked for together."""


def uncovered_speech(
    speech: Sequence[Seconds], segments: Sequence[Segment], longest: float = math.inf
) -> list[Seconds]:
    """Return the parts of the speech stretches that lie under no text.

    Parameters
    ----------
    speech : sequence of (start, end)
        Stretches in seconds, ascending.
    segments : sequence of Segment
        The text; words count one by one where they are timed, whole segments elsewhere.
    longest : float
        Seconds up to which parts are joined.

    Returns
    -------
    list of (start, end)
        Ascending; parts that lie close together with no text between them are joined, and short ones are left out.

    """
    covered = [
        (word.start - TOLERANCE, word.end + TOLERANCE) for segment in segments for word in (segment.words or (segment,))
    ]
    open_parts = [part for stretch in speech for part in _without(stretch, covered)]
    return [part for part in _joined(open_parts, covered, longest) if _spoken(part, open_parts) >= SHORTEST_UNCOVERED]


def covered_seconds(speech: Sequence[Seconds], segments: Sequence[Segment]) -> float:
    """Return how many seconds of the speech stretches lie under segments."""
    under = [(segment.start, segment.end) for segment in segments]
    return sum(
        end - start - sum(last - first for first, last in _without((start, end), under)) for start, end in speech
    )


def _without(stretch: Seconds, covered: Sequence[Seconds]) -> list[Seconds]:
    """Return what is left of a stretch after taking the covered parts away."""
    left = [stretch]
    for start, end in covered:
        left = [
            part
            for first, last in left
            for part in ((first, min(last, start)), (max(first, end), last))
            if part[0] < part[1]
        ]
    return left


def _joined(parts: Sequence[Seconds], covered: Sequence[Seconds], longest: float) -> list[Seconds]:
    """Join parts over short pauses, never over text: asked for together, it would be there twice."""
    joined: list[Seconds] = []
    for start, end in parts:
        text_between = bool(joined) and any(first < start and last > joined[-1][1] for first, last in covered)
        near = bool(joined) and start - joined[-1][1] <= BRIDGED_PAUSE and end - joined[-1][0] <= longest
        if near and not text_between:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _spoken(whole: Seconds, parts: Sequence[Seconds]) -> float:
    return sum(end - start for start, end in parts if whole[0] <= start and end <= whole[1])
