"""The command's options for what decoding may cost: limits by name, and a process of its own."""

from dataclasses import fields

import click
import pytest
from click.testing import CliRunner

from audio import DecodeLimits, Isolation
from engine_bridge.commands.arguments import LIMITS, limit_options, limits_of


def chosen(*arguments):
    """What a command with these options makes of its arguments, and its messages."""
    found = {}

    @click.command()
    @limit_options
    def command(**options):
        found.update(limits_of(options))
        assert options == {}

    result = CliRunner().invoke(command, arguments)
    return found, result


def test_without_them_the_library_decides():
    assert chosen()[0] == {}


def test_every_limit_has_its_name():
    assert {field.name for field in fields(DecodeLimits)} == set(LIMITS)


def test_a_limit_takes_the_place_of_the_usual_one():
    found, _ = chosen("--limit", "max_seconds=7200.5", "--limit", "max_channels=2")
    usual = DecodeLimits.generous()
    assert found == {"limits": DecodeLimits(**{**vars(usual), "max_seconds": 7200.5, "max_channels": 2})}


def test_none_lifts_a_limit():
    found, _ = chosen("--limit", "max_open_seconds=none")
    assert found["limits"].max_open_seconds is None
    assert found["limits"].max_channels == DecodeLimits.generous().max_channels


def test_the_last_of_two_counts():
    found, _ = chosen("--limit", "max_channels=2", "--limit", "max_channels=6")
    assert found["limits"].max_channels == 6


@pytest.mark.parametrize("given", ["seconds=3", "max_seconds", "max_seconds=", "max_seconds=0", "max_seconds=nan"])
def test_what_is_no_limit_is_refused(given):
    found, result = chosen("--limit", given)
    assert found == {}
    assert result.exit_code == 2
    assert f"'{given}': give " in result.output


@pytest.mark.parametrize("given", ["max_channels=1.5", "max_channels=-1", "max_encoded_bytes=inf"])
def test_what_is_counted_is_a_whole_number(given):
    _, result = chosen("--limit", given)
    assert result.exit_code == 2
    assert "give a whole number above 0" in result.output


def test_a_process_of_its_own_has_the_usual_bounds():
    assert chosen("--isolate")[0] == {"isolation": Isolation()}
