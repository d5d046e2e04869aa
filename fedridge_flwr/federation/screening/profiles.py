"""`Profile`: the scale of a client's columns, compared with that of all clients.

For column j of [X Y], means m and standard deviations s of client k, med the median
over clients and MAD 1.4826 times the median absolute deviation, a client stands out

    |m_kj - med_j m| > 100 max(MAD_j of m, s_1j, s_2j, ...)         by a mean,
    log(s_kj / med_j s) > 8 max(MAD_j of log s, log 2)              by a spread,
    its total weight is beyond a million times the median           by its weight,

where clients that stand out by the spread of a column do not count in the first line,
but for themselves: who varies as much as it is far is judged by its spread.

Some things are remarks only, on which nothing depends, since honest sites have them:
units or columns may be confused (`units`); two clients sent the same numbers
(`copies`); a column is constant at one client (or a tenth of them) and varies at all
others. Small sites are constant by chance: it is a remark only if 20 rows or more (by
weight) would be expected to differ from the constant c. Of columns whose means are
nowhere below c, or nowhere above, as those of dummies and counts where c = 0,

    (m - c)² / ((m - c)² + s²)

of the rows or more differ from it, with the usual m and s (of a dummy exactly so many);
of other columns all rows are taken to differ.

Columns in which most clients neither vary nor differ are not compared: being the only
site with a rare category is no crime. Nobody is left out for a small spread: such rows
have little influence, though not none, and honest sites have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..._text import counted
from ..._types import Array
from ...errors import column_labels
from .units import confusions

MEAN_LIMIT = 100.0
SPREAD_LIMIT = 8.0
WEIGHT_LIMIT = 1e6

_MAD = 1.4826
_SPREAD_UNIT = float(np.log(2.0))
_ROUNDING = 1e-13
_TINY = float(np.finfo(np.float64).tiny)
_AT_ONCE = 32
_SHOWN = 3
_HEAVY = "it weighs {:.2g} times as much as usual"
_FAR = "the mean of its {} is {:.2g} typical deviations from the usual one"
_CONSTANT = "its {} is {value}, and varies at {:.0f} others"
_CODES = (0.0, -1.0, -9.0, -99.0, -999.0, 9.0, 99.0, 999.0)
_EXPECTED = 20.0
_WIDE = "the spread of its {} is {:.2g} times the usual one"

# Which columns of which client stand out, in which words and how far.
_Seen: TypeAlias = dict[int, dict[str, list[tuple[int, float]]]]


@dataclass(frozen=True)
class Profile:
    """What is compared of one client: 2 (d + t) numbers, whatever it sent.

    Attributes
    ----------
    weight : float
        Total weight of its rows.
    means : ndarray or None
        Means of the columns of [X Y]; of (G, h) they are not known.
    deviations : ndarray
        Their standard deviations; of (G, h) the root mean squares of X.
    n_features : int
        How many of the columns are features.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [0.0, 4.0])
    >>> Profile.of(stats)
    Profile(weight=2.0, means=array([2., 2.]), deviations=array([1., 2.]), n_features=1)
    """

    weight: float
    means: Array | None
    deviations: Array
    n_features: int

    @classmethod
    def of(cls, part: Any) -> Profile:
        """Return the profile of a contribution, or of moments of columns."""
        return cls.of_scale(part.scale(), part.n_features)

    @classmethod
    def of_scale(
        cls, scale: tuple[float, Array | None, Array], n_features: int
    ) -> Profile:
        """Return the profile of weight, means and sums of squared deviations."""
        weight, means, squares = scale
        return cls(weight, means, _deviations(squares, weight, means), n_features)

    def without_means(self) -> Profile:
        """Return what can be compared with (G, h)."""
        if self.means is None:
            return self
        roots = np.hypot(self.means, self.deviations)[: self.n_features]
        return Profile(self.weight, None, roots, self.n_features)


def by_scale(
    profiles: Mapping[str, Profile], names: Sequence[str] | None
) -> dict[str, str]:
    """Return who stands out by means, spreads or weight, and how.

    Examples
    --------
    >>> each = {str(k): Profile(9.0, np.ones(1), np.ones(1), 1) for k in range(4)}
    >>> by_scale(each | {"4": Profile(9.0, np.zeros(1), np.full(1, 1e9), 1)}, ["age"])
    {'4': "the spread of its column 'age' is 1e+09 times the usual one"}
    """
    profiles = _comparable(profiles)
    weights = np.array([profile.weight for profile in profiles.values()])
    seen: _Seen = {}
    with np.errstate(all="ignore"):
        heavy = weights / np.median(weights)
        for start, spreads, means in _some_columns(list(profiles.values())):
            wide, ratios = _spread_scores(spreads)
            wider = wide > SPREAD_LIMIT
            if means is not None:
                far = _mean_scores(means, spreads, wider)
                _collect(seen, start, _FAR, far, far > MEAN_LIMIT)
            _collect(seen, start, _WIDE, ratios, wider)
    clients, found = list(profiles), {}
    label = _labels(profiles, names)
    for k in sorted({*np.flatnonzero(heavy > WEIGHT_LIMIT).tolist(), *seen}):
        reasons = [_HEAVY.format(heavy[k])] if heavy[k] > WEIGHT_LIMIT else []
        found[clients[k]] = "; ".join([*reasons, *_in_words(seen.get(k, {}), label)])
    return found


def remarks(
    profiles: Mapping[str, Profile], names: Sequence[str] | None
) -> dict[str, str]:
    """Return what is unusual about clients that may well be honest.

    Examples
    --------
    >>> each = {str(k): Profile(90.0, np.ones(2), np.ones(2), 1) for k in range(4)}
    >>> each["4"] = Profile(90.0, np.zeros(2), np.array([0.0, 1.0]), 1)
    >>> remarks(each, ["age"])
    {'4': "its column 'age' is 0 in all rows (missing?), and varies at 4 others"}
    """
    # Where nothing varies there is a single row, which cannot be judged.
    profiles = {c: p for c, p in _comparable(profiles).items() if p.deviations.any()}
    if not profiles:
        return {}
    label, clients = _labels(profiles, names), list(profiles)
    each = list(profiles.values())
    weights = np.array([profile.weight for profile in each])
    found: _Seen = {}
    for start, spreads, means in _some_columns(each):
        with np.errstate(all="ignore"):
            constant = _constant_here(spreads, means, weights)
        others = np.broadcast_to((spreads > 0).sum(axis=0), spreads.shape)
        _collect(found, start, _CONSTANT, others, constant)
    confused = confusions(
        weights, _some_columns(each), lambda some: _all_columns(each[some])
    )
    told = {}
    for k in sorted({*found, *confused}):
        words = confused[k].words(label) if k in confused else []
        words += _in_words(found.get(k, {}), label, each[k].means)
        told[clients[k]] = "; ".join(words)
    return told


def copies(profiles: Mapping[str, Profile]) -> list[list[str]]:
    """Return groups of clients that have exactly the same numbers.

    Whoever has few rows may have them by chance, as of zeros and ones.

    Examples
    --------
    >>> one = Profile(90.0, np.ones(1), np.full(1, 0.3), 1)
    >>> copies({"a": one, "b": Profile(90.0, np.ones(1), np.full(1, 0.2), 1), "c": one})
    [['a', 'c']]
    """
    same: dict[Any, list[str]] = {}
    for client, profile in profiles.items():
        if profile.weight >= _EXPECTED and profile.deviations.any():
            means = b"" if profile.means is None else profile.means.tobytes()
            key = profile.weight, means, profile.deviations.tobytes()
            same.setdefault(key, []).append(client)
    return [clients for clients in same.values() if len(clients) > 1]


def _all_columns(some: list[Profile]) -> tuple[Array | None, Array]:
    """Return means, where all are known, and spreads of all columns of some clients."""
    means = [p.means for p in some if p.means is not None]
    return np.array(means) if means else None, np.array([p.deviations for p in some])


def _value_text(means: Array | None, column: int) -> str:
    """Return what a constant column is, where its mean is known."""
    if means is None:
        return "constant"
    value = float(means[column])
    doubt = " (missing?)" if value in _CODES else ""
    return f"{value + 0.0:.4g} in all rows{doubt}"


def _constant_here(spreads: Array, means: Array | None, weights: Array) -> Any:
    """Return where a column is constant that varies at nearly all other clients."""
    flat = spreads == 0.0
    flat &= flat.sum(axis=0) <= max(1, len(spreads) // 10)
    if not flat.any():
        return flat
    expected = np.broadcast_to(weights[:, None], spreads.shape)
    if means is not None:
        gaps = (np.median(means, axis=0) - means) ** 2
        share = gaps / (gaps + np.median(spreads, axis=0) ** 2)
        extreme = (means == means.min(axis=0)) | (means == means.max(axis=0))
        expected = np.where(extreme, share, 1.0) * expected
    return flat & (expected >= _EXPECTED)


def _comparable(profiles: Mapping[str, Profile]) -> Mapping[str, Profile]:
    if any(profile.means is None for profile in profiles.values()):
        return {c: profile.without_means() for c, profile in profiles.items()}
    return profiles


def _labels(
    profiles: Mapping[str, Profile], names: Sequence[str] | None
) -> Callable[[int], str]:
    n_features = next(iter(profiles.values())).n_features
    known = names if names is not None and len(names) == n_features else None

    def label(column: int) -> str:
        if column >= n_features:
            return f"target {column - n_features}"
        # People know a column by its name; its place among the coded ones says little.
        return f"column {known[column]!r}" if known else column_labels([column])

    return label


def _in_words(
    seen: Mapping[str, list[tuple[int, float]]],
    label: Callable[[int], str],
    means: Array | None = None,
) -> list[str]:
    """Return what was seen of one client, the most striking columns first."""
    told = []
    for words in (_FAR, _WIDE, _CONSTANT):
        columns = sorted(seen.get(words, []), key=lambda c: -c[1])
        told += [
            words.format(label(j), score, value=_value_text(means, j))
            for j, score in columns[:_SHOWN]
        ]
        if len(columns) > _SHOWN:
            more = counted(len(columns) - _SHOWN, "more column")
            told[-1] += f" (and so for {more})"
    return told


def _some_columns(
    profiles: list[Profile],
) -> Iterator[tuple[int, Array, Array | None]]:
    """Yield where some columns start, their spreads and, where known, their means.

    Some columns at a time: all of them for all clients at once would be many times
    what the profiles take.
    """
    for start in range(0, profiles[0].deviations.size, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        spreads = np.array([profile.deviations[some] for profile in profiles])
        means = [p.means[some] for p in profiles if p.means is not None]
        yield start, spreads, np.array(means) if means else None


def _collect(found: _Seen, start: int, words: str, scores: Array, flags: Any) -> None:
    for k, j in zip(*np.nonzero(flags), strict=True):
        column = (start + int(j), float(scores[k, j]))
        found.setdefault(int(k), {}).setdefault(words, []).append(column)


def _mean_scores(means: Array, spreads: Array, wider: Any) -> Array:
    """Return how many typical deviations every mean is from the median of them.

    The largest spread is the unit, of those that are not too large: in a column of
    zeros and ones that are the same for nearly all rows, a small spread says nothing.
    """
    centre = np.median(means, axis=0)
    distance = np.abs(means - centre)
    usual = np.maximum(_MAD * np.median(distance, axis=0), np.median(spreads, axis=0))
    unit = np.maximum(usual, np.max(np.where(wider, 0.0, spreads), axis=0))
    # Means that are all the same differ by rounding, which is no unit.
    compared = usual > _ROUNDING * np.abs(centre)
    scores = distance / np.maximum(unit, spreads)
    return np.asarray(np.where(compared, scores, 0.0))


def _spread_scores(spreads: Array) -> tuple[Array, Array]:
    """Return log(s / median) in typical deviations of log s, and s / median."""
    usual = np.median(spreads, axis=0)
    ratios = np.where(usual > 0, spreads / usual, 1.0)
    logs = np.log(np.maximum(ratios, _TINY))
    unit = np.maximum(_MAD * np.median(np.abs(logs), axis=0), _SPREAD_UNIT)
    return logs / unit, ratios


def _deviations(squares: Array, weight: float, means: Array | None) -> Array:
    if not weight > 0:
        return np.zeros(squares.shape)
    with np.errstate(all="ignore"):
        found = np.sqrt(np.maximum(squares, 0.0) / weight)
        flat = 0.0 if means is None else _ROUNDING * np.abs(means)
        return np.asarray(np.where(found > flat, found, 0.0))
