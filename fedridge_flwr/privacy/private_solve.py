"""From noisy statistics and alpha to a model, its intercept included."""

import math
from dataclasses import dataclass, replace

import numpy as np

from .._types import Array
from ..errors import PrivacyError
from ..regression.model import RidgeModel
from ..regression.solve import sklearn_shapes
from .estimators import NoisyEquations, estimate
from .noisy_statistics import PrivateStatistics
from .refinement.coefficients import ResidualRefinement, first_clip

# Below this many deviations the number of rows is not known well enough to divide by.
_KNOWN = 4.0
# A single number counts for something from two deviations of its noise on.
_SEEN = 2.0


@dataclass(frozen=True)
class Centred(NoisyEquations):
    """Noisy normal equations about the noisy means, and the number of rows if known.

    The means are shrunk towards zero by the noise in them: all the way where they are
    noise only, not at all as the noise vanishes.
    """

    feature_means: Array
    target_means: Array
    count: float | None


def centre(stats: PrivateStatistics, *, fit_intercept: bool) -> Centred:
    """Return the equations for the coefficients, about the means with an intercept."""
    d, t = stats.n_features, stats.n_targets
    gram, gram_sd = stats.gram, stats.gram_sd
    moment, moment_sd = stats.moment, stats.moment_sd
    nothing = Centred(
        gram[:d, :d], moment[:d], gram_sd, moment_sd, np.zeros(d), np.zeros(t), None
    )
    if not stats.bounds.intercept:
        if fit_intercept:
            raise PrivacyError("no intercept in this release: use fit_intercept=False.")
        return nothing
    constant = stats.bounds.constant * stats.bounds.x_step
    count, count_sd = float(gram[d, d]) / constant**2, gram_sd / constant**2
    known = count if count > _KNOWN * count_sd else None
    if not fit_intercept or count <= _SEEN * count_sd:
        return replace(nothing, count=known)
    # A noisy number of rows is a poor divisor: it is shrunk by its own noise.
    rows = count + count_sd**2 / count
    sums, sums_sd = gram[:d, d] / constant, gram_sd / math.sqrt(2.0) / constant
    target_sums, noise = moment[d] / constant, _SEEN * (moment_sd / constant) / rows
    each_mean = (target_sums / rows)[:, None]
    target_means = np.array([_shrunk(mean, noise)[0] for mean in each_mean])
    # Means of features are squared in G: only where the divisor is a good one.
    means = np.zeros(d) if known is None else _shrunk(sums / rows, sums_sd / rows)
    spread = np.outer(sums, means)
    # Noise of the sums comes in with the means it is multiplied by.
    added = 2 * sums_sd * float(np.linalg.norm(means)) / math.sqrt(d)
    return Centred(
        gram=nothing.gram - spread - spread.T + count * np.outer(means, means),
        moment=nothing.moment
        - np.outer(sums, target_means)
        - np.outer(means, target_sums)
        + count * np.outer(means, target_means),
        gram_sd=math.hypot(gram_sd, added),
        moment_sd=math.hypot(moment_sd, sums_sd * float(np.abs(target_means).max())),
        feature_means=means,
        target_means=target_means,
        count=known,
    )


