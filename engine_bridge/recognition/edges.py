"""Where speech and its words begin and end, read off the sound around their pauses.

The attention that times words says in what order they come, and roughly when. It knows no pauses: a word before one is
run on to the next word, and that one begins late. What the recording's level does there tells more, also under music
and where a pause is too short to count as silence.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from audio.energy import FADE_FRAMES, FRAMES_PER_SECOND, ONSET_FRAMES
from engine_bridge.engines.protocol import ClipSegment, ClipWord
from engine_bridge.recognition.frame_levels import FRAME_SECONDS, Levels
from engine_bridge.recognition.sentences import CLAUSE_ENDS, SENTENCE_ENDS

Seconds = tuple[float, float]
"""A start and an end in seconds of the recording."""

LEAST_RISE_DB = 6.0
"""Speech has to be this much louder than what is around it, or there is nothing to see."""

THRESHOLD = 0.5
"""Where between the quiet and the loud level, in decibels, a word counts as begun."""

DEPTH_DB = 35.0
BRIGHT_DEPTH_DB = 20.0
"""What is this much below the speech is its echo, and no part of it. Among high frequencies, where levels are read
above music, less is: what is left of the music there fades through the rest."""

PAUSE_SECONDS = 0.06
LONGEST_CLOSURE = 0.15
"""A pause lasts at least as long as the first. Within a word it takes the second to be one, which is longer than the
closure of a "t" or "k", unless the next word follows on it."""

_PAUSE_FRAMES = round(PAUSE_SECONDS / FRAME_SECONDS)

LONGEST_CLICK = 0.08
"""Sound that lasts no longer, with a pause behind it, is a note's onset or a tap: no word is over so soon."""

_CLICK_FRAMES = round(LONGEST_CLICK / FRAME_SECONDS)

FADED_ONSET = 0.3
"""How far before a word's first loud sound its soft onset is looked for, behind a dip that is too short for a pause."""

LEAST_APART = 0.2
"""What sounds less than this after a word has been spoken may be its end, and is no other word's onset."""

REACH_SECONDS = 0.5
EARLIEST_SECONDS = 1.0
"""How far a word's start or end is moved: alignment is seldom more late than this, and a word of a new sentence seldom
earlier than that in the pause before it."""

STRETCH_REACH = 0.3
ONSET_SECONDS = ONSET_FRAMES / FRAMES_PER_SECOND
FADE_SECONDS = FADE_FRAMES / FRAMES_PER_SECOND
"""A stretch of speech is given with so much before it and behind it (`audio.energy`). From there its edges are looked
for, at most this far."""

LEAST_SOUND = 0.25
"""Where less than this share of a stretch seems to sound, the level tells nothing of it; and where less than this share
of a word's usual length sounds, its sound lies elsewhere."""

FADING_DB = 200.0
MOST_HIDDEN = 0.1
"""Speech fades by about so many decibels a second. What noise hides of its end, down to where that would be echo, still
belongs to it, this many seconds at the most: in pink noise 20 dB below the speech, 0.1 % of it was under no segment
where 0.6 % was."""

AROUND_SECONDS = 1.0
"""How much around an edge is looked at for the quiet level."""

TYPICAL_WORD = 0.2
TYPICAL_CHARACTER = 0.1
"""Seconds that a word takes at an ordinary pace: so much, and so much for each of its characters."""

NEARBY_SECONDS = 0.15
FALL_DB = 15.0
"""A level that falls by so much this close to where two words meet may be a pause."""

LEAST_REST = 0.1
LONGEST_REST = 1.0
"""So much sound between two words, which are at most so far apart, belongs to the first of them."""

LONGEST_DRAWL = 1.2
"""A word of more than so many times its usual length has been run on over what follows."""

_MARKS = SENTENCE_ENDS + CLAUSE_ENDS


def usual_length(text: str) -> float:
    """Return about how many seconds a word takes at an ordinary pace."""
    return TYPICAL_WORD + TYPICAL_CHARACTER * len(text.strip())


