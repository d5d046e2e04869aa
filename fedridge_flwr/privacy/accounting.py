"""What Gaussian noise gives, exactly: epsilon, delta and noise from one another.

Adding Gaussian noise of deviation s to something that one record changes by at most
D makes neighbouring data as hard to tell apart as N(0, 1) and N(mu, 1), mu = D / s.
Everything here is about mu: noise, (epsilon, delta), and releases one after another.

With a = mu/2 - epsilon/mu and b = mu/2 + epsilon/mu, b² = a² + 2 epsilon, and

    delta = Phi(a) - e^epsilon Phi(-b) = e^(-a²/2) / 2 (erfcx(-a/√2) - erfcx(b/√2)),

which loses no digits where e^epsilon overflows.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from scipy.special import erfcx, log_ndtr, ndtr

from .validators import check_number

_ROOT_HALF = math.sqrt(0.5)
# erfcx(-a/√2) overflows beyond; there delta is within 1e-130 of 1.
_LARGEST_A = 25.0
_LOWEST_A = -45.0


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least Gaussian noise for sensitivity 1 that is (epsilon, delta)-DP.

    The classical formula ``sqrt(2 ln(1.25/delta)) / epsilon`` is larger below epsilon
    1, and above it no bound at all.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        Standard deviation of the noise over the sensitivity; one over it is mu.

    Examples
    --------
    >>> from fedridge_flwr.privacy import epsilon_of, noise_multiplier
    >>> round(noise_multiplier(1.0, 1e-5), 4)
    3.7306
    >>> round(epsilon_of(1.0 / noise_multiplier(1.0, 1e-5), 1e-5), 9)
    1.0
    """
    epsilon = check_number("epsilon", epsilon, above=0.0, below=math.inf)
    return _multiplier(epsilon, check_number("delta", delta, above=0.0, below=1.0))


# A private fit asks for the same one dozens of times, in every process.
@lru_cache(maxsize=256)
def _multiplier(epsilon: float, delta: float) -> float:
    goal = math.log(delta)

    def excess(a: float) -> float:
        return _log_delta(a, math.hypot(a, math.sqrt(2 * epsilon))) - goal

    a = _root(excess, _LOWEST_A, _LARGEST_A)
    b = math.hypot(a, math.sqrt(2 * epsilon))
    # 1/mu with mu = a + b = 2 epsilon / (b - a): the form that does not cancel.
    return 1.0 / (a + b) if a > 0 else (b - a) / (2 * epsilon)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu is (epsilon, delta)-DP.

    Parameters
    ----------
    mu : float
        How well neighbours can be told apart: sensitivity over the deviation of the
        noise, 0 or more.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        Epsilon; infinite where there is no noise.

    Examples
    --------
    >>> from fedridge_flwr.privacy import epsilon_of
    >>> epsilon_of(0.0, 1e-5)
    0.0
    >>> round(epsilon_of(1.0, 1e-5), 3)
    4.377
    """
    check_number("delta", delta, above=0.0, below=1.0)
    if delta_of(0.0, mu) <= delta:
        return 0.0
    return math.inf if math.isinf(mu) else _epsilon(mu, delta)


@lru_cache(maxsize=256)
def _epsilon(mu: float, delta: float) -> float:
    goal = math.log(delta)
    lowest = min(_LOWEST_A, mu / 2)
    a = _root(lambda a: _log_delta(a, mu - a) - goal, lowest, mu / 2)
    return max(mu * (mu / 2 - a), 0.0)


def delta_of(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which mu is (epsilon, delta)-DP.

    With Phi the normal distribution function, it is
    ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``.

    Parameters
    ----------
    epsilon : float
        0 or more.
    mu : float
        As in `epsilon_of`.

    Examples
    --------
    >>> from fedridge_flwr.privacy import delta_of, noise_multiplier
    >>> round(delta_of(1.0, 1.0 / noise_multiplier(1.0, 1e-5)) / 1e-5, 9)
    1.0
    """
    check_number("epsilon", epsilon)
    check_number("mu", mu)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return math.exp(_log_delta(mu / 2 - epsilon / mu, mu / 2 + epsilon / mu))


def compose(mus: Iterable[float]) -> float:
    """Return the mu of several Gaussian releases together: ``sqrt(Σ mu²)``, exactly.

    Later questions may depend on earlier answers.

    Parameters
    ----------
    mus : iterable of float
        Of each release, as `DifferentialPrivacy.mu` returns it.

    Examples
    --------
    >>> from fedridge_flwr.privacy import compose
    >>> compose([3.0, 4.0])
    5.0
    """
    return math.sqrt(math.fsum(check_number("mu", mu) ** 2 for mu in mus))


def _log_delta(a: float, b: float) -> float:
    if a > _LARGEST_A:
        rest = 0.5 * math.exp(-a * a / 2) * float(erfcx(b * _ROOT_HALF))
        return math.log(float(ndtr(a)) - rest)
    if a < _LOWEST_A:
        return float(log_ndtr(a))
    gap = float(erfcx(-a * _ROOT_HALF) - erfcx(b * _ROOT_HALF))
    return -a * a / 2 + math.log(gap / 2) if gap > 0 else -math.inf


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    # Imported here: it would add a quarter to the import time of every client process.
    from scipy.optimize import brentq

    return float(brentq(excess, low, high, xtol=1e-300, rtol=1e-15, maxiter=500))
