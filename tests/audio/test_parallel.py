"""A recording decoded in several places at once is the recording decoded from beginning to end."""

import io
import threading
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import soundfile

from audio import DecodeError, UnreadableAudioError, open_decoder, open_stream
from audio.decoders.auto import BACKENDS
from audio.decoders.base import DecoderBase
from audio.info import AudioInfo, StreamInfo
from audio.parallel import STRETCH_SECONDS, ParallelDecoder, fits, in_parallel, stretch_frames
from audio.selection import EVERYTHING, Selection
from audio.source import Source

RATE = 800
SECONDS = 100
NOISE = np.random.default_rng(5).uniform(-0.5, 0.5, (RATE * SECONDS, 1)).astype(np.float32)


class ArrayBackend(DecoderBase):
    """A decoder of known samples that counts what it decodes, and may be told to go wrong behind a seek."""

    opened = 0
    open_now = 0
    most_open = 0
    lock = threading.Lock()

    def __init__(self, samples, wanted=EVERYTHING, *, claimed=None, shift=0, fails_at=None):
        start = max(wanted.frames(RATE)[0] - RATE, 0)
        seconds = len(samples) / RATE if claimed is None else claimed
        streams = (StreamInfo(0, "pcm", RATE, 1, default=True),)
        super().__init__(AudioInfo("array", "pcm", RATE, 1, None, seconds, 0.0, streams, "array", offset=start))
        self._samples = samples[start + (shift if start else 0) :]
        self._left = None if fails_at is None else fails_at - start
        with self.lock:
            type(self).open_now += 1
            type(self).most_open = max(self.most_open, self.open_now)

    def blocks(self):
        for start in range(0, len(self._samples), RATE):
            if self._left is not None and start >= self._left:
                raise UnreadableAudioError("<test>", "it breaks here")
            yield self._samples[start : start + RATE]

    def close(self):
        with self.lock:
            type(self).open_now -= 1


def joined(samples=NOISE, workers=2, **faults):
    """What several workers make of samples, and the decoder."""
    first = ArrayBackend(samples, claimed=faults.get("claimed"))
    decoder = ParallelDecoder(
        first, lambda wanted: ArrayBackend(samples, wanted, **faults), EVERYTHING, workers, "<test>"
    )
    return np.concatenate(list(decoder.blocks())), decoder


@pytest.mark.parametrize("seconds", [61, 90, 90.05, 90.1, 90.11, 99.99])
@pytest.mark.parametrize("workers", [2, 3])
def test_stretches_join_to_the_whole_whatever_the_length(seconds, workers):
    samples = NOISE[: round(seconds * RATE)]
    found, _ = joined(samples, workers)
    assert np.array_equal(found, samples)


@pytest.mark.parametrize("claimed", [62, 89, 150, 100_000])
def test_a_claimed_length_that_is_wrong_loses_and_adds_nothing(claimed):
    found, _ = joined(claimed=claimed)
    assert np.array_equal(found, NOISE)


@pytest.mark.parametrize("shift", [1, 7, 1000])
def test_where_seeking_lands_beside_the_place_the_recording_is_decoded_in_order(shift):
    found, _ = joined(shift=shift)
    assert np.array_equal(found, NOISE)


def test_what_precedes_a_failure_is_given_to_the_last_stretch():
    first = ArrayBackend(NOISE)
    decoder = ParallelDecoder(
        first, lambda wanted: ArrayBackend(NOISE, wanted, fails_at=70 * RATE), EVERYTHING, 2, "<test>"
    )
    got = []
    with pytest.raises(DecodeError, match="it breaks here"):
        got.extend(decoder.blocks())
    assert np.array_equal(np.concatenate(got), NOISE[: 2 * STRETCH_SECONDS * RATE])


def test_no_more_stretches_are_open_than_there_are_workers():
    ArrayBackend.most_open = ArrayBackend.open_now = 0
    joined(np.tile(NOISE, (5, 1)), workers=3)
    assert 1 <= ArrayBackend.most_open <= 3 + 1  # and the decoder of the whole


class Entered(ArrayBackend):
    """One that can be sent to another place, and counts how often it was opened."""

    opened = 0

    def __init__(self, wanted):
        super().__init__(NOISE, wanted)
        type(self).opened += 1

    def enter(self, selection):
        start = selection.frames(RATE)[0]
        if start >= 90 * RATE:
            return False
        self._info = replace(self._info, offset=start)
        self._samples = NOISE[start:]
        return True


def test_a_decoder_goes_on_to_the_next_stretch_where_it_can():
    Entered.opened = Entered.open_now = 0
    decoder = ParallelDecoder(ArrayBackend(NOISE), Entered, EVERYTHING, 2, "<test>")
    assert np.array_equal(np.concatenate(list(decoder.blocks())), NOISE)
    assert 2 <= Entered.opened <= 3  # two threads, and once where it could not
    assert Entered.open_now == 0


