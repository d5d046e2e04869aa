"""The file of a privacy ledger: an SQLite database, or a JSON file of 0.1.0 before it.

One row per answered round. A checksum over all rows finds a damaged file, since SQLite
would read a flipped bit in a client's name as another client that has spent nothing.
A JSON file of 0.1.0 is converted when it is first opened.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._files import connect, read_file, real_path, strict_json
from ..errors import PrivacyError

log = logging.getLogger("flwr")
_VERSION = 1
_DAMAGED = "is damaged (restore it from a copy)"
_SCHEMA = """
    BEGIN IMMEDIATE;
    CREATE TABLE answers (
        client TEXT NOT NULL, release TEXT NOT NULL, server_round INTEGER NOT NULL,
        time TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
        mu_add_or_remove REAL NOT NULL, mu_replace REAL NOT NULL,
        neighboring TEXT NOT NULL, rounds INTEGER NOT NULL,
        PRIMARY KEY (client, release, server_round)
    );
    CREATE TABLE checksum (value TEXT NOT NULL);
    INSERT INTO checksum VALUES ('');
"""


class Entry(NamedTuple):
    """One answered round of one release; the first round pays for all of them."""

    client: str
    release: str
    server_round: int
    time: str
    epsilon: float
    delta: float
    mu_add_or_remove: float
    mu_replace: float
    neighboring: str
    rounds: int


@contextlib.contextmanager
def open_entries(path: Path) -> Iterator[tuple[sqlite3.Connection, list[Entry]]]:
    """Open a ledger, which is created where there is none, and lock it for writing.

    Without `append`, nothing is changed.

    Raises
    ------
    PrivacyError
        If the file cannot be read or written, or is damaged.
    """
    try:
        real = real_path(path)
    except OSError as error:
        log.warning("The privacy ledger %s %s.", path, error)
        raise _refused(str(error)) from error
    try:
        with _opened(real) as database:
            database.execute("BEGIN IMMEDIATE")
            yield database, _checked_entries(database)
    except (OSError, sqlite3.OperationalError) as error:
        raise _refused(f"cannot be read or written ({type(error).__name__})") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _refused(_DAMAGED) from error


def append(
    database: sqlite3.Connection, entries: Sequence[Entry], added: Sequence[Entry]
) -> None:
    """Add entries to those in the database, and commit: they are then on disk."""
    database.executemany("INSERT INTO answers VALUES (?,?,?,?,?,?,?,?,?,?)", added)
    database.execute("UPDATE checksum SET value = ?", [_checksum([*entries, *added])])
    database.execute("COMMIT")


@contextlib.contextmanager
def _connected(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    with contextlib.closing(connect(path, mode)) as database:
        yield database


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger for an entry, after it was created or converted if need be."""
    with contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context(_connected(path))
        except sqlite3.DatabaseError:
            # There is none, or it is JSON. What else is wrong is wrong again below.
            if not _is_database(path):
                _create_or_convert(path)
            database = stack.enter_context(_connected(path))
        # A journal that came back after a power failure would undo the last entry. It
        # is made void in its place and synced before COMMIT returns: as safe as to
        # delete it and to sync the folder, and faster.
        database.execute("PRAGMA journal_mode = PERSIST")
        yield database


def _is_database(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with _connected(path) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            return False
        raise
    return True


def _create_or_convert(path: Path) -> None:
    with _connected(path.with_name(f"{path.name}.setup"), "rwc") as lock:
        lock.execute("BEGIN EXCLUSIVE")
        if _is_database(path):
            return  # another process was faster
        if not path.exists():
            log.info("New privacy ledger %s: nothing is spent so far.", path)
            _create(path, [])
            return
        with _lock_of_0_1_0(path):
            _create(path, _json_entries(path))
        log.info("Privacy ledger %s was converted from JSON to SQLite.", path)


@contextlib.contextmanager
def _lock_of_0_1_0(path: Path) -> Iterator[None]:
    """Keep processes that still run 0.1.0 from writing JSON during the conversion."""
    try:
        import fcntl
    except ImportError:  # Windows, where 0.1.0 had no ledgers
        yield
        return
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _create(path: Path, entries: Sequence[Entry]) -> None:
    with tempfile.TemporaryDirectory(prefix=path.name, dir=path.parent) as folder:
        beside = Path(folder) / path.name
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL, 0o600))
        with _connected(beside) as database:
            database.executescript(_SCHEMA)
            database.execute(f"PRAGMA user_version = {_VERSION}")
            append(database, [], entries)
        os.replace(beside, path)


def _checked_entries(database: sqlite3.Connection) -> list[Entry]:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise _refused("was written by a newer fedridge-flwr (install it)")
    sound = database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if not sound or version != _VERSION:
        raise _refused(_DAMAGED)
    rows = database.execute("SELECT * FROM answers ORDER BY rowid").fetchall()
    checksum = database.execute("SELECT value FROM checksum").fetchall()
    try:
        sound = checksum == [(_checksum(rows),)]
    except (TypeError, ValueError):  # bytes or infinite numbers, never written here
        sound = False
    if not sound:
        raise _refused(_DAMAGED)
    return [Entry(*row) for row in rows]


def _checksum(content: Any) -> str:
    """Return a hash that finds damage; it is no protection against forgery."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _refused(why: str) -> PrivacyError:
    return PrivacyError(f"the client's privacy ledger {why}: nothing is released.")


# ---- JSON files of 0.1.0 -------------------------------------------------------------


def _json_entries(path: Path) -> list[Entry]:
    """Return the entries of a JSON file, if it is exactly as 0.1.0 writes one."""
    try:
        content = strict_json(read_file(path))
        version, clients = content["version"], content["clients"]
        # The first version had no checksum.
        expected = {1: None, 2: _checksum(clients)}[version]
        if content["format"] != "fedridge-privacy-ledger" or type(version) is not int:
            raise ValueError("another format")
        if content.get("checksum") != expected or not all(clients.values()):
            raise ValueError("another checksum, or a client without releases")
        releases = [(client, each) for client in clients for each in clients[client]]
        entries = [
            _json_entry(client, release, server_round)
            for client, release in releases
            for server_round in release["answered"]
        ]
        # Every release has an answer, and none of them occurs twice.
        rounds, fits = ({entry[:k] for entry in entries} for k in (3, 2))
        if not entries or (len(rounds), len(fits)) != (len(entries), len(releases)):
            raise ValueError("releases without answers, or twice")
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise _refused(_DAMAGED) from error
    return entries


def _json_entry(client: str, release: dict[str, Any], server_round: int) -> Entry:
    mu = release["mu"]
    entry = Entry(
        client=client,
        release=release["release"],
        server_round=server_round,
        time=release["when"],
        epsilon=release["epsilon"],
        delta=release["delta"],
        mu_add_or_remove=mu["add-or-remove-one"],
        mu_replace=mu["replace-one"],
        neighboring=release["neighboring"],
        rounds=release["rounds"],
    )
    numbers, kinds = entry[4:8], list(Entry.__annotations__.values())
    if [type(value) for value in entry] != kinds or not client.strip():
        raise ValueError("an entry with values of other types")
    if not all(0 < number < math.inf for number in numbers) or not entry.delta < 1:
        raise ValueError("an entry with numbers out of range")
    return entry
