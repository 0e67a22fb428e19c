"""Every family: its channels, its prompt, what it reads of an answer, and its largest inputs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from audio.channels import AudioSpec
from audio.errors import ChannelLayoutError
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineUnavailableError
from engine_bridge.models import AudioDummyInputs, Generated, ModelFiles, audio_models
from engine_bridge.models.inputs import normalized
from tests.random_whisper import write_tokenizer

ARCHITECTURES = sorted(audio_models())
PLACEHOLDERS = {
    "Qwen2-Audio": "<|AUDIO|>",
    "Qwen2.5-Omni": "<|AUDIO|>",
    "Qwen3-Omni": "<|audio_pad|>",
    "Qwen3-ASR": "<|audio_pad|>",
    "Ultravox": "<|audio|>",
    "FireRedASR2": "<|AUDIO|>",
    "Fun-ASR": "<|AUDIO|>",
    "Gemma 3n": "<audio_soft_token>",
    "GLM-ASR": "<|pad|>",
    "Granite Speech": "<|audio|>",
    "Kimi-Audio": "<|im_kimia_text_blank|>",
    "MOSS-Transcribe-Diarize": "<|audio_pad|>",
}


class WordTokenizer:
    """A tokenizer whose tokens are special tokens, words and single marks; a number each, as they come."""

    def __init__(self):
        self.numbers = {}

    def token_id(self, token):
        return self.numbers.setdefault(token, len(self.numbers))

    def encode(self, text, *, special):
        pieces = re.findall(r"<\|.*?\|>|<\w+>|\[\w+\]|\w+|\s+|.", text)
        return [*([self.token_id("<bos>")] if special else []), *map(self.token_id, pieces)]

    def chat(self, content):
        return self.encode(f"<|user|>{content}<|end|><|assistant|>", special=False)

    def text(self, tokens):
        names = list(self.numbers)
        return "".join(names[token] for token in tokens)


@pytest.fixture(scope="module")
def whisper_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whisper")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module", params=ARCHITECTURES)
def family(request, whisper_folder):
    """Return a family's information, its processor and the tokenizer behind it."""
    model = audio_models()[request.param]
    files = ModelFiles(request.param, {"architectures": [request.param]}, folder=whisper_folder)
    tokenizer = WordTokenizer()
    info = model.describe(files)
    return info, model.processor(info, files, tokenizer), tokenizer


def options(info, **changes):
    return DecodingOptions(language=info.languages[0], timestamps="none", **changes)


def test_what_is_told_of_a_family_makes_sense(family):
    info, processor, _ = family
    assert info.sample_rate > 0
    assert info.max_clip_seconds > 0
    assert len(set(info.languages)) == len(info.languages) > 0
    assert "transcribe" in info.tasks
    assert info.audio_tokens(0.0) >= 0
    assert info.audio_tokens(info.max_clip_seconds) >= info.audio_tokens(info.max_clip_seconds / 2) > 0
    assert processor.max_prompt_tokens >= 0


def layouts_of(samples):
    stereo = np.stack([samples * 1.5, samples * 0.5])
    yield "mono", samples
    yield "one channel first", samples[None]
    yield "one channel last", samples[:, None]
    yield "channels first", stereo
    yield "channels last", np.ascontiguousarray(stereo.T)
    yield "a view", stereo.T
    yield "double precision", samples.astype(np.float64)


def test_every_layout_is_the_same_to_a_family_that_wants_mono(family):
    info, processor, _ = family
    assert info.audio_spec.target_channels == 1
    samples = np.random.default_rng(3).uniform(-0.5, 0.5, info.sample_rate).astype(np.float32)
    expected = processor.prepare([samples], options(info)).waveforms[0]
    np.testing.assert_array_equal(expected[: len(samples)], samples)
    for name, given in layouts_of(samples):
        (waveform,) = processor.prepare([given], options(info)).waveforms
        assert waveform.dtype == np.float32, name
        assert waveform.shape == expected.shape, name
        np.testing.assert_allclose(waveform, expected, atol=1e-7, err_msg=name)


