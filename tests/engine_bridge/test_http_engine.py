"""The HTTP engine against a real server of this process or, where it is to be killed, of another."""

import logging
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import numpy as np
import pytest

from engine_bridge.engines.http_engine import HttpEngine
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineError, EngineSpecError, EngineUnavailableError, UnsupportedOptionError
from tests.speech_server import MODEL, Fault, SpeechServer, serving_process
from tests.tones import RATE, Recording

SECONDS = 30
TEXT = DecodingOptions(timestamps="none")


@pytest.fixture(autouse=True)
def no_key_and_short_pauses(monkeypatch):
    monkeypatch.setattr("engine_bridge.engines.http_balance.FIRST_PAUSE", 0.02)
    monkeypatch.delenv("AURICLE_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server():
    with SpeechServer() as running:
        yield running


@pytest.fixture
def open_http(server):
    opened = []

    def open_one(spec=None, **settings):
        opened.append(HttpEngine(spec or f"{server.url}#{MODEL}", **settings))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


def words(count=4):
    return Recording().pause(0.3).speak(count).pause(0.3)


def text_of(result):
    return " ".join(segment.text for segment in result.segments)


def ask(engine, recording=None, options=TEXT):
    return engine.submit((recording or words()).samples, options).result(SECONDS)


def test_a_clip_is_sent_as_flac_at_the_models_rate_and_its_text_comes_back(open_http, server):
    recording = words()
    result = ask(open_http(), recording)
    heard = server.heard[-1]
    assert text_of(result) == "w0 w1 w2 w3"
    assert (result.segments[0].start, result.segments[0].end) == (0.0, pytest.approx(recording.seconds))
    assert result.language == "en"
    assert heard.path == "/v1/audio/transcriptions"
    assert heard.container == "flac"
    assert heard.form == {"model": MODEL, "temperature": "0", "response_format": "json", "language": "en"}
    np.testing.assert_allclose(heard.samples, recording.samples, atol=1 / 32768)


def test_options_reach_the_server(open_http, server):
    with SpeechServer(["whisper"]) as multilingual:
        engine = open_http(f"{multilingual.url}#whisper")
        ask(engine, options=DecodingOptions(language="de", temperature=0.4, prompt="Auricle", timestamps="none"))
        assert multilingual.heard[-1].form == {
            "model": "whisper",
            "temperature": "0.4",
            "response_format": "json",
            "language": "de",
            "prompt": "Auricle",
        }
        ask(engine, options=DecodingOptions(language="de", task="translate", timestamps="none"))
        assert multilingual.heard[-1].path == "/v1/audio/translations"


def test_segments_come_from_the_verbose_answer_where_the_server_gives_one(open_http):
    result = ask(open_http(), options=DecodingOptions(timestamps="tokens"))
    assert [segment.text for segment in result.segments] == ["w0", "w1", "w2", "w3"]
    assert result.segments[1].start == pytest.approx(0.3 + 0.35, abs=0.02)
    assert result.average_log_probability == pytest.approx(-0.1)
    assert result.no_speech_probability == pytest.approx(0.01)


def test_a_server_without_verbose_answers_has_no_times_and_detects_nothing(open_http, server):
    server.verbose = False
    engine = open_http()
    assert not engine.capabilities.timestamps
    assert not engine.capabilities.detects_language
    with pytest.raises(UnsupportedOptionError, match="tokens"):
        engine.submit(words().samples, DecodingOptions(timestamps="tokens"))


def test_the_language_is_asked_for_first_and_then_named():
    with SpeechServer(["whisper"], language="german") as server, closing(HttpEngine(server.url)) as engine:
        assert engine.capabilities.detects_language
        assert engine.detect_language(words().samples).result(SECONDS) == (("de", 1.0),)
        result = ask(engine)
        assert result.language == "de"
        assert server.heard[-1].form["language"] == "de"
        assert server.heard[-1].form["response_format"] == "json"


def test_chat_models_are_sent_the_audio_and_an_instruction(open_http, server):
    engine = open_http(f"{server.url}?api=chat#{MODEL}")
    assert text_of(ask(engine, options=DecodingOptions(prompt="Auricle", timestamps="none"))) == "w0 w1 w2 w3"
    heard = server.heard[-1]
    assert heard.path == "/v1/chat/completions"
    assert heard.container == "flac"
    instruction = heard.form["messages"][0]["content"][0]["text"]
    assert "English" in instruction
    assert "Auricle" in instruction
    assert not engine.capabilities.timestamps


def test_the_only_model_is_taken_and_an_unknown_one_refused_with_the_list(open_http, server):
    engine = open_http(server.url)
    assert engine.spec == f"{server.url}#{MODEL}"
    with pytest.raises(EngineSpecError, match=rf"no model 'other'.*{MODEL}"):
        open_http(f"{server.url}#other")
    server.models.append("second")
    with pytest.raises(EngineSpecError, match=rf"several models.*{MODEL}, second"):
        open_http(server.url)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("http://", "without a server"),
        ("http://user:secret@host/v1", "AURICLE_API_KEY"),
        ("http://host/v1?speed=3#m", "'speed'"),
        ("http://host/v1?clip=0#m", "clip"),
        ("http://host/v1?api=grpc#m", "'grpc'"),
        ("http://host:port/v1", "cannot be read"),
    ],
)
def test_an_address_that_makes_no_sense_is_refused(spec, named):
    with pytest.raises(EngineSpecError, match=named) as refusal:
        HttpEngine(spec)
    assert "secret" not in str(refusal.value)


