"""Columns in which only a few rows have another value than all the others.

The sums of such a column are those of the few rows: a column that is zero but for one
patient gives that patient's values away, one by one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..._text import counted
from ..._types import Array
from ...data.local_table import RowOrigin
from ...data.rows import Rows
from ...errors import column_labels


def rare_columns(rows: Rows, k: int) -> dict[int, int]:
    """Return the columns of [X Y] with 1 to k - 1 rows of another than the usual value.

    The usual value of a column is its most common one. Rows without weight do not
    count, and a constant column has no other values.

    Parameters
    ----------
    rows : Rows
        The rows.
    k : int
        How many rows of another value are enough.

    Returns
    -------
    dict of int to int
        Number of the rows with another value, by column.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> X = [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [1.0, 4.0], [0.0, 5.0]]
    >>> rare_columns(check_rows(X, [5.0, 4.0, 3.0, 2.0, 1.0]), 2)
    {0: 1}
    """
    first = _first_rows(rows, 2 * k - 1)
    if len(first) < 2 * k - 1:
        others = np.array([_others(column) for column in first.T], dtype=np.intp)
    else:
        # If fewer than k rows differ, most of these do not, and the middle one of a
        # sorted majority belongs to it. Where it does not, k or more differ from it.
        usual = np.sort(first, axis=0)[k - 1]
        others = np.zeros(len(usual), dtype=np.intp)
        d = rows.n_features
        for X, Y in _filled_blocks(rows):
            others[:d] += _count_others(X, usual[:d])
            others[d:] += _count_others(Y, usual[d:])
    rare = np.flatnonzero((others > 0) & (others < k))
    return {int(column): int(others[column]) for column in rare}


def _filled_blocks(rows: Rows) -> Iterator[tuple[Any, NDArray[Any]]]:
    for block in rows.blocks():
        if block.weight is None:
            yield block.X, block.Y
        else:
            filled = np.flatnonzero(block.weight)
            yield block.X[filled], block.Y[filled]


def _first_rows(rows: Rows, number: int) -> Array:
    parts = [np.empty((0, rows.n_features + rows.n_targets))]
    missing = number
    for X, Y in _filled_blocks(rows):
        part = X[:missing]
        dense = part.toarray() if sparse.issparse(part) else part
        parts.append(np.column_stack([dense, Y[:missing]]))
        missing -= len(parts[-1])
        if missing == 0:
            break
    return np.concatenate(parts).astype(np.float64)


def _others(column: Array) -> int:
    counts = np.unique(column, return_counts=True)[1]
    return len(column) - int(counts.max(initial=0))


def _count_others(block: Any, usual: Array) -> Any:
    """Return how many entries of each column differ from the usual one."""
    if not sparse.issparse(block):
        return np.count_nonzero(np.asarray(block) != usual, axis=0)
    height, width = block.shape
    entries = sparse.coo_array(block)
    columns, values = entries.coords[1], entries.data
    same = np.bincount(columns[values == usual[columns]], minlength=width)
    zeros = height - np.bincount(columns, minlength=width)
    return height - same - np.where(usual == 0, zeros, 0)


def rare_values(rows: Rows, least: int, when: str = "") -> Iterator[str]:
    """Yield why rows are declined: columns with few rows of another value."""
    for column, count in rare_columns(rows, least).items():
        is_feature = column < rows.n_features
        part, place = ("X", column) if is_feature else ("y", column - rows.n_features)
        known = rows.feature_names if is_feature else rows.target_names
        label = column_labels([place], None if when else known)
        yield (
            f"min_rows_per_level={least}, but {label} of {part}{when} has only "
            f"{counted(count, 'row')} with a value other than its most common one"
        )


def rare_levels(origin: RowOrigin | None, least: int) -> Iterator[str]:
    """Yield why rows of a table are declined: categories with a rare level."""
    levels = None if origin is None else origin.levels
    for name, counts in (levels or {}).items():
        rarest = min((n for n in counts.values() if n), default=0)
        if 0 < rarest < least:
            yield (
                f"min_rows_per_level={least}, but {name!r} has a level with only "
                f"{counted(rarest, 'row')}"
            )


def rare_weights(rows: Rows, least: int) -> Iterator[str]:
    """Yield why rows are declined: few of them have a weight of their own."""
    if rows.weight is None:
        return
    counts = np.unique(rows.weight[rows.weight > 0], return_counts=True)[1]
    others = int(counts.sum() - counts.max(initial=0))
    if 0 < others < least:
        yield (
            f"min_rows_per_level={least}, but only {counted(others, 'row')} with a "
            "weight other than the most common one"
        )


def effective_number(rows: Rows) -> float:
    """Return how many rows of equal weight would have as much variance."""
    if rows.weight is None or rows.n_filled == 0:
        return rows.n_filled
    share = rows.weight / rows.weight.max()
    # Rounding must not decide about equal weights.
    return float(share.sum() ** 2 / (share @ share)) * (1.0 + 1e-9)
