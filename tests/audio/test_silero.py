"""The detector of voices: what its network hears, what becomes of what it says, and real speech, music and noise."""

import itertools
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audio import open_detector, stream_chunks
from audio.detectors import DETECTORS
from audio.energy import EnergyDetector, EnvelopeMeter, speech_stretches
from audio.errors import BackendUnavailableError, SplitError
from audio.load import load_audio
from audio.silero import SileroDetector, _session

RATE = 16_000
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
needs_network = pytest.mark.skipif(
    find_spec("silero_vad") is None or find_spec("onnxruntime") is None,
    reason="silero-vad and onnxruntime are not installed",
)


class Network:
    """Stands for the network: hears a voice where a window is loud, and for a while after, as its state tells it."""

    def __init__(self, hears=None):
        self.rows = []
        self.states = []
        self._hears = hears
        self._count = 0

    def run(self, names, given):
        assert names == ["speech_probs", "hn", "cn"]
        rows, hidden, cell = given["input"], given["h"], given["c"]
        assert rows.dtype == hidden.dtype == np.float32
        assert rows.shape[1:] == (576,)
        self.rows.append(rows)
        self.states.append((hidden, cell))
        held = hidden[0, 0, 0]
        probabilities = np.empty(len(rows), np.float32)
        for number, row in enumerate(rows):
            held = np.float32(max(0.7 * held, min(1, 2 * float(np.abs(row).max()))))
            probabilities[number] = held if self._hears is None else self._hears(self._count)
            self._count += 1
        return probabilities, np.full((1, 1, 128), held, np.float32), cell + 1


@pytest.fixture
def network(monkeypatch):
    stand_in = Network()
    monkeypatch.setattr("audio.silero._session", lambda: stand_in)
    return stand_in


def sound(seconds, rate=RATE, seed=3):
    """Noise in syllables, with pauses of a second and a half: energy takes it for speech."""
    at = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).standard_normal(len(at))
    return (noise * 0.1 * (at % 5 < 3.5) * (1.1 + np.sin(2 * np.pi * 4 * at))).astype(np.float32)


def evidence_of(samples, detector, rate=RATE, blocks=()):
    """Feed whole frames, cut before these frames, and return the evidence of each frame."""
    meter, hop = EnvelopeMeter(rate), round(rate / 100)
    places = [0, *(frame * hop for frame in sorted(blocks)), len(samples)]
    found = []
    for start, stop in itertools.pairwise(places):
        found.append(detector.feed(samples[start:stop], meter.feed(samples[start:stop])))
    found.append(detector.feed(samples[:0], meter.finish()))
    found.append(detector.finish())
    return np.concatenate(found)


