"""Batches as large as memory allows, and what happens where it does not."""

import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest

import engine_bridge.budget as budget
from engine_bridge.budget import BatchBudget, BatchChoice, choose_batch, free_memory, is_out_of_memory
from engine_bridge.engines.embedded import DECODER_BATCH, EmbeddedEngine
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineError

MIB = 1 << 20
SECONDS = 120

MEASURED = """
import numpy as np
import engine_bridge.budget as budget

held = []

def run(clips):
    held.clear()
    held.append(np.ones((20 + 30 * clips) << 20, np.uint8))

budget.free_memory = lambda device: 400 << 20
print(budget.choose_batch(8, workers=1, device="cpu", clip_bound=200 << 20, run=run).clip_bytes)
"""


@pytest.fixture
def free(monkeypatch):
    """Set how much memory is free, in MiB; None for a system that does not tell."""

    def set_free(mib):
        monkeypatch.setattr(budget, "free_memory", lambda device: None if mib is None else mib * MIB)

    return set_free


@pytest.fixture
def taking(monkeypatch):
    """Give a way to run dummy clips that take so many MiB where nothing else moves, and what was run."""

    def make(fixed, each):
        runs, resident = [], [500]

        def run(clips):
            runs.append(clips)
            resident[0] = 500 + fixed + each * clips

        monkeypatch.setattr(budget, "resident_bytes", lambda: resident[0] * MIB)
        return run, runs

    return make


class TestChoice:
    def test_where_memory_is_plenty_nothing_is_measured(self, free, taking):
        free(16_000)
        run, runs = taking(10, 10)
        choice = choose_batch(8, workers=2, device="cpu", clip_bound=200 * MIB, run=run)
        assert (choice.size, choice.measured, runs) == (8, False, [])
        assert str(choice) == "batches of 8 (at most 200 MiB a clip, 16000 MiB free)"

    def test_where_it_may_be_short_dummy_clips_tell_what_a_clip_takes(self, free, taking):
        free(400)
        run, runs = taking(20, 30)
        choice = choose_batch(8, workers=1, device="cpu", clip_bound=200 * MIB, run=run)
        assert runs == [1, 4]
        assert choice.measured
        assert choice.clip_bytes == 30 * MIB
        assert choice.size == (200 - 20) // 30
        assert str(choice) == "batches of 6 (30 MiB a clip, 400 MiB free)"

    def test_what_clips_take_is_seen_in_the_process_s_own_memory(self):
        # In a process of its own: in this one other tests' memory comes and goes.
        measured = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
        assert int(measured.stdout) == pytest.approx(30 * MIB, rel=0.2)

    @pytest.mark.parametrize(("mib", "workers", "least", "most"), [(200, 1, 2, 3), (200, 2, 1, 1), (10, 1, 1, 1)])
    def test_little_memory_and_many_workers_make_small_batches(self, free, taking, mib, workers, least, most):
        free(mib)
        run, _ = taking(20, 30)
        assert least <= choose_batch(8, workers=workers, device="cpu", clip_bound=200 * MIB, run=run).size <= most

    def test_a_dummy_that_does_not_fit_leaves_single_clips(self, free):
        free(400)

        def run(clips):
            raise RuntimeError("CUDA failed with error out of memory")

        assert choose_batch(8, workers=1, device="cpu", clip_bound=200 * MIB, run=run).size == 1

    def test_another_failure_of_a_dummy_is_told(self, free):
        free(400)

        def run(clips):
            raise RuntimeError("broken model")

        with pytest.raises(RuntimeError, match="broken model"):
            choose_batch(8, workers=1, device="cpu", clip_bound=200 * MIB, run=run)

    def test_where_nobody_tells_what_is_free_the_usual_size_is_taken(self, free):
        free(None)
        assert str(choose_batch(8, workers=1, device="cpu", clip_bound=200 * MIB, run=lambda _: None)) == "batches of 8"

    def test_a_device_is_watched_by_what_it_has_left(self, monkeypatch):
        left = itertools.chain([4000, 4000, 3700, 3400], itertools.repeat(3400))
        monkeypatch.setattr(budget, "free_memory", lambda device: next(left) * MIB)
        choice = choose_batch(32, workers=1, device="cuda", clip_bound=1000 * MIB, run=lambda _: None)
        assert (choice.clip_bytes, choice.size) == (100 * MIB, 18)

    def test_what_is_free_here_is_less_than_there_is(self):
        known = free_memory("cpu")
        assert known is None or MIB < known < 1 << 50


