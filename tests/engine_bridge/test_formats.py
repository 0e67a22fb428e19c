"""What a transcript looks like on disk, in each format."""

# ruff: noqa: RUF001 (full-width punctuation is part of what is tested)

import dataclasses
import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_bridge.errors import TranscriptFormatError, UnsupportedOptionError
from engine_bridge.formats import FORMATS, find_format, read_json, render
from engine_bridge.formats.cues import MAX_CUE_SECONDS, MIN_CUE_MS, cues, timestamp
from engine_bridge.formats.pieces import LINE_WIDTH, width_of
from engine_bridge.transcript import Gap, Segment, Transcript, Word

ARROW = re.compile(r"(\d+):(\d\d):(\d\d)[.,](\d{3}) --> (\d+):(\d\d):(\d\d)[.,](\d{3})")


def transcript_of(*segments, duration=60.0, **fields):
    defaults = {"gaps": (), "language": "en", "source": "talk.mp3", "engine": "embedded:tiny.en", "backend": "pyav"}
    return Transcript(segments=segments, duration=duration, **{**defaults, **fields})


def times_in(text):
    times = []
    for match in ARROW.finditer(text):
        numbers = [int(group) for group in match.groups()]
        times.append(
            tuple(((h * 60 + m) * 60 + s) * 1000 + ms for h, m, s, ms in (numbers[:4], numbers[4:])),
        )
    return times


def without_space(text):
    return "".join(text.split())


# Choosing a format


def test_the_formats_are_known_by_name_and_extension():
    assert {name: each.extension for name, each in FORMATS.items()} == {
        "txt": ".txt",
        "srt": ".srt",
        "vtt": ".vtt",
        "tsv": ".tsv",
        "json": ".json",
    }


def test_an_unknown_format_is_refused_with_the_list_of_known_ones():
    with pytest.raises(UnsupportedOptionError, match="'docx' is not a transcript format; choose one of txt, srt, vtt"):
        render(transcript_of(), "docx")
    with pytest.raises(UnsupportedOptionError):
        find_format("SRT")


@pytest.mark.parametrize(
    ("name", "expected"), [("txt", ""), ("srt", ""), ("vtt", "WEBVTT\n\n"), ("tsv", "start\tend\ttext\n")]
)
def test_a_silent_recording_gives_a_valid_empty_file(name, expected):
    assert render(transcript_of(), name) == expected


# Plain text and tables


def test_txt_is_one_line_a_segment():
    transcript = transcript_of(Segment(0, 1, "One\ntwo."), Segment(1, 2, "  "), Segment(2, 3, "Three."))
    assert render(transcript, "txt") == "One two.\nThree.\n"


def test_tsv_is_in_whole_milliseconds_and_one_line_a_segment():
    transcript = transcript_of(Segment(0.0, 1.2345, "a\tb\r\nc"), Segment(3661.0004, 3662.0, "d"), duration=4000.0)
    assert render(transcript, "tsv") == "start\tend\ttext\n0\t1234\ta b c\n3661000\t3662000\td\n"


# Subtitles: layout of the file


def test_srt_numbers_its_cues_and_uses_a_comma():
    transcript = transcript_of(Segment(0.5, 2.0, "Hello there."), Segment(2.0, 4.25, "How are you?"))
    assert render(transcript, "srt") == (
        "1\n00:00:00,500 --> 00:00:02,000\nHello there.\n\n2\n00:00:02,000 --> 00:00:04,250\nHow are you?\n\n"
    )


def test_vtt_has_its_heading_and_uses_a_point():
    transcript = transcript_of(Segment(0.5, 2.0, "Hello there."))
    assert render(transcript, "vtt") == "WEBVTT\n\n00:00:00.500 --> 00:00:02.000\nHello there.\n\n"


def test_hours_past_ninety_nine_are_written_out():
    assert timestamp(((123 * 60 + 4) * 60 + 5) * 1000 + 6, ",") == "123:04:05,006"
    transcript = transcript_of(Segment(360_000.0, 360_002.0, "Still here."), duration=360_010.0)
    assert "100:00:00,000 --> 100:00:02,000" in render(transcript, "srt")


def test_vtt_escapes_markup_and_arrows():
    transcript = transcript_of(Segment(0, 3, "if a<b && b-->c"))
    assert "if a&lt;b &amp;&amp; b--&gt;c\n" in render(transcript, "vtt")


