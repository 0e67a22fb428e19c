"""A cut inside speech, where words have no times: each word once, whole, and in order."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge import cutting, transcribe
from engine_bridge.engines.protocol import ClipResult, ClipSegment
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.recognition.seams_untimed import join_untimed
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine
from engine_bridge.transcript import Gap, Segment
from tests.tones import RATE, WORD_GAP, WORD_SECONDS, Recording, listen

CUT = 28.0
UNTIMED = replace(ENGLISH_ONLY, word_times=False, timestamps=False, beam_search=False)


def outcome(start, end, *texts, **fields):
    """Return segments of the same length between two times."""
    step = (end - start) / max(len(texts), 1)
    return Outcome(
        tuple(
            Segment(start + index * step, start + (index + 1) * step, text, estimated=True, **fields)
            for index, text in enumerate(texts)
        )
    )


def joined(left, across, right):
    """Return both texts after merging, each given as its sentences."""
    before, after = join_untimed(
        outcome(20, CUT, *left), outcome(CUT - 3, CUT + 3, *across), outcome(CUT, 36, *right), CUT
    )
    return tuple(" ".join(segment.text for segment in side.segments) for side in (before, after))


class TestWords:
    def test_a_divided_word_is_put_together(self):
        assert joined(
            ["They spoke of the law.", "Of the inter"],
            ["law. Of the international court that met"],
            ["national court that met in May."],
        ) == ("They spoke of the law. Of the international", "court that met in May.")

    def test_a_word_that_both_sides_heard_is_there_once(self):
        assert joined(["we saw the old house"], ["the old house on the hill"], ["house on the hill was empty"]) == (
            "we saw the old house",
            "on the hill was empty",
        )

    def test_a_word_that_neither_side_heard_is_put_in(self):
        assert joined(["we saw the old"], ["saw the old house on the hill"], ["on the hill was empty"]) == (
            "we saw the old house",
            "on the hill was empty",
        )

    def test_what_is_said_several_times_stays_so(self):
        sides = (["and then he said no no no"], ["said no no no no no no said she"], ["no no no said she again"])
        assert joined(*sides) == ("and then he said no no no", "no no no said she again")

    def test_a_segment_that_was_only_a_fragment_goes(self):
        assert joined(
            ["That is all there is.", "Re"],
            ["all there is. Remember what I told you"],
            ["member what I told you.", "Goodbye."],
        ) == ("That is all there is. Remember", "what I told you. Goodbye.")

    @pytest.mark.parametrize(
        "across",
        [["something else entirely"], ["we saw"], [], ["saw the old one and only and last house on the hill"]],
        ids=["nothing shared", "one side only", "no text", "much that is new"],
    )
    def test_without_enough_in_common_both_texts_stay(self, across):
        left, right = ["we saw the old hou"], ["house on the hill was empty"]
        assert joined(left, across, right) == (left[0], right[0])

    def test_text_that_is_not_believed_stays(self):
        left = outcome(20, CUT, "we saw the old hou", suspect="repetition")
        right = outcome(CUT, 36, "use on the hill was empty")
        seam = outcome(CUT - 3, CUT + 3, "the old house on the hill")
        assert join_untimed(left, seam, right, CUT) == (left, right)

    def test_text_far_from_the_cut_is_not_touched(self):
        left = Outcome(
            (*outcome(0, 10, "Far away, the old house.").segments, *outcome(20, CUT, "we saw the old hou").segments),
            (Gap(12.0, 14.0, "nothing"),),
        )
        right = Outcome((*outcome(CUT, 33, "use on the hill.").segments, *outcome(50, 55, "On the hill.").segments))
        before, after = join_untimed(left, outcome(CUT - 3, CUT + 3, "the old house on the hill."), right, CUT)
        assert [segment.text for segment in before.segments] == ["Far away, the old house.", "we saw the old house"]
        assert [segment.text for segment in after.segments] == ["on the hill.", "On the hill."]
        assert before.gaps == left.gaps
        assert before.segments[0] == left.segments[0]
        assert before.segments[1].attempts == 2


class TestRecordings:
    """Talk without a pause, cut by force in the middle of words."""

    pieces = (0.0, 9.2, 18.65, 31.0)

    @pytest.fixture
    def talk(self):
        return Recording().speak(round(self.pieces[-1] / (WORD_SECONDS + WORD_GAP)))

    @pytest.fixture
    def transcribed(self, monkeypatch, talk):
        def chunks(blocks, sample_rate, **limits):
            samples = np.concatenate(list(blocks))
            edges = [round(seconds * sample_rate) for seconds in self.pieces[:-1]] + [len(samples)]
            for index, (a, b) in enumerate(pairwise(edges)):
                yield Chunk(index, a, b, sample_rate, samples[a:b], ((a, b),), ((a, b),), forced=b < len(samples))

        monkeypatch.setattr(cutting, "stream_chunks", chunks)

        def run(fragment=None):
            def untimed(samples, options):
                heard = [
                    name if fragment is None or end - start > 0.9 * WORD_SECONDS else fragment
                    for start, end, name in listen(samples)
                ]
                segments = (ClipSegment(0.0, len(samples) / RATE, " ".join(heard)),) if heard else ()
                return ClipResult(segments, language="en", average_log_probability=-0.1, no_speech_probability=0.0)

            engine = FakeEngine(untimed, capabilities=UNTIMED)
            try:
                return transcribe(talk.source, engine=engine).text.split()
            finally:
                engine.close()

        return run

    def test_a_word_heard_on_both_sides_of_a_cut_is_there_once(self, talk, transcribed):
        assert transcribed() == talk.names

    def test_fragments_of_words_give_way_to_the_whole(self, talk, transcribed):
        assert transcribed(fragment="uh") == talk.names
