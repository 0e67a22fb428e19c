"""Joining texts with the space their scripts are written with, and where such texts may be broken."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable

# Blocks of scripts that put no space between words, as [first, last] code points from the Unicode block list
# (https://www.unicode.org/Public/UNIDATA/Blocks.txt). Hangul is absent: Korean is written with spaces.
_SPACELESS = (
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x19E0, 0x19FF),  # Khmer Symbols
    (0x2E80, 0x2FDF),  # CJK and Kangxi radicals
    (0x3000, 0x303F),  # CJK Symbols and Punctuation
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo Extended, CJK Strokes, Katakana Phonetic Extensions
    (0x3200, 0x4DBF),  # Enclosed CJK, CJK Compatibility, Extension A
    (0x4E00, 0x9FFF),  # CJK Unified Ideographs
    (0xA9E0, 0xA9FF),  # Myanmar Extended-B
    (0xAA60, 0xAA7F),  # Myanmar Extended-A
    (0xF900, 0xFAFF),  # CJK Compatibility Ideographs
    (0xFE30, 0xFE4F),  # CJK Compatibility Forms
    (0xFF01, 0xFF9F),  # full-width Latin and punctuation, half-width Katakana
    (0xFFE0, 0xFFE6),  # full-width signs
    (0x1AFF0, 0x1B16F),  # Kana supplements
    (0x20000, 0x3FFFF),  # the ideographic planes
)
_FIRSTS = tuple(first for first, _ in _SPACELESS)


def is_spaceless(character: str) -> bool:
    """Tell whether a character belongs to a script that puts no space between words.

    Parameters
    ----------
    character : str
        One character.

    Returns
    -------
    bool
        True for Han, Hiragana, Katakana, Bopomofo, Thai, Lao, Khmer, Myanmar and Tibetan, for CJK punctuation and
        for full-width forms; False for Hangul and all scripts written with spaces.

    """
    code = ord(character)
    at = bisect_right(_FIRSTS, code) - 1
    return at >= 0 and code <= _SPACELESS[at][1]


def needs_space(left: str, right: str) -> bool:
    """Tell whether a space belongs between two neighbouring texts.

    Parameters
    ----------
    left, right : str
        Texts that follow one another, neither of them empty.

    Returns
    -------
    bool
        False between two texts of scripts without spaces, and at CJK or full-width punctuation, which brings its
        own white; True otherwise, so also between Han and Latin.

    """
    before, after = left[-1], right[0]
    if _is_wide_punctuation(before) or _is_wide_punctuation(after):
        return False
    if is_spaceless(before) and is_spaceless(after):
        # Two words in full-width Latin letters or digits are still two words.
        return _is_full_width_alphanumeric(before) and _is_full_width_alphanumeric(after)
    return True


def join_texts(texts: Iterable[str]) -> str:
    """Join texts that follow one another, with one space where their scripts have one.

    Parameters
    ----------
    texts : iterable of str
        The texts in order. White space around each is dropped, and empty ones are skipped.

    Returns
    -------
    str
        The joined text: exactly one space between two texts, none where `needs_space` denies it.

    """
    parts: list[str] = []
    for text in texts:
        stripped = text.strip()
        if not stripped:
            continue
        if parts and needs_space(parts[-1], stripped):
            parts.append(" ")
        parts.append(stripped)
    return "".join(parts)


def _is_wide_punctuation(character: str) -> bool:
    if not is_spaceless(character) or unicodedata.category(character)[0] != "P":
        return False
    return unicodedata.east_asian_width(character) in "WFH"


def _is_full_width_alphanumeric(character: str) -> bool:
    return 0xFF01 <= ord(character) <= 0xFF5E and character.isalnum()
