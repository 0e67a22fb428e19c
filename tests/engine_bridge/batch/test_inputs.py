"""Which recordings a job's inputs stand for."""

import errno
import glob
import io
import itertools
import os
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audio import AudioFileNotFoundError, load_audio
from engine_bridge.batch.folders import Pattern
from engine_bridge.batch.inputs import find_recordings, prioritised
from engine_bridge.batch.names import Names
from engine_bridge.batch.recording import Recording
from engine_bridge.errors import InputError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder of talks, to stand in, with what people leave in such folders."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "talks/b.wav",
        "talks/a.MP3",
        "talks/monday/film.mkv",
        "talks/monday/notes.txt",
        "talks/monday/deep/c.flac",
        "talks/._b.wav",
        "talks/.trash/old.wav",
        "talks/.auricle/journal.wav",
        "more/b.wav",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"sound")
    return tmp_path


@pytest.fixture(scope="module")
def forest(tmp_path_factory):
    """Folders three deep of every mixture of names, to stand in."""
    root = tmp_path_factory.mktemp("forest")
    for depth in range(4):
        for folders in itertools.product(("a", "b", "bb", ".h"), repeat=depth):
            folder = root.joinpath(*folders)
            folder.mkdir(exist_ok=True)
            for name in ("x.wav", ".y.wav", "z.txt"):
                (folder / name).touch()
    before = Path.cwd()
    os.chdir(root)
    yield root
    os.chdir(before)


@pytest.fixture
def bucket():
    system = fsspec.filesystem("memory")
    for name in ("/talks/a.wav", "/talks/b/c.mp3", "/talks/b/notes.txt"):
        system.pipe_file(name, b"sound")
    yield "memory://"
    system.rm("/talks", recursive=True)


def found(*inputs, **options):
    return [(recording.id, recording.source) for recording in find_recordings(inputs, **options)]


def failure(*inputs):
    """The error of the one recording that the inputs give."""
    (recording,) = find_recordings(inputs)
    with pytest.raises(InputError) as caught:
        load_audio(recording.source)
    return recording.id, str(caught.value)


class TestFiles:
    def test_a_file_is_itself_whatever_its_name(self, tree):
        assert found("talks/monday/notes.txt") == [("notes.txt", "talks/monday/notes.txt")]

    def test_files_of_several_folders_are_named_below_the_one_that_holds_them(self, tree):
        assert found("talks/b.wav", "more/b.wav") == [("talks/b.wav", "talks/b.wav"), ("more/b.wav", "more/b.wav")]

    def test_one_given_twice_comes_once(self, tree):
        assert found("more/b.wav", "./more/b.wav", f"{tree}/more/b.wav") == [("b.wav", "more/b.wav")]

    def test_one_that_is_missing_fails_in_its_turn(self, tree):
        (recording,) = find_recordings(["no.wav"])
        with pytest.raises(AudioFileNotFoundError, match=r"^no\.wav: there is no such file"):
            load_audio(recording.source)

    def test_a_name_with_wildcards_is_a_name_first(self, tree):
        (tree / "talk[1].wav").touch()
        assert found("talk[1].wav") == [("talk[1].wav", "talk[1].wav")]

    def test_a_file_address_is_a_path(self, tree):
        (tree / "a b.wav").touch()
        assert found(f"file://{tree}/a%20b.wav") == [("a b.wav", f"{tree}/a b.wav")]

    def test_a_name_that_is_not_utf_8_has_an_id_that_is(self, tree):
        raw = os.fsdecode(b"caf\xe9.wav")
        (tree / raw).touch()
        assert found(raw) == [("caf\\udce9.wav", raw)]

    def test_a_dash_is_standard_input(self, monkeypatch):
        given = io.TextIOWrapper(io.BytesIO(b"sound"))
        monkeypatch.setattr(sys, "stdin", given)
        assert found("-") == [("stdin", given.buffer)]


