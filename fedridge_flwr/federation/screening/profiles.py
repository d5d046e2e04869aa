"""`Profile`: the scale of a client's columns, compared with that of everybody's.

For column j of [X Y], means m and standard deviations s of client k, med the median
over clients and MAD 1.4826 times the median absolute deviation, a client stands out

    |m_kj - med_j m| > 100 max(MAD_j of m, s_1j, s_2j, ...)         by a mean,
    log(s_kj / med_j s) > 8 max(MAD_j of log s, log 2)              by a spread,
    its total weight is beyond a million times the median           by its weight,

where clients that stand out by the spread of a column do not count in the first line,
but for themselves: who varies as much as it is far is judged by its spread.

Columns in which most clients neither vary nor differ are not compared: being the only
site with a rare category is no crime. Small spreads do no harm, and do not stand out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._text import counted
from ..._types import Array
from ...errors import column_labels

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
_WIDE = "the spread of its {} is {:.2g} times the usual one"


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
    {'4': "the spread of its column 0 ('age') is 1e+09 times the usual one"}
    """
    if any(profile.means is None for profile in profiles.values()):
        profiles = {c: profile.without_means() for c, profile in profiles.items()}
    n_features = next(iter(profiles.values())).n_features
    names = names if names is not None and len(names) == n_features else None
    weights = np.array([profile.weight for profile in profiles.values()])
    with np.errstate(all="ignore"):
        heavy = weights / np.median(weights)
        seen = _standing_out(list(profiles.values()))
    clients, found = list(profiles), {}
    for k in sorted({*np.flatnonzero(heavy > WEIGHT_LIMIT).tolist(), *seen}):
        reasons = [_HEAVY.format(heavy[k])] if heavy[k] > WEIGHT_LIMIT else []
        for words in (_FAR, _WIDE):
            columns = sorted(seen.get(k, {}).get(words, []), key=lambda c: -c[1])
            reasons += [
                words.format(_label(j, n_features, names), score)
                for j, score in columns[:_SHOWN]
            ]
            if len(columns) > _SHOWN:
                more = counted(len(columns) - _SHOWN, "more column")
                reasons[-1] += f" (and so for {more})"
        found[clients[k]] = "; ".join(reasons)
    return found


def _standing_out(
    profiles: list[Profile],
) -> dict[int, dict[str, list[tuple[int, float]]]]:
    """Return which columns of which client stand out, in which words and how far.

    Some columns at a time: all of them for all clients at once would be many times
    what the profiles take.
    """
    found: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for start in range(0, profiles[0].deviations.size, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        spreads = np.array([profile.deviations[some] for profile in profiles])
        means = [p.means[some] for p in profiles if p.means is not None]
        wide, ratios = _spread_scores(spreads)
        wider = wide > SPREAD_LIMIT
        far = np.zeros(spreads.shape)
        if means:
            far = _mean_scores(np.array(means), spreads, wider)
        for words, scores, flags in (
            (_FAR, far, far > MEAN_LIMIT),
            (_WIDE, ratios, wider),
        ):
            for k, j in zip(*np.nonzero(flags), strict=True):
                column = (start + int(j), float(scores[k, j]))
                found.setdefault(int(k), {}).setdefault(words, []).append(column)
    return found


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


def _label(column: int, n_features: int, names: Sequence[str] | None) -> str:
    if column >= n_features:
        return f"target {column - n_features}"
    return column_labels([int(column)], names)


def _deviations(squares: Array, weight: float, means: Array | None) -> Array:
    if not weight > 0:
        return np.zeros(squares.shape)
    with np.errstate(all="ignore"):
        found = np.sqrt(np.maximum(squares, 0.0) / weight)
        flat = 0.0 if means is None else _ROUNDING * np.abs(means)
        return np.asarray(np.where(found > flat, found, 0.0))
