"""The choice among several audio tracks."""

import numpy as np
import pytest

from audio import SelectionError, StreamInfo, open_decoder, open_stream
from audio.decoders import AUTO_ORDER
from audio.errors import BackendUnavailableError
from audio.languages import language_code
from audio.selection import find_track
from tests.audio.media import decoded, encoded, signal, written

SAMPLES = signal(2.0)


@pytest.fixture(scope="module")
def film():
    """Three tracks, eng, deu and fra, each half as loud as the one before; deu is the default."""
    return encoded(SAMPLES, container="matroska", codec="pcm_s16le", tracks=3, default=1)


def taken(source, backend="auto", **options):
    """The number of the track that was decoded, by its level, and the stream."""
    with open_stream(source, None, backend=backend, **options) as stream:
        samples = np.concatenate(list(stream))
    assert len(samples) == len(SAMPLES)
    return round(np.log2(np.abs(SAMPLES).max() / np.abs(samples).max())), stream


@pytest.mark.parametrize(
    ("track", "number"),
    [(0, 0), (1, 1), (2, 2), ("eng", 0), ("en", 0), ("en-GB", 0), ("de", 1), ("deu", 1), ("GER", 1), ("fre", 2)],
)
def test_a_track_is_chosen_by_number_or_language(film, track, number):
    found, stream = taken(film, track=track)
    assert (found, stream.info.track) == (number, number)
    assert stream.warnings == []


def test_the_default_track_is_taken_and_the_choice_is_told(film):
    found, stream = taken(film)
    assert found == 1
    (warning,) = stream.warnings
    assert "3 audio tracks, 0 (pcm_s16le, eng), 1 (pcm_s16le, deu, default) and 2 (pcm_s16le, fra)" in warning
    assert "number 1 was decoded" in warning


def test_the_first_track_is_taken_where_none_is_the_default():
    film = encoded(SAMPLES, container="matroska", codec="pcm_s16le", tracks=2, default=None)
    found, stream = taken(film, "pyav")
    assert (found, stream.info.track) == (0, 0)


def test_of_several_tracks_in_a_language_the_default_one_is_taken_else_the_first():
    tracks = tuple(StreamInfo(n, "aac", 48_000, 2, language, n == 2) for n, language in enumerate(["en", "deu", "ger"]))
    assert find_track(tracks, "de", "film.mkv") == 2
    assert find_track(tracks[:2] + tracks[1:2], "de", "film.mkv") == 1


@pytest.mark.parametrize("track", [3, "nl", "xx"])
@pytest.mark.parametrize("backend", ["auto", "pyav"])
def test_a_track_that_is_not_there_is_refused_with_those_that_are(film, backend, track):
    with pytest.raises(
        SelectionError, match=r"0 \(pcm_s16le, eng\), 1 \(.*\) and 2 \(.*choose one by number or language"
    ):
        open_decoder_of(film, backend, track)


def open_decoder_of(source, backend, track):
    with open_stream(source, backend=backend, track=track) as stream:
        return stream.info


@pytest.mark.parametrize("backend", AUTO_ORDER)
def test_a_file_of_one_track_has_number_nought_and_no_other(backend):
    data = written(SAMPLES)
    try:
        assert open_decoder_of(data, backend, 0).track == 0
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    for track in (1, "en"):
        with pytest.raises(SelectionError, match="there is no audio track"):
            open_decoder_of(data, backend, track)


def test_torchcodec_takes_tracks_by_number(film):
    try:
        assert [taken(film, "torchcodec", track=number)[0] for number in range(3)] == [0, 1, 2]
    except BackendUnavailableError as error:
        pytest.skip(str(error))


def test_a_track_and_a_range_go_together(film):
    with open_stream(film, None, track="fr", from_seconds=0.5, to_seconds=1.0) as stream:
        np.testing.assert_allclose(np.concatenate(list(stream)), SAMPLES[8000:16_000, 0] / 4, atol=2**-14)


def test_all_tracks_are_listed_with_what_was_chosen(film):
    decoder = open_decoder(film)
    decoded(decoder)
    assert [track.language for track in decoder.info.streams] == ["eng", "deu", "fra"]
    assert decoder.info.track == 1


@pytest.mark.parametrize(
    ("tag", "code"),
    [("deu", "de"), ("ger", "de"), ("de", "de"), ("de-AT", "de"), ("zh_Hant", "zh"), ("chi", "zh"), ("GSW", "gsw")],
)
def test_codes_of_one_language_are_one(tag, code):
    assert language_code(tag) == code
