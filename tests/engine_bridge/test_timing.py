"""Seconds of stages: nested, side by side, and across threads."""

import threading
import time

import pytest

from engine_bridge.timing import TimingContext, snapshot

STEP = 0.05
SLACK = 0.04


def close_to(seconds):
    return pytest.approx(seconds, abs=SLACK)


class TestOneThread:
    def test_a_stage_counts_the_time_in_its_block(self):
        timing = TimingContext()
        with timing.stage("split"):
            time.sleep(STEP)
        taken = timing.snapshot()["split"]
        assert (taken.busy, taken.wall, taken.times, taken.parallel) == (close_to(STEP), taken.busy, 1, 1)

    def test_a_stage_within_another_is_not_counted_twice(self):
        timing = TimingContext()
        with timing.stage("split"):
            time.sleep(STEP)
            with timing.stage("decode audio"):
                time.sleep(4 * STEP)
            time.sleep(STEP)
        seconds = timing.seconds()
        assert seconds == {"split": close_to(2 * STEP), "decode audio": close_to(4 * STEP)}

    def test_a_stage_that_fails_counts_and_ends(self):
        timing = TimingContext()
        with pytest.raises(ValueError, match="broken"), timing.stage("split"):
            raise ValueError("broken")
        before = timing.seconds()
        time.sleep(STEP)
        assert timing.seconds() == before

    def test_a_stage_under_way_counts_up_to_now(self):
        timing = TimingContext()
        with timing.stage("split"):
            time.sleep(STEP)
            assert timing.seconds()["split"] >= STEP

    def test_stages_are_listed_in_the_order_that_was_asked_for(self):
        timing = TimingContext(("features", "encode"))
        with timing.stage("align"):
            pass
        assert list(timing.seconds()) == ["features", "encode", "align"]
        assert timing.seconds()["encode"] == 0.0


class TestSideBySide:
    def test_work_adds_up_and_the_clock_does_not(self):
        timing = TimingContext()
        together = threading.Barrier(3)

        def work():
            together.wait()
            with timing.stage("encode"):
                together.wait()
                time.sleep(2 * STEP)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = timing.snapshot()["encode"]
        assert taken.times == taken.parallel == 3
        assert taken.busy > 2.5 * taken.wall
        assert timing.seconds() == {"encode": taken.busy, "encode (wall)": taken.wall}

    def test_each_thread_nests_on_its_own(self):
        timing = TimingContext()
        inside, leave = threading.Event(), threading.Event()

        def other():
            with timing.stage("decode audio"):
                inside.set()
                leave.wait()

        thread = threading.Thread(target=other)
        with timing.stage("split"):
            thread.start()
            inside.wait()
            time.sleep(STEP)
            assert timing.seconds()["split"] >= STEP
        leave.set()
        thread.join()

    def test_a_span_ends_in_another_thread_and_only_once(self):
        timing = TimingContext()
        first, second = timing.span("recover"), timing.span("recover")
        time.sleep(STEP)
        thread = threading.Thread(target=first.end)
        thread.start()
        thread.join()
        first.end()
        time.sleep(STEP)
        second.end()
        taken = timing.snapshot()["recover"]
        assert taken.busy >= 3 * STEP
        assert taken.wall == close_to(2 * STEP)


def test_a_parent_receives_everything():
    parent = TimingContext()
    for _ in range(2):
        with TimingContext(parent=parent).stage("encode"):
            time.sleep(STEP)
    assert parent.snapshot()["encode"].times == 2
    assert parent.seconds()["encode"] >= 2 * STEP


def test_the_process_knows_what_every_transcription_took():
    from engine_bridge import transcribe
    from engine_bridge.testing import FakeEngine
    from tests.tones import Recording, hear

    before = snapshot()
    engine = FakeEngine(hear)
    transcribe(Recording().phrases(2).source, engine=engine)
    engine.close()
    after = snapshot()
    for stage in ("decode audio", "split", "check"):
        assert after[stage].times > (before[stage].times if stage in before else 0)
