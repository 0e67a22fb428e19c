"""Where transcripts go: no two share a file, none replaces a recording, and each is whole or absent."""

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_bridge.errors import OutputError, UnsupportedOptionError
from engine_bridge.outputs import plan_outputs, write_atomically


def planned(sources, formats=("txt",), directory="/out"):
    plan = plan_outputs(sources, formats, directory)
    return [str(plan.path(source, formats[0]).relative_to(directory)) for source in sources]


def names_in(folder):
    return [path.name for path in folder.iterdir()]


# Names


def test_an_output_is_named_after_its_recording():
    assert planned(["/in/talk.mp3"]) == ["talk.txt"]


def test_each_format_has_its_own_extension():
    plan = plan_outputs(["/in/talk.mp3"], ["srt", "json"], "/out")
    assert plan.path("/in/talk.mp3", "srt") == Path("/out/talk.srt")
    assert plan.path(Path("/in/talk.mp3"), "json") == Path("/out/talk.json")


def test_only_the_last_extension_is_dropped():
    assert planned(["/in/x.part1.mp3", "/in/x.part2.mp3"]) == ["x.part1.txt", "x.part2.txt"]


def test_recordings_that_differ_only_in_extension_all_keep_it():
    assert planned(["/in/a.mp3", "/in/a.wav", "/in/b.mp3"]) == ["a.mp3.txt", "a.wav.txt", "b.txt"]


def test_same_names_from_different_folders_get_the_folder_before_them():
    assert planned(["/in/monday/talk.mp3", "/in/tuesday/talk.mp3"]) == ["monday_talk.mp3.txt", "tuesday_talk.mp3.txt"]


def test_as_many_folders_as_tell_them_apart():
    assert planned(["/x/one/d/t.mp3", "/x/two/d/t.mp3"]) == ["one_d_t.mp3.txt", "two_d_t.mp3.txt"]


def test_names_that_only_folders_joined_would_confuse_get_numbers():
    names = planned(["/a_b/c.mp3", "/a/b_c.mp3", "/x/c.mp3", "/x/b_c.mp3"])
    assert len(set(names)) == 4


def test_case_alone_does_not_tell_names_apart():
    first, second = planned(["/in/Talk.mp3", "/in/talk.MP3"])
    assert first.casefold() != second.casefold()


def test_composed_and_decomposed_accents_do_not_tell_names_apart():
    first, second = planned(["/in/caf\u00e9.mp3", "/in/cafe\u0301.wav"])
    assert (first, second) == ("caf\u00e9.mp3.txt", "cafe\u0301.wav.txt")


def test_a_collision_that_keeping_the_extension_causes_is_solved_too():
    names = planned(["/in/a.mp3", "/in/a.wav", "/in/a.mp3.ogg"])
    assert len(set(names)) == 3


def test_the_same_recording_given_twice_shares_its_output():
    assert planned(["/in/a.mp3", "/in/../in/a.mp3", "/in/a.mp3"]) == ["a.txt"] * 3


def test_an_output_never_replaces_a_recording(tmp_path):
    source = tmp_path / "notes.txt"
    plan = plan_outputs([source], ["txt"], tmp_path)
    assert plan.path(source, "txt") == tmp_path / "notes.txt.txt"


def test_an_output_never_replaces_another_recording_of_the_run(tmp_path):
    sources = [tmp_path / "a.mp3", tmp_path / "A.TXT"]
    plan = plan_outputs(sources, ["txt"], tmp_path)
    outputs = {str(plan.path(source, "txt")).casefold() for source in sources}
    assert outputs.isdisjoint(str(source).casefold() for source in sources)
    assert len(outputs) == 2


