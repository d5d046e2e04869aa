"""What every site changes in the model, and how well the model fits it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

import numpy as np

from ..._types import Array
from ...errors import SingularSystemError, StatisticsError
from ...statistics.sufficient import SufficientStatistics
from ..alpha.leave_client_out import each_rest, total_of
from ..inference.named_matrix import NamedMatrix
from ..least_squares import LeastSquares, least_squares
from ..normal_equations import FitOptions, mean_r2
from .site_parts import Parts, feature_labels, named_parts, one_target

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False, repr=False)
class SiteInfluence:
    """The influence of every site on the model, and how well the model fits its rows.

    Parameters
    ----------
    change : NamedMatrix
        By site and term, coefficient of all rows less that without the site.
    fit : NamedMatrix
        By site: rows; mean residual; residual_sd, root mean squared residual; r2, by
        comparison with the site's own mean, NaN where y does not vary; leverage, the
        share of the model's degrees of freedom that the site takes, which is the sum
        of its rows' leverages; cook, Cook's distance of the whole site.
    left_out : dict of str to str
        Sites without which there is no model, and why.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import site_influence
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    >>> y[2::3] += 5.0
    >>> parts = {n: SufficientStatistics.from_data(X[k::3], y[k::3])
    ...          for k, n in enumerate("abc")}
    >>> print(site_influence(parts).fit)
       rows  mean_residual  residual_sd      r2  leverage   cook
    a    20          -1.84        2.335  -3.778    0.3745  4.713
    b    20         -1.096        1.493  -2.348    0.3712  1.334
    c    20          2.936        3.091  -8.503    0.2543  11.85
    """

    change: NamedMatrix
    fit: NamedMatrix
    left_out: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = ["How the model fits each site", str(self.fit), ""]
        lines += ["Coefficients of all rows less those without the site"]
        lines.append(str(self.change))
        lines += [
            f"no model without {site}: {why}" for site, why in self.left_out.items()
        ]
        return "\n".join(lines)


def site_influence(
    parts: Parts, alpha: float = 0.0, **options: Unpack[FitOptions]
) -> SiteInfluence:
    """Return how the model changes without each of the sites, and how it fits them.

    Parameters
    ----------
    parts : mapping or iterable of SufficientStatistics
        Statistics by site, of one target.
    alpha : float
        Penalty.
    **options
        fit_intercept and standardize, as in `solve`.

    Returns
    -------
    SiteInfluence
        Changes of the coefficients, residuals, leverage and Cook's distance by site.

    Raises
    ------
    StatisticsError
        If there are fewer than two sites, or several targets.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import site_influence
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 1)), rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::3], y[k::3]) for k in range(3)]
    >>> site_influence(parts).change.columns
    ('intercept', 'x0')
    """
    sites = named_parts(parts, fewest=2)
    fit = least_squares(one_target(total_of(sites)), alpha, **options)
    names = feature_labels(fit.stats.schema)
    terms = ("intercept", *names) if fit.has_intercept else names
    changes: dict[str, Array] = {}
    cooks = dict.fromkeys(sites, float("nan"))
    left_out = {}
    metric = np.linalg.inv(fit.centred_covariance) / float(fit.sigma2[0])
    for site, rest in each_rest(sites, set(sites)):
        try:
            without = least_squares(rest, alpha, **options)
        except (SingularSystemError, StatisticsError) as error:
            left_out[site] = str(error)
            changes[site] = np.full(len(terms), np.nan)
            continue
        changes[site] = (fit.estimates - without.estimates)[0]
        centred = changes[site].copy()
        if fit.has_intercept:
            centred[0] += fit.stats.feature_means @ centred[1:]
        cooks[site] = float(centred @ metric @ centred / len(terms))
    rows = [[*_own_numbers(fit, sites[site]), cooks[site]] for site in sites]
    columns = ["rows", "mean_residual", "residual_sd", "r2", "leverage", "cook"]
    return SiteInfluence(
        NamedMatrix(np.stack([changes[site] for site in sites]), list(sites), terms),
        NamedMatrix(np.array(rows), list(sites), columns),
        left_out,
    )


def _own_numbers(fit: LeastSquares, part: SufficientStatistics) -> list[float]:
    mean, rss = fit.residuals_of(part)
    shift, weight = part.feature_means, part.total_weight
    if fit.has_intercept:
        shift = shift - fit.stats.feature_means
    own = part.centred_gram + weight * np.outer(shift, shift)
    taken = float(np.einsum("ij,ij->", fit.inverse, own))
    if fit.has_intercept:
        taken += weight / fit.stats.total_weight
    spread, deviations = float(np.sqrt(rss[0] / weight)), part.centred_target_gram
    r2 = mean_r2(rss, np.diagonal(deviations), weight, part.target_means)
    known = float("nan") if r2 is None else r2
    return [part.count, float(mean[0]), spread, known, taken / fit.freedom]
