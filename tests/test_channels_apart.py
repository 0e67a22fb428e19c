"""One transcript for each channel, merged; and the part of a recording that is transcribed, in the recording's time."""

import io
import itertools
import json

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

import cli
from audio.errors import AudioError
from engine_bridge import Transcript, read_json, render, transcribe, transcribe_channels
from engine_bridge.channels_apart import merged
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine
from engine_bridge.transcript import Gap, Segment
from tests.tones import RATE, Recording, hear


@pytest.fixture
def engine():
    with_words = FakeEngine(hear, capabilities=ENGLISH_ONLY)
    yield with_words
    with_words.close()


def talk(seconds, voice):
    """Speech of about a length, in phrases whose length differs from voice to voice."""
    words = 3 + voice
    return Recording().phrases(int(seconds / (0.9 + 0.35 * words)), words=words)


def call(*recordings):
    """A recording with a channel for each of some others, as WAV bytes."""
    longest = max(len(recording.samples) for recording in recordings)
    channels = [np.pad(recording.samples, (0, longest - len(recording.samples))) for recording in recordings]
    file = io.BytesIO()
    soundfile.write(file, np.stack(channels, axis=1), RATE, format="WAV", subtype="FLOAT")
    return file.getvalue()


def heard(transcript, channel):
    return [word.text for segment in transcript.segments if segment.channel == channel for word in segment.words]


def names(recording):
    return [name for _, _, name in recording.words]


class TestEachChannel:
    def test_has_its_own_text_merged_by_time(self, engine):
        one, other = talk(40, 1), talk(40, 2)
        transcript = transcribe_channels(call(one, other), engine=engine)
        assert heard(transcript, "left") == names(one)
        assert heard(transcript, "right") == names(other)
        starts = [segment.start for segment in transcript.segments]
        assert starts == sorted(starts)
        assert transcript.gaps == ()

    def test_is_numbered_where_there_are_more_than_two(self, engine):
        recordings = [talk(10, seed) for seed in range(3)]
        transcript = transcribe_channels(call(*recordings), engine=engine)
        assert [heard(transcript, f"channel {number}") for number in range(3)] == list(map(names, recordings))

    def test_is_transcribed_once_where_all_hold_the_same_sound(self, engine):
        recording = talk(20, 3)
        transcript = transcribe_channels(call(recording, recording), engine=engine)
        assert heard(transcript, None) == names(recording)
        assert transcript.warnings == ("its channels hold the same sound: they were transcribed once",)

    def test_of_a_mono_recording_is_the_recording(self, engine):
        recording = talk(20, 3)
        transcript = transcribe_channels(call(recording), engine=engine)
        assert heard(transcript, None) == names(recording)
        assert transcript.warnings == ()

    def test_counts_in_the_progress(self, engine):
        told = []
        transcribe_channels(call(talk(40, 1), talk(40, 2)), engine=engine, on_progress=told.append)
        assert all(before.audio_seconds <= after.audio_seconds for before, after in itertools.pairwise(told))
        assert told[-1].audio_seconds == pytest.approx(told[-1].total_seconds)

    def test_fails_as_a_whole_where_the_recording_cannot_be_read(self, engine):
        with pytest.raises(AudioError):
            transcribe_channels(b"no recording", engine=engine)


