"""The command: what it prints where, which files it leaves, and how it ends."""

import json
import re
from types import SimpleNamespace

import pytest
import soundfile
from click.testing import CliRunner

import cli
from audio.decoders import BACKENDS
from engine_bridge import read_json
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine, clip_result
from tests.recordings import RATE, bursts, silence, wav_bytes, write_silent_film, write_wav

WORDS = [first + last for first in "bdfgklmnprstvw" for last in ("an", "el", "is", "or", "un", "ay", "eek", "oot")]
TIMED_LINE = re.compile(r"\d:\d\d:\d\d\.\d\d  \S.*")


def speak(samples, options):
    """Hear a word in each 0.4 s."""
    count = int(len(samples) / RATE / 0.4)
    return clip_result([(0.4 * n, 0.4 * (n + 1), WORDS[n % len(WORDS)]) for n in range(count)])


def run(*arguments, stdin=None):
    """Run the command in this process."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def outputs(folder):
    """The names of the files in a folder; the journal and the report are hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.fixture
def opened(monkeypatch):
    """Put a scripted engine in the place of all others, and collect the specifications it was opened by."""
    given = SimpleNamespace(specs=[], script=speak)

    def open_engine(spec):
        given.specs.append(spec)
        return FakeEngine(lambda samples, options: given.script(samples, options), capabilities=ENGLISH_ONLY)

    monkeypatch.setattr("engine_bridge.engines.open.open_engine", open_engine)
    # It would change the memory allocation of the whole test run.
    monkeypatch.setattr("engine_bridge.engines.allocator.keep_large_blocks", lambda: False)
    return given


@pytest.fixture
def talk(tmp_path):
    return write_wav(tmp_path / "talk.wav", bursts(8))


@pytest.fixture
def other(tmp_path):
    return write_wav(tmp_path / "other.wav", bursts(5, seed=1))


@pytest.fixture
def junk(tmp_path):
    path = tmp_path / "notes.mp3"
    path.write_text("Dear diary, this is not a recording. " * 40)
    return path


def test_a_language_for_each_chunk_is_refused_by_an_english_engine_as_wrong_usage(opened, talk):
    result = run("transcribe", talk, "--per-chunk-language")
    assert result.exit_code == 2
    assert "cannot detect the language of a chunk" in result.stderr


class TestGlossary:
    @pytest.fixture
    def prompts(self, opened):
        told = []

        def script(samples, options):
            told.append(options.prompt)
            return speak(samples, options)

        opened.script = script
        return told

    def test_terms_are_given_on_the_command_line(self, talk, prompts):
        assert run("transcribe", talk, "--glossary", "Auricle, Marconi,,Auricle").exit_code == 0
        assert set(prompts) == {"Auricle, Marconi."}

    def test_or_in_a_file(self, talk, prompts, tmp_path):
        (tmp_path / "terms.txt").write_text("\ufeffAuricle\nMarconi, Hertz\n\n", encoding="utf-8")
        result = run("transcribe", talk, "--glossary", f"@{tmp_path / 'terms.txt'}", "--prompt", "A call.")
        assert result.exit_code == 0
        assert set(prompts) == {"Auricle, Marconi, Hertz. A call."}

    @pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"], ids=["absent", "not text"])
    def test_a_file_that_cannot_be_read_is_wrong_usage(self, talk, prompts, tmp_path, content):
        path = tmp_path / "terms.txt"
        if content is not None:
            path.write_bytes(content)
        result = run("transcribe", talk, "--glossary", f"@{path}")
        assert result.exit_code == 2
        assert "cannot be read" in result.stderr
        assert prompts == []

    def test_terms_that_found_no_room_are_told(self, talk, prompts):
        result = run("transcribe", talk, "--glossary", ",".join(f"term{number}" for number in range(300)))
        assert result.exit_code == 0
        assert "200 of the glossary's 300 terms" in result.stderr
        assert "'term200'" in result.stderr


