"""One shard of chunks: a WebDataset tar, a Parquet file, or a folder as lhotse reads it. Each is whole or absent.

Every chunk has a ``key``; the ``recording`` it is from and its ``source``; ``index``, ``start`` and ``stop`` in samples
of the recording at ``sample_rate``, and ``start_seconds`` and ``stop_seconds``; ``speech_seconds`` in it; ``kept``, the
spans that its audio holds where silence was shortened; ``forced``, where it ends within speech; ``frames``; the
``sha256`` of its FLAC file; ``language`` and ``extra``, as the manifest said. The same chunks give the same bytes.
"""

import gzip
import io
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from engine_bridge.batch.tables import import_parquet
from engine_bridge.outputs import replaced, written

_GROUP_ROWS = 100
_GROUP_BYTES = 1 << 25
"""A group of rows in Parquet ends at either; one is held in memory. Readers of audio hold one as well."""

_WHAT = "shard"


class ShardWriter(Protocol):
    """Takes the chunks of one shard."""

    def add(self, entry: dict[str, Any], content: bytes) -> None:
        """Write a chunk: its description, and its FLAC file."""


def shard_extension(kind: str) -> str:
    """Return how a shard's name ends."""
    return {"webdataset": ".tar", "parquet": ".parquet", "lhotse": ""}[kind]


def open_shard(kind: str, path: Path) -> AbstractContextManager[ShardWriter]:
    """Open a new shard; when the context ends without error, it is there, and else nothing is.

    Parameters
    ----------
    kind : {"webdataset", "parquet", "lhotse"}
        Its form.
    path : Path
        The file, or for lhotse the folder.

    Raises
    ------
    OutputError
        It cannot be written.
    EngineUnavailableError
        Parquet is asked for, and pyarrow is absent.

    """
    openers: dict[str, Callable[[Path], AbstractContextManager[ShardWriter]]] = {
        "webdataset": _open_tar,
        "parquet": _open_parquet,
        "lhotse": _open_folder,
    }
    return openers[kind](path)


@contextmanager
def _open_tar(path: Path) -> Iterator[ShardWriter]:
    with (
        replaced(path, what=_WHAT) as temporary,
        written(path, what=_WHAT),
        tarfile.open(temporary, "x", format=tarfile.PAX_FORMAT) as tar,
    ):
        yield _TarShard(tar)


class _TarShard:
    """Samples are files of one name before the first dot, side by side."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def add(self, entry: dict[str, Any], content: bytes) -> None:
        description = json.dumps(entry, ensure_ascii=False, sort_keys=True, default=str).encode(
            "utf-8", "backslashreplace"
        )
        self._add(f"{entry['key']}.flac", content)
        self._add(f"{entry['key']}.json", description)

    def _add(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)  # owner, mode and time are always the same: 0, 0644 and 0
        member.size = len(content)
        self._tar.addfile(member, io.BytesIO(content))


@contextmanager
def _open_parquet(path: Path) -> Iterator[ShardWriter]:
    parquet = import_parquet(os.fspath(path))
    with replaced(path, what=_WHAT) as temporary, written(path, what=_WHAT), ExitStack() as stack:
        shard = _ParquetShard(parquet, temporary, stack)
        yield shard
        shard.flush()


class _ParquetShard:
    """Audio as datasets has it: a struct of bytes and path, named as such in the schema's metadata."""

    def __init__(self, parquet: Any, path: Path, stack: ExitStack) -> None:
        import pyarrow as pa

        features = {"info": {"features": {"audio": {"_type": "Audio"}}}}
        audio = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        fields = [
            ("audio", audio),
            *((name, pa.string()) for name in ("key", "recording", "source", "language", "sha256", "extra")),
            *((name, pa.int64()) for name in ("index", "sample_rate", "start", "stop", "frames")),
            *((name, pa.float64()) for name in ("start_seconds", "stop_seconds", "speech_seconds")),
            ("kept", pa.list_(pa.list_(pa.int64()))),
            ("forced", pa.bool_()),
        ]
        self._schema = pa.schema(fields, metadata={"huggingface": json.dumps(features)})
        self._table = pa.Table
        self._writer = stack.enter_context(
            parquet.ParquetWriter(stack.enter_context(path.open("xb")), self._schema, compression="zstd")
        )
        self._rows: list[dict[str, Any]] = []
        self._held = 0

    def add(self, entry: dict[str, Any], content: bytes) -> None:
        audio = {"bytes": content, "path": f"{entry['key']}.flac"}
        self._rows.append({**entry, "audio": audio, "extra": json.dumps(entry["extra"], sort_keys=True, default=str)})
        self._held += len(content)
        if len(self._rows) >= _GROUP_ROWS or self._held >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are held back."""
        if self._rows:
            self._writer.write_table(self._table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._held = [], 0


@contextmanager
def _open_folder(path: Path) -> Iterator[ShardWriter]:
    temporary = path.with_name(f".auricle-{secrets.token_hex(8)}.part")
    with written(path, what=_WHAT):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.mkdir()
            with ExitStack() as stack:
                yield _FolderShard(temporary, path, stack)
            # Thousands of small files: one call for all is faster than one for each.
            os.sync()
            temporary.replace(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


class _FolderShard:
    """FLAC files, and lhotse's manifests of recordings, supervisions and cuts beside them.

    The paths in them begin with the output folder as it was given.
    """

    def __init__(self, folder: Path, path: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._path = path
        self._manifests = {
            name: stack.enter_context(_gzipped(folder / f"{name}.jsonl.gz"))
            for name in ("recordings", "supervisions", "cuts")
        }

    def add(self, entry: dict[str, Any], content: bytes) -> None:
        name = f"audio/{entry['key']}.flac"
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        duration = entry["frames"] / entry["sample_rate"]
        recording = {
            "id": entry["key"],
            "sources": [{"type": "file", "channels": [0], "source": os.fspath(self._path / name)}],
            "sampling_rate": entry["sample_rate"],
            "num_samples": entry["frames"],
            "duration": duration,
            "channel_ids": [0],
        }
        supervision = {
            "id": entry["key"],
            "recording_id": entry["key"],
            "start": 0.0,
            "duration": duration,
            "channel": 0,
            **({} if entry["language"] is None else {"language": entry["language"]}),
            "custom": {name: value for name, value in entry.items() if name not in ("key", "frames", "sample_rate")},
        }
        written_cut = {
            "id": entry["key"],
            "start": 0,
            "duration": duration,
            "channel": 0,
            "supervisions": [supervision],
            "recording": recording,
            "type": "MonoCut",
        }
        for manifest, item in (("recordings", recording), ("supervisions", supervision), ("cuts", written_cut)):
            line = json.dumps(item, ensure_ascii=False, sort_keys=True, default=str) + "\n"
            self._manifests[manifest].write(line.encode("utf-8", "backslashreplace"))


@contextmanager
def _gzipped(path: Path) -> Iterator[gzip.GzipFile]:
    """Open a gzip file that says neither its name nor its time."""
    with path.open("xb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
        yield zipped
