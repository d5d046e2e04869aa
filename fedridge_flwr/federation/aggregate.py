"""`Aggregate`: contributions of clients added up, and clients that do not fit named.

Contributions are merged as they arrive and then dropped (unless clients are to be
compared), so memory hardly grows with their number. The server need not know the schema
beforehand: contributions are added up per schema, and the schema of most clients wins.
A client with other columns, even one that answers first, cannot exclude the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._text import counted
from .._types import Array
from ..data.schema import Schema
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..statistics.plain import PlainStatistics
from .answers import Answers
from .screening.profiles import Profile
from .settings import FitSettings

__all__ = ["Aggregate", "Contribution"]

_REFUSED = {
    "exact": (
        "sent exact statistics although a private release was asked for; install the "
        "same fedridge-flwr on both sides"
    ),
    "private": "sent a private release, which was not asked for",
    "plain": (
        "sent only (G, h), from which an intercept, standardisation, R² and a choice "
        "of alpha cannot be computed; use RidgeClient or ridge_client_app, or "
        "fit_intercept=False"
    ),
    "rounded": (
        "sent float32, which was not asked for and would make the model less exact for "
        'all; ask for it with wire_dtype="float32"'
    ),
}
_OTHER_MAP = (
    "used another feature map than the server (its seed, its sizes, or the random "
    "numbers that this NumPy draws): use the server's request and the same version of "
    "NumPy"
)


class Contribution(Protocol):
    """What a client's answer must have in order to be added up."""

    form: str
    """"full", "plain", "private" or "opening"."""
    schema: Schema
    rounding: float

    def start_total(self) -> Any:
        """Return a running total: `add(part)`, `total()` and `count`."""

    def scale(self) -> tuple[float, Array | None, Array]:
        """Return weight, means and sums of squares of the columns, to be compared."""


@dataclass
class _Group:
    """Clients with the same schema, and their running total."""

    clients: list[str]
    running: Any

    @property
    def size(self) -> tuple[int, int]:
        return len(self.clients), self.running.count


