"""The harnesses for jobs: what they find on a job that is as it should be, made small."""

import pytest

from bench.kills import compare
from bench.many import FEW, SETS, account, cross_sections, make_files
from tests.recordings import model_problem

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(model_problem() is not None, reason=str(model_problem())),
]


def test_a_job_that_is_killed_six_times_ends_as_one_left_alone():
    *lines, verdict = compare(6, seed=1, pieces=((0, 12), (5, 40), (30, 36)))
    assert verdict.startswith("6 kills in "), lines
    assert verdict.endswith("outputs that differ: none: as promised"), lines


def test_every_one_of_forty_files_is_accounted_for(tmp_path):
    (tmp_path / "in").mkdir()
    kinds = make_files(tmp_path / "in", 40)
    assert set(kinds.values()) >= {"short", "silent", "broken"}
    lines = account(tmp_path / "in", kinds, tmp_path / "out")
    assert not [line for line in lines if line.startswith("FAULT")]
    assert lines[1].startswith("accounted for: 40 of 40")


def test_memory_is_compared_with_jobs_of_a_few_taken_at_even_distances():
    kinds = {f"{number // 50:02d}/file{number:03d}": "short" for number in range(200)}
    names = sorted(kinds)
    sets = cross_sections(kinds)
    assert len(sets) == SETS
    assert sets[0] == names[0::10]
    assert sets[1] == names[2::10]
    assert {len(some) for some in sets} == {FEW}
    assert len({name for some in sets for name in some}) == SETS * FEW
