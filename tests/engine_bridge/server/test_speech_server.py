"""The endpoints over real HTTP, on an engine that hears `tests.tones`."""

import base64
import io
import json
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import pytest
import soundfile

from engine_bridge.engines.protocol import ClipResult
from engine_bridge.errors import EngineError
from engine_bridge.server.settings import ServerSettings
from engine_bridge.testing import ENGLISH_ONLY, MULTILINGUAL, FakeEngine
from tests.tones import RATE, Recording, hear

pytest.importorskip("starlette", reason="the server's libraries are not installed")
uvicorn = pytest.importorskip("uvicorn", reason="the server's libraries are not installed")
httpx2 = pytest.importorskip("httpx2", reason="httpx2 is not installed")

MODEL = "tones"
INSIDE = {"isolate": False}  # decoding in this process is quicker, and what is tested here does not depend on it


def file_of(recording, container="WAV"):
    data = io.BytesIO()
    soundfile.write(data, recording.samples, RATE, format=container)
    return data.getvalue()


@contextmanager
def serving(engine, **options):
    from engine_bridge.server.app import create_app

    settings = ServerSettings.from_options({**INSIDE, **options})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            create_app(engine, [MODEL], settings), log_level="error", ws="none", timeout_graceful_shutdown=3
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30, trust_env=False
        ) as client:
            yield client
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
    engine.close()


@pytest.fixture(scope="module")
def client():
    with serving(FakeEngine(hear, capabilities=ENGLISH_ONLY)) as client:
        yield client


@pytest.fixture(scope="module")
def long():
    return Recording().phrases(14)


def post(client, recording=None, *, path="/v1/audio/transcriptions", file=None, **fields):
    data = file if file is not None else file_of(recording or Recording().phrases(2))
    return client.post(path, files={"file": ("talk.wav", data)}, data=fields)


def problem(answer, status):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


def test_json_holds_the_text_and_what_is_missing(client, long):
    answer = post(client, long, model=MODEL)
    assert answer.status_code == 200
    body = answer.json()
    assert body["text"].split() == long.names
    assert body["usage"] == {"type": "duration", "seconds": int(np.ceil(long.seconds))}
    assert body["gaps"] == []
    assert body["warnings"] == []


def test_text_is_plain(client, long):
    answer = post(client, long, response_format="text")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.split() == long.names


def test_verbose_json_has_segments_with_times_within_the_recording(client, long):
    body = post(client, long, response_format="verbose_json").json()
    assert body["task"] == "transcribe"
    assert body["language"] == "en"
    assert body["duration"] == pytest.approx(long.seconds, abs=0.01)
    assert " ".join(segment["text"] for segment in body["segments"]).split() == long.names
    reached = 0.0
    for number, segment in enumerate(body["segments"]):
        assert segment["id"] == number
        assert reached <= segment["start"] <= segment["end"] <= body["duration"] + 0.01
        assert segment["avg_logprob"] <= 0
        reached = segment["end"]
    assert "words" not in body
    assert body["timings"]["total"] > 0


def test_words_are_timed_where_they_are_asked_for(client, long):
    fields = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    body = post(client, long, **fields).json()
    assert [word["word"] for word in body["words"]] == long.names
    for word, (start, end, _) in zip(body["words"], long.words, strict=True):
        assert word["start"] == pytest.approx(start, abs=0.1)
        assert end - 0.1 <= word["end"] < end + 0.6  # a word lasts into the pause after it
    assert "segments" not in body


@pytest.mark.parametrize(("response_format", "comma"), [("srt", ","), ("vtt", ".")])
def test_subtitles(client, long, response_format, comma):
    answer = post(client, long, response_format=response_format)
    cues = re.findall(rf"(\d\d:)?\d\d:\d\d{re.escape(comma)}\d\d\d --> ", answer.text)
    assert len(cues) > 5
    assert answer.text.startswith("1\n" if response_format == "srt" else "WEBVTT")
    assert re.findall(r"w\d+", answer.text) == long.names


