"""Tables of recordings as sources, and tables of results."""

import json
import sys

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audio import load_audio
from engine_bridge import EngineUnavailableError, OutputError
from engine_bridge.batch.inputs import find_recordings
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.result_tables import ResultsTable
from engine_bridge.batch.results import Failure, RecordingResult
from engine_bridge.batch.tables import recordings_from_table
from engine_bridge.errors import ManifestError
from engine_bridge.transcript import Gap, Segment, Transcript, Word
from tests.recordings import bursts, wav_bytes

AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SOUND = wav_bytes(bursts(1))


def table(**columns):
    return pa.table(columns)


def embedded(count=3):
    """A table as Hugging Face's datasets store audio."""
    return table(
        audio=pa.array([{"bytes": SOUND, "path": f"{number}.wav"} for number in range(count)], AUDIO),
        text=[f"text {number}" for number in range(count)],
    )


class Formatted:
    """What a dataset gives in Arrow's format: tables, never decoded."""

    def __init__(self, data):
        self.data = data

    def with_format(self, name):
        assert name == "arrow"
        return self

    def iter(self, batch_size):
        for start in range(0, self.data.num_rows, batch_size):
            yield self.data.slice(start, batch_size)


class TestSources:
    @pytest.mark.parametrize(
        "form",
        [
            lambda data: data,
            lambda data: data.to_reader(max_chunksize=2),
            lambda data: data.to_batches()[0],
            lambda data: data.to_pylist(),
            Formatted,
        ],
        ids=["table", "reader", "batch", "rows", "dataset"],
    )
    def test_every_form_gives_the_rows_in_order(self, form):
        recordings = list(recordings_from_table(form(embedded())))
        assert [recording.id for recording in recordings] == ["0.wav", "1.wav", "2.wav"]
        assert [recording.extra for recording in recordings] == [{"text": f"text {number}"} for number in range(3)]
        np.testing.assert_array_equal(load_audio(recordings[1].source)[0], load_audio(SOUND)[0])

    def test_paths_alone(self):
        rows = table(audio=pa.array([{"bytes": None, "path": "/x/a.wav"}], AUDIO))
        assert next(recordings_from_table(rows)) == Recording("x/a.wav", "/x/a.wav")
        assert next(recordings_from_table(table(path=["a.wav"]), base="/x")).source == "/x/a.wav"
        assert next(recordings_from_table(table(clip=["s3://x/a.wav"]), audio="clip")).source == "s3://x/a.wav"

    def test_bytes_without_a_name_are_called_by_their_row(self):
        rows = table(audio=pa.array([SOUND, SOUND], pa.binary()))
        assert [recording.id for recording in recordings_from_table(rows, name="calls")] == ["calls-0", "calls-1"]

    def test_samples_that_are_decoded_already(self):
        rows = [{"audio": {"array": np.zeros(160, np.float32), "sampling_rate": 16_000, "path": None}}]
        (recording,) = recordings_from_table(rows)
        assert load_audio(recording.source)[0].shape == (160,)

    def test_columns_mean_what_they_do_in_manifests(self):
        rows = table(id=["x"], path=["a.wav"], language=["de"], **{"from": [1.5], "priority": [3]})
        (recording,) = recordings_from_table(rows)
        assert recording == Recording("x", "a.wav", language="de", from_seconds=1.5, priority=3)

    def test_a_path_beside_the_audio_is_carried_on(self):
        (recording,) = recordings_from_table([{"audio": SOUND, "path": "clips/1.mp3"}])
        assert (recording.source, recording.extra) == (SOUND, {"path": "clips/1.mp3"})

    def test_columns_can_be_kept_from_having_a_meaning(self):
        (recording,) = recordings_from_table([{"path": "a.wav", "language": 4}], carried=["language"])
        assert (recording.language, recording.extra) == (None, {"language": 4})

    def test_a_bad_row_does_not_lose_the_others(self):
        rows = [{"path": "a.wav"}, {"text": "no audio"}, {"audio": 7}, {"path": "b.wav", "from": "soon"}, {"path": "c"}]
        results = list(recordings_from_table(rows))
        assert [recording.id for recording in results] == ["a.wav", "row-1", "row-2", "row-3", "c"]
        for number, told in ((1, "there is no audio in the column audio, path, url"), (2, "holds int"), (3, "'soon'")):
            with pytest.raises(ManifestError, match=rf"^row {number} of the table: .*{told}"):
                load_audio(results[number].source)

    def test_only_some_rows_are_read_at_a_time(self):
        taken = []

        def rows():
            for number in range(1000):
                taken.append(number)
                yield embedded(1)

        next(recordings_from_table(rows()))
        assert len(taken) == 1


