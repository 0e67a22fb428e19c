"""Make log_mel_reference.npz with OpenAI's implementation; README.md beside this file says how to run it."""

from pathlib import Path

import numpy as np

SAMPLE_RATE = 16_000
CLIPS = {"part": 197_003, "full": 480_000}
FRAMES = {
    "part": np.r_[0:6, 48:54, 600:606, 1228:1236, 2997:3000],
    "full": np.r_[0:3, 1500:1503, 2994:3000],
}
MELS = (80, 128)


def reference_signal(frames: int) -> np.ndarray:
    """Return silence, then a gliding tone with syllables over faint noise; float32, the same on every machine."""
    seconds = np.arange(frames) / SAMPLE_RATE
    glide = np.sin(2 * np.pi * (200 * seconds + 120 * seconds**2)) + 0.4 * np.sin(2 * np.pi * 3_100 * seconds)
    syllables = np.clip(np.sin(2 * np.pi * 3.1 * seconds), 0, None)
    # A linear congruential generator (the constants of Numerical Recipes).
    state = np.zeros(frames, dtype=np.uint32)
    value = 1
    for index in range(frames):
        value = (1_664_525 * value + 1_013_904_223) % 2**32
        state[index] = value
    noise = state / 2**31 - 1
    signal = 0.4 * glide * syllables + 0.001 * noise
    signal[: SAMPLE_RATE // 2] = 0
    return signal.astype(np.float32)


def main() -> None:
    import whisper

    reference = {}
    for name, frames in CLIPS.items():
        clip = whisper.pad_or_trim(reference_signal(frames))
        for mels in MELS:
            features = whisper.log_mel_spectrogram(clip, n_mels=mels).numpy()
            reference[f"{name}_{mels}"] = features[:, FRAMES[name]]
    np.savez_compressed(Path(__file__).with_name("log_mel_reference.npz"), **reference)


if __name__ == "__main__":
    main()
