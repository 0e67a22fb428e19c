"""Whisper's family: which models are English-only, what their prompts say, and how their tokens are read."""

import json

import numpy as np
import pytest

from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineUnavailableError
from engine_bridge.models import Generated, ModelFiles, find_audio_model
from tests.random_whisper import write_tokenizer

CLIP = np.zeros(16_000, dtype=np.float32)


def files_of(folder=None, *, vocabulary=51_865, mels=80, **generation):
    config = {
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": vocabulary,
        "num_mel_bins": mels,
        "d_model": 384,
        "max_target_positions": 448,
    }
    return ModelFiles("whisper", config, generation, folder=folder)


def described(files):
    return find_audio_model(files).describe(files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens")
    write_tokenizer(path)
    return path


def prompt_of(folder, options, **generation):
    files = files_of(folder, **generation)
    model = find_audio_model(files)
    entry = model.processor(model.describe(files), files, None).prepare([CLIP], options)
    assert entry.encoder_decoder
    assert entry.positions == len(entry.prompt)
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    names = {token["id"]: token["content"] for token in added}
    return [names.get(token, "text") for token in entry.prompt]


@pytest.mark.parametrize(
    ("vocabulary", "generation", "multilingual"),
    [
        (51_864, {}, False),  # tiny.en to medium.en, distil-*.en
        (51_865, {}, True),  # tiny to large-v2, distil-large-v2
        (51_866, {}, True),  # large-v3, turbo, distil-large-v3
        (51_865, {"is_multilingual": False}, False),
        (51_864, {"is_multilingual": True}, True),
    ],
)
def test_english_only_models_are_told_by_what_they_state_or_by_their_vocabulary(vocabulary, generation, multilingual):
    info = described(files_of(vocabulary=vocabulary, **generation))
    assert info.detects_language is multilingual
    assert ("translate" in info.tasks) is multilingual
    assert (info.languages == ("en",)) is not multilingual
    assert info.encoder_decoder
    assert info.audio_tokens(0.1) == info.audio_tokens(30.0) == 1_500
    assert info.hidden_size == 384


def test_large_v3_knows_the_languages_that_its_configuration_lists():
    info = described(files_of(vocabulary=51_866, mels=128, lang_to_id={"<|en|>": 50_259, "<|yue|>": 50_358}))
    assert info.languages == ("en", "yue")


@pytest.mark.parametrize(("timestamps", "last"), [("none", ["<|notimestamps|>"]), ("tokens", [])])
def test_an_english_only_model_is_told_neither_language_nor_task(folder, timestamps, last):
    options = DecodingOptions(language="en", timestamps=timestamps)
    assert prompt_of(folder, options, is_multilingual=False) == ["<|startoftranscript|>", *last]


def test_a_multilingual_model_is_told_both(folder):
    options = DecodingOptions(language="fr", task="translate", timestamps="none")
    assert prompt_of(folder, options) == ["<|startoftranscript|>", "<|fr|>", "<|translate|>", "<|notimestamps|>"]


def test_earlier_text_comes_before_it_all(folder):
    names = prompt_of(folder, DecodingOptions(language="fr", timestamps="none", prompt="q1 q2"))
    assert names[0] == "<|startofprev|>"
    assert set(names[1:-4]) == {"text"}
    assert names[-4] == "<|startoftranscript|>"


def test_the_language_is_asked_for_with_the_start_alone(folder):
    files = files_of(folder)
    model = find_audio_model(files)
    processor = model.processor(model.describe(files), files, None)
    assert processor.prepare_detection([CLIP]).prompt == (processor.tokens.start_of_transcript,)
    names = processor.language_tokens()
    assert len(names) == 99
    assert names[processor.tokens.start_of_transcript + 1] == "en"


def test_tokens_are_read_with_times_or_without(folder):
    files = files_of(folder)
    model = find_audio_model(files)
    processor = model.processor(model.describe(files), files, None)
    first = processor.tokens.first_timestamp
    word, other = 300, 301  # " q44", " q45"
    generated = Generated("", (first, word, first + 50, first + 60, other, first + 100, processor.tokens.end_of_text))
    timed = processor.segments(generated, 3.0, DecodingOptions(timestamps="tokens"))
    assert [(part.start, part.end) for part in timed] == [(0.0, 1.0), (1.2, 2.0)]
    (whole,) = processor.segments(generated, 3.0, DecodingOptions(timestamps="none"))
    assert (whole.start, whole.end) == (0.0, 3.0)
    assert whole.text == " ".join(part.text for part in timed)


def test_without_a_folder_there_is_no_prompt():
    files = files_of()
    model = find_audio_model(files)
    with pytest.raises(EngineUnavailableError, match=r"whisper: .*tokenizer\.json"):
        model.processor(model.describe(files), files, None)
