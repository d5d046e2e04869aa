"""`Answers` of one round; `Aggregate`: contributions added up, misfits named.

Contributions are merged as they arrive and then dropped (unless clients are to be
compared), so memory hardly grows with their number. The server need not know the schema
beforehand: contributions are added up per schema, and the columns of most clients win.
A client with other columns, even one that answers first, cannot exclude the rest.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .._types import Array
from ..data.names import Columns
from ..data.schema import Schema
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..linalg.blas import one_blas_thread
from ..statistics.encoding import EXACT_FORMS, STATISTICS
from ..statistics.plain import PlainStatistics
from .agreement.columns import Agreement, agree_on_columns, reason_to_refuse
from .settings import FitSettings

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
    "sums": (
        'sent floating-point sums although the server asked for statistics="{asked}"; '
        'install the same fedridge-flwr on both sides, or use statistics="moments"'
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


@dataclass
class Answers:
    """The answers of one round; only the first answer of each client counts.

    Examples
    --------
    >>> answers = Answers()
    >>> answers.add("a", 1.0)
    >>> answers.add("a", 2.0)
    >>> answers.refuse("b", "crashed")
    >>> answers.parts, answers.failures, answers.repeated
    ({'a': 1.0}, {'b': 'crashed'}, ['a'])
    """

    parts: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    crashed: set[str] = field(default_factory=set)
    _seen: dict[str, None] = field(default_factory=dict)

    def take(self, client: str, read: Callable[[], Any]) -> None:
        """Add what `read` returns; if it raises, the client failed with that reason."""
        answered_before = client in self._seen
        try:
            with one_blas_thread():
                self.add(client, read())
            return
        except FedRidgeError as error:
            reason = str(error)
        except Exception as error:  # hostile input must not end the round
            reason = f"unreadable answer ({type(error).__name__})"
        if not answered_before:
            self._seen.pop(client, None)  # it may be half added
            self.parts.pop(client, None)
        self.refuse(client, reason)

    def add(self, client: str, part: Any) -> None:
        """Add one answer."""
        if self._is_first(client):
            self.parts[client] = part

    def keep(self) -> None:
        """Write answers to disk, where there is a ledger to outlive a crash."""

    def refuse(self, client: str, reason: str) -> None:
        """Name a client that failed or whose answer cannot be used."""
        if self._is_first(client):
            self.failures[client] = reason

    def crash(self, client: str, reason: str) -> None:
        """Name a client whose app raised: ours sends its errors as answers."""
        self.crashed.add(client)
        self.refuse(client, reason)

    def reject(self, client: str, reason: str) -> None:
        """Take back an answer that turned out to be of no use."""
        self.failures[client] = reason
        self.parts.pop(client, None)

    def refuse_silent(self, asked: Iterable[str], reason: str) -> None:
        """Name every client that was asked and has not answered."""
        for client in asked:
            if client not in self._seen:
                self.refuse(client, reason)

    @property
    def participants(self) -> list[str]:
        """Clients whose answer counts, in order of arrival."""
        return [client for client in self._seen if client not in self.failures]

    @property
    def answered(self) -> set[str]:
        """Clients that answered or failed."""
        return set(self._seen)

    def _is_first(self, client: str) -> bool:
        if client in self._seen:
            if client not in self.repeated:
                self.repeated.append(client)
            return False
        self._seen[client] = None
        return True


Scale: TypeAlias = tuple[float, Array | None, Array]


class Contribution(Protocol):
    """What a client's answer must have in order to be added up."""

    form: str
    """"full", "fixed", "triangular", "plain", "private" or "opening"."""
    schema: Schema
    count: Any
    """Number of rows; noisy or None in a private release."""
    rounding: float
    """How far each correlation may be off."""

    def start_total(self) -> Any:
        """Return a running total that begins with this: `add`, `total()`, `count`."""

    def arranged(self, wanted: Columns) -> Any:
        """Return the same with the columns in another order; total() has it too."""

    def scale(self) -> Scale:
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
    scales: dict[str, Scale] = field(default_factory=dict)
    agreement: Agreement | None = None
    rearranged: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    _rows: dict[str, int] = field(default_factory=dict)
    _kept_bytes: int = 0
    _exact: dict[str, Any] = field(default_factory=dict)
    _groups: dict[tuple[Schema, str], _Group] = field(default_factory=dict)
    _last: tuple[Schema | None, str, _Group | None] = None, "", None

    def add(self, client: str, part: Any) -> None:
        """Add one `Contribution`; one that cannot be used becomes a failure."""
        if not self._is_first(client):
            return
        settings, form = self.settings, part.form
        reason, scale = self._reason_to_refuse(part), None
        if form != "private":
            self._rows[client] = part.count
            if settings.screens or form != "full":
                scale = part.scale()
            weight = part.total_weight if scale is None else scale[0]
            if reason is None and not weight > 0:
                reason = "has no rows"
        if reason is not None:
            self.failures[client] = reason
            return
        if settings.screens and scale is not None:
            weight, means, squares = scale
            # Copies: a view would keep the whole message alive.
            own = None if means is None else means.copy()
            self.scales[client] = weight, own, squares.copy()
        self._keep(client, part)
        self._merge(client, part)

    @property
    def rows_left_out(self) -> dict[str, int]:
        """Rows of clients that answered and are not in the total."""
        return {c: rows for c, rows in self._rows.items() if c in self.failures}

    def rows_of(self, clients: Iterable[str]) -> dict[str, int]:
        """Return the rows of clients whose number is known."""
        return {c: self._rows[c] for c in clients if c in self._rows}

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Add up again without some clients; all contributions must have been kept."""
        for client, reason in reasons.items():
            self.reject(client, reason)
        self._start_again()
        for client in self.participants:
            self._merge(client, self._exact.get(client, self.parts[client]))

    def _start_again(self) -> dict[tuple[Schema, str], _Group]:
        """Return the groups so far, and begin without any."""
        before, self._groups, self._last = self._groups, {}, (None, "", None)
        return before

    def reject(self, client: str, reason: str) -> None:
        """Take back an answer that turned out to be of no use."""
        super().reject(client, reason)
        self.scales.pop(client, None)

    def _keep(self, client: str, part: Any) -> None:
        settings, fixed = self.settings, part.form == "fixed"
        if fixed and settings.excludes:
            self._exact[client] = part
        if settings.keeps_parts or part.form == "opening":
            self.parts[client] = part.to_sufficient() if fixed else part
        elif settings.keep_bytes and (fixed or part.form in EXACT_FORMS):
            self._kept_bytes += part.nbytes
            if self._kept_bytes <= settings.keep_bytes:
                self.parts[client] = part.to_sufficient() if fixed else part
            else:
                openings = [c for c, p in self.parts.items() if p.form == "opening"]
                self.parts = {client: self.parts[client] for client in openings}

    def _merge(self, client: str, part: Contribution) -> None:
        schema, form, group = self._last
        if part.schema is not schema or part.form != form:
            group = self._groups.get((part.schema, part.form))
            self._last = part.schema, part.form, group
        if group is None:
            group = _Group([client], part.start_total())
            self._groups[part.schema, part.form] = group
            self._last = part.schema, part.form, group
        else:
            group.running.add(part)
            group.clients.append(client)

    def result(self) -> Any:
        """Return the total over the columns of most clients, or None without any.

        Clients that have the same columns in another order are rearranged.
        """
        sizes: dict[Schema, tuple[int, int]] = {}
        for (schema, _), group in self._groups.items():
            clients, rows = sizes.get(schema, (0, 0))
            sizes[schema] = clients + len(group.clients), rows + group.running.count
        self.agreement = None
        while sizes:
            if len(sizes) == 1 and self.settings.schema is None:
                agreed = Agreement(next(iter(sizes)))  # all alike
            else:
                agreed = agree_on_columns(sizes, self.settings, self._fixed_order)
            if self._made_by_map(agreed.columns):
                self.agreement = agreed
                break
            wrong = agreed.columns.unnamed
            sizes = {s: size for s, size in sizes.items() if s.unnamed != wrong}
            for (schema, _), group in self._groups.items():
                if schema.unnamed == wrong:
                    self._reject_all(group, _OTHER_MAP)
        if self.agreement is None:
            return None
        return self._total(sizes, self.agreement)

    @property
    def _fixed_order(self) -> str:
        if self.feature_map is not None:
            return "behind a feature map"
        return "" if self.settings.privacy is None else "in a private release"

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

    def _total(self, sizes: Mapping[Schema, Any], agreed: Agreement) -> Any:
        """Return the total over the columns agreed on; the others are rejected."""
        totals, plain = [], []
        self.unverified = []
        for (schema, form), group in self._groups.items():
            if schema in agreed.rejected:
                self._reject_all(group, agreed.rejected[schema])
            elif form == "plain":
                plain.append(group.running.total())
            elif schema in sizes:
                if schema in agreed.unverified:
                    self.unverified += group.clients
                totals.append(self._arranged(group, schema, agreed.columns))
        if plain:
            totals = [PlainStatistics.from_statistics(total) for total in totals]
        first, *others = plain + totals
        total = sum(others, start=first)
        return total.to_sufficient() if total.form == "fixed" else total

    def _arranged(self, group: _Group, schema: Schema, wanted: Schema) -> Any:
        """Return the total of a group, with the columns in the order agreed on."""
        total = group.running.total()
        if schema.mismatch(wanted) is None:
            return total
        self.rearranged += group.clients
        columns, places = wanted.columns, schema.places_of(wanted.columns)
        for client in group.clients:
            for kept in (self.parts, self._exact):
                if client in kept:
                    kept[client] = kept[client].arranged(columns)
            if client in self.scales:
                weight, means, squares = self.scales[client]
                means = None if means is None else means[places]
                self.scales[client] = weight, means, squares[places]
        return total.arranged(columns)

    def _reason_to_refuse(self, part: Contribution) -> str | None:
        settings, schema = self.settings, part.schema
        # The answers of a round share their columns: what held for one, holds for all.
        if schema is self._last[0] and part.form == self._last[1] and not part.rounding:
            return None
        if (part.form == "private") != (settings.privacy is not None):
            return _REFUSED["private" if settings.privacy is None else "exact"]
        asked = settings.statistics
        if asked != "moments" and part.form in ("full", "plain"):
            return _REFUSED["sums"].format(asked=asked)
        if part.form in STATISTICS and part.form != asked:
            return f'sent statistics="{part.form}", which was not asked for'
        if part.form == "plain" and not settings.accepts_plain:
            return _REFUSED["plain"]
        if part.rounding and settings.wire_dtype != "float32":
            return _REFUSED["rounded"]
        if settings.schema is None:
            return None
        return reason_to_refuse(schema, settings)

    def _reject_all(self, group: _Group, reason: str) -> None:
        for client in group.clients:
            self.reject(client, reason)
