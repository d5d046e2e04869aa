"""What sums of rows on a grid satisfy; anything else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._text import counted
from ..data.schema import Schema
from ..errors import StatisticsError
from ..linalg import limbs
from ..linalg.packed import add_square, diagonal_positions, packed_length
from .integer_sums import FRACTION_BITS, FixedGrid
from .validity import check_moments, check_sizes

if TYPE_CHECKING:
    from .fixed_point import FixedPointStatistics


def check_total(words: Any, fraction_bits: int = FRACTION_BITS) -> int:
    """Return the number of rows without weights in a sum of words, ``S_00 / 2^(2 f)``.

    The low 2 f bits of the first number are zero in every sum of such rows. A mask that
    was not removed leaves them so with a probability of ``2^(-2 f)``.

    Raises
    ------
    StatisticsError
        If they are not, or the number is not positive.

    Examples
    --------
    >>> check_total(limbs.from_ints([5 << 120], 3))
    5
    >>> check_total(limbs.from_ints([(5 << 120) + 1], 3))
    Traceback (most recent call last):
    fedridge_flwr.errors.StatisticsError: the sum is not one of statistics: the share \
or mask of some client is wrong. Nothing of it can be used.
    """
    rows, rest = divmod(limbs.to_ints(words[:1])[0], 1 << 2 * fraction_bits)
    if rest or rows <= 0:
        raise StatisticsError(
            "the sum is not one of statistics: the share or mask of some client is "
            "wrong. Nothing of it can be used."
        )
    return rows


def check_words(words: Any, schema: Schema, grid: FixedGrid) -> limbs.Words:
    """Return a copy of words that have the right shape and type."""
    found: limbs.Words = np.asarray(words)
    check_sizes(schema.n_features, schema.n_targets)
    if found.dtype != np.uint64:
        raise StatisticsError(f"fixed-point statistics are uint64, got {found.dtype}.")
    expected = packed_length(schema.n_features, schema.n_targets), grid.n_words
    if found.shape != expected:
        raise StatisticsError(
            f"fixed-point statistics of {counted(schema.n_features, 'feature')} and "
            f"{counted(schema.n_targets, 'target')} have shape {expected}, got "
            f"{found.shape}."
        )
    return found.copy()


def check_sums(stats: FixedPointStatistics, *, weighted: bool) -> None:
    """Refuse sums that no rows have.

    `weighted` says whether rows may have weights. Otherwise the total weight must be
    the number of rows, to the last bit.
    """
    grid, (total, *sums) = stats.grid, stats.sums
    if not weighted and total != stats.count << 2 * grid.fraction_bits:
        raise StatisticsError(
            f"the total weight is not the number of rows, {stats.count}."
        )
    if (stats.count == 0 or total <= 0) and stats.words.any():
        raise StatisticsError(
            "there are no rows or no weights, but the sums are not zero."
        )
    diagonal = limbs.to_ints(stats.words[diagonal_positions(1 + len(sums))])
    if min(diagonal) < 0:
        raise StatisticsError("some sums of squares are negative.")
    if max(diagonal) > grid.limit:
        raise StatisticsError(
            f"sums of squares that would overflow {grid.total_bits} bits when those of "
            f"{grid.max_clients} clients are added up."
        )
    pairs = zip(diagonal[1:], sums, strict=True)
    if any(square * total < each * each for square, each in pairs):
        raise StatisticsError("negative variances: no rows can have them.")
    if total > 0:
        _check_comoments(stats)


def _check_comoments(stats: FixedPointStatistics) -> None:
    """Refuse co-moments that are not positive semi-definite, or take more rows.

    Their rounding in float64 is far below what `check_moments` allows; the variances
    themselves are exact.
    """
    width = len(stats.sums) - 1
    numbers = limbs.to_float64(stats.words) * 2.0 ** (-2 * stats.fraction_bits)
    triangle, places = numbers[1 + width :].copy(), diagonal_positions(width)
    raw = triangle[places]
    add_square(triangle, numbers[1 : 1 + width], -1.0 / numbers[0])
    triangle[places] = stats.grid_variances()
    check_moments(triangle, raw, stats.count - 1, "variances")