def solve_private(
    stats: PrivateStatistics, alpha: float = 1.0, *, fit_intercept: bool = True
) -> RidgeModel:
    """Return the ridge model of noisy statistics, by the estimator of their mechanism.

    Minimises ``||y - X w - b||² + alpha ||w||²`` approximately: it tends to `solve` of
    the clipped rows as the noise vanishes, and to coefficients of 0 as it grows. R² is
    known only where a share of the budget went to "target_gram".

    Parameters
    ----------
    stats : PrivateStatistics
        Noisy sums, typically of several clients; with ``trust="server"``, after
        `PrivateStatistics.with_server_noise`.
    alpha : float
        Penalty, zero or more.
    fit_intercept : bool
        Whether there is an intercept; it must have been part of the release.

    Returns
    -------
    RidgeModel
        The model; its number of rows is noisy, or None.

    Raises
    ------
    PrivacyError
        If the server's noise is missing, or the release has no intercept.
    StatisticsError
        If alpha is negative or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import DifferentialPrivacy, solve_private
    >>> from fedridge_flwr.privacy import private_statistics
    >>> privacy = DifferentialPrivacy(2.0, 1e-6, x_norm_bound=1.0, y_bound=3.0)
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(9000, 1))
    >>> y = 2 * X[:, 0] + 1
    >>> parts = [private_statistics(X[k::3], y[k::3], privacy) for k in range(3)]
    >>> model = solve_private(sum(parts), alpha=1.0)
    >>> bool(abs(model.coef_[0] - 2) < 0.5), model.n_clients_
    (True, 3)
    """
    if not isinstance(stats, PrivateStatistics):
        raise PrivacyError(
            f"solve_private needs PrivateStatistics, got {type(stats).__name__}."
        )
    if stats.privacy.trust == "server" and not stats.server_noise:
        raise PrivacyError(
            "these sums lack the server's noise: call with_server_noise() on their sum."
        )
    return solve_release(stats, alpha, fit_intercept=fit_intercept)


def solve_release(
    stats: PrivateStatistics, alpha: float, *, fit_intercept: bool
) -> RidgeModel:
    """Return the model of one round, whatever its estimator."""
    if not stats.privacy.uses_residuals:
        equations = centre(stats, fit_intercept=fit_intercept)
        return solve_centred(stats, equations, alpha, fit_intercept=fit_intercept)
    bounds, privacy = stats.bounds, stats.privacy
    clip = first_clip(privacy.x_norm_bound, privacy.y_bound)
    refinement = ResidualRefinement(bounds, alpha, clip, privacy.expected_r2)
    refinement.update(stats)
    return refined_model(stats, refinement, alpha, fit_intercept=fit_intercept)


def refined_model(
    first: PrivateStatistics,
    refinement: ResidualRefinement,
    alpha: float,
    *,
    fit_intercept: bool,
) -> RidgeModel:
    """Return the model that residual refinement has reached."""
    d, bounds, coef = first.n_features, first.bounds, refinement.coef
    intercept = 0.0
    if bounds.intercept:
        intercept = float(coef[d]) * bounds.constant * bounds.x_step
    return RidgeModel(
        coef=coef[:d].copy(),
        intercept=intercept,
        alpha=alpha,
        fit_intercept=fit_intercept,
        feature_names=first.schema.features,
        n_rows=None if refinement.blind else round(first.count),
        n_clients=first.n_clients,
    )


def solve_centred(
    stats: PrivateStatistics, equations: Centred, alpha: float, *, fit_intercept: bool
) -> RidgeModel:
    """Return the model of noisy statistics from the equations that `centre` made."""
    coef = estimate(stats.privacy.estimator, equations, alpha)
    intercepts = equations.target_means - equations.feature_means @ coef
    found, intercept = sklearn_shapes(coef, intercepts if fit_intercept else None)
    return RidgeModel(
        coef=found,
        intercept=intercept,
        alpha=alpha,
        fit_intercept=fit_intercept,
        feature_names=stats.schema.features,
        n_rows=None if equations.count is None else round(equations.count),
        n_clients=stats.n_clients,
        r2=_noisy_r2(stats, equations, coef),
    )


def _shrunk(mean: Array, sd: float) -> Array:
    """Return the positive-part James-Stein estimate of a mean with noise of this sd."""
    energy = float(mean @ mean)
    if energy == 0.0:
        return mean
    return mean * max(0.0, 1.0 - mean.size * sd**2 / energy)


def _noisy_r2(
    stats: PrivateStatistics, equations: Centred, coef: Array
) -> float | None:
    target_gram = stats.target_gram
    if target_gram is None or equations.count is None:
        return None
    total = np.diagonal(target_gram) - equations.count * equations.target_means**2
    if (total <= 2 * stats.target_gram_sd).any():
        return None
    slope = 2 * equations.moment - equations.gram @ coef
    explained = np.einsum("dt,dt->t", coef, slope)
    return float(np.clip(np.mean(explained / total), -1.0, 1.0))
