"""`infer_private`: confidence intervals that include the noise of a private release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.stats import norm

from .._checks import check_fraction
from .._types import Array
from ..errors import PrivacyError
from ..regression.printed_table import number, p_text, plain
from .noisy_statistics import PrivateStatistics

# The smallest eigenvalue of G must be so many deviations of its noise ...
_CLEAR = 6.0
# ... and what intervals leave out, squares of the noise in G⁻¹, at most so much of it.
# Beyond an eighth they cover too often, whatever the number of features.
_SQUARES = 0.125

INCLUDED = (
    "in strategy.inference_: they include sampling and privacy noise, not the bias of "
    "clipping targets to y_bound"
)


@dataclass(frozen=True, eq=False)
class PrivateInference:
    """Wald tests and intervals of one private release, including its noise.

    The coefficients are least squares corrected for noise, without a penalty: they are
    not those of the model, which are shrunk. They minimise ``r'V⁻¹r``, r = h − G w,
    with V the covariance of r: of the noise in h and in G, and of the rows. Returned
    by `infer_private`, and the strategies' ``inference_``.

    Parameters
    ----------
    terms : list of str
        Names of the coefficients; the intercept comes first, if there is one.
    targets : list of str
        Names of the targets.
    coefficients : ndarray of shape (t, p)
        Coefficients, one row per target.
    covariance : ndarray of shape (t, p, p)
        Their covariance matrices.
    n_rows : int
        Effective rows, about: it is noisy.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr.privacy import PrivateInference
    >>> found = PrivateInference(
    ...     ["intercept", "age"],
    ...     ["y"],
    ...     np.array([[0.5, 0.2]]),
    ...     np.diag([0.04, 0.01])[None],
    ...     100,
    ... )
    >>> found.se, found.ci().round(2).tolist()
    (array([[0.2, 0.1]]), [[[0.11, 0.89], [0.0, 0.4]]])
    >>> print(found.summary())
    y          coef  std err    z  P>|z|    [0.025  0.975]
    intercept   0.5      0.2  2.5  0.012     0.108   0.892
    age         0.2      0.1    2  0.046  0.004004   0.396
    about 100 effective rows; privacy noise is included, the bias of y_bound is not
    """

    terms: list[str]
    targets: list[str]
    coefficients: Array
    covariance: Array
    n_rows: int

    @property
    def se(self) -> Array:
        """Standard errors, shape (t, p)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @property
    def z(self) -> Array:
        """Coefficients divided by their standard errors."""
        return self.coefficients / self.se

    @property
    def p(self) -> Array:
        """Two-sided p-values by the normal distribution."""
        return np.asarray(2.0 * norm.sf(np.abs(self.z)))

    def ci(self, level: float = 0.95) -> Array:
        """Return intervals of the coefficients, shape (t, p, 2)."""
        reach = norm.ppf(0.5 + check_fraction("level", level) / 2.0) * self.se
        return np.stack([self.coefficients - reach, self.coefficients + reach], axis=-1)

    def tidy(self, level: float = 0.95) -> Any:
        """Return a pandas frame with one row per coefficient, in the names of broom."""
        import pandas as pd

        low, high = np.moveaxis(self.ci(level), -1, 0)
        return pd.DataFrame(
            {
                "target": np.repeat(self.targets, len(self.terms)),
                "term": self.terms * len(self.targets),
                "estimate": self.coefficients.ravel(),
                "std.error": self.se.ravel(),
                "statistic": self.z.ravel(),
                "p.value": self.p.ravel(),
                "conf.low": low.ravel(),
                "conf.high": high.ravel(),
            }
        )

    def summary(self, level: float = 0.95) -> str:
        """Return a table of text for every target."""
        tail = (1.0 - level) / 2.0
        heads = ["coef", "std err", "z", "P>|z|", f"[{tail:.4g}", f"{1 - tail:.4g}]"]
        tables = []
        for j, target in enumerate(self.targets):
            rows = []
            for k, term in enumerate(self.terms):
                known = (self.coefficients[j, k], self.se[j, k], self.z[j, k])
                cells = [number(float(each)) for each in known]
                cells.append(p_text(float(self.p[j, k])))
                cells += [number(float(each)) for each in self.ci(level)[j, k]]
                rows.append([term, *cells])
            tables.append(plain([target, *heads], rows))
        facts = f"about {self.n_rows} effective rows; privacy noise is included, "
        return "\n".join([*tables, f"{facts}the bias of y_bound is not"])


def reason_to_withhold(stats: PrivateStatistics) -> str:
    """Return why there are no intervals for a release; empty if there are."""
    if stats.privacy.uses_residuals:
        return "withheld: they are for one round of the Gram matrix and moments"
    if stats.target_gram is None:
        return (
            "withheld: they need a share of the budget for the targets' squares, "
            'budget_split={"gram": 0.35, "moment": 0.55, "target_gram": 0.1}'
        )
    if stats.feature_map is not None:
        return "withheld: they are not available behind a feature map"
    values, noise = np.linalg.eigvalsh(stats.gram), stats.gram_sd
    if values[0] < _CLEAR * noise:
        return (
            "withheld: some direction of the features does not stand clear of the "
            f"noise (eigenvalue {values[0]:.3g}, below {_CLEAR:g} deviations of "
            f"{noise:.3g})"
        )
    squares = _noise_squares(values, noise)
    if squares > _SQUARES:
        return (
            "withheld: too many directions of the features are close to the noise "
            f"(its squares move the weakest by {squares:.0%}, above {_SQUARES:.1%})"
        )
    return ""