def test_a_link_to_the_folder_of_the_recordings_does_not_hide_them(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    plan = plan_outputs([folder / "notes.txt"], ["txt"], tmp_path / "link")
    assert plan.path(folder / "notes.txt", "txt").name == "notes.txt.txt"


def test_an_address_is_named_after_its_last_part_without_query():
    assert planned(["https://example.org/shows/episode%201.mp3?token=x", "https://example.org/"]) == [
        "episode 1.txt",
        "example.txt",
    ]


def test_an_unknown_format_is_refused_before_anything_is_written():
    with pytest.raises(UnsupportedOptionError, match="choose one of"):
        plan_outputs(["/in/a.mp3"], ["doc"], "/out")


PATHS = st.lists(
    st.builds(
        "/in/{}{}{}".format,
        st.sampled_from(["", "a/", "b/", "a_b/", "A/"]),
        st.sampled_from(["a", "A", "b", "a.mp3", "a_a", "b_a.mp3"]),
        st.sampled_from([".mp3", ".wav", ".txt", ""]),
    ),
    unique=True,
    max_size=12,
)


@given(PATHS, st.randoms(use_true_random=False))
def test_outputs_are_apart_and_independent_of_order(sources, random):
    plan = plan_outputs(sources, ["txt", "srt"], "/in")
    outputs = {str(plan.path(source, each)).casefold() for source in sources for each in ("txt", "srt")}
    assert len(outputs) == 2 * len(sources)
    assert outputs.isdisjoint(source.casefold() for source in sources)
    shuffled = random.sample(sources, len(sources))
    assert dict(plan_outputs(shuffled, ["txt", "srt"], "/in").names) == dict(plan.names)


# Writing


def test_a_file_is_written_as_utf8_with_its_line_ends_unchanged(tmp_path):
    write_atomically(tmp_path / "a.txt", "héllo\nwörld\r\n")
    assert (tmp_path / "a.txt").read_bytes() == "héllo\nwörld\r\n".encode()


def test_a_function_writes_to_the_stream_it_is_given(tmp_path):
    write_atomically(tmp_path / "a.txt", lambda file: file.writelines(["one\n", "two\n"]))
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"


def test_missing_folders_are_made(tmp_path):
    write_atomically(tmp_path / "deep" / "down" / "a.txt", "text")
    assert (tmp_path / "deep" / "down" / "a.txt").read_text() == "text"


def test_a_lone_surrogate_does_not_stop_the_writing(tmp_path):
    write_atomically(tmp_path / "a.txt", "caf\udce9")
    assert (tmp_path / "a.txt").read_text() == "caf\\udce9"


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_atomically(tmp_path / "a.txt", "text")
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    write_atomically(tmp_path / "link.txt", "text")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "text"


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_a_writer_that_fails_halfway_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    (tmp_path / "a.txt").write_text("old")

    def write(file):
        file.write("new, but only ha")
        raise failure

    with pytest.raises(failure):
        write_atomically(tmp_path / "a.txt", write)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "free some space, or choose another disk"),
        (errno.EACCES, "choose a folder you may write to"),
        (errno.EROFS, "choose a folder that is not read-only"),
        (errno.EIO, "check the folder and the disk"),
    ],
)
def test_a_failing_disk_is_one_clear_sentence_and_leaves_nothing(tmp_path, monkeypatch, code, remedy):
    def fail(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError) as caught:
        write_atomically(tmp_path / "a.txt", "text")
    reason = os.strerror(code).lower()
    assert str(caught.value) == f"{tmp_path / 'a.txt'}: the transcript cannot be written ({reason}); {remedy}"
    assert caught.value.errno == code
    assert names_in(tmp_path) == []


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="choose a path whose parents are folders"):
        write_atomically(tmp_path / "file" / "a.txt", "text")


def test_a_folder_in_the_way_is_refused_and_kept(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OutputError, match="remove the folder of that name"):
        write_atomically(tmp_path / "a.txt", "text")
    assert names_in(tmp_path) == ["a.txt"]


def test_a_name_too_long_for_the_disk_is_refused(tmp_path):
    with pytest.raises(OutputError, match="give the recording a shorter name"):
        write_atomically(tmp_path / ("x" * 300 + ".txt"), "text")
    assert names_in(tmp_path) == []
