"""The HTTP engine in front of vLLM's own endpoint, which by itself refuses long recordings and loses passages."""

import re
import threading
import time
from pathlib import Path

import pytest

from engine_bridge import stream_transcript, transcribe
from engine_bridge.engines.http_engine import HttpEngine
from engine_bridge.engines.protocol import DecodingOptions
from tests.vllm_engines import model_folder
from tests.vllm_server import MODEL, VllmServer, stock_folder

pytest.importorskip("vllm.version", reason="vLLM is not installed; see .ci/vllm-environment")
jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed")
normalizer = pytest.importorskip("whisper_normalizer.basic", reason="whisper_normalizer is not installed")

pytestmark = pytest.mark.timeout(1800)

CALLS = Path(__file__).resolve().parents[2] / "samples" / "calls.opus"
normal = normalizer.BasicTextNormalizer()


def difference(reference, text):
    return jiwer.wer(normal(reference), normal(text))


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    folder = stock_folder(model_folder(request, "tiny.en"))
    with VllmServer(folder, tmp_path_factory.mktemp("vllm") / "stock.log") as running:
        yield running


@pytest.fixture
def engine(server):
    opened = HttpEngine(f"{server.url}#{MODEL}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def undisturbed(server):
    """Return a transcript of the long sample, and how many requests it took."""
    before = server.answered()
    opened = HttpEngine(f"{server.url}#{MODEL}")
    try:
        found = transcribe(CALLS, engine=opened)
    finally:
        opened.close()
    return found, server.answered() - before


def test_what_the_server_can_do_is_found_out(engine):
    can = engine.capabilities
    assert can.languages == ("en",)
    assert can.timestamps
    assert not can.word_times
    assert not can.translates


def test_a_long_recording_has_the_words_of_the_embedded_engine(undisturbed):
    from engine_bridge.engines.embedded import EmbeddedEngine

    embedded = EmbeddedEngine("tiny.en", compute_type="float32")
    try:
        expected = transcribe(CALLS, engine=embedded)
    finally:
        embedded.close()
    found, _ = undisturbed
    assert difference(expected.text, found.text) <= 0.01
    assert difference(CALLS.with_suffix(".txt").read_text(), found.text) <= 0.035


def test_its_segments_have_times_in_order_within_the_recording(undisturbed):
    found, _ = undisturbed
    reached = 0.0
    for segment in found.segments:
        assert reached <= segment.start <= segment.end <= found.duration
        reached = segment.end
    assert len(found.segments) > 50


def test_a_clip_comes_back_in_segments_where_the_verbose_form_is_asked_for(engine, speech):
    result = engine.submit(speech.samples, DecodingOptions(timestamps="tokens")).result(120)
    assert result.segments
    assert result.average_log_probability < 0
    assert result.language == "en"


def test_cancelled_requests_leave_the_server_working(engine, speech):
    futures = [engine.submit(speech.samples, DecodingOptions(timestamps="none")) for _ in range(6)]
    time.sleep(0.3)
    assert all(future.cancel() for future in futures if not future.done())
    result = engine.submit(speech.sentence(0), DecodingOptions(timestamps="none")).result(120)
    assert difference(speech.sentences[0][2], result.segments[0].text) <= 0.3


def test_a_server_killed_and_started_again_loses_nothing_and_repeats_nothing_finished(server, undisturbed):
    expected, requests = undisturbed
    before = server.answered()
    opened = HttpEngine(f"{server.url}#{MODEL}", max_concurrency=4)

    def restart():
        server.kill()
        server.start()

    restarting = None
    try:
        with stream_transcript(CALLS, engine=opened) as transcription:
            for number, _ in enumerate(transcription):
                if number == 20:
                    restarting = threading.Thread(target=restart)
                    restarting.start()
            found = transcription.result()
    finally:
        if restarting is not None:
            restarting.join()
        server.wait()
        opened.close()
    assert restarting is not None
    assert found.text == expected.text
    assert found.gaps == expected.gaps
    # One request more for each that was under way, four at the most, and the question that opening asks.
    assert requests <= server.answered() - before <= requests + 5


def test_the_log_counts_what_was_answered(server, undisturbed):
    assert undisturbed[1] > 10
    assert re.search(r"POST /v1/audio/transcriptions", server.log.read_text(errors="replace"))
