"""What a million hours take, on paper: the page shows what the program prints, and the simulation adds up."""

import json
import re
import shlex
from dataclasses import fields, replace

import pytest

from bench import scale
from tests.recordings import ROOT, model_problem

PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```sh\n(python -m bench\.scale[^\n]*)\n```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
FREE = {"storage_gbit": 1e6, "network_gbit": 1e6, "gatherers": 10_000, "hours_between_failures": 1e9}
"""Nothing but the engines limits."""


@pytest.fixture(scope="module")
def measured():
    return json.loads(scale.MEASURED.read_text(encoding="utf-8"))


def outcome(measured, **settings):
    job = scale.with_readers(scale.Job(**{"simulated_hours": 1500.0, **settings}), measured)
    return scale.Simulation(job, measured).run()


def test_the_page_shows_commands():
    assert len(SHOWN) >= 5
    assert PAGE.count("```sh\n") == len(SHOWN)


@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_comes_out(command, printed, capsys):
    scale.main(shlex.split(command)[3:])
    assert capsys.readouterr().out == printed


def test_every_parameter_is_described():
    assert [each.name for each in fields(scale.Job)] == list(scale.ASSUMED)


class TestTheSimulation:
    def test_engines_that_nothing_else_limits_do_their_own_speed(self, measured):
        for engines in (5, 20):
            found = outcome(measured, engines=engines, engine_speed=100.0, **FREE)
            assert found.steady_speed == pytest.approx(100 * engines, rel=0.02)
            assert found.busy["engines"] > 0.9

    def test_what_is_slowest_limits(self, measured):
        few = outcome(measured, engines=20, readers=2, **FREE)
        each = scale.costs(scale.Job(), measured)
        assert few.steady_speed == pytest.approx(2 * each.block_seconds / each.reading, rel=0.05)
        assert max(few.busy, key=few.busy.get) == "reading"
        slow = outcome(measured, engines=20, **{**FREE, "storage_gbit": 0.5})
        assert max(slow.busy, key=slow.busy.get) == "storage"
        alone = outcome(measured, engines=200, **{**FREE, "gatherers": 1})
        assert alone.steady_speed == pytest.approx(3600 / measured["gather_cpu_seconds"], rel=0.05)

    def test_engines_that_fail_cost_time_and_lose_nothing(self, measured):
        settings = {**FREE, "engines": 20, "engine_speed": 100.0}
        sound = outcome(measured, **settings)
        failing = outcome(measured, **{**settings, "hours_between_failures": 0.2, "restart_minutes": 3.0})
        assert failing.failures > 20
        assert failing.steady_speed < 0.9 * sound.steady_speed

    def test_readers_wait_where_the_store_is_full(self, measured):
        roomy = outcome(measured, engines=20, **FREE)
        tight = outcome(measured, engines=20, store_gb=0.05, **FREE)
        assert tight.steady_speed < roomy.steady_speed

    def test_the_same_chance_gives_the_same(self, measured):
        job = scale.with_readers(scale.Job(simulated_hours=500.0), measured)
        assert scale.figures(job, measured) == scale.figures(job, measured)
        assert scale.Simulation(job, measured).run() != scale.Simulation(replace(job, seed=2), measured).run()


@pytest.mark.model
@pytest.mark.skipif(model_problem() is not None, reason=str(model_problem()))
def test_what_is_measured_is_what_the_model_takes(measured):
    pytest.importorskip("pyarrow", reason="the ray extra is not installed")
    from bench.scale_measure import measure

    found = measure(minutes=0.5, engine_minutes=0.5, runs=1)
    assert found.keys() == measured.keys()
    assert found["reading"].keys() == measured["reading"].keys()
    assert all(value > 0 for each in found["reading"].values() for value in each.values())
    assert scale.costs_table(found)
    assert scale.figures(scale.Job(simulated_hours=200.0), found)["GPUs"] == "100"
