"""A look at a source without decoding more than its beginning."""

from audio.decoders import open_decoder
from audio.info import AudioInfo
from audio.limits import DecodeLimits
from audio.source import AudioSource


def probe(source: AudioSource, backend: str = "auto", *, limits: DecodeLimits | None = None) -> AudioInfo:
    """Return what a source says about itself.

    The beginning is decoded, so a source that passes is one that gives samples.

    Parameters
    ----------
    source : path, bytes, binary file or (array, sample_rate)
        What to look at.
    backend : {"auto", "soundfile", "torchcodec", "pyav"}
        The decoder to ask. A named one has no fallback.
    limits : DecodeLimits, optional
        What the decode may cost; `DecodeLimits.generous()` by default.

    Raises
    ------
    AudioError
        As `audio.decoders.open_decoder` does.

    """
    with open_decoder(source, backend, limits=limits) as decoder:
        return decoder.info
