"""The paper's synthetic clients (its section V-A), each from a stream of its own."""

import numpy as np

from .._types import Array
from ..errors import FedRidgeError

NOISE_SD = 0.1


def paper_rows(
    partition: int,
    *,
    rows: int,
    features: int,
    gamma: float,
    seed: int,
    spectrum: float = 0.0,
    features_seen: int = 0,
) -> tuple[Array, Array]:
    """Return the rows (X, y) of one client: y = X w* + noise of deviation 0.1.

    The unit vector w* is shared by all clients of a seed. A client has a feature mean
    of length `gamma` and variances from U[0.8, 1.2]. It makes only its own rows, so
    that more clients do not change those of others.

    Parameters
    ----------
    spectrum : float
        Feature i has variance proportional to i**-spectrum, with mean 1; the paper
        has 0, all alike.
    features_seen : int
        Features the client sees at all, in turn around a shuffled circle; the others
        are zero for it. 0 means all of them.

    Examples
    --------
    >>> X, y = paper_rows(3, rows=5, features=2, gamma=0.5, seed=0)
    >>> X.shape, y.shape
    ((5, 2), (5,))
    """
    if not 0 <= features_seen <= features:
        raise FedRidgeError(
            f"a client cannot see {features_seen} of {features} features: use 0 (all) "
            f"to {features}."
        )
    shared = np.random.default_rng([seed, 0])
    w = shared.normal(size=features)
    w /= np.linalg.norm(w)
    own = np.random.default_rng([seed, 1, partition])
    direction = own.normal(size=features)
    direction /= np.linalg.norm(direction)
    variances = own.uniform(0.8, 1.2, size=features)
    if spectrum:
        decay = np.arange(1.0, features + 1) ** -spectrum
        variances *= decay * features / decay.sum()
    X = own.normal(size=(rows, features)) * np.sqrt(variances)
    X += gamma * direction
    if features_seen:
        circle = shared.permutation(features)
        turn = (partition * features_seen + np.arange(features_seen)) % features
        unseen = np.ones(features, dtype=bool)
        unseen[circle[turn]] = False
        X[:, unseen] = 0.0
    return X, X @ w + NOISE_SD * own.normal(size=rows)
