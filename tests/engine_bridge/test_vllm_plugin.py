"""What can be told of the plugins for vLLM without vLLM."""

import importlib.metadata
import sys
from types import ModuleType

import pytest

from engine_bridge.errors import EngineUnavailableError
from engine_bridge.vllm_plugin import NAME, AuricleEndpoints, check_vllm, is_supported, register


def pretend(monkeypatch, version, connector="http"):
    vllm, envs, versions = ModuleType("vllm"), ModuleType("vllm.envs"), ModuleType("vllm.version")
    envs.VLLM_MEDIA_CONNECTOR = connector
    versions.__version__ = version
    vllm.envs = envs
    for module in (vllm, envs, versions):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.32.0+cpu", "0.32.2.dev3"])
def test_tested_releases_are_taken(monkeypatch, version):
    pretend(monkeypatch, version)
    assert is_supported(version)
    check_vllm()


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0", "dev", ""])
def test_other_releases_are_refused_with_the_way_out(monkeypatch, version):
    pretend(monkeypatch, version)
    assert not is_supported(version)
    with pytest.raises(EngineUnavailableError, match=r"0\.32.*VLLM_PLUGINS"):
        check_vllm()
    with pytest.raises(EngineUnavailableError, match=r"0\.32"):
        AuricleEndpoints().attach_router(object())


def test_a_server_that_does_not_ask_for_the_connector_is_left_alone(monkeypatch):
    pretend(monkeypatch, "0.99.0")
    register()


def test_a_server_that_asks_for_it_in_another_release_does_not_start(monkeypatch):
    pretend(monkeypatch, "0.99.0", connector=NAME)
    with pytest.raises(EngineUnavailableError, match=r"0\.99\.0"):
        register()


def test_a_vllm_that_cannot_load_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setitem(sys.modules, "vllm.version", None)
    with pytest.raises(EngineUnavailableError, match="pip install"):
        check_vllm()


@pytest.mark.parametrize("group", ["vllm.endpoint_plugins", "vllm.general_plugins"])
def test_vllm_finds_the_plugins_by_name(group):
    try:
        distribution = importlib.metadata.distribution("auricle")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed, so it has no entry points")
    named = [point for point in distribution.entry_points if point.group == group]
    assert [point.name for point in named] == [NAME]
    assert callable(named[0].load())