class TestFolders:
    def test_recordings_at_any_depth_in_order_by_their_endings(self, tree):
        assert found("talks") == [
            ("a.MP3", "talks/a.MP3"),
            ("b.wav", "talks/b.wav"),
            ("monday/deep/c.flac", "talks/monday/deep/c.flac"),
            ("monday/film.mkv", "talks/monday/film.mkv"),
        ]

    def test_several_are_named_below_the_one_that_holds_them(self, tree):
        assert [name for name, _ in found("talks/monday", "more")] == [
            "talks/monday/deep/c.flac",
            "talks/monday/film.mkv",
            "more/b.wav",
        ]

    def test_where_inputs_overlap_each_file_comes_once(self, tree):
        names = [name for name, _ in found("talks/b.wav", "talks", "talks/monday", "talks/**/*.mkv")]
        assert names == ["b.wav", "a.MP3", "monday/deep/c.flac", "monday/film.mkv"]

    def test_links_are_followed_but_not_in_circles(self, tree):
        (tree / "talks" / "again").symlink_to(tree / "talks")
        (tree / "talks" / "monday" / "up").symlink_to("..")
        (tree / "talks" / "other").symlink_to(tree / "more")
        assert "other/b.wav" in [name for name, _ in found("talks")]
        assert len(found("talks")) == 5

    def test_a_link_to_nowhere_is_a_recording_that_fails(self, tree):
        (tree / "more" / "gone.wav").symlink_to("nowhere")
        *_, gone = find_recordings(["more"])
        with pytest.raises(AudioFileNotFoundError):
            load_audio(gone.source)

    def test_what_would_never_end_is_passed_over(self, tree):
        os.mkfifo(tree / "more" / "pipe.wav")
        assert found("more") == [("b.wav", "more/b.wav")]

    def test_the_outputs_folder_is_not_looked_into(self, tree):
        assert [name for name, _ in found("talks", skipped=[tree / "talks" / "monday"])] == ["a.MP3", "b.wav"]

    def test_one_without_recordings_is_told(self, tree):
        (tree / "empty").mkdir()
        assert failure("empty") == (
            "empty",
            "empty: there is no recording in this folder; name another, or the recordings themselves",
        )

    def test_one_that_may_not_be_read_does_not_lose_the_others(self, tree, monkeypatch):
        def scan(path, real=os.scandir):
            if path.endswith("monday"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return real(path)

        monkeypatch.setattr(os, "scandir", scan)
        *good, bad = find_recordings(["talks"])
        assert ([recording.id for recording in good], bad.id) == (["a.MP3", "b.wav"], "monday")
        with pytest.raises(InputError, match=r"talks/monday: the folder cannot be read \(permission denied\)"):
            load_audio(bad.source)

    def test_a_large_folder_is_sorted_outside_memory(self, tree, monkeypatch):
        expected = found("talks")
        monkeypatch.setattr("engine_bridge.batch.folders._SORTED_IN_MEMORY", 1)
        assert found("talks") == expected

    def test_what_is_not_asked_for_is_not_looked_up(self, tree):
        recordings = find_recordings(["talks"])
        next(recordings)
        (tree / "talks" / "monday" / "new.wav").touch()
        assert "monday/new.wav" in [recording.id for recording in recordings]


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("talks/*", ["a.MP3", "b.wav"]),
            ("talks/**", ["a.MP3", "b.wav", "monday/deep/c.flac", "monday/film.mkv"]),
            ("talks/**/*.txt", ["monday/notes.txt"]),
            ("talks/**/deep/*", ["monday/deep/c.flac"]),
            ("talks/*/*", ["monday/film.mkv"]),
            ("*/b.wav", ["more/b.wav", "talks/b.wav"]),
            ("talks/?.wav", ["b.wav"]),
            ("talks/[ab].*", ["a.MP3", "b.wav"]),
            ("talks/.*/*.wav", [".auricle/journal.wav", ".trash/old.wav"]),
        ],
    )
    def test_it_fits_as_a_shells(self, tree, pattern, names):
        assert [name for name, _ in found(pattern)] == names

    def test_one_that_fits_nothing_is_told(self, tree):
        name, reason = failure("talks/*.opus")
        assert name == "*.opus"
        assert reason.startswith("talks/*.opus: there is no such file, and no recording that fits it")

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.sampled_from(["**", "*", "?", "a", "b*", "[ab]", ".h", ".*"]), max_size=3))
    def test_it_finds_what_python_does(self, forest, parts):
        pattern = "/".join([*parts, "*.wav"])
        expected = {path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}  # noqa: PTH207, PTH113
        recordings = [source for _, source in found(pattern) if isinstance(source, str)]
        assert len(recordings) == len(set(recordings))
        assert set(recordings) == expected

    def test_it_enters_only_folders_that_can_hold_something(self):
        pattern = Pattern(["a*", "x", "*.wav"])
        assert pattern.enters(("ab",))
        assert pattern.enters(("ab", "x"))
        assert not pattern.enters(("b",))
        assert not pattern.enters(("ab", "y"))
        assert not pattern.enters(("ab", "x", "z"))