def test_no_server_is_one_clear_error():
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EngineUnavailableError, match=f"127.0.0.1:{port}"):
        HttpEngine(f"http://127.0.0.1:{port}", open_seconds=0.1)


@pytest.mark.parametrize("name", ["AURICLE_API_KEY", "OPENAI_API_KEY"])
def test_the_key_is_sent_and_never_told(open_http, server, monkeypatch, caplog, name):
    monkeypatch.setenv(name, "sk-secret-1")
    caplog.set_level(logging.DEBUG)
    engine = open_http()
    ask(engine)
    assert server.heard[-1].authorization == "Bearer sk-secret-1"
    server.faults.append(Fault(401, {"error": {"message": "Incorrect API key provided: sk-secret-1"}}))
    with pytest.raises(EngineError, match=r"401.*\*\*\*") as refusal:
        ask(engine)
    told = f"{refusal.value!r} {refusal.value.__cause__!r} {engine.spec} {engine.description} {caplog.text}"
    assert "sk-secret" not in told


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(open_http, server, status):
    engine = open_http()
    server.faults += [Fault(status, {"error": {"message": "not now"}})] * 2
    assert text_of(ask(engine)) == "w0 w1 w2 w3"
    assert not server.faults


def test_a_broken_connection_is_tried_again(open_http, server):
    engine = open_http()
    server.faults += [Fault(breaks=True)] * 2
    assert text_of(ask(engine)) == "w0 w1 w2 w3"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_other_refusals_are_final(open_http, server, status):
    engine = open_http()
    arrived = len(server.arrivals)
    server.faults.append(Fault(status, {"error": {"message": "I will not"}}))
    with pytest.raises(EngineError, match=f"{status}: I will not"):
        ask(engine)
    assert len(server.arrivals) == arrived + 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "the engine is dead", "code": 500}},
        {"object": "error", "message": "the engine is dead"},
        {"detail": "the engine is dead"},
        {"error": "the engine is dead"},
    ],
)
def test_an_error_under_status_200_is_an_error(open_http, server, body):
    engine = open_http()
    server.faults.append(Fault(200, body))
    with pytest.raises(EngineError, match="the engine is dead"):
        ask(engine)


@pytest.mark.parametrize(
    "body", [b"", b"<html>log in</html>", b'{"text": "half', b"[1]", {"words": []}, {"text": None}]
)
def test_an_answer_without_a_text_is_an_error(open_http, server, body):
    engine = open_http()
    server.faults.append(Fault(200, body))
    with pytest.raises(EngineError, match="answered"):
        ask(engine)


def test_a_servers_words_are_shown_in_one_printable_line(open_http, server):
    engine = open_http()
    server.faults.append(Fault(400, {"error": {"message": "no\x1b[2J\n" + "way " * 1000}}))
    with pytest.raises(EngineError, match="no \\[2J way") as refusal:
        ask(engine)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 500


def test_an_empty_text_is_an_answer(open_http):
    silence = Recording().pause(1.0)
    assert ask(open_http(), silence).segments == ()


def test_a_server_that_fails_on_a_clip_is_not_asked_for_ever(open_http, server):
    engine = open_http()
    arrived = len(server.arrivals)
    server.judge = lambda heard: Fault(500, {"error": {"message": "tuple index out of range"}})
    with pytest.raises(EngineError, match="tuple index out of range, 5 times"):
        ask(engine)
    assert len(server.arrivals) == arrived + 5


