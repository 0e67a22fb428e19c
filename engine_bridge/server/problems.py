"""What goes wrong with a request, as OpenAI's API says it: a status, and one JSON object."""

import logging
from typing import Any

from audio.errors import AudioError, BackendUnavailableError, LimitExceededError
from engine_bridge.errors import CacheMissError, EngineBridgeError, EngineError, MediaError, UnsupportedOptionError

_log = logging.getLogger(__name__)

_SETTING = 'a server takes more with --media-io-kwargs \'{{"audio": {{"{name}": ...}}}}\''


class Problem(Exception):  # noqa: N818 - an answer to a request
    """A request that is not answered with a text.

    Attributes
    ----------
    status : int
        The HTTP status.
    kind : str
        "invalid_request_error" or "server_error".
    param : str or None
        The field of the request that is at fault.
    code : str or None
        A word for programs.
    retry_after : int or None
        Seconds after which it makes sense to ask again.

    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = "invalid_request_error" if status < 500 else "server_error"
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def problem_of(error: BaseException) -> Problem:
    """Return what a request is answered with when this was raised for it.

    What nobody meant to be raised is logged and not told.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, LimitExceededError):
        reason = error.reason.partition("; raise ")[0]
        status = 413 if error.limit == "max_encoded_bytes" else 400
        message = f"{error.source}: {reason}; {_SETTING.format(name=error.limit)}"
        return Problem(status, message, param="file", code="limit_exceeded")
    if isinstance(error, BackendUnavailableError):
        return Problem(501, str(error), param="audio_backend", code="backend_unavailable")
    if isinstance(error, AudioError):
        return Problem(400, str(error), param="file", code="invalid_audio")
    if isinstance(error, MediaError):
        return Problem(400, str(error), param="audio_url", code="invalid_media")
    if isinstance(error, CacheMissError):
        return Problem(404, str(error), param="uuid", code="not_kept")
    if isinstance(error, UnsupportedOptionError):
        return Problem(400, str(error), code="unsupported_option")
    if isinstance(error, EngineError | EngineBridgeError):
        _log.error("a recording could not be recognised: %s", error)
        return Problem(500, str(error), code="engine_failed")
    _log.error("a request failed", exc_info=error)
    return Problem(500, "the server failed on this request; its log tells more", code="internal")
