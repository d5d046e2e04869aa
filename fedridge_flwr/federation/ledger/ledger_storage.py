"""The file of a `Ledger`: an SQLite database of checksummed rows.

========  ============================================================================
table     what is in it
========  ============================================================================
entries   one row per client: how often it has sent, when, how many rows, its checksum
parts     the numbers of an entry, as `pack` writes them
total     one row: the sum of all entries, the XOR of their checksums, an error bound
changes   one row per change: who, when, the hash of the total before and after
run       one row while a run is open: what it asks for, and since when
========  ============================================================================

An entry of ``run`` 0 is in the total. One of ``run`` 1 has arrived in the open run, and
replaces the other when the run ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._files import connect, real_path
from ...errors import LedgerError, StatisticsError
from ...statistics.packing import Removable, pack, unpack
from .ledger_database import (
    DAMAGED,
    create_ledger,
    make_empty,
    opened,
    place_of,
    refuse_remains,
)
from .ledger_total import NO_CHECKSUM, Total, xor

IN_TOTAL, IN_RUN = 0, 1
_NO_DATABASE = f"is not a ledger but another file; if it was one, it {DAMAGED}"
_WRITE_TOTAL = "INSERT OR REPLACE INTO total VALUES (?,?,?,?,?,?,?,?)"
_ENTRY = "SELECT * FROM entries"
_AT_ONCE = 64  # statements with many values are slower, many statements as well


class LedgerEntry(NamedTuple):
    """What the ledger knows of a client beside its numbers."""

    client: str
    run: int
    sequence: int
    """How many uploads of this client the ledger has taken."""
    time: str
    n_rows: int
    upload: str
    """The client's own id of all that it has sent; empty if it keeps no record."""
    part: int
    content: bytes
    checksum: bytes


