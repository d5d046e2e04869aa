"""`PrivacyLedger`: what every client has spent, over all runs, on disk."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .._text import counted
from ..errors import PrivacyError
from .accounting import compose, epsilon_of
from .ledger_file import Entry, append, open_entries
from .mechanism import RELATIONS, DifferentialPrivacy
from .validators import check_choice, check_setting

_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True)
class Spent:
    """What one client has spent: releases, and their epsilon and delta together."""

    releases: int
    epsilon: float
    delta: float


class PrivacyLedger:
    """Record of every private release about the same data, up to a budget.

    The entry is on disk before the release is made, so that no crash leaves a release
    uncounted. If the ledger cannot be read or written, every request is refused.

    Parameters
    ----------
    path : path-like
        File of the ledger, an SQLite database: an absolute path, on the machine that
        holds the data, in a folder that exists, on storage that is kept and backed up.
        Without the file, the record of past releases is lost. Several clients may share
        it, each under its own name. A JSON file of version 0.1.0 is converted.
    max_epsilon, max_delta : float
        The budget of each client.
    neighboring : {"add-or-remove-one", "replace-one"}
        The relation the budget refers to.
    accounting : {"exact", "basic"}
        "exact": all our releases are Gaussian, so together they are exactly one with
        ``mu = sqrt(Σ mu²)``, and epsilon is taken at `max_delta`. "basic": epsilons and
        deltas add up, which spends more.

    Raises
    ------
    PrivacyError
        If the path is not absolute, or a setting is invalid.

    Examples
    --------
    >>> import tempfile
    >>> from fedridge_flwr import DifferentialPrivacy, PrivacyLedger
    >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = PrivacyLedger(f"{folder}/ledger.db", 2.0, 1e-5)
    ...     ledger.charge("clinic", "release 1", privacy)
    ...     ledger.charge("clinic", "release 2", privacy)
    ...     spent = ledger.spent("clinic")
    >>> spent.releases, round(spent.epsilon, 3)
    (2, 1.465)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_epsilon: float,
        max_delta: float,
        *,
        neighboring: str = "add-or-remove-one",
        accounting: str = "exact",
    ) -> None:
        self.path = Path(path)
        if not self.path.is_absolute():
            raise PrivacyError(
                f"the path of a ledger must be absolute, got {str(path)!r}: a "
                "ClientApp runs in a working directory of Flower's."
            )
        self.max_epsilon = check_setting("epsilon", max_epsilon)
        self.max_delta = check_setting("delta", max_delta)
        self.neighboring = check_choice("neighboring", neighboring, RELATIONS)
        self.accounting = check_choice("accounting", accounting, ("exact", "basic"))

    def charge(
        self,
        name: str,
        release: str,
        privacy: DifferentialPrivacy,
        server_round: int = 1,
    ) -> None:
        """Enter one round of a release, or raise if the budget does not allow it.

        The first round entered pays for all. A round that is entered already was
        answered before. A client that no longer has the answer must not draw another.

        Parameters
        ----------
        name : str
            Name of the client, the same in every run.
        release : str
            Name of the release: one fit, whatever the number of its rounds.
        privacy : DifferentialPrivacy
            The guarantee of the release.
        server_round : int
            The round to be answered.

        Raises
        ------
        PrivacyError
            If the budget does not allow it, the round is entered already, or the file
            cannot be read or written. Nothing may then be released.

        Examples
        --------
        >>> import tempfile
        >>> from fedridge_flwr import DifferentialPrivacy, PrivacyError, PrivacyLedger
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = PrivacyLedger(f"{folder}/ledger.db", 1.2, 1e-5)
        ...     ledger.charge("clinic", "release 1", privacy)
        ...     try:
        ...         ledger.charge("clinic", "release 2", privacy)
        ...     except PrivacyError as error:
        ...         print(error)
        declined: this release would bring the total of this client to epsilon 1.465, \
delta 1e-05; its budget is 1.2, 1e-05, of which epsilon 1 is spent by 1 release. \
Nothing was released; only the client can raise its budget.
        """
        _check_name(name)
        entry = Entry(
            client=name,
            release=release,
            server_round=server_round,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            mu_add_or_remove=privacy.mu("add-or-remove-one"),
            mu_replace=privacy.mu("replace-one"),
            neighboring=privacy.neighboring,
            rounds=privacy.rounds,
        )
        with open_entries(self.path) as (database, entries):
            earlier = [e for e in entries if (e.client, e.release) == (name, release)]
            if earlier:
                _check_round(entry, earlier)
            else:
                self._check_budget(entry, _releases_of(entries, name))
            append(database, entries, [entry])

    def spent(self, name: str) -> Spent:
        """Return what a client has spent so far.

        Parameters
        ----------
        name : str
            Name of the client.

        Returns
        -------
        Spent
            ``releases``, and their ``epsilon`` and ``delta`` together.

        Raises
        ------
        PrivacyError
            If the file cannot be read.

        Examples
        --------
        >>> import tempfile
        >>> from fedridge_flwr import PrivacyLedger
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     PrivacyLedger(f"{folder}/ledger.db", 2.0, 1e-5).spent("clinic")
        Spent(releases=0, epsilon=0.0, delta=0.0)
        """
        _check_name(name)
        with open_entries(self.path) as (_, entries):
            return self._spent(_releases_of(entries, name))

    def _check_budget(self, entry: Entry, earlier: Sequence[Entry]) -> None:
        after = self._spent([*earlier, entry])
        if (
            after.epsilon > self.max_epsilon * _ROUNDING
            or after.delta > self.max_delta * _ROUNDING
        ):
            before = self._spent(earlier)
            raise PrivacyError(
                "declined: this release would bring the total of this client to "
                f"epsilon {after.epsilon:.4g}, delta {after.delta:.2g}; its budget is "
                f"{self.max_epsilon:g}, {self.max_delta:g}, of which epsilon "
                f"{before.epsilon:.4g} is spent by "
                f"{counted(before.releases, 'release')}. Nothing was released; only "
                "the client can raise its budget."
            )

    def _spent(self, releases: Sequence[Entry]) -> Spent:
        if not releases:
            return Spent(0, 0.0, 0.0)
        replace = self.neighboring == "replace-one"
        mus = [e.mu_replace if replace else e.mu_add_or_remove for e in releases]
        if self.accounting == "exact":
            total = epsilon_of(compose(mus), self.max_delta)
            return Spent(len(releases), total, self.max_delta)
        deltas = [entry.delta for entry in releases]
        epsilon = math.fsum(map(epsilon_of, mus, deltas))
        return Spent(len(releases), epsilon, math.fsum(deltas))


def _releases_of(entries: Sequence[Entry], name: str) -> list[Entry]:
    """Return one entry for every release of a client: all its rounds cost no more."""
    return list({e.release: e for e in entries if e.client == name}.values())


def _check_round(entry: Entry, earlier: Sequence[Entry]) -> None:
    terms = (entry.mu_add_or_remove, entry.mu_replace, entry.rounds)
    before = earlier[0]
    if terms != (before.mu_add_or_remove, before.mu_replace, before.rounds):
        raise PrivacyError("the settings of this fit have changed since it began.")
    if any(entry.server_round == other.server_round for other in earlier):
        raise PrivacyError(
            "the ledger has this release under the client's name, but this node does "
            "not remember it: two clients have one name (client_name= gives each its "
            "own), or the node was restarted (start another fit)."
        )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise PrivacyError("a privacy ledger needs a name of the client, client_name=.")
