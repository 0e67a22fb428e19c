"""The public names: listed, resolved, described."""

import importlib
import inspect
import types

import pytest

import engine_bridge

PACKAGES = ["audio", "audio.decoders", "engine_bridge", "engine_bridge.engines"]


@pytest.fixture(params=PACKAGES)
def package(request):
    return importlib.import_module(request.param)


def test_all_lists_each_name_once_and_in_order(package):
    assert list(package.__all__) == sorted(set(package.__all__), key=lambda name: (not name.isupper(), name))


def test_all_is_what_is_visible(package):
    visible = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "TYPE_CHECKING"
    }
    assert visible | set(getattr(package, "_LAZY", ())) == set(package.__all__)


def test_every_name_resolves_and_is_described(package):
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
            assert value.__doc__.strip(), name


def test_a_name_that_is_not_there_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018 - looked up for its error


def test_what_is_listed_comes_with_a_star_import(package):
    names = {}
    exec(f"from {package.__name__} import *", names)
    assert set(package.__all__) <= set(names)


def test_the_packages_describe_themselves(package):
    assert package.__doc__.strip().endswith(".")


def parameters_of(function):
    return [(name, each.default, each.kind) for name, each in inspect.signature(function).parameters.items()]


def test_the_call_that_waits_takes_what_the_stream_takes():
    assert parameters_of(engine_bridge.transcribe) == parameters_of(engine_bridge.stream_transcript)
