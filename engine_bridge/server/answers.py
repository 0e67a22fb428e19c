"""Transcripts in the forms of OpenAI's API: documents, subtitles, and events while the text becomes known."""

import json
import math
import time
import uuid
import zlib
from typing import Any

from engine_bridge.formats import render
from engine_bridge.joining import needs_space
from engine_bridge.transcript import Gap, Segment, Transcript

MEDIA_TYPES = {"text": "text/plain", "srt": "text/plain", "vtt": "text/vtt"}
"""Of what is no JSON."""


def document(transcript: Transcript) -> dict[str, Any]:
    """Return the answer in the format json: the text, and what a reader should know about it."""
    return {"text": transcript.text, "usage": usage(transcript), **coverage(transcript)}


def verbose_document(
    transcript: Transcript, task: str, temperature: float, granularities: tuple[str, ...]
) -> dict[str, Any]:
    """Return the answer in the format verbose_json.

    Parameters
    ----------
    transcript : Transcript
        What came of the recording.
    task : str
        "transcribe" or "translate".
    temperature : float
        What was asked for.
    granularities : tuple of str
        With "word", words are listed with their times; without "segment", segments are left out then.

    """
    answer: dict[str, Any] = {
        "task": task,
        "language": transcript.language,
        "duration": round(transcript.duration, 3),
        "text": transcript.text,
        "usage": usage(transcript),
    }
    if not granularities or "segment" in granularities:
        answer["segments"] = [
            _segment(number, segment, temperature) for number, segment in enumerate(_believed(transcript))
        ]
    if "word" in granularities:
        answer["words"] = [
            {"word": word.text, "start": round(word.start, 3), "end": round(word.end, 3)}
            for segment in _believed(transcript)
            for word in segment.words
        ]
    return {**answer, **coverage(transcript), "timings": transcript.timings}


def text_answer(transcript: Transcript, response_format: str) -> str:
    """Return the answer in the format text, srt or vtt."""
    return transcript.text + "\n" if response_format == "text" else render(transcript, response_format)


def usage(transcript: Transcript) -> dict[str, Any]:
    """Return what the recording counts as: whole seconds, rounded up, as in OpenAI's API."""
    return {"type": "duration", "seconds": math.ceil(transcript.duration - transcript.start)}


def coverage(transcript: Transcript) -> dict[str, Any]:
    """Return the speech that has no text, and the warnings."""
    return {"gaps": [_gap(gap) for gap in transcript.gaps], "warnings": list(transcript.warnings)}


def _believed(transcript: Transcript) -> list[Segment]:
    return [segment for segment in transcript.segments if segment.suspect is None]


def _gap(gap: Gap) -> dict[str, Any]:
    return {"start": round(gap.start, 3), "end": round(gap.end, 3), "reason": gap.reason}


def _segment(number: int, segment: Segment, temperature: float) -> dict[str, Any]:
    data = segment.text.encode()
    confidence = segment.confidence
    return {
        "id": number,
        "seek": round(100 * segment.start),
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "tokens": [],
        "temperature": temperature,
        "avg_logprob": None if not confidence else round(math.log(confidence), 4),
        "compression_ratio": round(len(data) / len(zlib.compress(data)), 4) if data else 0.0,
        "no_speech_prob": None,
    }


class Events:
    """The events of one answer (server-sent events).

    Each is of OpenAI's form (``type`` and ``delta``) and of vLLM's (``object`` and ``choices``) at once, so that
    clients of either read it; the last line is ``[DONE]`` as in both.

    Parameters
    ----------
    model : str
        The model's name.
    task : str
        "transcribe" or "translate".

    """

    MEDIA_TYPE = "text/event-stream"
    KEEP_ALIVE = ": still at work\n\n"
    DONE = "data: [DONE]\n\n"

    def __init__(self, model: str, task: str) -> None:
        kind = "transcription" if task == "transcribe" else "translation"
        self._head = {
            "id": f"{kind}-{uuid.uuid4().hex}",
            "object": f"{kind}.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._last = ""

    def delta(self, segment: Segment) -> str | None:
        """Return the event of a segment's text; None for text that is not believed, which the transcript leaves out."""
        if segment.suspect is not None or not segment.text:
            return None
        added = f" {segment.text}" if self._last and needs_space(self._last, segment.text) else segment.text
        self._last = segment.text
        return self._event({"type": "transcript.text.delta", "delta": added}, added, None)

    def done(self, transcript: Transcript) -> str:
        """Return the event after the last segment."""
        more = {"usage": usage(transcript), **coverage(transcript)}
        return self._event({"type": "transcript.text.done", "text": transcript.text, **more}, "", "stop")

    @staticmethod
    def failed(body: dict[str, Any]) -> str:
        """Return the event of an answer that breaks off."""
        return f"data: {json.dumps({'type': 'error', **body}, ensure_ascii=False)}\n\n"

    def _event(self, own: dict[str, Any], added: str, finish_reason: str | None) -> str:
        choice = {"index": 0, "delta": {"content": added}, "finish_reason": finish_reason}
        return f"data: {json.dumps({**self._head, **own, 'choices': [choice]}, ensure_ascii=False)}\n\n"
