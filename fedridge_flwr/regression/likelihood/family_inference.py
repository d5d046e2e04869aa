"""`FamilyInference`: standard errors and tests of a maximum likelihood fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from ..._checks import check_fraction
from ..._types import Array
from ...statistics.sufficient import SufficientStatistics
from ..printed_table import as_html, as_latex, as_markdown, number, p_text, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATIOS = {"binomial": "odds ratio", "poisson": "rate ratio"}
"""What the exponentials of coefficients are."""

ROWS = "rows"
"""What rows are weighted by, where the column of weights has no name."""

FREQUENCIES = (
    "standard errors take the weights as numbers of rows (frequency weights), and are "
    "not for sampling weights."
)
"""What standard errors of a family make of weights."""


@dataclass(frozen=True, eq=False)
class FamilyInference:
    """Wald tests of maximum likelihood: ``z = coef / se``, ``se² = diag(H⁻¹)``.

    H is the negative second derivative of the log-likelihood, as in ``GLM`` of
    statsmodels. A weight counts as so many equal rows, but degrees of freedom and BIC
    count rows, as with ``var_weights`` there and in R. Returned by
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
    weighted_by : str
        Column of weights, "rows" if it has no name; empty without weights.

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
    100 rows, df 2 (98), log-likelihood -120
    deviance 80, null deviance 95, AIC 244, BIC 249.21
    [0.025 and 0.975] are of the rate ratio
    """

    family: str
    terms: list[str]
    coefficients: Array
    covariance: Array
    n_rows: int
    deviance: float
    null_deviance: float
    log_likelihood: float
    weighted_by: str = ""

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
    def bic(self) -> float:
        """Bayes' information criterion, ``log(rows) p - 2 log-likelihood``."""
        rows = float(np.log(self.n_rows)) if self.n_rows else float("nan")
        return rows * len(self.terms) - 2.0 * self.log_likelihood

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
        return "\n".join([plain(*self._cells(level)), *self._facts(level)])

    def to_markdown(self, level: float = 0.95) -> str:
        """Return the same table in Markdown, with the ratios and their intervals."""
        facts = ", ".join(self._facts(level))
        return f"{as_markdown(*self._cells(level))}\n\n{facts}"

    def to_latex(self, level: float = 0.95) -> str:
        """Return the same table in LaTeX (package booktabs)."""
        return as_latex(*self._cells(level), self._facts(level))

    def _repr_html_(self) -> str:
        return as_html(*self._cells(0.95), notes=self._facts(0.95))

    def plot(self, terms: Sequence[str] | None = None, level: float = 0.95) -> Figure:
        """Return a forest plot of the odds or rate ratios, without the intercept.

        Parameters
        ----------
        terms : sequence of str, optional
            Terms to show; by default all but the intercept.
        level : float
            Level of the intervals.
        """
        from ..sites.forest_plot import chosen_terms, forest_plot

        names = tuple(self.terms)
        shown = chosen_terms(names, terms, names[:1] == ("intercept",))
        found = self.ratios(level)[[names.index(term) for term in shown]]
        ratio = RATIOS[self.family]
        return forest_plot(
            shown,
            found[:, 0],
            found[:, 1:],
            title=f"{ratio}s with {100 * level:g}% intervals",
            xlabel=f"{ratio} (logarithmic)",
            ratios=True,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["coefficients"] = self.coefficients.tolist()
        found["covariance"] = self.covariance.tolist()
        return found

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FamilyInference:
        """Return what `to_dict` wrote; a ValueError says what it cannot be."""
        terms, family = list(map(str, content["terms"])), str(content["family"])
        coefficients, covariance = (
            np.array(content[name], dtype=np.float64)
            for name in ("coefficients", "covariance")
        )
        p = len(terms)
        fits = coefficients.shape == (p,) and covariance.shape == (p, p)
        if family not in RATIOS or not fits:
            raise ValueError("the numbers of the inference do not fit together")
        names = ("deviance", "null_deviance", "log_likelihood")
        rest = (content[name] for name in names)
        fit = [float("nan") if each is None else float(each) for each in rest]
        rows = int(content["n_rows"])
        weighted_by = str(content.get("weighted_by", ""))
        return cls(
            *(family, terms, coefficients, covariance, rows),
            *(fit[0], fit[1], fit[2]),
            weighted_by=weighted_by,
        )

    def _cells(self, level: float) -> tuple[list[str], list[list[str]]]:
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
        return heads, rows

    def _facts(self, level: float) -> list[str]:
        """Return rows and fit, and what the interval is of."""
        null, tail = number(self.null_deviance, 6), (1.0 - level) / 2.0
        weighted = self.weighted_by
        df = f"df {len(self.terms)} ({self.df_residual})"
        fit = f"deviance {self.deviance:.6g}"
        fit += f", null deviance {null}" if null else ""
        return [
            f"{self.n_rows} rows, {df}, log-likelihood {self.log_likelihood:.6g}",
            f"{fit}, AIC {self.aic:.6g}, BIC {self.bic:.6g}",
            f"[{tail:.4g} and {1.0 - tail:.4g}] are of the {RATIOS[self.family]}",
            *([f"{weighted_text(weighted)}: {FREQUENCIES}"] if weighted else []),
        ]


def weighted_text(weighted_by: str) -> str:
    """Return by what rows were weighted.

    Examples
    --------
    >>> weighted_text("w"), weighted_text("rows")
    ('Weighted by w', 'The rows have weights')
    """
    if weighted_by == ROWS:
        return "The rows have weights"
    return f"Weighted by {weighted_by}"


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
