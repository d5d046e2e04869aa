"""One intercept for every site, from co-moments within sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import fdtrc

from ...statistics.moments import Moments
from ...statistics.sufficient import SufficientStatistics
from ..alpha.leave_client_out import total_of
from ..inference.hypothesis_tests import HypothesisTest
from ..inference.infer import inference_of
from ..inference.inference_result import Inference
from ..inference.inference_text import coefficient_cells
from ..least_squares import LeastSquares, least_squares
from ..printed_table import number, plain
from .site_parts import Parts, named_parts, one_target

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False, repr=False)
class FixedSiteEffects:
    """Regression with one intercept for every site.

    Parameters
    ----------
    inference : Inference
        Coefficients of the features; R² and F count the site effects as explained.
    effects, se : dict of str to float
        Intercept of every site, and its standard error.
    equal : HypothesisTest
        F test that all intercepts are the same.
    r2_within : float
        Share of the variance within sites that the features explain.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import fixed_site_effects
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    >>> y[2::3] += 5.0
    >>> parts = {n: SufficientStatistics.from_data(X[k::3], y[k::3])
    ...          for k, n in enumerate("abc")}
    >>> found = fixed_site_effects(parts)
    >>> {site: round(effect, 2) for site, effect in found.effects.items()}
    {'a': -0.13, 'b': 0.11, 'c': 4.9}
    >>> print(found.equal)
    equal intercepts at 3 sites: F(2, 55) = 146.1, p < 2e-16
    """

    inference: Inference
    effects: dict[str, float]
    se: dict[str, float]
    equal: HypothesisTest
    r2_within: float

    def __repr__(self) -> str:
        sites = [
            [site, number(effect), number(self.se[site])]
            for site, effect in self.effects.items()
        ]
        found = self.inference
        lines = [
            f"Intercept for each of {len(sites)} sites, target {found.targets[0]}, "
            f"{found.n_rows} rows",
            f"R² within sites {number(self.r2_within)}, {self.equal}",
            "",
            plain(*coefficient_cells(found)),
            "",
            plain(["site", "intercept", "std err"], sites),
        ]
        return "\n".join(lines)


def fixed_site_effects(
    parts: Parts, alpha: float = 0.0, *, level: float = 0.95
) -> FixedSiteEffects:
    """Return the regression with an intercept for every site, from co-moments within.

    It equals a pooled regression with one unpenalised dummy column per site, without
    creating those columns.

    Parameters
    ----------
    parts : mapping or iterable of SufficientStatistics
        Statistics by site, of one target.
    alpha : float
        Penalty of the features.
    level : float
        Level of the confidence intervals.

    Returns
    -------
    FixedSiteEffects
        Coefficients, site effects and the test that those are equal.

    Raises
    ------
    SingularSystemError
        If a feature varies at no site: it cannot be distinguished from the site
        effects.
    StatisticsError
        If there are fewer than two sites, several targets, or too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import fixed_site_effects
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::3], y[k::3]) for k in range(3)]
    >>> fixed_site_effects(parts).inference.terms
    ('x0', 'x1')
    """
    sites = named_parts(parts, fewest=2)
    total = one_target(total_of(sites))
    fit = least_squares(within_sites(sites), alpha).with_intercepts(len(sites))
    coef, sigma2 = fit.coef[:, 0], float(fit.sigma2[0])
    effects, errors = {}, {}
    for site, part in sites.items():
        means = part.feature_means
        effects[site] = float(part.target_means[0] - means @ coef)
        variance = 1.0 / part.total_weight + means @ fit.slopes_covariance @ means
        errors[site] = float(np.sqrt(sigma2 * variance))
    found = _slopes_only(fit, total, level, len(sites))
    one = least_squares(total, alpha)
    fewer = len(sites) - 1.0
    gain = float(one.rss[0] - fit.rss[0])
    value = max(gain / fewer / sigma2, 0.0) if alpha == 0.0 else float("nan")
    freedom = fit.residual_freedom
    equal = HypothesisTest(
        "F",
        value,
        fewer,
        freedom,
        float(fdtrc(fewer, freedom, value)),
        f"equal intercepts at {len(sites)} sites",
    )
    within = 1.0 - float(fit.rss[0] / fit.tss[0]) if fit.tss[0] > 0 else float("nan")
    return FixedSiteEffects(found, effects, errors, equal, within)


def within_sites(sites: Mapping[str, SufficientStatistics]) -> SufficientStatistics:
    """Return the statistics of all rows, each less the mean of its site."""
    first = next(iter(sites.values()))
    triangle = reduce(np.add, (part.triangle for part in sites.values()))
    zero = np.zeros_like(first.means)
    weight = sum(part.total_weight for part in sites.values())
    return SufficientStatistics.of_moments(
        Moments(weight, zero, triangle, zero.copy()),
        count=sum(part.count for part in sites.values()),
        schema=first.schema,
        n_clients=len(sites),
        rounding=max(part.rounding for part in sites.values()),
    )


def _slopes_only(
    fit: LeastSquares, total: SufficientStatistics, level: float, n_sites: int
) -> Inference:
    """Return the inference of the features, with R² and F as with dummy columns."""
    found = inference_of(
        fit,
        fit.centred_covariance * fit.sigma2[:, None, None],
        covariance="classical",
        level=level,
        n_sites=n_sites,
        df_test=fit.residual_freedom,
        df_f=fit.residual_freedom,
    )
    rss, tss = float(fit.rss[0]), float(total.centred_target_gram[0, 0])
    rows, freedom = total.count, fit.residual_freedom
    fewer = rows - 1.0 - freedom
    r2 = 1.0 - rss / tss if tss > 0 else float("nan")
    f = (tss - rss) / fewer / (rss / freedom) if fit.alpha == 0 else float("nan")
    return replace(
        found,
        terms=found.terms[1:],
        **{name: getattr(found, name)[1:] for name in ("coefficients", "se", "t", "p")},
        ci=found.ci[1:],
        centred_covariance=found.centred_covariance[1:, 1:],
        fit_intercept=False,
        has_constant=True,
        r2=r2,
        adjusted_r2=1.0 - (rows - 1) / freedom * (1.0 - r2),
        f=f,
        f_p=float(fdtrc(fewer, freedom, f)),
        f_df=(fewer, freedom),
        notes=(*found.notes, "Every site has an intercept of its own."),
    )
