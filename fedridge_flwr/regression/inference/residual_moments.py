"""`ResidualMoments`: sums of e² x x', for heteroskedasticity-robust standard errors.

They are fourth moments of the rows, so the statistics do not have them: sites look at
their rows once more, with the model at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..._checks import check_choice
from ..._types import Array
from ...data.rows import Block, Rows, check_rows
from ...errors import DataError, ProtocolError, StatisticsError
from ...linalg.packed import diagonal_positions, from_upper, upper_triangle
from ...statistics.validity import check_moments
from ..least_squares import LeastSquares, least_squares
from ..normal_equations import FitOptions, Statistics

POWERS = {"HC0": 0, "HC1": 0, "HC2": 1, "HC3": 2}
"""Kinds of standard errors, and the power of 1 - h that divides e²."""

_ROUNDING = 1e-3
_ALONE = 1e-8
_LARGEST = 1e150


@dataclass(frozen=True, eq=False)
class ResidualProbe:
    """What a site must know to compute e, and for HC2 and HC3 the leverages h.

    Parameters
    ----------
    coef : ndarray of shape (t, d)
        Coefficients of the model.
    intercept : ndarray of shape (t,)
        Its intercepts.
    power : int
        0, 1 or 2: e² is divided by ``(1 - h)**power``.
    means : ndarray of shape (d,), optional
        Means of the features over all rows; zero without an intercept.
    bread : ndarray of shape (1 + d, 1 + d), optional
        Inverse of the penalised system, ``h = w x' bread x`` with ``x`` a one and the
        row less `means`.
    """

    coef: Array
    intercept: Array
    power: int = 0
    means: Array | None = None
    bread: Array | None = None

    @classmethod
    def of(cls, fit: LeastSquares, kind: str) -> ResidualProbe:
        """Return what sites must know of a fit."""
        power, (d, t) = POWERS[kind], fit.coef.shape
        intercepts = fit.equations.intercepts(fit.coef)
        level = np.zeros(t) if intercepts is None else np.asarray(intercepts)
        if not power:
            return cls(fit.coef.T, level)
        means, bread = np.zeros(d), np.zeros((1 + d, 1 + d))
        first = 1 - int(fit.has_intercept)
        bread[first:, first:] = fit.bread
        if fit.has_intercept:
            means = fit.stats.feature_means
        return cls(fit.coef.T, level, power, means, bread)

    @property
    def leverages(self) -> bool:
        """Whether leverages are needed, and so the inverse over all rows."""
        return self.bread is not None

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays that a request consists of."""
        found = {
            "coef": np.ascontiguousarray(self.coef),
            "intercept": np.ascontiguousarray(self.intercept),
        }
        if self.means is not None and self.bread is not None:
            found |= {"means": self.means, "bread": upper_triangle(self.bread)}
        return found

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]], power: int) -> ResidualProbe:
        """Return what a request asks for.

        Raises
        ------
        ProtocolError
            If the arrays are not a model, or not one with an inverse.
        """
        wanted = 4 if power else 2
        good = len(arrays) == wanted and all(a.dtype == np.float64 for a in arrays)
        if good and arrays[0].ndim == 2:
            t, d = arrays[0].shape
            sizes = [(t, d), (t,), (d,), ((1 + d) * (2 + d) // 2,)][:wanted]
            good = [each.shape for each in arrays] == sizes
            good = good and all((np.abs(each) < _LARGEST).all() for each in arrays)
        if not good or arrays[0].ndim != 2:
            raise ProtocolError("the request has no model to compute residuals of.")
        if not power:
            return cls(arrays[0], arrays[1])
        bread = from_upper(arrays[3], arrays[2].size + 1)
        return cls(arrays[0], arrays[1], power, arrays[2], bread)


@dataclass(frozen=True, eq=False)
class ResidualMoments:
    """Sums of ``w² e² / (1 - h)**power x x'`` over rows x = (1, features - centre).

    The law: moments of two sets of rows add up to those of both, ``a + b``. With
    statistics of the same rows they give heteroskedasticity-robust standard errors:
    ``infer(stats, covariance="HC3", residuals=moments)``. e are residuals of the model
    of *all* rows, w are weights, and h are leverages among all rows; HC0 and HC1 need
    no leverages (power 0), HC2 has power 1 and HC3 power 2.

    Parameters
    ----------
    matrices : ndarray of shape (t, 1 + d, 1 + d)
        The sums, one matrix for each target.
    centre : ndarray of shape (d,)
        What was subtracted from the features.
    count : int
        Number of rows.
    probe : ResidualProbe
        The model that the residuals are of.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, infer
    >>> from fedridge_flwr.regression import ResidualMoments
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 2))
    >>> y = X[:, 0] + rng.normal(size=90) * (1.0 + np.abs(X[:, 1]))
    >>> sites = [(X[k::3], y[k::3]) for k in range(3)]
    >>> stats = sum(SufficientStatistics.from_data(*site) for site in sites)
    >>> first, *others = (
    ...     ResidualMoments.from_data(*site, stats=stats, kind="HC3") for site in sites
    ... )
    >>> moments = sum(others, start=first)
    >>> infer(stats).se.round(3)
    array([0.239, 0.244, 0.252])
    >>> infer(stats, covariance="HC3", residuals=moments).se.round(3)
    array([0.245, 0.223, 0.419])
    """

    matrices: Array
    centre: Array
    count: int
    probe: ResidualProbe

    @classmethod
    def from_data(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        stats: Statistics,
        alpha: float = 0.0,
        kind: str = "HC0",
        **options: Unpack[FitOptions],
    ) -> ResidualMoments:
        """Return the moments of some rows about the model of all rows.

        Parameters
        ----------
        X, y, sample_weight : array-like
            Rows of one site.
        stats : SufficientStatistics
            Statistics of the rows of all sites.
        alpha : float
            Penalty.
        kind : {"HC0", "HC1", "HC2", "HC3"}
            What the moments are for.
        **options
            fit_intercept and standardize, as in `solve`.

        Raises
        ------
        DataError
            If the rows are not valid, or one of them has leverage 1.
        """
        check_choice("kind", kind, tuple(POWERS))
        probe = ResidualProbe.of(least_squares(stats, alpha, **options), kind)
        return cls.from_rows(check_rows(X, y, sample_weight), probe)

    @classmethod
    def from_rows(cls, rows: Rows, probe: ResidualProbe) -> ResidualMoments:
        """Return the moments of checked rows."""
        if probe.coef.shape != (rows.n_targets, rows.n_features):
            t, d = probe.coef.shape
            raise ProtocolError(
                f"the model has {d} features and {t} targets, the rows have "
                f"{rows.n_features} and {rows.n_targets}."
            )
        if probe.leverages:
            _check_bread(rows, probe)
        with np.errstate(invalid="ignore", over="ignore"):
            centre = _mean(rows)
            found = np.zeros((rows.n_targets, *[1 + centre.size] * 2))
            level = probe.intercept + probe.coef @ centre
            for block in rows.blocks():
                Z, own, Y = _centred(block, centre)
                factor = _factors(block, probe)
                e = Y - level - Z[:, 1:] @ probe.coef.T
                for k, squares in enumerate((own[:, None] * e).T ** 2 * factor):
                    found[k] += (Z.T * squares) @ Z
        if not np.isfinite(found).all():
            rows.refuse_bad_values()
            raise DataError("squared residuals are too large for float64.")
        found = (found + found.transpose(0, 2, 1)) / 2.0
        return cls(found, centre, rows.n_rows, probe)

    def about(self, centre: Array) -> ResidualMoments:
        """Return the same with something else subtracted from the features."""
        turn = np.eye(1 + centre.size)
        turn[1:, 0] = self.centre - centre
        moved = turn @ self.matrices @ turn.T
        return ResidualMoments(moved, centre, self.count, self.probe)

    def __add__(self, other: ResidualMoments) -> ResidualMoments:
        """Return the moments of the rows of both."""
        if not isinstance(other, ResidualMoments):
            return NotImplemented
        if not self.is_about(other.probe.coef.T) or self.probe.power != (
            other.probe.power
        ):
            raise StatisticsError("the residuals are of different models.")
        both = self.matrices + other.about(self.centre).matrices
        return ResidualMoments(both, self.centre, self.count + other.count, self.probe)

    def is_about(self, coef: Array) -> bool:
        """Whether the residuals are those of the model with coefficients (d, t)."""
        own = self.probe.coef
        return own.shape == coef.T.shape and np.allclose(own, coef.T, rtol=1e-9, atol=0)

    def to_arrays(self) -> dict[str, Array]:
        """Return upper triangles and centre, as they are sent."""
        packed = np.stack([upper_triangle(each) for each in self.matrices])
        return {"residuals": packed, "centre": self.centre}

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[NDArray[Any]], count: int, probe: ResidualProbe
    ) -> ResidualMoments:
        """Return what a site sent, if so many rows can have it.

        Raises
        ------
        StatisticsError
            If the arrays have other sizes, are not finite, or are no sums of squares.
        """
        t, d = probe.coef.shape
        sizes = [(t, (1 + d) * (2 + d) // 2), (d,)]
        if [each.shape for each in arrays] != sizes or any(
            each.dtype != np.float64 for each in arrays
        ):
            raise StatisticsError("the residual moments do not have the right size.")
        packed, centre = arrays
        if not all((np.abs(each) < _LARGEST).all() for each in arrays):
            raise StatisticsError("the residual moments are not finite.")
        for triangle in packed:
            diagonal = triangle[diagonal_positions(1 + d)]
            check_moments(triangle, diagonal, count, "squared residuals")
        return cls(
            np.stack([from_upper(each, 1 + d) for each in packed]), centre, count, probe
        )


def _mean(rows: Rows) -> Array:
    """Return the weighted mean of the features; zero without rows."""
    total, sums = 0.0, np.zeros(rows.n_features)
    for block in rows.blocks():
        total += float(block.weights.sum())
        sums += np.asarray(block.X.T @ block.weights, np.float64).ravel()
    return sums / total if total > 0 else sums


def _centred(block: Block, centre: Array) -> tuple[Array, Array, Array]:
    """Return a one and features less their centre, weights, and targets."""
    X = block.X.toarray() if hasattr(block.X, "toarray") else block.X
    used = block.weights > 0
    X = np.asarray(X, np.float64)[used] - centre
    ones = np.ones((len(X), 1))
    return np.hstack([ones, X]), block.weights[used], block.Y[used]


def _factors(block: Block, probe: ResidualProbe) -> Array:
    """Return 1 / (1 - h)**power of the rows that have weight."""
    if probe.means is None or probe.bread is None:
        return np.ones(int((block.weights > 0).sum()))
    Z, own, _ = _centred(block, probe.means)
    rest = 1.0 - own * np.einsum("ij,ij->i", Z @ probe.bread, Z)
    if (rest < _ALONE).any():
        raise DataError(
            "a row has leverage 1, that is a coefficient of its own: HC2 and HC3 are "
            "not defined. Use HC0 or HC1, or leave out the column that only this row "
            "determines."
        )
    return np.asarray(rest**-probe.power)


def _check_bread(rows: Rows, probe: ResidualProbe) -> None:
    """Refuse an inverse that is not one of these rows and others.

    Rows of others only make ``X'X`` larger. An inverse that is too large could give one
    row a leverage next to 1, and so a weight above all others.
    """
    means, bread = probe.means, probe.bread
    if means is None or bread is None:
        return
    own = np.zeros_like(bread)
    for block in rows.blocks():
        Z, weights, _ = _centred(block, means)
        own += (Z.T * weights) @ Z
    if not np.isfinite(own).all():
        rows.refuse_bad_values()
    scale = np.sqrt(np.diagonal(own))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(bread * np.outer(scale, scale))
    if values[0] >= -_ROUNDING * max(values[-1], 0.0):
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        taken = root.T @ (own / np.outer(scale, scale)) @ root
        if np.linalg.eigvalsh(taken)[-1] <= 1.0 + _ROUNDING:
            return
    raise ProtocolError(
        "the inverse that leverages are computed with is not that of these rows and "
        "others."
    )
