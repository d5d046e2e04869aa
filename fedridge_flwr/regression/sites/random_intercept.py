"""A random intercept for every site, by maximum likelihood or REML.

The rows of site k are ``y = X w + b + u_k + e`` with u of variance ``lambda sigma²``
and e of variance ``sigma²``. Generalised least squares for a given lambda is least
squares on statistics that count co-moments within sites in full and the mean of site
k, of weight W_k, only with ``W_k / (1 + lambda W_k)``: the likelihood is a function of
lambda alone, and every value of it one small system.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..._checks import check_choice
from ..._types import Array
from ...statistics.moments import Moments, merge
from ...statistics.sufficient import SufficientStatistics
from ..inference.inference_numbers import with_tests
from ..least_squares import LeastSquares, from_centred, least_squares
from ..printed_table import as_html, number, p_equals, p_text, plain
from .site_parts import Parts, feature_labels, named_parts, one_target, target_labels

_CANDIDATES = 60


@dataclass(frozen=True, eq=False, repr=False)
class RandomSiteEffects:
    """Regression with a random intercept for every site.

    Parameters
    ----------
    terms : tuple of str
        Names of the p coefficients, the intercept first.
    target : str
        Name of the target.
    coefficients, se, z, p : ndarray of shape (p,)
        Estimates, standard errors for the variances as they were found (as in lme4),
        their ratio, p-values by the normal distribution.
    ci : ndarray of shape (p, 2)
        Confidence intervals of level `level`.
    variance_sites, variance_rows : float
        Variances of the intercepts and of the rows of weight 1.
    log_likelihood : float
        Of `method`; as statsmodels and R's lme4 define it.
    variance_p : float
        p-value of the likelihood-ratio test that the sites do not differ.
    effects : dict of str to float
        Predicted intercept of every site, less the common one: shrunk to zero, the
        more the fewer its rows (BLUP).
    method : str
        "reml" or "ml".
    n_rows, n_sites : int
        Rows and sites behind it.
    level : float
        Level of the intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import random_site_effects
    >>> rng = np.random.default_rng(0)
    >>> parts = {}
    >>> for site, level in enumerate(rng.normal(size=30)):
    ...     X = rng.normal(size=(20, 1))
    ...     y = X[:, 0] + level + rng.normal(size=20)
    ...     parts[f"site-{site}"] = SufficientStatistics.from_data(X, y)
    >>> found = random_site_effects(parts)
    >>> found
    Random intercept of 30 sites (REML), target y, 600 rows
    variance of sites 0.6102, of rows 0.9678, intraclass correlation 0.3867
    log-likelihood -882.9, test of no site effects: p < 2e-16
    <BLANKLINE>
                  coef  std err       z   P>|z|  [0.025  0.975]
    intercept  -0.1736   0.1482  -1.172   0.241  -0.464  0.1168
    x0           0.972  0.04252   22.86  <2e-16  0.8887   1.055
    """

    terms: tuple[str, ...]
    target: str
    coefficients: Array
    se: Array
    z: Array
    p: Array
    ci: Array
    variance_sites: float
    variance_rows: float
    log_likelihood: float
    variance_p: float
    effects: dict[str, float]
    method: str
    n_rows: int
    n_sites: int
    level: float

    @property
    def intraclass_correlation(self) -> float:
        """Correlation of two rows of the same site, given their features."""
        return self.variance_sites / (self.variance_sites + self.variance_rows)

    def to_frame(self) -> Any:
        """Return a data frame with one row per coefficient, with broom's names."""
        import pandas as pd

        return pd.DataFrame(
            {
                "estimate": self.coefficients,
                "std.error": self.se,
                "statistic": self.z,
                "p.value": self.p,
                "conf.low": self.ci[:, 0],
                "conf.high": self.ci[:, 1],
            },
            index=pd.Index(self.terms, name="term"),
        )

    def __repr__(self) -> str:
        return "\n".join([*self._facts(), "", plain(*self._cells())])

    def _repr_html_(self) -> str:
        title, *facts = self._facts()
        return as_html(*self._cells(), title, facts)

    def _facts(self) -> list[str]:
        return [
            f"Random intercept of {self.n_sites} sites ({self.method.upper()}), "
            f"target {self.target}, {self.n_rows} rows",
            f"variance of sites {number(self.variance_sites)}, of rows "
            f"{number(self.variance_rows)}, intraclass correlation "
            f"{number(self.intraclass_correlation)}",
            f"log-likelihood {number(self.log_likelihood)}, test of no site effects: "
            f"{p_equals(self.variance_p)}",
        ]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        tail = (1.0 - self.level) / 2.0
        heads = ["", "coef", "std err", "z", "P>|z|", f"[{tail:g}", f"{1 - tail:g}]"]
        columns = zip(
            self.terms, self.coefficients, self.se, self.z, self.p, self.ci, strict=True
        )
        rows = [
            [term, number(b), number(se), number(z), p_text(p), *map(number, ends)]
            for term, b, se, z, p, ends in columns
        ]
        return heads, rows


