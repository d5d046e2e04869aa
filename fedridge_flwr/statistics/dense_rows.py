"""Few rows in one array, and what they are without their mean."""

import numpy as np

from .._types import Array
from ..data.rows import Rows
from .moments import two_sum


def dense_rows(rows: Rows, first: int, last: int) -> Array:
    """Return rows [X Y] from `first` to `last` in one array of float64."""
    d, found = (
        rows.n_features,
        np.empty((last - first, rows.n_features + rows.n_targets)),
    )
    start = 0
    for block in rows.blocks(first, last):
        stop = start + len(block.Y)
        found[start:stop, :d] = block.X.toarray() if rows.is_sparse else block.X
        found[start:stop, d:] = block.Y
        start = stop
    return found


def centred(rows: Array, weight: Array | None) -> tuple[Array, Array, Array, float]:
    """Return sqrt(w) (z - mean) of the rows that have weight, the mean, and sum w.

    The mean comes in two parts, the second being what rounding cut off the first. The
    rows are overwritten.
    """
    own = np.ones(len(rows)) if weight is None else weight
    total = float(own.sum())
    if total == 0.0:
        nothing = np.zeros(rows.shape[1])
        return rows[:0], nothing, nothing, 0.0
    share = own / total
    mean = share @ rows
    rows -= mean
    # What the rounded mean is off by: features around 1e6 would feel it.
    rest = share @ rows
    rows -= rest
    if weight is not None:
        rows *= np.sqrt(own)[:, None]
        rows = rows[own > 0]
    return rows, *two_sum(mean, rest), total
