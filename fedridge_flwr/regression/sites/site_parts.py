"""Statistics by site: their names, their total, and names for columns."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ..._text import counted
from ...data.schema import Schema
from ...errors import StatisticsError
from ...statistics.sufficient import SufficientStatistics
from ..alpha.leave_client_out import total_of
from ..normal_equations import Exact, as_moments

Parts: TypeAlias = Mapping[str, Exact] | Iterable[Exact]
"""Statistics by site, with names from a mapping and numbers otherwise."""


def named_parts(parts: Parts, fewest: int = 1) -> dict[str, SufficientStatistics]:
    """Return the statistics of the sites that have rows, by name.

    Raises
    ------
    StatisticsError
        If there are too few of them, or something is not full statistics.
    """
    pairs = parts.items() if isinstance(parts, Mapping) else enumerate(parts)
    found = {str(site): as_moments(part) for site, part in pairs}
    for site, part in found.items():
        if getattr(part, "form", None) != "full":
            raise StatisticsError(
                f"site {site}: SufficientStatistics of every site are needed, got "
                f"{type(part).__name__}."
            )
    found = {site: part for site, part in found.items() if part.total_weight > 0}
    if len(found) < fewest:
        raise StatisticsError(
            f"at least {counted(fewest, 'site')} with rows needed, got {len(found)}."
        )
    return found


def check_parts(
    parts: dict[str, SufficientStatistics], total: SufficientStatistics
) -> None:
    """Raise a `StatisticsError` if these parts do not add up to this total."""
    found = total_of(parts)
    weights = found.total_weight, total.total_weight
    same = abs(weights[0] - weights[1]) <= 1e-9 * weights[1]
    if found.schema.mismatch(total.schema) is not None or not same:
        raise StatisticsError(
            f"parts are of {counted(found.count, 'row')} and stats of {total.count}: "
            "give the statistics of every site in stats, and of no other."
        )


def feature_labels(schema: Schema) -> tuple[str, ...]:
    """Return the names of the features, or x0, x1, ...; behind a map f0, f1, ...

    Examples
    --------
    >>> feature_labels(Schema.of(2)), feature_labels(Schema.of(1, feature_names=["a"]))
    (('x0', 'x1'), ('a',))
    """
    if schema.feature_map is None and schema.feature_names is not None:
        return tuple(map(str, schema.feature_names))
    letter = "x" if schema.feature_map is None else "f"
    return tuple(f"{letter}{j}" for j in range(schema.n_features))


def target_labels(schema: Schema) -> tuple[str, ...]:
    """Return the names of the targets, or y, or y0, y1, ...

    Examples
    --------
    >>> target_labels(Schema.of(2)), target_labels(Schema.of(2, 2))
    (('y',), ('y0', 'y1'))
    """
    if schema.target_names is not None:
        return tuple(map(str, schema.target_names))
    if schema.n_targets == 1:
        return ("y",)
    return tuple(f"y{k}" for k in range(schema.n_targets))


def one_target(total: SufficientStatistics) -> SufficientStatistics:
    """Return the statistics if they have one target, and raise an error otherwise."""
    if total.n_targets > 1:
        raise StatisticsError(
            "sites are compared for one target: choose it in every part by "
            "select_columns."
        )
    return total
