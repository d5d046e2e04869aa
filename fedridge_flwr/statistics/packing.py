"""Statistics as text and bytes, for files: every bit is kept, and nothing is trusted.

The text is JSON: the form, the number of rows, the columns. The bytes are numbers of
eight bytes, lowest first: weight, means, their low parts and co-moments of "full"
statistics; the words of "fixed" ones.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from .._checks import check_whole
from .._files import strict_json
from ..data.names import Names
from ..data.schema import Schema
from ..errors import StatisticsError
from .fixed_point import FixedPointStatistics
from .integer_sums import FixedGrid
from .sufficient import SufficientStatistics

Removable: TypeAlias = SufficientStatistics | FixedPointStatistics
"""Statistics that can be added and taken away again."""

_MOST_COLUMNS = 10**6
_LARGEST_COUNT = 2**53
_LARGEST_ROUNDING = 1e-6


def pack(stats: Any) -> tuple[str, bytes]:
    """Return statistics as one line of JSON and the numbers.

    Raises
    ------
    StatisticsError
        If they are of a form that cannot be taken away again.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> text, numbers = pack(stats)
    >>> len(numbers), unpack(text, numbers)
    (64, SufficientStatistics(2 rows, 1 feature, 1 target))
    """
    schema = stats.schema
    told: dict[str, Any] = {
        "form": stats.form,
        "count": stats.count,
        "n_clients": stats.n_clients,
        "n_features": schema.n_features,
        "n_targets": schema.n_targets,
        "features": _names_fields(schema.features),
        "targets": _names_fields(schema.targets),
        "feature_map": schema.feature_map,
        "n_features_in": schema.n_features_in,
    }
    if stats.form == "fixed":
        grid, weight = stats.grid, stats.sums[0]
        told["grid"] = [grid.fraction_bits, grid.total_bits, grid.max_clients]
        told["exponents"] = grid.exponents
        told["weighted"] = weight != stats.count << 2 * grid.fraction_bits
        numbers = stats.words.astype("<u8", copy=False)
    elif stats.form == "full":
        told["rounding"] = stats.rounding
        moments = stats.moments
        parts = [[moments.weight], moments.mean, moments.mean_low, moments.triangle]
        numbers = np.concatenate(parts).astype("<f8", copy=False)
    else:
        raise StatisticsError(
            f"{stats.form} statistics cannot be kept one by one: only moments and "
            "fixed-point statistics can be taken away from a total again."
        )
    told["n_filled"] = stats.n_filled
    return json.dumps(told, sort_keys=True), numbers.tobytes()


def unpack(text: str, numbers: bytes) -> Removable:
    """Return the statistics in what `pack` returned, or raise what is wrong.

    Raises
    ------
    StatisticsError
        If no rows can have them, or they were not written by `pack`.
    """
    try:
        told = strict_json(text)
        schema = Schema(
            check_whole("n_features", told["n_features"], 1, _MOST_COLUMNS),
            check_whole("n_targets", told["n_targets"], 1, _MOST_COLUMNS),
            _read_names(told["features"]),
            _read_names(told["targets"]),
            None if told["feature_map"] is None else str(told["feature_map"]),
            told["n_features_in"]
            and check_whole("n_features_in", told["n_features_in"], 1, _MOST_COLUMNS),
        )
        count = check_whole("count", told["count"], 0, _LARGEST_COUNT)
        n_clients = check_whole("n_clients", told["n_clients"], 0, _LARGEST_COUNT)
        filled = told.get("n_filled")  # not in the first files
        if filled is not None:
            filled = check_whole("n_filled", filled, 0, count)
        found: Any = _READERS[told["form"]](told, numbers, schema, count)
    except StatisticsError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise StatisticsError("statistics that were not written here.") from error
    whole: Removable = replace(found, n_clients=n_clients, n_filled=filled)
    return whole


def _read_full(
    told: dict[str, Any], numbers: bytes, schema: Schema, count: int
) -> SufficientStatistics:
    width = schema.n_features + schema.n_targets
    found = np.frombuffer(numbers, "<f8").astype(np.float64)
    packed = np.concatenate([found[: 1 + width], found[1 + 2 * width :]])
    low = found[1 + width : 1 + 2 * width]
    rounding = float(told["rounding"])
    if not 0.0 <= rounding <= _LARGEST_ROUNDING:
        raise StatisticsError(f"rounding is that of float32 at most, got {rounding}.")
    stats = SufficientStatistics.unpack(packed, schema, count, rounding)
    # What rounding cut off a mean is less than a unit in its last place.
    if not (np.abs(low) <= np.spacing(np.abs(stats.means))).all():
        raise StatisticsError("the low parts of the means are too large.")
    return replace(stats, means_low=low)


def _read_fixed(
    told: dict[str, Any], numbers: bytes, schema: Schema, count: int
) -> FixedPointStatistics:
    powers = told["exponents"]
    fraction_bits, total_bits, max_clients = told["grid"]
    exponents = None if powers is None else tuple(powers)
    grid = FixedGrid(fraction_bits, total_bits, exponents, max_clients)
    grid.steps(schema.n_features + schema.n_targets)  # one exponent for each column
    words = np.frombuffer(numbers, "<u8").astype(np.uint64).reshape(-1, grid.n_words)
    # A total of many clients may be as large as the words allow.
    found = FixedPointStatistics.from_words(
        words, count, schema, replace(grid, max_clients=1), weighted=told["weighted"]
    )
    return replace(found, grid=grid)


_READERS: dict[str, Any] = {"full": _read_full, "fixed": _read_fixed}


def _names_fields(names: Names | None) -> dict[str, Any] | None:
    if names is None:
        return None
    hashes = {"hash": names.hash, "sorted_hash": names.sorted_hash}
    return {**hashes, "order": names.order, "known": names.known}


def _read_names(told: Any) -> Names | None:
    if told is None:
        return None
    digest, in_order, order, known = (
        told[key] for key in ("hash", "sorted_hash", "order", "known")
    )
    if not isinstance(digest, str) or not isinstance(in_order, str):
        raise StatisticsError("the hashes of the names are not text.")
    places = tuple(check_whole("order", place, 0) for place in order)
    if sorted(places) != list(range(len(places))):
        raise StatisticsError("the order does not name each column once.")
    if known is not None and not all(isinstance(name, str) for name in known):
        raise StatisticsError("the names of the columns are not text.")
    found = Names(digest, in_order, places)
    return found.with_known(None if known is None else tuple(known))
