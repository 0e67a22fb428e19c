"""Lists of recordings as JSON Lines and CSV, in and out."""

import json

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import load_audio
from engine_bridge.batch.inputs import find_recordings
from engine_bridge.batch.manifests import read_manifest, write_manifest
from engine_bridge.batch.recording import Recording
from engine_bridge.errors import ManifestError, OutputError


@pytest.fixture
def manifest(tmp_path):
    """Write a manifest and return its recordings."""

    def read(text, name="list.jsonl"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return list(read_manifest(path))

    return read


def lines(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def reason(recording):
    with pytest.raises(ManifestError) as caught:
        load_audio(recording.source)
    return str(caught.value)


class TestEntries:
    def test_every_column_has_its_place(self, manifest, tmp_path):
        (recording,) = manifest(
            lines(
                {
                    "id": "call 7",
                    "path": "calls/7.wav",
                    "language": "de",
                    "channels": "left",
                    "track": 1,
                    "from": "1:02:03.5",
                    "to": 4000,
                    "priority": 2,
                    "speaker": {"name": "Ada"},
                }
            )
        )
        assert recording == Recording(
            "call 7",
            str(tmp_path / "calls" / "7.wav"),
            language="de",
            channels="left",
            track=1,
            from_seconds=3723.5,
            to_seconds=4000.0,
            priority=2,
            extra={"speaker": {"name": "Ada"}},
        )

    def test_csv_says_the_same(self, manifest, tmp_path):
        text = 'ID,Path,channel,track,from,to,priority,speaker\ncall 7,calls/7.wav,1,de,0:30,,-1,"Ada, Countess"\n'
        assert manifest(text, "list.csv") == [
            Recording(
                "call 7",
                str(tmp_path / "calls" / "7.wav"),
                channels=1,
                track="de",
                from_seconds=30.0,
                priority=-1,
                extra={"speaker": "Ada, Countess"},
            )
        ]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("list.tsv", "path\tnote\na.wav\tx;y,z\n"),
            ("list.csv", "path;note\na.wav;x,y\n"),
            ("list.csv", '\ufeffpath,note\r\na.wav,"x\r\ny"\r\n'),
            ("list.ndjson", '\ufeff\n{"url": "a.wav", "note": 1}\r\n\n'),
        ],
    )
    def test_the_ways_that_programs_write_them(self, manifest, tmp_path, name, text):
        (recording,) = manifest(text, name)
        assert recording.source == str(tmp_path / "a.wav")
        assert set(recording.extra) == {"note"}

    def test_paths_and_addresses(self, manifest, tmp_path):
        given = ["/far/a.wav", "../b.wav", "s3://bucket/x/c.wav", "https://host/d.wav?sign=1"]
        recordings = manifest(lines(*({"audio": path} for path in given)))
        assert [recording.source for recording in recordings] == [given[0], f"{tmp_path}/../b.wav", *given[2:]]
        assert [recording.id for recording in recordings] == ["far/a.wav", "b.wav", "bucket/x/c.wav", "host/d.wav"]

    def test_parts_of_one_file_have_names_of_their_own(self, manifest):
        entries = [
            {"path": "a.wav", "from": 0, "to": 10},
            {"path": "a.wav", "from": 10, "to": 20.5},
            {"path": "a.wav", "from": 20.5},
            {"path": "a.wav", "channels": 0},
            {"path": "a.wav", "channels": 0},
            {"path": "a.wav", "track": "de"},
        ]
        assert [recording.id for recording in manifest(lines(*entries))] == [
            "a@0-10.wav",
            "a@10-20.5.wav",
            "a@20.5-.wav",
            "a@0.wav",
            "a@0~2.wav",
            "a@trackde.wav",
        ]

    def test_a_name_that_is_not_utf_8_is_the_files(self, manifest, tmp_path):
        (recording,) = manifest(b"path\ncaf\xe9.wav\n", "list.csv")
        assert recording.source == f"{tmp_path}/caf\udce9.wav"
        assert recording.id == "caf\\udce9.wav"