def test_tensors_are_the_same_as_arrays(family):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    info, processor, _ = family
    samples = np.random.default_rng(3).uniform(-0.5, 0.5, info.sample_rate).astype(np.float32)
    (expected,) = processor.prepare([samples], options(info)).waveforms
    for name, given in layouts_of(samples):
        (waveform,) = processor.prepare([torch.from_numpy(np.ascontiguousarray(given))], options(info)).waveforms
        assert isinstance(waveform, np.ndarray), name
        np.testing.assert_allclose(waveform, expected, atol=1e-7, err_msg=name)


def test_channels_pass_through_where_a_family_takes_any(family):
    info = replace(family[0], audio_spec=AudioSpec(target_channels=None))
    for _, given in layouts_of(np.linspace(-0.5, 0.5, info.sample_rate, dtype=np.float32)):
        (waveform,) = normalized([given], info, None)
        assert waveform.shape == given.shape
        np.testing.assert_array_equal(waveform, given.astype(np.float32))


def test_a_layout_that_cannot_be_told_is_refused_unless_it_is_stated(family):
    info, processor, _ = family
    square = np.zeros((4, 4), dtype=np.float32)
    with pytest.raises(ChannelLayoutError):
        processor.prepare([square], options(info))
    (waveform,) = processor.prepare([square], options(info), layout="channels_first").waveforms
    assert not waveform.any()


def test_a_clip_that_is_too_long_is_refused(family):
    info, processor, _ = family
    longest = round(info.max_clip_seconds * info.sample_rate)
    with pytest.raises(ValueError, match=str(longest)):
        processor.prepare([np.zeros(longest + 1, dtype=np.float32)], options(info))


def test_more_clips_than_one_prompt_takes_are_refused(family):
    info, processor, _ = family
    clip = np.zeros(info.sample_rate, dtype=np.float32)
    if info.items_per_prompt is None:
        assert len(processor.prepare([clip] * 3, options(info)).waveforms) == 3
        return
    with pytest.raises(ValueError, match=f"{info.items_per_prompt} waveform"):
        processor.prepare([clip] * (info.items_per_prompt + 1), options(info))


def test_the_prompt_has_a_placeholder_for_each_clip_and_counts_its_positions(family):
    info, processor, tokenizer = family
    clip = np.zeros(3 * info.sample_rate, dtype=np.float32)
    entry = processor.prepare([clip], options(info))
    if info.encoder_decoder:
        assert entry.positions == len(entry.prompt)
    elif info.family in PLACEHOLDERS:
        assert tokenizer.text(entry.prompt).count(PLACEHOLDERS[info.family]) == 1
        assert entry.positions == len(entry.prompt) - 1 + info.audio_tokens(3.0)
    else:
        assert tokenizer.text(entry.prompt).count("[AUDIO]") == info.audio_tokens(3.0)
        assert entry.positions == len(entry.prompt)


def test_a_text_before_the_clip_is_in_the_prompt_or_said_not_to_fit(family):
    info, processor, tokenizer = family
    fitted, is_cut = processor.fit_prompt("Aurelia Quincey")
    clip = np.zeros(info.sample_rate, dtype=np.float32)
    with_prompt = processor.prepare([clip], options(info, prompt=fitted or None)).prompt
    if is_cut:
        assert fitted == ""
        assert with_prompt == processor.prepare([clip], options(info)).prompt
    elif info.family == "Whisper":
        assert len(with_prompt) > len(processor.prepare([clip], options(info)).prompt)
    else:
        assert "Aurelia Quincey" in tokenizer.text(with_prompt)
    long = " ".join(f"word{number}" for number in range(3_000))
    fitted, is_cut = processor.fit_prompt(long)
    assert is_cut
    assert long.endswith(fitted)
    assert processor.fit_prompt(fitted) == (fitted, False)


def test_a_task_and_a_language_change_the_prompt_where_the_family_knows_them(family):
    info, processor, _ = family
    clip = np.zeros(info.sample_rate, dtype=np.float32)
    told = processor.prepare([clip], options(info)).prompt
    if "translate" in info.tasks:
        assert processor.prepare([clip], options(info, task="translate")).prompt != told