def speech_edges(speech: Sequence[Seconds], levels: Levels) -> list[Seconds]:
    """Return stretches of speech without what the detector adds around them, and with what it leaves out.

    It adds a margin, and sees no breath of an "h" or soft end below its threshold that still stands out from what is
    around it.

    Parameters
    ----------
    speech : sequence of (start, end)
        Stretches, ascending, in seconds of the recording.
    levels : Levels
        Of the chunk that they lie in.

    """
    found: list[Seconds] = []
    for index, (start, end) in enumerate(speech):
        earliest = max(found[-1][1] if found else levels.start, start - STRETCH_REACH)
        latest = min(speech[index + 1][0] if index + 1 < len(speech) else levels.end, end + STRETCH_REACH)
        core = min(start + ONSET_SECONDS, end), max(end - FADE_SECONDS, start)
        loud = levels.between(*core)
        if not len(loud):
            found.append((start, end))
            continue
        level = float(np.percentile(loud, 75))
        echo = level - (BRIGHT_DEPTH_DB if levels.bright else DEPTH_DB)
        before = _rise(levels.between(start - AROUND_SECONDS, core[0]), echo)
        behind = _rise(levels.between(core[1], end + AROUND_SECONDS), echo)
        # In even sound, with nothing quieter around it, there is no edge to be seen.
        first = _walk(levels, core[0], earliest, core[1], before) if before < level else core[0]
        if before < level:
            stop = levels.frame(core[1])
            first = levels.time(_past_click(levels.frame(first), stop, levels.decibels < before))
        last = _walk(levels, core[1], latest, first, behind) if behind < level else core[1]
        if last - first < LEAST_SOUND * (core[1] - core[0]):
            found.append(core)
            continue
        hidden = min((behind - echo) / FADING_DB, MOST_HIDDEN) if behind < level else 0.0
        found.append((first, min(last + hidden, latest)))
    return found


def _rise(around: NDArray[np.float32], echo: float) -> float:
    """Return the level from which sound counts as part of the speech beside it."""
    return max(float(np.percentile(around, 10)) + LEAST_RISE_DB, echo) if len(around) else echo


def _walk(levels: Levels, at: float, outward: float, inward: float, threshold: float) -> float:
    """Go from a place outward as long as there is sound, or inward as long as there is none."""
    step = 1 if outward > inward else -1
    frame, outer, inner = levels.frame(at), levels.frame(outward), levels.frame(inward)
    inside = -1 if step > 0 else 0  # a frame lies behind its index

    def sounds(place: int) -> bool:
        return bool(levels.decibels[place] >= threshold)

    if frame != inner and not sounds(frame + inside):
        while frame != inner and not sounds(frame + inside):
            frame -= step
        return levels.time(frame)
    while frame != outer and sounds(frame - 1 - inside):
        frame += step
    return levels.time(frame)


def settle_edges(segments: Sequence[ClipSegment], levels: Levels) -> list[ClipSegment]:
    """Return segments whose words begin and end where the sound around their pauses does.

    Parameters
    ----------
    segments : sequence of ClipSegment
        With times in the recording; those without words are kept as they are.
    levels : Levels
        Of the chunk that they come from.

    """
    words = list(chain.from_iterable(segment.words for segment in segments))
    for index in range(1, len(words)):
        words[index - 1 : index + 1] = _with_sound(words[index - 1], words[index], levels)
    for index in range(len(words) + 1):
        before = words[index - 1] if index else None
        after = words[index] if index < len(words) else None
        if before is not None and after is not None and not _may_pause(before, after, levels):
            continue
        following = levels.end
        if after is not None:
            earliest = levels.start if before is None else before.start + FRAME_SECONDS
            spoken = earliest if before is None else min(before.start + usual_length(before.text), before.end)
            following = _start_near(after, earliest, spoken, levels)
            words[index] = replace(after, start=following, end=max(following, after.end))
        if before is not None:
            end = _with_rest(before, min(_end_near(before, following, levels), following), following, levels)
            words[index - 1] = replace(before, start=min(before.start, end), end=end)
    settled = iter(_ascending(words))
    return [replace(segment, words=tuple(next(settled) for _ in segment.words)) for segment in segments]


