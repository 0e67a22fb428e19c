"""The vote on a recording's language."""

import threading

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.errors import EngineError
from engine_bridge.language import VOTES, LanguageVote
from engine_bridge.testing import MULTILINGUAL, FakeEngine, clip_result

RATE = 16_000


def chunk(seconds, number=0.0):
    """Make a chunk of speech; the script below knows it by the value of its samples."""
    frames = round(seconds * RATE)
    samples = np.full(frames, number, dtype=np.float32)
    return Chunk(0, 0, frames, RATE, samples, ((0, frames),), ((0, frames),) if frames else ())


def silence(seconds):
    return Chunk(0, 0, round(seconds * RATE), RATE, np.zeros(RATE, dtype=np.float32), ((0, RATE),))


@pytest.fixture
def vote_of():
    engines = []

    def make(*ballots, **arguments):
        """Make a vote whose chunk number n is answered by ballot n."""
        engine = FakeEngine(
            lambda samples, options: clip_result([]),
            language_script=lambda samples: ballots[round(float(samples[0]))],
            capabilities=MULTILINGUAL,
            **arguments,
        )
        engines.append(engine)
        return LanguageVote(engine)

    yield make
    for engine in engines:
        engine.close()


def test_each_chunk_counts_with_its_seconds_of_speech(vote_of):
    vote = vote_of((("de", 1.0),), (("en", 1.0),), (("en", 1.0),))
    vote.offer(chunk(20, 0))
    vote.offer(chunk(4, 1))
    vote.offer(chunk(4, 2))
    vote.close()
    assert vote.decided.result(10) == "de"
    assert vote.probability == pytest.approx(20 / 28)


def test_certainty_counts(vote_of):
    vote = vote_of((("de", 0.4), ("en", 0.35)), (("en", 0.9), ("de", 0.1)))
    vote.offer(chunk(5, 0))
    vote.offer(chunk(5, 1))
    vote.close()
    assert vote.decided.result(10) == "en"


def test_enough_votes_decide_without_waiting_for_the_end(vote_of):
    vote = vote_of((("fr", 1.0),))
    for _ in range(VOTES + 3):
        vote.offer(chunk(5))
    assert vote.decided.result(10) == "fr"
    assert len(vote._engine.language_clips) == VOTES


def test_nothing_is_decided_before_there_are_enough_votes_or_the_end(vote_of):
    vote = vote_of((("fr", 1.0),))
    vote.offer(chunk(5))
    vote._engine.detect_language(chunk(1).samples).result(10)  # answered after the vote
    assert not vote.decided.done()
    vote.close()
    assert vote.decided.result(10) == "fr"


def test_silence_does_not_vote_and_alone_has_no_language(vote_of):
    vote = vote_of()
    for _ in range(VOTES):
        vote.offer(silence(5))
    assert not vote.decided.done()
    vote.close()
    assert vote.decided.result(0) is None
    assert vote.probability is None


def test_a_failing_ballot_fails_the_vote_once(vote_of):
    vote = vote_of(EngineError("first"), EngineError("second"), (("en", 1.0),))
    for number in range(3):
        vote.offer(chunk(5, number))
    vote.close()
    with pytest.raises(EngineError, match="first"):
        vote.decided.result(10)


def test_withdrawn_questions_are_not_answered(vote_of):
    vote = vote_of((("en", 1.0),), delay=lambda number: 60.0)
    vote.offer(chunk(5))
    vote.offer(chunk(5))
    vote.cancel()
    assert all(request.future.cancelled() for request in vote._engine._waiting)
    vote.close()
    assert vote.decided.result(0) is None


def test_who_waits_for_the_decision_is_woken(vote_of):
    vote = vote_of((("en", 1.0),))
    woken = threading.Event()
    vote.decided.add_done_callback(lambda future: woken.set())
    vote.offer(chunk(5))
    vote.close()
    assert woken.wait(10)