@pytest.mark.usefixtures("opened")
class TestPrinting:
    def test_each_line_has_its_time(self, talk):
        result = run("transcribe", talk)
        assert result.exit_code == 0
        assert result.stderr == ""
        lines = result.stdout.splitlines()
        assert lines
        assert all(TIMED_LINE.fullmatch(line) for line in lines)
        assert WORDS[0] in lines[0]

    def test_several_recordings_have_titles(self, talk, other):
        lines = run("transcribe", talk, other).stdout.splitlines()
        assert [line for line in lines if line.startswith("#")] == [f"# {talk}", f"# {other}"]
        assert lines[0] == f"# {talk}"

    def test_txt_is_plain(self, talk):
        result = run("transcribe", talk, "-f", "txt")
        assert result.exit_code == 0
        assert WORDS[0] in result.stdout
        assert not re.search(r"\d", result.stdout)

    def test_json_is_one_transcript(self, talk):
        transcript = read_json(run("transcribe", talk, "-f", "json").stdout)
        assert transcript.source == str(talk)
        assert transcript.duration == pytest.approx(8.0)
        assert transcript.text.startswith(WORDS[0])

    def test_json_of_several_is_nothing_but_json(self, talk, other):
        text = run("transcribe", talk, other, "-f", "json").stdout
        sources = []
        while text.strip():
            entry, end = json.JSONDecoder().raw_decode(text.lstrip())
            sources.append(entry["source"])
            text = text.lstrip()[end:]
        assert sources == [str(talk), str(other)]

    @pytest.mark.parametrize(
        ("name", "start"), [("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n"), ("tsv", "start\tend\ttext\n")]
    )
    def test_subtitles_are_a_whole_file(self, talk, name, start):
        result = run("transcribe", talk, "-f", name)
        assert result.exit_code == 0
        assert result.stdout.startswith(start)

    def test_timings_name_the_stages(self, talk):
        assert re.search(
            r"talk\.wav: 8\.0 s of audio: decode audio \d.* write \d.* \(answers from a script\)",
            run("transcribe", talk, "--timings").stderr,
        )

    def test_progress_is_not_shown_in_a_pipe(self, talk):
        assert run("transcribe", talk).stderr == ""

    def test_standard_input_is_a_recording(self):
        result = run("transcribe", "-", stdin=wav_bytes(bursts(4)))
        assert result.exit_code == 0
        assert TIMED_LINE.match(result.stdout)

    def test_empty_standard_input_is_one_sentence(self):
        result = run("transcribe", "-", stdin=b"")
        assert result.exit_code == 1
        assert result.stderr.startswith("auricle: standard input: ")
        assert result.stderr.count("\n") == 1

    def test_speech_without_text_is_told(self, opened, talk):
        opened.script = lambda samples, options: clip_result([])
        result = run("transcribe", talk)
        assert result.exit_code == 0
        assert result.stdout == ""
        assert re.fullmatch(
            rf"auricle: {re.escape(str(talk))}: \d\.\d s that may be speech have no text: 0:00:00.*\n", result.stderr
        )


@pytest.mark.usefixtures("opened")
class TestFiles:
    def test_all_formats_are_written_whole(self, talk, tmp_path):
        out = tmp_path / "deep" / "out"
        result = run("transcribe", talk, "-o", out, "-f", "txt,srt,vtt,tsv,json")
        assert result.exit_code == 0
        names = [f"talk.{name}" for name in ("json", "srt", "tsv", "txt", "vtt")]
        assert outputs(out) == names
        assert read_json((out / "talk.json").read_text()).text.split() == (out / "talk.txt").read_text().split()
        assert sorted(result.stderr.splitlines()) == [f"auricle: wrote {out / name}" for name in names]

    def test_the_text_is_printed_too_with_times(self, talk, tmp_path):
        result = run("transcribe", talk, "-o", tmp_path / "out")
        assert TIMED_LINE.match(result.stdout)
        assert (tmp_path / "out" / "talk.txt").read_text().split()

    def test_quiet_prints_nothing(self, talk, tmp_path):
        result = run("transcribe", talk, "-q", "-o", tmp_path / "out")
        assert result.exit_code == 0
        assert result.stdout == ""

    def test_names_never_collide(self, tmp_path):
        names = ["a.wav", "a.flac", "x.part1.wav", "x.part2.wav"]
        for seed, name in enumerate(names):
            soundfile.write(tmp_path / name, bursts(3, seed=seed), RATE)
        run("transcribe", *(tmp_path / name for name in names), "-o", tmp_path / "out")
        assert outputs(tmp_path / "out") == ["a.flac.txt", "a.wav.txt", "x.part1.txt", "x.part2.txt"]

    def test_standard_input_is_written_as_stdin(self, tmp_path):
        run("transcribe", "-", "-o", tmp_path / "out", stdin=wav_bytes(bursts(3)))
        assert outputs(tmp_path / "out") == ["stdin.txt"]

    def test_a_folder_that_cannot_be_made_is_one_sentence(self, talk, junk):
        result = run("transcribe", talk, "-o", junk / "out")
        assert result.exit_code == 1
        told = rf"auricle: {re.escape(str(junk / 'out'))}: nothing can be written there .*; choose a folder.*\n"
        assert re.fullmatch(told, result.stderr)


