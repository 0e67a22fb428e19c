"""The embedded engine: real speech through tiny.en, and a multilingual model of random weights for everything else."""

import threading
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

from engine_bridge import open_engine
from engine_bridge.engines.embedded import EmbeddedEngine
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineError, EngineUnavailableError, UnsupportedOptionError
from engine_bridge.recognition.text_checks import words_of

RATE = 16_000
SECONDS = 120  # to wait for one answer on a slow machine


def spoken(result):
    return words_of(" ".join(segment.text for segment in result.segments).replace("Mr.", "mister").replace("-", " "))


def word_errors(result, reference):
    """Return the least number of words to change, leave out or put in to get from one text to the other."""
    said, costs = spoken(result), list(range(len(reference) + 1))
    for index, word in enumerate(said, 1):
        previous, costs[0] = costs[0], index
        for position, expected in enumerate(reference, 1):
            best = min(previous + (word != expected), costs[position] + 1, costs[position - 1] + 1)
            previous, costs[position] = costs[position], best
    return costs[-1]


def noise(seconds, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(round(seconds * RATE))).astype(np.float32)


def tone(seconds, hertz=600):
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


@pytest.fixture(scope="module")
def answers(tiny_en, speech):
    """Submit what the tests of `TestTinyEn` look at all together, so that no worker waits."""
    futures = {
        "greedy": tiny_en.submit(speech.samples, DecodingOptions()),
        "beam": tiny_en.submit(speech.samples, DecodingOptions(beam_size=3)),
        "doubted": tiny_en.submit(speech.samples, DecodingOptions(doubt_beam_size=5)),
        "tokens": tiny_en.submit(speech.samples, DecodingOptions(timestamps="tokens")),
        "both": tiny_en.submit(speech.samples, DecodingOptions(timestamps="both")),
        "none": tiny_en.submit(speech.samples, DecodingOptions(timestamps="none")),
        "empty": tiny_en.submit(speech.samples[:0], DecodingOptions()),
    }
    return {name: future.result(SECONDS) for name, future in futures.items()}


@pytest.mark.model
class TestTinyEn:
    @pytest.mark.parametrize("name", ["greedy", "beam", "doubted", "tokens", "both", "none"])
    def test_the_words_are_heard(self, answers, speech, name):
        assert word_errors(answers[name], speech.words) <= 0.1 * len(speech.words)

    @pytest.mark.parametrize("name", ["greedy", "both"])
    def test_words_are_timed_where_they_are_spoken(self, answers, speech, name):
        (segment,) = answers[name].segments
        assert "".join(word.text for word in segment.words).strip() == segment.text
        for start, end, text in speech.sentences:
            inside = [word for word in segment.words if start - 0.4 < (word.start + word.end) / 2 < end + 0.4]
            assert abs(len(inside) - len(text.split())) <= 2

    def test_timestamp_tokens_give_segments_at_the_sentences(self, answers, speech):
        segments = answers["tokens"].segments
        assert len(segments) >= len(speech.sentences)
        assert all(not segment.words for segment in segments)
        for start, end, _ in speech.sentences:
            assert min(abs(segment.start - start) for segment in segments) < 1.5
            assert min(abs(segment.end - end) for segment in segments) < 1.5

    def test_without_times_there_is_one_segment_over_the_clip(self, answers, speech):
        (segment,) = answers["none"].segments
        assert (segment.start, segment.end) == (0.0, len(speech.samples) / RATE)
        assert segment.words == ()

    def test_speech_is_told_from_nothing_by_the_models_own_estimates(self, answers):
        assert answers["greedy"].no_speech_probability < 0.2
        assert answers["greedy"].average_log_probability > -0.5
        assert answers["empty"].no_speech_probability > 0.5

    def test_a_second_search_never_takes_a_less_likely_text(self, answers):
        assert answers["doubted"].average_log_probability >= answers["greedy"].average_log_probability

    def test_nothing_has_no_time_before_its_beginning_or_after_its_end(self, answers):
        assert {(segment.start, segment.end) for segment in answers["empty"].segments} <= {(0.0, 0.0)}

    def test_an_answer_does_not_depend_on_the_clips_it_is_worked_out_with(self, speech):
        clips = [speech.samples[: round(seconds * 16_000)] for seconds in (3.0, 20.0, 6.0, 11.0)]
        options = DecodingOptions(language="en", beam_size=5)
        engine = EmbeddedEngine("tiny.en", device="cpu", workers=1, batch_size=4)
        try:
            alone = [engine.submit(clip, options).result(120) for clip in clips]
            # The first holds the worker until the others wait for it together.
            together = [engine.submit(clip, options) for clip in (clips[1], *clips)][1:]
            assert [future.result(120) for future in together] == alone
        finally:
            engine.close()

    def test_clips_together_give_the_words_of_clips_one_by_one(self, tiny_en, speech):
        clips = [speech.sentence(0), speech.sentence(1)]
        one_by_one = [tiny_en.submit(clip, DecodingOptions()).result(SECONDS) for clip in clips]
        batched = tiny_en._process([_request(clip) for clip in clips])
        for (_, _, text), alone, together in zip(speech.sentences, one_by_one, batched, strict=False):
            assert spoken(alone) == spoken(together)
            assert word_errors(alone, text.split()) <= 2

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (DecodingOptions(language="de"), "English only"),
            (DecodingOptions(task="translate"), "cannot do the task 'translate'"),
        ],
    )
    def test_what_an_english_model_cannot_do_is_refused_with_the_way_out(self, tiny_en, options, named):
        with pytest.raises(UnsupportedOptionError, match=named) as caught:
            tiny_en.check(options)
        assert "multilingual" in str(caught.value)

    def test_it_is_the_engine_that_opens_by_default(self):
        engine = open_engine()
        try:
            assert engine.spec == "embedded:tiny.en"
            assert engine.capabilities.languages == ("en",)
        finally:
            engine.close()