def _ascending(words: Sequence[ClipWord]) -> list[ClipWord]:
    """Return words of which none begins before the one ahead of it, or ends behind the start of the next."""
    ascending = list(words)
    for index in range(1, len(words)):
        before = ascending[index - 1]
        start = max(words[index].start, before.start)
        ascending[index - 1] = replace(before, end=max(min(before.end, start), before.start))
        ascending[index] = replace(words[index], start=start, end=max(words[index].end, start))
    return ascending


def _with_sound(before: ClipWord, after: ClipWord, levels: Levels) -> tuple[ClipWord, ClipWord]:
    """Return two words, of which the second shares the first one's sound if it was placed in the silence behind it."""
    if before.text.rstrip().endswith(_MARKS):
        return before, after  # what begins anew waits for its own sound
    usual = usual_length(before.text) + usual_length(after.text)
    sound = levels.between(before.start, min(after.start, before.start + usual))
    own = levels.between(after.start, after.end)
    threshold = _threshold(sound, own)
    least = LEAST_SOUND * min(len(own), usual_length(after.text) / FRAME_SECONDS)
    if threshold is None or np.count_nonzero(own >= threshold) >= max(least, 1):
        return before, after
    end = _end_near(before, after.start, levels)
    if end - before.start < LEAST_SOUND * usual:
        # The dip may lie between the two; only sound behind it tells.
        end = _end_near(replace(before, text=before.text + after.text), after.start, levels)
        loud = np.count_nonzero(levels.between(before.start, end) >= threshold)
        if loud * FRAME_SECONDS < LEAST_SOUND * usual:
            return before, after  # there is too little of it for two
    part = len(before.text.strip()) / max(len(before.text.strip()) + len(after.text.strip()), 1)
    middle = before.start + part * (end - before.start)
    return replace(before, end=middle), replace(after, start=middle, end=end)


def _may_pause(before: ClipWord, after: ClipWord, levels: Levels) -> bool:
    """Tell whether there may be a pause between two words.

    For that speaks a mark, more time than the word before it takes, or a level that falls far between them.
    """
    if before.text.rstrip().endswith(_MARKS) or after.start - before.start > usual_length(before.text):
        return True
    between = levels.between(after.start - NEARBY_SECONDS, after.start + NEARBY_SECONDS)
    around = levels.between(before.start, after.start + REACH_SECONDS)
    return (
        min(len(between), len(around)) >= _PAUSE_FRAMES and float(np.median(around) - _quiet_level(between)) >= FALL_DB
    )


def _start_near(word: ClipWord, earliest: float, spoken: float, levels: Levels) -> float:
    """Return where a word begins: behind the last pause before the middle of it.

    A dip is no pause where the word before it, `spoken` by then, cannot explain what sounds before the dip.
    """
    inside = levels.frame(word.start + 0.1)
    usual = usual_length(word.text)
    # The word is at one end or the other of its time: begun late in it, or drawn out before it.
    late = levels.between(max(word.end - usual, word.start), word.end + PAUSE_SECONDS)
    threshold = _threshold(
        np.concatenate([levels.between(word.start, word.start + EARLIEST_SECONDS), late]),
        levels.between(max(word.start - AROUND_SECONDS, earliest), word.start + 0.1),
    )
    if threshold is None or inside >= len(levels.decibels):
        return word.start
    quiet = levels.decibels < threshold
    # Where the next word was placed on its heels, its own sound lies before both.
    squeezed = word.end - word.start < LEAST_SOUND * usual
    latest = levels.frame(max(word.start + EARLIEST_SECONDS, word.end))
    reach = levels.frame(max(word.start - (usual if squeezed else REACH_SECONDS), earliest))
    if quiet[inside] and not squeezed:
        loud = np.flatnonzero(~quiet[inside:latest])
        return levels.time(_past_click(inside + int(loud[0]), latest, quiet)) if len(loud) else word.start
    while squeezed and inside > reach and quiet[inside]:
        inside -= 1
    run = 0
    for frame in range(inside - 1, reach - 1, -1):
        run = run + 1 if quiet[frame] else 0
        closure = levels.time(frame) > max(spoken + LEAST_APART, word.start - FADED_ONSET)
        if run * FRAME_SECONDS >= (LONGEST_CLOSURE if closure else PAUSE_SECONDS):
            return levels.time(_past_click(frame + run, latest, quiet))
    sounding = np.flatnonzero(~quiet[levels.frame(word.start) : inside + 1])
    if squeezed or not len(sounding):
        return word.start
    first = levels.frame(word.start) + int(sounding[0])
    past = _past_click(first, latest, quiet)
    return levels.time(past) if past > first else word.start


