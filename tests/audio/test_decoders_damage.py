"""Damaged and lying files: everything that can be decoded is kept, and what is missing is told."""

import numpy as np
import pytest

from audio.decoders import open_decoder
from audio.errors import UnreadableAudioError
from tests.audio.media import RATE, correlation, decoded, delay, encoded, signal, with_data_size, written

SECONDS = 6.0
SAMPLES = signal(SECONDS)


def mp3(samples=SAMPLES, rate=RATE):
    return encoded(samples, rate, container="mp3", codec="libmp3lame", bit_rate=64_000)


def opened(data, backend="auto"):
    decoder = open_decoder(data, backend)
    return decoded(decoder), decoder.warnings


def told(warnings, *words):
    return any(all(word in warning for word in words) for warning in warnings)


@pytest.mark.parametrize("backend", ["auto", "pyav"])
def test_a_wav_whose_recorder_was_killed_is_read_to_its_end(backend):
    """soundfile gives nothing, without an error, where the header says that there are 0 bytes of samples."""
    found, _ = opened(with_data_size(written(SAMPLES, subtype="PCM_16"), 0), backend)
    assert found.shape == SAMPLES.shape


def test_nothing_from_a_file_that_is_not_empty_is_an_error():
    with pytest.raises(UnreadableAudioError, match="finds no samples"):
        open_decoder(with_data_size(written(SAMPLES, subtype="PCM_16"), 0), "soundfile")


@pytest.mark.parametrize("backend", ["auto", "soundfile", "pyav"])
def test_a_wav_that_claims_days_gives_what_it_holds(backend):
    found, _ = opened(with_data_size(written(SAMPLES, subtype="PCM_16"), 2**32 - 1), backend)
    assert abs(len(found) - len(SAMPLES)) <= 1