@pytest.mark.usefixtures("opened")
class TestFailingInputs:
    def test_the_others_are_done(self, talk, junk, other, tmp_path):
        result = run("transcribe", talk, junk, other, "-q", "-o", tmp_path / "out")
        assert result.exit_code == 1
        assert outputs(tmp_path / "out") == ["other.txt", "talk.txt"]
        failed, summary = (line for line in result.stderr.splitlines() if "wrote" not in line)
        assert failed.startswith(f"auricle: {junk}: ")
        report = tmp_path / "out" / ".auricle" / "report.json"
        assert summary == f"auricle: 3 recordings: 2 done, 1 failed; see {report}"

    def test_an_engine_that_fails_on_one_is_told_and_the_others_are_done(self, opened, talk, other):
        clips = []

        def fail_first(samples, options):
            clips.append(samples)
            if len(clips) == 1:
                raise RuntimeError("out of memory")
            return speak(samples, options)

        opened.script = fail_first
        result = run("transcribe", talk, other)
        assert result.exit_code == 1
        assert re.fullmatch(rf"auricle: {re.escape(str(talk))}: fake.*out of memory.*\n", result.stderr)
        assert TIMED_LINE.match(result.stdout.split(f"# {other}\n")[1])

    @pytest.mark.parametrize("command", ["transcribe", "probe", "split"])
    @pytest.mark.parametrize(
        ("kind", "told"),
        [
            ("empty", r"the file is empty; .*"),
            ("text", r"it is text, not audio; give the recording itself"),
            ("film", r"there is no audio .*in it.*"),
            ("folder", r"this is a folder; name the recordings in it"),
            ("missing", r"there is no such file; check the path"),
        ],
    )
    def test_what_is_no_recording_is_one_sentence(self, tmp_path, junk, command, kind, told):
        path = {
            "empty": tmp_path / "empty.wav",
            "text": junk,
            "film": tmp_path / "film.mp4",
            "folder": tmp_path,
            "missing": tmp_path / "missing.wav",
        }[kind]
        if kind == "empty":
            path.touch()
        elif kind == "film":
            write_silent_film(path)
        if (command, kind) == ("transcribe", "folder"):
            junk.unlink()
            told = r"there is no recording in this folder; .*"
        result = run(command, path, *(("-o", tmp_path / "out") if command == "split" else ()))
        assert result.exit_code == 1
        assert result.stdout == ""
        assert re.fullmatch(rf"auricle: {re.escape(str(path))}: {told}\n", result.stderr)
        assert not list(tmp_path.glob("out/*"))

    def test_silence_is_an_empty_transcript(self, tmp_path):
        path = write_wav(tmp_path / "quiet.wav", silence(40))
        result = run("transcribe", path)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
        transcript = read_json(run("transcribe", path, "-f", "json").stdout)
        assert (transcript.segments, transcript.gaps, transcript.duration) == ((), (), 40.0)

    def test_a_backend_that_is_absent_is_told_with_the_remedy(self, monkeypatch, talk):
        monkeypatch.setattr(BACKENDS["torchcodec"], "_tried", True)
        monkeypatch.setattr(BACKENDS["torchcodec"], "_fault", "No module named 'torchcodec'")
        result = run("transcribe", talk, "--audio-backend", "torchcodec")
        assert result.exit_code == 1
        assert result.stderr.startswith(
            f"auricle: {talk}: torchcodec cannot be used here: No module named 'torchcodec'. Install it with: pip"
        )
        assert result.stderr.count("\n") == 1
        assert run("transcribe", talk).exit_code == 0

    def test_a_short_name_is_told_even_if_its_letters_are_in_the_message(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a").write_text("no recording")
        assert run("transcribe", "a").stderr.startswith("auricle: a: ")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("transcribe",), "Missing argument 'INPUT...'"),
            (("transcribe", "x.wav", "-f", "docx"), "'docx': choose among txt, srt, vtt, tsv, json"),
            (("transcribe", "x.wav", "-f", ","), "choose among txt"),
            (("transcribe", "x.wav", "-f", "txt,srt"), "several formats need a folder to write to: add -o DIR"),
            (("transcribe", "x.wav", "y.wav", "-f", "srt"), "several recordings as srt need a folder to write to"),
            (("transcribe", "x.wav", "--audio-backend", "ffmpeg"), "'ffmpeg' is not one of 'auto', 'soundfile'"),
            (("transcribe", "x.wav", "--engine", "warp:9"), "engine 'warp:9' is not understood: use embedded:MODEL"),
            (("transcribe", "x.wav", "--engine", "embedded:"), "engine 'embedded:' is not understood"),
            (("transcribe", "x.wav", "--beam-size", "0"), "0 is not in the range"),
            (("transcribe", "x.wav", "--task", "sing"), "'sing' is not one of 'transcribe', 'translate'"),
            (("transcribe", "x.wav", "--channels", "loudest"), "choose among mean, first, max, sum, left, right, each"),
            (("split", "x.wav", "-o", "out", "--channels", "each"), "choose among mean, first, max, sum, left, right"),
            (("transcribe", "x.wav", "--from", "1:2:3:4"), "give a time such as 90, 1:30 or 1:02:03.5"),
            (("transcribe", "x.wav", "--from", "2:00", "--to", "1:59"), "the range holds nothing"),
            (("transcribe", "x.wav", "--track", "-1"), "give a track's number from 0, or a language"),
            (("transcribe", "x.wav", "-o", __file__), "is a file"),
            (("split", "x.wav"), "Missing option '-o'"),
            (("split", "x.wav", "-o", "out", "--sample-rate", "0"), "0 is not in the range"),
            (("shout",), "No such command 'shout'"),
        ],
    )
    def test_a_wrong_call_is_told_and_exits_with_2(self, arguments, told):
        result = run(*arguments)
        assert result.exit_code == 2
        assert told in result.stderr
        assert result.stdout == ""

    @pytest.mark.parametrize(
        ("options", "told"),
        [(("--language", "xx"), "language 'xx'"), (("--task", "translate"), "task 'translate'")],
    )
    def test_what_the_engine_cannot_do_exits_with_2(self, opened, talk, options, told):
        result = run("transcribe", talk, *options)
        assert result.exit_code == 2
        assert told in result.stderr
        assert result.stdout == ""

    def test_a_model_that_is_nowhere_is_told_with_all_places(self, talk):
        result = run("transcribe", talk, "--engine", "embedded:no-such-model")
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
        assert "model 'no-such-model' was not found: no folder of that name; no installed package" in result.stderr

    def test_the_engine_is_opened_once_by_its_specification(self, opened, talk, other):
        run("transcribe", talk, other, "--engine", "embedded:small")
        assert opened.specs == ["embedded:small"]

    @pytest.mark.parametrize("command", [(), ("transcribe",), ("probe",), ("split",), ("doctor",)])
    def test_help_is_there(self, command):
        result = run(*command, "-h")
        assert result.exit_code == 0
        assert result.stdout.startswith("Usage: ")

    def test_version(self):
        assert re.search(r"\d+\.\d+\.\d+", run("--version").stdout)


