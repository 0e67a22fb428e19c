"""A request's form: received within bounds, and read into what is asked for."""

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from audio.source import Source
from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.media import open_media
from engine_bridge.server.held import keeps_inputs
from engine_bridge.server.problems import Problem
from engine_bridge.server.settings import ServerSettings

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
"""What answers can be in, as in OpenAI's API."""

GRANULARITIES = ("segment", "word")

_FIELDS_BYTES = 1 << 20
"""Bytes of a form beside its file."""

_MOST_FIELDS = 64

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")

_KNOWN = frozenset(
    {
        "file", "audio_url", "model", "language", "prompt", "hotwords", "response_format", "temperature", "stream",
        "timestamp_granularities[]", "timestamp_granularities", "use_beam_search", "n", "chunking_strategy",
        "media_io_kwargs", "uuid",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SpeechRequest:
    """What is asked for.

    Attributes
    ----------
    name : str
        What the recording is called in messages.
    open_source : callable or None
        Gives a context manager of the recording. It may wait for a download, so it is not for an event loop. None where
        the recording is only named by its `uuid`.
    uuid : str or None
        The caller's name for the recording, under which its decoded audio is kept.
    owner : str or None
        Whose recording it is: a digest of the request's credentials.
    model : str or None
        The model's name.
    language : str or None
        ISO 639-1 code.
    prompt : str or None
        Text that sets spelling and style.
    glossary : tuple of str
        Names and terms.
    response_format : str
        One of `FORMATS`.
    temperature : float
        0 for the likeliest text.
    beam_size : int or None
        1 for greedy search; None leaves it to the engine.
    granularities : tuple of str
        "segment" and "word".
    is_streamed : bool
        Whether text is wanted as it becomes known.
    settings : ServerSettings
        The server's, with what the request may choose.

    """

    name: str
    open_source: Callable[[], AbstractContextManager[Source]] | None
    uuid: str | None
    owner: str | None
    model: str | None
    language: str | None
    prompt: str | None
    glossary: tuple[str, ...]
    response_format: str
    temperature: float
    beam_size: int | None
    granularities: tuple[str, ...]
    is_streamed: bool
    settings: ServerSettings


async def read_form(request: Request, settings: ServerSettings) -> FormData:
    """Receive a request's form. Its file is spooled to disk as it comes, and no more is taken than allowed.

    Raises
    ------
    Problem
        It is too large, or no form.

    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().casefold()
    if kind != "multipart/form-data":
        raise Problem(
            415, f"the request is {kind or 'nothing that is named'}: send a form (multipart/form-data) with a file"
        )
    most = settings.limits.max_encoded_bytes
    if most is not None:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most + _FIELDS_BYTES:
            raise _too_large(most)
        request = Request(request.scope, _counted(request.receive, most + _FIELDS_BYTES, most))
    try:
        return await request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=_FIELDS_BYTES)
    except (MultiPartException, HTTPException) as error:
        told = getattr(error, "message", None) or getattr(error, "detail", None) or str(error)
        raise Problem(400, f"the form cannot be read: {told}") from error


def _too_large(most: int) -> Problem:
    message = (
        f"the upload is larger than the {most} bytes this server takes; a server takes more with "
        '--media-io-kwargs \'{"audio": {"max_encoded_bytes": ...}}\''
    )
    return Problem(413, message, param="file", code="limit_exceeded")


Message = MutableMapping[str, Any]


def _counted(receive: Callable[[], Awaitable[Message]], allowed: int, most: int) -> Callable[[], Awaitable[Message]]:
    """Return a function that receives as another does, and refuses to go on beyond so many bytes."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > allowed:
            raise _too_large(most)
        return message

    return counted


def speech_request(form: FormData, settings: ServerSettings, credentials: str | None = None) -> SpeechRequest:
    """Read a form.

    Parameters
    ----------
    form : FormData
        Its fields.
    settings : ServerSettings
        What the request may choose among.
    credentials : str or None
        The request's Authorization, which tells owners of kept audio apart.

    Raises
    ------
    Problem
        A field is missing, unknown, or has a value that makes no sense.
    LimitExceededError
        The file is larger than the server takes.

    """
    unknown = sorted(name for name in form if name not in _KNOWN)
    if unknown:
        raise Problem(400, f"the field {unknown[0]!r} is not honoured here: leave it out", param=unknown[0])
    settings = _chosen(form, settings)
    uuid = _uuid(form, settings)
    name, open_source = _recording(form, settings, uuid)
    response_format = _text(form, "response_format") or "json"
    if response_format not in FORMATS:
        raise _refused("response_format", response_format, f"choose among {', '.join(FORMATS)}")
    is_streamed = _truth(form, "stream")
    if is_streamed and response_format not in ("json", "text"):
        raise _refused("stream", "true", f"{response_format} comes in one piece; leave it out, or ask for json")
    granularities = _granularities(form)
    if granularities and response_format != "verbose_json":
        raise _refused("timestamp_granularities[]", granularities[0], "ask for response_format verbose_json")
    if (strategy := _text(form, "chunking_strategy")) not in (None, "auto"):
        raise _refused("chunking_strategy", strategy or "", "recordings are always cut in their pauses: leave it out")
    return SpeechRequest(
        name=name,
        open_source=open_source,
        uuid=uuid,
        owner=hashlib.sha256(credentials.encode()).hexdigest() if credentials else None,
        model=_text(form, "model"),
        language=_text(form, "language"),
        prompt=_text(form, "prompt"),
        glossary=_terms(_text(form, "hotwords")),
        response_format=response_format,
        temperature=_temperature(form),
        beam_size=_beam_size(form),
        granularities=granularities,
        is_streamed=is_streamed,
        settings=settings,
    )


def _chosen(form: FormData, settings: ServerSettings) -> ServerSettings:
    given = _text(form, "media_io_kwargs")
    if given is None:
        return settings
    try:
        document = json.loads(given)
        options = document.get("audio") or {}
        if set(document) - {"audio"} or not isinstance(options, dict):
            raise ValueError("it has another key than audio")  # noqa: TRY301 - told below
    except (ValueError, AttributeError, RecursionError) as error:
        raise _refused("media_io_kwargs", given[:100], 'give {"audio": {"audio_backend": ...}}') from error
    try:
        return settings.for_request(options)
    except UnsupportedOptionError as error:
        raise Problem(400, str(error), param="media_io_kwargs", code="unsupported_option") from error


def _uuid(form: FormData, settings: ServerSettings) -> str | None:
    given = _text(form, "uuid")
    if given is not None and not keeps_inputs(settings):
        raise Problem(
            400,
            "the field 'uuid' is for servers that keep audio: leave it out, or start the server with "
            '--media-io-kwargs \'{"audio": {"mm_processor_cache_gb": ...}}\'',
            param="uuid",
            code="unsupported_option",
        )
    return given


def _recording(
    form: FormData, settings: ServerSettings, uuid: str | None
) -> tuple[str, Callable[[], AbstractContextManager[Source]] | None]:
    upload, url = form.get("file"), _text(form, "audio_url")
    if upload is None and url is None and uuid is not None:
        return "uuid", None
    if (upload is None) == (url is None):
        raise Problem(400, "the form has no file: send one, or an audio_url in its place", param="file")
    if url is not None:
        return "audio_url", lambda: open_media(url, settings.media)
    if not isinstance(upload, UploadFile):
        raise Problem(400, "the field 'file' is a text: send the file itself, with a file name", param="file")
    name = _file_name(upload.filename)
    if not upload.size:
        raise Problem(400, f"{name}: the file is empty; send the recording itself", param="file", code="invalid_audio")
    settings.limits.check_encoded(name, upload.size)

    @contextmanager
    def opened() -> Iterator[Source]:
        with upload.file:
            source = Source.of(upload.file, settings.limits)
            source.name = name
            yield source

    return name, opened


def _file_name(given: str | None) -> str:
    """Return the last part of a name that a stranger chose, fit for a message."""
    last = PureWindowsPath(PurePosixPath(given or "").name).name
    shown = "".join(character for character in last if character.isprintable())[:80].strip()
    return shown or "upload"


def _refused(field: str, value: str, advice: str) -> Problem:
    return Problem(400, f"{field} is {value!r}: {advice}", param=field)


def _text(form: FormData, field: str) -> str | None:
    value = form.get(field)
    if value is not None and not isinstance(value, str):
        raise Problem(400, f"the field {field!r} is a file: give a text", param=field)
    return value.strip() or None if value is not None else None


def _truth(form: FormData, field: str) -> bool:
    value = (_text(form, field) or "").casefold()
    if value not in (*_TRUE, *_FALSE):
        raise _refused(field, value, "give true or false")
    return value in _TRUE


def _temperature(form: FormData) -> float:
    given = _text(form, "temperature") or "0"
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 2:
        raise _refused("temperature", given, "give a number from 0 to 2")
    return value


def _beam_size(form: FormData) -> int | None:
    given = _text(form, "n")
    if not given:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise _refused("n", given, "give a whole number from 1")
    beams = int(given)
    if beams > 1 and not _truth(form, "use_beam_search"):
        raise _refused("n", given, "there is one text to a recording; set use_beam_search for a search with n beams")
    return beams


def _granularities(form: FormData) -> tuple[str, ...]:
    given = [*form.getlist("timestamp_granularities[]"), *form.getlist("timestamp_granularities")]
    for value in given:
        if value not in GRANULARITIES:
            raise _refused("timestamp_granularities[]", str(value), f"choose among {', '.join(GRANULARITIES)}")
    return tuple(dict.fromkeys(str(value) for value in given))


def _terms(given: str | None) -> tuple[str, ...]:
    terms: Sequence[str] = (given or "").replace(",", "\n").splitlines()
    return tuple(dict.fromkeys(term.strip() for term in terms if term.strip()))
