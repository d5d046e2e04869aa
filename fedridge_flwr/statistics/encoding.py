"""What one client sends of its rows: four kinds of arrays, the smallest chosen.

=================  ==================================  ========================
kind               arrays                              sent where
=================  ==================================  ========================
"centred"          `SufficientStatistics.to_array`     there are many rows
"centred-float32"  `to_compact`                        ... and float32 is asked
"factor"           `to_trapezoid`                      it is fewer bytes
"factor-float32"   `to_trapezoid`, factor in float32   ... and float32 is asked
=================  ==================================  ========================
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import ProtocolError
from .float32 import from_compact, to_compact
from .sufficient import SufficientStatistics
from .triangular import fewer_numbers, from_trapezoid, to_trapezoid


@dataclass(frozen=True)
class _Kind:
    """Names of the arrays, in order, and what puts them together again."""

    arrays: tuple[str, ...]
    words: str
    decode: Callable[..., SufficientStatistics]


_FACTOR = ("head", "order", "factor"), "three arrays of a factor"
_CENTRED = {"float64": "centred", "float32": "centred-float32"}
_TRAPEZOID = {"float64": "factor", "float32": "factor-float32"}

KINDS: Mapping[str, _Kind] = {
    "centred": _Kind(
        ("statistics",), "one array of statistics", SufficientStatistics.unpack
    ),
    "centred-float32": _Kind(
        ("head", "correlations"), "two arrays of float32 statistics", from_compact
    ),
    "factor": _Kind(*_FACTOR, from_trapezoid),
    "factor-float32": _Kind(*_FACTOR, partial(from_trapezoid, dtype="float32")),
}


@dataclass(frozen=True)
class Encoded:
    """Arrays of one client, in order, and the number of rows behind them."""

    kind: str
    arrays: dict[str, NDArray[Any]]
    count: int


def encode(stats: SufficientStatistics, dtype: str = "float64") -> Encoded:
    """Return statistics as they are sent.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> encode(stats, "float32").kind
    'centred-float32'
    """
    found = (stats.to_array(),) if dtype == "float64" else to_compact(stats)
    return _encoded(_CENTRED[dtype], found, stats.count)


def encode_rows(rows: Rows, dtype: str = "float64") -> Encoded:
    """Return the statistics of rows as they are sent, in the fewest bytes.

    Where a factor is smaller, the co-moments are not even computed.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> import numpy as np
    >>> few = encode_rows(check_rows(np.eye(3, 50), np.arange(3.0)))
    >>> few.kind, {name: array.size for name, array in few.arrays.items()}
    ('factor', {'head': 52, 'order': 51, 'factor': 101})
    """
    d, t = rows.n_features, rows.n_targets
    # With more rows than columns no factor is smaller than the co-moments.
    if rows.n_filled <= d + t and fewer_numbers(rows.n_filled, d, t, dtype):
        return _encoded(_TRAPEZOID[dtype], to_trapezoid(rows, dtype), rows.n_rows)
    return encode(SufficientStatistics.from_rows(rows), dtype)


def decode(
    kind: str, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> SufficientStatistics:
    """Return the statistics in arrays of a known kind; nothing in them is trusted.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> decode("centred", [stats.to_array()], stats.schema, 2).count
    2
    """
    known = KINDS[kind]
    if len(arrays) != len(known.arrays):
        raise ProtocolError(f"expected {known.words}, got {len(arrays)}.")
    return known.decode(*arrays, schema, count)


def _encoded(kind: str, arrays: Sequence[NDArray[Any]], count: int) -> Encoded:
    return Encoded(kind, dict(zip(KINDS[kind].arrays, arrays, strict=True)), count)
