"""Signs, in a text alone, that nobody said it: loops, symbols, descriptions of sounds, echoes, impossible speed.

A sign marks a text and lets it be recognised again; it never deletes one. The thresholds are therefore set so that
what people do say is let pass: "no, no, no", digits read out, counting, a chorus sung three times.
"""

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine_bridge.joining import is_spaceless

# The text that openai-whisper decodes again: transcribe(compression_ratio_threshold=2.4).
MAX_COMPRESSION_RATIO = 2.4
# The thresholds below are this project's own, set between what people say and what loops look like.
# Looping: a phrase said this often in a row, where all of it together is this many words. A shorter phrase than
# `_PHRASE_WORDS` has to come back more often, for people do say "no, no, no, no".
_LOOP_TIMES = 4
_LOOP_WORDS = 16
_PHRASE_WORDS = 3
_SHORT_PHRASE_TIMES = 10
# The share of four-word runs that came before in the text: two thirds is when each is said three times.
_RUN_WORDS = 4
_MAX_REPEATED_SHARE = 0.68
# As many of the same symbol in a row; an ellipsis has three.
_SYMBOL_RUN = 8
_LONG_WORD = 50
_ECHO_WORDS = 4
_DESCRIPTION = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）|【[^【】]*】|\*[^*]+\*")  # noqa: RUF001 - brackets of CJK
# Thirty seconds, the longest clip of a Whisper model, hold about this many words.
MAX_PHRASE_WORDS = 100
# The fastest intelligible speech is some 400 words a minute, or 33 letters a second. A Chinese or Japanese character
# says about as much as 2.5 letters. The allowance covers times that are a little too tight around a short text.
MAX_CHARACTERS_PER_SECOND = 40.0
_LETTERS_PER_WIDE_CHARACTER = 2.5
_CHARACTERS_ALLOWED = 20


@dataclass(frozen=True)
class Repetition:
    """A phrase that comes several times in a row.

    Attributes
    ----------
    phrase : tuple of str
        The words of the phrase; empty where nothing is repeated.
    times : int
        How many times it comes in a row, whole, at least 2; 0 where nothing is repeated.
    start : int
        Index of the word at which it begins.

    """

    phrase: tuple[str, ...] = ()
    times: int = 0
    start: int = 0


def words_of(text: str) -> list[str]:
    """Cut a text into words to be compared.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        The words without case and punctuation. In scripts without spaces each letter, with its marks, is a word.

    """
    words: list[str] = []
    current = ""
    for character in unicodedata.normalize("NFKC", text).casefold():
        kind = unicodedata.category(character)[0]
        if kind == "M" and (current or words):
            if current:
                current += character
            else:
                words[-1] += character
        elif is_spaceless(character) and kind in "LN":
            words.extend([current, character] if current else [character])
            current = ""
        elif kind in "LN":
            current += character
        elif character not in "'\u2019" and current:
            words.append(current)
            current = ""
    return [*words, current] if current else words


def compression_ratio(text: str) -> float:
    """Tell how repetitive a text is, as openai-whisper does.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    float
        Bytes of the text in UTF-8 over bytes of the same compressed by zlib; 0 for an empty text. Prose is between 1
        and 2 at the length of a segment; openai-whisper decodes again above 2.4.

    """
    encoded = text.encode("utf-8", "surrogatepass")
    return len(encoded) / len(zlib.compress(encoded))