class TestProbe:
    def test_tells_what_is_in_a_file(self, talk):
        lines = dict(line.split(maxsplit=1) for line in run("probe", talk).stdout.splitlines())
        assert lines["rate"] == "16000 Hz"
        assert lines["channels"] == "1"
        assert lines["duration"] == "0:00:08.00 (claimed)"
        assert lines["backend"] == "soundfile"

    def test_json_has_all_fields(self, talk):
        info = json.loads(run("probe", talk, "--json", "--audio-backend", "pyav").stdout)
        assert (info["backend"], info["codec"], info["sample_rate"]) == ("pyav", "pcm_s16le", 16_000)
        assert info["claimed_duration"] == pytest.approx(8.0)
        assert [stream["index"] for stream in info["streams"]] == [0]

    def test_reads_standard_input(self):
        assert json.loads(run("probe", "-", "--json", stdin=wav_bytes(bursts(1))).stdout)["channels"] == 1


class TestSplit:
    @pytest.fixture
    def recording(self, tmp_path):
        return write_wav(tmp_path / "long.wav", bursts(40))

    @staticmethod
    def manifest(folder, name="long"):
        return [json.loads(line) for line in (folder / f"{name}.chunks.jsonl").read_text().splitlines()]

    def test_the_files_and_the_manifest_tile_the_recording(self, recording, tmp_path):
        out = tmp_path / "out"
        result = run("split", recording, "-o", out, "--max-duration", "10")
        assert result.exit_code == 0
        assert result.stdout == ""
        assert result.stderr == f"auricle: wrote {out / 'long.chunks.jsonl'}\n"
        entries = self.manifest(out)
        assert [entry["start"] for entry in entries] == [0, *(entry["stop"] for entry in entries[:-1])]
        assert entries[-1]["stop"] == 40 * RATE
        parts = [soundfile.read(out / entry["file"], dtype="int16") for entry in entries]
        assert all(rate == RATE and len(part) <= 10 * RATE for part, rate in parts)
        joined = b"".join(part.tobytes() for part, _ in parts)
        assert joined == soundfile.read(recording, dtype="int16")[0].tobytes()
        written = {path.name for path in out.iterdir()}
        assert written == {"long.chunks.jsonl", *(entry["file"] for entry in entries)}

    def test_kept_silence_shortens_pauses_and_the_manifest_says_where(self, tmp_path):
        path = write_wav(tmp_path / "long.wav", bursts(30, on=2.0, off=4.0))
        out = tmp_path / "out"
        run("split", path, "-o", out, "--max-duration", "10", "--keep-silence", "0.4")
        entries = self.manifest(out)
        assert entries[-1]["stop"] == 30 * RATE
        kept = [soundfile.info(out / entry["file"]).frames for entry in entries]
        assert kept == [sum(stop - start for start, stop in entry["kept"]) for entry in entries]
        assert sum(kept) < 20 * RATE

    def test_another_sample_rate(self, recording, tmp_path):
        run("split", recording, "-o", tmp_path / "out", "--sample-rate", "8000")
        entries = self.manifest(tmp_path / "out")
        assert entries[-1]["stop"] == 40 * 8000
        assert soundfile.info(tmp_path / "out" / entries[0]["file"]).samplerate == 8000

    def test_standard_input(self, tmp_path):
        assert run("split", "-", "-o", tmp_path / "out", stdin=wav_bytes(bursts(3))).exit_code == 0
        assert self.manifest(tmp_path / "out", "stdin")[-1]["stop"] == 3 * RATE

    @pytest.mark.parametrize(
        "options",
        [
            ("--max-duration", "0"),
            ("--max-duration", "nan"),
            ("--max-duration", "10", "--min-duration", "6"),
            ("--keep-silence", "-1"),
        ],
    )
    def test_lengths_that_cannot_be_satisfied_exit_with_2(self, recording, tmp_path, options):
        result = run("split", recording, "-o", tmp_path / "out", *options)
        assert result.exit_code == 2
        assert "duration must be" in result.stderr or "keep_silence must be" in result.stderr
        assert not (tmp_path / "out").exists()

    def test_a_folder_that_cannot_be_made_is_one_sentence(self, recording, junk):
        result = run("split", recording, "-o", junk / "out")
        assert result.exit_code == 1
        assert re.fullmatch(r"auricle: .*cannot be written.*\n", result.stderr)


