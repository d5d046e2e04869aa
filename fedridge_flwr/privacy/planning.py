"""What noise will cost, before anything is released, and what it did cost afterwards.

Predictions are simulations of rows from public numbers alone, with features of equal
variance unless something else is known; the judgement of a model is post-processing of
its noisy statistics. Neither costs privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import check_whole
from .._types import Array
from ..data.rows import check_rows
from ..errors import PrivacyError
from .estimators import NoisyEquations
from .validators import check_number

if TYPE_CHECKING:
    from .mechanism import DifferentialPrivacy
    from .noisy_statistics import PrivateStatistics

# So many rows, or entries of rows, are simulated at most; their sums are multiplied.
_MOST_ROWS, _MOST_ENTRIES = 4000, 2_000_000
_REPEATS = 4
# As far as nothing is known, rows fill so much of their bounds.
_TYPICAL_NORM = 0.9
_EXPLAINED = 1.0 / 3.0
_UNEXPLAINED = 0.1
# A single number counts for something from two deviations of its noise on.
_SEEN = 2.0
_GRAM_SHARES = (0.1, 0.2, 0.35, 0.5)
_SIZES, _DECAY = ("n_features", "n_rows", "n_clients"), "decay"

USABLE_BELOW = 0.15
WEAK_BELOW = 0.5
_RANGE = 0.4, 4.0
"""Where nine of ten simulated losses are, in units of the estimate."""


def predicted_loss(
    privacy: DifferentialPrivacy,
    n_features: int,
    n_rows: int,
    n_clients: int,
    *,
    typical_norm: float | None = None,
    explained_sd: float | None = None,
    decay: float = 0.0,
) -> float:
    """Return the share of the explained variance that noise takes, on average.

    Rows of normal features, feature i of variance ``1/i**decay``, are clipped, summed,
    noised and solved by the code that does it in a fit, without an intercept. Turned by
    a rotation they would be correlated, with the same loss.
    """
    from .private_solve import solve_release

    rng = np.random.default_rng(0)
    length = typical_norm or _TYPICAL_NORM * privacy.x_norm_bound
    scale = np.arange(1, n_features + 1) ** (-decay / 2.0)
    scale *= length / np.linalg.norm(scale)
    sd = explained_sd or _EXPLAINED * privacy.y_bound
    m = min(n_rows, max(_MOST_ROWS, _MOST_ENTRIES // n_features))
    lost = []
    for _ in range(_REPEATS):
        X = scale * rng.normal(size=(m, n_features))
        w = rng.normal(size=n_features)
        w *= sd / np.linalg.norm(scale * w)
        y = X @ w + _UNEXPLAINED * sd * rng.normal(size=m)
        stats = simulated_release(privacy, X, y, n_rows / m, n_clients, rng)
        error = solve_release(stats, 0.0, fit_intercept=False).coef_ - w
        lost.append(float(np.sum((scale * error) ** 2)) / sd**2)
    return float(np.mean(lost))


def simulated_release(
    privacy: DifferentialPrivacy,
    X: Array,
    y: Array,
    times: float,
    n_clients: int,
    rng: np.random.Generator,
    *,
    intercept: bool = False,
) -> Any:
    """Return a noisy sum; the generator is known, so it is for simulated rows only."""
    from .noisy_statistics import PrivateStatistics
    from .refinement.coefficients import first_clip
    from .release import Layout, ReleaseQuestion, make_release

    own = replace(privacy, trust="server")
    clip = first_clip(privacy.x_norm_bound, privacy.y_bound)
    question = ReleaseQuestion(1, None, clip if privacy.uses_residuals else 0.0)
    rows = check_rows(X, y)
    sums = make_release(rows, own, intercept=intercept, question=question) * times
    bounds = own.bounds(rows.n_features, rows.n_targets, intercept)
    layout = Layout(own, bounds, 1)
    sds = np.concatenate([layout.deviations(block) for block in layout.sizes])
    sums += rng.normal(size=len(sums)) * sds * privacy.noise_of(n_clients)
    return PrivateStatistics(
        np.rint(sums), privacy, bounds, n_clients=n_clients, server_noise=True
    )


def choose_release(
    privacy: DifferentialPrivacy, expected: Mapping[str, Any] | None
) -> tuple[str, Mapping[str, float]]:
    """Return estimator and split of one round with the smallest predicted loss."""
    if expected is None or set(expected) - {_DECAY} != set(_SIZES):
        raise PrivacyError(
            'estimator="auto" needs expected={"n_features": ..., "n_rows": ..., '
            '"n_clients": ...} of all clients together, as far as they are public, and '
            'takes "decay" of the variances beside them.'
        )
    sizes: dict[str, Any] = {
        name: check_whole(f"expected[{name!r}]", expected[name], 1, error=PrivacyError)
        for name in _SIZES
    }
    sizes[_DECAY] = check_number("expected['decay']", expected.get(_DECAY, 0.0))
    splits = [{"gram": share, "moment": 1.0 - share} for share in _GRAM_SHARES]
    found = [
        replace(privacy, estimator="noise_aware", budget_split=split, expected=None)
        for split in splits
    ]
    found.append(replace(privacy, estimator="moments", expected=None))
    best = min(found, key=lambda each: predicted_loss(each, **sizes))
    return best.estimator, best.shares(1)


def likely_loss(estimate: float) -> tuple[float, float]:
    """Return the range that had the true loss in nine of ten simulations.

    Where directions of G are not above its noise, their part of the signal is lost, and
    noisy numbers cannot tell how much there was.
    """
    least, most = _RANGE
    return min(least * estimate, 1.0), min(most * estimate, 1.0)


def typical_length(stats: PrivateStatistics) -> float | None:
    """Return the root mean square length of a row, None if noise hides it."""
    d, bounds = stats.n_features, stats.bounds
    if not bounds.intercept:
        return None
    gram = np.diagonal(stats.gram)
    count = float(gram[d]) / (bounds.constant * bounds.x_step) ** 2
    total, noise = float(np.sum(gram[:d])), stats.gram_sd * np.sqrt(d)
    if count <= 0.0 or total <= _SEEN * noise:
        return None
    return min(float(np.sqrt(total / count)), stats.privacy.x_norm_bound)


def noise_over_signal(equations: NoisyEquations, coef: Array) -> float:
    """Return ``L = Σᵢ (s_h² + s_G²|w|²/2) / max(gᵢ, 3 s_G)`` over ``w'G₊w``.

    It is about twice the share of the signal that the noise takes, or as much as that
    share where directions are not above the noise: the numerator is the squared error
    of predictions to first order, gᵢ the eigenvalues of the noisy G and G₊ its positive
    part. Of several targets it is the worst.
    """
    values, vectors = np.linalg.eigh(equations.gram)
    s_g, s_h = equations.gram_sd, equations.moment_sd
    rotated = vectors.T @ coef
    signal = np.maximum(values, 0.0) @ rotated**2
    per_direction = s_h**2 + s_g**2 / 2.0 * np.sum(coef**2, axis=0)
    resolved = np.maximum(values, 3.0 * s_g)
    if not (signal > 0.0).all() or not (resolved > 0.0).all():
        return 0.0 if s_g == s_h == 0.0 else np.inf
    return float(np.max(per_direction * np.sum(1.0 / resolved) / signal))
