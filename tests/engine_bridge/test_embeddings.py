"""Encoder states in place of audio: what is given, what is let in, and files of them."""

import io
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.embeddings import AudioEmbedding, checked_states, load_embeddings, save_embeddings, state_times
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EmbeddingError, OutputError, UnsupportedOptionError
from tests.random_whisper import SIZE

RATE = 16_000
FRAMES = 1_500
ALIGNED = DecodingOptions(language="en")


def chunk_of(samples, start=0, kept=None, index=0):
    stop = start + len(samples) if kept is None else kept[-1][1]
    return Chunk(index, start, stop, RATE, samples, kept or ((start, stop),))


def tone(seconds, hertz=700):
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


@pytest.fixture(scope="module")
def engine(random_whisper):
    from engine_bridge.engines.embedded import EmbeddedEngine

    opened = EmbeddedEngine(str(random_whisper), device="cpu", compute_type="float32", workers=1, enable_mm_embeds=True)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def embedding(engine):
    (found,) = engine.encode([chunk_of(tone(2.0), start=RATE)])
    return found


@pytest.fixture
def files():
    return pytest.importorskip("safetensors", reason="safetensors is not installed")


class TestEncoding:
    def test_states_come_with_their_times_in_the_recording(self, embedding, engine):
        assert embedding.states.shape == (FRAMES, SIZE)
        assert embedding.states.dtype == np.float32
        np.testing.assert_allclose(embedding.times[:100], 1.0 + 0.02 * np.arange(100))
        assert set(embedding.times[100:]) == {3.0}
        assert (embedding.start, embedding.stop, embedding.clip_seconds) == (1.0, 3.0, 2.0)
        assert embedding.model == engine.spec

    def test_times_step_over_silence_that_was_left_out(self):
        second = np.zeros(2 * RATE, dtype=np.float32)
        chunk = chunk_of(second, kept=((0, RATE), (5 * RATE, 6 * RATE)))
        times = state_times(chunk, 100, 320)
        np.testing.assert_allclose(times[[0, 49, 50, 99]], [0.0, 0.98, 5.0, 5.98])

    def test_chunks_are_encoded_in_their_order_and_no_further_ahead_than_the_engine_wants(self, engine):
        asked = []

        def chunks():
            for index in range(40):
                asked.append(index)
                yield chunk_of(tone(0.2, 300 + 50 * index), start=index * RATE, index=index)

        encoded = engine.encode(chunks())
        first = next(encoded)
        assert first.start == 0.0
        assert len(asked) <= engine.preferred_in_flight
        assert [each.start for each in encoded] == list(range(1, 40))

    def test_leaving_early_cancels_what_waits(self, engine):
        encoded = engine.encode(chunk_of(tone(0.2), start=index * RATE) for index in range(100))
        next(encoded)
        encoded.close()
        assert engine.submit(tone(0.2), ALIGNED).result(60) is not None


class TestSubmitting:
    @pytest.mark.parametrize("timestamps", ["align", "tokens", "both", "none"])
    def test_states_give_what_their_audio_gives(self, engine, embedding, timestamps):
        options = replace(ALIGNED, timestamps=timestamps)
        by_states = engine.submit_embedding(embedding, options).result(60)
        assert by_states == engine.submit(tone(2.0), options).result(60)

    def test_states_and_audio_go_together_in_one_batch(self, engine, embedding):
        clips = [tone(1.0), tone(2.0), tone(1.0, 900)]
        expected = [engine.submit(clip, ALIGNED).result(60) for clip in clips]
        futures = [
            engine.submit(clips[0], ALIGNED),
            engine.submit_embedding(embedding, ALIGNED),
            engine.submit(clips[2], ALIGNED),
        ]
        texts = [[part.text for part in future.result(60).segments] for future in futures]
        assert texts == [[part.text for part in result.segments] for result in expected]

    def test_they_are_refused_unless_the_engine_was_opened_for_them(self, multilingual, embedding):
        own = replace(embedding, model=multilingual.spec)
        with pytest.raises(UnsupportedOptionError, match="enable_mm_embeds=True"):
            multilingual.submit_embedding(own, ALIGNED)

    def test_options_are_checked_as_for_audio(self, engine, embedding):
        with pytest.raises(UnsupportedOptionError, match="'xx'"):
            engine.submit_embedding(embedding, replace(ALIGNED, language="xx"))

    def test_audio_can_be_turned_off_and_embeddings_stay_usable(self, random_whisper, embedding):
        from engine_bridge.engines.embedded import EmbeddedEngine

        engine = EmbeddedEngine(
            str(random_whisper), device="cpu", workers=1, limit_mm_per_prompt={"audio": 0}, enable_mm_embeds=True
        )
        try:
            for ask in (lambda: engine.submit(tone(1.0), ALIGNED), lambda: engine.detect_language(tone(1.0))):
                with pytest.raises(UnsupportedOptionError, match="limit_mm_per_prompt"):
                    ask()
            assert engine.submit_embedding(embedding, ALIGNED).result(60).segments
        finally:
            engine.close()