def test_srt_has_no_blank_line_inside_a_cue_and_no_arrow_in_a_text():
    transcript = transcript_of(Segment(0, 3, "one\n\n2\n00:00:01,000 --> 00:00:02,000\n\nthree"))
    body = render(transcript, "srt")
    assert len(times_in(body)) == 1
    assert len(body.strip().split("\n\n")) == 1


def test_suspect_segments_are_left_out_of_the_text_and_marked_in_json():
    transcript = transcript_of(Segment(0, 1, "Real."), Segment(5, 9, "Thanks for watching!", suspect="no speech here"))
    assert transcript.text == "Real."
    for name in ("txt", "srt", "vtt", "tsv"):
        assert "Real." in render(transcript, name)
        assert "watching" not in render(transcript, name)
    assert json.loads(render(transcript, "json"))["segments"][1]["suspect"] == "no speech here"


def test_control_characters_do_not_reach_a_file():
    transcript = transcript_of(Segment(0, 2, "a\x00b\x1b[0m\x7f"))
    for name in ("txt", "srt", "vtt", "tsv"):
        assert "ab[0m" in render(transcript, name)


# Subtitles: size of the cues


def test_a_paragraph_becomes_cues_of_two_lines_of_42_characters_and_seven_seconds():
    text = (
        "When the recording is long and the speaker never stops, the whole paragraph used to land on the screen "
        "at once. Nobody can read that, so it is cut: after sentences where it can be, after clauses where not. "
        "Every word stays."
    )
    shown = cues(transcript_of(Segment(10.0, 38.0, text)))
    assert all(1 <= len(cue.lines) <= 2 for cue in shown)
    assert all(len(line) <= 42 for cue in shown for line in cue.lines)
    assert all(cue.end_ms - cue.start_ms <= 7000 for cue in shown)
    assert " ".join(line for cue in shown for line in cue.lines) == text


def test_cuts_fall_after_punctuation_where_they_can():
    text = "The first sentence has about forty letters. The second is rather longer, and it has a clause. The third."
    shown = cues(transcript_of(Segment(0.0, 8.0, text)))
    assert len(shown) > 1
    assert all(cue.lines[-1][-1] in ".," for cue in shown)


def test_lines_are_even_rather_than_one_long_and_one_short():
    (cue,) = cues(transcript_of(Segment(0.0, 5.0, "We went to the market on Saturday morning and bought some pears")))
    assert len(cue.lines) == 2
    assert abs(len(cue.lines[0]) - len(cue.lines[1])) <= 12


def test_word_times_decide_when_a_cut_text_appears():
    early = [Word(index * 0.3, index * 0.3 + 0.3, f"early{index}", 1.0) for index in range(8)]
    late = [Word(20 + index * 0.3, 20.3 + index * 0.3, f"late{index}", 1.0) for index in range(8)]
    words = (*early, *late)
    segment = Segment(0.0, 22.4, " ".join(word.text for word in words), words)
    first, second = cues(transcript_of(segment))
    assert " ".join(first.lines).split() == [word.text for word in early]
    assert (first.start_ms, first.end_ms) == (0, 2400)
    assert (second.start_ms, second.end_ms) == (20_000, 22_400)


def test_words_that_do_not_spell_the_text_are_not_trusted_for_times():
    text = "alpha beta gamma delta " * 8
    wrong = (Word(0.0, 0.1, "something", 1.0), Word(0.1, 0.2, "else", 1.0))
    assert cues(transcript_of(Segment(0.0, 20.0, text, wrong))) == cues(transcript_of(Segment(0.0, 20.0, text)))


def test_chinese_gets_sixteen_characters_a_line_and_no_line_begins_with_punctuation():
    text = "这是一个很长的句子，没有任何空格，所以必须在字与字之间断开。" * 4
    shown = cues(transcript_of(Segment(0.0, 24.0, text)))
    lines = [line for cue in shown for line in cue.lines]
    assert all(len(line) <= 16 for line in lines)
    assert not any(line[0] in "，。" for line in lines)
    assert "".join(lines) == text


def test_korean_breaks_at_its_spaces():
    text = "오늘은 날씨가 아주 좋아서 우리는 공원에 가서 산책을 하고 맛있는 점심을 먹었습니다"
    shown = cues(transcript_of(Segment(0.0, 9.0, text)))
    assert " ".join(line for cue in shown for line in cue.lines) == text


