"""`Ledger`: the contributions of clients by name, in a file, and their total."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from ..._checks import check_whole
from ...errors import LedgerError
from ...statistics.packing import Removable
from .ledger_runs import LedgerRuns, Receipt, check_name, is_name
from .ledger_storage import IN_RUN, IN_TOTAL, Change, LedgerEntry, LedgerFile, now

_LARGEST_SEQUENCE = 2**62


class Verification(NamedTuple):
    """How far the total is from all contributions added up again.

    `difference` is the largest one of the co-moments, each in units of the root of both
    variances, and `bound` what it may be. Both are 0 where sums are whole numbers.
    """

    n_clients: int
    n_rows: int
    difference: float
    bound: float


class Ledger(LedgerRuns):
    """The contributions of clients by name, and their total, in one SQLite file.

    Contributions are `SufficientStatistics` or `FixedPointStatistics`, one form in one
    ledger. The total obeys one law: it is the sum of what is in the ledger. So data may
    arrive, clients join late or withdraw, and nobody else is asked again. With
    fixed-point statistics the total after `remove` is, bit for bit, the one that never
    had the client; with moments it is so to rounding, and receipts have the bound.

    Every change is one transaction: after a crash it is there or not, and never in
    part. `remove` overwrites what is removed, and what was replaced before, in the file
    and in SQLite's write-ahead log; it writes the file anew for that. What the disk
    itself keeps of old blocks, and backups, are beyond it.

    Parameters
    ----------
    path : path-like
        The file, on a local disk. Its folder must exist. A new file is readable by its
        owner only.
    create : bool
        Whether a file that does not exist is created.

    Raises
    ------
    LedgerError
        If the file is no ledger, is damaged, or cannot be read or written.

    Notes
    -----
    ====================  ========================================================
    case                  what happens
    ====================  ========================================================
    no contributions      `total` is an error; everything else works
    columns in another    they are rearranged by their names
    order
    other columns         `StatisticsError`; nothing is changed
    a client that is in   `add` is an error; `replace` and `update` do not count
    the ledger            it twice
    two processes         one waits for the other, two minutes at most
    a fit of another      changes are an error until it has ended
    process
    full disk, crash      the change is not made; all before it are kept
    ====================  ========================================================

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fedridge_flwr import FixedPointStatistics, Ledger, solve
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 2)), rng.normal(size=90)
    >>> part = [FixedPointStatistics.from_data(X[k::3], y[k::3]) for k in range(3)]
    >>> ledger = Ledger(f"{tempfile.mkdtemp()}/trial.ledger")
    >>> for name, each in zip(["clinic-a", "clinic-b"], part):
    ...     receipt = ledger.add(name, each)
    >>> ledger.total() == part[0] + part[1]
    True

    A late site, and one that withdraws:

    >>> receipt = ledger.add("clinic-c", part[2])
    >>> receipt = ledger.remove("clinic-a")
    >>> ledger.total() == part[1] + part[2], receipt.bound
    (True, 0.0)
    >>> solve(ledger.total().to_sufficient(), alpha=1.0)
    RidgeModel(alpha=1.0, 2 features, 60 rows, 2 clients, R²=0.0268)
    >>> [change.action for change in ledger.history()]
    ['add', 'add', 'add', 'remove']
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._file = LedgerFile(path, create=create)

    def __enter__(self) -> Self:
        """Return the ledger, to be closed at the end."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # ---- what is in it --------------------------------------------------------

    def total(self) -> Removable:
        """Return the sum of all contributions."""
        with self._file.reading():
            stats: Removable | None = self._file.total().stats
        if stats is None:
            raise self._file.error("has no contributions")
        return stats

    def clients(self) -> dict[str, LedgerEntry]:
        """Return what is known of every client: `sequence`, `time` and `n_rows`."""
        with self._file.reading():
            self._file.check_roster()
            return self._file.entries()

    def uploads(self) -> frozenset[str]:
        """Return the ids that clients gave to what is in the total."""
        found = {entry.upload for entry in self.clients().values()}
        return frozenset(found - {""})

    def contribution(self, client: str) -> Removable:
        """Return what one client has sent, all of it together."""
        with self._file.reading():
            return self._file.part(self._known(client))

    def contributions(self) -> Iterator[tuple[str, Removable]]:
        """Yield the clients and what each has sent, one after the other."""
        with self._file.reading():
            for client, entry in self._file.entries().items():
                yield client, self._file.part(entry)

    def waiting(self) -> dict[str, LedgerEntry]:
        """Return answers to a run that was interrupted; the next run counts them."""
        with self._file.reading():
            return self._file.entries(IN_RUN)

    def history(self) -> list[Change]:
        """Return all changes: who, when, and the hash of the total before and after."""
        with self._file.reading():
            return self._file.changes()

    def withdrawn(self) -> dict[str, str]:
        """Return the clients that were removed and are not in again, and when."""
        with self._file.reading() as database:
            found = database.execute(
                "SELECT client, time FROM changes WHERE action = 'remove' AND id IN "
                "(SELECT max(id) FROM changes GROUP BY client)"
            )
            return dict(found.fetchall())

    def __len__(self) -> int:
        """Return how many clients are in the total."""
        with self._file.reading():
            return self._file.total().n_clients

    def __contains__(self, client: object) -> bool:
        """Return whether a client is in the total."""
        with self._file.reading():
            return is_name(client) and self._file.entry(str(client)) is not None

    # ---- changes --------------------------------------------------------------

    def add(self, client: str, stats: Removable) -> Receipt:
        """Add the contribution of a client that is not in the ledger.

        Parameters
        ----------
        client : str
            Its name, the same in every run.
        stats : SufficientStatistics or FixedPointStatistics
            The statistics of all its rows.
        """
        with self._file.changing():
            if self._file.entry(check_name(client)) is not None:
                raise LedgerError(
                    f"{client!r} is in the ledger already: use replace, or update for "
                    "new rows."
                )
            return self._put("add", client, stats, 1)

    def replace(
        self, client: str, stats: Removable, sequence: int | None = None
    ) -> Receipt:
        """Put a contribution in the place of what the client had, if anything.

        Parameters
        ----------
        client : str
            Its name.
        stats : SufficientStatistics or FixedPointStatistics
            The statistics of all its rows.
        sequence : int, optional
            Which upload of the client this is; by default the next one. One that is
            not above the last is not taken: it is late, or came twice.
        """
        with self._file.changing():
            old = self._file.entry(check_name(client))
            last = 0 if old is None else old.sequence
            number = last + 1 if sequence is None else _check_sequence(sequence)
            if number <= last:
                return self._not_taken("replace", client, last)
            receipt = self._put("replace", client, stats, number)
        self._file.forget()
        return receipt

    def update(self, client: str, delta: Removable, sequence: int) -> Receipt:
        """Add the statistics of new rows to what the client has sent before.

        Parameters
        ----------
        client : str
            Its name.
        delta : SufficientStatistics or FixedPointStatistics
            The statistics of the rows since its last upload.
        sequence : int
            Which upload of the client this is: one more than the last. One that is not
            above the last is not taken: it is late, or came twice.

        Raises
        ------
        LedgerError
            If uploads between this and the last are missing: the client has to send
            all its rows, to `replace`.
        """
        number = _check_sequence(sequence)
        with self._file.changing():
            known = self._file.entry(check_name(client))
            if known is not None and number <= known.sequence:
                return self._not_taken("update", client, known.sequence)
            if known is None or known.sequence != number - 1:
                raise self._gap(client, known, f"its upload {number - 1}")
            old, whole = known, self._with_new_rows(known, delta)
            self._file.delete([client], IN_RUN)  # an older answer, to a run that waits
            new = self._file.write(client, number, whole, IN_TOTAL)
            before = self._file.total()
            own = before.fitted(delta)
            after = before.updated(own, old.checksum, new.checksum)
            return self._enter("update", new, before, after)

    def remove(self, client: str) -> Receipt:
        """Take a client out: the total is that of the others, at once.

        If it has answered a run that was interrupted, that answer is erased as well.

        Returns
        -------
        Receipt
            The client, the time, the hash of the total before and after, and a bound on
            its error.
        """
        with self._file.changing():
            known, before = self._file.entry(check_name(client)), self._file.total()
            entry = known or self._file.entry(client, IN_RUN) or self._known(client)
            after = self._without(before, known)
            self._file.delete([client], IN_TOTAL)
            self._file.delete([client], IN_RUN)
            receipt = self._enter("remove", entry, before, after)
        return receipt._replace(erased=self._file.erase())

    def verify(self) -> Verification:
        """Check every row, add all contributions up again, and compare.

        With moments, what was added up again then takes the place of the total. What
        an earlier removal could not erase is erased, if nobody else uses the file.

        Raises
        ------
        LedgerError
            If a row is damaged, or the total is not that of the contributions.
        """
        with self._file.changing():
            self._file.check_roster()
            self._file.changes()
            old, new = self._file.total(), self._added_up()
            difference, bound = old.difference(new), old.bound + new.bound
            if not difference <= bound:
                raise self._file.error(
                    "is damaged: its total is not the sum of its contributions. "
                    "Restore it from a copy"
                )
            if difference:
                self._file.write_total(new)
                change = Change(now(), "verify", "", 0, old.hash, new.hash)
                self._file.write_changes([change])
        self._file.erase()  # what a removal could not erase while others were reading
        n_rows = 0 if new.stats is None else new.stats.count
        return Verification(new.n_clients, n_rows, difference, bound)

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write everything as files that need no ledger.

        Each contribution becomes a file that `SufficientStatistics.load` or
        `FixedPointStatistics.load` reads, and so does the total, ``total.stats``.
        ``ledger.json`` says whose they are, and has the history.

        Parameters
        ----------
        folder : path-like
            A new folder, which only its owner can read.
        """
        from .ledger_export import export_ledger

        export_ledger(self, Path(folder))

    # ---- internals ------------------------------------------------------------

    def _known(self, client: str) -> LedgerEntry:
        entry = self._file.entry(check_name(client))
        if entry is None:
            some = ", ".join(map(repr, list(self._file.entries())[:6]))
            found = f"has {some}" if some else "is empty"
            raise LedgerError(f"{client!r} is not in the ledger, which {found}.")
        return entry

    def _put(
        self, action: str, client: str, stats: Removable, sequence: int
    ) -> Receipt:
        """Enter a contribution in place of the one that is there."""
        old, before = self._file.entry(check_name(client)), self._file.total()
        rest = self._without(before, old)
        own = rest.fitted(stats)
        self._file.delete([client], IN_RUN)  # an older answer, to a run that waits
        new = self._file.write(client, sequence, own, IN_TOTAL)
        return self._enter(action, new, before, rest.plus(own, new.checksum))

    def _not_taken(self, action: str, client: str, sequence: int) -> Receipt:
        total = self._file.total()
        same = total.hash
        return Receipt(
            action, client, sequence, now(), same, same, total.bound, taken=False
        )


def _check_sequence(sequence: object) -> int:
    return check_whole("sequence", sequence, 1, _LARGEST_SEQUENCE)
