"""The engine in this process on a real vLLM, against the embedded engine with the same weights."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from audio import open_stream, stream_chunks
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineDeadError, EngineError, EngineSpecError
from tests.conftest import ROOT
from tests.vllm_engines import model_folder, shared_engine

pytestmark = [pytest.mark.timeout(1_200), pytest.mark.filterwarnings("ignore"), pytest.mark.model]

NONE = DecodingOptions(timestamps="none")
SECONDS = 300


@pytest.fixture(scope="module")
def engine(request):
    return shared_engine(request, "tiny.en")


@pytest.fixture(scope="module")
def embedded():
    from engine_bridge.engines.embedded import EmbeddedEngine

    opened = EmbeddedEngine("tiny.en", device="cpu", compute_type="float32")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def chunks():
    with open_stream(ROOT / "samples" / "calls.opus", 16_000) as stream:
        return list(stream_chunks(stream, 16_000, max_duration=28.0, keep_silence=1.0))


def words_of(engine, chunks):
    futures = [engine.submit(chunk.samples, NONE) for chunk in chunks]
    texts = [segment.text for future in futures for segment in future.result(SECONDS).segments]
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()(" ".join(texts))


def test_the_long_sample_has_the_same_words_as_in_the_embedded_engine(engine, embedded, chunks):
    import jiwer

    ours, theirs = words_of(engine, chunks), words_of(embedded, chunks)
    assert len(theirs.split()) > 700
    assert jiwer.wer(theirs, ours) <= 0.01


def test_a_clips_probability_is_that_of_the_embedded_engine(engine, embedded, chunks):
    ours, theirs = (each.submit(chunks[0].samples, NONE).result(SECONDS) for each in (engine, embedded))
    assert ours.average_log_probability == pytest.approx(theirs.average_log_probability, abs=0.05)
    assert ours.language == "en"


def test_timestamps_follow_whispers_rules_as_in_the_embedded_engine(engine, embedded, chunks):
    tokens = DecodingOptions(timestamps="tokens")
    for chunk in chunks[:4]:
        ours, theirs = (each.submit(chunk.samples, tokens).result(SECONDS).segments for each in (engine, embedded))
        assert [part.text for part in ours] == [part.text for part in theirs]
        assert [part.start for part in ours] == pytest.approx([part.start for part in theirs], abs=0.1)
        assert [part.end for part in ours] == pytest.approx([part.end for part in theirs], abs=0.1)


def test_encoder_states_are_those_of_the_embedded_engine(engine, embedded, chunks):
    for ours, theirs in zip(engine.encode(chunks[:2]), embedded.encode(chunks[:2]), strict=True):
        assert ours.states.shape == theirs.states.shape
        np.testing.assert_allclose(ours.states, theirs.states, atol=0.01)
        np.testing.assert_array_equal(ours.times, theirs.times)


def test_cancelled_requests_leave_the_engine(engine, chunks):
    futures = [engine.submit(chunk.samples, NONE) for chunk in chunks[:6]]
    time.sleep(0.5)
    assert all(future.cancel() for future in futures[1:])
    assert futures[0].result(SECONDS).segments
    deadline = time.monotonic() + 60
    while engine._client.output_processor.get_num_unfinished_requests():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_dead_engine_says_what_is_unfinished_and_a_restart_takes_it_up(engine, chunks):
    expected = [engine.submit(chunk.samples, NONE).result(SECONDS) for chunk in chunks[:3]]
    futures = [engine.submit(chunk.samples, NONE) for chunk in chunks[:3]]
    time.sleep(0.3)
    os.kill(engine._client.engine_core.resources.engine_manager.processes[0].pid, signal.SIGKILL)
    failures = set()
    for future in futures:
        with pytest.raises(EngineDeadError) as caught:
            future.result(SECONDS)
        failures.add(caught.value)
    (failure,) = failures
    assert len(failure.unfinished) == 3
    again = [future.result(SECONDS) for future in engine.restart()]
    assert [part.text for result in again for part in result.segments] == [
        part.text for result in expected for part in result.segments
    ]


def test_an_argument_that_vllm_does_not_know_is_refused_by_name(request):
    from engine_bridge import open_engine

    folder = model_folder(request, "tiny.en")
    with pytest.raises(EngineSpecError, match="max_model_length"):
        open_engine(f"vllm:{folder}", max_model_length=448)


def test_closing_ends_its_processes_and_refuses_what_comes_after(request):
    engine = shared_engine(request, "multilingual")
    processes = engine._client.engine_core.resources.engine_manager.processes
    future = engine.submit(np.zeros(16_000, dtype=np.float32), NONE)
    engine.close()
    assert future.done()
    for process in processes:
        process.join(30)
        assert not process.is_alive()
    others = shared_engine(request, "tiny.en")
    named = [thread for thread in threading.enumerate() if thread.name == "auricle-vllm"]
    assert named == [others._loop._thread]
    with pytest.raises(EngineError, match="closed"):
        engine.submit(np.zeros(16_000, dtype=np.float32), NONE)