def _noise_squares(values: Any, noise: float) -> float:
    """Return ``s²/2 (Σᵢ 1/gᵢ + 1/g₁) / g₁``, g₁ the smallest eigenvalue of G.

    With noise E of deviation s, ``(G + E)⁻¹ = G⁻¹ - G⁻¹EG⁻¹ + G⁻¹EG⁻¹EG⁻¹ - ...``; this
    is the mean of the third term over the first one, in the weakest direction.
    """
    inverse = 1.0 / values
    return float(noise**2 / 2.0 * (inverse.sum() + inverse[0]) * inverse[0])


def infer_private(stats: PrivateStatistics) -> PrivateInference:
    """Return coefficients with standard errors that include the privacy noise.

    Post-processing: it costs no further privacy. Targets that `y_bound` cuts bias the
    coefficients, and the intervals do not cover that bias.

    Parameters
    ----------
    stats : PrivateStatistics
        Noisy sums with a share for "target_gram". The shares 0.35, 0.55 and 0.10 of
        "gram", "moment" and "target_gram" are a good choice.

    Returns
    -------
    PrivateInference
        Coefficients and intervals, of every target.

    Raises
    ------
    PrivacyError
        If the intervals are withheld, with the reason: where some direction of the
        features does not stand clear of the noise they would not cover.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import DifferentialPrivacy
    >>> from fedridge_flwr.privacy import infer_private, private_statistics
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(9000, 2))
    >>> split = {"gram": 0.35, "moment": 0.55, "target_gram": 0.1}
    >>> privacy = DifferentialPrivacy(
    ...     2.0, 1e-6, x_norm_bound=1.5, y_bound=4.0, budget_split=split
    ... )
    >>> found = infer_private(private_statistics(X, X @ [2.0, -1.0] + 1, privacy))
    >>> found.terms, bool((found.se < 0.2).all())
    (['intercept', 'x0', 'x1'], True)
    """
    reason = reason_to_withhold(stats)
    if reason:
        raise PrivacyError(f"intervals are {reason}.")
    d, bounds = stats.n_features, stats.bounds
    if bounds.intercept:
        constant = bounds.constant * bounds.x_step
        n_rows = float(stats.gram[d, d]) / constant**2
    else:
        constant = 1.0
        # Every row adds at most the square of the bound: there are at least so many.
        n_rows = float(np.trace(stats.gram)) / bounds.x_norm**2
    found = [_one_target(stats, j, n_rows) for j in range(stats.n_targets)]
    # The intercept is the coefficient of the constant, times the constant, and first.
    order = [*range(d, bounds.width), *range(d)]
    units = np.array([constant] * bounds.intercept + [1.0] * d)
    coefficients = np.array([w[order] for w, _ in found]) * units
    covariance = np.array([C[np.ix_(order, order)] for _, C in found])
    names = stats.feature_names or [f"x{j}" for j in range(d)]
    targets = stats.target_names or [f"y{j}" for j in range(stats.n_targets)]
    return PrivateInference(
        terms=["intercept"] * bounds.intercept + list(names),
        targets=["y"] if stats.n_targets == 1 else list(targets),
        coefficients=coefficients,
        covariance=covariance * np.outer(units, units),
        n_rows=round(n_rows),
    )


def _one_target(
    stats: PrivateStatistics, target: int, n_rows: float
) -> tuple[Array, Array]:
    """Return coefficients of the rows as they were sent, and their covariance."""
    from scipy.optimize import minimize

    # In units of the mean eigenvalue, so that the minimiser sees numbers about 1.
    unit = float(np.trace(stats.gram)) / len(stats.gram)
    G, h = stats.gram / unit, stats.moment[:, target] / unit
    s_g, s_h = stats.gram_sd / unit, stats.moment_sd / unit
    start = np.linalg.solve(G, h)
    squares = float(cast("Array", stats.target_gram)[target, target]) / unit
    left = max(squares - 2.0 * float(start @ h) + float(start @ G @ start), 0.0)
    # One deviation of its noise more, so that chance does not make it too small.
    variance = (left + stats.target_gram_sd / unit) / n_rows
    values, vectors = np.linalg.eigh(G)
    of_rows = variance * (vectors * np.maximum(values, s_g)) @ vectors.T

    def residual(w: Array) -> tuple[Array, Array, Array]:
        r = h - G @ w
        V = s_g**2 / 2.0 * np.outer(w, w) + of_rows
        V[np.diag_indices(len(w))] += s_h**2 + s_g**2 / 2.0 * float(w @ w)
        return r, V, np.linalg.solve(V, r)

    def value(w: Array) -> tuple[float, Array]:
        r, _, u = residual(w)
        return float(r @ u), -2.0 * G @ u - s_g**2 * (
            float(u @ u) * w + float(u @ w) * u
        )

    w = minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x
    _, V, u = residual(w)
    # What the noise in G has most likely been is taken into account.
    slope = G + s_g**2 / 2.0 * (np.outer(u, w) + np.outer(w, u))
    return w, np.linalg.inv(slope.T @ np.linalg.solve(V, slope))
