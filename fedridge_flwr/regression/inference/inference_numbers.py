"""The numbers of inference: covariances, tests, information criteria, and notes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtr, ndtri, stdtr, stdtrit

from ..._types import Array
from ...linalg.packed import mean_rounding
from ..least_squares import LeastSquares, from_centred
from ..sites.site_parts import target_labels

FEWEST_SITES = 10
_WORTH_TELLING = 4.0
_ASSUMED = {
    "cl": "Standard errors assume independent rows with one variance.",
    "CR": "Standard errors allow for any dependence and variances within a site; sites "
    "are independent.",
    "HC": "Standard errors allow for another variance in every row; rows are "
    "independent.",
}


def quantile(level: float, df: float) -> float:
    """Return the two-sided quantile of t, or of the normal distribution at infinity.

    Examples
    --------
    >>> round(quantile(0.95, math.inf), 4), round(quantile(0.95, 10), 4)
    (1.96, 2.2281)
    """
    upper = (1.0 + level) / 2.0
    return float(stdtrit(df, upper) if math.isfinite(df) else ndtri(upper))


def two_sided(ratio: Array, df: float) -> Array:
    """Return two-sided p-values of t, or of the normal distribution at infinity."""
    lower = -np.abs(ratio)
    tail = stdtr(df, lower) if math.isfinite(df) else ndtr(lower)
    return np.asarray(2.0 * tail)


def sandwich(fit: LeastSquares, meat: Array) -> Array:
    """Return A^-1 M A^-1 for M of shape (t, p, p) in centred coordinates."""
    return np.asarray(fit.bread @ meat @ fit.bread)


def with_tests(
    estimates: Array, covariance: Array, *, df_test: float, level: float
) -> dict[str, Any]:
    """Return estimates (t, p), standard errors, tests and intervals.

    Parameters
    ----------
    estimates : ndarray of shape (t, p)
        Coefficients.
    covariance : ndarray of shape (t, p, p)
        Their covariance.
    df_test : float
        Degrees of freedom of t; infinite for the normal distribution.
    level : float
        Level of the intervals.
    """
    se = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = estimates / se
    half = quantile(level, df_test) * se
    return {
        "coefficients": estimates,
        "se": se,
        "t": ratio,
        "p": two_sided(ratio, df_test),
        "ci": np.stack([estimates - half, estimates + half], axis=-1),
    }


def coefficient_tests(
    fit: LeastSquares, centred: Array, *, df_test: float, level: float
) -> dict[str, Any]:
    """Return the same for a fit and a covariance (t, p, p) in centred coordinates."""
    raw = centred
    if fit.has_intercept:
        raw = from_centred(centred, fit.stats.feature_means)
    return with_tests(fit.estimates, raw, df_test=df_test, level=level)


def goodness(fit: LeastSquares) -> dict[str, Any]:
    """Return R², residual error and information criteria, by target."""
    n, weight, df = fit.stats.count, fit.stats.total_weight, fit.freedom
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = 1.0 - fit.rss / fit.total
        likelihood = -n / 2 * (np.log(2 * np.pi * fit.rss / weight) + 1.0)
    rows = n - int(fit.has_constant)
    return {
        "r2": r2,
        "adjusted_r2": 1.0 - rows / fit.residual_freedom * (1.0 - r2),
        "sigma": np.sqrt(fit.sigma2),
        "log_likelihood": likelihood,
        "aic": -2.0 * likelihood + 2.0 * df,
        "bic": -2.0 * likelihood + math.log(n) * df,
    }


def f_test(fit: LeastSquares, centred: Array | None, freedom: float) -> dict[str, Any]:
    """Return the test that all slopes are zero, by the covariance if one is given.

    If other columns imply a constant, it is the test that all predictions are equal.
    For alpha > 0 there is none, and the covariance of g sites has rank g - 1 at most.
    """
    d, first = fit.coef.shape[0], int(fit.has_intercept)
    tested = d - int(fit.constant is not None)
    if fit.alpha > 0 or tested == 0 or (centred is not None and tested > freedom):
        found = np.full(fit.rss.shape, math.nan)
    elif centred is None:
        # What the constant explains is no gain.
        gain = fit.explained if fit.constant is None else fit.total - fit.rss
        with np.errstate(divide="ignore", invalid="ignore"):
            found = gain / tested / fit.sigma2
    else:
        slopes, coef = centred[:, first:, first:], fit.coef.T
        if fit.constant is not None:
            R = _contrasts(fit.constant)
            slopes, coef = R @ slopes @ R.T, coef @ R.T
        found = np.array(
            [wald(*each) / tested for each in zip(coef, slopes, strict=True)]
        )
    p = fdtrc(tested, freedom, found) if tested else found
    return {"f": found, "f_p": p, "f_df": (float(tested), float(freedom))}


def _contrasts(constant: Array) -> Array:
    """Return R with R b = 0 exactly where b is a multiple of `constant`."""
    largest = int(np.argmax(np.abs(constant)))
    ratios = constant / constant[largest]
    found = np.eye(constant.size)
    found[:, largest] -= ratios
    return np.delete(found, largest, axis=0)


def wald(distance: Array, covariance: Array) -> float:
    """Return d' C^-1 d, by the correlations: units cost no digits.

    It is NaN where C is singular, as with residuals that are all zero.
    """
    variances = np.diagonal(covariance)
    if not (np.isfinite(covariance).all() and (variances > 0).all()):
        return math.nan
    scale = 1.0 / np.sqrt(variances)
    correlation = covariance * np.outer(scale, scale)
    scaled = distance * scale
    try:
        return float(scaled @ np.linalg.solve(correlation, scaled))
    except np.linalg.LinAlgError:
        return math.nan


def cancellation_remedy(fit: LeastSquares) -> str:
    """Return what keeps the digits of a small residual sum of squares."""
    if fit.rows is not None:
        return "the fit is exact to rounding"
    return "the triangular form of the statistics does not lose them"


def constant_targets(fit: LeastSquares) -> NDArray[np.bool_]:
    """Return which targets are the same in all rows, up to rounding."""
    stats = fit.stats
    least = stats.total_weight * mean_rounding(stats.target_means)
    return np.asarray(fit.has_constant & (np.asarray(fit.total) <= least))


def notes_of(fit: LeastSquares, covariance: str, n_sites: int) -> tuple[str, ...]:
    """Return what is assumed, and what the numbers leave out."""
    stats, notes = fit.stats, [_ASSUMED[covariance[:2]]]
    if covariance.startswith("CR") and n_sites < FEWEST_SITES:
        notes.append(
            f"With only {n_sites} sites these standard errors are too small on "
            "average, and tests reject too often."
        )
    if not fit.has_constant:
        notes.append(
            "There is no intercept: R², adjusted R² and F are uncentred, that is they "
            "compare with a prediction of 0 and not of the mean."
        )
    elif not fit.has_intercept:
        notes.append(
            "There is no intercept, but columns that add up to a constant: R², "
            "adjusted R² and F compare with the mean, as with an intercept (in R: 0)."
        )
    if fit.alpha > 0:
        notes.append(
            f"Ridge with alpha {fit.alpha:g}: estimates are shrunk towards zero. "
            "Standard errors and intervals are about their expectation; they leave out "
            "this bias, and the choice of alpha."
        )
    if abs(stats.total_weight - stats.count) > 1e-9 * stats.count:
        notes.append(
            "Weighted rows: log-likelihood, AIC and BIC lack a constant of the weights."
        )
    flat = np.flatnonzero(constant_targets(fit))
    if flat.size:
        labels = target_labels(stats.schema)
        notes.append(
            f"{', '.join(labels[k] for k in flat)} does not vary over the rows of all "
            "clients: its standard errors and tests mean nothing."
        )
    if fit.digits_lost >= _WORTH_TELLING:
        notes.append(
            f"The residual sum of squares lost {fit.digits_lost:.0f} of 16 digits to "
            f"cancellation; {cancellation_remedy(fit)}."
        )
    if stats.rounding:
        notes.append("Statistics came as float32: six or seven digits at most.")
    return tuple(notes)