def test_retry_after_is_honoured(open_http, server):
    engine = open_http()
    server.faults.append(Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"}))
    start = time.monotonic()
    ask(engine)
    assert time.monotonic() - start >= 1.0


def test_a_pause_beyond_the_deadline_is_not_waited_for(open_http, server):
    engine = open_http(deadline_seconds=60.0)
    server.faults.append(Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "3600"}))
    start = time.monotonic()
    with pytest.raises(EngineError, match=r"slow down.*within 60 s"):
        ask(engine)
    assert time.monotonic() - start < 30


def test_the_deadline_ends_the_attempts_on_a_dead_server(open_http, server):
    engine = open_http(deadline_seconds=1.5)
    server.close()
    start = time.monotonic()
    futures = [engine.submit(words().samples, TEXT) for _ in range(8)]
    for future in futures:
        with pytest.raises(EngineError, match=r"within 1.5 s: see to the server"):
            future.result(SECONDS)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("message", "longest"),
    [
        ("audio duration 10.2 seconds is longer than 4 seconds which is the maximum for this model", 4.0),
        ("Audio exceeds maximum allowed duration of 4s. Set VLLM_MAX_AUDIO_DECODE_DURATION_S to increase it.", 4.0),
        ("The audio is too long", 6.0),
    ],
)
def test_a_clip_that_is_too_long_for_the_server_is_sent_in_pieces(open_http, server, message, longest):
    recording = words(28)

    def judge(heard):
        return Fault(400, {"error": {"message": message}}) if heard.seconds > longest else None

    engine = open_http()
    server.judge = judge
    result = ask(engine, recording)
    assert text_of(result).split() == recording.names
    assert all(heard.seconds <= longest for heard in server.heard)
    assert [round(segment.end, 6) for segment in result.segments[:-1]] == [
        round(segment.start, 6) for segment in result.segments[1:]
    ]
    arrived, heard = len(server.arrivals), len(server.heard)
    ask(engine, recording)
    assert len(server.arrivals) - arrived == len(server.heard) - heard  # the limit is known now


def test_a_clip_that_is_too_large_for_the_server_is_sent_in_pieces(open_http, server):
    recording = words(28)
    engine = open_http()

    def judge(heard):
        size = 20_000 * heard.seconds
        message = f"Maximum content size limit (80000) exceeded ({size:.0f} bytes read)"
        return Fault(413, {"error": {"message": message}}) if size > 80_000 else None

    server.judge = judge
    assert text_of(ask(engine, recording)).split() == recording.names


def test_a_prompt_that_is_too_long_for_the_server_is_shortened_first(open_http, server):
    engine = open_http()
    server.judge = lambda heard: (
        Fault(400, {"error": {"message": "This model's maximum context length is 448 tokens"}})
        if len(heard.form.get("prompt", "")) > 100
        else None
    )
    result = ask(engine, options=DecodingOptions(timestamps="none", prompt=" ".join(["Auricle"] * 40)))
    assert text_of(result) == "w0 w1 w2 w3"
    assert 0 < len(server.heard[-1].form["prompt"]) <= 100
    assert len(engine.fit_prompt("word " * 100)[0]) <= 100


def test_a_server_that_does_not_read_flac_is_sent_wav(open_http, server):
    engine = open_http()
    server.judge = lambda heard: (
        Fault(400, {"error": {"message": "Audio file format 'flac' is not supported"}})
        if heard.container == "flac"
        else None
    )
    assert text_of(ask(engine)) == "w0 w1 w2 w3"
    assert server.heard[-1].container == "wav"


def test_requests_at_once_adapt_to_the_server(open_http, server):
    engine = open_http(max_concurrency=16)
    server.delay = 0.02
    (endpoint,) = engine._client.balancer.endpoints
    deadline = time.monotonic() + SECONDS
    while endpoint.limit < 8 and time.monotonic() < deadline:  # a busy machine does not always fill the limit
        for future in [engine.submit(words(1).samples, TEXT) for _ in range(30)]:
            future.result(SECONDS)
    server.hold.clear()
    held = [engine.submit(words(1).samples, TEXT) for _ in range(32)]
    while server.most_at_once < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    server.hold.set()
    for future in held:
        future.result(SECONDS)
    assert 8 <= server.most_at_once <= 16
    grown = endpoint.limit
    server.faults += [Fault(429, {"error": {"message": "too many"}})] * 3
    for future in [engine.submit(words(1).samples, TEXT) for _ in range(12)]:
        future.result(SECONDS)
    assert endpoint.limit < grown
    assert text_of(ask(engine)) == "w0 w1 w2 w3"


