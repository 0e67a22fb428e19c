"""What is sent to an OpenAI-compatible server for a clip, and how its answer becomes a result."""

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_bridge.engines.http_answers import Refused, TooMuch
from engine_bridge.engines.http_languages import LANGUAGE_NAMES, language_code
from engine_bridge.engines.protocol import TRANSLATE, ClipResult, ClipSegment, DecodingOptions

FLAC = "flac"
WAV = "wav"

INSTRUCTION = "Write down what is said in this recording, word for word, and nothing else."
TRANSLATION_INSTRUCTION = "Write down in English what is said in this recording, and nothing else."
"""What a chat model is asked to do with a clip."""


@dataclass(frozen=True)
class ClipRequest:
    """A request that any number of servers can be sent.

    Attributes
    ----------
    path : str
        Below a server's base address.
    content : dict
        Keyword arguments of the client's ``post``.

    """

    path: str
    content: Mapping[str, Any]


def encode_clip(samples: NDArray[np.float32], sample_rate: int, container: str) -> bytes:
    """Return a clip as a file of 16-bit samples, without further loss.

    Parameters
    ----------
    samples : ndarray, shape (frames,), float32 in [-1, 1]
        The clip; values beyond are clipped.
    sample_rate : int
        Samples per second.
    container : str
        "flac", or "wav" for servers that read nothing else.

    """
    import soundfile

    file = io.BytesIO()
    # A file without samples is refused by many; a tenth of a second of silence says the same.
    filled = samples if len(samples) else np.zeros(sample_rate // 10, np.float32)
    soundfile.write(file, filled, sample_rate, format=container.upper(), subtype="PCM_16")
    return file.getvalue()


def transcription_request(data: bytes, container: str, model: str, options: DecodingOptions) -> ClipRequest:
    """Return the request to the transcriptions or translations endpoint for an encoded clip."""
    form = {
        "model": model,
        "temperature": f"{options.temperature:g}",
        "response_format": "verbose_json" if options.timestamps == "tokens" else "json",
    }
    if options.timestamps == "tokens":
        form["timestamp_granularities[]"] = "segment"
    if options.language is not None:
        form["language"] = options.language
    if options.prompt:
        form["prompt"] = options.prompt
    path = "/audio/translations" if options.task == TRANSLATE else "/audio/transcriptions"
    return ClipRequest(path, {"data": form, "files": {"file": (f"clip.{container}", data, f"audio/{container}")}})


def chat_request(data: bytes, container: str, model: str, options: DecodingOptions) -> ClipRequest:
    """Return the request to the chat endpoint for an encoded clip."""
    lines = [TRANSLATION_INSTRUCTION if options.task == TRANSLATE else INSTRUCTION]
    if options.language is not None:
        lines.append(f"The speech is in {LANGUAGE_NAMES.get(options.language, options.language)}.")
    if options.prompt:
        lines.append(f"Spell and punctuate as in: {options.prompt}")
    audio = {"data": base64.b64encode(data).decode("ascii"), "format": container}
    message = {
        "role": "user",
        "content": [{"type": "text", "text": " ".join(lines)}, {"type": "input_audio", "input_audio": audio}],
    }
    return ClipRequest(
        "/chat/completions", {"json": {"model": model, "messages": [message], "temperature": options.temperature}}
    )


def transcription_result(answer: Mapping[str, Any], seconds: float, options: DecodingOptions) -> ClipResult:
    """Return what the transcriptions endpoint made of a clip.

    Parameters
    ----------
    answer : mapping
        The server's JSON object.
    seconds : float
        The clip's length.
    options : DecodingOptions
        What was asked for.

    Raises
    ------
    Refused
        The answer has no text.

    """
    text = answer.get("text")
    if not isinstance(text, str):
        raise Refused(f"answered without a text: {sorted(answer)}", 200)
    told = answer.get("language")
    language = options.language or (language_code(told) if isinstance(told, str) else None)
    parts = answer.get("segments") if options.timestamps == "tokens" else None
    parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    segments = _segments(parts, seconds) or _whole(text, seconds)
    return ClipResult(
        segments=segments,
        language=language,
        average_log_probability=_mean(parts, "avg_logprob", -math.inf, 0.0),
        no_speech_probability=_mean(parts, "no_speech_prob", 0.0, 1.0),
    )


def chat_result(answer: Mapping[str, Any], seconds: float, options: DecodingOptions) -> ClipResult:
    """Return what the chat endpoint made of a clip; arguments as for `transcription_result`.

    Raises
    ------
    TooMuch
        The text was cut off for its length.
    Refused
        The answer has no text.

    """
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise Refused(f"answered without a text: {sorted(answer)}", 200) from None
    if not isinstance(text, str):
        raise Refused("answered with something else than a text", 200)
    if choice.get("finish_reason") == "length":
        raise TooMuch("cut its text off for its length", 200, is_tokens=True)
    if choice.get("finish_reason") == "content_filter":
        raise Refused("withheld the text (content_filter)", 200)
    return ClipResult(segments=_whole(text, seconds), language=options.language)


def _whole(text: str, seconds: float) -> tuple[ClipSegment, ...]:
    text = text.strip()
    return (ClipSegment(0.0, seconds, text),) if text else ()


def _segments(parts: list[dict[str, Any]], seconds: float) -> tuple[ClipSegment, ...]:
    """Return the segments of a verbose answer, ascending and within the clip, whatever the server wrote."""
    segments = []
    reached = 0.0
    for part in parts:
        text, start, end = part.get("text"), _number(part.get("start")), _number(part.get("end"))
        if not isinstance(text, str) or not text.strip():
            continue
        begin = min(max(reached, start if start is not None else reached), seconds)
        reached = min(max(begin, end if end is not None else seconds), seconds)
        segments.append(ClipSegment(begin, reached, text.strip()))
    return tuple(segments)


def _mean(parts: list[dict[str, Any]], name: str, least: float, most: float) -> float | None:
    values = [number for part in parts if (number := _number(part.get(name))) is not None]
    return min(max(sum(values) / len(values), least), most) if values else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
