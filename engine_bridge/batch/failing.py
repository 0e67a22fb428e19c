"""Entries of a job that cannot be read: they fail in their turn, and the others go on."""

from typing import NoReturn

from engine_bridge.batch.recording import Recording


class FailingSource:
    """Stands for audio that is not there: whoever reads it gets the reason.

    Parameters
    ----------
    error : Exception
        What reading it raises.

    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"FailingSource({self.error!r})"

    def seekable(self) -> NoReturn:
        """Raise the error: it is asked before anything is set aside for reading."""
        raise self.error

    def read(self, size: int, /) -> NoReturn:  # noqa: ARG002 - it is a reader
        """Raise the error."""
        raise self.error


def failing(name: str, error: Exception) -> Recording:
    """Return a recording that fails with an error as soon as its source is read."""
    return Recording(name, FailingSource(error))
