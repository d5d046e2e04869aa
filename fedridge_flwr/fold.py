"""Fold contributions of clients into one total, and name whoever does not fit.

Contributions are merged as they arrive and then forgotten, so memory does not grow
with the number of clients. Nobody knows beforehand which schema is the right one:
contributions are folded per schema, and the schema of most clients wins. A single
client with other columns, even one that answers first, cannot shut out the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .plain import PlainStatistics
from .statistics import RunningTotal, SufficientStatistics, hash_names
from .words import counted

__all__ = ["Fold"]

_PLAIN_REFUSED = (
    "sent only (G, h), from which an intercept, standardisation, R² and a choice of "
    "alpha cannot be known; use RidgeClient or ridge_client_app, or fit_intercept=False"
)

_ROUNDED_REFUSED = (
    "sent float32, which was not asked for and would make the model less exact for "
    'all; ask for it with wire_dtype="float32"'
)


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


class _Plain:
    """The same for plain contributions."""

    def __init__(self, client: str, first: PlainStatistics) -> None:
        self.clients, self.total = [client], first

    def add(self, client: str, part: PlainStatistics) -> None:
        self.total = self.total + part
        self.clients.append(client)

    @property
    def count(self) -> int:
        return self.total.count


@dataclass(frozen=True)
class _Schema:
    n_features: int
    n_targets: int
    feature_hash: str | None


@dataclass
class Fold:
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
    parts: dict[str, SufficientStatistics] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    _full: dict[_Schema, _Full] = field(default_factory=dict)
    _plain: dict[_Schema, _Plain] = field(default_factory=dict)
    _seen: dict[str, None] = field(default_factory=dict)

    def add(self, client: str, part: SufficientStatistics | PlainStatistics) -> None:
        """Fold one contribution in; what cannot be used becomes a failure."""
        if not self._first_answer(client):
            return
        reason = self._reason_to_refuse(part)
        if reason is not None:
            self.failures[client] = reason
        elif isinstance(part, SufficientStatistics):
            if self.keep:
                self.parts[client] = part
            key = _Schema(part.n_features, part.n_targets, part.feature_hash)
            if key in self._full:
                self._full[key].add(client, part)
            else:
                self._full[key] = _Full(client, part)
        else:
            key = _Schema(part.n_features, part.n_targets, None)
            if key in self._plain:
                self._plain[key].add(client, part)
            else:
                self._plain[key] = _Plain(client, part)

    def refuse(self, client: str, reason: str) -> None:
        """Name a client that failed or whose answer cannot be read."""
        if self._first_answer(client):
            self.failures[client] = reason

    @property
    def participants(self) -> list[str]:
        """Clients whose contribution counts, in order of arrival."""
        return [client for client in self._seen if client not in self.failures]

    @property
    def answered(self) -> set[str]:
        """Clients heard of, for good or ill."""
        return set(self._seen)

    def finish(self) -> SufficientStatistics | PlainStatistics | None:
        """Return the total over the schema of most clients, or None without any."""
        groups = self._groups_by_shape()
        if not groups:
            return None
        shape = max(groups, key=lambda s: (len(groups[s][0]), groups[s][1]))
        winners, _ = groups[shape]
        for other, (clients, _) in groups.items():
            if other != shape:
                self._reject(
                    clients,
                    f"has {counted(other[0], 'feature')} and "
                    f"{counted(other[1], 'target')} where "
                    f"{counted(len(winners), 'client')} "
                    f"{'has' if len(winners) == 1 else 'have'} "
                    f"{shape[0]} and {shape[1]}",
                )
        return self._total(shape)

    def _total(self, shape: tuple[int, int]) -> SufficientStatistics | PlainStatistics:
        named = {
            key: group
            for key, group in self._full.items()
            if (key.n_features, key.n_targets) == shape and key.feature_hash is not None
        }
        unnamed = self._full.get(_Schema(*shape, None))
        plain = self._plain.get(_Schema(*shape, None))
        parts = [] if unnamed is None else [unnamed.total]
        if named:
            best = max(named.values(), key=lambda g: (len(g.clients), g.count))
            parts.insert(0, best.total)
            for group in named.values():
                if group is not best:
                    self._reject(
                        group.clients,
                        "has other feature names, or another order of them, than "
                        f"{counted(len(best.clients), 'other client')}",
                    )
        if plain is None:
            return sum(parts[1:], start=parts[0])
        demoted = [PlainStatistics.from_statistics(part) for part in parts]
        return sum(demoted, start=plain.total)

    def _groups_by_shape(self) -> dict[tuple[int, int], tuple[list[str], int]]:
        shapes: dict[tuple[int, int], tuple[list[str], int]] = {}
        for groups in (self._full, self._plain):
            for key, group in groups.items():
                shape = (key.n_features, key.n_targets)
                clients, rows = shapes.get(shape, ([], 0))
                shapes[shape] = ([*clients, *group.clients], rows + group.count)
        return shapes

    def _reason_to_refuse(
        self, part: SufficientStatistics | PlainStatistics
    ) -> str | None:
        if isinstance(part, PlainStatistics) and not self.accept_plain:
            return _PLAIN_REFUSED
        if part.rounding and not self.accept_rounded:
            return _ROUNDED_REFUSED
        if self.feature_names is None:
            return None
        if part.n_features != len(self.feature_names):
            return (
                f"has {counted(part.n_features, 'feature')} where the server "
                f"expects {len(self.feature_names)}"
            )
        if isinstance(part, SufficientStatistics) and part.feature_hash not in (
            None,
            hash_names(self.feature_names),
        ):
            return "has other feature names, or another order, than the server expects"
        return None

    def _first_answer(self, client: str) -> bool:
        if client in self._seen:
            if client not in self.repeated:
                self.repeated.append(client)
            return False
        self._seen[client] = None
        return True

    def _reject(self, clients: list[str], reason: str) -> None:
        for client in clients:
            self.failures[client] = reason
            self.parts.pop(client, None)
