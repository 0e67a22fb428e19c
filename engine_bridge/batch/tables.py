"""Tables of recordings: Parquet, Arrow and Hugging Face's datasets as sources, row by row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any

from audio.errors import AudioError
from audio.source import AudioSource, Source
from engine_bridge.batch.entries import recording_of
from engine_bridge.batch.failing import failing
from engine_bridge.batch.names import Names, name_of_parts
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address, opened, shown_address
from engine_bridge.errors import EngineUnavailableError, ManifestError

AUDIO_COLUMNS = ("audio", "path", "url")
"""Where a table's audio is looked for, in this order."""

_ROWS = 16
"""Rows that are read at once: each may carry a recording's bytes."""


def recordings_from_table(
    table: Any,
    *,
    audio: str | None = None,
    carried: Collection[str] = (),
    base: str = "",
    name: str = "row",
    names: Names | None = None,
) -> Iterator[Recording]:
    """Read recordings from a table, one row at a time.

    Parameters
    ----------
    table : pyarrow Table, RecordBatch or RecordBatchReader; datasets Dataset or IterableDataset; iterable of mapping
        The rows. The columns other than the audio's mean what they do in manifests (`engine_bridge.batch.manifests`),
        and what has no meaning there is carried on. Datasets are read as they are stored, without decoding.
    audio : str, optional
        The column of the audio: paths or addresses, encoded bytes, or structs of ``bytes`` and ``path``, as an
        undecoded ``Audio`` of datasets has them. By default the first of `AUDIO_COLUMNS` there is.
    carried : collection of str
        Columns that are only carried on, although manifests have a meaning for their names.
    base : str
        The folder, or the address of one, that paths are relative to.
    name : str
        What recordings are called that have neither an id nor a path: "row-0", "row-1".
    names : Names, optional
        The ids that are taken; those of this table alone by default.

    Yields
    ------
    Recording
        In the table's order. A row that cannot be understood is a recording that fails with a `ManifestError`.

    """
    with Names() if names is None else nullcontext(names) as taken:
        for number, row in enumerate(_rows(table)):
            called = f"{name}-{number}"
            try:
                sound, entry, rest = _divided(row, audio, carried)
                yield recording_of(entry, base=base, names=taken, audio=sound, default_id=called, carried=rest)
            except ManifestError as error:
                yield failing(taken.unique(called), ManifestError(f"row {number} of the table: {error}"))


def recordings_from_parquet(path: str, *, names: Names | None = None) -> Iterator[Recording]:
    """Read recordings from a Parquet file, or one at an address, as `recordings_from_table` does.

    Memory holds some rows at a time. A file that cannot be read is a recording that fails.

    Parameters
    ----------
    path : str
        The file or its address.
    names : Names, optional
        The ids that are taken; those of this table alone by default.

    """
    shown = shown_address(path) if is_address(path) else path
    called = name_of_parts([shown.rpartition("/")[2]])
    with Names() if names is None else nullcontext(names) as taken:
        try:
            parquet = import_parquet(shown)
            with opened(path) as source, ExitStack() as stack:
                file = source
                if isinstance(source, Source):
                    file = stack.enter_context(source.open())
                table = stack.enter_context(parquet.ParquetFile(file))
                base = shown.rpartition("/")[0]
                yield from recordings_from_table(
                    table.iter_batches(batch_size=_ROWS), base=base, name=called, names=taken
                )
        except EngineUnavailableError as error:
            yield failing(taken.unique(called), error)
        except (AudioError, OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0].rstrip(".")
            yield failing(
                taken.unique(called), ManifestError(f"{shown}: the table cannot be read ({reason}); check it")
            )


def import_parquet(path: str) -> Any:
    """Return pyarrow's module for Parquet.

    Raises
    ------
    EngineUnavailableError
        It is absent; the message names the path, and the extra that brings it.

    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise EngineUnavailableError(
            f"{path}: Parquet needs pyarrow ({error}); install it with: pip install 'auricle[tables]'"
        ) from error
    return pyarrow.parquet


def _rows(table: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a table's rows as dictionaries, few of them in memory at a time."""
    if hasattr(table, "with_format"):  # a dataset; its own rows would be decoded
        table = table.with_format("arrow").iter(batch_size=_ROWS)
    elif hasattr(table, "to_batches"):
        table = table.to_batches(max_chunksize=_ROWS)
    elif hasattr(table, "to_pylist"):
        table = [table]
    for part in table:
        if isinstance(part, Mapping):
            yield part
            continue
        for start in range(0, part.num_rows, _ROWS):
            yield from part.slice(start, _ROWS).to_pylist()


def _divided(
    row: Mapping[str, Any], audio: str | None, carried: Collection[str]
) -> tuple[AudioSource | None, dict[str, Any], dict[str, Any]]:
    """Return a row's audio, or None where it lies at a path; the row as a manifest's entry; and what is carried on."""
    column = audio if audio is not None else next((each for each in AUDIO_COLUMNS if row.get(each) is not None), None)
    if column is None or row.get(column) is None:
        looked = audio if audio is not None else ", ".join(AUDIO_COLUMNS)
        raise ManifestError(f"there is no audio in the column {looked}; name the column that holds it")
    sound, path = _audio(row[column], column)
    # Other columns that could hold the audio, such as a path it once had, are not what is read.
    beside = {*carried, *AUDIO_COLUMNS} - {column}
    entry = {name: value for name, value in row.items() if name != column and name not in beside}
    return sound, {**entry, "path": path}, {name: value for name, value in row.items() if name in beside}


def _audio(value: Any, column: str) -> tuple[AudioSource | None, str | None]:
    if isinstance(value, str):
        return None, value
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, Mapping):
        content, path = value.get("bytes"), value.get("path")
        if content is not None or path is not None:
            return content, path
        if value.get("array") is not None and value.get("sampling_rate"):
            return (value["array"], int(value["sampling_rate"])), None
    raise ManifestError(
        f"the column {column!r} holds {type(value).__name__}; give paths, bytes, or structs of bytes and path"
    )
