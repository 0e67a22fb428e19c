"""Seconds and sample positions: the one place where they are converted."""


def samples_from_seconds(seconds: float, sample_rate: int) -> int:
    """Return the sample position nearest to a time.

    Rounds to nearest (ties to even). Truncation would be a sample short for 372 of the first 60 000 milliseconds at
    16 kHz, because most decimal fractions have no exact binary form.

    Parameters
    ----------
    seconds : float
        A time in seconds, at least 0.
    sample_rate : int
        Samples per second.

    """
    return round(seconds * sample_rate)


def seconds_from_samples(samples: int, sample_rate: int) -> float:
    """Return the time in seconds of a sample position."""
    return samples / sample_rate
