"""Auricle inside `vllm serve`: its endpoints in the place of vLLM's."""

import io
import json
import re
import threading
import time
from pathlib import Path

import pytest
import soundfile

from engine_bridge import transcribe
from engine_bridge.engines.http_engine import HttpEngine
from engine_bridge.engines.protocol import DecodingOptions
from tests.vllm_engines import model_folder
from tests.vllm_server import MODEL, VllmServer
from tests.waiting import wait_until

pytest.importorskip("vllm.version", reason="vLLM is not installed; see .ci/vllm-environment")
httpx2 = pytest.importorskip("httpx2", reason="httpx2 is not installed")
jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed")
normalizer = pytest.importorskip("whisper_normalizer.basic", reason="whisper_normalizer is not installed")

pytestmark = pytest.mark.timeout(1800)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SPEECH = Path(__file__).resolve().parents[3] / "shared" / "data" / "speech"
CALLS = SAMPLES / "calls.opus"
READING = SAMPLES / "reading.flac"
normal = normalizer.BasicTextNormalizer()


def difference(reference, text):
    return jiwer.wer(normal(reference), normal(text))


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    arguments = ["--media-io-kwargs", json.dumps({"audio": {"max_seconds": 3600}})]
    log = tmp_path_factory.mktemp("vllm") / "plugin.log"
    with VllmServer(model_folder(request, "tiny.en"), log, *arguments, VLLM_PLUGINS="auricle") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with httpx2.Client(base_url=server.url, timeout=900, trust_env=False) as opened:
        yield opened


def post(client, file, *, path="/audio/transcriptions", **fields):
    return client.post(path, files={"file": file}, data=fields)


def recording(path):
    return (path.name, path.read_bytes())


@pytest.fixture(scope="module")
def verbose(client):
    answer = post(client, recording(CALLS), model=MODEL, response_format="verbose_json")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def text(client):
    """Return the text of the reading."""
    answer = post(client, recording(READING), response_format="text")
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text


@pytest.fixture(scope="module")
def clip():
    """Return 12 s of speech as a FLAC file, with its words."""
    samples, rate = soundfile.read(SAMPLES / "reading.flac", dtype="float32")
    parts = json.loads((SAMPLES / "reading.json").read_text())["segments"]
    inside = [part for part in parts if part["end"] < 12]
    file = io.BytesIO()
    soundfile.write(file, samples[: round((inside[-1]["end"] + 0.3) * rate)], rate, format="FLAC")
    return file.getvalue(), " ".join(part["text"] for part in inside)


def test_a_recording_of_minutes_in_one_request_has_the_words_of_the_embedded_engine(verbose):
    from engine_bridge.engines.embedded import EmbeddedEngine

    embedded = EmbeddedEngine("tiny.en", compute_type="float32")
    try:
        expected = transcribe(CALLS, engine=embedded)
    finally:
        embedded.close()
    assert difference(expected.text, verbose["text"]) <= 0.01
    assert difference(CALLS.with_suffix(".txt").read_text(), verbose["text"]) <= 0.035


def test_times_lose_no_passage(verbose):
    assert difference(verbose["text"], " ".join(segment["text"] for segment in verbose["segments"])) == 0
    reached = 0.0
    for segment in verbose["segments"]:
        assert reached <= segment["start"] <= segment["end"] <= verbose["duration"] + 0.01
        assert segment["end"] - segment["start"] < 30
        reached = segment["end"]
    assert verbose["language"] == "en"
    assert verbose["duration"] == pytest.approx(423, abs=1)


@pytest.mark.parametrize("response_format", ["srt", "vtt"])
def test_subtitles_have_the_same_words(client, text, response_format):
    answer = post(client, recording(READING), response_format=response_format)
    assert answer.status_code == 200
    lines = [line for line in answer.text.splitlines() if "-->" not in line and not line.isdigit() and line != "WEBVTT"]
    assert difference(text, " ".join(lines)) <= 0.005
    assert len(re.findall(" --> ", answer.text)) > 20


