"""What `/metrics` of the app tells of its requests."""

import asyncio
import io
import subprocess
import sys
import threading

import numpy as np
import pytest
import soundfile

from engine_bridge.cache import CacheValue, InputCache, cache_key, open_cache
from engine_bridge.engines.protocol import ClipResult
from engine_bridge.server.settings import ServerSettings
from engine_bridge.testing import FakeEngine
from engine_bridge.timing import CHECK, DECODE_AUDIO, SPLIT, WAIT
from tests.tones import RATE, Recording, hear

pytest.importorskip("starlette", reason="the server's libraries are not installed")
pytest.importorskip("prometheus_client", reason="the server's libraries are not installed")

from prometheus_client.parser import text_string_to_metric_families

from engine_bridge.server.app import create_app
from engine_bridge.server.metrics import ServerMetrics

httpx2 = pytest.importorskip("httpx2", reason="httpx2 is not installed")

SPEECH = Recording().phrases(3)


def file_of(recording):
    data = io.BytesIO()
    soundfile.write(data, recording.samples, RATE, format="WAV")
    return data.getvalue()


def samples(text):
    """Return each value by its metric and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def served(engine, *requests, **options):
    """Return the answers to requests, each the fields of a form and the audio, and the metrics before and after."""

    async def ask():
        app = create_app(engine, ["tones"], ServerSettings.from_options({"isolate": False, **options}))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://app", timeout=30) as client:
            before = await client.get("/metrics")
            answers = [
                await client.post("/v1/audio/transcriptions", files={"file": ("a.wav", data)}, data=fields)
                for fields, data in requests
            ]
            return before, answers, await client.get("/metrics")

    before, answers, after = asyncio.run(ask())
    engine.close()
    assert after.status_code == 200
    assert after.headers["content-type"].startswith("text/plain")
    return answers, samples(before.text), samples(after.text)


def test_stages_are_there_from_the_beginning_and_grow_with_each_recording():
    _, before, after = served(FakeEngine(hear), ({}, file_of(SPEECH)))
    for stage in (DECODE_AUDIO, SPLIT, WAIT, CHECK):
        for name in ("auricle_stage_seconds_total", "auricle_stage_wall_seconds_total"):
            assert after[name, stage] > before[name, stage] >= 0


def test_what_the_engine_alone_keeps_is_a_stage_as_in_the_transcript():
    _, _, after = served(FakeEngine(hear), ({}, file_of(SPEECH)))
    assert "script" in FakeEngine(hear).timings()
    assert after["auricle_stage_seconds_total", "script"] > 0


def test_the_stages_of_the_metrics_are_those_of_the_json():
    (answer,), _, after = served(FakeEngine(hear), ({"response_format": "verbose_json"}, file_of(SPEECH)))
    named = {stage.removesuffix(" (wall)") for stage in answer.json()["timings"]} - {"total"}
    assert named
    assert named <= {stage for name, *rest in after for stage in rest if name == "auricle_stage_seconds_total"}


def test_requests_recordings_and_their_seconds_are_counted():
    _, before, after = served(FakeEngine(hear), ({}, file_of(SPEECH)), ({"stream": "true"}, file_of(SPEECH)))
    assert before["auricle_requests_total", "transcribe"] == before["auricle_recordings_total",] == 0
    assert after["auricle_requests_total", "transcribe"] == after["auricle_recordings_total",] == 2
    assert after["auricle_requests_total", "translate"] == 0
    assert after["auricle_recording_seconds_total",] == pytest.approx(2 * SPEECH.seconds, abs=0.01)
    assert after["auricle_gaps_total",] == 0


def test_speech_without_text_is_counted_as_gaps():
    (answer,), _, after = served(FakeEngine(lambda samples, options: ClipResult(())), ({}, file_of(SPEECH)))
    gaps = answer.json()["gaps"]
    assert after["auricle_gaps_total",] == len(gaps) > 0
    expected = sum(gap["end"] - gap["start"] for gap in gaps)
    assert after["auricle_gap_seconds_total",] == pytest.approx(expected, abs=0.01)


def test_refusals_are_counted_by_the_code_of_the_answer():
    requests = [
        ({}, b"no audio"),
        ({}, b"no audio"),
        ({"model": "other"}, file_of(SPEECH)),
        ({"temperature": "hot"}, file_of(SPEECH)),
    ]
    answers, _, after = served(FakeEngine(hear), *requests)
    refusals = {rest[0]: value for (name, *rest), value in after.items() if name == "auricle_refusals_total"}
    assert [answer.json()["error"]["code"] for answer in answers] == [
        "invalid_audio",
        "invalid_audio",
        "model_not_found",
        None,
    ]
    assert refusals == {"invalid_audio": 2, "model_not_found": 1, "invalid_request": 1}
    assert after["auricle_requests_total", "transcribe"] == 4
    assert after["auricle_recordings_total",] == 0


def test_two_apps_count_apart():
    _, _, first = served(FakeEngine(hear), ({}, file_of(SPEECH)))
    _, _, second = served(FakeEngine(hear))
    assert (first["auricle_recordings_total",], second["auricle_recordings_total",]) == (1, 0)


def test_a_cache_is_told_of_where_there_is_one():
    metrics = ServerMetrics()
    metrics.update_cache(InputCache())
    assert not any(name.startswith("auricle_input_cache") for name, *_ in samples(metrics.text().decode()))
    cache = open_cache("processor_only", 0.001)
    value = CacheValue(np.zeros(1000, dtype=np.float32))
    cache.put(cache_key(None, "a"), value)
    cache.get(cache_key(None, "a"))
    cache.get(cache_key(None, "b"))
    metrics.update_cache(cache)
    metrics.update_cache(cache)
    told = samples(metrics.text().decode())
    assert told["auricle_input_cache_hits", "processor_only"] == told["auricle_input_cache_misses", "processor_only"]
    assert told["auricle_input_cache_hits", "processor_only"] == 1
    assert told["auricle_input_cache_entries", "processor_only"] == 1
    assert told["auricle_input_cache_bytes", "processor_only"] == value.size
    assert told["auricle_input_cache_capacity_bytes", "processor_only"] == int(0.001 * 2**30)


def test_updates_from_many_threads_count_each_second_once():
    class Clock:
        def __init__(self):
            self.seconds = 0.0

        def timings(self):
            self.seconds += 1.0
            return {"a stage of this test": self.seconds}

    clock, metrics = Clock(), ServerMetrics()
    threads = [threading.Thread(target=metrics.update_stages, args=(clock,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = samples(metrics.text().decode())
    assert told["auricle_stage_seconds_total", "a stage of this test"] == 16.0


def test_the_processes_of_a_server_add_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    count = "from engine_bridge.server.metrics import ServerMetrics as M; m = M(); m.asked('transcribe')"
    for more in ("", "; print(m.text().decode())"):
        done = subprocess.run([sys.executable, "-c", count + more], capture_output=True, text=True, check=True)
    assert samples(done.stdout)["auricle_requests_total", "transcribe"] == 2
