"""`auricle models`: every family, with what it takes."""

import re

from click.testing import CliRunner

import cli
from engine_bridge.errors import EngineBridgeError
from engine_bridge.models import audio_models


def run():
    return CliRunner().invoke(cli.main, ["models"])


def test_every_architecture_is_listed_once_in_aligned_columns():
    result = run()
    assert result.exit_code == 0
    heading, *rows = result.stdout.splitlines()
    assert heading.startswith("family")
    listed = re.findall(r"\w{6,}(?:Generation|Model|CausalLM)\b", result.stdout)
    assert sorted(listed) == sorted(audio_models())
    column = heading.index("architectures")
    assert all(row[column - 2 : column] == "  " and row[column] != " " for row in rows)


def test_a_row_tells_what_a_family_takes():
    (row,) = [line for line in run().stdout.splitlines() if line.startswith("Voxtral ")]
    for cell in ("16000 Hz", "mono", "30 s", "12.5 tokens/s", "5", "transcribe", "ar de en es fr hi it nl pt"):
        assert f"  {cell}  " in row


def test_a_package_that_cannot_be_imported_is_told_in_one_line(monkeypatch):
    def broken():
        raise EngineBridgeError("parrot-models: its audio models cannot be registered; update or remove the package")

    monkeypatch.setattr("engine_bridge.models.table.audio_models", broken)
    result = run()
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "parrot-models" in result.stderr
