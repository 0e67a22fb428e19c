"""Splitting as a specification: chunks tile the recording, cuts fall in pauses, nothing that is said gets lost."""

import functools
import itertools
import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.errors import SplitError
from audio.split import split_audio, stream_chunks

RATE = 16_000
LOW_RATE = 1000  # for properties: the same frames with a sixteenth of the samples
SPEECH = Path(__file__).resolve().parents[2] / "../shared/data/speech"


@functools.cache
def talk(seconds, level_db=-20.0, seed=0, rate=RATE):
    """A voice-like sound: harmonics of a wavering pitch, in syllables at 4 Hz, loud at both ends."""
    draw = np.random.default_rng(seed)
    at = np.arange(round(seconds * rate)) / rate
    pitch = np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * at + draw.uniform(0, 6))) / rate
    voice = sum(np.sin(2 * np.pi * k * pitch + k) / k for k in range(1, max(3, min(9, rate // 400))))
    voice = voice * (0.2 + np.cos(2 * np.pi * 2 * at) ** 2)
    return (voice * 10 ** (level_db / 20) / np.sqrt(np.mean(voice**2))).astype(np.float32)


def noise(seconds, level_db=-70.0, seed=1, rate=RATE):
    return (np.random.default_rng(seed).standard_normal(round(seconds * rate)) * 10 ** (level_db / 20)).astype(
        np.float32
    )


def conversation(turns, rate=RATE, level_db=-70.0):
    """Turns of (seconds of talk, seconds of pause after it), over faint noise.

    Returns the samples and the (start, stop) of each stretch of talk, in seconds.
    """
    parts, spoken, at = [], [], 0.0
    for turn, (spoken_seconds, pause) in enumerate(turns):
        parts += [talk(spoken_seconds, seed=turn, rate=rate), np.zeros(round(pause * rate), np.float32)]
        spoken.append((at, at + spoken_seconds))
        at += spoken_seconds + pause
    samples = np.concatenate(parts)
    return samples + noise(len(samples) / rate, level_db, rate=rate), spoken


def blocks(samples, size):
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def chunks_of(samples, rate=RATE, size=RATE, **options):
    return list(stream_chunks(blocks(samples, size), rate, **options))


def assert_tiles(chunks, samples, longest):
    """Check what holds for the chunks of any recording."""
    edges = [0, *(chunk.stop for chunk in chunks)]
    assert [(chunk.start, chunk.stop) for chunk in chunks] == list(itertools.pairwise(edges))
    assert edges[-1] == len(samples)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.start < chunk.stop
        assert len(chunk.samples) <= longest
        assert chunk.samples.dtype == np.float32
        kept = [samples[start:stop] for start, stop in chunk.kept]
        assert np.array_equal(chunk.samples, np.concatenate([*kept, np.empty(0, np.float32)]))
        for spans in (chunk.kept, chunk.speech):
            flat = [chunk.start, *itertools.chain.from_iterable(spans), chunk.stop]
            assert flat == sorted(flat)
            assert all(start < stop for start, stop in spans)
        for start, stop in chunk.speech:
            assert any(first <= start and stop <= last for first, last in chunk.kept)


def same(ones, others):
    facts = [[(c.start, c.stop, c.kept, c.speech, c.forced) for c in chunks] for chunks in (ones, others)]
    return facts[0] == facts[1] and all(
        np.array_equal(one.samples, other.samples) for one, other in zip(ones, others, strict=True)
    )


# ---- split_audio --------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 5000),
    st.sampled_from([10, 100, 1000, 1001]),
    st.floats(0.05, 3),
    st.floats(0, 0.99),
    st.integers(1, 700),
    st.booleans(),
)
def test_clips_join_to_the_input_and_keep_the_limit(count, rate, longest, share, window, silent):
    """Some splitters never advance their target (Huanshere/VideoLingo#222), or step by one sample where the overlap is
    as long as a clip (vllm-project/vllm-metal#653).
    """
    samples = np.random.default_rng(count).uniform(-1, 1, count).astype(np.float32) * (not silent)
    overlap = longest * share
    if round(longest * rate) <= round(overlap * rate):
        with pytest.raises(SplitError):
            split_audio(samples, rate, longest, overlap, window)
        return
    clips = split_audio(samples, rate, longest, overlap, window)
    assert np.array_equal(np.concatenate([*clips, np.empty(0, np.float32)]), samples)
    assert all(1 <= len(clip) <= round(longest * rate) for clip in clips)
    least = round(longest * rate) - round(overlap * rate)
    assert all(len(clip) >= least for clip in clips[:-1])


@pytest.mark.parametrize("quiet_window", range(10))
def test_every_window_of_the_search_counts_even_the_last(quiet_window):
    """vLLM's search ends one window early: the quiet last tenth of a second is never looked at (vllm#52927)."""
    samples = np.full(40 * RATE, 0.5, np.float32)
    start = 29 * RATE + quiet_window * 1600
    samples[start : start + 1600] = 0.0
    clips = split_audio(samples, RATE, 30, 1, 1600)
    assert len(clips[0]) == start + 800  # the middle of the window


def test_the_first_of_equally_quiet_windows_counts():
    clips = split_audio(np.zeros(40 * RATE, np.float32), RATE, 30, 1, 1600)
    assert [len(clip) for clip in clips] == [29 * RATE + 800, 40 * RATE - 29 * RATE - 800]


@pytest.mark.parametrize("count", [0, 1, 479_999, 480_000])
def test_what_fits_is_not_cut(count):
    clips = split_audio(np.ones(count, np.float32), RATE, 30, 1, 1600)
    assert [len(clip) for clip in clips] == ([count] if count else [])


def test_without_a_search_range_the_clips_are_full():
    assert [len(clip) for clip in split_audio(np.ones(2500, np.float32), 1000, 1, 0, 10)] == [1000, 1000, 500]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((RATE, 30, 30, 1600), "overlap_duration_s must be .* less than max_clip_duration_s"),
        ((RATE, 30, 45, 1600), "overlap_duration_s"),
        ((RATE, 30, -1, 1600), "overlap_duration_s"),
        ((RATE, 0, 0, 1600), "max_clip_duration_s must be a positive number"),
        ((RATE, math.inf, 1, 1600), "max_clip_duration_s"),
        ((0, 30, 1, 1600), "sample_rate must be a positive number"),
        ((RATE, 30, 1, 0), "min_energy_window_size must be at least 1"),
        ((10, 0.04, 0.01, 1), "allow longer clips"),
    ],
)
def test_lengths_that_cannot_be_satisfied_are_refused(arguments, reason):
    with pytest.raises(SplitError, match=reason):
        split_audio(np.zeros(100, np.float32), *arguments)


def test_split_audio_takes_one_channel_only():
    with pytest.raises(SplitError, match=r"shape \(2, 100\): reduce the channels first"):
        split_audio(np.zeros((2, 100), np.float32), RATE, 30, 1, 1600)


def test_integers_do_not_overflow_in_the_energies():
    samples = np.full(4000, 30_000, np.int16)
    samples[1500:1600] = 100
    assert len(split_audio(samples, 1000, 2, 1, 100)[0]) == 1550


# ---- tiling -------------------------------------------------------------------------------------------------------


@st.composite
def recordings(draw):
    """Talk and pauses of any lengths, with the odd sample at the end."""
    turns = draw(st.lists(st.tuples(st.floats(0.05, 12), st.floats(0.01, 25)), max_size=12))
    extra = draw(st.integers(0, 11))
    if not turns:
        return noise(extra / LOW_RATE, rate=LOW_RATE)
    return np.concatenate([conversation(turns, LOW_RATE)[0], noise(extra / LOW_RATE, rate=LOW_RATE)])


@settings(max_examples=60)
@given(
    recordings(),
    st.integers(1, 100_000),
    st.sampled_from([0.5, 3.0, 10.0, 30.0]),
    st.sampled_from([None, 0.0, 0.1, 0.5]),
    st.sampled_from([None, 0.0, 0.4, 1.0, 30.0]),
)
def test_chunks_tile_any_recording(samples, size, longest, least_share, keep_silence):
    options = {
        "max_duration": longest,
        "min_duration": None if least_share is None else least_share * longest,
        "keep_silence": keep_silence,
    }
    chunks = chunks_of(samples, LOW_RATE, max(size, len(samples) // 200, 1), **options)
    assert_tiles(chunks, samples, longest * LOW_RATE)
    if least_share and keep_silence is None:
        assert all(len(chunk.samples) >= least_share * longest * LOW_RATE - 1 for chunk in chunks[:-1])
    if keep_silence is None:
        assert all(chunk.kept == ((chunk.start, chunk.stop),) for chunk in chunks)


@settings(max_examples=40)
@given(recordings(), st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.sampled_from([None, 0.5]))
def test_chunks_do_not_depend_on_the_blocks(samples, sizes, keep_silence):
    def uneven():
        at = 0
        for size in itertools.cycle([*sizes, 1 + len(samples) // 50]):
            if at >= len(samples):
                return
            yield samples[at : at + size]
            at += size

    options = {"max_duration": 5.0, "keep_silence": keep_silence}
    whole = list(stream_chunks([samples], LOW_RATE, **options))
    assert same(list(stream_chunks(uneven(), LOW_RATE, **options)), whole)


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_recording_about_as_long_as_a_chunk(rate, off):
    count = 3 * rate + off
    chunks = chunks_of(noise(4, rate=rate)[:count], rate, max_duration=3.0)
    assert len(chunks) == (2 if off > 0 else 1)
    assert_tiles(chunks, noise(4, rate=rate)[:count], 3 * rate)


@pytest.mark.parametrize("keep_silence", [None, 1.0])
def test_nothing_gives_no_chunks(keep_silence):
    assert list(stream_chunks([], RATE, keep_silence=keep_silence)) == []
    assert list(stream_chunks([np.empty(0, np.float32)] * 3, RATE, keep_silence=keep_silence)) == []


def test_one_sample_is_a_chunk():
    (chunk,) = stream_chunks([np.array([0.5], np.float32)], RATE)
    assert (chunk.start, chunk.stop, chunk.kept) == (0, 1, ((0, 1),))
    assert chunk.samples.tolist() == [0.5]


def test_a_block_may_be_overwritten_once_the_next_is_asked_for():
    samples, _ = conversation([(8, 0.5)] * 5, LOW_RATE)

    def reused():
        buffer = np.empty(777, np.float32)
        for block in blocks(samples, 777):
            buffer[: len(block)] = block
            yield buffer[: len(block)]
            buffer[:] = np.nan

    assert same(list(stream_chunks(reused(), LOW_RATE)), chunks_of(samples, LOW_RATE))


def test_a_recording_in_one_array_is_not_copied():
    samples, _ = conversation([(8, 0.5)] * 30, LOW_RATE)
    chunks = list(stream_chunks([samples], LOW_RATE))
    assert same(chunks, chunks_of(samples, LOW_RATE))
    assert sum(np.shares_memory(chunk.samples, samples) for chunk in chunks) >= 4


@pytest.mark.parametrize("keep_silence", [None, 0.5])
def test_short_and_long_blocks_mix(keep_silence):
    samples, _ = conversation([(8, 0.5), (3, 4)] * 40, LOW_RATE)
    edges = [0, 10, 70_000, 70_001, 200_000, 250_000, 380_000, len(samples)]
    mixed = [samples[start:stop] for start, stop in itertools.pairwise(edges)]
    whole = list(stream_chunks([samples], LOW_RATE, keep_silence=keep_silence))
    assert same(list(stream_chunks(mixed, LOW_RATE, keep_silence=keep_silence)), whole)
    aligned = [samples[:60_000], samples[60_000:60_500], samples[60_500:120_000], samples[120_000:]]
    assert same(list(stream_chunks(aligned, LOW_RATE, keep_silence=keep_silence)), whole)


def test_double_precision_is_taken_and_given_as_single():
    samples, _ = conversation([(2, 0.5)], LOW_RATE)
    (chunk,) = stream_chunks([samples.astype(np.float64)], LOW_RATE)
    assert np.array_equal(chunk.samples, samples)
    assert chunk.samples.dtype == np.float32


def test_broken_samples_pass_through():
    samples, _ = conversation([(20, 0.5)] * 3, LOW_RATE)
    samples[5000:5100] = np.nan
    samples[9000] = np.inf
    chunks = chunks_of(samples, LOW_RATE)
    assert np.array_equal(np.concatenate([chunk.samples for chunk in chunks]), samples, equal_nan=True)


# ---- where the cuts fall ------------------------------------------------------------------------------------------


def inside(position, stretches, margin=0.0):
    return any(start + margin < position < stop - margin for start, stop in stretches)


def cuts_of(chunks):
    return [chunk.stop_seconds for chunk in chunks[:-1]]


def test_cuts_fall_in_the_middle_of_pauses():
    samples, spoken = conversation([(6.3, 0.8)] * 20)
    chunks = chunks_of(samples)
    middles = [stop + 0.4 for _, stop in spoken]
    assert len(chunks) == 5
    for cut in cuts_of(chunks):
        assert min(abs(cut - middle) for middle in middles) < 0.1
    assert not any(chunk.forced for chunk in chunks)


def test_the_longest_pause_is_preferred_to_the_latest():
    # Short pauses everywhere, a long one 8 s before the limit.
    turns = [(2.75, 0.25)] * 7 + [(2.0, 1.0)] + [(2.75, 0.25)] * 5
    samples, spoken = conversation(turns)
    cut, *_ = cuts_of(chunks_of(samples))
    assert spoken[7][1] < cut < spoken[8][0]


def test_a_pause_of_a_fifth_of_a_second_is_used_where_it_is_the_only_one():
    """Minimum silences that are wired in let talk run on and then cut a word (silero-vad#664, faster-whisper#1386)."""
    samples, spoken = conversation([(13, 0.2), (14, 0.2), (13.5, 0.2), (12, 0.2), (13, 0.2)])
    chunks = chunks_of(samples)
    assert not any(inside(cut, spoken) for cut in cuts_of(chunks))
    assert not any(chunk.forced for chunk in chunks)


def test_talk_without_a_pause_is_cut_by_force_and_says_so():
    """Cross-talk gives detectors minutes of speech in one piece: the limit holds all the same."""
    samples = talk(100) + noise(100)
    chunks = chunks_of(samples)
    assert_tiles(chunks, samples, 30 * RATE)
    assert len(chunks) == 4
    assert [chunk.forced for chunk in chunks] == [True, True, True, False]
    for cut in cuts_of(chunks):  # between two syllables: they are loudest at 0, 0.25, 0.5 ...
        assert abs((cut * 4) % 1 - 0.5) < 0.25


def test_after_a_forced_cut_pauses_are_used_again():
    samples, spoken = conversation([(40, 0.6), (10, 0.6), (12, 0.6), (10, 0.6)])
    chunks = chunks_of(samples)
    assert chunks[0].forced
    assert not any(inside(cut, spoken[1:]) for cut in cuts_of(chunks))


def test_speech_is_reported_where_it_is():
    samples, spoken = conversation([(3.2, 1.2)] * 16)
    chunks = chunks_of(samples)
    found = [(start / RATE, stop / RATE) for chunk in chunks for start, stop in chunk.speech]
    assert len(found) == len(spoken)
    for (start, stop), (true_start, true_stop) in zip(found, spoken, strict=True):
        assert true_start - 0.1 <= start <= true_start + 0.05
        assert true_stop - 0.05 <= stop <= true_stop + 0.3


def test_quiet_speakers_are_kept_beside_loud_ones():
    """A fixed threshold drops the speaker who is 18 dB further away (silero-vad#366)."""
    parts = []
    for turn in range(16):
        parts += [talk(3, -18 if turn % 2 else -38, seed=turn), np.zeros(RATE, np.float32)]
    samples = np.concatenate(parts)
    samples += noise(len(samples) / RATE)
    chunks = chunks_of(samples, keep_silence=0.5)
    spans = [(start / RATE, stop / RATE) for chunk in chunks for start, stop in chunk.speech]
    for turn in range(16):
        assert any(start <= turn * 4 + 0.1 and turn * 4 + 2.9 <= stop for start, stop in spans)


def test_cuts_fall_between_words_under_music():
    """Silence-only cuts fail under a music bed, fixed cuts split words (CrispStrobe/CrispASR#7)."""
    samples, spoken = conversation([(6.5, 1.5)] * 14)
    at = np.arange(len(samples)) / RATE
    notes = np.repeat(np.random.default_rng(3).choice([110.0, 131.0, 165.0, 196.0], 400), RATE // 2)[: len(at)]
    bed = sum(np.sin(2 * np.pi * k * np.cumsum(notes) / RATE) / k for k in (1, 2, 3)) * np.exp(-3 * (at % 0.5))
    chunks = chunks_of((samples + 0.02 * bed).astype(np.float32))
    assert len(chunks) >= 4
    assert not any(inside(cut, spoken) for cut in cuts_of(chunks))


def test_least_and_greatest_duration_hold_together():
    """Audiobook listeners want sections of at least and at most so long, cut in silence (mp3splt/mp3splt#51)."""
    samples, spoken = conversation([(1.3, 0.7)] * 200, LOW_RATE)
    chunks = chunks_of(samples, LOW_RATE, min_duration=40.0, max_duration=90.0)
    assert all(40 <= chunk.duration <= 90 for chunk in chunks)
    assert not any(inside(cut, spoken) for cut in cuts_of(chunks))


@pytest.mark.parametrize("longest", [5.0, 10.0, 20.0, 30.0])
def test_no_length_of_chunk_skips_the_beginning(longest):
    """Merging to 30 s has lost the first 20 s of a file that merging to 20 s kept (whisperX#574)."""
    samples, spoken = conversation([(2.5, 0.4), (1.0, 3.0), (4.0, 0.7)] * 8)
    for keep_silence in (None, 0.5):
        chunks = chunks_of(samples, max_duration=longest, keep_silence=keep_silence)
        kept = [(a / RATE, b / RATE) for chunk in chunks for a, b in chunk.kept]
        joined = [kept[0]]
        for start, stop in kept[1:]:
            if start == joined[-1][1]:
                joined[-1] = (joined[-1][0], stop)
            else:
                joined.append((start, stop))
        assert all(any(a <= start and stop <= b for a, b in joined) for start, stop in spoken)


# ---- silence left out ---------------------------------------------------------------------------------------------


def test_long_pauses_are_shortened_and_several_turns_share_a_chunk():
    samples, spoken = conversation([(4, 20)] * 10)
    chunks = chunks_of(samples, keep_silence=1.0)
    assert_tiles(chunks, samples, 30 * RATE)
    assert len(chunks) == 2
    spans = [(start / RATE, stop / RATE) for chunk in chunks for start, stop in chunk.kept]
    assert len(spans) == len(spoken)
    for (start, stop), (true_start, true_stop) in zip(spans, spoken, strict=True):
        assert max(true_start - 0.65, 0) <= start <= max(true_start - 0.45, 0)
        assert true_stop + 0.45 <= stop <= true_stop + 0.85
    assert 4 + 24 * 4 < cuts_of(chunks)[0] < 24 * 6  # the cut lies in a pause too
    assert not inside(cuts_of(chunks)[0], spoken)


def test_pauses_no_longer_than_that_are_left_alone():
    samples, _ = conversation([(3, 0.9)] * 10)
    assert all(len(chunk.kept) == 1 for chunk in chunks_of(samples, keep_silence=1.0)[:-1])


def test_even_without_silence_speech_keeps_a_margin():
    samples, spoken = conversation([(3, 5)] * 6)
    chunks = chunks_of(samples, keep_silence=0.0)
    spans = [(start / RATE, stop / RATE) for chunk in chunks for start, stop in chunk.kept]
    for (start, stop), (true_start, true_stop) in zip(spans, spoken, strict=True):
        assert max(true_start - 0.3, 0) <= start <= max(true_start - 0.08, 0)
        assert true_stop + 0.08 <= stop <= true_stop + 0.5


@pytest.mark.parametrize("level", [-120.0, -60.0, -35.0])
@pytest.mark.parametrize("seconds", [0.5, 29, 400])
def test_a_recording_of_room_noise_holds_nothing_to_recognise(level, seconds):
    """An almost silent chunk, filled up to 30 s, makes text appear (cjpais/Handy#1229)."""
    samples = noise(seconds, level)
    (chunk,) = chunks_of(samples, keep_silence=1.0)
    assert_tiles([chunk], samples, 0)
    assert (chunk.kept, chunk.speech) == ((), ())


def test_a_silent_recording_has_chunks_but_no_speech():
    """Some splitters raise when nothing but silence comes in (jiaaro/pydub#482)."""
    samples = np.zeros(100 * RATE, np.float32)
    chunks = chunks_of(samples)
    assert_tiles(chunks, samples, 30 * RATE)
    assert len(chunks) == 4
    assert all(chunk.speech == () and not chunk.forced for chunk in chunks)


def test_a_very_long_silence_is_a_chunk_of_its_own():
    samples, spoken = conversation([(5, 300), (5, 2)])
    before, silence, after = chunks_of(samples, keep_silence=1.0)
    assert_tiles([before, silence, after], samples, 30 * RATE)
    assert silence.kept == ()
    assert len(silence.samples) == 0
    assert silence.duration > 295
    assert before.stop_seconds > spoken[0][1] + 0.45
    assert after.start_seconds < spoken[1][0] - 0.45


def test_times_in_a_chunk_lead_back_to_the_recording():
    samples, spoken = conversation([(3, 12)] * 4)
    (chunk,) = chunks_of(samples, keep_silence=1.0)
    for frame in range(0, len(chunk.samples), 1999):
        assert chunk.samples[frame] == samples[chunk.recording_position(frame)]
    third = next(at for at in range(len(chunk.samples)) if chunk.recording_position(at) >= spoken[2][0] * RATE)
    assert third < 12 * RATE


# ---- streams ------------------------------------------------------------------------------------------------------


def test_chunks_come_while_the_recording_runs():
    consumed = 0

    def running():
        nonlocal consumed
        for _ in range(120):
            samples, _spoken = conversation([(4.2, 0.8)] * 6, LOW_RATE)
            consumed += len(samples)
            yield samples

    first = next(stream_chunks(running(), LOW_RATE))
    assert first.start == 0
    assert consumed < 600 * LOW_RATE


@pytest.mark.parametrize("keep_silence", [None, 1.0])
def test_memory_does_not_grow_with_the_recording(keep_silence):
    turns, _ = conversation([(4.2, 0.8)] * 11 + [(3, 40)], LOW_RATE)  # 98 s

    def peak(repeats):
        tracemalloc.start(1)
        try:
            for chunk in stream_chunks((turns for _ in range(repeats)), LOW_RATE, keep_silence=keep_silence):
                assert len(chunk.samples) <= 30 * LOW_RATE
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(5)  # whatever is imported or cached on the way
    assert peak(60) < 1.2 * peak(12)


# ---- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_duration": 0.0}, "max_duration must be at least 0.1 s"),
        ({"max_duration": math.nan}, "max_duration"),
        ({"max_duration": math.inf}, "max_duration"),
        ({"min_duration": 16.0}, "at most half of max_duration"),
        ({"min_duration": -1.0}, "min_duration must be at least 0"),
        ({"keep_silence": -0.5}, "keep_silence must be 0 to 60 s, or None"),
        ({"keep_silence": 61.0}, "keep_silence"),
    ],
)
def test_options_that_contradict_are_refused_at_the_call(options, reason):
    with pytest.raises(SplitError, match=reason):
        stream_chunks([], RATE, **options)  # not iterated


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_must_be_positive(rate):
    with pytest.raises(SplitError, match="sample_rate must be positive"):
        stream_chunks([], rate)


def test_a_block_with_several_channels_is_refused():
    with pytest.raises(SplitError, match="reduce the channels first"):
        list(stream_chunks([np.zeros((100, 2), np.float32)], RATE))


def test_integer_samples_are_refused():
    with pytest.raises(SplitError, match="int16"):
        list(stream_chunks([np.zeros(100, np.int16)], RATE))


# ---- detectors ----------------------------------------------------------------------------------------------------


class Told:
    """A detector that is told where speech is, in seconds, and answers late."""

    def __init__(self, stretches, late=150):
        self._stretches = stretches
        self._late = late
        self._given = 0
        self._answered = 0

    def feed(self, samples, levels):
        self._given += len(levels)
        return self._until(max(self._given - self._late, self._answered))

    def finish(self):
        return self._until(self._given)

    def _until(self, stop):
        at = np.arange(self._answered, stop) / 100
        self._answered = stop
        return np.any([(start <= at) & (at < end) for start, end in self._stretches], axis=0).astype(np.float32)


def test_another_detector_can_decide_what_speech_is():
    samples = noise(100, -30)
    stretches = [(2.0, 20.0), (22.0, 41.0), (60.0, 75.5)]
    chunks = list(stream_chunks(blocks(samples, 5000), RATE, detector=Told(stretches)))
    assert [(a / RATE, b / RATE) for chunk in chunks for a, b in chunk.speech] == stretches
    assert not any(inside(cut, stretches) for cut in cuts_of(chunks))
    assert not any(chunk.forced for chunk in chunks)


class Miscounting(Told):
    def __init__(self, surplus):
        super().__init__([(0, 1)])
        self._surplus = surplus

    def finish(self):
        return self._until(self._given + self._surplus)


@pytest.mark.parametrize(("surplus", "reason"), [(2, "2 frames too many"), (-3, "left 3 frames unanswered")])
def test_a_detector_that_miscounts_is_reported(surplus, reason):
    with pytest.raises(SplitError, match=reason):
        list(stream_chunks([noise(5)], RATE, detector=Miscounting(surplus)))


# ---- real speech --------------------------------------------------------------------------------------------------


def real(name):
    soundfile = pytest.importorskip("soundfile")
    if not (SPEECH / f"{name}.flac").exists():
        pytest.skip(f"{SPEECH} with recordings and their exact times is absent")
    samples, rate = soundfile.read(SPEECH / f"{name}.flac", dtype="float32")
    assert rate == RATE
    reference = json.loads((SPEECH / f"{name}.json").read_text())
    segments = [(segment["start"], segment["end"]) for segment in reference["segments"]]
    return samples, segments, [tuple(span) for span in reference["speech"]]


@pytest.mark.parametrize("name", ["calls", "dense", "faint", "levels", "music", "noisy", "reading"])
def test_real_speech_is_found_and_never_cut(name):
    samples, segments, speech = real(name)
    chunks = chunks_of(samples)
    assert_tiles(chunks, samples, 30 * RATE)
    cuts = cuts_of(chunks)
    if name != "noisy":  # where dips of less than 0.2 s in a phrase sink into the noise
        assert not any(inside(cut, speech, 0.02) for cut in cuts)
    assert not any(chunk.forced for chunk in chunks)
    if name != "dense":  # where sentences lie no further apart than phrases
        assert sum(inside(cut, segments, 0.02) for cut in cuts) <= 2
    found = [(a / RATE, b / RATE) for chunk in chunks for a, b in chunk.speech]
    covered = sum(max(0.0, min(stop, b) - max(start, a)) for start, stop in speech for a, b in found)
    assert covered >= 0.985 * sum(stop - start for start, stop in speech)
    # Two chunks more than the least possible: the sentences of these recordings last up to 25 s.
    assert len(chunks) <= math.ceil(len(samples) / (30 * RATE)) + 2


@pytest.mark.parametrize("name", ["none-hum", "none-noise", "none-silence"])
def test_real_noise_holds_no_speech(name):
    samples, _, _ = real(name)
    assert all(not chunk.kept and not chunk.speech for chunk in chunks_of(samples, keep_silence=1.0))
