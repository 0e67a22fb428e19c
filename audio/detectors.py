"""The detectors of speech by their names."""

from typing import Literal

from audio.energy import EnergyDetector, SpeechDetector
from audio.errors import SplitError

DetectorName = Literal["energy", "silero"]
"""What tells speech from pauses: the energy alone, or Silero's network with it."""

DETECTORS: tuple[DetectorName, ...] = ("energy", "silero")
"""The names that `open_detector` knows, the default first."""


def open_detector(name: str, sample_rate: int) -> SpeechDetector:
    """Return a detector for one recording.

    Parameters
    ----------
    name : {"energy", "silero"}
        "energy" takes what rises above the background for speech, and needs nothing but numpy; "silero" tells voices
        from music and noise, and needs the packages of the extra of that name.
    sample_rate : int
        Samples per second of the recording.

    Raises
    ------
    BackendUnavailableError
        The detector's packages are missing or do not load.
    SplitError
        There is no such detector.

    """
    if name == "energy":
        return EnergyDetector()
    if name == "silero":
        from audio.silero import SileroDetector

        return SileroDetector(sample_rate)
    raise SplitError(f"there is no speech detector {name!r}: choose among {', '.join(DETECTORS)}.")