class TestParquet:
    def test_a_file_is_an_input(self, tmp_path):
        pq.write_table(embedded(), tmp_path / "calls.parquet")
        recordings = list(find_recordings([str(tmp_path / "calls.parquet")]))
        assert [recording.id for recording in recordings] == ["0.wav", "1.wav", "2.wav"]

    def test_also_at_an_address(self, tmp_path):
        pq.write_table(table(path=["b/a.wav"]), tmp_path / "calls.parquet")
        fsspec.filesystem("memory").pipe_file("/tables/calls.parquet", (tmp_path / "calls.parquet").read_bytes())
        (recording,) = find_recordings(["memory://tables/calls.parquet"])
        assert recording == Recording("b/a.wav", "memory://tables/b/a.wav")

    @pytest.mark.parametrize(
        ("content", "told"), [(None, "No such file"), (b"PAR?", "the table cannot be read"), (b"", "Parquet")]
    )
    def test_one_that_cannot_be_read_fails_as_one_recording(self, tmp_path, content, told):
        path = tmp_path / "calls.parquet"
        if content is not None:
            path.write_bytes(content)
        (bad,) = find_recordings([str(path)])
        with pytest.raises(ManifestError, match=told):
            load_audio(bad.source)

    def test_pyarrow_absent_names_the_extra(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        (bad,) = find_recordings([str(tmp_path / "calls.parquet")])
        with pytest.raises(EngineUnavailableError, match=r"pip install 'auricle\[tables\]'"):
            load_audio(bad.source)


class TestHuggingFace:
    @pytest.fixture
    def datasets(self):
        return pytest.importorskip("datasets", reason="datasets is not installed")

    def test_a_dataset_is_read_without_decoding(self, datasets):
        data = datasets.Dataset(embedded()).cast_column("audio", datasets.Audio())
        recordings = list(recordings_from_table(data))
        assert [recording.source for recording in recordings] == [SOUND] * 3

    def test_so_is_one_that_streams(self, datasets, tmp_path):
        pq.write_table(embedded(), tmp_path / "calls.parquet")
        data = datasets.load_dataset(
            "parquet",
            data_files=str(tmp_path / "calls.parquet"),
            streaming=True,
            split="train",
            cache_dir=str(tmp_path / "cache"),
        )
        recordings = list(recordings_from_table(data.cast_column("audio", datasets.Audio())))
        assert [recording.source for recording in recordings] == [SOUND] * 3


TRANSCRIPT = Transcript(
    segments=(
        Segment(0.5, 1.25, "Guten Tag.", (Word(0.5, 0.8, "Guten", 0.9), Word(0.8, 1.25, "Tag.", 0.8)), 0.85),
        Segment(2.0, 3.0, "Thanks for watching", suspect="no speech here"),
    ),
    gaps=(Gap(4.0, 5.0, "engine returned no text"),),
    duration=6.0,
    language="de",
    source="talk.wav",
    engine="fake",
    backend="soundfile",
    warnings=("damaged",),
)
DONE = RecordingResult(
    Recording("talk", "talk.wav", extra={"speaker": "Ada", "age": 36}),
    0,
    transcript=lambda: TRANSCRIPT,
    fingerprint="f",
)
FAILED = RecordingResult(
    Recording("bad", "https://me:word@host/caf\udce9.wav?sign=1", language="fr"),
    1,
    failure=Failure("UnreadableAudioError", "caf\udce9.wav: it is text"),
)


class TestResults:
    @staticmethod
    def rows(path):
        if path.suffix == ".parquet":
            return [{**row, "extra": json.loads(row["extra"])} for row in pq.read_table(path).to_pylist()]
        return [json.loads(line) for line in path.read_text().splitlines()]

    @pytest.mark.parametrize("ending", ["jsonl", "parquet"])
    def test_each_is_a_row(self, tmp_path, ending):
        path = tmp_path / "deep" / f"results.{ending}"
        with ResultsTable(path) as results:
            results.add(DONE)
            results.add(FAILED)
        done, failed = self.rows(path)
        assert done == {
            "id": "talk",
            "source": "talk.wav",
            "state": "done",
            "language": "de",
            "duration": 6.0,
            "text": "Guten Tag.",
            "segments": [
                {
                    "start": 0.5,
                    "end": 1.25,
                    "text": "Guten Tag.",
                    "confidence": 0.85,
                    "suspect": None,
                    "language": None,
                    "channel": None,
                    "words": [
                        {"start": 0.5, "end": 0.8, "text": "Guten", "probability": 0.9},
                        {"start": 0.8, "end": 1.25, "text": "Tag.", "probability": 0.8},
                    ],
                },
                {
                    "start": 2.0,
                    "end": 3.0,
                    "text": "Thanks for watching",
                    "confidence": None,
                    "suspect": "no speech here",
                    "language": None,
                    "channel": None,
                    "words": [],
                },
            ],
            "gaps": [{"start": 4.0, "end": 5.0, "reason": "engine returned no text"}],
            "warnings": ["damaged"],
            "error": None,
            "error_kind": None,
            "engine": "fake",
            "fingerprint": "f",
            "extra": {"speaker": "Ada", "age": 36},
        }
        assert (failed["state"], failed["error_kind"]) == ("failed", "UnreadableAudioError")
        assert failed["source"] == "https://host/caf\\udce9.wav"
        assert (failed["text"], failed["segments"], failed["extra"]) == (None, [], {})

    @pytest.mark.parametrize("ending", ["jsonl", "parquet"])
    def test_none_is_a_table_as_well(self, tmp_path, ending):
        with ResultsTable(tmp_path / f"results.{ending}"):
            pass
        assert self.rows(tmp_path / f"results.{ending}") == []

    @pytest.mark.parametrize("ending", ["jsonl", "parquet"])
    def test_it_is_there_as_a_whole_or_not(self, tmp_path, ending):
        path = tmp_path / f"results.{ending}"
        path.write_text("before")

        def interrupted():
            with ResultsTable(path) as results:
                results.add(DONE)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert path.read_text() == "before"
        assert list(tmp_path.iterdir()) == [path]

    def test_parquet_holds_one_group_of_rows_at_a_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr("engine_bridge.batch.result_tables._GROUP_ROWS", 2)
        with ResultsTable(tmp_path / "results.parquet") as results:
            for _ in range(5):
                results.add(DONE)
        assert pq.ParquetFile(tmp_path / "results.parquet").num_row_groups == 3

    def test_a_folder_that_cannot_be_made_is_told(self):
        with (
            pytest.raises(OutputError, match="the table of results cannot be written"),
            ResultsTable("/dev/full/x.jsonl"),
        ):
            pass

    def test_an_ending_that_says_nothing(self, tmp_path):
        with pytest.raises(OutputError, match=r"use \.jsonl or \.parquet"):
            ResultsTable(tmp_path / "results.xlsx")

    def test_pyarrow_absent_is_told_before_the_work(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(EngineUnavailableError, match=r"results\.parquet: Parquet needs pyarrow"):
            ResultsTable(tmp_path / "results.parquet")
