"""Estimates of every site beside those of all rows, and how much they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc, fdtrc

from ..._types import Array
from ...errors import FedRidgeError, SingularSystemError, StatisticsError
from ...statistics.sufficient import SufficientStatistics
from ..alpha.leave_client_out import total_of
from ..inference.hypothesis_tests import HypothesisTest
from ..inference.infer import infer, inference_of
from ..inference.inference_result import Inference
from ..inference.named_matrix import NamedMatrix
from ..least_squares import LeastSquares, least_squares
from ..printed_table import number, p_text, plain
from ..questions import scales_of, select_columns
from .site_parts import Parts, named_parts, one_target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class SiteEstimates:
    """Coefficients of every site next to those of all rows, and how much they differ.

    A column that does not vary at a site cannot be distinguished from its intercept.
    Both are NaN there; the other coefficients are not affected.

    Parameters
    ----------
    estimates, se : NamedMatrix
        Coefficients and standard errors, one row per site, one column per term.
    pooled : Inference
        The model of all rows of all sites.
    q, q_p, i2 : dict of str to float
        By term Cochran's Q, its p-value, and I², the share of the variance between
        estimates that is not chance.
    equal : HypothesisTest
        F test that all coefficients are the same at all sites (Chow's test).
    left_out : dict of str to str
        Sites whose rows do not determine their coefficients, and why.
    level : float
        Level of the intervals in `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import site_estimates
    >>> rng = np.random.default_rng(0)
    >>> parts = {}
    >>> for name, slope in {"Bern": 1.0, "Oslo": 1.0, "Wien": 3.0}.items():
    ...     X = rng.normal(size=(50, 1))
    ...     y = slope * X[:, 0] + rng.normal(size=50)
    ...     parts[name] = SufficientStatistics.from_data(X, y)
    >>> found = site_estimates(parts)
    >>> found.estimates
          intercept      x0
    Bern    0.04859  0.8807
    Oslo    -0.1356   1.282
    Wien    -0.1846   3.008
    >>> round(found.i2["x0"], 3)
    0.986
    """

    estimates: NamedMatrix
    se: NamedMatrix
    pooled: Inference
    q: dict[str, float]
    q_p: dict[str, float]
    i2: dict[str, float]
    equal: HypothesisTest
    left_out: dict[str, str]
    level: float = 0.95

    def __repr__(self) -> str:
        rows = [
            [name, *map(number, values)]
            for name, values in (
                *zip(self.estimates.rows, self.estimates.values, strict=True),
                ("all rows", self.pooled.coefficients),
                ("I²", [self.i2[term] for term in self.estimates.columns]),
            )
        ]
        rows.append(["p of Q", *(p_text(p) for p in self.q_p.values())])
        head = f"Least squares at {len(self.estimates.rows)} sites, target "
        lines = [f"{head}{self.pooled.targets[0]}", str(self.equal), ""]
        lines.append(plain(["", *self.estimates.columns], rows))
        lines += [f"left out: {site}: {why}" for site, why in self.left_out.items()]
        return "\n".join(lines)

    def plot(self, term: str) -> Figure:
        """Return a forest plot of one coefficient, site by site.

        Below the sites are their average, weighted by precision, which Q and I² refer
        to, and the model of all rows without an intercept for every site (a diamond).

        Parameters
        ----------
        term : str
            Name of the coefficient.
        """
        from ..inference.inference_numbers import quantile
        from .forest_plot import forest_plot

        if term not in self.estimates.columns:
            terms = ", ".join(self.estimates.columns)
            raise FedRidgeError(f"{term!r} is not a term: {terms}.")
        k = self.estimates.columns.index(term)
        middle, se = self.estimates.values[:, k], self.se.values[:, k]
        known = ~np.isnan(middle)
        half = quantile(self.level, np.inf) * se[known]
        ends = np.stack([middle[known] - half, middle[known] + half], axis=-1)
        sites = [s for s, good in zip(self.estimates.rows, known, strict=True) if good]
        if len(sites) > 1:
            weights = 1.0 / se[known] ** 2
            average = float(weights @ middle[known] / weights.sum())
            reach = quantile(self.level, np.inf) / np.sqrt(weights.sum())
            sites.append("average of the sites")
            ends = np.vstack([ends, [average - reach, average + reach]])
            known = np.append(known, True)
            middle = np.append(middle, average)
        place = self.pooled.terms.index(term)
        both = float(self.pooled.coefficients[place]), self.pooled.ci[place]
        return forest_plot(
            sites,
            middle[known],
            ends,
            title=f"{term}: I² = {self.i2[term]:.0%}, p of Q = {self.q_p[term]:.2g}",
            xlabel="coefficient",
            summary=("all rows, one intercept", *both),
        )


def site_estimates(parts: Parts, *, fit_intercept: bool = True) -> SiteEstimates:
    """Return least squares at every site by itself, and tests that they are the same.

    Parameters
    ----------
    parts : mapping or iterable of SufficientStatistics
        Statistics by site, of one target.
    fit_intercept : bool
        Whether every site has an intercept.

    Returns
    -------
    SiteEstimates
        Estimates by site, Q and I² by coefficient, and an F test of all.

    Raises
    ------
    StatisticsError
        If there are fewer than two sites with enough rows, or several targets.
    SingularSystemError
        If all rows together do not determine the coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import site_estimates
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::3], y[k::3]) for k in range(3)]
    >>> print(site_estimates(parts).equal)
    equal coefficients at 3 sites: F(6, 51) = 1.246, p = 0.299
    """
    sites = named_parts(parts, fewest=2)
    total = one_target(total_of(sites))
    fits, left_out = {}, {}
    for site, part in sites.items():
        try:
            fits[site] = _own_fit(part, fit_intercept)
        except (SingularSystemError, StatisticsError) as error:
            left_out[site] = str(error)
    if len(fits) < 2:
        raise StatisticsError(
            f"only {len(fits)} of {len(sites)} sites have rows enough for estimates of "
            "their own: leave features out by select_columns."
        )
    pooled = infer(total, fit_intercept=fit_intercept)
    terms = pooled.terms
    rows = [_own_estimates(fit, terms) for fit in fits.values()]
    estimates, se = (np.stack([row[k] for row in rows]) for k in (0, 1))
    tests = [_cochran(estimates[:, k], se[:, k]) for k in range(len(terms))]
    q, q_p, i2 = (
        dict(zip(terms, column, strict=True)) for column in zip(*tests, strict=True)
    )
    used = {site: sites[site] for site in fits}
    return SiteEstimates(
        NamedMatrix(estimates, list(fits), terms),
        NamedMatrix(se, list(fits), terms),
        pooled,
        q,
        q_p,
        i2,
        _chow(total_of(used), list(fits.values()), fit_intercept),
        left_out,
    )


def _own_fit(part: SufficientStatistics, fit_intercept: bool) -> LeastSquares:
    """Return the fit of one site; what is constant there is in its intercept."""
    if fit_intercept:
        varying = np.flatnonzero(scales_of(part)[: part.n_features] > 0).tolist()
        if not varying:
            raise StatisticsError("no feature varies.")
        part = select_columns(part, varying)
    fit = least_squares(part, 0.0, fit_intercept=fit_intercept)
    fit.check_freedom()
    return fit


def _own_estimates(fit: LeastSquares, terms: tuple[str, ...]) -> tuple[Array, Array]:
    """Return coefficients and standard errors of one site, NaN where it has none."""
    found = inference_of(
        fit,
        fit.centred_covariance * fit.sigma2[:, None, None],
        covariance="classical",
        level=0.95,
        n_sites=1,
        df_test=fit.residual_freedom,
        df_f=fit.residual_freedom,
    )
    values = np.full((2, len(terms)), np.nan)
    for term, coefficient, se in zip(
        found.terms, found.coefficients, found.se, strict=True
    ):
        # An intercept that took up constant columns is another number.
        if term != "intercept" or len(found.terms) == len(terms):
            values[:, terms.index(term)] = coefficient, se
    return values[0], values[1]


def _cochran(estimates: Array, se: Array) -> tuple[float, float, float]:
    """Return Cochran's Q, its p-value and I² of the estimates that are there."""
    known = ~np.isnan(estimates) & (se > 0)
    k = int(known.sum())
    if k < 2:
        return float("nan"), float("nan"), float("nan")
    weights = 1.0 / se[known] ** 2
    mean = weights @ estimates[known] / weights.sum()
    q = float(weights @ (estimates[known] - mean) ** 2)
    i2 = max(0.0, (q - (k - 1)) / q) if q > 0 else 0.0
    return q, float(chdtrc(k - 1, q)), i2


def _chow(
    total: SufficientStatistics, fits: list[LeastSquares], fit_intercept: bool
) -> HypothesisTest:
    hypothesis = f"equal coefficients at {len(fits)} sites"
    restricted = least_squares(total, 0.0, fit_intercept=fit_intercept)
    rss = sum(float(fit.rss[0]) for fit in fits)
    freedom = sum(fit.residual_freedom for fit in fits)
    fewer = restricted.residual_freedom - freedom
    value = max((float(restricted.rss[0]) - rss) / fewer / (rss / freedom), 0.0)
    p = float(fdtrc(fewer, freedom, value))
    return HypothesisTest("F", value, fewer, freedom, p, hypothesis)
