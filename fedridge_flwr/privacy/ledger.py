"""`PrivacyLedger`: what a client has spent, over all runs, on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .._files import read_file, strict_json
from .._text import counted
from ..errors import PrivacyError
from .accounting import compose, epsilon_of
from .mechanism import RELATIONS, DifferentialPrivacy, check_one_of, in_range

try:
    import fcntl
except ImportError:  # Windows has other locks; there a ledger refuses to be used
    fcntl = None  # type: ignore[assignment]

__all__ = ["PrivacyLedger", "Spent"]

log = logging.getLogger("flwr")
_FORMAT = "fedridge-privacy-ledger"
_VERSION = 2
_WITHOUT_CHECKSUM = 1
_ACCOUNTINGS = ("exact", "basic")
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Spent:
    """What one client has spent: releases, and their epsilon and delta together."""

    releases: int
    epsilon: float
    delta: float


class PrivacyLedger:
    """Account of every private release about the same data; beyond a budget, no more.

    The entry is on disk before the release is made, so that no crash leaves a release
    uncounted. A ledger that cannot be read or written refuses everything.

    Parameters
    ----------
    path : path-like
        File of the ledger: an absolute path, on the machine that holds the data, in a
        folder that exists, on storage that is kept and backed up. Whoever deletes it
        deletes what was spent. Several clients may share it, each under its own name.
    max_epsilon, max_delta : float
        The budget of each client.
    neighboring : {"add-or-remove-one", "replace-one"}
        The relation the budget is meant for.
    accounting : {"exact", "basic"}
        "exact": all our releases are Gaussian, so together they are exactly one with
        ``mu = sqrt(Σ mu²)``, and epsilon is taken at `max_delta`. "basic": epsilons and
        deltas add up; needs no theory, spends more.

    Raises
    ------
    PrivacyError
        If the path is not absolute, or the budget is not one.

    Notes
    -----
    It needs the file locks of Unix.

    Examples
    --------
    >>> import tempfile
    >>> from fedridge_flwr import DifferentialPrivacy, PrivacyLedger
    >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = PrivacyLedger(f"{folder}/ledger.json", 2.0, 1e-5)
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
                f"the path of a privacy ledger must be absolute, got {str(path)!r}: "
                "the working directory of a ClientApp is not yours."
            )
        self.max_epsilon = in_range("epsilon", max_epsilon)
        self.max_delta = in_range("delta", max_delta)
        check_one_of("neighboring", neighboring, RELATIONS)
        check_one_of("accounting", accounting, _ACCOUNTINGS)
        self.neighboring = neighboring
        self.accounting = accounting

    def charge(
        self,
        name: str,
        release: str,
        privacy: DifferentialPrivacy,
        server_round: int = 1,
    ) -> None:
        """Enter one round of a release, or raise if the budget does not allow it.

        The first round entered pays for all. A round that is entered already was
        answered before: whoever asks to enter it again does not remember the answer,
        and must not draw another.

        Parameters
        ----------
        name : str
            Name of the client, the same in every run.
        release : str
            Name of the release: one fit, whatever the number of its rounds.
        privacy : DifferentialPrivacy
            What is promised for the release.
        server_round : int
            The round that is to be answered.

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
        ...     ledger = PrivacyLedger(f"{folder}/ledger.json", 1.2, 1e-5)
        ...     ledger.charge("clinic", "release 1", privacy)
        ...     try:
        ...         ledger.charge("clinic", "release 2", privacy)
        ...     except PrivacyError as error:
        ...         print(error)
        this release would bring what is spent on these data to epsilon 1.465, delta \
1e-05; the client's budget is 1.2, 1e-05, of which epsilon 1 is spent by 1 release. \
Nothing was released; only the client itself can raise its budget.
        """
        _check_name(name)
        with self._locked():
            content = self._read()
            entries = content["clients"].setdefault(name, [])
            known = [entry for entry in entries if entry["release"] == release]
            if known:
                _enter_round(known[0], privacy, server_round)
                self._write(content)
                return
            entries.append(
                {
                    "release": release,
                    "when": datetime.now(UTC).isoformat(timespec="seconds"),
                    "epsilon": privacy.epsilon,
                    "delta": privacy.delta,
                    "mu": _mus(privacy),
                    "neighboring": privacy.neighboring,
                    "rounds": privacy.rounds,
                    "answered": [server_round],
                }
            )
            after = self._spent(entries)
            slack = 1.0 + 1e-9  # the rounding of an epsilon that fits exactly
            if (
                after.epsilon > self.max_epsilon * slack
                or after.delta > self.max_delta * slack
            ):
                before = self._spent(entries[:-1])
                raise PrivacyError(
                    "this release would bring what is spent on these data to epsilon "
                    f"{after.epsilon:.4g}, delta {after.delta:.2g}; the client's "
                    f"budget is {self.max_epsilon:g}, {self.max_delta:g}, of which "
                    f"epsilon {before.epsilon:.4g} is spent by "
                    f"{counted(before.releases, 'release')}. Nothing was released; "
                    "only the client itself can raise its budget."
                )
            self._write(content)

    def spent(self, name: str) -> Spent:
        """Return what a client has spent so far.

        Parameters
        ----------
        name : str
            Name of the client; of one that the ledger does not know, nothing is spent.

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
        ...     PrivacyLedger(f"{folder}/ledger.json", 2.0, 1e-5).spent("clinic")
        Spent(releases=0, epsilon=0.0, delta=0.0)
        """
        _check_name(name)
        with self._locked():
            return self._spent(self._read()["clients"].get(name, []))

    def _spent(self, entries: Sequence[dict[str, Any]]) -> Spent:
        if not entries:
            return Spent(0, 0.0, 0.0)
        if self.accounting == "exact":
            total = compose(self._mu(entry) for entry in entries)
            return Spent(
                len(entries), epsilon_of(total, self.max_delta), self.max_delta
            )
        epsilon = math.fsum(epsilon_of(self._mu(e), e["delta"]) for e in entries)
        delta = math.fsum(entry["delta"] for entry in entries)
        return Spent(len(entries), epsilon, delta)

    def _mu(self, entry: dict[str, Any]) -> float:
        return float(entry["mu"][self.neighboring])

    # ---- file --------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        beside = self.path.with_name(self.path.name + ".lock")
        if fcntl is None:
            raise PrivacyError("a privacy ledger needs the file locks of Unix.")
        if not self.path.parent.is_dir():
            # A new one in the wrong place would forget all that was spent.
            log.warning("There is no folder %s for the ledger.", self.path.parent)
            raise PrivacyError(
                "the folder of the client's privacy ledger does not exist, so nothing "
                "is released: make it once by hand, or correct the path."
            )
        try:
            with beside.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise PrivacyError(
                "the client's privacy ledger cannot be read or written "
                f"({type(error).__name__}), so nothing is released."
            ) from error

    def _read(self) -> dict[str, Any]:
        # A link that leads nowhere, as to a disk that is not mounted, is no new ledger.
        if not os.path.lexists(self.path):
            log.info("New privacy ledger %s: nothing is spent so far.", self.path)
            return {"format": _FORMAT, "version": _VERSION, "clients": {}}
        try:
            content = strict_json(read_file(self.path))
            _check_content(content)
        except _DAMAGED as error:
            raise PrivacyError(
                "the client's privacy ledger is damaged, so nothing is released; "
                "restore it from a copy."
            ) from error
        return dict(content)

    def _write(self, content: dict[str, Any]) -> None:
        content |= {"version": _VERSION, "checksum": _checksum(content["clients"])}
        beside = self.path.with_name(self.path.name + ".tmp")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _enter_round(
    entry: dict[str, Any], privacy: DifferentialPrivacy, server_round: int
) -> None:
    if entry["mu"] != _mus(privacy) or entry["rounds"] != privacy.rounds:
        raise PrivacyError("the terms of this fit were others when it began.")
    if server_round in entry["answered"]:
        raise PrivacyError(
            "the ledger has this release under the client's name, yet this node does "
            "not remember it: either two clients have one name (client_name=lambda "
            "context: ... gives each its own), or the node was restarted (start "
            "another fit, which counts as another release)."
        )
    entry["answered"].append(server_round)


