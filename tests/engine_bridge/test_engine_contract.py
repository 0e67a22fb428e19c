"""What every engine keeps to, whatever is behind it. A new engine joins by a function in `ENGINES`.

vLLM's engines join where vLLM is installed (``.ci/vllm-environment`` makes such a place). Starting one takes a minute,
so they are shared with other test modules and closed at the end (tests/vllm closes one on purpose).
"""

import threading
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from audio.chunk import Chunk
from audio.positions import samples_from_seconds
from engine_bridge.engines.options import TIMESTAMP_CHOICES
from engine_bridge.engines.protocol import ClipResult, DecodingOptions
from engine_bridge.errors import EngineError, UnsupportedOptionError
from engine_bridge.testing import ENGLISH_ONLY, MULTILINGUAL, FakeEngine
from tests.tones import hear

SECONDS = 60  # to wait for one answer on a slow machine


def fake_english(request):
    return FakeEngine(hear, capabilities=ENGLISH_ONLY)


def fake_multilingual(request):
    return FakeEngine(hear, capabilities=MULTILINGUAL, in_flight=3)


def embedded_random(request):
    from engine_bridge.engines.embedded import EmbeddedEngine

    return EmbeddedEngine(str(request.getfixturevalue("random_whisper")), device="cpu", workers=2)


def http_english(request):
    return over_http(request, "tones.en")


def http_multilingual(request):
    return over_http(request, "tones")


def http_chat(request):
    return over_http(request, "tones.en", api="chat")


def over_http(request, model, **settings):
    """Open an engine on a server that runs in a process of its own until the tests end."""
    from engine_bridge.engines.http_engine import HttpEngine
    from tests.speech_server import serving_process

    if model not in _servers:
        stack = ExitStack()
        request.session.config.add_cleanup(stack.close)
        _servers[model] = stack.enter_context(serving_process("--model", model))[1]
    return HttpEngine(f"{_servers[model]}#{model}", open_seconds=SECONDS, **settings)


_servers = {}


def vllm_english(request):
    from tests.vllm_engines import shared_engine

    return shared_engine(request, "tiny.en")


def vllm_multilingual(request):
    from tests.vllm_engines import shared_engine

    return shared_engine(request, "multilingual")


