"""The SQLite file of a ledger: created whole, opened with care, found by one name."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ..._files import connect

_ATTEMPTS = 50
_VERSION = 1
_APPLICATION = 0x46526C67  # "FRlg"
DAMAGED = "is damaged: restore it from a copy"
_SCHEMA = """
    CREATE TABLE entries (
        client TEXT NOT NULL, run INTEGER NOT NULL, sequence INTEGER NOT NULL,
        time TEXT NOT NULL, n_rows INTEGER NOT NULL, upload TEXT NOT NULL,
        part INTEGER NOT NULL, content BLOB NOT NULL, checksum BLOB NOT NULL,
        PRIMARY KEY (client, run)
    );
    CREATE TABLE parts (
        id INTEGER PRIMARY KEY, about TEXT NOT NULL, numbers BLOB NOT NULL
    );
    CREATE TABLE total (
        id INTEGER PRIMARY KEY, n_clients INTEGER NOT NULL, about TEXT NOT NULL,
        numbers BLOB NOT NULL, rounded BLOB NOT NULL, roster BLOB NOT NULL,
        salt BLOB NOT NULL, checksum BLOB NOT NULL
    );
    CREATE TABLE changes (
        id INTEGER PRIMARY KEY, time TEXT NOT NULL, action TEXT NOT NULL,
        client TEXT NOT NULL, sequence INTEGER NOT NULL, before TEXT NOT NULL,
        after TEXT NOT NULL, checksum BLOB NOT NULL
    );
    CREATE TABLE run (id INTEGER PRIMARY KEY, time TEXT NOT NULL, asks TEXT NOT NULL);
"""


def opened(path: Path, *, is_new: bool = False) -> sqlite3.Connection:
    """Open a ledger, with a write-ahead log and nothing left of what is deleted."""
    database = connect(path)
    try:
        if is_new:
            database.execute("PRAGMA page_size = 32768")  # numbers are long
            database.execute("PRAGMA synchronous = OFF")  # all of it at the end
        else:
            _check_header(database)
        mode = database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise OSError(
                "is on a file system without the locks and shared memory that SQLite "
                "needs for its write-ahead log, as some network drives are: put it on "
                "a local disk"
            )
        # What is deleted is overwritten with zeros, not only forgotten.
        database.execute("PRAGMA secure_delete = ON")
    except BaseException:
        database.close()
        raise
    return database


def _check_header(database: sqlite3.Connection) -> None:
    """Refuse other databases and other versions, before anything is changed."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise OSError("is another program's database")
    if version > _VERSION:
        raise OSError("was written by a newer fedridge-flwr: install it")
    if version != _VERSION:
        raise OSError(DAMAGED)


def create_ledger(path: Path, fill: Callable[[sqlite3.Connection], object]) -> None:
    """Create a ledger that is filled, whole or not at all; another may be faster."""
    with tempfile.TemporaryDirectory(prefix=path.name, dir=path.parent) as folder:
        beside = Path(folder) / path.name
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(opened(beside, is_new=True)) as database:
            database.executescript(f"BEGIN; {_SCHEMA}")
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
            fill(database)
            database.execute("COMMIT")
        _sync(beside)
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
            os.unlink(beside)
    if hasattr(os, "O_DIRECTORY"):  # elsewhere folders cannot be synced
        _sync(path.parent)


def refuse_remains(path: Path) -> None:
    """Refuse to begin where changes of another file wait: SQLite would make them."""
    for end in ("-wal", "-journal"):
        beside = path.with_name(path.name + end)
        if beside.exists() and beside.stat().st_size:
            raise OSError(
                f"is missing, but {beside.name} beside it has changes of it: put the "
                f"file back, or delete {beside.name} as well"
            )


def place_of(path: Path) -> tuple[int, int]:
    """Return which file is at a path.

    SQLite keeps what it writes beside the name: of one file with two names, or one that
    was moved, it would lose changes.
    """
    for attempt in range(_ATTEMPTS):
        found = path.stat()
        if found.st_nlink <= 1:  # some file systems do not count
            return found.st_dev, found.st_ino
        if attempt < _ATTEMPTS - 1:  # perhaps it is being created
            time.sleep(0.01)
    raise OSError("has a hard link, a second name: delete one of them")


def make_empty(path: Path) -> None:
    """Create an empty file that only its owner can read, unless there is one.

    It is closed before it has this name: to close it would drop the locks of others.
    """
    if not path.exists():
        handle, beside = tempfile.mkstemp(dir=path.parent)
        os.close(handle)
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
        os.unlink(beside)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
