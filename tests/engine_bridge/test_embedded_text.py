"""A second search where the first one's text is improbable: which clips get it, and which text is taken."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine_bridge.engines.embedded_text import DOUBTFUL_LOG_PROBABILITY, TextDecoder
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.timing import ALIGN, DECODE_TEXT, PROCESS, TimingContext

CERTAIN, DOUBTFUL = DOUBTFUL_LOG_PROBABILITY + 0.05, DOUBTFUL_LOG_PROBABILITY - 0.05
WORDS = {1: "greedy", 2: "searched"}


class Model:
    """Writes one token for each clip: 1 greedily and 2 with beams, none where the clip is silent."""

    def __init__(self, greedy, searched):
        self.greedy, self.searched = greedy, searched
        self.calls = []

    def generate(self, states, prompts, *, beam_size, **_):
        clips = [int(clip[0, 0]) for clip in np.array(states)]
        self.calls.append((beam_size, clips))
        scores = self.greedy if beam_size == 1 else self.searched
        assert len(prompts) == len(clips)
        return [
            SimpleNamespace(
                sequences_ids=[[] if scores[clip] is None else [min(beam_size, 2)]],
                scores=[-3.0 if scores[clip] is None else scores[clip]],
                no_speech_prob=0.0,
            )
            for clip in clips
        ]


class Tokens:
    def prompt(self, language, options):
        return [0]

    def text_tokens(self, tokens):
        return list(tokens)

    def decode(self, tokens):
        return "".join(WORDS[token] for token in tokens)


@pytest.fixture
def texts():
    """Decode a batch, a clip for each pair of log probabilities; returns the texts and how the model was asked."""

    def decoded(*probabilities, doubt_beam_size=5):
        greedy, searched = zip(*probabilities, strict=True)
        model = Model(greedy, searched)
        timing = TimingContext((DECODE_TEXT, ALIGN), parent=PROCESS)
        decoder = TextDecoder(model, Tokens(), timing, align_together=1, search_together=2)
        encoded = np.arange(len(greedy), dtype=np.float32)[:, None, None] + np.zeros((1, 2, 3), np.float32)
        options = DecodingOptions(timestamps="none", doubt_beam_size=doubt_beam_size)
        results = decoder.decode(encoded, [16_000] * len(greedy), "en", options)
        return [" ".join(part.text for part in result.segments) for result in results], model.calls

    return decoded


def test_only_doubtful_clips_are_searched_again(texts):
    found, calls = texts((CERTAIN, CERTAIN), (DOUBTFUL, CERTAIN), (CERTAIN, CERTAIN), (DOUBTFUL, CERTAIN))
    assert found == ["greedy", "searched", "greedy", "searched"]
    assert calls == [(1, [0, 1, 2, 3]), (5, [1, 3])]


def test_the_likelier_text_is_taken(texts):
    found, _ = texts((DOUBTFUL, DOUBTFUL - 0.1), (DOUBTFUL, DOUBTFUL + 0.01))
    assert found == ["greedy", "searched"]


def test_where_nothing_was_heard_nothing_is_searched_for(texts):
    found, calls = texts((None, CERTAIN), (CERTAIN, CERTAIN))
    assert found == ["", "greedy"]
    assert calls == [(1, [0, 1])]


def test_without_a_beam_for_doubts_there_is_one_search(texts):
    found, calls = texts((DOUBTFUL, CERTAIN), doubt_beam_size=1)
    assert found == ["greedy"]
    assert calls == [(1, [0])]


def test_beams_are_searched_for_few_clips_at_a_time(texts):
    found, calls = texts(*[(DOUBTFUL, CERTAIN)] * 3)
    assert found == ["searched"] * 3
    assert calls == [(1, [0, 1, 2]), (5, [0, 1]), (5, [2])]