def test_what_the_model_wrote_is_one_segment_as_long_as_the_clip(family):
    info, processor, _ = family
    if info.family == "Whisper":
        pytest.skip("Whisper's answers are tokens; its own tests read them")
    (segment,) = processor.segments(Generated(" Good morning. ", (1, 2)), 4.0, options(info))
    assert (segment.start, segment.end, segment.text) == (0.0, 4.0, "Good morning.")
    assert processor.segments(Generated(" ", ()), 4.0, options(info)) == ()


@pytest.mark.parametrize("length", [448, 4_096])
@pytest.mark.parametrize("count", [None, 0, 1, 2])
def test_the_largest_input_fills_the_sequence_exactly_and_no_larger_one_fits(family, length, count):
    info, processor, _ = family
    built = AudioDummyInputs(info, processor).build(length, count)
    assert built.positions == length
    if count == 0:
        assert built.waveforms == ()
        return
    assert 1 <= len(built.waveforms) <= (info.items_per_prompt or length)
    assert count is None or len(built.waveforms) <= count
    longest = round(info.max_clip_seconds * info.sample_rate)
    if info.encoder_decoder:
        assert [len(waveform) for waveform in built.waveforms] == [longest]
        return
    unpadded = processor.prepare(built.waveforms, options(info)).positions
    assert unpadded <= length
    if len(built.waveforms[0]) < longest:  # not one of full length fits: neither does one that is a token longer
        longer = np.zeros(
            len(built.waveforms[0]) + 2 * round(info.sample_rate / info.audio_tokens_per_second), np.float32
        )
        assert processor.prepare([longer], options(info)).positions > length
    elif count is None and info.items_per_prompt is None:
        more = [*built.waveforms, built.waveforms[0]]
        assert processor.prepare(more, options(info)).positions > length


def test_a_sequence_that_is_too_short_for_any_input_is_refused(family):
    info, processor, _ = family
    with pytest.raises(ValueError, match=r"too short .*max_model_len"):
        AudioDummyInputs(info, processor).build(1)


def test_a_family_that_needs_the_engines_tokenizer_says_so():
    model = audio_models()["UltravoxModel"]
    files = ModelFiles("fixie-ai/ultravox", {})
    with pytest.raises(EngineUnavailableError, match=r"fixie-ai/ultravox: .*tokenizer.*vllm:MODEL"):
        model.processor(model.describe(files), files, None)


class TestQwen3Asr:
    @pytest.fixture
    def processor(self):
        model = audio_models()["Qwen3ASRForConditionalGeneration"]
        files = ModelFiles("qwen", {})
        return model.processor(model.describe(files), files, WordTokenizer())

    def test_a_known_language_begins_the_answer(self, processor):
        text = processor.tokenizer.text(processor.prompt(1, DecodingOptions(language="de")))
        assert text.endswith("<|im_start|>assistant\nlanguage German<asr_text>")

    def test_the_text_stands_behind_the_language(self, processor):
        (segment,) = processor.segments(Generated("language English<asr_text>Hello.", ()), 2.0, DecodingOptions())
        assert segment.text == "Hello."


class TestMoss:
    ANSWER = "[0.00][S01]Good morning.[1.50] [1.80][S02]Hello[3.00][2.00][S01] again [99.0]"

    @pytest.fixture
    def processor(self):
        model = audio_models()["MossTranscribeDiarizeForConditionalGeneration"]
        files = ModelFiles("moss", {})
        return model.processor(model.describe(files), files, WordTokenizer())

    def test_its_times_are_read_and_never_run_backwards_or_beyond_the_clip(self, processor):
        segments = processor.segments(Generated(self.ANSWER, ()), 4.0, DecodingOptions(timestamps="tokens"))
        assert [(part.start, part.end, part.text) for part in segments] == [
            (0.0, 1.5, "Good morning."),
            (1.8, 3.0, "Hello"),
            (3.0, 4.0, "again"),
        ]

    def test_without_times_the_text_alone_is_left(self, processor):
        (segment,) = processor.segments(Generated(self.ANSWER, ()), 4.0, DecodingOptions(timestamps="none"))
        assert segment.text == "Good morning. Hello again"
