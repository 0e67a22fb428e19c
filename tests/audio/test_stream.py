"""The mono stream and `load_audio`: what goes in comes out, mixed, resampled, whole and in time."""

import io
import logging

import numpy as np
import pytest
import soundfile

import audio.stream as stream_module
from audio.channels import ChannelReduction
from audio.errors import (
    AudioFileNotFoundError,
    BackendUnavailableError,
    ChannelLayoutError,
    ResampleError,
    UnreadableAudioError,
)
from audio.info import AudioInfo
from audio.load import load_audio
from audio.resample import resample
from audio.stream import MonoStream, open_stream


def wav(samples, rate, subtype="FLOAT"):
    """A WAV file's bytes of samples of shape (frames,) or (frames, channels)."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype=subtype)
    return file.getvalue()


def noise(frames, channels=2, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (frames, channels)).astype(np.float32)


class FakeDecoder:
    """A decoder of given blocks that may fail at the end."""

    def __init__(self, blocks, rate, error=None):
        self.info = AudioInfo("fake", "pcm", rate, blocks[0].shape[1] if blocks else 1, None, None, 0.0, (), "fake")
        self.warnings = ["a packet was skipped"]
        self.closed = 0
        self._given = blocks
        self._error = error

    def blocks(self):
        yield from self._given
        if self._error is not None:
            raise self._error

    def close(self):
        self.closed += 1


def mono_stream(blocks, rate, sample_rate=16_000, reduction=ChannelReduction.MEAN, error=None):
    return MonoStream(FakeDecoder(blocks, rate, error), sample_rate, reduction, "auto")


class TestBlocks:
    def test_join_to_the_mix_resampled_in_one_pass(self):
        samples = noise(100_001)
        with open_stream(wav(samples, 44_100)) as stream:
            joined = np.concatenate(list(stream))
        expected = resample((samples[:, 0] + samples[:, 1]) * np.float32(0.5), 44_100, 16_000)
        np.testing.assert_array_equal(joined, expected)
        assert joined.dtype == np.float32

    def test_are_the_samples_themselves_at_the_pipelines_rate(self):
        samples = noise(40_000, channels=1)
        with open_stream(wav(samples, 16_000)) as stream:
            np.testing.assert_array_equal(np.concatenate(list(stream)), samples[:, 0])

    @pytest.mark.parametrize("cuts", [[1], [7, 300, 299_999], list(range(0, 300_000, 4096))])
    def test_do_not_depend_on_how_the_decoder_cuts(self, cuts):
        samples = noise(300_000)
        whole = np.concatenate(list(mono_stream([samples], 48_000)))
        pieces = [piece for piece in np.split(samples, cuts) if len(piece)]
        np.testing.assert_array_equal(np.concatenate(list(mono_stream(pieces, 48_000))), whole)

    def test_are_never_empty_and_are_counted(self):
        stream = mono_stream([noise(1000)] * 50, 44_100)
        seen = 0
        for block in stream:
            assert block.ndim == 1
            assert len(block) > 0
            seen += len(block)
            assert stream.frames == seen
        assert seen == -(-50_000 * 16_000 // 44_100)
        assert stream.duration == pytest.approx(50_000 / 44_100, abs=1 / 16_000)

    def test_go_through_the_source_once(self):
        stream = mono_stream([noise(1000)], 16_000)
        assert len(list(stream)) == 1
        assert list(stream) == []

    def test_of_nothing_are_none(self):
        stream = mono_stream([], 44_100)
        assert list(stream) == []
        assert (stream.frames, stream.duration) == (0, 0.0)

    def test_keep_the_sources_rate_when_none_is_asked_for(self):
        samples = noise(5000, channels=1)
        stream = mono_stream([samples], 22_050, sample_rate=None)
        assert stream.sample_rate == 22_050
        np.testing.assert_array_equal(np.concatenate(list(stream)), samples[:, 0])

    @pytest.mark.parametrize("reduction", list(ChannelReduction))
    def test_are_reduced_as_asked(self, reduction):
        block = noise(1000, channels=3)
        expected = {
            "mean": block.mean(axis=1),
            "first": block[:, 0],
            "max": block.max(axis=1),
            "sum": block.sum(axis=1),
        }
        (mono,) = mono_stream([block], 16_000, reduction=reduction)
        np.testing.assert_allclose(mono, expected[reduction.value], atol=1e-6)

    def test_before_a_decoding_error_come_out_to_the_last_sample(self):
        error = UnreadableAudioError("x.mp3", "the stream is damaged")
        stream = mono_stream([noise(1000)], 44_100, error=error)
        received = []
        with pytest.raises(UnreadableAudioError, match="damaged"):
            received.extend(stream)
        assert sum(map(len, received)) == -(-1000 * 16_000 // 44_100)


class TestWarnings:
    def test_of_the_decoder_are_passed_on(self):
        stream = mono_stream([noise(1000)], 16_000)
        list(stream)
        assert stream.warnings == ["a packet was skipped"]

    @pytest.mark.parametrize(("residue", "told"), [(0.0, "silent"), (0.01, "46 dB below")])
    def test_tell_of_channels_that_cancel(self, residue, told):
        left = noise(16_000, channels=1)
        block = np.concatenate([left, (residue - 1) * left], axis=1).astype(np.float32)
        stream = mono_stream([block], 16_000)
        list(stream)
        assert told in stream.warnings[-1]
        assert "first channel" in stream.warnings[-1]
        first = mono_stream([block], 16_000, reduction=ChannelReduction.FIRST)
        list(first)
        assert first.warnings == ["a packet was skipped"]

    @pytest.mark.parametrize("channels", [2, 6, 64])
    def test_say_nothing_of_one_sounding_channel_among_silent_ones(self, channels):
        block = np.zeros((16_000, channels), np.float32)
        block[:, 1] = noise(16_000, channels=1)[:, 0]
        stream = mono_stream([block], 16_000)
        list(stream)
        assert stream.warnings == ["a packet was skipped"]

    def test_say_nothing_of_silence(self):
        stream = mono_stream([np.zeros((16_000, 2), np.float32)], 16_000)
        list(stream)
        assert stream.warnings == ["a packet was skipped"]


class TestOpening:
    def test_shows_what_the_source_claims(self):
        with open_stream(wav(noise(8000), 8000)) as stream:
            assert (stream.info.sample_rate, stream.info.channels) == (8000, 2)
            assert stream.sample_rate == 16_000

    def test_closes_the_decoder_at_the_end_of_the_block(self):
        decoder = FakeDecoder([noise(10)], 16_000)
        with MonoStream(decoder, 16_000, ChannelReduction.MEAN, "auto"):
            assert decoder.closed == 0
        assert decoder.closed == 1

    @pytest.mark.parametrize("rate", [0, -16_000, 768_001, 16_000.0, "16k", True])
    def test_refuses_rates_at_the_call_before_the_source_is_looked_at(self, rate):
        with pytest.raises(ResampleError, match="whole number of Hz"):
            open_stream("does-not-exist.wav", rate)

    def test_refuses_an_unknown_resampler_at_the_call(self):
        with pytest.raises(ResampleError, match="'sinc' is not known"):
            open_stream("does-not-exist.wav", resampler="sinc")

    def test_refuses_an_unknown_reduction_at_the_call(self):
        with pytest.raises(ChannelLayoutError, match="'loudest' is not known"):
            open_stream("does-not-exist.wav", reduction="loudest")

    def test_refuses_a_missing_file_at_the_call(self, tmp_path):
        with pytest.raises(AudioFileNotFoundError):
            open_stream(tmp_path / "none.wav")

    def test_lets_go_of_a_source_whose_rate_cannot_be_converted(self, monkeypatch):
        decoder = FakeDecoder([noise(10)], 2_000_000)
        monkeypatch.setattr(stream_module, "open_decoder", lambda source, backend, **options: decoder)
        with pytest.raises(ResampleError, match="source sample rate is 2000000"):
            open_stream(b"anything")
        assert decoder.closed == 1

    def test_takes_an_array_with_its_rate(self):
        samples = noise(32_000, channels=1)[:, 0]
        with open_stream((samples, 16_000)) as stream:
            np.testing.assert_array_equal(np.concatenate(list(stream)), samples)


class TestLoad:
    def test_gives_one_channel_at_sixteen_kilohertz(self):
        samples = noise(44_101)
        waveform, rate = load_audio(wav(samples, 44_100))
        assert rate == 16_000
        assert waveform.shape == (-(-44_101 * 16_000 // 44_100),)
        assert waveform.dtype == np.float32
        with open_stream(wav(samples, 44_100)) as stream:
            np.testing.assert_array_equal(waveform, np.concatenate(list(stream)))

    def test_keeps_the_native_rate_and_the_channels_when_told(self):
        samples = noise(30_000, channels=3)
        waveform, rate = load_audio(wav(samples, 22_050), sr=None, mono=False)
        assert rate == 22_050
        np.testing.assert_array_equal(waveform, samples.T)

    def test_resamples_each_channel_as_it_would_alone(self):
        samples = noise(50_000)
        waveform, rate = load_audio(wav(samples, 48_000), mono=False)
        assert (rate, waveform.shape) == (16_000, (2, -(-50_000 // 3)))
        for channel in range(2):
            np.testing.assert_array_equal(waveform[channel], resample(samples[:, channel], 48_000, 16_000))

    def test_keeps_the_channel_axis_of_a_mono_file_when_told(self):
        waveform, _ = load_audio(wav(noise(100, channels=1), 16_000), mono=False)
        assert waveform.shape == (1, 100)

    def test_grows_past_its_first_buffer_without_a_seam(self):
        samples = noise(1_500_000, channels=1)
        waveform, _ = load_audio(wav(samples, 16_000))
        np.testing.assert_array_equal(waveform, samples[:, 0])
        assert waveform.flags.owndata

    def test_reads_a_path(self, tmp_path):
        path = tmp_path / "speech.wav"
        path.write_bytes(wav(noise(1000), 16_000))
        assert load_audio(path)[0].shape == (1000,)
        assert load_audio(str(path))[0].shape == (1000,)

    def test_scales_integers(self):
        samples = np.array([-1.0, 0.0, 0.5], np.float32).repeat(100)
        waveform, _ = load_audio(wav(samples, 16_000, subtype="PCM_16"))
        np.testing.assert_array_equal(waveform, samples)

    def test_logs_what_the_listener_should_know(self, caplog):
        left = noise(16_000, channels=1)
        with caplog.at_level(logging.WARNING, logger="audio.load"):
            load_audio(wav(np.concatenate([left, -left], axis=1), 16_000))
        assert "cancel each other" in caplog.text

    @pytest.mark.parametrize("mono", [True, False])
    def test_refuses_a_bad_rate_and_a_missing_backend(self, mono):
        data = wav(noise(100), 16_000)
        with pytest.raises(ResampleError):
            load_audio(data, sr=0, mono=mono)
        with pytest.raises((ValueError, BackendUnavailableError), match="winamp"):
            load_audio(data, backend="winamp", mono=mono)
