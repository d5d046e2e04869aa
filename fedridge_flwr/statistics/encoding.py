"""What one client sends of its rows: kinds of arrays, of moments the smallest chosen.

=================  ==================================  ========================
kind               arrays                              sent where
=================  ==================================  ========================
"centred"          `SufficientStatistics.to_array`     there are many rows
"centred-float32"  `to_compact`                        ... and float32 is asked
"factor"           `to_trapezoid`                      it is fewer bytes
"factor-float32"   `to_trapezoid`, factor in float32   ... and float32 is asked
"triangular"       `TriangularStatistics.to_array`     that form is asked
=================  ==================================  ========================

Beside arrays in float64 travels what rounding cut off the means. A mean of 1e6 + 0.1 in
one float64 is off by up to 6e-11: where clients are merged, a shift of all rows of one
of them, which the condition of the system multiplies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import ProtocolError, StatisticsError
from .fixed_point import FixedPointStatistics
from .float32 import from_compact, to_compact
from .sufficient import SufficientStatistics
from .trapezoid import fewer_numbers, from_trapezoid, trapezoid_of
from .triangular import TriangularStatistics

_STEPS = 2.0**15
_CODES = np.dtype("<i2")


@dataclass(frozen=True)
class _Kind:
    """Names of the arrays, in order, and what puts them together again."""

    arrays: tuple[str, ...]
    words: str
    decode: Callable[..., Any]


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
    "triangular": _Kind(
        ("statistics",), "one array of a triangle", TriangularStatistics.unpack
    ),
}

STATISTICS = ("moments", "fixed", "triangular")
"""Forms of statistics that a server can ask for; the first is the default."""

EXACT_FORMS = ("full", "triangular")
"""What a total can be that is solved: whole numbers become "full" when added up."""


@dataclass(frozen=True)
class Encoded:
    """Arrays of one client, in order, and the number of rows behind them."""

    kind: str
    arrays: dict[str, NDArray[Any]]
    count: int
    means_low: bytes = b""


def encode(stats: SufficientStatistics, dtype: str = "float64") -> Encoded:
    """Return statistics as they are sent.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> encode(stats, "float32").kind
    'centred-float32'
    """
    if dtype != "float64":
        return _encoded(_CENTRED[dtype], to_compact(stats), stats.count)
    return encode_stats(_CENTRED[dtype], stats)


def encode_stats(
    kind: str, stats: SufficientStatistics | TriangularStatistics
) -> Encoded:
    """Return statistics as the one array of a kind in float64."""
    low = pack_low(stats.means, stats.means_low)
    return _encoded(kind, (stats.to_array(),), stats.count, low)


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
        found, rest = trapezoid_of(rows, dtype)
        exact = dtype == "float64"
        low = pack_low(found.head[1:], rest) if exact else b""
        return _encoded(_TRAPEZOID[dtype], found, rows.n_rows, low)
    return encode(SufficientStatistics.from_rows(rows), dtype)


def encode_triangular(rows: Rows, dtype: str = "float64") -> Encoded:
    """Return the statistics of rows as a triangular factor, always in float64.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> found = encode_triangular(check_rows([[1.0], [3.0], [4.0]], [2.0, 4.0, 3.0]))
    >>> found.kind, found.arrays["statistics"].size
    ('triangular', 6)
    """
    return encode_stats("triangular", TriangularStatistics.from_rows(rows))


def encode_fixed(rows: Rows, dtype: str = "float64") -> Encoded:
    """Return the sums of rows as whole numbers.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> found = encode_fixed(check_rows([[1.0], [3.0]], [2.0, 4.0]))
    >>> found.kind, found.arrays["words"].shape
    ('fixed', (6, 3))
    """
    words = FixedPointStatistics.from_rows(rows).to_words()
    kind = "fixed" if rows.weight is None else "fixed-weighted"
    return Encoded(kind, {"words": words}, rows.n_rows)


ENCODERS: Mapping[str, Callable[[Rows, str], Encoded]] = {
    "moments": encode_rows,
    "fixed": encode_fixed,
    "triangular": encode_triangular,
}


def decode(
    kind: str,
    arrays: Sequence[NDArray[Any]],
    schema: Schema,
    count: int,
    means_low: Any = b"",
) -> Any:
    """Return the statistics in arrays of a known kind; nothing in them is trusted.

    Clients of 0.1.0 send no `means_low`.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> decode("centred", [stats.to_array()], stats.schema, 2).count
    2
    """
    known = KINDS[kind]
    if len(arrays) != len(known.arrays):
        raise ProtocolError(f"expected {known.words}, got {len(arrays)}.")
    found = known.decode(*arrays, schema, count)
    if isinstance(means_low, bytes) and not means_low:
        return found
    return replace(found, means_low=unpack_low(means_low, found.means))


def pack_low(means: Array, low: Array | None) -> bytes:
    """Return what rounding cut off the means, two bytes for each.

    They are whole numbers of 2^-15 units in the last place of a mean: none can move it
    by more than one such unit, whoever sends it.

    Examples
    --------
    >>> means, low = np.array([1e6, 2.0]), np.array([2.9e-11, 0.0])
    >>> unpack_low(pack_low(means, low), means).round(14).tolist()
    [2.9e-11, 0.0]
    """
    if low is None:
        return bytes(_CODES.itemsize * means.size)
    codes = np.rint(low / np.spacing(np.abs(means)) * _STEPS)
    return np.clip(codes, -_STEPS, _STEPS - 1).astype(_CODES).tobytes()


def unpack_low(packed: Any, means: Array) -> Array:
    """Return the low parts of these means from bytes of which nothing is trusted.

    Raises
    ------
    StatisticsError
        If they are not two bytes for each mean.
    """
    expected = _CODES.itemsize * means.size
    if not isinstance(packed, bytes) or len(packed) != expected:
        size = f"{len(packed)} bytes" if isinstance(packed, bytes) else "no bytes"
        raise StatisticsError(
            f"the low parts of {means.size} means are {expected} bytes, got {size}."
        )
    codes = np.frombuffer(packed, dtype=_CODES).astype(np.float64)
    return np.asarray(codes / _STEPS * np.spacing(np.abs(means)))


def _encoded(
    kind: str, arrays: Sequence[NDArray[Any]], count: int, means_low: bytes = b""
) -> Encoded:
    named = dict(zip(KINDS[kind].arrays, arrays, strict=True))
    return Encoded(kind, named, count, means_low)