def test_thai_marks_stay_with_their_consonants():
    text = "สวัสดีครับวันนี้เราจะมาพูดถึงเรื่องการบันทึกเสียงที่ยาวมากและวิธีการแบ่งข้อความให้อ่านง่าย"
    lines = [line for cue in cues(transcript_of(Segment(0.0, 12.0, text))) for line in cue.lines]
    assert len(lines) > 1
    assert "".join(lines) == text
    assert not any(line[0] in "ะาำัิีึืุู็่้๊๋์" or line[-1] in "เแโใไ" for line in lines)


def test_a_word_longer_than_a_line_is_cut_to_fit():
    lines = [line for cue in cues(transcript_of(Segment(0.0, 5.0, "x" * 100))) for line in cue.lines]
    assert [len(line) for line in lines] == [42, 42, 16]


# Subtitles: times


def test_a_segment_without_length_is_shown_long_enough_to_be_read():
    (cue,) = cues(transcript_of(Segment(5.0, 5.0, "Yes.")))
    assert (cue.start_ms, cue.end_ms) == (5000, 5000 + MIN_CUE_MS)


def test_segments_piled_on_the_last_moment_still_follow_one_another():
    piled = [Segment(29.98, 29.98, f"Word {index}.") for index in range(5)]
    shown = cues(transcript_of(*piled, duration=30.0))
    assert [cue.lines for cue in shown] == [(f"Word {index}.",) for index in range(5)]
    assert all(cue.end_ms - cue.start_ms == 200 for cue in shown)
    assert shown[-1].end_ms == 30_000


def test_rounding_never_makes_cues_overlap():
    transcript = transcript_of(
        Segment(0.0, 1.0006, "One."), Segment(1.0006, 2.0004, "Two."), Segment(2.0004, 3.0, "3.")
    )
    times = times_in(render(transcript, "srt"))
    assert times == [(0, 1001), (1001, 2000), (2000, 3000)]


def test_a_word_stretched_over_silence_is_shown_for_seven_seconds_at_most():
    (cue,) = cues(transcript_of(Segment(1.0, 40.0, "Well.")))
    assert (cue.start_ms, cue.end_ms) == (1000, 8000)


TEXTS = st.text(st.sampled_from("ab Z.,?-> 漢字、。한국ไท์é&<\n\t9"), max_size=120)


@st.composite
def transcripts(draw):
    duration = draw(st.integers(0, 40_000)) / 1000
    bounds = sorted(draw(st.lists(st.floats(0, duration), min_size=2, max_size=8)))
    segments = []
    for start, end in zip(bounds[::2], bounds[1::2], strict=False):
        text = draw(TEXTS)
        words = ()
        if draw(st.booleans()):
            edges = [draw(st.floats(0, duration)) for _ in range(2 * len(text.split()))]
            words = tuple(
                Word(*sorted(pair), word, draw(st.floats(0, 1)))
                for *pair, word in zip(edges[::2], edges[1::2], text.split(), strict=True)
            )
        suspect = draw(st.sampled_from([None, None, "repetition"]))
        confidence = draw(st.none() | st.floats(0, 1))
        segments.append(Segment(start, end, text, words, confidence, draw(st.integers(1, 5)), suspect, "en"))
    gaps = tuple(
        Gap(start, start + 1, draw(st.text(max_size=9))) for start in draw(st.lists(st.floats(0, 9), max_size=2))
    )
    return transcript_of(
        *segments,
        duration=duration,
        gaps=gaps,
        source=draw(st.text(max_size=9)),
        language=draw(st.sampled_from([None, "en", "zh"])),
        language_probability=draw(st.none() | st.floats(0, 1)),
        claimed_duration=draw(st.none() | st.floats(0, 1e6)),
        warnings=tuple(draw(st.lists(st.text(max_size=9), max_size=2))),
        timings=draw(st.dictionaries(st.text(max_size=5), st.floats(0, 1e4), max_size=3)),
    )


@given(transcripts())
@settings(max_examples=150)
def test_cues_ascend_without_overlap_within_the_recording_and_fit_the_screen(transcript):
    shown = cues(transcript)
    for cue in shown:
        assert 0 <= cue.start_ms <= cue.end_ms <= transcript.duration * 1000
        assert cue.end_ms - cue.start_ms <= MAX_CUE_SECONDS * 1000
        assert 1 <= len(cue.lines) <= 2
        assert all(line and width_of(line) <= LINE_WIDTH and line == line.strip() for line in cue.lines)
    assert all(before.end_ms <= after.start_ms for before, after in itertools.pairwise(shown))