def test_servers_share_the_work_and_a_dead_one_is_left_out_until_it_is_back():
    with SpeechServer() as first, SpeechServer() as second:
        port = second.port
        with closing(HttpEngine(f"{first.url},{second.url}#{MODEL}")) as engine:
            first.delay = second.delay = 0.02
            for future in [engine.submit(words(1).samples, TEXT) for _ in range(20)]:
                future.result(SECONDS)
            assert min(len(first.heard), len(second.heard)) >= 5
            second.close()
            for future in [engine.submit(words(1).samples, TEXT) for _ in range(20)]:
                future.result(SECONDS)
            with SpeechServer(port=port) as again:
                deadline = time.monotonic() + 20
                while not again.heard and time.monotonic() < deadline:
                    futures = [engine.submit(words(1).samples, TEXT) for _ in range(8)]
                    for future in futures:
                        future.result(SECONDS)
                assert again.heard


def test_a_server_that_is_down_from_the_start_does_not_keep_the_others_from_working(server):
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with closing(HttpEngine([f"http://127.0.0.1:{port}/v1", f"{server.url}#{MODEL}"])) as engine:
        assert text_of(ask(engine)) == "w0 w1 w2 w3"


def test_cancelling_a_future_cancels_its_request(open_http, server):
    engine = open_http()
    server.hold.clear()
    arrived = len(server.arrivals)
    future = engine.submit(words().samples, TEXT)
    deadline = time.monotonic() + SECONDS
    while len(server.arrivals) == arrived and time.monotonic() < deadline:
        time.sleep(0.01)
    assert future.cancel()
    time.sleep(0.2)
    server.hold.set()
    deadline = time.monotonic() + SECONDS
    while not server.gone and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.gone == 1
    assert text_of(ask(engine)) == "w0 w1 w2 w3"


def test_closing_cancels_what_waits_and_leaves_no_thread(open_http, server):
    before = set(threading.enumerate())
    engine = open_http()
    server.hold.clear()
    futures = [engine.submit(words().samples, TEXT) for _ in range(6)]
    engine.close()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(SECONDS)
    server.hold.set()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(words().samples, TEXT)
    assert [each.name for each in set(threading.enumerate()) - before if each.name.startswith("auricle")] == []


def test_a_prompt_is_cut_in_whole_words(open_http):
    engine = open_http()
    long = " ".join(f"word{number}" for number in range(500))
    fitted, is_cut = engine.fit_prompt(long)
    assert is_cut
    assert long.endswith(f" {fitted}")
    assert engine.fit_prompt(fitted) == (fitted, False)


def test_a_server_that_is_killed_and_started_again_loses_no_clip_and_repeats_none_that_was_finished(tmp_path):
    log = tmp_path / "answered.txt"
    log.touch()
    arguments = ["--log", log, "--delay", 0.2]
    clips = [Recording().pause(0.2 + 0.01 * number).speak(2).samples for number in range(24)]
    with ExitStack() as stack:
        process, url = stack.enter_context(serving_process(*arguments))
        engine = stack.enter_context(closing(HttpEngine(url, open_seconds=SECONDS, max_concurrency=4)))
        futures = [engine.submit(clip, TEXT) for clip in clips]
        deadline = time.monotonic() + SECONDS
        while sum(future.done() for future in futures) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        finished = sum(future.done() for future in futures)
        assert 8 <= finished < len(clips)
        stack.enter_context(serving_process(*arguments, "--port", urlsplit(url).port))
        texts = [text_of(future.result(2 * SECONDS)) for future in futures]
    assert texts == ["w0 w1"] * len(clips)
    answered = Counter(log.read_text().split())
    assert len(answered) == len(clips) + 1  # and the question that opening asks
    # Only what was under way when the server died, four clips at the most, can have been done without being received.
    assert sum(answered.values()) <= len(answered) + 4


def test_long_audio_is_recognised_through_the_pipeline(open_http):
    from engine_bridge import transcribe

    recording = Recording().phrases(12)
    assert recording.samples.dtype == np.float32
    transcript = transcribe((recording.samples, RATE), engine=open_http())
    assert transcript.text.split() == recording.names