class Trap:
    """Runs code when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))


BAD = {
    "rank": lambda states: states[None],
    "flat": lambda states: states.ravel(),
    "hidden size": lambda states: np.pad(states, ((0, 0), (0, 1))),
    "frames": lambda states: states[:-1],
    "no frames": lambda states: states[:0],
    "NaN": lambda states: np.where(np.arange(FRAMES)[:, None] == 7, np.nan, states),
    "infinity": lambda states: np.where(np.arange(FRAMES)[:, None] == 7, np.inf, states),
    "overflow": lambda states: states.astype(np.float64) + 1e300,
    "integers": lambda states: states.astype(np.int64),
    "complex": lambda states: states.astype(np.complex64),
    "objects": lambda states: states.astype(object),
    "a trap": lambda states: np.full((FRAMES, SIZE), Trap(), dtype=object),
    "text": lambda states: "states",
    "a list": lambda states: states.tolist(),
    "pickled": lambda states: pickle.dumps(states),
}


@pytest.fixture
def sealed(engine, monkeypatch):
    """Fail if anything reaches the engine."""
    monkeypatch.setattr(engine._queue, "put", lambda request: pytest.fail("it reached the engine"))
    return engine


class TestBadOnesNeverReachAnEngine:
    @pytest.mark.parametrize("kind", BAD)
    def test_wrong_numbers(self, sealed, embedding, kind):
        with np.errstate(all="raise"), pytest.raises(EmbeddingError, match="embedding"):
            sealed.submit_embedding(replace(embedding, states=BAD[kind](embedding.states)), ALIGNED)
        assert not Trap.sprung

    @pytest.mark.parametrize("given", [None, b"bytes", np.zeros((FRAMES, SIZE), dtype=np.float32)])
    def test_what_is_no_embedding(self, sealed, given):
        with pytest.raises(EmbeddingError, match="AudioEmbedding"):
            sealed.submit_embedding(given, ALIGNED)

    def test_another_models_states(self, sealed, embedding):
        with pytest.raises(EmbeddingError, match="embedded:small"):
            sealed.submit_embedding(replace(embedding, model="embedded:small"), ALIGNED)

    @pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
    def test_every_width_of_sound_numbers_is_taken_as_float32(self, embedding, kind):
        states = checked_states(embedding.states.astype(kind), frames=FRAMES, hidden_size=SIZE)
        assert states.dtype == np.float32
        np.testing.assert_allclose(states, embedding.states, rtol=1e-3, atol=1e-3)

    def test_tensors_are_taken_too(self, embedding):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        tensor = torch.from_numpy(embedding.states).to(torch.bfloat16).requires_grad_(True)
        states = checked_states(tensor, frames=FRAMES, hidden_size=SIZE)
        np.testing.assert_allclose(states, embedding.states, rtol=1e-2, atol=1e-2)


class TestFiles:
    def test_what_is_saved_is_loaded_as_it_was(self, files, tmp_path, embedding):
        second = replace(embedding, states=embedding.states * 2, start=3.0, stop=5.0, times=embedding.times + 2)
        path = save_embeddings(tmp_path / "talk.safetensors", iter([embedding, second]))
        first_again, second_again = load_embeddings(path)
        for loaded, saved in ((first_again, embedding), (second_again, second)):
            np.testing.assert_array_equal(loaded.states, saved.states)
            np.testing.assert_array_equal(loaded.times, saved.times)
            for name in ("clip_seconds", "start", "stop", "model"):
                assert getattr(loaded, name) == getattr(saved, name)
        assert [entry.name for entry in tmp_path.iterdir()] == ["talk.safetensors"]

    def test_loaded_states_give_the_same_text(self, files, tmp_path, engine, embedding):
        (loaded,) = load_embeddings(save_embeddings(tmp_path / "talk.safetensors", [embedding]))
        assert engine.submit_embedding(loaded, ALIGNED).result(60) == engine.submit(tone(2.0), ALIGNED).result(60)

    def test_no_embeddings_make_a_file_of_none(self, files, tmp_path):
        assert load_embeddings(save_embeddings(tmp_path / "none.safetensors", [])) == []

    @pytest.mark.parametrize("protocol", [0, 2, 5])
    def test_a_pickle_is_refused_unread(self, files, tmp_path, protocol):
        path = tmp_path / "talk.safetensors"
        path.write_bytes(pickle.dumps(Trap(), protocol=protocol))
        with pytest.raises(EmbeddingError, match=r"talk\.safetensors"):
            load_embeddings(path)
        assert not Trap.sprung

    def test_numpys_files_with_objects_are_refused_unread(self, files, tmp_path):
        content = io.BytesIO()
        np.save(content, np.array([Trap()], dtype=object), allow_pickle=True)
        path = tmp_path / "talk.npy"
        path.write_bytes(content.getvalue())
        with pytest.raises(EmbeddingError, match=r"talk\.npy"):
            load_embeddings(path)
        assert not Trap.sprung

    @pytest.mark.parametrize("cut", [0, 3, 8, 100, -1])
    def test_a_file_that_was_cut_off_is_refused(self, files, tmp_path, embedding, cut):
        path = save_embeddings(tmp_path / "talk.safetensors", [embedding])
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(EmbeddingError, match=r"encode the audio again"):
            load_embeddings(path)

    def test_other_safetensors_files_are_refused(self, files, tmp_path):
        from safetensors.numpy import save_file

        clips = json.dumps([{"clip_seconds": 1, "start": 0, "stop": 1, "model": "x"}])
        cases = {
            "no texts": ({"weight": np.zeros(3)}, None),
            "another format": ({}, {"format": "other", "version": "1", "clips": "[]"}),
            "a newer version": ({}, {"format": "auricle-embeddings", "version": "2", "clips": "[]"}),
            "a clip without states": ({}, {"format": "auricle-embeddings", "version": "1", "clips": clips}),
            "no list": ({}, {"format": "auricle-embeddings", "version": "1", "clips": "{}"}),
            "NaN": (
                {"states.0": np.full((4, 2), np.nan, np.float32), "times.0": np.zeros(4)},
                {"format": "auricle-embeddings", "version": "1", "clips": clips},
            ),
            "times of another length": (
                {"states.0": np.zeros((4, 2), np.float32), "times.0": np.zeros(5)},
                {"format": "auricle-embeddings", "version": "1", "clips": clips},
            ),
        }
        for name, (arrays, texts) in cases.items():
            path = tmp_path / f"{name}.safetensors"
            save_file(arrays, path, texts)
            with pytest.raises(EmbeddingError, match=name):
                load_embeddings(path)

    def test_a_file_that_is_not_there_is_named(self, files, tmp_path):
        with pytest.raises(EmbeddingError, match=r"absent\.safetensors: it cannot be read"):
            load_embeddings(tmp_path / "absent.safetensors")

    def test_a_folder_that_is_not_there_is_named_and_nothing_is_left(self, files, tmp_path, embedding):
        with pytest.raises(OutputError, match=r"nowhere/talk\.safetensors"):
            save_embeddings(tmp_path / "nowhere" / "talk.safetensors", [embedding])
        assert list(tmp_path.iterdir()) == []


def test_an_embedding_compares_by_identity(embedding):
    assert embedding == embedding
    assert replace(embedding) != embedding
    assert isinstance(embedding, AudioEmbedding)
