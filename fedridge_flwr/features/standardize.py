"""`Standardize`: columns brought to mean 0 and variance 1, alike for all clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._checks import LARGEST_SIZE, as_number, check_positive
from .._text import counted
from .._types import Array
from ..errors import DataError, FedRidgeError
from ..linalg.packed import mean_rounding
from .base import FeatureMap, dense
from .column_moments import ColumnMoments


@dataclass(frozen=True)
class Standardize(FeatureMap):
    """``phi(x) = (x - means) / scales``, column by column.

    Without numbers it is a rule that needs data: means and deviations of all rows,
    scale 1 for constant columns, as scikit-learn's ``StandardScaler`` has it.
    `FedRidge` agrees on them with the clients in a small first round. Nothing in it is
    random.

    Parameters
    ----------
    means, scales : sequence of d floats, optional
        Both or none; scales are positive.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import Standardize
    >>> from fedridge_flwr.features import ColumnMoments
    >>> columns = ColumnMoments(4.0, np.array([10.0, 7.0]), np.array([4.0, 0.0]))
    >>> Standardize().resolve(columns)
    Standardize(means=(10.0, 7.0), scales=(2.0, 1.0))
    >>> Standardize().resolve(columns).transform([[12.0, 7.0]])
    array([[1., 0.]])
    """

    means: tuple[float, ...] | None = None
    scales: tuple[float, ...] | None = None

    kind: ClassVar[str] = "standardize"
    number: ClassVar[int] = 5
    unresolved: ClassVar[str] = "standardize has no numbers yet: give means and scales"

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.means is None and self.scales is None:
            return
        if self.means is None or self.scales is None:
            raise FedRidgeError("standardize needs both means and scales, or none.")
        means = _numbers(self.means, "means")
        scales = _numbers(self.scales, "scales")
        if len(means) != len(scales):
            raise FedRidgeError(
                f"standardize has {len(means)} means but {len(scales)} scales."
            )
        for scale in scales:
            check_positive("each scale", scale)
        self._set(means=means, scales=scales)

    @property
    def needs_data(self) -> bool:
        """Whether means and scales are not known yet."""
        return self.means is None

    def resolve(self, columns: ColumnMoments) -> Standardize:
        """Return the same map with the means and deviations of all rows."""
        if not self.needs_data:
            return self
        if columns.weight == 0.0:
            raise FedRidgeError("standardize needs rows, there are none.")
        scales = np.where(_constant(columns), 1.0, np.sqrt(columns.variances))
        return Standardize(tuple(columns.means.tolist()), tuple(scales.tolist()))

    def moments_after(self, columns: ColumnMoments) -> ColumnMoments | None:
        """Return means and variances of the standardised columns."""
        means, scales = self._arrays
        if means.size != columns.n_features:
            return None
        return ColumnMoments(
            columns.weight,
            (columns.means - means) / scales,
            np.where(_constant(columns), 0.0, columns.variances / scales**2),
        )

    def describe(self, n_features_in: int) -> str:
        """Return a one-line description of the map."""
        return counted(n_features_in, "standardised column")

    def to_sklearn(self, n_features_in: int) -> Any:
        """Return a fitted ``sklearn.preprocessing.StandardScaler``."""
        from sklearn.preprocessing import StandardScaler

        means, scales = self._arrays
        self.n_features_out(n_features_in)
        fitted = StandardScaler()
        fitted.mean_, fitted.scale_ = means.copy(), scales.copy()
        fitted.var_ = scales**2
        fitted.n_features_in_ = n_features_in
        fitted.n_samples_seen_ = 1
        return fitted

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        self.refuse_unresolved()
        return np.array(self.means), np.array(self.scales)

    def _width(self, n_features_in: int) -> int:
        if self.means is not None and n_features_in != len(self.means):
            raise DataError(
                f"standardize has means and scales of {len(self.means)} columns, but "
                f"X has {n_features_in}."
            )
        return n_features_in

    def _apply(self, X: Any) -> Array:
        means, scales = self._arrays
        centred = dense(X) - means
        centred /= scales
        return np.asarray(centred)


def _constant(columns: ColumnMoments) -> Any:
    return columns.variances <= mean_rounding(columns.means)


def _numbers(values: Any, what: str) -> tuple[float, ...]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Sequence) or not 0 < len(values) <= LARGEST_SIZE:
        raise FedRidgeError(f"{what} must be a list of numbers, one for each column.")
    # Maps that are equal have the same fingerprint: without the sign of -0.0.
    found = tuple(as_number(value) + 0.0 for value in values)
    if not np.isfinite(found).all():
        raise FedRidgeError(f"{what} must be finite numbers, one for each column.")
    return found