# ---- the stream ---------------------------------------------------------------------------------------------------


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 12 * RATE),
    st.lists(st.integers(0, 1200), max_size=4),
    st.sampled_from([8000, 16_000, 22_050, 44_100]),
)
def test_every_frame_is_answered_once_and_alike_however_the_stream_is_cut(monkeypatch, length, cuts, rate):
    monkeypatch.setattr("audio.silero._session", Network)
    samples = sound(length / RATE, rate)
    hop = round(rate / 100)
    whole = evidence_of(samples, SileroDetector(rate), rate)
    assert len(whole) == -(-len(samples) // hop)
    assert whole.dtype == np.float32
    assert set(np.unique(whole)) <= {0, 0.5, 1}
    inside = [frame for frame in cuts if frame * hop <= len(samples)]
    assert np.array_equal(whole, evidence_of(samples, SileroDetector(rate), rate, inside))


def test_answers_come_within_eighty_seconds(network):
    detector, meter = SileroDetector(), EnvelopeMeter(RATE)
    samples, given_frames, answered, latest = sound(150), 0, 0, 0
    for start in range(0, len(samples), RATE):
        levels = meter.feed(samples[start : start + RATE])
        given_frames += len(levels)
        answered += len(detector.feed(samples[start : start + RATE], levels))
        latest = max(latest, given_frames - answered)
    assert answered >= 6000
    assert latest <= 8000


def test_at_other_rates_a_frame_is_what_sounds_at_its_time(monkeypatch):
    for rate in (16_000, 11_025):
        monkeypatch.setattr("audio.silero._session", lambda: Network(lambda window: 20 <= window * 0.032 < 21))
        evidence = evidence_of(sound(30, rate), SileroDetector(rate), rate)
        frames = np.flatnonzero(evidence >= 0.5)
        assert frames[0] * round(rate / 100) / rate == pytest.approx(19.96, abs=0.03)
        assert (frames[-1] + 1) * round(rate / 100) / rate == pytest.approx(21.4, abs=0.1)


# ---- what the network hears ---------------------------------------------------------------------------------------


def test_the_network_hears_every_sample_with_what_came_before_and_keeps_its_state(network):
    samples = sound(20)
    evidence_of(samples, SileroDetector(), blocks=[7, 900, 1234])
    rows = np.concatenate(network.rows)
    heard = rows[:, 64:].reshape(-1)
    assert np.array_equal(heard[: len(samples)], samples)
    assert not heard[len(samples) :].any()
    assert not rows[0, :64].any()
    assert np.array_equal(rows[1:, :64], rows[:-1, -64:])
    assert not network.states[0][0].any()
    assert [state[1][0, 0, 0] for state in network.states] == list(range(len(network.states)))


@pytest.mark.parametrize(("gain", "raised"), [(1.0, 1.0), (0.01, None), (1e-6, 1000.0)])
def test_faint_recordings_are_raised_before_the_network_hears_them(network, gain, raised):
    samples = sound(8) * np.float32(gain)
    evidence_of(samples, SileroDetector())
    heard = np.concatenate(network.rows)[:, 64:].reshape(-1)[: len(samples)]
    if raised is None:
        assert 0.004 < np.sqrt(np.mean(np.square(heard))) < 0.012
    else:
        assert np.allclose(heard, samples * np.float32(raised), rtol=1e-6, atol=0)


def test_one_word_in_a_long_silence_is_not_blown_up(network):
    samples = np.zeros(8 * RATE, np.float32)
    samples[4 * RATE : 4 * RATE + RATE // 2] = sound(1)[: RATE // 2]
    evidence_of(samples, SileroDetector())
    assert np.array_equal(np.concatenate(network.rows)[:, 64:].reshape(-1)[: len(samples)], samples)


def test_broken_samples_do_not_reach_the_network(network):
    samples = sound(10)
    samples[[1000, 2000, 3000]] = np.nan, np.inf, -np.inf
    assert len(evidence_of(samples, SileroDetector())) == 1000
    assert np.abs(np.concatenate(network.rows)).max() <= 1


# ---- what becomes of what it says ---------------------------------------------------------------------------------


def hearing(monkeypatch, probability, start, stop):
    """Let the network hear something between two times, in seconds, and return a sound that energy takes for speech."""

    def says(window):
        return probability if start <= window * 0.032 < stop else 0.0

    monkeypatch.setattr("audio.silero._session", lambda: Network(says))
    at = np.arange(30 * RATE) / RATE
    noise = np.random.default_rng(5).standard_normal(len(at)) * np.where(at % 10 < 9.5, 0.1, 0.0005)
    return noise.astype(np.float32)


def test_sound_far_from_any_voice_is_no_speech_and_sound_beside_one_is_in_doubt(monkeypatch):
    samples = hearing(monkeypatch, 0.9, 12.8, 16.0)
    assert (evidence_of(samples, EnergyDetector())[1000:1900] == 1).mean() > 0.95
    evidence = evidence_of(samples, SileroDetector())
    assert (evidence[1280:1600] == 1).mean() > 0.95
    assert set(evidence[1280 - 40 : 1280]) == set(evidence[1600 : 1600 + 40]) == {0.5}
    assert not evidence[: 1280 - 45].any()
    assert not evidence[1600 + 45 :].any()


def test_what_the_network_does_not_rule_out_is_in_doubt(monkeypatch):
    assert set(evidence_of(hearing(monkeypatch, 0.3, 12.8, 16.0), SileroDetector())[1280:1600]) == {0.5}
    assert not evidence_of(hearing(monkeypatch, 0.1, 12.8, 16.0), SileroDetector()).any()


def test_a_pause_that_the_network_runs_over_can_be_cut_in(monkeypatch):
    samples = hearing(monkeypatch, 0.9, 6.4, 25.6)
    evidence = evidence_of(samples, SileroDetector())
    assert set(evidence[955:995]) == {0.5}  # there the sound pauses
    chunks = list(stream_chunks([samples], RATE, max_duration=12.0, detector=SileroDetector()))
    assert any(9.5 < chunk.stop_seconds < 10 and not chunk.forced for chunk in chunks)
    assert sum(stop - start for chunk in chunks for start, stop in chunk.speech) < 21 * RATE


# ---- the way in ---------------------------------------------------------------------------------------------------


def test_detectors_are_opened_by_name(network):
    assert DETECTORS == ("energy", "silero")
    assert isinstance(open_detector("energy", RATE), EnergyDetector)
    assert isinstance(open_detector("silero", 44_100), SileroDetector)
    with pytest.raises(SplitError, match=r"no speech detector 'webrtc': choose among energy, silero\."):
        open_detector("webrtc", RATE)


@pytest.fixture
def unloaded():
    _session.cache_clear()
    yield
    _session.cache_clear()


def test_without_its_package_the_error_names_the_extra(monkeypatch, unloaded):
    monkeypatch.setattr("audio.silero.find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match=r"silero-vad.* is missing\. .*'auricle\[silero\]'") as caught:
        open_detector("silero", RATE)
    assert caught.value.backend == "silero"
    assert open_detector("energy", RATE)


def model_in(folder, monkeypatch):
    found = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr("audio.silero.find_spec", lambda name: found)


def test_a_release_without_the_network_is_to_be_updated(monkeypatch, unloaded, tmp_path):
    model_in(tmp_path, monkeypatch)
    with pytest.raises(BackendUnavailableError, match=r"does not bring .*\.onnx\. Update it with: pip install"):
        open_detector("silero", RATE)


def test_without_onnxruntime_the_error_names_the_extra(monkeypatch, unloaded, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "silero_vad_16k_sequence.onnx").write_bytes(b"")
    model_in(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BackendUnavailableError, match=r"onnxruntime does not load.*'auricle\[silero\]'"):
        open_detector("silero", RATE)


@needs_network
def test_a_damaged_network_is_told_in_one_sentence(monkeypatch, unloaded, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "silero_vad_16k_sequence.onnx").write_bytes(b"no network")
    model_in(tmp_path, monkeypatch)
    with pytest.raises(BackendUnavailableError, match=r"onnxruntime cannot load silero_vad_16k_sequence\.onnx"):
        open_detector("silero", RATE)


def loaded_for(statements, libraries):
    """The libraries, of those named, that these statements load in a process of their own."""
    script = f"import sys; {statements}; print(*sorted({libraries} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    return done.stdout.split()


def test_whoever_does_not_ask_for_it_does_not_wait_for_it():
    libraries = {"audio.silero", "onnxruntime", "silero_vad", "torch"}
    assert loaded_for("import audio; audio.open_detector('energy', 16000)", libraries) == []


@needs_network
def test_the_network_runs_without_torch():
    statements = (
        "import numpy; from audio.energy import speech_stretches; from audio.silero import SileroDetector; "
        "speech_stretches(numpy.zeros(16000, 'float32'), 16000, detector=SileroDetector())"
    )
    assert loaded_for(statements, {"onnxruntime", "torch"}) == ["onnxruntime"]


# ---- the network itself -------------------------------------------------------------------------------------------


def music(seconds):
    """Chords of plucked strings, a new one each half second: energy takes it for speech."""
    since = np.arange(RATE // 2) / RATE
    tune = np.random.default_rng(7)
    chords = []
    for _ in range(2 * seconds):
        root = 220 * 2 ** (tune.integers(0, 12) / 12)
        tones = (np.sin(2 * np.pi * root * ratio * n * since) / n for ratio in (1, 1.26, 1.498) for n in range(1, 9))
        chords.append(sum(tones) * np.exp(-6 * since))
    played = np.concatenate(chords)
    return (0.3 * played / np.abs(played).max()).astype(np.float32)


def share(stretches, spans, rate=RATE):
    """Return the share of the spans, in seconds, that lies under the stretches, in samples."""
    under = sum(
        max(0.0, min(stop / rate, end) - max(start / rate, begin)) for start, stop in stretches for begin, end in spans
    )
    return under / sum(end - begin for begin, end in spans)


@needs_network
def test_real_speech_is_found_also_where_it_is_faint():
    waveform, _ = load_audio(SAMPLES / "reading.flac")
    spoken = [(s["start"], s["end"]) for s in json.loads((SAMPLES / "reading.json").read_text())["segments"]]
    found = speech_stretches(waveform, RATE, detector=SileroDetector())
    assert share(found, spoken) >= 0.99
    faint = speech_stretches(waveform[: 60 * RATE] * np.float32(0.003), RATE, detector=SileroDetector())
    assert share(faint, [span for span in spoken if span[1] < 60]) >= 0.95


@needs_network
def test_music_and_noise_are_no_speech():
    for noise in (music(20), sound(20)):
        assert share(speech_stretches(noise, RATE), [(0, 20)]) > 0.5
        assert share(speech_stretches(noise, RATE, detector=SileroDetector()), [(0, 20)]) < 0.05


@needs_network
def test_speech_over_music_is_told_from_it():
    spoken, _ = load_audio(SAMPLES / "reading.flac")
    mixed = music(40)
    mixed[20 * RATE : 26 * RATE] += 2 * spoken[round(0.881 * RATE) :][: 6 * RATE]
    found = speech_stretches(mixed, RATE, detector=SileroDetector())
    assert share(found, [(20, 25.8)]) > 0.98
    assert sum(stop - start for start, stop in found) < 8 * RATE


@needs_network
def test_the_network_says_the_same_however_the_stream_is_cut():
    waveform, _ = load_audio(SAMPLES / "reading.flac")
    waveform = waveform[: 25 * RATE + 77]
    whole = evidence_of(waveform, SileroDetector())
    assert 0.5 < (whole >= 0.5).mean() < 1
    assert np.array_equal(whole, evidence_of(waveform, SileroDetector(), blocks=range(100, 2500, 333)))
