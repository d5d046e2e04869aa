"""`drift`: whether coefficients have changed by more than chance since the rows before.

With estimates b and inverse Gram matrices V of the rows before (1) and of the new ones
(2), and one variance s² of all residuals,

    F = d' (V1 + V2)^-1 d / (p s²),    d = b2 - b1,

is Chow's test: with independent normal errors of equal variance, F has the distribution
F(p, n - 2p) if the coefficients are the same. The statistics of both are enough for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import fdtrc

from ..._checks import check_fraction
from ..._text import quoted
from ..._types import Array
from ...errors import FedRidgeError, SingularSystemError, StatisticsError
from ..least_squares import LeastSquares, from_centred, least_squares
from ..sites.site_parts import feature_labels, one_target
from .hypothesis_tests import HypothesisTest
from .infer import infer
from .inference_numbers import quantile, two_sided, wald
from .inference_result import Inference
from .named_matrix import NamedMatrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EQUAL = "the coefficients are the same as before"


@dataclass(frozen=True, eq=False)
class Drift:
    """How coefficients have changed, and whether by more than sampling error.

    Parameters
    ----------
    terms : tuple of str
        Names of the p coefficients; the intercept is the first.
    before, after : ndarray of shape (p,)
        Least squares of the rows before, and of the new rows.
    after_se : ndarray of shape (p,)
        Standard errors of `after`, from the new rows alone.
    se, t, p : ndarray of shape (p,)
        Of ``after - before`` the standard errors, their ratio, and p-values.
    test : HypothesisTest
        That none of them has changed.
    n_before, n_after : int
        Number of rows.
    level : float
        Level of the intervals.
    df : float
        Degrees of freedom of t.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import drift
    >>> rng = np.random.default_rng(0)
    >>> X, noise = rng.normal(size=(300, 2)), rng.normal(size=300)
    >>> may = SufficientStatistics.from_data(X[:200], X[:200, 0] + noise[:200])
    >>> june = SufficientStatistics.from_data(X[200:], 1.8 * X[200:, 0] + noise[200:])
    >>> found = drift(may, june)
    >>> print(found.test)
    the coefficients are the same as before: F(3, 294) = 16.38, p = 7.2e-10
    >>> found.table
                 before      after    change      se          p
    intercept  -0.03508  -0.006115   0.02897   0.115     0.8012
    x0            1.029      1.809    0.7808   0.112  2.061e-11
    x1           0.0487   -0.01371  -0.06241  0.1189     0.6001
    """

    terms: tuple[str, ...]
    before: Array
    after: Array
    after_se: Array
    se: Array
    t: Array
    p: Array
    test: HypothesisTest
    n_before: int
    n_after: int
    level: float
    df: float

    @property
    def change(self) -> Array:
        """``after - before``."""
        return self.after - self.before

    @property
    def ci(self) -> Array:
        """Confidence intervals of the change, shape (p, 2)."""
        half = quantile(self.level, self.df) * self.se
        return np.stack([self.change - half, self.change + half], axis=-1)

    @property
    def table(self) -> NamedMatrix:
        """One row per coefficient."""
        columns = (self.before, self.after, self.change, self.se, self.p)
        names = ("before", "after", "change", "se", "p")
        return NamedMatrix(np.column_stack(columns), self.terms, names)

    def plot(self) -> Figure:
        """Return a forest plot of the changes."""
        from ..sites.forest_plot import forest_plot

        percent = f"{100 * self.level:g}%"
        return forest_plot(
            self.terms,
            self.change,
            self.ci,
            title=str(self.test),
            xlabel=f"change of the coefficient, with {percent} interval",
        )


def drift(
    before: Any, after: Any, *, fit_intercept: bool = True, level: float = 0.95
) -> Drift:
    """Test whether coefficients of new rows differ from those of the rows before.

    Parameters
    ----------
    before : SufficientStatistics or FixedPointStatistics
        Statistics of the rows before, of one target.
    after : SufficientStatistics or FixedPointStatistics
        Statistics of the *new* rows alone; of two totals, their difference.
    fit_intercept : bool
        Whether there is an intercept, which may change as well.
    level : float
        Level of the intervals.

    Returns
    -------
    Drift
        ``test`` is about all coefficients together, ``table`` has each.

    Raises
    ------
    StatisticsError
        If there are several targets, other columns before and after, or no more rows
        than coefficients in one of both.
    SingularSystemError
        If the rows before, or the new ones, do not determine the coefficients.

    Notes
    -----
    The test assumes independent rows and one variance of the errors before and after.
    Many updates are many tests: of twenty without any drift, one has p below 0.05.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import drift
    >>> rng = np.random.default_rng(1)
    >>> X, y = rng.normal(size=(90, 1)), rng.normal(size=90)
    >>> total = SufficientStatistics.from_data(X, y)
    >>> new = SufficientStatistics.from_data(X[60:], y[60:])
    >>> print(drift(total - new, new).test)
    the coefficients are the same as before: F(2, 86) = 0.4209, p = 0.658
    """
    level = check_fraction("level", level)
    both = one_target(_moments(before + after))
    fits = [_fit(part, fit_intercept) for part in (before, after)]
    first, second = fits
    freedom = first.residual_freedom + second.residual_freedom
    variance = float(first.rss[0] + second.rss[0]) / freedom
    # About the mean of all rows; at zero, which may be far away, digits would be lost.
    centre = both.feature_means
    values, covariance = _difference(fits, centre)
    width = len(values)
    value = wald(values, variance * covariance) / width
    p = float(fdtrc(width, freedom, value))
    test = HypothesisTest("F", value, width, freedom, p, _EQUAL)
    change, covariance = _difference(fits, np.zeros_like(centre))
    se = np.sqrt(variance * np.diagonal(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = change / se
    names = feature_labels(first.stats.schema)
    return Drift(
        ("intercept", *names) if fit_intercept else names,
        first.estimates[0],
        second.estimates[0],
        _standard_errors(second),
        se,
        t,
        two_sided(t, freedom),
        test,
        first.stats.count,
        second.stats.count,
        level,
        freedom,
    )


@dataclass(frozen=True, eq=False)
class DriftHistory:
    """Coefficients after every update, and whether it agrees with the rows before.

    Parameters
    ----------
    labels : tuple of str
        Names of the updates.
    totals : tuple of Inference
        Of all rows up to each update.
    updates : tuple of Drift or None
        Each update against the rows before; None for the first, and for those with too
        few rows for a test.
    level : float
        Level of the bands, and of the test of all updates together.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import drift_over_time
    >>> rng, months = np.random.default_rng(0), {}
    >>> for name, slope in {"May": 1.0, "June": 1.0, "July": 3.0}.items():
    ...     X = rng.normal(size=(50, 1))
    ...     y = slope * X[:, 0] + rng.normal(size=50)
    ...     months[name] = SufficientStatistics.from_data(X, y)
    >>> found = drift_over_time(months)
    >>> found.drifted
    ('July',)
    >>> found.table
          rows      F          p  intercept      x0
    May     50                      0.04859  0.8807
    June   100  2.112     0.1265   -0.05475   1.094
    July   150  72.78  1.184e-22     -0.175   1.976
    """

    labels: tuple[str, ...]
    totals: tuple[Inference, ...]
    updates: tuple[Drift | None, ...]
    level: float

    @property
    def drifted(self) -> tuple[str, ...]:
        """Updates that differ from the rows before by more than chance.

        By Bonferroni's rule: without any drift, that there is one of them has a chance
        of at most 1 - level.
        """
        tested = sum(update is not None for update in self.updates)
        limit = (1.0 - self.level) / max(tested, 1)
        return tuple(
            label
            for label, update in zip(self.labels, self.updates, strict=True)
            if update is not None and update.test.p < limit
        )

    @property
    def table(self) -> NamedMatrix:
        """Rows so far, F, its p-value and the coefficients, one row per update."""
        tests = [
            [np.nan, np.nan] if each is None else [each.test.statistic, each.test.p]
            for each in self.updates
        ]
        rows = [
            [total.n_rows, *test, *total.coefficients]
            for total, test in zip(self.totals, tests, strict=True)
        ]
        names = ("rows", "F", "p", *self.totals[0].terms)
        return NamedMatrix(np.array(rows, dtype=float), self.labels, names)

    def plot(self, terms: Sequence[str] | None = None) -> Figure:
        """Return a figure of coefficients over time, with bands.

        The line is the model of all rows so far, with its interval. Points are the rows
        of each update alone.

        Parameters
        ----------
        terms : sequence of str, optional
            Coefficients to draw; by default the first six without the intercept.
        """
        from .drift_plot import draw_history

        known = self.totals[0].terms
        shown = known[self.totals[0].fit_intercept :][:6] if terms is None else terms
        unknown = [term for term in shown if term not in known]
        if unknown or not shown:
            raise FedRidgeError(f"no such terms: {quoted(unknown)}.")
        return draw_history(self, tuple(shown))


def drift_over_time(
    updates: Mapping[str, Any] | Iterable[Any],
    *,
    fit_intercept: bool = True,
    level: float = 0.95,
) -> DriftHistory:
    """Return the coefficients after every update, and a test of each update.

    Parameters
    ----------
    updates : mapping or iterable of SufficientStatistics or FixedPointStatistics
        Statistics of the new rows of each update, by name or number, in order.
    fit_intercept : bool
        Whether there is an intercept.
    level : float
        Level of the bands.

    Returns
    -------
    DriftHistory
        ``table``, ``plot()`` and ``drifted``.

    Raises
    ------
    StatisticsError
        If there is no update, or the rows of the first do not determine coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import drift_over_time
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 1)), rng.normal(size=90)
    >>> parts = [SufficientStatistics.from_data(X[k::3], y[k::3]) for k in range(3)]
    >>> drift_over_time(parts).drifted
    ()
    """
    pairs = updates.items() if isinstance(updates, Mapping) else enumerate(updates, 1)
    named = [(str(label), part) for label, part in pairs]
    if not named:
        raise StatisticsError("there is no update.")
    options: Any = {"fit_intercept": fit_intercept, "level": level}
    totals: list[Inference] = []
    drifts: list[Drift | None] = []
    total: Any = None
    for _, part in named:
        before, total = total, part if total is None else total + part
        drifts.append(None if before is None else _drift_or_none(before, part, options))
        totals.append(infer(_moments(total), 0.0, **options))
    labels = tuple(label for label, _ in named)
    return DriftHistory(labels, tuple(totals), tuple(drifts), level)


def _drift_or_none(before: Any, after: Any, options: Any) -> Drift | None:
    try:
        return drift(before, after, **options)
    except (SingularSystemError, StatisticsError):
        return None


def _moments(stats: Any) -> Any:
    return stats.to_sufficient() if stats.form == "fixed" else stats


def _fit(stats: Any, fit_intercept: bool) -> LeastSquares:
    fit = least_squares(_moments(stats), 0.0, fit_intercept=fit_intercept)
    fit.check_freedom()
    return fit


def _standard_errors(fit: LeastSquares) -> Array:
    covariance = fit.centred_covariance
    if fit.has_intercept:
        covariance = from_centred(covariance, fit.stats.feature_means)
    return np.asarray(np.sqrt(fit.sigma2[0] * np.diagonal(covariance)))


def _difference(fits: Sequence[LeastSquares], centre: Array) -> tuple[Array, Array]:
    """Return by how much estimates differ, and the covariance for sigma 1.

    The intercept is the value at `centre`.
    """
    first, second = fits
    change = second.estimates[0] - first.estimates[0]
    if not first.has_intercept:
        return change, first.centred_covariance + second.centred_covariance
    means = [fit.stats.feature_means - centre for fit in fits]
    # The value at the centre, without the intercept at zero, which may be huge.
    at = [
        float(fit.stats.target_means[0] - mean @ fit.coef[:, 0])
        for fit, mean in zip(fits, means, strict=True)
    ]
    change = np.concatenate([[at[1] - at[0]], change[1:]])
    covariance = sum(
        from_centred(fit.centred_covariance, mean)
        for fit, mean in zip(fits, means, strict=True)
    )
    return change, np.asarray(covariance)
