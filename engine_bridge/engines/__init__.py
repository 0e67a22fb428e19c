"""Engines: one protocol, and what speaks it."""

from engine_bridge.engines.open import open_engine
from engine_bridge.engines.protocol import (
    ClipResult,
    ClipSegment,
    ClipWord,
    DecodingOptions,
    Engine,
    EngineCapabilities,
    LanguageProbabilities,
)

__all__ = [
    "ClipResult",
    "ClipSegment",
    "ClipWord",
    "DecodingOptions",
    "Engine",
    "EngineCapabilities",
    "LanguageProbabilities",
    "open_engine",
]
