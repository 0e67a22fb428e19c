"""The vote on a recording's language."""

import threading

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.errors import EngineError
from engine_bridge.recognition.language import CANDIDATES, VOTES, LanguageVote, most_audible
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
    for _ in range(CANDIDATES + 3):
        vote.offer(chunk(5))
    assert vote.decided.result(10) == "fr"
    assert len(vote._engine.language_clips) == VOTES


def test_the_loudest_of_the_first_chunks_are_asked(vote_of):
    vote = vote_of(*[(("en" if number < 3 else "de", 1.0),) for number in range(CANDIDATES)])
    for number in range(CANDIDATES):  # the script knows a chunk by its level as well
        vote.offer(chunk(5, number))
    assert vote.decided.result(10) == "de"
    assert sorted(float(clip[0]) for clip in vote._engine.language_clips) == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_what_is_loud_beside_the_speech_does_not_count():
    frames = RATE
    music = np.concatenate([np.full(frames, 0.9, np.float32), np.full(frames, 0.01, np.float32)])
    beside_music = Chunk(0, 0, 2 * frames, RATE, music, ((0, 2 * frames),), ((frames, 2 * frames),))
    plain = [chunk(1, 0.1) for _ in range(VOTES)]
    assert most_audible([beside_music, *plain]) == plain


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
    for _ in range(CANDIDATES):
        vote.offer(chunk(5))
    assert len(vote._engine._waiting) == VOTES
    vote.cancel()
    assert all(request.future.cancelled() for request in vote._engine._waiting)
    assert vote.decided.result(0) is None


def test_what_was_withdrawn_before_it_was_asked_is_not_asked(vote_of):
    vote = vote_of((("en", 1.0),))
    vote.offer(chunk(5))
    vote.cancel()
    vote.close()
    assert vote.decided.result(0) is None
    assert vote._engine.language_clips == ()


def test_who_waits_for_the_decision_is_woken(vote_of):
    vote = vote_of((("en", 1.0),))
    woken = threading.Event()
    vote.decided.add_done_callback(lambda future: woken.set())
    vote.offer(chunk(5))
    vote.close()
    assert woken.wait(10)
