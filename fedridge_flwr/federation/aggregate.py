"""Fold contributions of clients into one total, and name whoever does not fit.

Contributions are merged as they arrive and then forgotten (unless clients are to be
compared), so memory hardly grows with their number. Nobody knows beforehand which
schema is the right one: contributions are folded per schema, and the schema of most
clients wins. A single client with other columns, even one that answers first, cannot
shut out the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from .._text import counted
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..multiround.opening import Opening
from ..multiround.openings import Openings
from ..privacy.noisy_statistics import PrivateStatistics
from ..statistics.plain import PlainStatistics
from ..statistics.sufficient import RunningTotal, SufficientStatistics, hash_names
from .answers import Roll
from .screening.profiles import Profile

__all__ = ["Fold"]

_PLAIN_REFUSED = (
    "sent only (G, h), from which an intercept, standardisation, R² and a choice of "
    "alpha cannot be known; use RidgeClient or ridge_client_app, or fit_intercept=False"
)

_ROUNDED_REFUSED = (
    "sent float32, which was not asked for and would make the model less exact for "
    'all; ask for it with wire_dtype="float32"'
)


_EXACT_REFUSED = (
    "sent exact statistics although a private release was asked for; install the same "
    "fedridge-flwr on both sides"
)

_OTHER_MAP = (
    "used another feature map than the server (its seed, its sizes, or the random "
    "numbers that this NumPy draws): use the server's request and the same version of "
    "NumPy"
)

_PRIVATE_REFUSED = "sent a private release, which was not asked for"

_Sum = TypeVar("_Sum", PlainStatistics, PrivateStatistics)
Contribution: TypeAlias = (
    SufficientStatistics | PlainStatistics | PrivateStatistics | Openings
)
Part: TypeAlias = SufficientStatistics | PlainStatistics | PrivateStatistics | Opening


class _Full:
    """Full contributions with one schema: their clients and their running total."""

    def __init__(self, client: str, first: SufficientStatistics) -> None:
        self.clients, self._running = [client], RunningTotal(first)

    def add(self, client: str, part: SufficientStatistics) -> None:
        self._running.add(part)
        self.clients.append(client)

    @property
    def count(self) -> int:
        return self._running.count

    @property
    def total(self) -> SufficientStatistics:
        return self._running.total()


class _Opened:
    """The same for the openings of a refinement, which are kept apart."""

    def __init__(self, client: str, first: Opening) -> None:
        self._openings = {client: first}

    def add(self, client: str, part: Opening) -> None:
        self._openings[client] = part

    @property
    def clients(self) -> list[str]:
        return list(self._openings)

    @property
    def count(self) -> int:
        return sum(opening.count for opening in self._openings.values())

    @property
    def total(self) -> Openings:
        return Openings(self._openings)


class _Added(Generic[_Sum]):
    """The same for contributions that simply add up."""

    def __init__(self, client: str, first: _Sum) -> None:
        self.clients = [client]
        self.total: _Sum = first

    def add(self, client: str, part: _Sum) -> None:
        self.total = self.total + part
        self.clients.append(client)

    @property
    def count(self) -> int:
        # Of private rows nobody knows the number.
        return self.total.count if isinstance(self.total, PlainStatistics) else 0


class _Columns(NamedTuple):
    """What contributions must have in common to be added up, names aside."""

    n_features: int
    n_targets: int
    feature_map: str | None
    n_features_in: int | None


@dataclass(frozen=True)
class _Schema:
    n_features: int
    n_targets: int
    feature_hash: str | None
    feature_map: str | None = None
    n_features_in: int | None = None

    @classmethod
    def of(cls, part: Part, feature_hash: str | None) -> _Schema:
        made_by = getattr(part, "feature_map", None)
        raw = None if made_by is None else getattr(part, "n_features_in", None)
        return cls(part.n_features, part.n_targets, feature_hash, made_by, raw)

    @property
    def columns(self) -> _Columns:
        return _Columns(
            self.n_features, self.n_targets, self.feature_map, self.n_features_in
        )


@dataclass
class Fold(Roll):
    """The running total over clients.

    Parameters
    ----------
    accept_plain : bool
        Whether the paper's plain (G, h) is enough for what will be solved.
    feature_names : tuple of str, optional
        Schema that every client must have, where the server knows it.
    keep : bool
        Keep every contribution in `parts`; memory then grows with the clients.
    accept_rounded : bool
        Whether contributions as float32 were asked for.
    feature_map : FeatureMap, optional
        What the columns of every client must have gone through, where the server
        knows it.
    private : bool
        Whether private releases were asked for; nothing else is then taken.
    profiled : bool
        Keep the `Profile` of every contribution in `profiles`.
    keep_bytes : int
        Without `keep`: keep contributions all the same while together they are no
        larger; one more, and all of them are forgotten.

    Examples
    --------
    >>> fold = Fold()
    >>> fold.add("a", SufficientStatistics.from_data([[1.0], [2.0]], [1.0, 2.0]))
    >>> fold.add("b", SufficientStatistics.from_data([[3.0], [4.0]], [1.0, 2.0]))
    >>> fold.add("c", SufficientStatistics.from_data([[3.0, 1.0]], [1.0]))
    >>> fold.finish()
    SufficientStatistics(4 rows, 1 feature, 1 target)
    >>> fold.failures
    {'c': 'has 2 features and 1 target where 2 clients have 1 and 1'}
    """

    accept_plain: bool = False
    feature_names: tuple[str, ...] | None = None
    keep: bool = False
    accept_rounded: bool = False
    private: bool = False
    feature_map: FeatureMap | None = None
    profiled: bool = False
    keep_bytes: int = 0
    profiles: dict[str, Profile] = field(default_factory=dict)
    _kept_bytes: int = 0
    # Full statistics, or private releases in their place: never both.
    _full: dict[_Schema, Any] = field(default_factory=dict)
    _plain: dict[_Schema, _Added[PlainStatistics]] = field(default_factory=dict)

    def add(self, client: str, part: Part) -> None:
        """Fold one contribution in; what cannot be used becomes a failure."""
        if not self._first_answer(client):
            return
        reason = self._reason_to_refuse(part)
        if reason is not None:
            self.failures[client] = reason
            return
        profile = Profile.of(part) if self.profiled else None
        if profile is not None:
            self.profiles[client] = profile
        self._keep(client, part)
        self._fold(client, part)

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Fold anew without some clients, as if they had been refused at once.

        All contributions must have been kept.
        """
        if not reasons:
            return
        for client, reason in reasons.items():
            self.reject(client, reason)
        self._full, self._plain = {}, {}
        for client in self.participants:
            self._fold(client, self.parts[client])

    def reject(self, client: str, reason: str) -> None:
        """Take back an answer that turned out to be of no use."""
        super().reject(client, reason)
        self.profiles.pop(client, None)

    def _keep(self, client: str, part: Part) -> None:
        if self.keep:
            self.parts[client] = part
        elif self.keep_bytes and isinstance(part, SufficientStatistics):
            self._kept_bytes += part.triangle.nbytes
            if self._kept_bytes <= self.keep_bytes:
                self.parts[client] = part
            else:
                self.parts.clear()

    def _fold(self, client: str, part: Part) -> None:
        if isinstance(part, PlainStatistics):
            key = _Schema.of(part, None)
            if key in self._plain:
                self._plain[key].add(client, part)
            else:
                self._plain[key] = _Added(client, part)
        else:
            key = _Schema.of(part, part.feature_hash)
            if key in self._full:
                self._full[key].add(client, part)
            elif isinstance(part, SufficientStatistics):
                self._full[key] = _Full(client, part)
            elif isinstance(part, Opening):
                self._full[key] = _Opened(client, part)
            else:
                self._full[key] = _Added(client, part)

    def finish(self) -> Contribution | None:
        """Return the total over the schema of most clients, or None without any."""
        groups = self._groups_by_columns()
        ranked = sorted(
            groups, key=lambda c: (len(groups[c][0]), groups[c][1]), reverse=True
        )
        while ranked and not self._made_by_map(ranked[0]):
            self._reject(groups[ranked.pop(0)][0], _OTHER_MAP)
        if not ranked:
            return None
        columns, *others = ranked
        winners, _ = groups[columns]
        for other in others:
            clients, _ = groups[other]
            self._reject(clients, _other_columns(other, columns, len(winners)))
        return self._total(columns)

    def _made_by_map(self, columns: _Columns) -> bool:
        """Whether columns went through the server's map.

        Who claims to have a million columns makes the server draw as many numbers, so
        only the largest group is looked into, or the next if that is wrong.
        """
        if self.feature_map is None:
            return True
        if columns.n_features_in is None:
            return False
        try:
            expected = self.feature_map.fingerprint(columns.n_features_in)
        except FedRidgeError:
            return False
        return columns.feature_map == expected

    def _total(self, columns: _Columns) -> Contribution:
        named = {
            key: group
            for key, group in self._full.items()
            if key.columns == columns and key.feature_hash is not None
        }
        without_names = _Schema(
            columns.n_features,
            columns.n_targets,
            None,
            columns.feature_map,
            columns.n_features_in,
        )
        unnamed = self._full.get(without_names)
        plain = self._plain.get(without_names)
        parts = [] if unnamed is None else [unnamed.total]
        if named:
            best = max(named.values(), key=lambda g: (len(g.clients), g.count))
            parts.insert(0, best.total)
            for group in named.values():
                if group is not best:
                    self._reject(
                        group.clients,
                        "has other feature names, or another order of them, than "
                        f"{counted(len(best.clients), 'other client')}: compare the "
                        "columns of load_data",
                    )
        if plain is None:
            total: Contribution = sum(parts[1:], start=parts[0])
            return total
        demoted = [PlainStatistics.from_statistics(part) for part in parts]
        return sum(demoted, start=plain.total)

    def _groups_by_columns(self) -> dict[_Columns, tuple[list[str], int]]:
        found: dict[_Columns, tuple[list[str], int]] = {}
        for groups in (self._full, self._plain):
            for key, group in groups.items():
                clients, rows = found.get(key.columns, ([], 0))
                found[key.columns] = ([*clients, *group.clients], rows + group.count)
        return found

    def _reason_to_refuse(self, part: Part) -> str | None:
        if isinstance(part, PrivateStatistics) != self.private:
            return _EXACT_REFUSED if self.private else _PRIVATE_REFUSED
        if isinstance(part, PlainStatistics) and not self.accept_plain:
            return _PLAIN_REFUSED
        if isinstance(part, SufficientStatistics) and (
            part.rounding and not self.accept_rounded
        ):
            return _ROUNDED_REFUSED
        if self.feature_names is None:
            return None
        raw = _raw_features(part)
        if raw is not None and raw != len(self.feature_names):
            return (
                f"has {counted(raw, 'feature')} where the server "
                f"expects {len(self.feature_names)}"
            )
        if not isinstance(part, PlainStatistics) and part.feature_hash not in (
            None,
            hash_names(self.feature_names),
        ):
            return "has other feature names, or another order, than the server expects"
        return None

    def _reject(self, clients: list[str], reason: str) -> None:
        for client in clients:
            self.reject(client, reason)


def _raw_features(part: Part) -> int | None:
    """Return how many raw columns the rows had, where that is known."""
    if isinstance(part, SufficientStatistics | Opening):
        return part.n_features_in
    if isinstance(part, PrivateStatistics) and part.feature_map is not None:
        return part.n_features_in
    if isinstance(part, PlainStatistics) and part.feature_map is not None:
        return None
    return part.n_features


def _other_columns(found: _Columns, expected: _Columns, n_winners: int) -> str:
    if found[:2] != expected[:2]:
        return (
            f"has {counted(found.n_features, 'feature')} and "
            f"{counted(found.n_targets, 'target')} where "
            f"{counted(n_winners, 'client')} {'has' if n_winners == 1 else 'have'} "
            f"{expected.n_features} and {expected.n_targets}"
        )
    others = counted(n_winners, "other client")
    if found.feature_map is None:
        return f"used no feature map where {others} used one"
    if expected.feature_map is None:
        return f"used a feature map where {others} used none"
    return (
        f"used another feature map (seed, size or random numbers differ) than {others}"
    )
