"""The engine on vLLM with a scripted vLLM behind it: cancelling, dying, being started again, closing.

What a real vLLM does is specified in tests/vllm.
"""

import asyncio
import sys
import threading
from concurrent.futures import CancelledError
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from engine_bridge.engines import open_engine, vllm_engine
from engine_bridge.engines.protocol import ClipResult, ClipSegment, DecodingOptions
from engine_bridge.engines.vllm_engine import VllmEngine
from engine_bridge.engines.vllm_files import read_model_files, repository_of
from engine_bridge.engines.vllm_import import import_vllm
from engine_bridge.errors import (
    EngineDeadError,
    EngineError,
    EngineSpecError,
    EngineUnavailableError,
    ModelNotFoundError,
    UnsupportedOptionError,
)
from engine_bridge.models import ModelFiles
from engine_bridge.testing import MULTILINGUAL

NONE = DecodingOptions(timestamps="none")
SECONDS = 20


class ScriptedClips:
    """What the engine sees of vLLM's processes: answers when it is let go, and fails once they are dead."""

    def __init__(self, client):
        self.client = client
        self.info = SimpleNamespace(
            family="Whisper", sample_rate=16_000, detects_language=True, items_per_prompt=1, languages=("en",)
        )
        self.aborted = []
        self.spent = 0.0

    def capabilities(self, *, embeddings):
        from dataclasses import replace

        return replace(MULTILINGUAL, word_times=False, beam_search=False, embeddings=embeddings)

    def check_clip(self, samples):
        pass

    def timings(self):
        return {"engine": self.spent}

    async def recognise(self, samples, options):
        await self._wait(samples)
        return ClipResult((ClipSegment(0.0, 1.0, f"clip of {len(samples)}"),), language="en")

    async def languages(self, samples):
        await self._wait(samples)
        return (("en", 1.0),)

    async def _wait(self, samples):
        self.client.at_work.release()
        try:
            while not self.client.let_go.is_set():
                if self.client.errored:
                    raise RuntimeError("EngineCore encountered an issue")
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.aborted.append(len(samples))
            raise
        if len(samples) == 13:
            raise ValueError("an unlucky length")
        self.spent += 1.0


class Client:
    """One start of vLLM."""

    def __init__(self):
        self.errored = False
        self.let_go = threading.Event()
        self.at_work = threading.Semaphore(0)
        self.shut_down = False
        self.output_handler = None
        context = SimpleNamespace(destroy=lambda linger: None)
        self.engine_core = SimpleNamespace(resources=SimpleNamespace(ctx=context))

    def shutdown(self, timeout):
        self.shut_down = True

    def wait_for_work(self, clips):
        for _ in range(clips):
            assert self.at_work.acquire(timeout=SECONDS)


@pytest.fixture
def starts(monkeypatch):
    """Let engines start on scripted clients; return these in the order they were started."""
    clients = []

    async def start(engine):
        clients.append(Client())
        engine._client = clients[-1]
        engine._clips = ScriptedClips(clients[-1])
        engine._starts += 1

    monkeypatch.setattr(vllm_engine, "import_vllm", lambda: SimpleNamespace(__version__="0.32.0"))
    monkeypatch.setattr(vllm_engine, "read_model_files", lambda model: ModelFiles(model, {}))
    monkeypatch.setattr(VllmEngine, "_start", start)
    return clients


@pytest.fixture
def opened(starts):
    engines = []

    def open_one(**arguments):
        engines.append(open_engine("vllm:tiny.en", **arguments))
        return engines[-1], starts[-1]

    yield open_one
    for engine in engines:
        engine.close()


def clip(frames):
    return np.zeros(frames, dtype=np.float32)


def text(future):
    (segment,) = future.result(SECONDS).segments
    return segment.text


def test_clips_wait_side_by_side_and_get_their_own_answers(opened):
    engine, client = opened()
    futures = [engine.submit(clip(frames), NONE) for frames in (100, 200, 300)]
    client.wait_for_work(3)
    client.let_go.set()
    assert [text(future) for future in futures] == ["clip of 100", "clip of 200", "clip of 300"]


def test_cancelling_a_future_aborts_its_request_alone(opened):
    engine, client = opened()
    first, second = (engine.submit(clip(frames), NONE) for frames in (100, 200))
    client.wait_for_work(2)
    assert second.cancel()
    client.let_go.set()
    assert text(first) == "clip of 100"
    with pytest.raises(CancelledError):
        second.result(SECONDS)
    assert engine._clips.aborted == [200]


def test_what_fails_by_itself_fails_alone(opened):
    engine, client = opened()
    client.let_go.set()
    unlucky, lucky = engine.submit(clip(13), NONE), engine.submit(clip(100), NONE)
    with pytest.raises(EngineError, match=r"vllm:tiny\.en failed: ValueError: an unlucky length") as caught:
        unlucky.result(SECONDS)
    assert not isinstance(caught.value, EngineDeadError)
    assert text(lucky) == "clip of 100"


