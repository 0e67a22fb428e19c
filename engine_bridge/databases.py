"""SQLite in little memory, and tables that go to a temporary file: for what a job knows of any number of recordings."""

import sqlite3

CACHE_KIB = 256
"""What each database holds in memory. SQLite's own 2 MiB for each would be most of what a job takes beside its engine,
and more for a longer one; pages that are dropped come back from the system's file cache."""


def open_tables(script: str) -> sqlite3.Connection:
    """Open a database of this process, gone when it is closed, with the tables that a script makes.

    Threads may share it where they take turns.
    """
    connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
    limit_cache(connection)
    connection.executescript(script)
    return connection


def limit_cache(connection: sqlite3.Connection) -> None:
    """Bound the memory that a database takes for its pages."""
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
