"""`infer`: standard errors, tests and intervals from the statistics of one round."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ..._checks import as_number, check_choice, check_flag, must_be
from ..._text import counted
from ..._types import Array
from ...errors import FedRidgeError, IllConditionedWarning, StatisticsError
from ..alpha.alpha_selection import AlphaSelection
from ..least_squares import LeastSquares, least_squares
from ..normal_equations import Statistics
from ..sites.site_parts import (
    Parts,
    check_parts,
    feature_labels,
    named_parts,
    target_labels,
)
from .inference_numbers import (
    FEWEST_SITES,
    cancellation_remedy,
    coefficient_tests,
    constant_targets,
    f_test,
    goodness,
    notes_of,
    sandwich,
)
from .inference_result import Inference, entry_of
from .residual_moments import POWERS, ResidualMoments

__all__ = ["COVARIANCES", "FewSitesWarning", "Inference", "infer"]

COVARIANCES = ("classical", "CR0", "CR1", *POWERS)
_HALF_THE_DIGITS = 8.0


class FewSitesWarning(UserWarning):
    """Cluster-robust standard errors of few sites are too small on average.

    They are correct for many sites. Below ten, their tests reject far too often, even
    more so with the normal distribution: use ``use_t=True``, or classical standard
    errors of a model with fixed site effects.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from fedridge_flwr import FewSitesWarning, SufficientStatistics, infer
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 1)), rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::4], y[k::4]) for k in range(4)]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FewSitesWarning)
    ...     found = infer(sum(parts), parts=parts, covariance="CR1")
    >>> print(caught[0].message)
    cluster-robust standard errors of 4 sites are too small on average, and their \
