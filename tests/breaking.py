"""Recordings whose decoding breaks off."""

from audio import UnreadableAudioError, open_stream
from tests.tones import RATE


def breaking_after(seconds):
    """Return an `open_stream` whose stream fails after so many seconds."""

    class Breaking:
        def __init__(self, stream):
            self._stream = stream
            self.close = stream.close

        def __getattr__(self, name):
            return getattr(self._stream, name)

        def __iter__(self):
            for block in self._stream:
                yield block
                if self._stream.frames > seconds * RATE:
                    raise UnreadableAudioError("talk.mp3", "the file breaks here")

    return lambda *arguments, **options: Breaking(open_stream(*arguments, **options))