def test_text_comes_while_the_recording_is_at_work(client, verbose):
    deltas = []
    fields = {"files": {"file": recording(CALLS)}, "data": {"stream": "true"}}
    with client.stream("POST", "/audio/transcriptions", **fields) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                if not deltas:
                    assert at_work(client) > 0
                deltas.append(json.loads(line[6:])["choices"][0]["delta"]["content"])
    assert difference(verbose["text"], "".join(deltas)) <= 0.005


@pytest.mark.parametrize("name", ["levels", "dense"])
def test_no_passage_of_a_hard_recording_is_lost(client, name):
    path = SPEECH / f"{name}.flac"
    if not path.is_file():
        pytest.skip(f"{path.name} is absent")
    body = post(client, recording(path), response_format="verbose_json").json()
    words = jiwer.process_words(
        normal(path.with_suffix(".txt").read_text()), normal(" ".join(each["text"] for each in body["segments"]))
    )
    assert words.deletions <= 10  # of 787; vLLM's own endpoint loses 169 and more
    assert words.wer <= 0.04


def test_a_short_request_and_the_health_check_do_not_wait_for_a_long_one(client, server, clip):
    data, words = clip
    done = {}
    long = threading.Thread(target=lambda: done.setdefault("long", post(client, recording(CALLS)).status_code))
    long.start()
    wait_until(lambda: at_work(client) > 0, seconds=120)
    assert server.is_healthy(5)
    short = post(client, ("clip.flac", data))
    assert difference(words, short.json()["text"]) <= 0.2
    assert "long" not in done
    long.join()
    assert done["long"] == 200


def test_work_ends_when_the_client_leaves(client, server):
    with pytest.raises(httpx2.TransportError):
        client.post("/audio/transcriptions", files={"file": recording(CALLS)}, timeout=httpx2.Timeout(2.0))
    assert at_work(client) > 0
    wait_until(lambda: at_work(client) == 0, seconds=120)
    time.sleep(2)
    assert at_work(client) == 0


def at_work(client):
    """Return how many clips vLLM has running and waiting, by its own metrics."""
    text = client.get(str(client.base_url.join("/metrics"))).text
    found = re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", text, flags=re.MULTILINE)
    assert len(found) >= 2
    return sum(map(float, found))


def test_the_servers_own_metrics_tell_of_the_stages(client, clip):
    assert post(client, ("clip.flac", clip[0])).status_code == 200
    text = client.get(str(client.base_url.join("/metrics"))).text
    told = dict(re.findall(r'^auricle_stage_seconds_total\{stage="([^"]+)"\} (\S+)$', text, flags=re.MULTILINE))
    for stage in ("decode audio", "split", "check", "prepare", "engine"):
        assert float(told[stage]) > 0


@pytest.mark.parametrize(
    ("file", "fields", "status", "named"),
    [
        (("a.wav", b"no audio"), {}, 400, "a.wav"),
        (("a.wav", b""), {}, 400, "empty"),
        (("a.wav", b"no audio"), {"model": "other"}, 404, MODEL),
        (("a.wav", b"no audio"), {"language": "de"}, 400, "'de'"),
        (("a.wav", b"no audio"), {"top_k": "3"}, 400, "top_k"),
        (("a.wav", b"no audio"), {"use_beam_search": "true", "n": "2"}, 400, "beam"),
    ],
)
def test_each_refusal_is_one_clear_error(client, file, fields, status, named):
    answer = post(client, file, **fields)
    assert answer.status_code == status
    assert named in answer.json()["error"]["message"]


def test_translation_is_refused_for_an_english_only_model(client, clip):
    answer = post(client, ("clip.flac", clip[0]), path="/audio/translations")
    assert answer.status_code == 400
    assert "translate" in answer.json()["error"]["message"]


def test_the_http_engine_reads_this_server(server, clip):
    data, words = clip
    samples, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    engine = HttpEngine(f"{server.url}#{MODEL}")
    try:
        assert engine.capabilities.timestamps
        result = engine.submit(samples, DecodingOptions(timestamps="none")).result(120)
    finally:
        engine.close()
    assert difference(words, result.segments[0].text) <= 0.2