def slow_to_start(function):
    # vLLM and what it imports warn of their own future.
    return pytest.param(function, marks=[pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")])


SHARED = {vllm_english, vllm_multilingual}
ENGINES = [
    fake_english,
    fake_multilingual,
    embedded_random,
    http_english,
    http_multilingual,
    http_chat,
    *map(slow_to_start, (vllm_english, vllm_multilingual)),
]


@pytest.fixture(scope="module", params=ENGINES)
def open_one(request):
    """Return a function that opens an engine which the test closes."""

    def opened():
        return request.param(request)

    opened.is_shared = request.param in SHARED
    return opened


@pytest.fixture(scope="module")
def engine(open_one):
    opened = open_one()
    yield opened
    if not open_one.is_shared:
        opened.close()


def plain(engine, **changes):
    """Return options with the times that the engine has, and the changes."""
    times = "align" if engine.capabilities.word_times else "none"
    return replace(DecodingOptions(timestamps=times), **changes)


def clip(engine, seconds=2.0, hertz=800):
    times = np.arange(samples_from_seconds(seconds, engine.capabilities.sample_rate)) / engine.capabilities.sample_rate
    return (0.3 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)


def assert_is_result(result, seconds):
    assert isinstance(result, ClipResult)
    reached = 0.0
    for segment in result.segments:
        assert reached <= segment.start <= segment.end <= seconds
        assert segment.text.strip()
        assert segment.text == segment.text.strip()
        at = segment.start
        for word in segment.words:
            assert at <= word.start <= word.end <= segment.end
            assert 0 <= word.probability <= 1
            at = word.end
        if segment.words:
            assert "".join(word.text for word in segment.words).strip() == segment.text
        reached = segment.end
    assert result.no_speech_probability is None or 0 <= result.no_speech_probability <= 1
    assert result.average_log_probability is None or result.average_log_probability <= 0


def test_it_names_itself_and_what_it_can_do(engine):
    can = engine.capabilities
    assert ":" in engine.spec
    assert can.sample_rate > 0
    assert can.max_clip_seconds > 0
    assert can.languages
    assert len(set(can.languages)) == len(can.languages)
    assert can.timestamps or not can.word_times
    assert engine.preferred_in_flight >= 1


def test_a_clip_gives_a_future_with_a_result(engine):
    future = engine.submit(clip(engine), plain(engine))
    assert isinstance(future, Future)
    result = future.result(SECONDS)
    assert_is_result(result, 2.0)
    assert result.language in engine.capabilities.languages


@pytest.mark.parametrize("timestamps", TIMESTAMP_CHOICES)
def test_every_kind_of_times_is_given_or_refused_by_name(engine, timestamps):
    options = DecodingOptions(timestamps=timestamps)
    can = engine.capabilities
    both = can.word_times and can.timestamps
    if not {"align": can.word_times, "tokens": can.timestamps, "both": both, "none": True}[timestamps]:
        with pytest.raises(UnsupportedOptionError, match=timestamps):
            engine.check(options)
        return
    assert_is_result(engine.submit(clip(engine), options).result(SECONDS), 2.0)


@pytest.mark.parametrize("frames", [0, 1, 160, 161])
def test_tiny_clips_are_answered_within_their_length(engine, frames):
    samples = clip(engine)[:frames]
    assert_is_result(engine.submit(samples, plain(engine)).result(SECONDS), frames / engine.capabilities.sample_rate)


def test_the_longest_clip_is_taken_and_a_longer_one_refused(engine):
    longest = clip(engine, engine.capabilities.max_clip_seconds)
    assert_is_result(engine.submit(longest, plain(engine)).result(SECONDS), engine.capabilities.max_clip_seconds)
    with pytest.raises(ValueError, match=str(len(longest))):
        engine.submit(np.append(longest, np.float32(0)), plain(engine))


def test_a_clip_with_channels_is_refused(engine):
    with pytest.raises(ValueError, match=r"\(frames,\)"):
        engine.submit(np.zeros((100, 2), dtype=np.float32), plain(engine))


def test_a_clip_is_not_changed(engine):
    samples = clip(engine)
    samples.flags.writeable = False
    before = samples.copy()
    engine.submit(samples, plain(engine)).result(SECONDS)
    np.testing.assert_array_equal(samples, before)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"language": "xx"}, "'xx'"),
        ({"task": "summarise"}, "'summarise'"),
        ({"timestamps": "guess"}, "'guess'"),
        ({"beam_size": 0}, "0"),
        ({"doubt_beam_size": 0}, "0"),
        ({"doubt_beam_size": 5, "temperature": 0.5}, "beam size|temperature"),
        ({"temperature": -1}, "temperature"),
        ({"beam_size": 5, "temperature": 0.5}, "beam size|temperature"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name_at_the_call(engine, changes, named):
    options = plain(engine, **changes)
    with pytest.raises(UnsupportedOptionError, match=named):
        engine.check(options)
    with pytest.raises(UnsupportedOptionError, match=named):
        engine.submit(clip(engine), options)


def test_translation_is_done_or_refused(engine):
    options = plain(engine, task="translate")
    if engine.capabilities.translates:
        assert_is_result(engine.submit(clip(engine), options).result(SECONDS), 2.0)
    else:
        with pytest.raises(UnsupportedOptionError, match="translate"):
            engine.submit(clip(engine), options)


def test_languages_are_told_or_the_question_refused(engine):
    if not engine.capabilities.detects_language:
        with pytest.raises(UnsupportedOptionError, match="detect"):
            engine.detect_language(clip(engine))
        return
    ranked = engine.detect_language(clip(engine)).result(SECONDS)
    probabilities = [probability for _, probability in ranked]
    assert {language for language, _ in ranked} <= set(engine.capabilities.languages)
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1 + 1e-3


def test_a_prompt_is_fitted_in_whole_words_from_its_end_and_then_fits(engine):
    assert engine.fit_prompt("Names: Auricle.") == ("Names: Auricle.", False)
    assert engine.fit_prompt("") == ("", False)
    long = " ".join(f"word{number}" for number in range(2_000))
    fitted, is_cut = engine.fit_prompt(long)
    assert is_cut
    assert 0 < len(fitted) < len(long)
    assert long.endswith(f" {fitted}")
    assert engine.fit_prompt(fitted) == (fitted, False)
    options = plain(engine, prompt=fitted)
    assert_is_result(engine.submit(clip(engine), options).result(SECONDS), 2.0)


def test_the_language_asked_for_is_the_language_used(engine):
    language = engine.capabilities.languages[-1]
    result = engine.submit(clip(engine), plain(engine, language=language)).result(SECONDS)
    assert result.language == language


def test_sampling_and_prompts_give_results(engine):
    for changes in ({"temperature": 0.5}, {"prompt": "Auricle"}):
        assert_is_result(engine.submit(clip(engine), plain(engine, **changes)).result(SECONDS), 2.0)


def test_beam_search_is_done_or_refused_by_name(engine):
    options = plain(engine, beam_size=2)
    if engine.capabilities.beam_search:
        assert_is_result(engine.submit(clip(engine), options).result(SECONDS), 2.0)
        return
    with pytest.raises(UnsupportedOptionError, match="beam size of 2"):
        engine.submit(clip(engine), options)


def test_bounds_of_texts_are_given_in_tokens_or_not_at_all(engine):
    for bound in (engine.capabilities.max_prompt_tokens, engine.capabilities.max_output_tokens):
        assert bound is None or bound > 0


def test_encoder_states_are_given_chunk_by_chunk_with_their_times_or_not_claimed(engine):
    rate = engine.capabilities.sample_rate
    samples = [clip(engine), clip(engine, 1.0, 500)]
    starts = [0, len(samples[0])]
    chunks = [
        Chunk(index, start, start + len(part), rate, part, ((start, start + len(part)),))
        for index, (start, part) in enumerate(zip(starts, samples, strict=True))
    ]
    if not engine.capabilities.embeddings:
        assert not hasattr(engine, "encode") or next_is_refused(engine, chunks)
        return
    first, second = engine.encode(iter(chunks))
    assert first.states.dtype == np.float32
    assert first.states.ndim == 2
    assert first.states.shape == second.states.shape
    assert np.isfinite(first.states).all()
    assert not np.array_equal(first.states, second.states)
    for embedding, chunk in zip((first, second), chunks, strict=True):
        assert embedding.times.shape == embedding.states.shape[:1]
        assert embedding.times[0] == chunk.start_seconds
        assert embedding.times[-1] == chunk.stop_seconds
        assert (np.diff(embedding.times) >= 0).all()
        assert embedding.model == engine.spec
    with pytest.raises(UnsupportedOptionError, match="embeddings"):
        engine.submit_embedding(first, plain(engine))


def next_is_refused(engine, chunks):
    with pytest.raises(UnsupportedOptionError, match="embeddings"):
        next(iter(engine.encode(chunks)))
    return True


def test_clips_of_several_threads_get_their_own_answers(engine):
    lengths = [0.5 + 0.1 * number for number in range(4)]
    futures = {}

    def submit(numbers):
        for number in numbers:
            futures[number] = engine.submit(clip(engine, lengths[number]), plain(engine))

    threads = [threading.Thread(target=submit, args=(range(first, 4, 2),)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, length in enumerate(lengths):
        assert_is_result(futures[number].result(SECONDS), length)


def test_timings_only_grow(engine):
    before = dict(engine.timings())
    engine.submit(clip(engine), plain(engine)).result(SECONDS)
    after = engine.timings()
    assert set(before) <= set(after)
    assert all(after[stage] >= before[stage] >= 0 for stage in before)


def test_closing_cancels_or_finishes_what_waits_and_refuses_what_comes_after(open_one):
    if open_one.is_shared:
        pytest.skip("this engine serves other test modules, and tests/vllm closes one")
    before = set(threading.enumerate())
    engine = open_one()
    futures = [engine.submit(clip(engine), plain(engine, prompt=f"n{number}")) for number in range(4)]
    futures[3].cancel()
    engine.close()
    for future in futures:
        assert future.done()
        try:
            assert_is_result(future.result(0), 2.0)
        except CancelledError:
            assert future.cancelled()
    assert futures[3].cancelled()
    assert [thread for thread in threading.enumerate() if thread not in before] == []
    with pytest.raises(EngineError, match="closed"):
        engine.submit(clip(engine), plain(engine))
    engine.close()
