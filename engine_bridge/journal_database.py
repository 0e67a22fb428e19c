"""The file of a journal: its tables, and how it is opened by any number of processes at once."""

import sqlite3
import time
from pathlib import Path

from engine_bridge.databases import limit_cache
from engine_bridge.errors import JournalError

SCHEMA_VERSION = 1

PATIENCE_SECONDS = 60.0
"""How long a change waits for those of other processes, each of which takes less than a millisecond."""

_AGAIN_SECONDS = 0.005

_TABLES = """
CREATE TABLE contents (path BLOB PRIMARY KEY, size INTEGER, modified INTEGER, inode INTEGER, digest BLOB) WITHOUT ROWID;
CREATE TABLE recordings (
    number INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE NOT NULL, state TEXT NOT NULL, changed REAL NOT NULL,
    duration REAL, transcript BLOB, kind TEXT, reason TEXT, place REAL
);
CREATE TABLE answers (recording INTEGER, key BLOB, answer BLOB, PRIMARY KEY (recording, key)) WITHOUT ROWID;
CREATE TABLE outputs (path BLOB PRIMARY KEY, fingerprint TEXT NOT NULL) WITHOUT ROWID;
"""


def open_database(path: Path) -> sqlite3.Connection:
    """Open a journal's file, or begin it; for use by any thread.

    Raises
    ------
    sqlite3.Error
        If it cannot be opened or written, or is no database.
    JournalError
        If it is of a version that is not known here.

    """
    connection = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        limit_cache(connection)
        mode = _write_ahead(connection)
        # Without the log, as on some network file systems, only full synchronisation keeps the file whole.
        connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
        connection.execute("BEGIN IMMEDIATE")
        _make_tables(connection, path)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Ask for the write-ahead log, and return the mode that SQLite then has.

    Of those that turn a new file to the log at the same moment SQLite refuses all but one without waiting: each holds
    the file for reading, and none could go on. Asked again, it finds the log in place.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(_AGAIN_SECONDS)


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in filter(str.strip, _TABLES.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    elif version != SCHEMA_VERSION:
        raise JournalError(
            f"{path}: the journal has version {version} and this program reads version {SCHEMA_VERSION}; "
            "update the program, or choose another folder"
        )