class TestDeath:
    def test_it_is_one_error_for_all_that_lists_what_is_unfinished(self, opened):
        engine, client = opened()
        done = engine.submit(clip(100), NONE)
        client.let_go.set()
        text(done)
        client.let_go.clear()
        futures = [engine.submit(clip(16_000), NONE), engine.detect_language(clip(8_000))]
        client.wait_for_work(3)
        client.errored = True
        failures = []
        for future in futures:
            with pytest.raises(EngineDeadError) as caught:
                future.result(SECONDS)
            failures.append(caught.value)
        assert failures[0] is failures[1]
        assert failures[0].unfinished == ("clip 1 (1.0 s)", "language of clip 2 (0.5 s)")
        assert "clip 1 (1.0 s), language of clip 2 (0.5 s)" in str(failures[0])
        assert "restart()" in str(failures[0])
        with pytest.raises(EngineDeadError) as caught:
            engine.submit(clip(100), NONE)
        assert caught.value is failures[0]

    def test_a_restart_takes_up_what_was_left_and_only_that(self, opened, starts):
        engine, client = opened()
        futures = [engine.submit(clip(frames), NONE) for frames in (100, 200)]
        client.wait_for_work(2)
        futures[0].cancel()
        with pytest.raises(CancelledError):
            futures[0].result(SECONDS)
        client.errored = True
        with pytest.raises(EngineDeadError):
            futures[1].result(SECONDS)
        again = engine.restart()
        assert len(starts) == 2
        assert client.shut_down
        starts[1].let_go.set()
        assert [text(future) for future in again] == ["clip of 200"]
        assert text(engine.submit(clip(300), NONE)) == "clip of 300"
        assert engine.restart() == ()

    def test_with_restarts_futures_outlive_the_engine(self, opened, starts):
        engine, client = opened(restarts=1)
        futures = [engine.submit(clip(frames), NONE) for frames in (100, 200, 300)]
        client.wait_for_work(3)
        client.errored = True
        while len(starts) < 2:
            threading.Event().wait(0.01)
        starts[1].wait_for_work(3)
        starts[1].let_go.set()
        assert [text(future) for future in futures] == ["clip of 100", "clip of 200", "clip of 300"]
        assert len(starts) == 2

    def test_restarts_are_counted(self, opened, starts):
        engine, client = opened(restarts=1)
        future = engine.submit(clip(100), NONE)
        client.wait_for_work(1)
        client.errored = True
        while len(starts) < 2:
            threading.Event().wait(0.01)
        starts[1].wait_for_work(1)
        starts[1].errored = True
        with pytest.raises(EngineDeadError, match="1 clips"):
            future.result(SECONDS)
        assert len(starts) == 2

    def test_seconds_spent_before_a_death_are_kept(self, opened, starts):
        engine, client = opened(restarts=1)
        client.let_go.set()
        text(engine.submit(clip(100), NONE))
        client.let_go.clear()
        future = engine.submit(clip(100), NONE)
        client.wait_for_work(2)
        client.errored = True
        while len(starts) < 2:
            threading.Event().wait(0.01)
        starts[1].let_go.set()
        text(future)
        assert engine.timings() == {"engine": 2.0}


class TestClosing:
    def test_it_cancels_what_waits_and_ends_its_thread(self, opened):
        before = set(threading.enumerate())
        engine, client = opened()
        future = engine.submit(clip(100), NONE)
        client.wait_for_work(1)
        engine.close()
        assert future.cancelled()
        assert client.shut_down
        assert [thread for thread in threading.enumerate() if thread not in before] == []
        for ask in (lambda: engine.submit(clip(100), NONE), engine.restart):
            with pytest.raises(EngineError, match="closed"):
                ask()
        engine.close()

    def test_a_start_that_fails_leaves_nothing_behind(self, starts, monkeypatch):
        async def fail(engine):
            raise EngineUnavailableError("vllm:tiny.en: vLLM cannot start; free some memory")

        monkeypatch.setattr(VllmEngine, "_start", fail)
        before = set(threading.enumerate())
        with pytest.raises(EngineUnavailableError, match="free some memory"):
            open_engine("vllm:tiny.en")
        assert [thread for thread in threading.enumerate() if thread not in before] == []


class TestLimits:
    def test_audio_that_is_turned_off_is_refused(self, opened):
        engine, _ = opened(limit_mm_per_prompt={"audio": 0})
        for ask in (lambda: engine.submit(clip(100), NONE), lambda: engine.detect_language(clip(100))):
            with pytest.raises(UnsupportedOptionError, match="limit_mm_per_prompt"):
                ask()

    def test_embeddings_are_not_taken_and_another_worker_extension_gives_none(self, opened):
        engine, _ = opened(worker_extension_cls="somebody.Else")
        assert not engine.capabilities.embeddings
        with pytest.raises(UnsupportedOptionError, match="embeddings"):
            engine.encode([])
        with pytest.raises(UnsupportedOptionError, match="embeddings"):
            engine.submit_embedding(None, NONE)


