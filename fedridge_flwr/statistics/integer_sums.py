"""Sums of products of rows on a grid: whole numbers, exact in every bit.

A value x becomes ``u = rint(x 2^(f - e))``, with f bits below one and a public power of
two e for its column. The sums ``sum u u'`` over rows ``[1 x y]`` are whole numbers,
which depend neither on the order of the rows nor on how they are divided.

BLAS computes them: u is split into balanced digits of 22 bits, ``|p| <= 2^21``, so that
sums over 512 rows of products of two such digits, or of sums of two, stay within the
2^53 up to which float64 holds every whole number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import check_whole, must_be
from .._text import counted
from .._types import Array
from ..data.rows import Block, Rows
from ..errors import DataError, FedRidgeError
from ..linalg import limbs
from ..linalg.packed import packed_length, upper_triangle

FRACTION_BITS = 60
TOTAL_BITS = 192
MAX_CLIENTS = 1024
_MOST_BITS = 512
_LARGEST_EXPONENT = 900

_DIGIT = 22
_ROWS = 512
_BLOCKS = 64
"""Blocks of which the digits of sums, up to 2^54 in each, stay within int64."""


@dataclass(frozen=True)
class FixedGrid:
    """The numbers ``k 2^(e - f)``, and how long their sums of products may become.

    Parameters
    ----------
    fraction_bits : int
        Bits below one, f.
    total_bits : int
        Bits of a sum, in two's complement; a multiple of 64.
    exponents : tuple of int, optional
        A public power of two e for every column of [X Y]; zero by default.
    max_clients : int
        How many clients are added up at most: no sum of so many can overflow.

    Examples
    --------
    >>> FixedGrid().n_words, FixedGrid(total_bits=128, fraction_bits=40).n_words
    (3, 2)
    """

    fraction_bits: int = FRACTION_BITS
    total_bits: int = TOTAL_BITS
    exponents: tuple[int, ...] | None = None
    max_clients: int = field(default=MAX_CLIENTS, compare=False)

    def __post_init__(self) -> None:
        """Refuse a grid on which not even the count of rows fits."""
        check_whole("max_clients", self.max_clients)
        bits = check_whole("total_bits", self.total_bits, limbs.WORD_BITS, _MOST_BITS)
        if bits % limbs.WORD_BITS:
            raise must_be("total_bits", "a multiple of 64", bits)
        most = (bits - self.max_clients.bit_length()) // 2 - 1
        check_whole("fraction_bits", self.fraction_bits, 1, most)
        if self.exponents is not None:
            _check_exponents(self.exponents)

    @property
    def n_words(self) -> int:
        """Words of 64 bits in a sum."""
        return self.total_bits // limbs.WORD_BITS

    @property
    def limit(self) -> int:
        """What no sum of squares of one client may exceed."""
        return (1 << (self.total_bits - 1)) // self.max_clients

    def steps(self, width: int) -> NDArray[np.int64]:
        """Return ``f - e`` for the column of ones and the columns of [X Y]."""
        exponents = (0,) * width if self.exponents is None else self.exponents
        if len(exponents) != width:
            raise FedRidgeError(
                f"exponents must be one for each of {width} columns of [X Y], got "
                f"{len(exponents)}."
            )
        return self.fraction_bits - np.array([0, *exponents], dtype=np.int64)

    def largest(self, n_rows: int) -> float:
        """Return how large values may be, in units of ``2^e``, in so many rows."""
        bits = self.total_bits - 1 - 2 * self.fraction_bits
        return float(np.sqrt(2.0**bits / self.max_clients / max(n_rows, 1)))


DEFAULT_GRID = FixedGrid()


def integer_sums(rows: Rows, grid: FixedGrid) -> limbs.Words:
    """Return the upper triangle of ``sum u u'`` over the rows ``sqrt(w) [1 x y]``.

    Parameters
    ----------
    rows : Rows
        Checked rows, perhaps behind a feature map.
    grid : FixedGrid
        The grid that their values are rounded to.

    Returns
    -------
    ndarray of uint64, shape (m, L)
        Row by row, as `limbs` has them.

    Raises
    ------
    DataError
        If values are not finite, too large for the sums, or vanish on the grid.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> sums = integer_sums(check_rows([[2.0], [3.0]], [1.0, 1.0]), FixedGrid())
    >>> [number >> 120 for number in limbs.to_ints(sums)]
    [2, 5, 2, 13, 5, 2]
    """
    width = rows.n_features + rows.n_targets
    factors = np.ldexp(1.0, grid.steps(width))
    length = packed_length(rows.n_features, rows.n_targets)
    total = np.zeros((length, grid.n_words), dtype=np.uint64)
    digits = np.zeros((0, length), dtype=np.int64)
    tops, pending = np.zeros(1 + width), 0
    for block in _blocks(rows):
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = _augmented(block, rows) * factors
        top = np.abs(scaled).max(axis=0)
        tops = np.maximum(tops, top)
        _check_largest(tops, rows, grid)
        digits = _add_products(digits, np.rint(scaled), top.max())
        pending += 1
        if pending == _BLOCKS:
            total = limbs.add(total, limbs.from_digits(digits, _DIGIT, grid.n_words))
            digits, pending = digits[:0], 0
    _check_vanished(tops, rows, grid)
    return limbs.add(total, limbs.from_digits(digits, _DIGIT, grid.n_words))


def _blocks(rows: Rows) -> Iterator[Block]:
    for block in rows.blocks():
        for start in range(0, len(block.Y), _ROWS):
            part = slice(start, start + _ROWS)
            weight = None if block.weight is None else block.weight[part]
            yield Block(block.X[part], block.Y[part], weight)


def _augmented(block: Block, rows: Rows) -> Array:
    """Return ``sqrt(w) [1 x y]``."""
    X = block.X.toarray() if rows.is_sparse else block.X
    ones = np.ones((len(block.Y), 1))
    found = np.concatenate(
        [ones, X, block.Y], axis=1, dtype=np.float64, casting="unsafe"
    )
    if block.weight is not None:
        found *= np.sqrt(block.weight)[:, None]
    return found


def _add_products(
    digits: NDArray[np.int64], values: Array, top: float
) -> NDArray[np.int64]:
    """Add the digits of ``sum u u'`` over one block of rows u."""
    parts = _balanced_digits(values, top)
    squares = [_square(part) for part in parts]
    longer = 2 * len(parts) - 1 - len(digits)
    if longer > 0:
        digits = np.pad(digits, ((0, longer), (0, 0)))
    for k, part in enumerate(parts):
        digits[2 * k] += squares[k]
        for j in range(k):
            # p'q + q'p = (p + q)'(p + q) - p'p - q'q: a third fewer operations.
            mixed = _square(part + parts[j])
            mixed -= squares[k]
            mixed -= squares[j]
            digits[j + k] += mixed
    return digits