class TestMerging:
    LEFT = Transcript(
        (Segment(1, 3, "Hello there."), Segment(5, 6, "Yes.")),
        (Gap(8, 9, "no text"),),
        10,
        "en",
        "a",
        "e",
        "b",
        warnings=("damaged",),
        timings={"total": 1.0},
    )
    RIGHT = Transcript(
        (Segment(2, 4, "Hi."),), (), 10, "de", "a", "e", "b", warnings=("damaged",), timings={"total": 2.0}
    )
    BOTH = merged({"left": LEFT, "right": RIGHT})

    def test_orders_by_start_and_labels(self):
        assert [(segment.start, segment.channel) for segment in self.BOTH.segments] == [
            (1, "left"),
            (2, "right"),
            (5, "left"),
        ]
        assert self.BOTH.gaps == (Gap(8, 9, "no text (left)"),)

    def test_tells_warnings_once_and_adds_up_the_time(self):
        assert (self.BOTH.warnings, self.BOTH.timings, self.BOTH.language) == (("damaged",), {"total": 3.0}, "en")

    def test_labels_stand_in_what_people_read(self):
        assert render(self.BOTH, "txt") == "[left] Hello there.\n[right] Hi.\n[left] Yes.\n"
        assert "\n[right] Hi.\n" in render(self.BOTH, "srt")
        assert "\n[right] Hi.\n" in render(self.BOTH, "vtt")
        assert "[right] Hi." in render(self.BOTH, "tsv")

    def test_channels_stand_in_the_json_and_come_back(self):
        assert read_json(render(self.BOTH, "json")) == self.BOTH


class TestAPart:
    def test_keeps_the_recordings_time(self, engine):
        recording = talk(60, 4)
        whole = transcribe(call(recording), engine=engine)
        begin = whole.segments[len(whole.segments) // 2].start - 0.05
        part = transcribe(call(recording), engine=engine, from_seconds=begin, to_seconds=begin + 20)
        within = [word for start, end, word in recording.words if start >= begin and end <= begin + 20]
        words = [word for segment in part.segments for word in segment.words]
        assert set(within) <= {word.text for word in words}
        places = {name: (start, end) for start, end, name in recording.words}
        assert all(abs(word.start - places[word.text][0]) < 0.15 for word in words if word.text in within)
        assert part.start == pytest.approx(begin, abs=1e-4)
        assert part.duration == pytest.approx(begin + 20, abs=1e-3)
        assert all(begin <= segment.start <= segment.end <= begin + 20.001 for segment in part.segments)

    def test_progress_runs_from_where_it_begins(self, engine):
        told = []
        transcribe(call(talk(60, 4)), engine=engine, from_seconds=20, to_seconds=50, on_progress=told.append)
        assert told[-1].audio_seconds == told[-1].total_seconds == 50
        assert told[-1].start_seconds == 20


class TestTheCommand:
    @pytest.fixture(autouse=True)
    def scripted(self, monkeypatch):
        monkeypatch.setattr(
            "engine_bridge.engines.open.open_engine", lambda spec: FakeEngine(hear, capabilities=ENGLISH_ONLY)
        )
        monkeypatch.setattr("engine_bridge.engines.allocator.keep_large_blocks", lambda: False)

    def run(self, *arguments):
        result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    @pytest.fixture
    def recorded_call(self, tmp_path):
        path = tmp_path / "call.wav"
        path.write_bytes(call(talk(30, 1), talk(30, 2)))
        return path

    def test_prints_each_channels_lines_with_its_label(self, recorded_call):
        lines = self.run("transcribe", recorded_call, "--channels", "each").splitlines()
        assert {line.split()[1] for line in lines} == {"[left]", "[right]"}

    def test_transcribes_one_channel(self, recorded_call):
        transcript = read_json(self.run("transcribe", recorded_call, "--channels", "right", "-f", "json"))
        assert heard(transcript, None) == names(talk(30, 2))

    def test_transcribes_a_range(self, recorded_call):
        arguments = ("transcribe", recorded_call, "--channels", "1", "--from", "0:10.5", "--to", "20", "-f", "json")
        transcript = read_json(self.run(*arguments))
        assert (transcript.start, transcript.duration) == (10.5, 20.0)
        assert all(10.5 <= segment.start <= segment.end <= 20 for segment in transcript.segments)

    def test_splits_a_range_at_the_recordings_positions(self, recorded_call, tmp_path):
        self.run("split", recorded_call, "-o", tmp_path / "out", "--from", "10", "--to", "20", "--channels", "left")
        (manifest,) = (tmp_path / "out").glob("*.chunks.jsonl")
        chunks = [json.loads(line) for line in manifest.read_text().splitlines()]
        assert (chunks[0]["start"], chunks[-1]["stop"]) == (160_000, 320_000)
