"""The model that `bench.gpu` measures with, in small: it loads, and writes as much as it should."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; see .ci/vllm-environment")
pytest.importorskip("transformers", reason="transformers is not installed; see .ci/vllm-environment")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed; see .ci/vllm-environment")

from bench.gpu import (
    LARGE_V3_TURBO,
    TEXT_TOKENS,
    build_model,
    convert_model,
    limiting_stage,
    measure,
    write_recording,
)
from engine_bridge import transcribe
from engine_bridge.engines.embedded import EmbeddedEngine
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.engines.vllm_files import read_model_files
from engine_bridge.models.registry import find_audio_model
from engine_bridge.timing import DECODE_AUDIO, DECODE_TEXT, ENCODE, SPLIT
from tests.tones import Recording

SMALL = {
    **LARGE_V3_TURBO,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 64,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
WORDS = {f"q{number}" for number in range(1_000)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("gpu") / "small", SMALL, half=False)


@pytest.fixture(scope="module")
def engine(folder):
    engine = EmbeddedEngine(str(convert_model(folder, folder.with_name("converted"), half=False)), device="cpu")
    yield engine
    engine.close()


def test_it_is_a_multilingual_whisper_with_large_v3s_languages(folder):
    files = read_model_files(str(folder))
    info = find_audio_model(files).describe(files)
    assert info.family == "Whisper"
    assert {"en", "yue"} <= set(info.languages)
    assert files.setting("num_mel_bins", default=None) == 128
    assert files.setting("vocab_size", default=None) == 51_866


def test_a_clip_has_as_many_words_as_it_should_and_ends(engine):
    clip = Recording().phrases(10).samples[: 30 * 16_000]
    result = engine.submit(clip, replace(DecodingOptions(), language="en", timestamps="none")).result(120)
    words = " ".join(segment.text for segment in result.segments).split()
    assert len(words) == TEXT_TOKENS
    assert len(set(words)) > TEXT_TOKENS / 2
    assert result.average_log_probability > -0.1


def test_a_recording_becomes_its_text(engine):
    transcript = transcribe(SAMPLES / "calls.opus", engine=engine, language="en", to_seconds=60)
    assert set(transcript.text.split()) <= WORDS
    assert len(transcript.text.split()) >= TEXT_TOKENS


def test_an_engine_is_measured(folder, engine, tmp_path, monkeypatch):
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 40\necho 60\nexec sleep 60\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    recording, warm = write_recording(tmp_path / "long.flac", 1), write_recording(tmp_path / "warm.flac", 0.1)
    found = measure(f"embedded:{folder.with_name('converted')}", recording, warm, device="cpu")
    assert found.utilisation == 50
    assert found.speed == pytest.approx(60 / found.seconds, rel=0.01)
    assert {DECODE_AUDIO, SPLIT, ENCODE, DECODE_TEXT} <= set(found.stages)
    assert limiting_stage(found.stages, found.seconds) in found.lines()[0]
