"""Whisper's rules for timestamp tokens: which tokens may come next."""

import pytest

from engine_bridge.engines.timestamp_rules import MAX_INITIAL_TIMESTAMP, TimestampTokens, forbid

torch = pytest.importorskip("torch", reason="torch is not installed")

# A vocabulary in miniature: ten text tokens, the special ones, and timestamps from 0 to 4 s.
TEXT = range(10)
END, NO_TIMESTAMPS, FIRST = 10, 12, 13
TOKENS = TimestampTokens(END, NO_TIMESTAMPS, FIRST)
SIZE = FIRST + 201


def allowed(written, *, likely=()):
    logits = torch.zeros(SIZE)
    logits[FIRST:] = -10.0  # so that timestamps are not forced by their number
    for token in likely:
        logits[token] = 20.0
    forbid(logits, written, TOKENS)
    return set(torch.isfinite(logits).nonzero().ravel().tolist())


def stamps(first, last=200):
    return {FIRST + index for index in range(first, last + 1)}


def test_a_timestamp_within_the_first_second_comes_first():
    assert allowed([]) == stamps(0, MAX_INITIAL_TIMESTAMP)


def test_text_follows_the_opening_timestamp():
    assert allowed([FIRST + 5]) == {*TEXT, END, END + 1}


def test_in_a_text_a_timestamp_after_the_opening_one_may_come():
    assert allowed([FIRST + 5, 3]) == {*TEXT, END, END + 1} | stamps(6)


def test_behind_a_closing_timestamp_comes_its_twin_or_a_later_one_or_the_end():
    assert allowed([FIRST, 3, FIRST + 50]) == {END, END + 1} | stamps(50)


def test_a_pair_is_followed_by_text():
    assert allowed([FIRST, 3, FIRST + 50, FIRST + 60]) == {*TEXT, END, END + 1}


def test_times_never_run_backwards():
    assert allowed([FIRST, 3, FIRST + 50, FIRST + 60, 4]) == {*TEXT, END, END + 1} | stamps(61)


def test_no_timestamps_is_never_promised():
    for written in ([], [FIRST], [FIRST, 3]):
        assert NO_TIMESTAMPS not in allowed(written, likely=[NO_TIMESTAMPS])


def test_timestamps_that_together_are_likelier_than_any_text_are_written():
    logits = torch.full((SIZE,), -10.0)
    logits[3] = 0.0
    logits[FIRST + 20 :] = -4.0  # 181 of them: exp(-4) each, more than exp(0) together
    forbid(logits, [FIRST, 2], TOKENS)
    assert not torch.isfinite(logits[:FIRST]).any()
    logits = torch.full((SIZE,), -10.0)
    logits[3] = 0.0
    logits[FIRST + 20 :] = -6.0
    forbid(logits, [FIRST, 2], TOKENS)
    assert torch.isfinite(logits[3])
