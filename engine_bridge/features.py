"""Log-mel spectrograms as Whisper models expect them.

The definition is OpenAI Whisper's (``whisper/audio.py``): 16 kHz, a periodic Hann window of 25 ms every 10 ms, centred
frames with reflection at both ends, Slaney-scaled and area-normalised mel filters, base-10 logarithm, a floor eight
decades of power below the loudest value, and a shift and scale towards [-1, 1].
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
"""Samples per second that the features are defined for."""

FFT_FRAMES = 400
"""Length of the analysis window, in samples (25 ms)."""

HOP_FRAMES = 160
"""Distance between analysis windows, in samples (10 ms)."""

WINDOW_SECONDS = 30.0
"""Length of audio that the encoder takes."""

WINDOW_FRAMES = 480_000
"""The same in samples."""


@lru_cache(maxsize=4)
def mel_filters(mels: int) -> NDArray[np.float32]:
    """Return the mel filter bank, shape (mels, 201), float32.

    Triangular filters equally spaced on Slaney's mel scale from 0 Hz to 8 kHz: linear below 1 kHz (200/3 Hz a mel),
    logarithmic above (27 mels for a factor of 6.4), each scaled by two over its width in hertz. Source of the
    constants: M. Slaney, "Auditory Toolbox" (1998), as carried by librosa, from which OpenAI's filters were saved.
    """
    hertz_per_mel = 200.0 / 3
    knee_hertz = 1000.0
    knee_mel = knee_hertz / hertz_per_mel
    log_step = np.log(6.4) / 27.0

    top_mel = knee_mel + np.log((SAMPLE_RATE / 2) / knee_hertz) / log_step
    mel_points = np.linspace(0.0, top_mel, mels + 2)
    edges = np.where(
        mel_points < knee_mel,
        mel_points * hertz_per_mel,
        knee_hertz * np.exp(log_step * (mel_points - knee_mel)),
    )
    bins = np.fft.rfftfreq(FFT_FRAMES, 1 / SAMPLE_RATE)
    rising = (bins[None, :] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins[None, :]) / np.diff(edges)[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    triangles *= (2.0 / (edges[2:] - edges[:-2]))[:, None]
    filters: NDArray[np.float32] = triangles.astype(np.float32)
    return filters


@lru_cache(maxsize=1)
def _hann_window() -> NDArray[np.float32]:
    window = np.empty(FFT_FRAMES, dtype=np.float32)
    window[:] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT_FRAMES) / FFT_FRAMES)
    return window


def log_mel_spectrogram(samples: NDArray[np.float32], mels: int = 80) -> NDArray[np.float32]:
    """Return the features of one clip, zero-padded to the encoder's 30 s.

    Parameters
    ----------
    samples : ndarray, shape (frames,), float32 in [-1, 1]
        At most 480 000 samples at 16 kHz.
    mels : int
        80, or 128 for Whisper large-v3 and its descendants.

    Returns
    -------
    ndarray, shape (mels, 3000), float32

    Raises
    ------
    ValueError
        If the clip is not one-dimensional or longer than 30 s.

    """
    if samples.ndim != 1:
        raise ValueError(f"a clip has one dimension (frames,), not {samples.ndim}: reduce the channels first")
    if len(samples) > WINDOW_FRAMES:
        raise ValueError(f"a clip holds at most {WINDOW_FRAMES} samples (30 s), not {len(samples)}: split it first")
    windows = WINDOW_FRAMES // HOP_FRAMES
    # Only windows that touch the clip are transformed; those over the zero padding hold the floor.
    touched = min(windows, -(-(len(samples) + FFT_FRAMES // 2) // HOP_FRAMES))
    half = FFT_FRAMES // 2
    padded = np.zeros(WINDOW_FRAMES + FFT_FRAMES, dtype=np.float32)
    padded[half : half + len(samples)] = samples
    padded[:half] = padded[2 * half : half : -1]
    padded[-half:] = padded[-half - 2 : -2 * half - 2 : -1]

    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT_FRAMES)[::HOP_FRAMES][:touched]
    spectrum = np.fft.rfft(frames * _hann_window(), axis=1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)

    features = np.full((mels, windows), -10.0, dtype=np.float32)  # log10 of the smallest power, 1e-10
    if touched:
        energies = mel_filters(mels) @ power.T.astype(np.float32, copy=False)
        np.log10(np.maximum(energies, 1e-10), out=features[:, :touched])
    # The smallest power's logarithm is not the same to the last bit on all processors, so its floor is held as well.
    np.maximum(features, max(features.max() - 8.0, -10.0), out=features)
    features += 4.0
    features /= 4.0
    return features
