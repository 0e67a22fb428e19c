"""What a folder of shards holds already, and who may write to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine_bridge.batch.chunking import SplitSettings
from engine_bridge.batch.locks import ByteLocks
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address
from engine_bridge.databases import open_tables
from engine_bridge.errors import OutputError
from engine_bridge.outputs import written

_LOCK = ".auricle.lock"


def made_by(kind: str, settings: SplitSettings) -> dict[str, Any]:
    """Return what has to be the same for shards to lie in one folder."""
    return {"kind": kind, "settings": asdict(settings)}


def bytes_of(recording: Recording) -> int | None:
    """Return the size of a recording's file on this machine, by which it is known to have changed; None for others."""
    source = recording.source
    if isinstance(source, str | os.PathLike) and not is_address(source):
        with suppress(OSError):
            return os.stat(source).st_size  # noqa: PTH116 - the path as it was given
    return None


class ShardState:
    """What earlier runs have put into shards, kept outside memory."""

    def __init__(self, folder: Path, kind: str, settings: SplitSettings) -> None:
        self._numbers: set[int] = set()
        self._known = open_tables("CREATE TABLE known (id TEXT PRIMARY KEY, shard TEXT NOT NULL, bytes) WITHOUT ROWID")
        try:
            for path in sorted(folder.glob("shard-*.json")):
                self._add(path, made_by(kind, settings))
        except BaseException:
            self._known.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._known.close()

    def _add(self, path: Path, expected: dict[str, Any]) -> None:
        try:
            description = json.loads(path.read_text(encoding="utf-8"))
            shard, before = str(description["shard"]), {name: description[name] for name in expected}
            recordings = [(str(each["recording"]), shard, each["bytes"]) for each in description["recordings"]]
            number = int(path.stem.removeprefix("shard-"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OutputError(
                f"{path}: this description of a shard cannot be read ({error}); remove it, and the shard is made again"
            ) from error
        if not path.with_name(shard).exists():
            return  # removed, to be made again
        if before != expected:
            raise OutputError(
                f"{path.parent}: it holds shards that were made otherwise ({_difference(before, expected)}); choose "
                "another folder, or remove them"
            )
        self._numbers.add(number)
        self._known.executemany("INSERT OR IGNORE INTO known VALUES (?, ?, ?)", recordings)

    def shard_of(self, recording: Recording) -> str | None:
        """Return the shard that holds a recording, or None."""
        row = self._row(recording)
        return None if row is None else str(row[0])

    def has_changed(self, recording: Recording) -> bool:
        """Return whether a recording in a shard is of another size than it was then."""
        row = self._row(recording)
        return row is not None and row[1] is not None and row[1] != bytes_of(recording)

    def _row(self, recording: Recording) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._known.execute(
            "SELECT shard, bytes FROM known WHERE id = ?", (recording.id,)
        ).fetchone()
        return row

    def next_number(self, least: int) -> int:
        """Return the next number that no shard has."""
        while least in self._numbers:
            least += 1
        return least


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Name the first thing that differs."""
    if before["kind"] != now["kind"]:
        return f"as {before['kind']} and not as {now['kind']}"
    names = {*before["settings"], *now["settings"]}
    name = min(name for name in names if before["settings"].get(name) != now["settings"].get(name))
    return f"with {name} {before['settings'].get(name)!r} and not {now['settings'].get(name)!r}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder, and remove what killed ones left half written."""
    with written(folder, what="shard"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = ByteLocks(folder / _LOCK)
    try:
        if not lock.acquire(0):
            raise OutputError(f"{folder}: another run is writing shards there; wait for it, or choose another folder")
        for left in folder.glob(".auricle-*.part"):
            with suppress(OSError):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield
    finally:
        lock.close()
