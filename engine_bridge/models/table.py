"""The families of audio models as a table, for people."""

from collections.abc import Iterator, Sequence

from engine_bridge.models.info import AudioModelInfo
from engine_bridge.models.registry import audio_models

HEADINGS = ("family", "rate", "channels", "clip", "audio", "clips a prompt", "does", "languages", "architectures")

MOST_LANGUAGES_LISTED = 9
"""Longer lists are told by their length."""


def family_table() -> Iterator[str]:
    """Yield the lines of a table with one row a family, by what its usual model takes and gives."""
    families: dict[AudioModelInfo, list[str]] = {}
    for name, model in audio_models().items():
        info = model.describe()
        families.setdefault(info, []).append(name)
    rows = [HEADINGS, *(_row(info, names) for info, names in families.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(info: AudioModelInfo, architectures: Sequence[str]) -> tuple[str, ...]:
    channels = info.audio_spec.target_channels
    count = len(info.languages)
    return (
        info.family,
        f"{info.sample_rate} Hz",
        "any" if channels is None else "mono" if channels == 1 else str(channels),
        f"{info.max_clip_seconds:g} s",
        f"{info.audio_tokens_per_second:.3g} tokens/s",
        "any" if info.items_per_prompt is None else str(info.items_per_prompt),
        ", ".join(info.tasks),
        " ".join(info.languages) if count <= MOST_LANGUAGES_LISTED else str(count),
        ", ".join(architectures),
    )