def _mus(privacy: DifferentialPrivacy) -> dict[str, float]:
    return {name: privacy.mu(name) for name in RELATIONS}


def _checksum(clients: dict[str, Any]) -> str:
    """Return a hash of all entries: a flipped bit in a name would hide what it spent.

    It is for damage; whoever can write the file can write the hash.
    """
    text = json.dumps(clients, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_content(content: Any) -> None:
    """Raise one of `_DAMAGED` unless this is as `_write` leaves it."""
    if content["format"] != _FORMAT or type(content["version"]) is not int:
        raise ValueError("another format")
    if content["version"] not in (_WITHOUT_CHECKSUM, _VERSION):
        raise ValueError("another version")
    clients = content["clients"]
    if content["version"] == _VERSION and content["checksum"] != _checksum(clients):
        raise ValueError("another checksum")
    # A ledger is first written with an entry in it.
    if not clients:
        raise ValueError("no clients")
    for name, entries in clients.items():
        _check_name(name)
        if not isinstance(entries, list) or not entries:
            raise ValueError("a client without entries")
        for entry in entries:
            _check_entry(entry)


def _check_entry(entry: Any) -> None:
    numbers = [entry["mu"][relation] for relation in RELATIONS]
    numbers += [entry["delta"], entry["epsilon"]]
    if not all(type(each) in (int, float) and each > 0 for each in numbers):
        raise ValueError("an entry without mu, delta or epsilon")
    if not entry["delta"] < 1 or not all(math.isfinite(each) for each in numbers):
        raise ValueError("an entry with mu or delta beyond all bounds")
    answered = entry["answered"]
    known = isinstance(entry["release"], str) and isinstance(answered, list)
    whole = [entry["rounds"], *answered] if known else [None]
    if not all(type(each) is int for each in whole):
        raise ValueError("an entry without release, rounds or answers")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise PrivacyError(
            "a privacy ledger needs the client's name (client_name=): node ids change "
            "from run to run."
        )
