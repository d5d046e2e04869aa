"""A client's answers where y is classes or counts."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..._types import Array
from ...data.labels import outcome_codes
from ...data.local_table import RawRows, RowOrigin
from ...data.names import Names
from ...data.rows import Rows, check_rows
from ...data.tables import as_table
from ...errors import DataError, ProtocolError
from ...features import map_rows
from ...regression.likelihood.binned import bin_outcomes
from ...regression.likelihood.families import FAMILIES, check_counts
from ...regression.likelihood.working import (
    Points,
    working_arrays,
    working_rows,
    working_statistics,
)
from ...statistics.outcome import OutcomeStatistics, outcome_column
from ..requests import Answer, AskCounts, AskOutcome
from .respond import Guards, check_width

_OFFSET = "offset"


def family_answer(request: Any, raw: RawRows, guards: Guards) -> Answer:
    """Return the outcome of a client's rows, or their working statistics.

    Examples
    --------
    >>> raw = RawRows([[0.0], [1.0], [2.0]], ["no", "yes", "yes"])
    >>> answer = family_answer(AskOutcome("binomial"), raw, Guards())
    >>> answer.kind, bytes(answer.arrays["labels"])
    ('outcome', b'["no", "yes"]')
    """
    family, first = FAMILIES[request.family], request.task == AskOutcome.task
    found = family_rows(request, raw)
    offset = found.offset
    guards.check_rows(found.visible, request.feature_map, found.origin)
    mapped = map_rows(found.rows, request.feature_map)
    check_width(mapped)
    if first:
        answer = _outcome(family, mapped, found.labels, offset)
    elif request.task == AskCounts.task:
        answer = _counts(request, mapped, offset, guards)
    else:
        answer = _working(request, mapped, offset, guards)
    guards.remember(found.loaded, found.origin)
    return answer


class FamilyRows(NamedTuple):
    """Rows as they were loaded, as they are wanted, and as a site's policy sees them.

    The policy sees an offset as one more target, and classes as levels.
    """

    labels: tuple[str, ...]
    loaded: Rows
    rows: Rows
    visible: Rows
    origin: RowOrigin | None
    offset: Array | None


def family_rows(request: Any, raw: RawRows) -> FamilyRows:
    """Return rows whose y is places among labels, or counts."""
    X, y, weight, origin = raw
    labels: tuple[str, ...] = ()
    if request.family == "binomial":
        first = request.task == AskOutcome.task
        try:
            labels, codes = outcome_codes(y, None if first else request.labels)
        except DataError as error:
            raise DataError(_not_classes(request, y) or str(error)) from None
        loaded = _with_classes(X, codes, weight, y)
        origin = _with_levels(origin, codes, loaded)
    else:
        loaded = check_rows(X, y, weight)
        if loaded.n_targets != 1:
            raise DataError(f"y must be one column of counts, got {loaded.n_targets}.")
        check_counts(outcome_column(loaded))
    offset = _check_offset(origin, loaded.n_rows)
    rows = loaded.arranged(request.columns)
    visible = rows if offset is None else _with_offset(rows, offset)
    return FamilyRows(labels, loaded, rows, visible, origin, offset)


def _not_classes(request: Any, y: Any) -> str:
    """Say that y is a measurement, if its numbers are too many to be classes."""
    values = np.asarray(y)
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        return ""
    coding = request.coding
    name = "y" if coding is None else coding.target_names[0]
    return (
        f"{name} has {len(np.unique(values))} different numbers; binomial needs 0 and "
        '1, or labels of classes. For numbers use family="gaussian".'
    )


def _outcome(family: Any, rows: Rows, labels: Any, offset: Array | None) -> Answer:
    if family.name == "binomial":
        found = OutcomeStatistics.of_classes(rows, labels, offset)
    else:
        y = outcome_column(rows)
        sums = family.sums(y, np.ones(len(y)) if rows.weight is None else rows.weight)
        found = OutcomeStatistics.of_counts(rows, sums, offset)
    return Answer(AskOutcome.task, found.to_arrays(), rows.n_rows, rows.schema)


def _counts(request: Any, rows: Rows, offset: Array | None, guards: Guards) -> Answer:
    """Return counts in bins, of which a site's policy says how small they may be."""
    _check_points(request.points, rows)
    least = max((policy.min_rows_per_level for policy in guards.policies), default=1)
    family = FAMILIES[request.family]
    found = bin_outcomes(rows, family, request.points, offset, least=least)
    return Answer(request.task, found.to_arrays(), rows.n_rows, rows.schema)


def _check_points(points: Points, rows: Rows) -> None:
    if points.coef.shape[1] != rows.n_features:
        raise ProtocolError(
            f"the server sends {points.coef.shape[1]} coefficients for "
            f"{rows.n_features} features: these are not the rows it asked about first."
        )


def _working(request: Any, rows: Rows, offset: Array | None, guards: Guards) -> Answer:
    points, family = request.points, FAMILIES[request.family]
    _check_points(points, rows)
    if guards.policies:
        for j in range(len(points.coef)):
            weighted, _ = working_rows(rows, family, points, j, offset)
            guards.check_weights(weighted)
    found = working_statistics(rows, family, points, offset)
    return Answer(request.task, working_arrays(found), rows.n_rows, rows.schema)


def _with_classes(X: Any, codes: Array, weight: Any, y: Any) -> Rows:
    """Return rows with places among labels as y, under the name that y has."""
    rows, table = check_rows(X, codes, weight), as_table(y)
    if table is None or table.names is None:
        return rows
    return replace(rows, schema=replace(rows.schema, targets=Names.of(table.names)))


def _with_levels(origin: RowOrigin | None, codes: Array, rows: Rows) -> RowOrigin:
    """Let a site's policy see how many rows every class has."""
    filled = codes if rows.weight is None else codes[rows.weight > 0]
    values, counts = np.unique(filled, return_counts=True)
    found = origin or RowOrigin()
    levels = {**(found.levels or {}), "y": dict(zip(values, counts, strict=True))}
    return replace(found, levels=levels)


def _with_offset(rows: Rows, offset: Array) -> Rows:
    """Return rows with the offset as one more target, for a site's policy to see."""
    names = rows.schema.target_names
    targets = None if names is None else Names.of([*names, _OFFSET])
    schema = replace(rows.schema, n_targets=2, targets=targets)
    Y = np.column_stack([outcome_column(rows), offset])
    return replace(rows, Y=Y, target_places=None, schema=schema)


def _check_offset(origin: RowOrigin | None, n_rows: int) -> Array | None:
    given = None if origin is None else origin.offset
    if given is None:
        return None
    if given.dtype.kind not in "biuf" or given.shape != (n_rows,):
        raise DataError(
            f"the offset must be numbers of shape ({n_rows},), one for each row of X, "
            f"got {given.dtype} of shape {given.shape}."
        )
    offset = given.astype(np.float64)
    if not np.isfinite(offset).all():
        bad = int(np.count_nonzero(~np.isfinite(offset)))
        raise DataError(
            f"the offset has {bad} NaN or infinite values: for example, the logarithm "
            "of a zero exposure is infinite. Remove those rows."
        )
    return offset
