"""Damaged and lying files cause nothing but this package's own errors; `bench/fuzz.py` tries more of them."""

import importlib.util
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "bench" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("auricle_bench_fuzz", FUZZ)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_an_input_is_determined_by_seed_and_number(fuzz):
    originals = {"a": bytes(range(256)) * 8, "b": b"RIFF" + bytes(1000)}
    one = [fuzz.mutated(originals, 3, number) for number in range(50)]
    assert one == [fuzz.mutated(originals, 3, number) for number in range(50)]
    assert len({data for _, data in one}) > 40
    assert one != [fuzz.mutated(originals, 4, number) for number in range(50)]


def test_mutated_recordings_of_all_formats_cause_no_finding(fuzz):
    report = fuzz.fuzz(range(150), seed=11)
    assert report.findings == []
    assert report.inputs == 150
    outcomes = {outcome for _, outcome in report.outcomes}
    assert {"decoded", "refused"} <= outcomes


MISBEHAVING = """
import json, os, sys, time
print(json.dumps({"backends": []}), flush=True)
for line in sys.stdin:
    number = int(line)
    if number == 1:
        os.abort()
    if number == 2:
        time.sleep(60)
    outcome = "foreign error" if number == 3 else "decoded"
    print(json.dumps({"backend": "auto", "outcome": outcome, "said": "", "s": 0.0}), flush=True)
"""


def test_a_crash_a_hang_and_a_foreign_error_are_findings(fuzz, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(MISBEHAVING)
    monkeypatch.setattr(fuzz, "__file__", str(worker))
    monkeypatch.setattr(fuzz, "HANG_SECONDS", 1.0)
    report = fuzz.fuzz(range(5), seed=0)
    assert report.inputs == 5
    assert [finding.split(": ")[1].split()[0] for finding in report.findings] == ["crash", "hang", "foreign"]