@pytest.mark.parametrize("backend", ["auto", "soundfile", "pyav"])
def test_half_an_mp3_gives_half_and_says_so(backend):
    data = mp3()
    found, warnings = opened(data[: len(data) // 2], backend)
    assert len(found) / RATE == pytest.approx(SECONDS / 2, abs=0.15)
    assert told(warnings, "claims", "could be decoded", "truncated")


@pytest.mark.parametrize("backend", ["auto", "pyav"])
def test_a_hole_in_an_mp3_costs_only_itself(backend):
    """Decoders that stop at the first bad frame lost the second half, and skipping by time repeated a part."""
    data = bytearray(mp3())
    middle = len(data) // 2
    data[middle : middle + 1024] = bytes(1024)
    found, warnings = opened(bytes(data), backend)
    assert len(found) / RATE == pytest.approx(SECONDS, abs=0.2)
    assert told(warnings, "damaged packets were skipped")
    assert correlation(found[:RATE], SAMPLES[:RATE]) > 0.98
    # What is lost is lost in the middle: what was recorded before the end stands before the end.
    part = SAMPLES[-RATE // 2 - 1152 : -1152]
    late = delay(found[-RATE:], part, RATE // 2)
    assert correlation(found[-RATE + late :], part) > 0.98


def test_one_backend_goes_on_where_another_fails_without_a_seam():
    whole = written(SAMPLES, container="FLAC", subtype="PCM_16")
    data = bytearray(whole)
    at = 2 * len(data) // 3
    data[at : at + 64] = bytes(64)
    found, warnings = opened(bytes(data))
    alone, _ = opened(bytes(data), "soundfile")
    assert told(warnings, "went on from there")
    assert len(alone) < 0.7 * len(SAMPLES) < 0.85 * len(SAMPLES) < len(found) <= len(SAMPLES)
    expected = decoded(open_decoder(whole))
    same = len(alone)
    np.testing.assert_array_equal(found[:same], expected[:same])
    # Behind the hole the audio is the end of the recording, whole and once.
    np.testing.assert_array_equal(found[-RATE:], expected[-RATE:])


def test_a_named_backend_that_fails_midway_keeps_what_it_has_and_says_where_it_stopped():
    data = bytearray(written(SAMPLES, container="FLAC", subtype="PCM_16"))
    at = 2 * len(data) // 3
    data[at : at + 64] = bytes(64)
    found, warnings = opened(bytes(data), "soundfile")
    assert 2 * RATE < len(found) < len(SAMPLES)
    assert told(warnings, "decoding stopped at", "soundfile")
    assert told(warnings, "claims 6.00 s")


def test_a_header_that_states_too_short_a_length_does_not_end_the_file():
    """Two MP3 files joined by `cat`: the first one's header states half of the length."""
    found, warnings = opened(mp3() + mp3())
    assert len(found) / RATE == pytest.approx(2 * SECONDS, abs=0.15)
    assert told(warnings, "soundfile ends where the header says", "went on from there")


def test_what_went_missing_in_the_middle_is_not_made_up_by_the_end_again():
    """Vorbis pages that are gone: the backends agree, and none may append what was there already."""
    data = written(SAMPLES, container="OGG", subtype="VORBIS")
    pages = [at for at in range(len(data)) if data[at : at + 4] == b"OggS"]
    assert len(pages) >= 6
    found, warnings = opened(data[: pages[3]] + data[pages[5] :])
    assert len(found) < 0.85 * len(SAMPLES)
    assert told(warnings, "claims", "could be decoded")
    assert correlation(found[-RATE // 2 :], SAMPLES[-RATE // 2 :]) > 0.9


@pytest.mark.parametrize("parts", [(1, 2), (2, 1), (1, 2, 1)])
def test_a_stream_that_changes_its_channels_goes_on_in_those_it_began_with(parts):
    """Feeding the new layout to the old resampler crashed other readers."""
    data = b"".join(mp3(signal(2.0, RATE, channels)) for channels in parts)
    found, warnings = opened(data, "pyav")
    assert found.shape[1] == parts[0]
    assert len(found) / RATE == pytest.approx(2.0 * len(parts), abs=0.3)
    assert told(warnings, f"the stream has {parts[1]} channels at 16000 Hz", f"converted to {parts[0]}")
    # The end is that of the last part, up to the padding of its last frame.
    part = signal(2.0)[-RATE : -RATE // 2]
    late = delay(found[-RATE - 2304 :, :1], part, 2304)
    assert correlation(found[-RATE - 2304 + late :, :1], part) > 0.7


def test_a_stream_that_changes_its_rate_goes_on_at_the_one_it_began_with():
    found, warnings = opened(mp3(signal(2.0, 16_000), 16_000) + mp3(signal(2.0, 24_000), 24_000), "pyav")
    assert len(found) / 16_000 == pytest.approx(4.0, abs=0.3)
    assert told(warnings, "at 24000 Hz", "1 at 16000 Hz")


@pytest.mark.parametrize("second", [SAMPLES, signal(SECONDS, 44_100, 2)])
@pytest.mark.parametrize("backend", ["auto", "pyav"])
def test_chained_ogg_is_read_to_the_last_link(second, backend):
    rate = RATE if second is SAMPLES else 44_100
    data = written(SAMPLES, container="OGG", subtype="VORBIS") + written(second, rate, container="OGG")
    found, _ = opened(data, backend)
    assert found.shape[1] == 1
    assert len(found) / RATE == pytest.approx(2 * SECONDS, abs=0.02)
    assert correlation(found[-RATE:], SAMPLES[-RATE:]) > 0.5


def test_a_chain_whose_first_link_has_headers_alone_is_read_from_the_second():
    link = written(SAMPLES, container="OGG", subtype="VORBIS")
    third_page = link.index(b"OggS", link.index(b"OggS", 4) + 4)
    found, _ = opened(link[:third_page] + link, "pyav")
    assert len(found) / RATE == pytest.approx(SECONDS, abs=0.02)
    assert correlation(found[-RATE:], SAMPLES[-RATE:]) > 0.5


def test_soundfile_says_that_it_reads_only_the_first_link():
    data = written(SAMPLES, container="OGG", subtype="VORBIS") + written(signal(1.0, 44_100), 44_100, container="OGG")
    found, warnings = opened(data, "soundfile")
    assert len(found) == len(SAMPLES)
    assert told(warnings, "only the first of the streams")


def test_a_flac_of_unknown_length_is_read_to_its_end():
    data = bytearray(written(SAMPLES, container="FLAC", subtype="PCM_16"))
    # The 36 bits of the number of samples, behind 108 bits of STREAMINFO (RFC 9639, section 8.2); 0 is unknown.
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    for backend in ("auto", "soundfile", "pyav"):
        found, _ = opened(bytes(data), backend)
        assert found.shape == SAMPLES.shape


@pytest.mark.parametrize("cut", [0.35, 0.5, 0.9])
@pytest.mark.parametrize("codec", ["flac", "ogg", "opus", "aac"])
def test_no_truncation_is_silent_or_fatal(codec, cut):
    data = {
        "flac": lambda: written(SAMPLES, container="FLAC"),
        "ogg": lambda: written(SAMPLES, container="OGG"),
        "opus": lambda: written(SAMPLES, container="OGG", subtype="OPUS"),
        "aac": lambda: encoded(SAMPLES, container="adts", codec="aac"),
    }[codec]()
    found, warnings = opened(data[: round(cut * len(data))])
    rate = RATE if codec != "opus" else 16_000
    assert len(found) / rate >= 0.9 * cut * SECONDS - 1.2  # an Ogg page holds a second
    claims_length = codec == "flac"
    if claims_length and cut < 0.9:
        assert told(warnings, "claims 6.00 s", "could be decoded")
