"""Many recordings as shards of chunks: what is in them, and what remains when a run is ended."""

import gc
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from click.testing import CliRunner

import cli
from audio import SplitError, load_audio
from engine_bridge import OutputError
from engine_bridge.batch.chunking import SplitSettings
from engine_bridge.batch.inputs import find_recordings
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.shards import split_recordings
from engine_bridge.batch.tables import recordings_from_table
from engine_bridge.commands.arguments import SHARDS
from tests.recordings import RATE, ROOT, bursts, wav_bytes, write_wav

SETTINGS = SplitSettings(max_duration=3.0)


@pytest.fixture
def talks(tmp_path, monkeypatch):
    """Eight recordings of 4 to 11 seconds, to stand beside."""
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        folder = tmp_path / "talks" / ("a.b" if number % 2 else "c")
        folder.mkdir(parents=True, exist_ok=True)
        write_wav(folder / f"{number}.wav", bursts(4 + number, seed=number))
    return tmp_path / "talks"


def split(output="out", kind="webdataset", inputs=("talks",), **options):
    return split_recordings(find_recordings(inputs), output, kind, **{"settings": SETTINGS, "workers": 3, **options})


def contents(folder):
    """Every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name != "report.jsonl"
    }


def interrupting(stop):
    """What ends a run at a recording, counted from 1."""
    results = []

    def interrupt(result):
        results.append(result)
        if len(results) == stop:
            raise KeyboardInterrupt

    return interrupt


def report(folder="out"):
    return [json.loads(line) for line in (Path(folder) / "report.jsonl").read_text().splitlines()]


def samples_of(folder, kind):
    """Every chunk's description and samples, in order."""
    folder = Path(folder)
    if kind == "webdataset":
        for path in sorted(folder.glob("*.tar")):
            with tarfile.open(path) as tar:
                members = tar.getmembers()
                for sound, text in zip(members[::2], members[1::2], strict=True):
                    entry = json.loads(tar.extractfile(text).read())
                    assert (sound.name, text.name) == (f"{entry['key']}.flac", f"{entry['key']}.json")
                    yield entry, tar.extractfile(sound).read()
    elif kind == "parquet":
        for path in sorted(folder.glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                yield {**row, "extra": json.loads(row["extra"])}, row["audio"]["bytes"]
    else:
        for path in sorted(folder.glob("shard-*/cuts.jsonl.gz")):
            for line in gzip.decompress(path.read_bytes()).decode().splitlines():
                cut = json.loads(line)
                recording = cut["recording"]
                entry = {
                    "key": cut["id"],
                    "frames": recording["num_samples"],
                    "sample_rate": recording["sampling_rate"],
                }
                assert cut["duration"] == recording["duration"] == entry["frames"] / entry["sample_rate"]
                yield (
                    {**cut["supervisions"][0]["custom"], **entry},
                    Path(recording["sources"][0]["source"]).read_bytes(),
                )


@pytest.mark.parametrize("kind", SHARDS)
class TestContents:
    def test_the_chunks_of_each_recording_tile_it_and_hold_its_samples(self, talks, kind):
        summary = split(kind=kind)
        found = {}
        for entry, content in samples_of("out", kind):
            assert hashlib.sha256(content).hexdigest() == entry["sha256"]
            samples, rate = soundfile.read(io.BytesIO(content), dtype="int16")
            assert (rate, len(samples)) == (RATE, entry["frames"])
            assert [[entry["start"], entry["stop"]]] == entry["kept"]
            assert entry["key"] == f"{entry['recording'].replace('.', '_')}-{entry['index']:05d}"
            assert entry["source"] == f"talks/{entry['recording']}"
            found.setdefault(entry["recording"], []).append((entry["start"], entry["stop"], samples))
        assert list(found) == [recording.id for recording in find_recordings(["talks"])]
        for name, chunks in found.items():
            assert [start for start, *_ in chunks] == [0, *(stop for _, stop, _ in chunks[:-1])]
            expected = soundfile.read(talks / name, dtype="int16")[0]
            np.testing.assert_array_equal(np.concatenate([samples for *_, samples in chunks]), expected)
        assert (summary.done, summary.failed, summary.known) == (8, 0, 0)
        assert summary.chunks == sum(len(chunks) for chunks in found.values())
        assert summary.seconds == pytest.approx(sum(range(4, 12)))

    def test_they_do_not_depend_on_the_workers(self, talks, kind):
        split(kind=kind, workers=1, shard_size=5)
        one = contents("out")
        Path("out").rename("before")
        split(kind=kind, workers=4, shard_size=5)
        assert contents("out") == one

    def test_ended_at_any_recording_and_begun_again_it_gives_the_same(self, talks, kind):
        split(kind=kind, shard_size=5)
        whole = contents("out")
        Path("out").rename("before")
        for stops in ((1,), (4,), (8,), (3, 5, 7)):
            for stop in stops:
                with pytest.raises(KeyboardInterrupt):
                    split(kind=kind, shard_size=5, on_result=interrupting(stop))
                assert not list(Path("out").glob(".auricle-*"))
            summary = split(kind=kind, shard_size=5)
            assert contents("out") == whole
            assert summary.done + summary.known == 8
            shutil.rmtree("out")

    def test_what_the_manifest_said_is_carried_on(self, talks, kind):
        recordings = [Recording("x", wav_bytes(bursts(2)), language="de", extra={"speaker": "Ada"})]
        split_recordings(recordings, "out", kind)
        ((entry, _),) = samples_of("out", kind)
        assert (entry["recording"], entry["language"], entry["extra"]) == ("x", "de", {"speaker": "Ada"})


class TestShards:
    def test_one_ends_with_the_recording_that_fills_it(self, talks):
        split(shard_size=5)
        shards = [json.loads(path.read_text()) for path in sorted(Path("out").glob("shard-*.json"))]
        assert len(shards) > 2
        for shard in shards[:-1]:
            assert shard["chunks"] >= 5 > shard["chunks"] - shard["recordings"][-1]["chunks"]
        for shard in shards:
            path = Path("out") / shard["shard"]
            assert hashlib.sha256(path.read_bytes()).hexdigest() == shard["sha256"]
            assert shard["chunks"] == sum(each["chunks"] for each in shard["recordings"])
        names = [each["recording"] for shard in shards for each in shard["recordings"]]
        assert names == [recording.id for recording in find_recordings(["talks"])]

    def test_new_recordings_go_into_new_shards(self, talks):
        split(shard_size=5)
        before = contents("out")
        write_wav(talks / "0.wav", bursts(3))
        summary = split(shard_size=5)
        assert (summary.done, summary.known, summary.shards) == (1, 8, 1)
        assert before.items() < contents("out").items()

    def test_a_shard_that_is_removed_is_made_again(self, talks):
        split(shard_size=5)
        before = contents("out")
        Path("out/shard-000001.tar").unlink()
        assert split(shard_size=5).shards == 1
        assert contents("out") == before

    def test_two_ids_that_would_have_one_key_have_two(self, talks):
        recordings = [Recording(name, wav_bytes(bursts(2))) for name in ("a.b", "a_b")]
        split_recordings(recordings, "out", "webdataset")
        assert [entry["key"] for entry, _ in samples_of("out", "webdataset")] == ["a_b-00000", "a_b~2-00000"]

    def test_parquet_is_what_datasets_takes_for_audio_and_an_input_again(self, talks):
        split(kind="parquet")
        table = pq.read_table("out/shard-000000.parquet")
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert features == {"audio": {"_type": "Audio"}}
        first = next(recordings_from_table(table))
        assert len(load_audio(first.source)[0]) == table["frames"][0].as_py()

    def test_silence_that_is_left_out_has_no_chunk(self, talks):
        long = np.concatenate([bursts(4), np.zeros(40 * RATE, np.float32), bursts(4)])
        settings = SplitSettings(max_duration=3.0, keep_silence=0.2)
        split_recordings([Recording("x", (long, RATE))], "out", "webdataset", settings=settings)
        entries = [entry for entry, _ in samples_of("out", "webdataset")]
        assert all(entry["frames"] for entry in entries)
        assert sum(entry["frames"] for entry in entries) < 10 * RATE
        assert entries[-1]["stop"] == len(long)

    def test_a_recordings_own_part_is_cut(self, talks):
        stereo = np.stack([np.zeros(4 * RATE, np.float32), bursts(4)], axis=1)
        recordings = [
            Recording("left", (stereo, RATE), channels="left"),
            Recording("right", (stereo, RATE), channels=1, from_seconds=1.0, to_seconds=3.0),
        ]
        split_recordings(recordings, "out", "webdataset")
        (left, quiet), (right, loud) = samples_of("out", "webdataset")
        assert not soundfile.read(io.BytesIO(quiet))[0].any()
        assert soundfile.read(io.BytesIO(loud))[0].any()
        assert (left["start_seconds"], right["start_seconds"], right["stop_seconds"]) == (0.0, 1.0, 3.0)


class TestFaults:
    def test_a_bad_recording_does_not_lose_the_others(self, talks):
        split()
        good = {entry["sha256"] for entry, _ in samples_of("out", "webdataset")}
        Path("out").rename("before")
        (talks / "c" / "1.mp3").write_text("Dear diary, this is not a recording. " * 40)
        (talks / "c" / "3.wav").touch()
        results = []
        summary = split(inputs=("talks", "talks/c/9.wav"), on_result=results.append)
        assert (summary.done, summary.failed) == (8, 3)
        failed = {result.recording.id: result.error for result in results if result.state == "failed"}
        assert sorted(failed) == ["c/1.mp3", "c/3.wav", "c/9.wav"]
        assert failed["c/9.wav"] == "talks/c/9.wav: there is no such file; check the path"
        assert [entry["error"] for entry in report() if entry["state"] == "failed"] == list(failed.values())
        assert {entry["sha256"] for entry, _ in samples_of("out", "webdataset")} == good

    def test_one_that_failed_is_tried_again(self, talks):
        (talks / "c" / "9.wav").touch()
        assert split().failed == 1
        write_wav(talks / "c" / "9.wav", bursts(3))
        summary = split()
        assert (summary.done, summary.known, summary.failed) == (1, 8, 0)

    def test_one_that_breaks_off_leaves_none_of_its_chunks(self, talks, monkeypatch):
        def breaking(chunk, real=split_recordings.__globals__["cut"].__globals__["flac_of"]):
            if chunk.index == 2:
                raise OutputError("no more") if whole else SplitError("the samples ran out")
            return real(chunk)

        whole = False
        monkeypatch.setattr("engine_bridge.batch.chunking.flac_of", breaking)
        summary = split()
        assert 0 < summary.failed < 8
        failed = {entry["id"] for entry in report() if entry["state"] == "failed"}
        assert failed.isdisjoint(entry["recording"] for entry, _ in samples_of("out", "webdataset"))

        whole = True
        with pytest.raises(OutputError, match="no more"):
            split("other")
        assert not list(Path("other").glob("shard-*"))

    def test_channels_apart_are_refused_for_that_recording(self, talks):
        results = []
        recordings = [Recording("x", wav_bytes(bursts(2)), channels="each"), Recording("y", wav_bytes(bursts(2)))]
        assert split_recordings(recordings, "out", "webdataset", on_result=results.append).done == 1
        assert results[0].error == "x: its channels cannot be cut apart in one go; list it once for each channel"

    def test_one_that_has_changed_since_is_told(self, talks):
        split()
        write_wav(talks / "c" / "0.wav", bursts(9))
        results = []
        assert split(on_result=results.append).failed == 1
        (told,) = [result.error for result in results if result.error]
        assert (
            told == "c/0.wav: it has changed since shard-000000.tar was made of it; remove that, and it is made again"
        )

    def test_shards_made_otherwise_are_not_mixed(self, talks):
        split()
        with pytest.raises(
            OutputError, match=r"out: it holds shards .* \(with max_duration 3\.0 and not 4\.0\); choose"
        ):
            split(settings=SplitSettings(max_duration=4.0))
        with pytest.raises(OutputError, match=r"\(as webdataset and not as parquet\)"):
            split(kind="parquet")

    def test_a_description_that_is_damaged_is_told(self, talks):
        split()
        Path("out/shard-000000.json").write_text("{")
        with pytest.raises(OutputError, match=r"shard-000000\.json: this description .* cannot be read"):
            split()

    def test_two_runs_do_not_write_to_one_folder(self, talks):
        def again(result):
            with pytest.raises(OutputError, match="out: another run is writing shards there"):
                split()

        assert split(on_result=again).done == 8

    def test_lengths_that_contradict_each_other_are_refused_at_once(self, talks):
        with pytest.raises(SplitError, match="max_duration"):
            split(settings=SplitSettings(max_duration=0.0))
        assert not Path("out").exists()

    def test_a_folder_that_cannot_be_made(self, talks):
        with pytest.raises(OutputError, match="the shard cannot be written"):
            split("talks/c/0.wav/out")

    def test_a_disk_that_is_full_ends_the_job_and_leaves_whole_shards(self, talks, monkeypatch):
        written = []

        def write(tar, name, content, real=tarfile.TarFile.addfile):
            written.append(name)
            if len(written) > 20:
                raise OSError(28, os.strerror(28))
            return real(tar, name, content)

        monkeypatch.setattr(tarfile.TarFile, "addfile", write)
        with pytest.raises(
            OutputError, match=r"the shard cannot be written \(no space left on device\); free some space"
        ):
            split(shard_size=5)
        assert not list(Path("out").glob(".auricle-*"))
        left = contents("out")
        monkeypatch.undo()
        os.chdir(talks.parent)
        split(shard_size=5)
        assert left.items() < contents("out").items()


class TestManyRecordings:
    def test_what_is_cut_ahead_is_bounded(self, talks):
        taken = []

        def recordings():
            for number in range(40):
                taken.append(number)
                yield Recording(str(number), wav_bytes(bursts(1)))

        ahead = []
        split_recordings(
            recordings(), "out", "webdataset", workers=2, on_result=lambda result: ahead.append(len(taken) - len(ahead))
        )
        assert max(ahead) <= 4

    def test_memory_does_not_grow_with_their_number(self, talks):
        def peak(count):
            recordings = (Recording(str(number), (bursts(1), RATE)) for number in range(count))
            tracemalloc.start()
            # What waits for the garbage collector is of no interest here; it comes and goes.
            collect = lambda result: gc.collect()  # noqa: E731
            split_recordings(recordings, f"out{count}", "webdataset", workers=2, shard_size=10, on_result=collect)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most

        gc.freeze()
        try:
            peak(10)
            assert peak(80) < 1.2 * peak(20)
        finally:
            gc.unfreeze()


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


class TestCommand:
    def test_it_tells_what_it_made(self, talks):
        (talks / "c" / "1.mp3").write_text("Dear diary, this is not a recording. " * 40)
        result = run("split", "talks", "-o", "out", "--shards", "webdataset", "--max-duration", 3, "--shard-size", 5)
        assert result.exit_code == 1
        *told, last = result.stderr.splitlines()
        assert told == ["auricle: talks/c/1.mp3: it is text, not audio; give the recording itself"]
        assert last.startswith("auricle: 8 recordings cut, 1 failed (see out/report.jsonl): ")

    def test_outputs_in_the_input_are_not_inputs(self, talks):
        for _ in range(2):
            assert run("split", "talks", "-o", "talks/out", "--shards", "lhotse").exit_code == 0
        assert {entry["state"] for entry in report("talks/out")} == {"known"}

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("a.wav", "b.wav"), "several recordings go into shards: add --shards"),
            (("a.wav", "--workers", "2"), "--shard-size and --workers are for shards"),
            (("a.wav", "--shards", "zip"), "'zip' is not one of 'webdataset', 'parquet', 'lhotse'"),
            (("a.wav", "--shards", "lhotse", "--max-duration", "0"), "max_duration must be"),
            (("a.wav", "--shards", "lhotse", "--shard-size", "0"), "0 is not in the range"),
        ],
    )
    def test_wrong_usage(self, talks, arguments, told):
        result = run("split", *arguments, "-o", "out")
        assert result.exit_code == 2
        assert told in result.stderr

    def test_killed_and_begun_again_it_gives_the_same(self, talks):
        command = [sys.executable, "-m", "cli", "split", "talks", "--shards", "webdataset", "--workers", "2"]
        command += ["--max-duration", "3", "--shard-size", "5", "-o"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([*command, "whole"], env=environment, check=True, timeout=120)
        expected = contents("whole")
        process = subprocess.Popen([*command, "out"], env=environment)
        limit = time.monotonic() + 60
        while not list(Path("out").glob("shard-*.json")) and time.monotonic() < limit:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        subprocess.run([*command, "out"], env=environment, check=True, timeout=120)
        assert contents("out") == expected
