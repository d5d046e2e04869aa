"""Differential privacy of every record: bounds, noise, budget and estimates.

It does not know Flower. A client clips its rows to public bounds (`clipping`), sums
them exactly and adds noise once (`release`), if its policy and its ledger allow it
(`curator`). The server adds the answers up (`noisy_statistics`) and solves
(`private_solve`).
"""

import os
from typing import Any

from ..data.record_numbers import as_numbers
from ..data.rows import check_rows
from ..errors import PrivacyError
from .accounting import compose, delta_of, epsilon_of, noise_multiplier
from .gaussian_sampler import RandomBytes, discrete_gaussian
from .intervals import PrivateInference, infer_private
from .ledger import PrivacyLedger
from .mechanism import DifferentialPrivacy
from .noisy_statistics import PrivateStatistics
from .policy import PrivacyPolicy
from .privacy_report import PrivacyReport
from .private_solve import solve_private
from .release import make_release

__all__ = [
    "DifferentialPrivacy",
    "PrivacyLedger",
    "PrivacyPolicy",
    "PrivacyReport",
    "PrivateInference",
    "PrivateStatistics",
    "compose",
    "delta_of",
    "discrete_gaussian",
    "epsilon_of",
    "infer_private",
    "noise_multiplier",
    "private_statistics",
    "solve_private",
]


def private_statistics(
    X: Any,
    y: Any,
    privacy: DifferentialPrivacy,
    *,
    fit_intercept: bool = True,
    source: RandomBytes = os.urandom,
) -> PrivateStatistics:
    """Return one client's private release, outside of Flower.

    Rows are clipped to the bounds, summed exactly, and noise is added once. Every call
    is a release of its own and spends the whole (epsilon, delta). With
    ``trust="server"`` there is no noise in it yet: the server adds it to the sum
    (`PrivateStatistics.with_server_noise`).

    Parameters
    ----------
    X, y : array-like
        Rows, as `SufficientStatistics.from_data` takes them.
    privacy : DifferentialPrivacy
        The mechanism; one round.
    fit_intercept : bool
        Whether an intercept will be fitted.
    source : callable
        Source of random bytes; any other than the default is for tests.

    Returns
    -------
    PrivateStatistics
        To be added to those of other clients, and given to `solve_private`.

    Raises
    ------
    PrivacyError
        If the privacy has several rounds or needs a secure sum.
    DataError
        If X and y have the wrong shape. Rows that are not finite are dropped, since an
        error would reveal them.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import DifferentialPrivacy, solve_private
    >>> from fedridge_flwr.privacy import private_statistics
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 1))
    >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=3.0)
    >>> stats = private_statistics(X, 2 * X[:, 0] + 1, privacy)
    >>> model = solve_private(stats, alpha=0.0)
    >>> bool(abs(model.coef_[0] - 2) < 0.5), bool(abs(model.intercept_ - 1) < 0.5)
    (True, True)
    """
    if privacy.rounds > 1 or privacy.trust == "secagg":
        raise PrivacyError("private_statistics has one round, and no secure sum.")
    rows = check_rows(as_numbers(X), as_numbers(y))
    sums = make_release(rows, privacy, intercept=fit_intercept, source=source)
    bounds = privacy.bounds(rows.n_features, rows.n_targets, fit_intercept)
    return PrivateStatistics(sums, privacy, bounds, schema=rows.schema)