@pytest.mark.parametrize("backend", ["soundfile", "pyav"])
def test_backends_go_from_range_to_range_and_not_to_the_beginning(backend):
    data = real_file("FLAC", "PCM_16")
    with open_decoder(data, backend) as decoder:
        whole = np.concatenate(list(decoder.blocks()))
    with BACKENDS[backend].open(Source.of(data), Selection(start=20.0)) as decoder:
        for start in (50.0, 30.0, 94.0):
            next(decoder.blocks())
            assert decoder.enter(Selection(start=start))
            assert decoder.info.offset <= start * 8000
            found = np.concatenate(list(islice(decoder.blocks(), 5)))
            assert np.array_equal(found, whole[decoder.info.offset :][: len(found)])
        assert not decoder.enter(Selection(start=0.5))


def test_leaving_early_ends_the_threads():
    before = set(threading.enumerate())
    first = ArrayBackend(NOISE)
    decoder = ParallelDecoder(first, lambda wanted: ArrayBackend(NOISE, wanted), EVERYTHING, 2, "<test>")
    blocks = decoder.blocks()
    next(blocks)
    blocks.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("selection", [Selection(start=1.0), Selection(timeline="container")])
def test_a_range_and_a_clock_with_holes_are_decoded_in_order(selection):
    first = ArrayBackend(NOISE)
    assert in_parallel(first, ArrayBackend, selection, 2, "<test>") is first


def test_one_worker_and_a_short_recording_are_decoded_in_order():
    first, short = ArrayBackend(NOISE), ArrayBackend(NOISE[: 59 * RATE])
    assert in_parallel(first, ArrayBackend, EVERYTHING, 1, "<test>") is first
    assert in_parallel(short, ArrayBackend, EVERYTHING, 2, "<test>") is short


@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (48_000, 2), (192_000, 8), (768_000, 64)])
def test_a_stretch_is_bounded_in_memory(rate, channels):
    frames = stretch_frames(rate, channels)
    assert 0 < frames * channels * 4 <= 1 << 24
    assert frames <= STRETCH_SECONDS * rate


def test_audio_fits_itself_and_not_its_neighbour():
    tail = NOISE[:80]
    assert fits(tail, tail.copy())
    assert fits(tail, tail + np.float32(1e-4))
    assert not fits(tail, NOISE[1:81])
    assert not fits(tail, tail[:79])


@pytest.mark.parametrize(("workers", "backend"), [(0, "auto"), (-1, "soundfile")])
def test_fewer_than_one_worker_is_refused(workers, backend):
    with pytest.raises(ValueError, match="give at least 1"):
        open_decoder((NOISE, RATE), backend, workers=workers)


def real_file(container, subtype):
    """A minute and a half of noise under a slow swell, at a low rate, so that it is quickly made."""
    swell = 0.2 + 0.8 * np.abs(np.sin(np.linspace(0, 40, 8000 * 95)))
    noise = np.random.default_rng(3).uniform(-0.4, 0.4, 8000 * 95)
    file = io.BytesIO()
    soundfile.write(file, (swell * noise).astype(np.float32), 8000, format=container, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(
    ("container", "subtype", "backend"),
    [
        ("WAV", "PCM_16", "soundfile"),
        ("FLAC", "PCM_16", "soundfile"),
        ("FLAC", "PCM_16", "pyav"),
        ("MP3", "MPEG_LAYER_III", "soundfile"),
        ("MP3", "MPEG_LAYER_III", "pyav"),
        ("OGG", "VORBIS", "soundfile"),
        ("OGG", "VORBIS", "pyav"),
    ],
)
def test_two_workers_give_what_one_gives(container, subtype, backend):
    data = real_file(container, subtype)
    recordings = []
    for workers in (1, 2):
        with open_stream(data, backend=backend, workers=workers) as stream:
            recordings.append(np.concatenate(list(stream)))
    one, two = recordings
    assert len(one) == len(two)
    if container in ("WAV", "FLAC"):
        assert np.array_equal(one, two)
    else:
        assert np.abs(one - two).max() < 1e-4


@pytest.mark.parametrize("damaged_at", [0.3, 0.45, 0.8])
def test_a_damaged_file_gives_with_two_workers_what_it_gives_with_one(damaged_at):
    data = bytearray(real_file("FLAC", "PCM_16"))
    at = round(damaged_at * len(data))
    data[at : at + 3000] = bytes(3000)
    recordings = []
    for workers in (1, 2):
        with open_decoder(bytes(data), "pyav", workers=workers) as decoder:
            recordings.append(np.concatenate(list(decoder.blocks())))
    assert np.array_equal(*recordings)