def _past_click(frame: int, latest: int, quiet: NDArray[np.bool_]) -> int:
    """Return where sound begins, or begins again if it is as short as a click and alone: a note's onset, or a tap."""
    while True:
        ended = np.flatnonzero(quiet[frame : frame + _CLICK_FRAMES + 1])
        behind = np.flatnonzero(~quiet[frame + int(ended[0]) : latest]) if len(ended) else ended
        if not len(behind) or behind[0] * FRAME_SECONDS < LONGEST_CLOSURE:
            return frame
        frame += int(ended[0]) + int(behind[0])


def _end_near(word: ClipWord, next_start: float, levels: Levels) -> float:
    """Return where a word ends: before the first pause behind the middle of it."""
    usual = usual_length(word.text)
    inside = levels.frame(word.start + min(usual, word.end - word.start) / 2)
    last = levels.frame(min(next_start, word.start + 2 * usual + REACH_SECONDS))
    threshold = _threshold(
        levels.between(word.start, word.start + usual),
        levels.decibels[inside : levels.frame(min(next_start, word.start + usual + AROUND_SECONDS))],
    )
    if threshold is None:
        return _plausible_end(word)
    run = 0
    for frame in range(inside, last):
        run = run + 1 if levels.decibels[frame] < threshold else 0
        closure = levels.time(frame) < word.start + usual and frame + 1 < last
        if run * FRAME_SECONDS >= (LONGEST_CLOSURE if closure else PAUSE_SECONDS):
            return levels.time(frame + 1 - run)
    return _plausible_end(word)


def _with_rest(word: ClipWord, end: float, following: float, levels: Levels) -> float:
    """Return a word's end, or where speech ends that lies behind it and before the next word, which begins after it.

    A word that was placed too early ends at a dip in the midst of what is said.
    """
    between = levels.between(end, following)
    threshold = _threshold(levels.between(word.start, end), between)
    if threshold is None or following - end > LONGEST_REST:
        return end
    loud = np.flatnonzero(between >= threshold)
    return levels.time(levels.frame(end) + int(loud[-1]) + 1) if len(loud) * FRAME_SECONDS >= LEAST_REST else end


def _plausible_end(word: ClipWord) -> float:
    """Return a word's end, or where it ends at an ordinary pace if it would otherwise be drawn out far."""
    usual = usual_length(word.text)
    return word.start + usual if word.end - word.start > LONGEST_DRAWL * usual else word.end


def _quiet_level(around: NDArray[np.float32]) -> float:
    """Return the level that the quietest frames, as many as make a pause, stay at or below."""
    rank = min(_PAUSE_FRAMES, len(around)) - 1
    return float(np.partition(around, rank)[rank])


def _threshold(loud: NDArray[np.float32], around: NDArray[np.float32]) -> float | None:
    """Return the level at which speech begins, or None where it does not stand out."""
    if not len(loud) or not len(around):
        return None
    high, low = float(np.percentile(loud, 90)), _quiet_level(around)
    return low + THRESHOLD * (high - low) if high - low >= LEAST_RISE_DB else None