@dataclass
class Aggregate(Answers):
    """The running total over the clients of one fit.

    Parameters
    ----------
    settings : FitSettings
        What is solved, and so which contributions are of use.
    feature_map : FeatureMap, optional
        The map that the columns of every client must have gone through.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> total = Aggregate(settings=FitSettings())
    >>> total.add("a", SufficientStatistics.from_data([[1.0], [2.0]], [1.0, 2.0]))
    >>> total.add("b", SufficientStatistics.from_data([[3.0], [4.0]], [1.0, 2.0]))
    >>> total.add("c", SufficientStatistics.from_data([[3.0, 1.0]], [1.0]))
    >>> total.result()
    SufficientStatistics(4 rows, 1 feature, 1 target)
    >>> total.failures
    {'c': 'its columns are not those of 2 other clients: 2 features against 1'}
    """

    settings: FitSettings = field(default_factory=FitSettings)
    feature_map: FeatureMap | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)
    _kept_bytes: int = 0
    _groups: dict[tuple[Schema, bool], _Group] = field(default_factory=dict)

    def add(self, client: str, part: Contribution) -> None:
        """Add one contribution; one that cannot be used becomes a failure."""
        if not self._is_first(client):
            return
        reason = self._reason_to_refuse(part)
        if reason is not None:
            self.failures[client] = reason
            return
        if self.settings.screens:
            self.profiles[client] = Profile.of(part)
        self._keep(client, part)
        self._merge(client, part)

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Add up again without some clients; all contributions must have been kept."""
        for client, reason in reasons.items():
            self.reject(client, reason)
        self._groups = {}
        for client in self.participants:
            self._merge(client, self.parts[client])

    def reject(self, client: str, reason: str) -> None:
        """Take back an answer that turned out to be of no use."""
        super().reject(client, reason)
        self.profiles.pop(client, None)

    def _keep(self, client: str, part: Any) -> None:
        settings = self.settings
        if settings.keeps_parts or part.form == "opening":
            self.parts[client] = part
        elif settings.keep_bytes and part.form == "full":
            self._kept_bytes += part.nbytes
            if self._kept_bytes <= settings.keep_bytes:
                self.parts[client] = part
            else:
                self.parts.clear()

    def _merge(self, client: str, part: Contribution) -> None:
        key = (part.schema, part.form == "plain")
        if key in self._groups:
            self._groups[key].running.add(part)
            self._groups[key].clients.append(client)
        else:
            self._groups[key] = _Group([client], part.start_total())

    def result(self) -> Any:
        """Return the total over the schema of most clients, or None without any."""
        by_columns: dict[Schema, list[str]] = {}
        rows: dict[Schema, int] = {}
        for (schema, _), group in self._groups.items():
            by_columns.setdefault(schema.unnamed, []).extend(group.clients)
            rows[schema.unnamed] = rows.get(schema.unnamed, 0) + group.size[1]
        ranked = sorted(
            by_columns, key=lambda c: (len(by_columns[c]), rows[c]), reverse=True
        )
        while ranked and not self._made_by_map(ranked[0]):
            self._reject_all(by_columns[ranked.pop(0)], _OTHER_MAP)
        if not ranked:
            return None
        winner, *others = ranked
        usual = counted(len(by_columns[winner]), "other client")
        for other in others:
            self._reject_all(
                by_columns[other],
                f"its columns are not those of {usual}: {other.mismatch(winner)}",
            )
        return self._total(winner)

    def _made_by_map(self, schema: Schema) -> bool:
        """Whether columns went through the server's map.

        A client that claims to have a million columns makes the server draw as many
        numbers, so only the largest group is looked into, or the next if that is wrong.
        """
        if self.feature_map is None:
            return True
        if schema.n_features_in is None:
            return False
        try:
            expected = self.feature_map.fingerprint(schema.n_features_in)
        except FedRidgeError:
            return False
        return schema.feature_map == expected

    def _total(self, columns: Schema) -> Any:
        """Return the total over these columns; of several sets of names, one wins."""
        full = [
            (schema, group)
            for (schema, is_plain), group in self._groups.items()
            if schema.unnamed == columns and not is_plain
        ]
        plain = self._groups.get((columns, True))
        named = [(s, group) for s, group in full if s.feature_hash is not None]
        totals = [g.running.total() for s, g in full if s.feature_hash is None]
        if named:
            best = max((group for _, group in named), key=lambda each: each.size)
            totals.insert(0, best.running.total())
            usual = counted(len(best.clients), "other client")
            for _, group in named:
                if group is not best:
                    self._reject_all(
                        group.clients,
                        "has other feature names, or another order of them, than "
                        f"{usual}: compare the columns of load_data",
                    )
        if plain is not None:
            totals = [PlainStatistics.from_statistics(total) for total in totals]
            totals.insert(0, plain.running.total())
        return sum(totals[1:], start=totals[0])

    def _reason_to_refuse(self, part: Contribution) -> str | None:
        settings, schema = self.settings, part.schema
        if (part.form == "private") != (settings.privacy is not None):
            return _REFUSED["private" if settings.privacy is None else "exact"]
        if part.form == "plain" and not settings.accepts_plain:
            return _REFUSED["plain"]
        if part.rounding and settings.wire_dtype != "float32":
            return _REFUSED["rounded"]
        expected = settings.schema
        if expected is None:
            return None
        raw = schema.n_features_in
        if raw is not None and raw != expected.n_features:
            return (
                f"has {counted(raw, 'feature')} where the server expects "
                f"{expected.n_features}"
            )
        if schema.feature_hash not in (None, expected.feature_hash):
            return "has other feature names, or another order, than the server expects"
        return None

    def _reject_all(self, clients: list[str], reason: str) -> None:
        for client in clients:
            self.reject(client, reason)
