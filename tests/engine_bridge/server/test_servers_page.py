"""The page on servers names the options that there are."""

import re
from pathlib import Path

import pytest

from engine_bridge.cache import open_cache
from engine_bridge.engines.http_spec import _READERS
from engine_bridge.server.settings import _OPTIONS
from engine_bridge.vllm_plugin import SUPPORTED_RELEASES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "servers.md").read_text(encoding="utf-8")


def table(heading):
    """Return the names in the first column of the table that follows a heading."""
    rows = PAGE.partition(heading)[2].partition("| --- |")[2].partition("\n\n")[0].splitlines()[1:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_settings_of_an_address_are_those_it_takes():
    assert table("## Recordings through a server") == list(_READERS)


def test_the_options_of_a_server_are_those_it_takes():
    assert sorted(table("## What requests may cost")) == sorted(_OPTIONS)


def test_the_releases_of_vllm_are_those_that_are_taken():
    assert {f"{major}.{minor}" for major, minor in SUPPORTED_RELEASES} == {"0.32"}
    assert "beside vLLM 0.32" in PAGE


def test_the_metrics_are_those_it_has():
    pytest.importorskip("prometheus_client", reason="the server's libraries are not installed")
    from prometheus_client import CollectorRegistry

    from engine_bridge.server.metrics import ServerMetrics

    registry = CollectorRegistry()
    ServerMetrics(registry).update_cache(open_cache("processor_only", 0.001))
    kept = {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}
    assert sorted(table("## Metrics")) == sorted(kept)
