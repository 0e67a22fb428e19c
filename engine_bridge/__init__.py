"""Chunks to an engine, and an engine's answers to one timed transcript."""

from typing import TYPE_CHECKING

from engine_bridge.errors import (
    EngineBridgeError,
    EngineError,
    EngineSpecError,
    EngineUnavailableError,
    JournalError,
    ModelNotFoundError,
    OutputError,
    UnsupportedOptionError,
)
from engine_bridge.transcript import Gap, Segment, Transcript, Word

if TYPE_CHECKING:
    from engine_bridge.batch.many import transcribe_many
    from engine_bridge.batch.recording import Recording
    from engine_bridge.batch.results import Failure, RecordingResult
    from engine_bridge.channels_apart import transcribe_channels
    from engine_bridge.engines.open import open_engine
    from engine_bridge.formats import read_json, render
    from engine_bridge.journal import Journal
    from engine_bridge.pipeline import stream_transcript, transcribe
    from engine_bridge.transcription import Progress, Transcription

_LAZY = {
    "Failure": "engine_bridge.batch.results",
    "Journal": "engine_bridge.journal",
    "Progress": "engine_bridge.transcription",
    "Recording": "engine_bridge.batch.recording",
    "RecordingResult": "engine_bridge.batch.results",
    "Transcription": "engine_bridge.transcription",
    "open_engine": "engine_bridge.engines.open",
    "read_json": "engine_bridge.formats",
    "render": "engine_bridge.formats",
    "stream_transcript": "engine_bridge.pipeline",
    "transcribe": "engine_bridge.pipeline",
    "transcribe_channels": "engine_bridge.channels_apart",
    "transcribe_many": "engine_bridge.batch.many",
}

__all__ = [
    "EngineBridgeError",
    "EngineError",
    "EngineSpecError",
    "EngineUnavailableError",
    "Failure",
    "Gap",
    "Journal",
    "JournalError",
    "ModelNotFoundError",
    "OutputError",
    "Progress",
    "Recording",
    "RecordingResult",
    "Segment",
    "Transcript",
    "Transcription",
    "UnsupportedOptionError",
    "Word",
    "open_engine",
    "read_json",
    "render",
    "stream_transcript",
    "transcribe",
    "transcribe_channels",
    "transcribe_many",
]


def __getattr__(name: str) -> object:
    """Import what needs numpy only when it is asked for, so that the errors and results cost nothing."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