tests reject too often: use at least 10 sites, or use_t=True.
    """


def infer(
    stats: Statistics,
    alpha: float | AlphaSelection = 0.0,
    *,
    fit_intercept: bool = True,
    standardize: bool = False,
    level: float = 0.95,
    parts: Parts | None = None,
    covariance: str = "classical",
    residuals: ResidualMoments | None = None,
    use_t: bool | None = None,
) -> Inference:
    """Return standard errors, tests and intervals of ``solve(stats, alpha)``.

    At alpha = 0 everything equals ordinary least squares on the pooled rows, as
    statsmodels reports it; statistics of weighted rows equal WLS. Without an intercept
    R², adjusted R² and F are uncentred, unless a combination of columns is constant, as
    all indicators of a category are: then they are those of the same model with an
    intercept. statsmodels does the same (R does not, and robust F of such columns is
    NaN in statsmodels). A combination that varies by less than about 1e-7 of its size,
    as shares rounded to eight decimals do, is constant here, and not in statsmodels.
    For alpha > 0 the
    covariance is the usual one of ridge regression, ``sigma² A^-1 G A^-1`` with
    ``A = G + alpha P`` and ``sigma² = RSS / (n - trace(A^-1 G))``. It describes how the
    *biased* estimate varies: intervals are not centred at the true coefficients, and
    do not know that alpha was chosen with the same rows.

    Parameters
    ----------
    stats : SufficientStatistics or TriangularStatistics
        Statistics of all rows; triangular ones keep more digits.
    alpha : float or AlphaSelection
        Penalty, zero or more; or the choice that `select_alpha` returned, which is then
        named in the summary.
    fit_intercept, standardize : bool
        As in `solve`. The scales of ``standardize=True`` are taken as known.
    level : float
        Level of the confidence intervals.
    parts : mapping or iterable of SufficientStatistics, optional
        Statistics by site, which cluster-robust standard errors need.
    covariance : {"classical", "CR0", "CR1", "HC0", "HC1", "HC2", "HC3"}
        "classical": rows are independent with one variance. "CR0", "CR1": only *sites*
        are independent (cluster-robust or sandwich standard errors); CR1 has the
        small-sample factor ``g / (g - 1) (n - 1) / (n - df)`` for g sites, as in
        statsmodels and Stata. "HC0" to "HC3": rows are independent with different
        variances; HC1 has the factor ``n / (n - df)``, HC2 and HC3 use leverages. All
        HC need `residuals`.
    residuals : ResidualMoments, optional
        Sums of squared residuals times x x' over all rows, which the statistics do not
        have. ``FedRidge(standard_errors="HC3")`` asks for them in one more round.
    use_t : bool, optional
        Test by the t distribution or by the normal one. By default t with the
        residual degrees of freedom for "classical" and the normal one for all others,
        as in statsmodels; True then takes t with g - 1 for cluster-robust, and with
        the residual degrees of freedom for HC.

    Returns
    -------
    Inference
        ``print`` it, or take ``tidy()``, ``glance()``, ``plot()``, ``predict(X)``.

    Raises
    ------
    SingularSystemError
        If the data do not determine the coefficients.
    StatisticsError
        If the targets do not vary, there are no more rows than coefficients, `parts` or
        `residuals` are not of the rows of `stats`, or the statistics are noisy or
        incomplete.
    FedRidgeError
        If another argument is not valid.

    Warns
    -----
    FewSitesWarning
        If cluster-robust standard errors have fewer than ten sites.
    IllConditionedWarning
        As in `solve`; also if the fit is so good that the residual sum of squares, a
        difference of sums, lost more than half of its digits.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, infer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(120, 2))
    >>> y = X[:, 0] + rng.normal(size=120)
    >>> parts = [SufficientStatistics.from_data(X[k::12], y[k::12]) for k in range(12)]
    >>> found = infer(sum(parts))
    >>> found.se.round(4)
    array([0.0934, 0.0946, 0.0909])
    >>> infer(sum(parts), parts=parts, covariance="CR1").se.round(4)
    array([0.1149, 0.107 , 0.098 ])
    """
    chosen_by = ""
    if isinstance(alpha, AlphaSelection):
        chosen_by, alpha = alpha.describe(), alpha.alpha
    check_choice("covariance", covariance, COVARIANCES)
    level = _check_level(level)
    fit = least_squares(
        stats, alpha, fit_intercept=fit_intercept, standardize=standardize
    )
    _refuse_constant(fit)
    by_site = covariance.startswith("CR")
    if by_site and parts is None:
        raise FedRidgeError(
            f"covariance={covariance!r} needs the statistics of every site: parts=..."
        )
    sites = None if parts is None else named_parts(parts, fewest=2 if by_site else 1)
    if sites is not None:
        check_parts(sites, fit.stats)
    n_sites, freedom = fit.stats.n_clients, fit.residual_freedom
    if sites is not None:
        n_sites = len(sites)
    if by_site and sites is not None:
        scores = np.stack([fit.scores(part) for part in sites.values()])
        centred = sandwich(fit, np.einsum("gtp,gtq->tpq", scores, scores))
        if covariance == "CR1":
            centred *= n_sites / (n_sites - 1) * (fit.stats.count - 1) / freedom
        freedom = n_sites - 1.0
        if n_sites < FEWEST_SITES:
            _warn_few_sites(n_sites, fit.coef.shape[0], use_t)
    elif covariance in POWERS:
        fit.check_freedom()
        centred = sandwich(fit, _residual_meat(fit, covariance, residuals))
        if covariance == "HC1":
            centred *= fit.stats.count / freedom
    else:
        centred = fit.centred_covariance * fit.sigma2[:, None, None]
    if fit.digits_lost > _HALF_THE_DIGITS:
        warnings.warn(
            f"the residual sum of squares lost {fit.digits_lost:.0f} of 16 digits to "
            "cancellation, and so did the standard errors: "
            f"{cancellation_remedy(fit)}.",
            IllConditionedWarning,
            stacklevel=2,
        )
    classical = covariance == "classical"
    by_t = classical if use_t is None else check_flag("use_t", use_t)
    return inference_of(
        fit,
        centred,
        n_sites=n_sites,
        df_test=freedom if by_t else math.inf,
        df_f=freedom,
        level=level,
        covariance=covariance,
        alpha_chosen_by=chosen_by,
    )


def inference_of(
    fit: LeastSquares,
    centred: Array,
    *,
    covariance: str,
    level: float,
    n_sites: int,
    df_test: float,
    df_f: float,
    alpha_chosen_by: str = "",
) -> Inference:
    """Return all numbers of a fit with this covariance in centred coordinates."""
    stats, robust = fit.stats, covariance != "classical"
    found = coefficient_tests(fit, centred, df_test=df_test, level=level)
    found |= goodness(fit) | f_test(fit, centred if robust else None, df_f)
    found["centred_covariance"] = centred
    f_df = found.pop("f_df")
    if stats.n_targets == 1:
        found = {name: entry_of(value, 0) for name, value in found.items()}
    terms = feature_labels(stats.schema)
    return Inference(
        terms=("intercept", *terms) if fit.has_intercept else terms,
        targets=target_labels(stats.schema),
        **found,
        f_df=f_df,
        df=fit.freedom,
        df_residual=fit.residual_freedom,
        df_test=df_test,
        n_rows=stats.count,
        n_sites=n_sites,
        total_weight=stats.total_weight,
        alpha=fit.alpha,
        alpha_chosen_by=alpha_chosen_by,
        covariance=covariance,
        level=level,
        fit_intercept=fit.has_intercept,
        has_constant=fit.has_constant,
        standardize=fit.equations.standardize,
        digits_lost=fit.digits_lost,
        notes=notes_of(fit, covariance, n_sites),
        means=stats.feature_means,
    )


def _refuse_constant(fit: LeastSquares) -> None:
    """Say that there is nothing to test, where every target is the same in all rows."""
    if constant_targets(fit).all():
        raise StatisticsError(
            "the outcome does not vary over the rows of all clients: there is nothing "
            "to explain or to test."
        )


def _residual_meat(
    fit: LeastSquares, kind: str, residuals: ResidualMoments | None
) -> Array:
    """Return sums of e² x x' in centred coordinates, if they are of this fit."""
    if residuals is None:
        raise FedRidgeError(
            f"covariance={kind!r} needs the squared residuals of all rows, which the "
            f'statistics do not have: FedRidge(standard_errors="{kind}") asks for them '
            "in one more round, or residuals=ResidualMoments.from_data(...)."
        )
    power = residuals.probe.power
    if not residuals.is_about(fit.coef) or power != POWERS[kind]:
        raise StatisticsError(
            f"the residuals are of another model, or not for {kind}: make them with "
            "the same statistics, alpha, fit_intercept, standardize and kind."
        )
    if residuals.count != fit.stats.count:
        raise StatisticsError(
            f"the residuals are of {counted(residuals.count, 'row')} and stats of "
            f"{fit.stats.count}: robust standard errors need those of every site."
        )
    if fit.has_intercept:
        return residuals.about(fit.stats.feature_means).matrices
    return residuals.about(np.zeros(len(fit.coef))).matrices[:, 1:, 1:]


def _warn_few_sites(n_sites: int, slopes: int, use_t: bool | None) -> None:
    remedy = f"use at least {FEWEST_SITES} sites"
    if n_sites <= slopes:
        remedy += ", or classical ones with an intercept for every site"
    elif not use_t:
        remedy += ", or use_t=True"
    warnings.warn(
        f"cluster-robust standard errors of {counted(n_sites, 'site')} are too small "
        f"on average, and their tests reject too often: {remedy}.",
        FewSitesWarning,
        stacklevel=3,
    )


def _check_level(level: Any) -> float:
    number = as_number(level)
    if not 0.0 < number < 1.0:
        raise must_be("level", "between 0 and 1", level)
    return number
