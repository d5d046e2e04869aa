"""`Family`: what generalized linear models are made of, with their canonical links.

With the linear predictor eta = x'w + b + offset, the model minimises

    deviance(y, eta) + alpha ||w||²,    deviance = -2 log-likelihood + a constant,

and one Newton step is a ridge regression of the working residuals (y - mu) / v on X,
with the weights v, the variances of y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, gammaln, xlogy

from ..._types import Array
from ...errors import DataError

FAMILY_NAMES = ("gaussian", "binomial", "poisson")

LEAST_VARIANCE = 1e-10
"""Working weights are no smaller, so that working residuals stay finite.

That changes how fast Newton's method gets to the solution, and not the solution.
"""

LARGEST_PREDICTOR = 100.0
"""Beyond exp(100) a mean of counts is continued as a straight line."""


class WorkingRows(NamedTuple):
    """Weights v, residuals (y - mu) / v and unit deviances of rows at a point."""

    weight: Array
    residual: Array
    deviance: Array


class Family(ABC):
    """A distribution of y given its mean, with its canonical link."""

    name: ClassVar[str]

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """Return the means mu of linear predictors."""

    @abstractmethod
    def link(self, mean: float) -> float:
        """Return the linear predictor of a mean."""

    @abstractmethod
    def variance(self, mean: float) -> float:
        """Return the variance of y, which is the derivative of the mean."""

    @abstractmethod
    def working(self, y: Array, eta: Array) -> WorkingRows:
        """Return what one Newton step needs to know of rows."""

    @abstractmethod
    def constant_deviance(
        self, weight: float, total: float, entropy: float, mean: float
    ) -> float:
        """Return the deviance of the same mean for all rows.

        `total` is the weighted sum of y, `entropy` that of y log y.
        """

    def sums(self, y: Array, weight: Array) -> tuple[float, float]:
        """Return the weighted sums of y log y and of log y!, zero for classes."""
        return 0.0, 0.0

    def log_likelihood(self, deviance: float, total: float, sums: Array) -> float:
        """Return the log-likelihood of a deviance; `sums` are those of all rows."""
        return -deviance / 2.0


class Binomial(Family):
    """Yes or no: ``mu = 1 / (1 + exp(-eta))``, ``v = mu (1 - mu)``.

    Examples
    --------
    >>> family = Binomial()
    >>> family.mean(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    >>> family.working(np.array([1.0]), np.array([0.0])).residual
    array([2.])
    """

    name = "binomial"

    def mean(self, eta: Array) -> Array:
        """Return probabilities of 1."""
        return np.asarray(expit(eta))

    def link(self, mean: float) -> float:
        """Return the log-odds of a probability."""
        return float(np.log(mean) - np.log1p(-mean))

    def variance(self, mean: float) -> float:
        """Return p (1 - p)."""
        return mean * (1.0 - mean)

    def working(self, y: Array, eta: Array) -> WorkingRows:
        """Return weights p (1 - p), residuals and deviances of zeros and ones."""
        # expit(-eta) is 1 - p without the digits that the difference loses.
        yes, no = expit(eta), expit(-eta)
        weight = np.maximum(yes * no, LEAST_VARIANCE)
        wrong = np.where(y > 0.5, no, -yes)
        deviance = 2.0 * np.logaddexp(0.0, np.where(y > 0.5, -eta, eta))
        return WorkingRows(weight, wrong / weight, deviance)

    def constant_deviance(
        self, weight: float, total: float, entropy: float, mean: float
    ) -> float:
        """Return -2 (n1 log p + n0 log(1 - p))."""
        no = max(weight - total, 0.0)
        return float(-2.0 * (xlogy(total, mean) + xlogy(no, 1.0 - mean)))


class Poisson(Family):
    """Counts: ``mu = v = exp(eta)``.

    Examples
    --------
    >>> Poisson().mean(np.array([0.0, 1e9])).tolist() == [1.0, float(np.exp(100.0))]
    True
    """

    name = "poisson"

    def mean(self, eta: Array) -> Array:
        """Return rates."""
        return np.asarray(np.exp(np.minimum(eta, LARGEST_PREDICTOR)))

    def link(self, mean: float) -> float:
        """Return the logarithm of a rate."""
        return float(np.log(mean))

    def variance(self, mean: float) -> float:
        """Return the mean."""
        return mean

    def working(self, y: Array, eta: Array) -> WorkingRows:
        """Return weights mu, residuals and deviances of counts."""
        mu = self.mean(eta)
        weight = np.maximum(mu, LEAST_VARIANCE)
        beyond = np.maximum(eta - LARGEST_PREDICTOR, 0.0)
        deviance = 2.0 * (xlogy(y, y) - y * eta - y + mu * (1.0 + beyond))
        return WorkingRows(weight, (y - mu) / weight, np.maximum(deviance, 0.0))

    def constant_deviance(
        self, weight: float, total: float, entropy: float, mean: float
    ) -> float:
        """Return 2 (sum of y log(y / mu) - (y - mu))."""
        told = entropy - xlogy(total, mean) - total + weight * mean
        return float(2.0 * max(told, 0.0))

    def sums(self, y: Array, weight: Array) -> tuple[float, float]:
        """Return the weighted sums of y log y and of log y!."""
        return float(weight @ xlogy(y, y)), float(weight @ gammaln(y + 1.0))

    def log_likelihood(self, deviance: float, total: float, sums: Array) -> float:
        """Return sum of y log mu - mu - log y!."""
        return float(-deviance / 2.0 + sums[0] - total - sums[1])


FAMILIES: dict[str, Family] = {each.name: each for each in (Binomial(), Poisson())}


def check_counts(y: Array) -> None:
    """Refuse counts that are negative or not finite, without quoting them.

    Examples
    --------
    >>> check_counts(np.array([0.0, -1.0, 2.0]))
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: y must be counts, zero or more, but 1 of 3 \
rows is negative or not finite.
    """
    bad = int(np.count_nonzero(~((y >= 0) & np.isfinite(y))))
    if bad:
        verb = "is" if bad == 1 else "are"
        raise DataError(
            f"y must be counts, zero or more, but {bad} of {len(y)} rows {verb} "
            "negative or not finite."
        )