class TestAddresses:
    def test_one_is_kept_as_it_is_and_named_without_what_is_secret(self):
        assert found("https://me:word@host:8000/a%20b/talk.mp3?signature=1") == [
            ("host/a b/talk.mp3", "https://me:word@host:8000/a%20b/talk.mp3?signature=1")
        ]

    def test_a_folder_ends_in_a_slash(self, bucket):
        assert found("memory://talks/") == [
            ("talks/a.wav", "memory://talks/a.wav"),
            ("talks/b/c.mp3", "memory://talks/b/c.mp3"),
        ]

    @pytest.mark.parametrize(
        ("pattern", "addresses"),
        [
            ("memory://talks/*.wav", ["memory://talks/a.wav"]),
            ("memory://talks/**/*.txt", ["memory://talks/b/notes.txt"]),
            ("memory://talks/*/*", ["memory://talks/b/c.mp3"]),
        ],
    )
    def test_patterns_are_those_of_paths(self, bucket, pattern, addresses):
        assert [source for _, source in found(pattern)] == addresses

    def test_one_with_nothing_below_is_told(self, bucket):
        assert "no recording below this address" in failure("memory://talks/*.opus")[1]

    def test_one_that_cannot_be_listed_fails_and_the_others_are_found(self, bucket):
        failed, good = find_recordings(["memory://absent/", "memory://talks/a.wav"])
        with pytest.raises(AudioFileNotFoundError, match="memory://absent/: there is no such file"):
            load_audio(failed.source)
        assert good.id == "talks/a.wav"


class TestPriorities:
    @staticmethod
    def order(priorities, **options):
        entries = (Recording(str(number), "x.wav", priority=each) for number, each in enumerate(priorities))
        return [int(recording.id) for recording in prioritised(entries, **options)]

    def test_the_order_is_kept_without_them(self):
        assert self.order([0] * 5, look_ahead=3) == [0, 1, 2, 3, 4]

    def test_a_higher_one_comes_earlier(self):
        assert self.order([0, 5, 1, 5, -1]) == [1, 3, 2, 0, 4]

    def test_only_as_far_as_is_looked_ahead(self):
        assert self.order([0, 0, 0, 9], look_ahead=2) == [0, 1, 3, 2]

    def test_an_endless_list_is_never_held(self):
        endless = (Recording(str(number), "x.wav", priority=number % 3) for number in iter(int, 1))
        tracemalloc.start()
        assert len(list(islice(prioritised(endless, 50), 20_000))) == 20_000
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000_000  # the list of what was yielded; the generator adds 50 entries

    def test_a_look_ahead_of_nothing_is_refused_at_the_call(self):
        with pytest.raises(ValueError, match="look_ahead is 0"):
            find_recordings([], look_ahead=0)


class TestNames:
    def test_each_is_given_once(self):
        with Names() as names:
            assert [names.unique("talk.wav") for _ in range(3)] == ["talk.wav", "talk~2.wav", "talk~3.wav"]
            assert names.unique("talk~2.wav") == "talk~2~2.wav"
            assert not names.claim("talk.wav")
            assert names.claim("other.wav")

    def test_memory_does_not_grow_with_them(self):
        with Names() as names:
            tracemalloc.start()
            for number in range(20_000):
                names.claim(f"folder/of/talks/{number}.wav")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 100_000