def _request(clip, options=None):
    from concurrent.futures import Future

    from engine_bridge.engines.clip_queue import ClipRequest

    return ClipRequest(clip, options or DecodingOptions(), Future())


class TestMultilingual:
    def test_it_knows_the_languages_and_tasks_of_its_vocabulary(self, multilingual):
        can = multilingual.capabilities
        assert len(can.languages) == 99
        assert can.detects_language
        assert can.translates

    def test_languages_are_ranked_over_the_whole_vocabulary(self, multilingual):
        ranked = multilingual.detect_language(noise(5)).result(SECONDS)
        assert len(ranked) == 99
        assert sum(probability for _, probability in ranked) == pytest.approx(1.0, abs=1e-3)

    def test_a_batch_of_different_languages_answers_each_clip_in_its_own(self, multilingual):
        clips = [noise(25), tone(25), noise(25, seed=1), tone(25)]
        expected = [multilingual.detect_language(clip).result(SECONDS)[0] for clip in clips]
        assert len({language for language, _ in expected}) == 2, "the clips no longer differ for this model"
        results = multilingual._process([_request(clip) for clip in clips])
        for result, (language, probability) in zip(results, expected, strict=True):
            assert result.language == language
            assert result.language_probability == pytest.approx(probability, abs=0.05)
        assert results[1].segments == results[3].segments
        assert results[0].segments[0].text != results[1].segments[0].text

    def test_a_named_language_is_used_without_detection(self, multilingual):
        result = multilingual.submit(tone(25), DecodingOptions(language="haw")).result(SECONDS)
        assert result.language == "haw"
        assert result.language_probability is None

    def test_task_language_and_prompt_change_what_the_decoder_starts_from(self, multilingual, monkeypatch):
        prompts = []
        generate = multilingual._model.generate

        class Spy:
            def __getattr__(self, name):
                return getattr(model, name)

            def generate(self, features, prompts_given, **options):
                prompts.extend(prompts_given)
                return generate(features, prompts_given, **options)

        model = multilingual._model
        monkeypatch.setattr(multilingual._text, "_model", Spy())
        options = DecodingOptions(language="fr", task="translate", prompt="Noms", timestamps="tokens")
        multilingual.submit(tone(2), options).result(SECONDS)
        assert prompts == [multilingual._tokens.prompt("fr", options)]

    def test_unlike_options_are_not_decoded_together(self, multilingual):
        options = [DecodingOptions(language=language) for language in ("de", "en", "de", "fr", "en", "de")]
        futures = [multilingual.submit(tone(2), each) for each in options]
        assert [future.result(SECONDS).language for future in futures] == [each.language for each in options]