class TestOpening:
    def test_another_release_is_refused(self, monkeypatch):
        vllm = ModuleType("vllm")
        vllm.__version__ = "0.9.1"
        monkeypatch.setitem(sys.modules, "vllm", vllm)
        with pytest.raises(EngineUnavailableError, match=r"vLLM 0\.9\.1 .*0\.32.*pip install"):
            import_vllm()

    @pytest.mark.parametrize("version", ["0.32.0", "0.32.1+cpu", "0.32.0rc1"])
    def test_a_supported_release_is_taken_whatever_its_build_is_called(self, monkeypatch, version):
        vllm = ModuleType("vllm")
        vllm.__version__ = version
        monkeypatch.setitem(sys.modules, "vllm", vllm)
        assert import_vllm() is vllm

    @pytest.mark.parametrize("failure", [ImportError, OSError, RuntimeError, AttributeError, ValueError])
    def test_whatever_keeps_it_from_loading_is_told_with_the_next_step(self, monkeypatch, failure):
        class Broken:
            def find_spec(self, name, path=None, target=None):
                if name == "vllm":
                    raise failure("libcudart.so.13 is missing")

        monkeypatch.delitem(sys.modules, "vllm", raising=False)
        monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
        with pytest.raises(EngineUnavailableError, match=r"libcudart\.so\.13 is missing.*pip install"):
            open_engine("vllm:tiny.en")

    def test_transcripts_keep_standard_output_to_themselves(self, monkeypatch):
        for name in ("VLLM_LOGGING_STREAM", "VLLM_LOGGING_LEVEL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
        vllm = ModuleType("vllm")
        vllm.__version__ = "0.32.0"
        monkeypatch.setitem(sys.modules, "vllm", vllm)
        import_vllm()
        import os

        assert os.environ["VLLM_LOGGING_STREAM"] == "ext://sys.stderr"
        assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"

    def test_an_argument_that_an_engine_does_not_take_is_refused_by_name(self):
        with pytest.raises(EngineSpecError, match=r"embedded:tiny\.en takes no argument 'devise': it takes .*device"):
            open_engine("embedded:tiny.en", devise="cpu")
        with pytest.raises(EngineSpecError, match="'gpu_memory_utilization'"):
            open_engine("http://127.0.0.1:9/v1#x", gpu_memory_utilization=0.5)

    def test_an_engines_arguments_reach_it(self, random_whisper):
        engine = open_engine(f"embedded:{random_whisper}", device="cpu", workers=1, compute_type="float32")
        try:
            assert "cpu, float32" in engine.description
        finally:
            engine.close()

    def test_vllms_arguments_may_stand_in_the_specification(self, starts):
        spec = "vllm:tiny.en?dtype=float16&enforce_eager=true&max_num_seqs=64&restarts=2"
        engine = open_engine(spec, dtype="float32")
        try:
            assert engine.spec == "vllm:tiny.en"
            assert engine._restarts_left == 2
            wanted = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 64}
            assert wanted.items() <= engine._arguments.items()
            assert engine._arguments["model"] == "openai/whisper-tiny.en"
        finally:
            engine.close()

    @pytest.mark.parametrize("spec", ["vllm", "vllm:", "vllm:?dtype=float16"])
    def test_a_model_has_to_be_named(self, spec):
        with pytest.raises(EngineSpecError, match="vllm:MODEL"):
            open_engine(spec)


class TestFiles:
    def test_a_folder_is_read(self, tmp_path):
        (tmp_path / "config.json").write_text('{"architectures": ["WhisperForConditionalGeneration"]}')
        assert read_model_files(str(tmp_path)).folder == tmp_path

    def test_a_size_of_whisper_is_openais(self):
        assert repository_of("large-v3-turbo") == "openai/whisper-large-v3-turbo"
        assert repository_of("mistralai/Voxtral-Mini-3B-2507") == "mistralai/Voxtral-Mini-3B-2507"

    def test_a_model_that_is_nowhere_tells_each_place(self, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(ModelNotFoundError) as caught:
            read_model_files("acme/no-such-model")
        assert [place.split(" ")[0] for place in caught.value.tried] == ["no", "the", "the"]
        assert "HF_HUB_OFFLINE" in caught.value.tried[-1]
        assert str(caught.value).endswith("Hugging Face's layout, or a repository that the hub has.")

    def test_a_path_is_never_taken_for_a_repository(self):
        with pytest.raises(ModelNotFoundError) as caught:
            read_model_files("/nowhere/at-all")
        assert caught.value.tried == ("no folder of that name",)