def test_streamed_text_comes_in_events_that_both_kinds_of_clients_read(client, long):
    with client.stream(
        "POST", "/v1/audio/transcriptions", files={"file": ("a.wav", file_of(long))}, data={"stream": "true"}
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line[6:]) for line in lines[:-1]]
    deltas = [event for event in events if event["type"] == "transcript.text.delta"]
    assert len(deltas) > 3
    assert "".join(event["delta"] for event in deltas).split() == long.names
    assert "".join(event["choices"][0]["delta"]["content"] for event in events).split() == long.names
    assert events[-1]["type"] == "transcript.text.done"
    assert events[-1]["text"].split() == long.names
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert {event["object"] for event in events} == {"transcription.chunk"}


def test_translations_are_made_or_refused(client):
    assert "translate" in problem(post(client, path="/v1/audio/translations"), 400)["message"]
    engine = FakeEngine(hear, capabilities=MULTILINGUAL)
    with serving(engine) as multilingual:
        body = post(multilingual, path="/v1/audio/translations", response_format="verbose_json", language="de").json()
        assert body["task"] == "translate"
        assert {each.options.task for each in engine.submissions} == {"translate"}
        assert {each.options.language for each in engine.submissions} == {"de"}


def test_the_request_sets_language_prompt_terms_and_temperature():
    engine = FakeEngine(hear, capabilities=MULTILINGUAL)
    with serving(engine) as client:
        post(client, language="fr", prompt="In the style.", hotwords="Auricle, vLLM", temperature="0.3")
    (first, *_) = engine.submissions
    assert first.options.language == "fr"
    assert first.options.prompt == "Auricle, vLLM. In the style."
    assert first.options.temperature == 0.3