class Change(NamedTuple):
    """One change of the total: who, when, and its hash before and after."""

    time: str
    action: str
    client: str
    sequence: int
    before: str
    after: str


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class LedgerFile:
    """An open ledger: reads check what they return, writes are transactions."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        self.path = Path(path)
        with self._explained():
            self._real = real_path(path)
            if not self._real.exists():
                refuse_remains(self._real)
                if not create:
                    raise OSError("does not exist")
                create_ledger(self._real, _first_total)
            self._place = place_of(self._real)
            self._database = opened(self._real)
        self._alone = threading.RLock()
        self._gate: sqlite3.Connection | None = None
        self._in_run = False
        self._sound, self._synced = False, True
        self._total: Total | None = None

    def close(self) -> None:
        """Close the file; without other readers nothing is left beside it."""
        with self._explained():
            self._database.close()
            if self._gate is not None:
                self._gate.close()

    def lock_run(self) -> None:
        """Keep other runs away until this is closed; a crash lets them in again."""
        if not self._in_run:
            self._lock("BEGIN EXCLUSIVE")
            self._in_run = True

    @contextlib.contextmanager
    def _between_runs(self) -> Iterator[None]:
        """Refuse a change in the middle of somebody else's run.

        The sum that the run ends with would not have it. Changes share this lock: they
        wait for each other at the database.
        """
        if self._in_run:
            yield
            return
        gate = self._lock("BEGIN", "SELECT 1 FROM sqlite_master")
        try:
            yield
        finally:
            gate.execute("ROLLBACK")

    def _lock(self, *statements: str) -> sqlite3.Connection:
        """Lock the empty database beside the ledger that keeps runs apart."""
        path = self._real.with_name(f"{self._real.name}.run")
        with self._explained():
            try:
                if self._gate is None:
                    make_empty(path)
                    self._gate = connect(path, seconds=1.0)
                for statement in statements:
                    self._gate.execute(statement)
            except BaseException as error:
                if self._gate is not None and self._gate.in_transaction:
                    self._gate.execute("ROLLBACK")
                if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                    raise OSError(
                        f"cannot be changed: {path.name} beside it is damaged. Delete "
                        f"{path.name}"
                    ) from error
                raise
            return self._gate

    @contextlib.contextmanager
    def changing(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, alone, and commit it: all of it is then on disk.

        If it is not `synced`, it survives the end of this process, but perhaps no power
        failure before the next one that is.
        """
        with self._alone, self._between_runs(), self._explained():
            if self._database.in_transaction:
                raise OSError("is being read: change it after that")
            if synced != self._synced:
                level = "EXTRA" if synced else "NORMAL"
                self._database.execute(f"PRAGMA synchronous = {level}")
                self._synced = synced
            self._database.execute("BEGIN IMMEDIATE")
            try:
                if not self._sound:
                    self.check_roster()
                    self._sound = True
                yield self._database
                if self._total is not None:
                    self._database.execute(_WRITE_TOTAL, _total_row(self._total))
                if place_of(self._real) != self._place:
                    raise OSError("has been moved or replaced: open it again")
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            finally:
                self._total = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """See the file as it is now, whatever others write meanwhile."""
        with self._alone, self._explained():
            if self._database.in_transaction:  # what is seen has begun already
                yield self._database
                return
            self._database.execute("BEGIN")
            try:
                yield self._database
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")

    def erase(self) -> bool:
        """Let nothing be left of what was deleted; False if that cannot be done now.

        SQLite overwrites what is deleted, but perhaps not copies of it, from when rows
        were moved to another page: all pages are written anew.
        """
        with self._alone:
            with self._explained():
                try:
                    self._database.execute("VACUUM")
                except sqlite3.OperationalError:  # others write, or the disk is full
                    return False
            return self.forget()

    def forget(self) -> bool:
        """Empty the write-ahead log; False if others still read what is in it."""
        with self._alone, self._explained():
            found = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return bool(found.fetchone()[0] == 0)

    # ---- rows -----------------------------------------------------------------

    def total(self) -> Total:
        """Return the total, after a look at its checksum."""
        if self._total is not None:
            return self._total
        rows = self._database.execute("SELECT * FROM total").fetchall()
        if len(rows) != 1 or rows[0][-1] != _checksum(*rows[0][:-1]):
            raise self.error(f"{DAMAGED} (its total does not fit its checksum)")
        _, n_clients, about, numbers, rounded, roster, salt, _ = rows[0]
        stats = self._unpacked(about, numbers, "the total") if about else None
        return Total(n_clients, stats, np.frombuffer(rounded, "<f8"), roster, salt)

    def write_total(self, total: Total) -> None:
        """Replace the total, at the end of the transaction."""
        self._total = total

    def entries(self, run: int = IN_TOTAL) -> dict[str, LedgerEntry]:
        """Return the entries by client, after a look at their checksums."""
        rows = self._database.execute(f"{_ENTRY} WHERE run = ? ORDER BY client", [run])
        return {row[0]: self._checked(row) for row in rows}

    def check_roster(self) -> None:
        """Refuse entries that are not those of the total.

        A damaged name would be somebody who has sent nothing yet, and counted twice.
        """
        total, found = self.total(), self.entries()
        roster = reduce(xor, (each.checksum for each in found.values()), NO_CHECKSUM)
        if (len(found), roster) != (total.n_clients, total.roster):
            raise self.error(
                f"{DAMAGED} (its contributions are not those of its total)"
            )

    def entry(self, client: str, run: int = IN_TOTAL) -> LedgerEntry | None:
        """Return the entry of a client, if there is one."""
        found = self._database.execute(
            f"{_ENTRY} WHERE client = ? AND run = ?", [client, run]
        ).fetchone()
        return None if found is None else self._checked(found)

    def entries_of(self, clients: Iterable[str], run: int) -> dict[str, LedgerEntry]:
        """Return the entries of those clients that have one."""
        found: list[tuple[Any, ...]] = []
        for some in _chunks(list(clients)):
            which = f"{_ENTRY} WHERE run = ? AND client IN ({_marks(len(some))})"
            found += self._database.execute(which, [run, *some])
        return {row[0]: self._checked(row) for row in found}

    def _checked(self, row: tuple[Any, ...]) -> LedgerEntry:
        if row[-1] != _checksum(*row[:-1]):
            raise self.error(f"{DAMAGED} (the entry of {row[0]!r})")
        return LedgerEntry(*row)

    def part(self, entry: LedgerEntry) -> Removable:
        """Return the numbers of an entry, after a look at their checksum."""
        found = self._database.execute(
            "SELECT about, numbers FROM parts WHERE id = ?", [entry.part]
        ).fetchone()
        what = f"the contribution of {entry.client!r}"
        if found is None or entry.content != _checksum(*found):
            raise self.error(f"{DAMAGED} ({what})")
        about, numbers = found
        return self._unpacked(about, numbers, what)

    def write(
        self, client: str, sequence: int, stats: Removable, run: int, upload: str = ""
    ) -> LedgerEntry:
        """Enter a contribution in place of the one that is there."""
        (entry,) = self.write_all([(client, sequence, stats, upload)], run)
        return entry

    def write_all(
        self, answers: Iterable[tuple[str, int, Removable, str]], run: int
    ) -> list[LedgerEntry]:
        """Do the same with several, each with its sequence and upload."""
        answers, when = list(answers), now()
        self.delete([client for client, *_ in answers], run)
        last = "SELECT coalesce(max(id), 0) FROM parts"
        (free,) = self._database.execute(last).fetchone()
        entries: list[LedgerEntry] = []
        for client, sequence, stats, upload in answers:
            free += 1
            about, numbers = pack(stats)
            self._insert("parts", [(free, about, numbers)])
            told = (client, run, sequence, when, stats.count, upload, free)
            content = _checksum(about, numbers)
            entries.append(LedgerEntry(*told, content, _checksum(*told, content)))
        self._insert("entries", entries)
        return entries

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for some in _chunks(rows):
            places = ",".join([f"({_marks(len(some[0]))})"] * len(some))
            self._database.execute(
                f"INSERT INTO {table} VALUES {places}",  # noqa: S608 - names of ours
                list(chain.from_iterable(some)),
            )

    def accept(
        self, fresh: Sequence[tuple[LedgerEntry, LedgerEntry | None]]
    ) -> list[LedgerEntry]:
        """Let entries of the open run take the place of those in the total."""
        accepted = []
        self.delete([old.client for _, old in fresh if old is not None], IN_TOTAL)
        for entry, _ in fresh:
            row = entry._replace(run=IN_TOTAL)
            accepted.append(row._replace(checksum=_checksum(*row[:-1])))
        self._database.executemany(
            "UPDATE entries SET run = ?, checksum = ? WHERE client = ? AND run = ?",
            [(IN_TOTAL, each.checksum, each.client, IN_RUN) for each in accepted],
        )
        return accepted

    def delete(self, clients: Iterable[str], run: int) -> None:
        """Delete the entries of clients and their numbers, where there are any."""
        old = self.entries_of(clients, run).values()
        self._database.executemany(
            "DELETE FROM parts WHERE id = ?", [(each.part,) for each in old]
        )
        self._database.executemany(
            "DELETE FROM entries WHERE client = ? AND run = ?",
            [(each.client, run) for each in old],
        )

    def write_changes(self, changes: Iterable[Change]) -> None:
        """Add lines to the history."""
        # SQLite chooses an id where it is NULL.
        rows = [(None, *change, _checksum(*change)) for change in changes]
        self._insert("changes", rows)

    def changes(self) -> list[Change]:
        """Return the history, after a look at every checksum."""
        rows = self._database.execute("SELECT * FROM changes ORDER BY id").fetchall()
        for row in rows:
            if row[-1] != _checksum(*row[1:-1]):
                raise self.error(f"{DAMAGED} (its history)")
        return [Change(*row[1:-1]) for row in rows]

    # ---- errors ---------------------------------------------------------------

    def error(self, why: str) -> LedgerError:
        """Return an error about this file."""
        return LedgerError(f"the ledger {self.path} {why}.")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self.error(_reason(error)) from error
        except (sqlite3.Error, UnicodeDecodeError, OverflowError, TypeError) as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                raise self.error(_NO_DATABASE) from error
            # Not what it says: that may quote what is in the file.
            raise self.error(f"{DAMAGED} ({type(error).__name__})") from error
        except OSError as error:
            raise self.error(str(error)) from error

    def _unpacked(self, about: Any, numbers: Any, what: str) -> Removable:
        try:
            return unpack(about, numbers)
        except StatisticsError as error:
            raise self.error(f"{DAMAGED} ({what}: {error})") from error


