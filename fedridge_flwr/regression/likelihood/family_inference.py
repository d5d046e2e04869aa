"""`FamilyInference`: standard errors and tests of a maximum likelihood fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from ..._checks import check_fraction
from ..._types import Array
from ...statistics.sufficient import SufficientStatistics
from ..printed_table import number, p_text, plain

RATIOS = {"binomial": "odds ratio", "poisson": "rate ratio"}
"""What the exponentials of coefficients are."""


@dataclass(frozen=True, eq=False)
class FamilyInference:
    """Wald tests of maximum likelihood: ``z = coef / se``, ``se² = diag(H⁻¹)``.

    H is the negative second derivative of the log-likelihood, as in ``GLM`` of
    statsmodels. A weight counts as so many equal rows. Returned by
    `FamilyModel.inference`, and the strategies' ``inference_``; the intercept comes
    first, if there is one.

    Parameters
    ----------
    family : str
        "binomial" or "poisson".
    terms : list of str
        Names of the coefficients.
    coefficients : ndarray of shape (p,)
        Coefficients.
    covariance : ndarray of shape (p, p)
        Their covariance matrix.
    n_rows : int
        Number of rows.
    deviance, null_deviance : float
        Of the model, and of one mean for all rows (NaN with an offset).
    log_likelihood : float
        Of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr.regression import FamilyInference
    >>> found = FamilyInference(
    ...     "poisson", ["intercept", "age"], np.array([0.5, 0.2]),
    ...     np.diag([0.04, 0.01]), 100, 80.0, 95.0, -120.0
    ... )
    >>> found.z, found.p.round(4), found.aic
    (array([2.5, 2. ]), array([0.0124, 0.0455]), 244.0)
    >>> print(found.summary())
               coef  std err    z  P>|z|  rate ratio  [0.025  0.975]
    intercept   0.5      0.2  2.5  0.012       1.649   1.114    2.44
    age         0.2      0.1    2  0.046       1.221   1.004   1.486
    100 rows, deviance 80, null deviance 95, AIC 244
    """

    family: str
    terms: list[str]
    coefficients: Array
    covariance: Array
    n_rows: int
    deviance: float
    null_deviance: float
    log_likelihood: float

    @property
    def se(self) -> Array:
        """Standard errors."""
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def z(self) -> Array:
        """Coefficients divided by their standard errors."""
        return self.coefficients / self.se

    @property
    def p(self) -> Array:
        """Two-sided p-values by the normal distribution."""
        return np.asarray(2.0 * norm.sf(np.abs(self.z)))

    @property
    def aic(self) -> float:
        """Akaike's information criterion, ``2 p - 2 log-likelihood``."""
        return 2.0 * len(self.terms) - 2.0 * self.log_likelihood

    @property
    def df_residual(self) -> int:
        """Rows less coefficients."""
        return self.n_rows - len(self.terms)

    def ci(self, level: float = 0.95) -> Array:
        """Return intervals of the coefficients, shape (p, 2)."""
        reach = norm.ppf(0.5 + check_fraction("level", level) / 2.0) * self.se
        return np.column_stack([self.coefficients - reach, self.coefficients + reach])

    def ratios(self, level: float = 0.95) -> Array:
        """Return odds or rate ratios with their intervals, shape (p, 3).

        They are ``exp`` of the coefficients: by which factor odds or rates grow where
        a feature is larger by one.
        """
        return np.exp(np.column_stack([self.coefficients, self.ci(level)]))

    def tidy(self, level: float = 0.95) -> Any:
        """Return a pandas frame with one row per coefficient, in the names of broom.

        "conf.low" and "conf.high" are of the coefficient, "odds.ratio.low" and
        "odds.ratio.high" (for counts "rate.ratio.low" and "rate.ratio.high") of the
        ratio.
        """
        import pandas as pd

        low, high = self.ci(level).T
        name = RATIOS[self.family].replace(" ", ".")
        names = [name, f"{name}.low", f"{name}.high"]
        return pd.DataFrame(
            {
                "term": self.terms,
                "estimate": self.coefficients,
                "std.error": self.se,
                "statistic": self.z,
                "p.value": self.p,
                "conf.low": low,
                "conf.high": high,
                **dict(zip(names, self.ratios(level).T, strict=True)),
            }
        )

    def summary(self, level: float = 0.95) -> str:
        """Return a table of text: coefficients, tests, ratios and their intervals."""
        tail = (1.0 - level) / 2.0
        heads = ["", "coef", "std err", "z", "P>|z|", RATIOS[self.family]]
        heads += [f"[{tail:.4g}", f"{1.0 - tail:.4g}]"]
        rows = []
        for k, (term, ratio) in enumerate(
            zip(self.terms, self.ratios(level), strict=True)
        ):
            numbers = (self.coefficients[k], self.se[k], self.z[k])
            cells = [number(float(each)) for each in numbers]
            cells += [p_text(float(self.p[k])), *(number(float(r)) for r in ratio)]
            rows.append([term, *cells])
        null = number(self.null_deviance, 6)
        facts = f"{self.n_rows} rows, deviance {self.deviance:.6g}"
        facts += f", null deviance {null}" if null else ""
        return f"{plain(heads, rows)}\n{facts}, AIC {self.aic:.6g}"


def covariance_of(
    stats: SufficientStatistics, centre: Array, *, fit_intercept: bool
) -> Array:
    """Return H⁻¹ of (b, w), or of w, from working statistics about a centre."""
    matrix = stats.centred_gram if fit_intercept else stats.gram
    unit = 1.0 / np.sqrt(np.diagonal(matrix))
    inverse = np.linalg.inv(matrix * np.outer(unit, unit)) * np.outer(unit, unit)
    inverse = (inverse + inverse.T) / 2.0
    if not fit_intercept:
        return inverse
    means = centre + stats.feature_means
    cross = -inverse @ means
    first = 1.0 / stats.total_weight - means @ cross
    return np.block([[np.array([[first]]), cross[None, :]], [cross[:, None], inverse]])