@given(transcripts())
@settings(max_examples=100)
def test_every_character_of_a_trusted_segment_is_shown_once(transcript):
    trusted = "".join(without_space(segment.text) for segment in transcript.segments if segment.suspect is None)
    assert "".join(without_space("".join(cue.lines)) for cue in cues(transcript)) == trusted


# JSON


def rounded(transcript):
    segments = tuple(
        dataclasses.replace(
            segment,
            start=round(segment.start, 3),
            end=round(segment.end, 3),
            confidence=None if segment.confidence is None else round(segment.confidence, 4),
            words=tuple(
                Word(round(word.start, 3), round(word.end, 3), word.text, round(word.probability, 4))
                for word in segment.words
            ),
        )
        for segment in transcript.segments
    )
    claimed, certainty = transcript.claimed_duration, transcript.language_probability
    return dataclasses.replace(
        transcript,
        segments=segments,
        gaps=tuple(Gap(round(gap.start, 3), round(gap.end, 3), gap.reason) for gap in transcript.gaps),
        duration=round(transcript.duration, 3),
        claimed_duration=None if claimed is None else round(claimed, 3),
        language_probability=None if certainty is None else round(certainty, 4),
        timings={name: round(seconds, 3) for name, seconds in transcript.timings.items()},
    )


@given(transcripts())
@settings(max_examples=150)
def test_json_reads_back_as_the_same_transcript(transcript):
    assert read_json(render(transcript, "json")) == rounded(transcript)


def test_json_is_versioned_and_carries_the_whole_text_unescaped():
    segments = (Segment(0.0, 1.00049, "你好"), Segment(1.0, 2.0, "世界", attempts=2, confidence=0.87654))
    document = json.loads(text := render(transcript_of(*segments, timings={"decode": 0.12345}), "json"))
    assert (document["schema"], document["version"]) == ("auricle.transcript", 1)
    assert document["text"] == "你好世界"
    assert '"你好世界"' in text
    assert document["segments"][0]["end"] == 1.0
    assert (document["segments"][1]["attempts"], document["segments"][1]["confidence"]) == (2, 0.8765)
    assert document["timings"] == {"decode": 0.123}


def test_json_survives_a_file_name_that_is_not_utf8_and_a_claim_that_is_not_a_number():
    transcript = transcript_of(source="caf\udce9.mp3", claimed_duration=float("inf"))
    text = render(transcript, "json")
    text.encode("utf-8")
    assert read_json(text).source == "caf\udce9.mp3"
    assert read_json(text).claimed_duration is None


def test_keys_added_by_a_later_program_are_ignored():
    document = json.loads(render(transcript_of(Segment(0, 1, "Hi.")), "json"))
    document["speakers"] = []
    assert read_json(json.dumps(document)).segments[0].text == "Hi."


def test_a_file_from_before_languages_had_a_probability_is_read():
    document = json.loads(render(transcript_of(Segment(0, 1, "Hi."), language_probability=0.8), "json"))
    assert read_json(json.dumps(document)).language_probability == 0.8
    del document["language_probability"]
    assert read_json(json.dumps(document)).language_probability is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.update(version=2), "version 2 and this program reads version 1"),
        (lambda document: document.update(schema="other"), "no schema 'auricle.transcript'"),
        (lambda document: document.pop("duration"), "damaged .KeyError: 'duration'"),
        (lambda document: document["segments"][0].update(start="0"), "damaged .TypeError: '0' is not a number"),
        (lambda document: document["segments"][0].update(attempts=True), "True is not a whole number"),
        (lambda document: document.update(segments=[7]), "damaged"),
        (lambda document: document.update(timings=[]), "damaged"),
    ],
)
def test_json_that_is_no_transcript_is_refused_with_the_reason(change, message):
    document = json.loads(render(transcript_of(Segment(0, 1, "Hi.")), "json"))
    change(document)
    with pytest.raises(TranscriptFormatError, match=message):
        read_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "1\n00:00:00,000 --> 00:00:01,000\nHi.\n"])
def test_text_in_another_format_is_refused(text):
    with pytest.raises(TranscriptFormatError, match="read a file that was written as json"):
        read_json(text)