BAD = {
    "no audio": ({"id": "x"}, "the entry names no audio"),
    "a path of no kind": ({"path": 7}, "the path is 7"),
    "two paths": ({"path": "a.wav", "url": "b.wav"}, "'url' says again what another column says"),
    "an id that leads elsewhere": ({"id": "../../x", "path": "a.wav"}, "has a part that is empty, . or .."),
    "an id with a line break": ({"id": "a\nb", "path": "a.wav"}, "holds control characters"),
    "an id that is absolute": ({"id": "/etc/x", "path": "a.wav"}, "has a part that is empty"),
    "a time": ({"path": "a.wav", "from": "soon"}, "from is 'soon'; give a time such as 90"),
    "a time before the beginning": ({"path": "a.wav", "from": -1}, "from is -1"),
    "a range of nothing": ({"path": "a.wav", "from": 5, "to": 5}, "to is 5 s, not after from, 5 s"),
    "channels": ({"path": "a.wav", "channels": "loudest"}, "channels is 'loudest'"),
    "a channel below 0": ({"path": "a.wav", "channels": -1}, "channels is -1"),
    "a track": ({"path": "a.wav", "track": 1.5}, "track is 1.5"),
    "a priority": ({"path": "a.wav", "priority": "urgent"}, "priority is 'urgent'"),
    "a language": ({"path": "a.wav", "language": 3}, "language is 3"),
}


class TestBadLines:
    @pytest.mark.parametrize("case", BAD)
    def test_one_fails_with_file_line_and_reason_and_the_others_stand(self, manifest, tmp_path, case):
        entry, told = BAD[case]
        good, bad, last = manifest(lines({"path": "first.wav"}, entry, {"path": "last.wav"}))
        assert (good.id, bad.id, last.id) == ("first.wav", "list.jsonl:2", "last.wav")
        assert reason(bad).startswith(f"{tmp_path}/list.jsonl:2: ")
        assert told in reason(bad)

    @pytest.mark.parametrize(
        ("line", "told"), [("{oops", "not JSON"), ("[1]", "no JSON object"), ('{"a": ' * 100_000, "not JSON")]
    )
    def test_what_is_no_json_object(self, manifest, line, told):
        bad, good = manifest(f'{line}\n{{"path": "a.wav"}}\n')
        assert told in reason(bad)
        assert good.id == "a.wav"

    def test_a_line_without_end_is_not_held(self, manifest, monkeypatch):
        monkeypatch.setattr("engine_bridge.batch.manifests._LONGEST_LINE", 100)
        bad, good = manifest(" " * 1050 + "\n" + lines({"path": "a.wav"}))
        assert "list.jsonl:1: the line is longer than any entry" in reason(bad)
        assert good.id == "a.wav"

    def test_an_id_twice_is_refused_the_second_time(self, manifest):
        first, second = manifest(lines({"id": "x", "path": "a.wav"}, {"id": "x", "path": "b.wav"}))
        assert first.source.endswith("a.wav")
        assert "the id 'x' is that of an earlier recording" in reason(second)

    def test_too_many_fields(self, manifest):
        bad, good = manifest("path,note\na,b.wav,x\nc.wav,y\n", "list.csv")
        assert "list.csv:2: there are 3 fields, and the header names 2; quote those with ',' in them" in reason(bad)
        assert good.id == "c.wav"

    def test_the_line_is_counted_in_the_file_also_behind_line_breaks_in_quotes(self, manifest):
        _, bad = manifest('path,from\n"a.wav","\n1"\nb.wav,soon\n', "list.csv")
        assert "list.csv:4: from is 'soon'" in reason(bad)

    def test_a_field_beyond_all_measure(self, manifest):
        bad, good = manifest(f"path\n{'x' * 200_000}\na.wav\n", "list.csv")
        assert "list.csv:2: the line is not CSV" in reason(bad)
        assert good.id == "a.wav"

    def test_a_header_without_audio(self, manifest):
        (bad,) = manifest("name,language\nx,de\n", "list.csv")
        assert "list.csv:1: no column is called path, url or audio" in reason(bad)

    def test_a_manifest_that_is_not_there_fails_as_one_recording(self, tmp_path):
        (bad,) = find_recordings([str(tmp_path / "list.jsonl")])
        assert "list.jsonl: the manifest cannot be read (no such file or directory)" in reason(bad)