def _first_total(database: sqlite3.Connection) -> None:
    database.execute(_WRITE_TOTAL, _total_row(Total()))


def _total_row(total: Total) -> tuple[Any, ...]:
    about, numbers = ("", b"") if total.stats is None else pack(total.stats)
    rounded = total.rounded.astype("<f8").tobytes()
    row = (1, total.n_clients, about, numbers, rounded, total.roster, total.salt)
    return (*row, _checksum(*row))


def _reason(error: sqlite3.OperationalError) -> str:
    """Return what to do; the error's own text may quote what is in the file."""
    code, name = (
        getattr(error, f"sqlite_error{each}", "") for each in ("code", "name")
    )
    kind = code & 0xFF if isinstance(code, int) else None
    if kind == sqlite3.SQLITE_BUSY:
        return "is in use by another process: wait for it, or end it"
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return (
            f"cannot be written ({name}): make room on its disk and run again. What "
            "was acknowledged before is kept"
        )
    if kind in (None, sqlite3.SQLITE_ERROR):  # no such table, no text
        return DAMAGED
    return f"cannot be read or written ({name})"


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[k : k + _AT_ONCE] for k in range(0, len(rows), _AT_ONCE))


def _marks(number: int) -> str:
    return ",".join("?" * number)


def _checksum(*values: Any) -> bytes:
    """Return a hash of values and their types; it finds damage, and no forgery."""
    told = [(type(v).__name__, len(v)) if isinstance(v, bytes) else v for v in values]
    digest = hashlib.sha256(repr(told).encode())
    for value in values:
        if isinstance(value, bytes):
            digest.update(value)
    return digest.digest()