class TestRunningOut:
    @pytest.mark.parametrize(
        "error",
        [
            RuntimeError("CUDA failed with error out of memory"),
            RuntimeError("std::bad_alloc"),
            RuntimeError("cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED"),
            OSError(12, "Cannot allocate memory"),
            MemoryError(),
        ],
    )
    def test_it_is_known_by_what_libraries_say(self, error):
        assert is_out_of_memory(error)

    @pytest.mark.parametrize("error", [RuntimeError("no such file"), ValueError("memory"), KeyError("out")])
    def test_other_errors_are_not_taken_for_it(self, error):
        assert not is_out_of_memory(error)

    def test_a_batch_is_halved_until_it_fits_and_no_result_is_lost_or_moved(self):
        batches = []

        def work(batch):
            batches.append(len(batch))
            if len(batch) > 2:
                raise MemoryError
            return [clip * 10 for clip in batch]

        kept = BatchBudget(BatchChoice(8))
        assert kept.process(range(7), work) == [0, 10, 20, 30, 40, 50, 60]
        assert batches == [7, 3, 1, 2, 4, 2, 2]
        assert kept.size == 1
        assert str(kept.choice) == "batches of 1, reduced from 8 when memory ran out"

    def test_a_single_clip_that_does_not_fit_fails(self):
        def work(batch):
            raise MemoryError("one clip is too much")

        with pytest.raises(MemoryError, match="one clip"):
            BatchBudget(BatchChoice(4)).process([1, 2], work)

    def test_many_threads_shrink_one_budget(self):
        kept = BatchBudget(BatchChoice(64))
        threads = [threading.Thread(target=kept.shrink, args=(failed,)) for failed in (64, 16, 32, 8, 40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert kept.size == 4
        assert kept.choice.reduced_from == 64


class TestEmbedded:
    def test_the_size_is_chosen_unless_it_is_given(self, random_whisper):
        for given, size in ((None, DECODER_BATCH), (2, 2)):
            engine = EmbeddedEngine(str(random_whisper), device="cpu", workers=1, batch_size=given)
            engine.close()
            assert engine.preferred_in_flight == 2 * size
            assert f"batches of {size}" in engine.description

    def test_a_small_machine_is_measured_with_real_clips(self, random_whisper, free):
        free(60)
        engine = EmbeddedEngine(str(random_whisper), device="cpu", workers=1)
        engine.close()
        assert 1 <= engine.preferred_in_flight // 2 <= DECODER_BATCH
        assert "MiB a clip, 60 MiB free" in engine.description
        assert "at most" not in engine.description

    def test_clips_are_recognised_all_the_same_when_memory_runs_out(self, random_whisper, monkeypatch):
        engine = EmbeddedEngine(str(random_whisper), device="cpu", workers=1, batch_size=8)
        process, sizes = engine._process, []

        def short_of_memory(batch):
            sizes.append(len(batch))
            if len(batch) > 2:
                raise RuntimeError("CUDA failed with error out of memory")
            return process(batch)

        monkeypatch.setattr(engine, "_process", short_of_memory)
        try:
            clips = [np.full(16_000, 0.01 * number, np.float32) for number in range(6)]
            futures = [engine.submit(clip, DecodingOptions(language="en", timestamps="none")) for clip in clips]
            results = [future.result(SECONDS) for future in futures]
            assert len(results) == 6
            assert max(sizes) > 2
            assert engine._budget.size <= 2
            assert "when memory ran out" in engine.description
            monkeypatch.setattr(engine, "_process", lambda batch: (_ for _ in ()).throw(MemoryError("nothing left")))
            with pytest.raises(EngineError, match="nothing left"):
                engine.submit(clips[0], DecodingOptions(language="en")).result(SECONDS)
        finally:
            engine.close()