def longest_repetition(words: Sequence[str]) -> Repetition:
    """Find the phrase whose uninterrupted repetition covers the most words.

    Parameters
    ----------
    words : sequence of str
        Words that are compared as they are. Phrases of up to `MAX_PHRASE_WORDS` are looked for, so that the time
        grows only in proportion to the text.

    Returns
    -------
    Repetition
        The phrase, how often it comes in a row and where. Of those that cover as much, the shortest phrase, and of
        these the first.

    """
    best, covered = Repetition(), 0
    for length in range(1, min(len(words) // 2, MAX_PHRASE_WORDS) + 1):
        if length * (len(words) // length) <= covered:
            continue
        run = 0
        for index in range(length, len(words) + 1):
            if index < len(words) and words[index] == words[index - length]:
                run += 1
                continue
            times = run // length + 1
            if times > 1 and times * length > covered:
                start = index - run - length
                best, covered = Repetition(tuple(words[start : start + length]), times, start), times * length
            run = 0
    return best


def repeated_ngrams(words: Sequence[str], length: int) -> float:
    """Tell how much of a text came before in the same text, in a row or not.

    Parameters
    ----------
    words : sequence of str
        Words that are compared as they are.
    length : int
        Words in a run, from 1.

    Returns
    -------
    float
        The share, in [0, 1), of runs of `length` words that are equal to an earlier one: 0 where each is new, and
        near ``1 - 1/k`` where each comes `k` times.

    """
    runs = Counter(tuple(words[index : index + length]) for index in range(len(words) - length + 1))
    total = runs.total()
    return 1 - len(runs) / total if total else 0.0


def characters_per_second(text: str, seconds: float) -> float:
    """Tell how fast a text would have been spoken.

    Parameters
    ----------
    text : str
        Any text.
    seconds : float
        How long it took.

    Returns
    -------
    float
        Characters, without white space, over seconds: 0 without characters, infinite without time.

    """
    count = sum(not character.isspace() for character in text)
    if count == 0:
        return 0.0
    return count / seconds if seconds > 0 else math.inf


def only_symbols(text: str) -> bool:
    """Tell whether a text has characters but no letter and no digit, such as "!!!!!" or "♪♪".

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    bool
        False for a blank text too.

    """
    return bool(text.strip()) and not _has_letters(text)


def only_described(text: str) -> bool:
    """Tell whether a text says what is heard and nothing that is said, such as "(upbeat music)" or "[Applause]".

    Subtitles, which these models learned from, describe sounds in brackets. Text beside the brackets was said.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    bool
        Whether there are brackets or asterisks around every letter and digit, and at least one of these.

    """
    return _has_letters(text) and not _has_letters(_DESCRIPTION.sub("", text))


def echoes_prompt(text: str, prompt: str) -> bool:
    """Tell whether a text is a piece of the prompt that came before it, or is made of the whole prompt.

    Parameters
    ----------
    text : str
        What the model wrote.
    prompt : str
        What it was told beforehand.

    Returns
    -------
    bool
        True where all words of the text stand in the prompt, together and in that order, or where the text is
        the prompt, once or more, with at most a quarter of other words. False where the shorter of the two has fewer
        than four words, for names from a glossary are said on their own.

    """
    said, told = words_of(text), words_of(prompt)
    if min(_weight(said), _weight(told)) < _ECHO_WORDS:
        return False
    if count_of(said, told):
        return True
    return count_of(told, said) * len(told) >= 0.75 * len(said)


def why_suspect(text: str, seconds: float, prompt: str | None = None) -> str | None:
    """Tell why a text may be invented, from the text alone.

    Parameters
    ----------
    text : str
        What the model wrote for one clip or segment.
    seconds : float
        How long the clip or segment is. Without a length (0 or less) the speed is not judged.
    prompt : str, optional
        What the model was told beforehand.

    Returns
    -------
    str or None
        "only symbols", "only a description", "echo of the prompt", "repetition" or "too much text for its time"; None
        for a text that may well have been said, and for a blank one.

    """
    if only_symbols(text) or _longest_symbol_run(text) >= _SYMBOL_RUN:
        return "only symbols"
    if only_described(text):
        return "only a description"
    if prompt and echoes_prompt(text, prompt):
        return "echo of the prompt"
    if _loops(text):
        return "repetition"
    if seconds > 0 and _letters(text) > _CHARACTERS_ALLOWED + MAX_CHARACTERS_PER_SECOND * seconds:
        return "too much text for its time"
    return None


def _has_letters(text: str) -> bool:
    """Tell whether there is a letter or a digit."""
    return any(character.isalnum() for character in text)


def _loops(text: str) -> bool:
    words = words_of(text)
    # A loop without spaces ("hahahaha...") is one long word; in scripts without spaces words are never that long.
    if any(len(word) >= _LONG_WORD and compression_ratio(word) > MAX_COMPRESSION_RATIO for word in words):
        return True
    found = longest_repetition(words)
    phrase = _weight(found.phrase)
    least = _LOOP_TIMES if phrase >= _PHRASE_WORDS else _SHORT_PHRASE_TIMES
    if found.times >= least and phrase * found.times >= _LOOP_WORDS:
        return True
    # Loops that vary a little. The ratio alone would also hit counting aloud, where no run of words comes back.
    return compression_ratio(text) > MAX_COMPRESSION_RATIO and repeated_ngrams(words, _RUN_WORDS) > _MAX_REPEATED_SHARE


def _weight(words: Sequence[str]) -> float:
    """Count words, taking two letters of a script without spaces as one word."""
    return sum(0.5 if is_spaceless(word[0]) else 1.0 for word in words)


def count_of(part: Sequence[str], whole: Sequence[str]) -> int:
    """Count how often some words stand in others.

    Parameters
    ----------
    part, whole : sequence of str
        As `words_of` gives them; `part` has at least one.

    Returns
    -------
    int
        How often `part` stands in `whole`, word by word, without overlap.

    """
    count = index = 0
    while index + len(part) <= len(whole):
        if list(whole[index : index + len(part)]) == list(part):
            count, index = count + 1, index + len(part)
        else:
            index += 1
    return count


def _longest_symbol_run(text: str) -> int:
    longest = run = 0
    before = ""
    for character in text:
        if character.isalnum() or character.isspace():
            run = 0
        else:
            run = run + 1 if character == before else 1
            longest = max(longest, run)
        before = character
    return longest


def _letters(text: str) -> float:
    """Count characters without white space, each wide one as the letters it stands for."""
    return sum(
        _LETTERS_PER_WIDE_CHARACTER if unicodedata.east_asian_width(character) in "WF" else 1.0
        for character in text
        if not character.isspace()
    )
