"""The parts of `bench.gpu` that need no GPU, and what it says where there is none."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile

from bench.gpu import (
    Measured,
    Utilisation,
    gpu_problem,
    grown,
    limiting_stage,
    write_recording,
    write_tokenizer,
)
from engine_bridge.timing import CHECK, DECODE_AUDIO, SPLIT, WAIT, StageSeconds

ROOT = Path(__file__).resolve().parents[2]


def put_nvidia_smi(folder, monkeypatch, script):
    """Put a command of that name before all others."""
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def stage(wall, busy=None):
    return StageSeconds(busy=wall if busy is None else busy, wall=wall, times=1, parallel=1)


def test_without_a_gpu_it_says_why_it_measures_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "bench.gpu: skipped, for there is no CUDA GPU here: nvidia-smi is not installed\n"


def test_a_driver_that_sees_no_gpu_is_quoted(tmp_path, monkeypatch):
    put_nvidia_smi(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6")
    assert gpu_problem() == "there is no CUDA GPU here: nvidia-smi says 'No devices were found'"


def test_a_gpu_is_no_problem(tmp_path, monkeypatch):
    put_nvidia_smi(tmp_path, monkeypatch, "echo 'GPU 0: NVIDIA H200'")
    assert gpu_problem() is None


def test_utilisation_is_the_mean_of_whole_samples(tmp_path, monkeypatch):
    put_nvidia_smi(tmp_path, monkeypatch, "printf '80\\n[N/A]\\n100\\n5'; touch sampled; exec sleep 20")
    monkeypatch.chdir(tmp_path)
    with Utilisation() as utilisation:
        while not (tmp_path / "sampled").exists():
            time.sleep(0.01)
    assert utilisation.mean == 90


def test_no_sample_is_no_utilisation(tmp_path, monkeypatch):
    put_nvidia_smi(tmp_path, monkeypatch, "exit 1")
    with Utilisation() as utilisation:
        pass
    assert utilisation.mean is None


@pytest.mark.parametrize(
    ("stages", "limit"),
    [
        ({DECODE_AUDIO: stage(80), SPLIT: stage(15), WAIT: stage(98), "engine": stage(99, 400)}, DECODE_AUDIO),
        ({DECODE_AUDIO: stage(10), SPLIT: stage(85), WAIT: stage(98), "engine": stage(99, 400)}, SPLIT),
        ({DECODE_AUDIO: stage(10), CHECK: stage(95), WAIT: stage(3), "engine": stage(99, 400)}, CHECK),
        ({DECODE_AUDIO: stage(10), WAIT: stage(98), "prepare": stage(97, 700), "engine": stage(99, 400)}, "prepare"),
        ({DECODE_AUDIO: stage(10), WAIT: stage(98), "prepare": stage(20, 20), "engine": stage(99, 400)}, "engine"),
        ({DECODE_AUDIO: stage(10), WAIT: stage(89)}, WAIT),
    ],
)
def test_the_stage_that_limits_is_the_one_that_others_wait_for(stages, limit):
    assert limiting_stage(stages, 100.0) == limit


def test_only_what_was_done_between_two_snapshots_counts():
    before = {"encode": StageSeconds(5.0, 4.0, 3, 2), "align": StageSeconds(1.0, 1.0, 1, 1)}
    after = {**before, "encode": StageSeconds(9.0, 6.0, 5, 2), "split": StageSeconds(2.0, 2.0, 4, 1)}
    assert grown(before, after) == {"encode": StageSeconds(4.0, 2.0, 2, 2), "split": StageSeconds(2.0, 2.0, 4, 1)}


def test_a_row_names_speed_utilisation_and_the_limit():
    stages = {DECODE_AUDIO: stage(1), "engine": stage(10, 40)}
    row, told = Measured("vLLM", 720.4, 91.6, stages, 10.0, 1.0).lines()
    assert row == "| vLLM | 720 | 92 % | engine | 1.00 |"
    assert "engine 40.0 (on the clock 10.0)" in told


def test_the_recording_has_the_length_that_is_asked_for(tmp_path):
    path = write_recording(tmp_path / "long.flac", 7.5)  # the sample has 7 minutes
    assert soundfile.info(path).duration == pytest.approx(450)
    samples, rate = soundfile.read(path)
    assert abs(samples[-20 * rate :]).max() > 0.05


def test_the_vocabulary_is_as_large_as_that_of_large_v3(tmp_path):
    special = write_tokenizer(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    numbers = [*tokenizer["model"]["vocab"].values(), *special.values()]
    assert sorted(numbers) == list(range(51_866))
    # Where OpenAI's has them.
    assert special["<|startoftranscript|>"] == 50_258
    assert special["<|yue|>"] == 50_358
    assert special["<|transcribe|>"] == 50_360
    assert special["<|0.00|>"] == 50_365
