"""Statistics whose targets are classes: one column of 1 and -1 for each label.

With p_k the share of class k and m_k = 2 p_k - 1 the mean of its column, the co-moments
of the targets of rows with total weight W are

    C_kk = W (1 - m_k²)   and   C_jk = -W (1 + m_j)(1 + m_k)   for j ≠ k,

and the shares add up to 1. A class that no row has is the constant -1: mean -1, and all
its co-moments are 0. So statistics are extended by classes that others have, exactly.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._types import Array
from ..data.names import Names
from ..linalg.packed import upper_triangle
from .sufficient import SufficientStatistics

_ROUNDING = 1e-6


def with_classes(
    stats: SufficientStatistics, labels: Sequence[str]
) -> SufficientStatistics:
    """Return the statistics of the same rows with one target for each of the labels.

    Targets that are not among the labels are dropped.

    Examples
    --------
    >>> from fedridge_flwr.data.names import Names
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [[1, -1], [-1, 1]])
    >>> named = replace(stats.schema, targets=Names.of(["fir", "oak"]))
    >>> with_classes(replace(stats, schema=named), ["ash", "oak"]).means
    array([ 0.5, -1. ,  0. ])
    """
    own = stats.target_names or ()
    if own == tuple(labels):
        return stats
    here, there = _places(stats.n_features, own, labels)
    width = stats.n_features + len(labels)
    comoment = np.zeros((width, width))
    comoment[np.ix_(there, there)] = stats.comoment[np.ix_(here, here)]
    low = stats.means_low
    return replace(
        stats,
        means=spread_out(stats.means, own, labels, -1.0),
        means_low=None if low is None else spread_out(low, own, labels, 0.0),
        triangle=upper_triangle(comoment),
        schema=replace(
            stats.schema, n_targets=len(labels), targets=Names.of(tuple(labels))
        ),
    )


def spread_out(
    values: Array, own: Sequence[str], labels: Sequence[str], rest: float
) -> Array:
    """Return one value for each column, where classes that are new have the rest.

    Examples
    --------
    >>> spread_out(np.array([5.0, 1.0, 2.0]), ["fir", "oak"], ["ash", "oak"], -1.0)
    array([ 5., -1.,  2.])
    """
    d = values.size - len(own)
    here, there = _places(d, own, labels)
    found = np.full(d + len(labels), rest)
    found[there] = values[here]
    return found


def _places(
    d: int, own: Sequence[str], labels: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return where columns that both have are now, and where they will be."""
    both = [(own.index(x), k) for k, x in enumerate(labels) if x in own]
    features = list(range(d))
    return features + [d + j for j, _ in both], features + [d + k for _, k in both]


def are_class_targets(stats: SufficientStatistics, *, complete: bool) -> bool:
    """Whether the targets of statistics can be classes of rows.

    `complete` says whether every row is of one of the classes that have a column.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [[1, -1], [-1, 1]])
    >>> are_class_targets(stats, complete=True)
    True
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [[1, -1], [2, 1]])
    >>> are_class_targets(stats, complete=True)
    False
    """
    weight, means = stats.total_weight, stats.target_means
    slack = _ROUNDING + stats.rounding
    shares = (1.0 + means) / 2.0
    total = float(shares.sum())
    if (shares < -slack).any() or total > 1.0 + slack * len(means):
        return False
    if complete and total < 1.0 - slack * len(means):
        return False
    expected = -np.outer(1.0 + means, 1.0 + means)
    np.fill_diagonal(expected, 1.0 - means**2)
    found = stats.centred_target_gram / weight
    return bool((np.abs(found - expected) <= slack).all())
