"""`LedgerRuns`: answers arrive in a run, and enter the ledger's total at its end."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from ..._text import counted
from ...errors import LedgerError
from ...statistics.packing import Removable
from .ledger_storage import IN_RUN, IN_TOTAL, Change, LedgerEntry, LedgerFile, now
from .ledger_total import Total, xor

_LONGEST_NAME = 200


class Receipt(NamedTuple):
    """What was done to the total, for the records of both sides.

    `before` and `after` are hashes of the total. Each co-moment of the total is within
    `bound` times the root of both variances of the sum of all contributions; 0 where
    sums are whole numbers. `taken` is False where nothing was changed, because the
    upload was in already. `erased` says, of a removal, whether the numbers are gone
    from all files.
    """

    action: str
    client: str
    sequence: int
    time: str
    before: str
    after: str
    bound: float
    taken: bool = True
    erased: bool = False


class LedgerRuns:
    """What a fit does with a ledger, and what every change of it has in common."""

    _file: LedgerFile

    def open_run(self, asks: str) -> dict[str, LedgerEntry]:
        """Begin a run, or go on with one that was interrupted.

        Until the ledger is closed, no other process can do the same.

        Parameters
        ----------
        asks : str
            What clients are asked for. What arrived in a run that asked for something
            else is dropped.

        Returns
        -------
        dict of str to LedgerEntry
            The clients whose answers arrived before the interruption.
        """
        self._file.lock_run()
        with self._file.changing() as database:
            open_one = database.execute("SELECT asks FROM run WHERE id = 1").fetchone()
            if open_one != (asks,):
                self._file.delete(self._file.entries(IN_RUN), IN_RUN)
                database.execute(
                    "INSERT OR REPLACE INTO run VALUES (1, ?, ?)", (now(), asks)
                )
            return self._file.entries(IN_RUN)

    def receive(self, client: str, stats: Removable, upload: str = "") -> None:
        """Keep an answer of the open run: the statistics of all rows of a client.

        `upload` is the client's own id of all that it has sent, this included. If it is
        lost in a power failure, the client is asked again: `close_run` makes it last.
        """
        self.receive_all({client: (stats, upload)})

    def receive_all(self, answers: Mapping[str, tuple[Removable, str]]) -> None:
        """Keep several answers, each with its id of upload, in one transaction."""
        with self._file.changing(synced=False):
            known = self._file.entries_of(map(check_name, answers), IN_TOTAL)
            last = {client: entry.sequence for client, entry in known.items()}
            told = (
                (client, last.get(client, 0) + 1, stats, upload)
                for client, (stats, upload) in answers.items()
            )
            self._file.write_all(told, IN_RUN)

    def with_new_rows(self, client: str, delta: Removable, since: str) -> Removable:
        """Return what the ledger has of a client, and its rows since that upload.

        Raises
        ------
        LedgerError
            If it has another upload of the client: that has to send all rows.
        """
        with self._file.reading():
            old = self._file.entry(client)
            if old is None or old.upload != since:
                raise self._gap(client, old, "another upload")
            return self._with_new_rows(old, delta)

    def received(self, clients: Iterable[str]) -> Iterator[tuple[str, Removable]]:
        """Yield those of some clients that are in the open run, and their answers."""
        with self._file.reading():
            for client in clients:
                entry = self._file.entry(client, IN_RUN)
                if entry is not None:
                    yield client, self._file.part(entry)

    def close_run(
        self, accepted: Iterable[str], total: Removable | None = None
    ) -> list[Receipt]:
        """Put answers of the open run into the total, all or none, and drop the rest.

        Parameters
        ----------
        accepted : iterable of str
            The clients whose answers count.
        total : SufficientStatistics, optional
            The sum of all that is in the ledger then, if somebody has added it up; all
            columns must be in the order of the ledger's.
        """
        wanted, fresh, dropped = set(accepted), [], []
        with self._file.changing() as database:
            arrived, known = self._file.entries(IN_RUN), self._file.entries()
            for client, entry in arrived.items():
                old = known.get(client)
                same = old is not None and old.upload == entry.upload != ""
                late = old is not None and old.sequence >= entry.sequence
                # There may be nothing new, or something newer.
                if client not in wanted or same or late:
                    dropped.append(client)
                else:
                    fresh.append((entry, old))
            self._file.delete(dropped, IN_RUN)
            if total is not None and fresh:
                receipts = self._accept_all(fresh, total)
            else:
                receipts = [self._accept(*each) for each in fresh]
            database.execute("DELETE FROM run WHERE id = 1")
        if len(fresh) < len(arrived) or any(old for _, old in fresh):
            self._file.forget()
        return receipts

    # ---- changes of the total -------------------------------------------------

    def _accept(self, entry: LedgerEntry, old: LedgerEntry | None) -> Receipt:
        """Do the same with an answer of the open run, whose numbers are there."""
        before, stats = self._file.total(), self._file.part(entry)
        rest = self._without(before, old)
        own = rest.fitted(stats)
        if own is not stats:  # in another order
            told = (entry.client, entry.sequence, own, IN_RUN, entry.upload)
            entry = self._file.write(*told)
        (new,) = self._file.accept([(entry, old)])
        action = "add" if old is None else "replace"
        return self._enter(action, new, before, rest.plus(own, new.checksum))

    def _accept_all(
        self, fresh: Sequence[tuple[LedgerEntry, LedgerEntry | None]], total: Removable
    ) -> list[Receipt]:
        """Do the same with several answers at once, of which the sum is known."""
        before, when = self._file.total(), now()
        accepted = self._file.accept(fresh)
        gone = [old.checksum for _, old in fresh if old is not None]
        checksums = [*gone, *(new.checksum for new in accepted)]
        roster = reduce(xor, checksums, before.roster)
        after = Total.merged(total, roster)
        self._file.write_total(after)
        hashes, bound = (before.hash, after.hash), after.bound
        changes = [
            Change(when, "replace" if old else "add", new.client, new.sequence, *hashes)
            for new, (_, old) in zip(accepted, fresh, strict=True)
        ]
        self._file.write_changes(changes)
        return [
            Receipt(c.action, c.client, c.sequence, when, *hashes, bound)
            for c in changes
        ]

    def _without(self, total: Total, old: LedgerEntry | None) -> Total:
        if old is None:
            return total
        return total.minus(self._file.part(old), old.checksum)

    def _added_up(self) -> Total:
        """Return the sum of all contributions, one after the other."""
        total = Total()
        for entry in self._file.entries().values():
            total = total.plus(self._file.part(entry), entry.checksum)
        return total

    def _enter(
        self, action: str, entry: LedgerEntry, before: Total, after: Total
    ) -> Receipt:
        if action in ("replace", "remove") and after.is_worn:
            after = self._added_up()
        self._file.write_total(after)
        told = (entry.client, entry.sequence)
        when, hashes = now(), (before.hash, after.hash)
        self._file.write_changes([Change(when, action, *told, *hashes)])
        return Receipt(action, *told, when, *hashes, after.bound)

    def _with_new_rows(self, old: LedgerEntry, delta: Removable) -> Removable:
        """Return the statistics of all rows of a client, with the new ones."""
        whole = self._file.part(old) + self._file.total().fitted(delta)
        found: Removable = replace(whole, n_clients=1)
        return found

    def _gap(self, client: str, old: LedgerEntry | None, since: str) -> LedgerError:
        has = counted(0 if old is None else old.sequence, "upload")
        return LedgerError(
            f"{client!r} sent the rows since {since}, and the ledger has {has} of it: "
            "send all rows."
        )


def check_name(client: object) -> str:
    """Return the name of a client, if it is one that a ledger takes."""
    if not is_name(client):
        raise LedgerError(
            "a client in the ledger has a name: one printable line of at most "
            f"{_LONGEST_NAME} characters, the same in every run, with accents in one "
            "character (Unicode's form NFC)."
        )
    return str(client)


def is_name(client: object) -> bool:
    """Whether a ledger takes this as the name of a client.

    Two spellings that look the same would be two clients.
    """
    return (
        isinstance(client, str)
        and client == client.strip()
        and client.isprintable()
        and 0 < len(client) <= _LONGEST_NAME
        and unicodedata.is_normalized("NFC", client)
    )