class TestDoctor:
    def test_names_every_part_and_exits_by_what_is_required(self, opened, monkeypatch):
        class Described(FakeEngine):
            description = "scripted"

        monkeypatch.setattr("engine_bridge.commands.doctor.open_engine", lambda spec: Described(speak))
        result = run("doctor")
        assert result.exit_code == 0
        for part in (
            "python",
            "decoder soundfile",
            "decoder torchcodec",
            "decoder pyav",
            "resampler soxr",
            "detector silero",
            "engine",
        ):
            assert re.search(rf"^(works    |missing  ){part}", result.stdout, re.MULTILINE)
        for line in result.stdout.splitlines():
            assert line.startswith("works    ") or "nstall" in line

    def test_a_broken_decoder_fails_with_the_reason(self, opened, monkeypatch):
        monkeypatch.setattr("engine_bridge.commands.doctor.open_engine", lambda spec: FakeEngine(speak, spec=spec))
        monkeypatch.setattr(FakeEngine, "description", "scripted", raising=False)
        monkeypatch.setattr(BACKENDS["pyav"], "_tried", True)
        monkeypatch.setattr(BACKENDS["pyav"], "_fault", "libavcodec.so.62 is missing")
        result = run("doctor")
        assert result.exit_code == 1
        assert "missing  decoder pyav: libavcodec.so.62 is missing. Install it with: pip install av\n" in result.stdout