class TestAsInputs:
    def test_ids_are_unique_across_all_inputs(self, tmp_path):
        (tmp_path / "one.jsonl").write_text(lines({"path": "a.wav"}))
        (tmp_path / "two.jsonl").write_text(lines({"id": "a.wav", "path": "b.wav"}, {"path": "a.wav"}))
        recordings = list(find_recordings([str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl")]))
        assert [recording.id for recording in recordings] == ["a.wav", "two.jsonl:1", "a~2.wav"]

    def test_a_higher_priority_comes_earlier(self, tmp_path):
        (tmp_path / "list.jsonl").write_text(lines({"path": "a.wav"}, {"path": "b.wav", "priority": 1}))
        ids = [recording.id for recording in find_recordings([str(tmp_path / "list.jsonl")])]
        assert ids == ["b.wav", "a.wav"]
        ids = [recording.id for recording in find_recordings([str(tmp_path / "list.jsonl")], look_ahead=1)]
        assert ids == ["a.wav", "b.wav"]

    def test_one_at_an_address_leads_to_its_neighbours(self):
        system = fsspec.filesystem("memory")
        system.pipe_file("/bucket/lists/list.jsonl", lines({"path": "b/a.wav"}, {"path": "../c.wav"}).encode())
        recordings = list(find_recordings(["memory://bucket/lists/list.jsonl"]))
        assert [recording.source for recording in recordings] == [
            "memory://bucket/lists/b/a.wav",
            "memory://bucket/c.wav",
        ]


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)
RECORDINGS = st.builds(
    Recording,
    id=st.uuids().map(str),
    source=st.sampled_from(["/far/away/a.wav", "s3://bucket/b.wav", "https://host/c.wav?x=1"]),
    language=st.sampled_from([None, "de", "en"]),
    channels=st.sampled_from([None, 0, 3, "left", "each"]),
    track=st.sampled_from([None, 0, "de"]),
    from_seconds=st.none() | st.floats(0, 1e5),
    to_seconds=st.none() | st.floats(2e5, 1e6),
    priority=st.integers(-5, 5),
    extra=st.dictionaries(st.just("note") | st.just("Straße"), st.integers() | TEXTS | st.lists(st.integers())),
)


class TestWriting:
    @pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv"])
    @given(recordings=st.lists(RECORDINGS, max_size=4, unique_by=lambda recording: recording.id))
    def test_what_is_written_is_read_back(self, tmp_path_factory, ending, recordings):
        path = tmp_path_factory.mktemp("manifests") / f"list.{ending}"
        write_manifest(recordings, path)
        assert list(read_manifest(path)) == recordings

    def test_paths_below_the_manifest_are_relative_to_it(self, tmp_path):
        write_manifest([Recording("x", tmp_path / "in" / "a.wav")], tmp_path / "list.jsonl")
        assert json.loads((tmp_path / "list.jsonl").read_text()) == {"id": "x", "path": "in/a.wav"}

    def test_it_is_there_as_a_whole_or_not(self, tmp_path):
        def entries():
            yield Recording("x", "a.wav")
            yield Recording("y", b"sound")

        with pytest.raises(ManifestError, match="y: its audio lies in no file"):
            write_manifest(entries(), tmp_path / "list.jsonl")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(OutputError, match="the manifest cannot be written"):
            write_manifest([], tmp_path / "file" / "list.csv")

    def test_an_ending_that_says_nothing(self, tmp_path):
        with pytest.raises(ManifestError, match=r"use \.jsonl, \.csv or \.tsv"):
            write_manifest([], tmp_path / "list.txt")