def _square(part: Array) -> NDArray[np.int64]:
    """Return the upper triangle of p'p for whole numbers; NumPy halves the work."""
    return upper_triangle(part.T @ part).astype(np.int64)


def _balanced_digits(values: Array, top: float) -> list[Array]:
    """Return p_0, p_1, ... with ``sum p_k 2^(22 k)`` = values and ``|p| <= 2^21``."""
    n_digits = max(1, -(-(int(np.frexp(top)[1]) + 1) // _DIGIT))
    parts = []
    for k in reversed(range(1, n_digits)):
        unit = 2.0 ** (_DIGIT * k)
        part = np.rint(values * (1.0 / unit))
        values = values - part * unit  # exact: both are multiples of the last bit
        parts.append(part)
    return [values, *reversed(parts)]


def _check_largest(tops: Array, rows: Rows, grid: FixedGrid) -> None:
    """Refuse values whose squares, over all clients, could overflow the sums."""
    if not np.isfinite(tops).all():
        if rows.feature_map is not None:
            rows.refuse_bad_values()
        rows.refuse_nonfinite()
    # Rounding, of the root and of the values, must not lift what passes above it.
    most = np.nextafter(np.sqrt(float(grid.limit) / max(rows.n_rows, 1)), 0.0) - 1.0
    bad = np.flatnonzero(tops > most)
    if bad.size:
        unit = "" if grid.exponents is None else " times 2^exponent"
        _refuse(
            bad,
            rows,
            f"is too large for {grid.total_bits}-bit sums of "
            f"{counted(rows.n_rows, 'row')} in {{columns}}: values, times the root of "
            f"their weight, must stay below {grid.largest(rows.n_rows):.2g}{unit}. "
            "Change the unit of the column, or give it a larger public power of two in "
            "exponents.",
        )


def _check_vanished(tops: Array, rows: Rows, grid: FixedGrid) -> None:
    """Refuse columns of which nothing is left on the grid."""
    bad = np.flatnonzero((tops > 0) & (tops <= 0.5))
    if bad.size:
        _refuse(
            bad,
            rows,
            f"is too small for a grid of {grid.fraction_bits} bits below one in "
            "{columns}: all values would be rounded to zero. Change the unit of the "
            "column, or give it a smaller public power of two in exponents.",
        )


def _refuse(bad: NDArray[Any], rows: Rows, text: str) -> None:
    """Raise a `DataError` about columns of [1 X Y]: those of X first."""
    columns, d = bad - 1, rows.n_features
    if columns[0] < 0:
        raise DataError("sample_weight " + text.replace(" in {columns}", ""))
    features = columns[columns < d]
    if features.size:
        names = rows.feature_names if rows.feature_map is None else None
        raise DataError("X " + text, features.tolist(), names)
    raise DataError("y " + text, (columns - d).tolist(), rows.target_names)


def _check_exponents(exponents: Any) -> None:
    for each in exponents:
        check_whole("an exponent", each, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