class TestQueue:
    @pytest.fixture
    def engine(self, random_whisper):
        opened = EmbeddedEngine(str(random_whisper), device="cpu", workers=1, batch_size=2)
        yield opened
        opened.close()

    @pytest.fixture
    def held(self, engine, monkeypatch):
        """Hold the worker at its first batch until the event is set; gives the batches as they are taken."""
        batches, started, proceed = [], threading.Event(), threading.Event()
        process = engine._process

        def holding(batch):
            batches.append(batch)
            started.set()
            assert proceed.wait(SECONDS)
            return process(batch)

        monkeypatch.setattr(engine, "_process", holding)
        yield batches, started, proceed
        proceed.set()

    def test_many_submissions_from_several_threads_each_get_their_answer(self, multilingual):
        futures = [None] * 20

        def submit(first):
            for number in range(first, 20, 4):
                futures[number] = multilingual.submit(tone(1 + number / 10), DecodingOptions(language="en"))

        threads = [threading.Thread(target=submit, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, future in enumerate(futures):
            assert all(segment.end <= 1 + number / 10 for segment in future.result(SECONDS).segments)

    def test_waiting_clips_of_the_same_options_are_taken_together_up_to_the_batch_size(self, engine, held):
        batches, started, proceed = held
        futures = [engine.submit(tone(1), DecodingOptions(language="en"))]
        assert started.wait(SECONDS)
        later = [DecodingOptions(language=language) for language in ("en", "de", "en", "en")]
        futures += [engine.submit(tone(1), options) for options in later]
        proceed.set()
        for future in futures:
            future.result(SECONDS)
        taken = [[request.options.language for request in batch] for batch in batches]
        assert taken == [["en"], ["en", "en"], ["de"], ["en"]]

    def test_closing_cancels_what_waits_and_wakes_who_waits_for_it(self, engine, held):
        _, started, proceed = held
        first = engine.submit(tone(1), DecodingOptions(language="en"))
        assert started.wait(SECONDS)
        waiting = [engine.submit(tone(1), DecodingOptions(language="en")) for _ in range(5)]
        closing = threading.Thread(target=engine.close)
        closing.start()
        done, not_done = wait(waiting, timeout=SECONDS)
        assert not not_done
        assert all(future.cancelled() for future in done)
        with pytest.raises(CancelledError):
            waiting[0].result(0)
        proceed.set()
        closing.join(SECONDS)
        assert first.result(0).language == "en"
        with pytest.raises(EngineError, match="is closed"):
            engine.submit(tone(1), DecodingOptions())

    def test_a_cancelled_clip_is_not_computed(self, engine, held):
        batches, started, proceed = held
        first = engine.submit(tone(1), DecodingOptions(language="en"))
        assert started.wait(SECONDS)
        given_up = engine.submit(tone(1), DecodingOptions(language="en"))
        wanted = engine.submit(tone(1), DecodingOptions(language="en"))
        assert given_up.cancel()
        proceed.set()
        first.result(SECONDS)
        wanted.result(SECONDS)
        assert [len(batch) for batch in batches] == [1, 1]

    def test_a_failure_belongs_to_its_batch_and_the_engine_goes_on(self, engine, monkeypatch):
        process = engine._process
        failures = iter([RuntimeError("no memory left")])

        def failing_once(batch):
            for failure in failures:
                raise failure
            return process(batch)

        monkeypatch.setattr(engine, "_process", failing_once)
        with pytest.raises(EngineError, match="RuntimeError: no memory left") as caught:
            engine.submit(tone(1), DecodingOptions(language="en")).result(SECONDS)
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert engine.submit(tone(1), DecodingOptions(language="en")).result(SECONDS).language == "en"

    def test_timings_name_the_stages(self, engine):
        engine.submit(tone(1), DecodingOptions(language="en")).result(SECONDS)
        timings = engine.timings()
        stages = [stage for stage in timings if not stage.endswith(" (wall)")]
        assert stages == ["features", "encode", "decode text", "align"]
        assert all(seconds > 0 for seconds in timings.values())


class TestOpening:
    def test_weights_that_are_none_are_refused_with_the_folder(self, tmp_path):
        (tmp_path / "model.bin").write_bytes(b"this is no model")
        with pytest.raises(EngineUnavailableError, match="cannot load the model") as caught:
            EmbeddedEngine(str(tmp_path))
        assert str(tmp_path) in str(caught.value)

    def test_a_model_without_its_tokenizer_is_refused(self, random_whisper, tmp_path):
        for file in random_whisper.iterdir():
            if file.name != "tokenizer.json":
                (tmp_path / file.name).symlink_to(file)
        with pytest.raises(EngineUnavailableError, match=r"tokenizer\.json"):
            EmbeddedEngine(str(tmp_path), device="cpu")

    def test_a_folder_is_named_in_the_specification_that_opens_it_again(self, random_whisper):
        engine = open_engine(f"embedded:{random_whisper}")
        try:
            assert engine.spec == f"embedded:{random_whisper}"
        finally:
            engine.close()
