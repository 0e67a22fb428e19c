"""Whisper's rules for timestamp tokens, without which a decoder writes none or breaks off at the first.

The rules are those of OpenAI Whisper's ``ApplyTimestampRules`` (``whisper/decoding.py``): timestamps come in pairs and
never run backwards, one comes first, and one is written where all together are likelier than any single text token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_INITIAL_TIMESTAMP = 50
"""The latest first timestamp, in tokens of 20 ms: a second into the clip, OpenAI Whisper's default."""


@dataclass(frozen=True)
class TimestampTokens:
    """Where a model's vocabulary has what the rules speak of.

    Attributes
    ----------
    end_of_text : int
        The token that ends a text; all below it spell text.
    no_timestamps : int
        The token that promises that no timestamps follow.
    first : int
        The timestamp of 0 s; all from it on are timestamps.

    """

    end_of_text: int
    no_timestamps: int
    first: int


def forbid(logits: Any, written: Sequence[int], tokens: TimestampTokens) -> None:
    """Set the logits of tokens that may not come next to minus infinity, in place.

    Parameters
    ----------
    logits : torch.Tensor, shape (vocabulary,)
        Of the next token.
    written : sequence of int
        The tokens written so far, without the prompt.
    tokens : TimestampTokens
        The model's.

    """
    never = float("-inf")
    first, end = tokens.first, tokens.end_of_text
    logits[tokens.no_timestamps] = never
    if not written:
        logits[:first] = never
        logits[first + MAX_INITIAL_TIMESTAMP + 1 :] = never
        return
    after_timestamp = written[-1] >= first
    after_pair = after_timestamp and (len(written) < 2 or written[-2] >= first)
    if after_pair:
        logits[first:] = never
    elif after_timestamp:  # text may not begin before the pair is whole
        logits[:end] = never
    latest = max((token for token in written if token >= first), default=first)
    # A pair may close at the time it opened at, and a segment may begin where the last one ended, but takes some time.
    logits[first : latest + (0 if after_timestamp and not after_pair else 1)] = never
    likelihoods = logits.log_softmax(-1)
    if likelihoods[first:].logsumexp(-1) > likelihoods[:first].max():
        logits[:first] = never
