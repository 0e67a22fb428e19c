"""Chunks as sound files with a manifest, for labelling, training and engines elsewhere."""

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from audio.chunk import Chunk
from audio.positions import seconds_from_samples
from engine_bridge.errors import OutputError
from engine_bridge.outputs import write_atomically

MANIFEST_SUFFIX = ".chunks.jsonl"


def write_chunks(chunks: Iterable[Chunk], directory: Path, name: str, source: str) -> Path:
    """Write each chunk as a FLAC file, and a manifest with one JSON object a line.

    The manifest is written last and in one piece: where it exists, all files it names exist too. A chunk whose silence
    was left out entirely has no file.

    Parameters
    ----------
    chunks : iterable of Chunk
        Written as they come; one is held at a time.
    directory : Path
        Made if missing.
    name : str
        What the file names start with.
    source : str
        The recording's name, for the manifest.

    Returns
    -------
    Path
        The manifest.

    Raises
    ------
    OutputError
        If a file cannot be written.

    """
    lines: list[str] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for chunk in chunks:
            file = f"{name}.{chunk.index:05d}.flac" if len(chunk.samples) else None
            if file is not None:
                _write_flac(directory / file, chunk)
            entry = {"index": chunk.index, "file": file, "source": source, **position_of(chunk)}
            lines.append(json.dumps(entry, ensure_ascii=False))
    except OSError as error:
        raise OutputError(f"{directory}: a chunk cannot be written: {error.strerror or error}") from error
    manifest = directory / f"{name}{MANIFEST_SUFFIX}"
    write_atomically(manifest, "".join(line + "\n" for line in lines), what="manifest")
    return manifest


def flac_of(chunk: Chunk) -> bytes:
    """Return a chunk's samples as a FLAC file of 16 bits; the same samples give the same bytes."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, chunk.samples, chunk.sample_rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def position_of(chunk: Chunk) -> dict[str, Any]:
    """Return where a chunk lies in its recording, as manifests tell it: in samples, and in seconds."""
    return {
        "sample_rate": chunk.sample_rate,
        "start": chunk.start,
        "stop": chunk.stop,
        "start_seconds": round(chunk.start_seconds, 6),
        "stop_seconds": round(chunk.stop_seconds, 6),
        "speech_seconds": round(sum(seconds_from_samples(b - a, chunk.sample_rate) for a, b in chunk.speech), 3),
        "kept": [list(span) for span in chunk.kept],
        "forced": chunk.forced,
    }


def _write_flac(path: Path, chunk: Chunk) -> None:
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(flac_of(chunk))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