def random_site_effects(
    parts: Parts, *, method: str = "reml", level: float = 0.95
) -> RandomSiteEffects:
    """Return the linear mixed model with a random intercept for every site.

    It is R's ``lmer(y ~ x + (1 | site))`` and MixedLM of statsmodels with groups, from
    the statistics of every site alone. Features that are the same for all rows of a
    site are fine, unlike with fixed effects.

    Parameters
    ----------
    parts : mapping or iterable of SufficientStatistics
        Statistics by site, of one target; sites of one row are fine.
    method : {"reml", "ml"}
        Restricted maximum likelihood, whose variances are not too small on average, or
        maximum likelihood, whose values can be compared between models with other
        features.
    level : float
        Level of the confidence intervals.

    Returns
    -------
    RandomSiteEffects
        Coefficients, variances, likelihood and predicted effects of the sites.

    Raises
    ------
    SingularSystemError
        If the rows do not determine the coefficients.
    StatisticsError
        If there are fewer than two sites, several targets, or too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import random_site_effects
    >>> rng = np.random.default_rng(1)
    >>> X, y = rng.normal(size=(60, 1)), rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::6], y[k::6]) for k in range(6)]
    >>> round(random_site_effects(parts, method="ml").variance_sites, 3)
    0.016
    """
    check_choice("method", method, ("reml", "ml"))
    sites = named_parts(parts, fewest=2)
    first = one_target(next(iter(sites.values())))
    profile = _Profile(sites, method == "reml")
    ratio = profile.best_ratio()
    fit = profile.fit(ratio)
    sigma2 = profile.sigma2(fit)
    covariance = from_centred(fit.centred_covariance * sigma2, fit.stats.feature_means)
    found = with_tests(fit.estimates, covariance[None], df_test=math.inf, level=level)
    b, w = fit.estimates[0, 0], fit.coef[:, 0]
    effects = {
        site: float(
            ratio
            * part.total_weight
            / (1.0 + ratio * part.total_weight)
            * (part.target_means[0] - b - part.feature_means @ w)
        )
        for site, part in sites.items()
    }
    value = profile.log_likelihood(ratio)
    # At the boundary the statistic is zero half of the time.
    twice = max(0.0, 2.0 * (value - profile.log_likelihood(0.0)))
    return RandomSiteEffects(
        terms=("intercept", *feature_labels(first.schema)),
        target=target_labels(first.schema)[0],
        coefficients=found["coefficients"][0],
        se=found["se"][0],
        z=found["t"][0],
        p=found["p"][0],
        ci=found["ci"][0],
        variance_sites=ratio * sigma2,
        variance_rows=sigma2,
        log_likelihood=value,
        variance_p=float(ndtr(-math.sqrt(twice))) if twice > 0 else 1.0,
        effects=effects,
        method=method,
        n_rows=profile.rows,
        n_sites=len(sites),
        level=level,
    )


class _Profile:
    """The likelihood as a function of lambda, all else at its best."""

    def __init__(self, sites: Mapping[str, SufficientStatistics], reml: bool) -> None:
        self._sites, self._reml = sites, reml
        first = next(iter(sites.values()))
        self._within = reduce(np.add, (part.triangle for part in sites.values()))
        self._weights = np.array([part.total_weight for part in sites.values()])
        self.rows = sum(part.count for part in sites.values())
        self._schema = first.schema
        self._rounding = max(part.rounding for part in sites.values())

    def fit(self, ratio: float) -> LeastSquares:
        """Return generalised least squares for lambda = ratio."""
        moments = Moments.zero(self._schema.n_features + 1)
        for part in self._sites.values():
            mean = part.moments
            weight = mean.weight / (1.0 + ratio * mean.weight)
            point = mean._replace(weight=weight, triangle=np.zeros_like(mean.triangle))
            moments = merge(moments, point)
        moments = moments._replace(triangle=moments.triangle + self._within)
        stats = SufficientStatistics.of_moments(
            moments,
            count=self.rows,
            schema=self._schema,
            n_clients=len(self._sites),
            rounding=self._rounding,
        )
        return least_squares(stats, 0.0)

    def sigma2(self, fit: LeastSquares) -> float:
        """Return the variance of the rows that is best for a fit."""
        fit.check_freedom()
        return float(fit.rss[0]) / self._freedom(fit)

    def log_likelihood(self, ratio: float) -> float:
        """Return the value at lambda = ratio."""
        fit = self.fit(ratio)
        freedom = self._freedom(fit)
        value = freedom * (math.log(2.0 * math.pi * self.sigma2(fit)) + 1.0)
        value += float(np.log1p(ratio * self._weights).sum())
        if self._reml:
            _, determinant = np.linalg.slogdet(fit.equations.matrix)
            value += determinant + math.log(fit.stats.total_weight)
        return -0.5 * value

    def best_ratio(self) -> float:
        """Return lambda, by a grid and Brent's method in its finest part.

        In ``s = lambda / (lambda + 1 / typical weight)`` the interesting range is
        spread over 0 to 1, zero included.
        """
        # It takes a while to import, and nothing else here needs it.
        from scipy.optimize import minimize_scalar

        typical = float(np.median(self._weights))

        def ratio(s: float) -> float:
            return s / (1.0 - s) / typical

        def loss(s: float) -> float:
            return -self.log_likelihood(ratio(s))

        grid = np.concatenate([[0.0], 1.0 - np.geomspace(0.999, 1e-7, _CANDIDATES)])
        values = [loss(s) for s in grid]
        best = int(np.argmin(values))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        found = minimize_scalar(
            loss, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
        )
        return ratio(float(found.x)) if found.fun < values[0] else 0.0

    def _freedom(self, fit: LeastSquares) -> float:
        return self.rows - (fit.freedom if self._reml else 0.0)