@pytest.mark.parametrize(
    ("fields", "status", "param", "named"),
    [
        ({"model": "other"}, 404, "model", "tones"),
        ({"response_format": "docx"}, 400, "response_format", "verbose_json"),
        ({"temperature": "hot"}, 400, "temperature", "number"),
        ({"temperature": "nan"}, 400, "temperature", "number"),
        ({"stream": "maybe"}, 400, "stream", "true or false"),
        ({"stream": "true", "response_format": "srt"}, 400, "stream", "srt"),
        ({"timestamp_granularities[]": "word"}, 400, "timestamp_granularities[]", "verbose_json"),
        ({"timestamp_granularities[]": "letter"}, 400, "timestamp_granularities[]", "word"),
        ({"top_p": "0.5"}, 400, "top_p", "leave it out"),
        ({"n": "3"}, 400, "n", "use_beam_search"),
        ({"chunking_strategy": "server_vad"}, 400, "chunking_strategy", "pauses"),
        ({"language": "xx"}, 400, None, "'xx'"),
        ({"media_io_kwargs": '{"audio": {"max_seconds": 1e9}}'}, 400, "media_io_kwargs", "max_seconds"),
        ({"media_io_kwargs": '{"audio": {"audio_backend": "sox"}}'}, 400, "media_io_kwargs", "sox"),
        ({"media_io_kwargs": '{"video": {}}'}, 400, "media_io_kwargs", "audio_backend"),
        ({"media_io_kwargs": "["}, 400, "media_io_kwargs", "audio_backend"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(client, fields, status, param, named):
    error = problem(post(client, **fields), status)
    assert error["param"] == param
    assert named in error["message"]
    assert error["type"] == "invalid_request_error"


def test_a_request_may_choose_a_backend(client):
    assert post(client, media_io_kwargs='{"audio": {"audio_backend": "pyav"}}').status_code == 200


@pytest.mark.parametrize(("fields", "searches"), [({}, (1, 5)), ({"n": "1"}, (1, 1)), ({"temperature": "0.3"}, (1, 1))])
def test_without_a_beam_size_doubtful_text_is_searched_for_again(fields, searches):
    engine = FakeEngine(hear)
    with serving(engine) as client:
        assert post(client, **fields).status_code == 200
    options = engine.submissions[0].options
    assert (options.beam_size, options.doubt_beam_size) == searches


def test_a_beam_size_is_handed_to_the_engine():
    engine = FakeEngine(hear)
    with serving(engine) as client:
        assert post(client, use_beam_search="true", n="3").status_code == 200
    assert engine.submissions[0].options.beam_size == 3


def test_a_form_without_a_file_and_no_form_are_refused(client):
    assert problem(client.post("/v1/audio/transcriptions", files={"other": b"x"}), 400)
    assert "no file" in problem(client.post("/v1/audio/transcriptions", files={"model": (None, MODEL)}), 400)["message"]
    assert problem(client.post("/v1/audio/transcriptions", json={"file": "x"}), 415)
    broken = client.post("/v1/audio/transcriptions", content=b"x", headers={"Content-Type": "multipart/form-data"})
    assert problem(broken, 400)


@pytest.mark.parametrize("data", [b"", b"no audio at all", b"RIFF\x00\x00\x00\x00WAVE", b"\x00" * 5000])
def test_what_is_no_audio_is_one_clear_refusal(client, data):
    error = problem(post(client, file=data), 400)
    assert error["param"] == "file"
    assert error["message"].startswith("talk.wav: ")


def test_file_names_are_not_believed(client):
    answer = client.post("/v1/audio/transcriptions", files={"file": ("../../etc/x\u202e\n.wav", b"no audio")})
    assert problem(answer, 400)["message"].startswith("x")


@pytest.mark.parametrize(
    ("options", "status"),
    [({"max_seconds": 2}, 400), ({"max_encoded_bytes": 4000}, 413), ({"max_sample_rate": 8000}, 400)],
)
def test_limits_are_the_servers_and_the_message_names_the_setting(options, status):
    with serving(FakeEngine(hear), **options) as client:
        error = problem(post(client), status)
        assert error["code"] == "limit_exceeded"
        assert next(iter(options)) in error["message"]
        assert "media-io-kwargs" in error["message"]


def test_an_upload_that_is_too_large_is_refused_while_it_comes():
    sent = []

    def body():
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        for _ in range(400):
            sent.append(1)
            yield bytes(1 << 16)
        yield b"\r\n--x--\r\n"

    with serving(FakeEngine(hear), max_encoded_bytes=100_000) as client:
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        # The server may close the connection rather than receive the rest.
        with suppress(httpx2.TransportError):
            answer = client.post("/v1/audio/transcriptions", content=body(), headers=headers)
            assert problem(answer, 413)["code"] == "limit_exceeded"
        assert post(client, Recording().phrases(1)).status_code in (200, 413)
        declared = client.post(
            "/v1/audio/transcriptions", content=b"x" * 2_000_000, headers={**headers, "Content-Length": "2000000"}
        )
        assert problem(declared, 413)


def test_an_engine_that_fails_is_status_500_and_the_server_lives_on():
    outcomes = iter([EngineError("the engine died")])

    def script(samples, options):
        return next(outcomes, None) or hear(samples, options)

    with serving(FakeEngine(script)) as client:
        error = problem(post(client), 500)
        assert error["type"] == "server_error"
        assert "died" in error["message"]
        assert post(client).status_code == 200


def test_a_stream_that_breaks_off_says_so():
    answers = iter([hear])

    def script(samples, options):
        answer = next(answers, None)
        return EngineError("the engine died") if answer is None else answer(samples, options)

    with serving(FakeEngine(script)) as client:
        answer = post(client, Recording().phrases(40), stream="true")
    assert answer.status_code == 200
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert "w0" in json.loads(events[0])["delta"]
    assert "died" in json.loads(events[-2])["error"]["message"]
    assert events[-1] == "[DONE]"


def test_a_stream_of_what_is_no_audio_has_the_right_status(client):
    assert problem(post(client, file=b"no audio", stream="true"), 400)["param"] == "file"


def test_more_recordings_than_allowed_are_sent_away_for_a_while():
    gate = threading.Event()

    def script(samples, options):
        gate.wait(20)
        return hear(samples, options)

    engine = FakeEngine(script)
    with serving(engine, max_recordings=1) as client:
        answers = []
        first = threading.Thread(target=lambda: answers.append(post(client)))
        first.start()
        while not engine.submissions:
            time.sleep(0.01)
        refused = post(client)
        assert problem(refused, 503)["code"] == "busy"
        assert int(refused.headers["retry-after"]) > 0
        gate.set()
        first.join()
        assert answers[0].status_code == 200
        assert post(client).status_code == 200


@pytest.mark.parametrize("stream", ["true", "false"])
def test_work_ends_when_the_client_leaves(stream):
    engine = FakeEngine(hear, delay=lambda number: 0.0 if number < 1 else 60.0, in_flight=4)
    with serving(engine) as client:
        recording = Recording().phrases(40)
        with pytest.raises(httpx2.TransportError):
            client.post(
                "/v1/audio/transcriptions",
                files={"file": ("a.wav", file_of(recording))},
                data={"stream": stream},
                timeout=httpx2.Timeout(1.0),
            )
        deadline = time.monotonic() + 10
        while engine._open and time.monotonic() < deadline:
            time.sleep(0.02)
        assert engine._open == 0
        asked = len(engine.submissions)
        time.sleep(0.3)
        assert len(engine.submissions) == asked


def test_a_server_that_is_told_to_end_does_not_wait_for_a_recording():
    engine = FakeEngine(hear, delay=lambda number: 60.0)
    with serving(engine) as client:
        asking = threading.Thread(target=lambda: suppressed(lambda: post(client, Recording().phrases(20))), daemon=True)
        asking.start()
        while not engine.submissions:
            time.sleep(0.01)
        start = time.monotonic()
    assert time.monotonic() - start < 15
    assert not any(thread.name == "auricle-recording" for thread in threading.enumerate())


def suppressed(action):
    with suppress(httpx2.TransportError):
        action()


def test_silence_is_an_empty_text(client):
    body = post(client, Recording().pause(3.0)).json()
    assert body["text"] == ""
    assert body["gaps"] == []


def test_speech_without_text_is_listed():
    with serving(FakeEngine(lambda samples, options: ClipResult(()))) as client:
        body = post(client, Recording().phrases(3)).json()
        assert body["text"] == ""
        assert body["gaps"]


def test_requests_do_not_see_one_anothers_text(client):
    spoken, silent = Recording().phrases(2), Recording().pause(2.0)
    answers = {}

    def ask(number):
        answers[number] = post(client, silent if number % 2 else spoken).json()["text"].split()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[number] for number in range(8)] == [spoken.names, []] * 4


def test_audio_by_address_follows_the_policy(client):
    error = problem(
        client.post("/v1/audio/transcriptions", files={"audio_url": (None, "http://127.0.0.1:9/a.wav")}), 400
    )
    assert error["param"] == "audio_url"
    assert "public" in error["message"]
    recording = Recording().phrases(2)
    url = "data:audio/wav;base64," + base64.b64encode(file_of(recording)).decode()
    answer = client.post("/v1/audio/transcriptions", files={"audio_url": (None, url)})
    assert answer.json()["text"].split() == recording.names


def test_decoding_apart_gives_the_same():
    recording = Recording().phrases(3)
    with serving(FakeEngine(hear), isolate=True) as client:
        assert post(client, recording).json()["text"].split() == recording.names
        assert problem(post(client, file=b"no audio"), 400)["message"].startswith("talk.wav: ")


KEEPING = {"mm_processor_cache_gb": 0.01}


def named(client, uuid, key=None, **fields):
    """Ask for a recording by its name alone."""
    form = {"uuid": (None, uuid), **{name: (None, value) for name, value in fields.items()}}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return client.post("/v1/audio/transcriptions", files=form, headers=headers)


def test_a_recording_sent_under_a_uuid_is_found_by_it_alone():
    with serving(FakeEngine(hear, capabilities=ENGLISH_ONLY), **KEEPING) as client:
        sent = post(client, Recording().phrases(3), uuid="tuesday")
        assert sent.status_code == 200, sent.text
        assert sent.json()["text"]
        assert named(client, "tuesday").json()["text"] == sent.json()["text"]
        assert named(client, "tuesday", response_format="srt").text.startswith("1\n")
        error = problem(named(client, "wednesday"), 404)
        assert (error["param"], error["code"]) == ("uuid", "not_kept")
        assert "send the audio itself again" in error["message"]


def test_a_uuid_is_its_owners_alone():
    with serving(FakeEngine(hear, capabilities=ENGLISH_ONLY), **KEEPING) as client:
        files = {"file": ("talk.wav", file_of(Recording().phrases(2))), "uuid": (None, "shared name")}
        hers = {"Authorization": "Bearer hers"}
        assert client.post("/v1/audio/transcriptions", files=files, headers=hers).status_code == 200
        assert named(client, "shared name", key="hers").status_code == 200
        problem(named(client, "shared name", key="his"), 404)
        problem(named(client, "shared name"), 404)


def test_a_uuid_lives_as_long_as_there_is_room():
    seconds = 0.01 * 2**30 / 4 / RATE
    with serving(FakeEngine(hear, capabilities=ENGLISH_ONLY), **KEEPING) as client:
        third = Recording().phrases(2).pause(0.4 * seconds)
        for name in ("first", "second", "third"):
            assert post(client, third, uuid=name).status_code == 200
        problem(named(client, "first"), 404)
        assert named(client, "third").status_code == 200


def test_what_is_kept_is_held_in_memory_and_limited_as_chats_are():
    with serving(FakeEngine(hear, capabilities=ENGLISH_ONLY), max_chat_seconds=5, **KEEPING) as client:
        error = problem(post(client, Recording().phrases(14), uuid="long"), 400)
        assert error["code"] == "limit_exceeded"
        assert "max_chat_seconds" in error["message"]
        assert post(client, Recording().phrases(14)).status_code == 200


def test_a_server_that_keeps_nothing_refuses_a_uuid_by_name(client):
    for answer in (post(client, uuid="tuesday"), named(client, "tuesday")):
        error = problem(answer, 400)
        assert (error["param"], error["code"]) == ("uuid", "unsupported_option")
        assert "mm_processor_cache_gb" in error["message"]


def test_models_and_health_are_told(client):
    assert client.get("/v1/models").json()["data"][0]["id"] == MODEL
    assert client.get("/health").status_code == 200


@pytest.mark.filterwarnings("ignore")
def test_openais_own_client_reads_every_answer(client, long):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    with openai.OpenAI(base_url=str(client.base_url.join("/v1")), api_key="none", max_retries=0) as theirs:
        ask = partial(theirs.audio.transcriptions.create, model=MODEL, file=("talk.wav", file_of(long)))
        assert ask().text.split() == long.names
        verbose = ask(response_format="verbose_json", timestamp_granularities=["word", "segment"])
        assert [word.word for word in verbose.words] == long.names
        assert verbose.segments[-1].end <= verbose.duration + 0.01
        assert "-->" in ask(response_format="srt")
        events = list(ask(stream=True))
        assert events[-1].text.split() == long.names
        assert "".join(event.delta for event in events[:-1]).split() == long.names
        with pytest.raises(openai.NotFoundError, match="there is no model"):
            ask(model="other")


def test_the_http_engine_speaks_with_this_server(client, long):
    from engine_bridge.engines.http_engine import HttpEngine
    from engine_bridge.engines.protocol import DecodingOptions

    engine = HttpEngine(str(client.base_url.join("/v1")), languages=["en"])
    try:
        clip = Recording().pause(0.3).speak(4).pause(0.3)
        result = engine.submit(clip.samples, DecodingOptions(timestamps="tokens")).result(30)
        assert " ".join(segment.text for segment in result.segments).split() == clip.names
    finally:
        engine.close()
