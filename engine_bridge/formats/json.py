"""JSON: everything a transcript holds, under a versioned schema, and back.

Version 1 is one object: ``schema``, ``version``, ``source``, ``engine``, ``backend``, ``language``,
``language_probability``, ``start``, ``duration``, ``claimed_duration``, ``text``, ``segments`` (``start``, ``end``,
``text``, ``confidence``, ``attempts``, ``suspect``, ``language``, ``channel``, ``estimated``, ``words``), ``gaps``
(``start``, ``end``, ``reason``), ``warnings`` and ``timings``. Times are seconds rounded to milliseconds; probabilities
have four decimals. Keys may be added within a version; readers ignore those that they do not know.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from engine_bridge.errors import TranscriptFormatError
from engine_bridge.formats.base import Format
from engine_bridge.transcript import Gap, Segment, Transcript, Word

SCHEMA = "auricle.transcript"
VERSION = 1

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def write(transcript: Transcript, file: TextIO) -> None:
    """Write a transcript as one JSON object, with one segment a line.

    Parameters
    ----------
    transcript : Transcript
        What to write.
    file : text stream
        Where to write it.

    """
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "source": transcript.source,
        "engine": transcript.engine,
        "backend": transcript.backend,
        "language": transcript.language,
        "language_probability": _rounded(transcript.language_probability, 4),
        "start": _rounded(transcript.start),
        "duration": _rounded(transcript.duration),
        "claimed_duration": _rounded(transcript.claimed_duration),
        "text": transcript.text,
    }
    tail: dict[str, Any] = {"warnings": list(transcript.warnings), "timings": _rounded(transcript.timings)}
    file.write("{\n")
    file.writelines(f"  {_dumps(key)}: {_dumps(value)},\n" for key, value in head.items())
    _write_list("segments", map(_segment, transcript.segments), file)
    _write_list("gaps", map(_gap, transcript.gaps), file)
    file.write(",\n".join(f"  {_dumps(key)}: {_dumps(value)}" for key, value in tail.items()))
    file.write("\n}\n")


def read_json(text: str) -> Transcript:
    """Read back what `write` wrote.

    Parameters
    ----------
    text : str
        The whole JSON text.

    Returns
    -------
    Transcript
        The transcript, with its times as rounded when it was written.

    Raises
    ------
    TranscriptFormatError
        If the text is not JSON, not such a transcript, or of a version this program does not know.

    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise TranscriptFormatError(f"the text is not JSON ({error}); read a file that was written as json") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise TranscriptFormatError(f"the JSON has no schema {SCHEMA!r}; read a file that was written as json")
    if document.get("version") != VERSION:
        raise TranscriptFormatError(
            f"the transcript has schema version {document.get('version')!r} and this program reads version {VERSION}; "
            "update the program"
        )
    try:
        return _transcript(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TranscriptFormatError(
            f"the transcript is damaged ({type(error).__name__}: {error}); write it again"
        ) from error


def _dumps(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # File names that are not UTF-8 hold lone surrogates, which no text file can carry unescaped.
    return _LONE_SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _write_list(key: str, items: Iterable[dict[str, Any]], file: TextIO) -> None:
    file.write(f"  {_dumps(key)}: [")
    separator = "\n    "
    for item in items:
        file.write(separator + _dumps(item))
        separator = ",\n    "
    file.write("],\n" if separator == "\n    " else "\n  ],\n")


def _rounded(value: Any, digits: int = 3) -> Any:
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, digits) for item in value]
    return value


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "start": _rounded(segment.start),
        "end": _rounded(segment.end),
        "text": segment.text,
        "confidence": _rounded(segment.confidence, 4),
        "attempts": segment.attempts,
        "suspect": segment.suspect,
        "language": segment.language,
        "channel": segment.channel,
        "estimated": segment.estimated,
        "words": [
            {
                "start": _rounded(word.start),
                "end": _rounded(word.end),
                "text": word.text,
                "probability": _rounded(word.probability, 4),
            }
            for word in segment.words
        ],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {"start": _rounded(gap.start), "end": _rounded(gap.end), "reason": gap.reason}


def _transcript(document: dict[str, Any]) -> Transcript:
    return Transcript(
        segments=tuple(_read_segment(item) for item in document["segments"]),
        gaps=tuple(
            Gap(_number(item["start"]), _number(item["end"]), _string(item["reason"])) for item in document["gaps"]
        ),
        duration=_number(document["duration"]),
        language=_optional_string(document["language"]),
        source=_string(document["source"]),
        engine=_string(document["engine"]),
        backend=_string(document["backend"]),
        claimed_duration=_optional_number(document["claimed_duration"]),
        warnings=tuple(_string(item) for item in document["warnings"]),
        timings=dict(document["timings"].items()),
        # Files written before it was added lack it.
        language_probability=_optional_number(document.get("language_probability")),
        start=_number(document.get("start", 0.0)),
    )


def _read_segment(item: dict[str, Any]) -> Segment:
    return Segment(
        start=_number(item["start"]),
        end=_number(item["end"]),
        text=_string(item["text"]),
        words=tuple(
            Word(_number(word["start"]), _number(word["end"]), _string(word["text"]), _number(word["probability"]))
            for word in item["words"]
        ),
        confidence=_optional_number(item["confidence"]),
        attempts=_integer(item["attempts"]),
        suspect=_optional_string(item["suspect"]),
        language=_optional_string(item["language"]),
        channel=_optional_string(item.get("channel")),
        estimated=_boolean(item.get("estimated", False)),
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _optional_number(value: object) -> float | None:
    return None if value is None else _number(value)


def _optional_string(value: object) -> str | None:
    return None if value is None else _string(value)


FORMAT = Format("json", ".json", write)
