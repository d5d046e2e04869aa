"""What a site may have confused, though its rows are not absurd: units, columns.

Of column j of [X Y] at client k, with medians and MADs over clients (1.4826 times the
median absolute deviation) and n_k the weight of its rows, the units may be others where

    |log m_kj / med m| > 6 max(MAD of log m, s / (|m| sqrt n_k))      and at least 2,
    |log s_kj / med s - log m_kj / med m| <= 3 max(MAD of log s, 1 / sqrt n_k):

mean and spread differ by the same factor, that of a unit. Where the means of the others
tell nothing of the scale, since they change sign or differ by more than a factor of
about 1.4, the spread alone counts, from a factor of 4 and 8 such deviations on. Columns
of zeros and ones have no unit. A client that is unlike the others in most columns has
other rows, and not other units: in it all thresholds are multiplied by the median over
columns of how many deviations it is away.

Columns may be swapped where mean and spread of each are more than 6 deviations from its
own column at the others, and within 4 of the column that it is taken for.

No client is left out for any of this, and small sites, of less than 5 rows, are not
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._text import counted
from ..._types import Array

UNIT_LIMIT = 6.0
SPREAD_ONLY_LIMIT = 8.0
SWAP_LIMIT = 4.0
FEWEST_ROWS = 5

_MAD = 1.4826
# A little less than 2 and 4, which are estimated.
_FACTOR = float(np.log(1.9))
_SPREAD_ONLY_FACTOR = float(np.log(4.0))
_ALIKE = float(np.log(2.0)) / 2.0
_SAME_FACTOR = 3.0
_DUMMY = 1e-9
_CLIENTS_AT_ONCE = 256
_MOST_SWAPPED = 100
_SHOWN = 3
_UNITS = (
    "the mean of its {} is {:.2g} times the usual one, and the spread {:.2g} times{}: "
    "are the units the same?"
)
_SPREAD = "the spread of its {} is {:.2g} times the usual one: are the units the same?"
_CONVERSION = 0.15
_CONVERSIONS = {
    2.205: ", as between kg and lb",
    2.54: ", as between inch and cm",
    3.281: ", as between m and ft",
    4.184: ", as between kcal and kJ",
    7.5: ", as between mmHg and kPa",
    10.0: "",
    12.0: ", as between months and years",
    18.02: ", as between mg/dL and mmol/L of glucose",
    24.0: ", as between hours and days",
    38.67: ", as between mg/dL and mmol/L of cholesterol",
    60.0: ", as between minutes and hours",
    88.4: ", as between mg/dL and µmol/L of creatinine",
    100.0: "",
    365.25: ", as between days and years",
    1000.0: "",
}


@dataclass(frozen=True)
class _Usual:
    """Medians over clients of every column, and how far clients are from them."""

    means: Array
    spreads: Array
    mean_unit: Array
    log_mean_unit: Array
    log_spread_unit: Array
    dummy: Any

    @classmethod
    def of(cls, means: Array | None, spreads: Array) -> _Usual:
        spread = np.median(spreads, axis=0)
        spread_unit = _mad(np.log(spreads / spread))
        if means is None:
            none = np.full(spread.shape, np.nan)
            no = np.zeros(spread.shape, dtype=bool)
            return cls(none, spread, none, none, spread_unit, no)
        mean = np.median(means, axis=0)
        ratios = means / mean
        # The variance of zeros and ones follows from their mean.
        dummies = np.abs(spreads**2 - means * (1.0 - means)) < _DUMMY
        return cls(
            mean,
            spread,
            _mad(means - mean),
            _mad(np.where(ratios > 0, np.log(np.abs(ratios)), np.inf)),
            spread_unit,
            np.median(dummies, axis=0) > 0,
        )

    @classmethod
    def joined(cls, some: Sequence[_Usual]) -> _Usual:
        names = cls.__dataclass_fields__
        return cls(
            *(np.concatenate([getattr(u, name) for u in some]) for name in names)
        )


@dataclass
class Confusions:
    """Columns of one client that may have another unit, or another place."""

    units: Sequence[tuple[int, float, float | None]]
    swapped: dict[int, int]

    def words(self, label: Callable[[int], str]) -> list[str]:
        """Return all of it in words, the most striking columns first."""
        told = [_swap_in_words(self.swapped, label)] if self.swapped else []
        units = sorted(self.units, key=lambda u: -abs(float(np.log(u[1]))))
        for j, spread, mean in units[:_SHOWN]:
            if mean is None:
                told.append(_SPREAD.format(label(j), spread))
            else:
                told.append(_UNITS.format(label(j), mean, spread, conversion(mean)))
        if len(units) > _SHOWN:
            more = counted(len(units) - _SHOWN, "more column")
            told[-1] += f" (and so for {more})"
        return told


def conversion(factor: float) -> str:
    """Return which usual factors this is close to, round ones first.

    Examples
    --------
    >>> conversion(0.135), conversion(980.0), conversion(1.5)
    (' (about 1/7.5, as between mmHg and kPa)', ' (about 1000)', '')
    """
    size = max(factor, 1.0 / factor)
    near = [each for each in _CONVERSIONS if abs(np.log(size / each)) < _CONVERSION]
    near.sort(key=lambda each: _CONVERSIONS[each] != "")
    told = [
        f"{'1/' if factor < 1 else ''}{each:.4g}{_CONVERSIONS[each]}" for each in near
    ]
    return f" (about {', or '.join(told)})" if told else ""


def confusions(
    weights: Array,
    columns: Iterator[tuple[int, Array, Array | None]],
    rows: Callable[[slice], tuple[Array | None, Array]],
) -> dict[int, Confusions]:
    """Return by number the clients whose units or columns may be confused.

    Parameters
    ----------
    weights : ndarray
        Total weight of every client.
    columns : iterator
        Some columns of all clients at a time: where they start, spreads, means.
    rows : callable
        Returns means and spreads of all columns of some clients.
    """
    found: dict[int, Confusions] = {}
    with np.errstate(all="ignore"):
        usual = _Usual.joined([_Usual.of(m, s) for _, s, m in columns])
        for start in range(0, len(weights), _CLIENTS_AT_ONCE):
            some = slice(start, start + _CLIENTS_AT_ONCE)
            means, spreads = rows(some)
            for k, each in _of_some(weights[some], means, spreads, usual):
                found[start + k] = each
    return found


def _of_some(
    weights: Array, means: Array | None, spreads: Array, usual: _Usual
) -> Iterator[tuple[int, Confusions]]:
    """Yield what is confused at some clients."""
    noise = 1.0 / np.sqrt(weights)[:, None]
    log_spread = np.log(spreads / usual.spreads)
    spread_unit = np.maximum(usual.log_spread_unit, noise)
    wide = np.abs(log_spread) / spread_unit
    known = (spreads > 0) & (usual.spreads > 0) & (weights >= FEWEST_ROWS)[:, None]
    if means is None:
        units = known & (wide > SPREAD_ONLY_LIMIT)
        units &= np.abs(log_spread) > _SPREAD_ONLY_FACTOR
        for k in np.flatnonzero(units.any(axis=1)):
            ratios = np.exp(log_spread[k])
            columns = np.flatnonzero(units[k])
            yield int(k), Confusions([(int(j), ratios[j], None) for j in columns], {})
        return
    ratios = means / usual.means
    log_mean = np.where(ratios > 0, np.log(np.abs(ratios)), np.inf)
    relative = np.maximum(spreads / np.abs(means), usual.spreads / np.abs(usual.means))
    shifted = np.abs(log_mean) / np.maximum(usual.log_mean_unit, relative * noise)
    telling = usual.log_mean_unit < _ALIKE
    # A client that is far off in most columns has other rows, not other units.
    away = np.where(known, np.where(telling, shifted, wide), 0.0)
    usually = np.maximum(1.0, np.median(np.nan_to_num(away), axis=1, keepdims=True))
    gap = np.abs(log_spread - log_mean)
    by_both = telling & (shifted > UNIT_LIMIT * usually) & np.isfinite(log_mean)
    by_both &= np.abs(log_mean) > _FACTOR
    by_both &= gap <= np.minimum(_SAME_FACTOR * spread_unit, np.abs(log_mean) / 2.0)
    by_spread = ~telling & (wide > SPREAD_ONLY_LIMIT * usually)
    by_spread &= np.abs(log_spread) > _SPREAD_ONLY_FACTOR
    units = known & ~usual.dummy & (by_both | by_spread)

    far = np.abs(means - usual.means) / np.maximum(
        usual.mean_unit, usual.spreads * noise
    )
    misplaced = known & (np.maximum(far, wide) > UNIT_LIMIT * usually)
    candidates = misplaced.sum(axis=1)
    candidates[candidates > _MOST_SWAPPED] = 0
    for k in np.flatnonzero(units.any(axis=1) | (candidates > 1)):
        swapped = {}
        if candidates[k] > 1:
            where = np.flatnonzero(misplaced[k])
            swapped = _swapped(where, means[k], spreads[k], float(noise[k, 0]), usual)
        told = [
            (
                int(j),
                float(np.exp(log_spread[k, j])),
                float(ratios[k, j]) if by_both[k, j] else None,
            )
            for j in np.flatnonzero(units[k])
            if int(j) not in swapped
        ]
        if told or swapped:
            yield int(k), Confusions(told, swapped)


def _swapped(
    where: Any, means: Array, spreads: Array, noise: float, usual: _Usual
) -> dict[int, int]:
    """Return which columns of a client fit which of the others, in whole cycles."""
    unit = np.maximum(usual.mean_unit[where], usual.spreads[where] * noise)
    far = np.abs(means[where][:, None] - usual.means[where]) / unit
    log_unit = np.maximum(usual.log_spread_unit[where], noise)
    logs = np.log(spreads[where][:, None] / usual.spreads[where])
    misfit = np.maximum(far, np.abs(logs) / log_unit)
    best = misfit.argmin(axis=1)
    fits = (misfit.min(axis=1) < SWAP_LIMIT) & (best != np.arange(len(where)))
    found = {}
    for first in range(len(where)):
        at, seen = first, set[int]()
        while fits[at] and at not in seen:
            seen.add(at)
            at = int(best[at])
        if seen and at == first:
            found[int(where[first])] = int(where[best[first]])
    return found


def _swap_in_words(swapped: dict[int, int], label: Callable[[int], str]) -> str:
    """Return which columns look like which."""
    first = next(iter(swapped))
    if len(swapped) == 2:
        both = f"its {label(first)} looks like {label(swapped[first])} of the others"
        return f"{both}, and the other way round: are they swapped?"
    shown = [f"{label(i)} like {label(j)}" for i, j in list(swapped.items())[:_SHOWN]]
    more = f" (and {len(swapped) - _SHOWN} more)" if len(swapped) > _SHOWN else ""
    return (
        f"its columns look like others of the other clients, {', '.join(shown)}{more}: "
        "are they in another order?"
    )


def _mad(deviations: Array) -> Array:
    """Return 1.4826 times the median absolute deviation, from the median."""
    return np.asarray(_MAD * np.median(np.abs(deviations), axis=0))
