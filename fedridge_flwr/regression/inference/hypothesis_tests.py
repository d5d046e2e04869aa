"""Tests of hypotheses about coefficients: nested models by F, and Wald tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, fdtrc

from ..._text import quoted
from ..._types import Array
from ...errors import FedRidgeError, StatisticsError
from ..least_squares import least_squares
from ..normal_equations import Exact
from ..printed_table import number, p_equals
from ..questions import Column, select_columns
from ..sites.site_parts import feature_labels
from .inference_numbers import wald
from .inference_result import Inference


@dataclass(frozen=True)
class HypothesisTest:
    """A statistic, its distribution under the hypothesis, and the p-value.

    Parameters
    ----------
    name : str
        "F" or "chi2".
    statistic : float
        Its value.
    df : float
        Degrees of freedom, of F those of the numerator.
    df_residual : float or None
        Of F those of the denominator.
    p : float
        p-value.
    hypothesis : str
        What is tested.

    Examples
    --------
    >>> from fedridge_flwr.regression import HypothesisTest
    >>> print(HypothesisTest("F", 3.2, 2, 97, 0.045, "x1 = x2 = 0"))
    x1 = x2 = 0: F(2, 97) = 3.2, p = 0.045
    """

    name: str
    statistic: float
    df: float
    df_residual: float | None
    p: float
    hypothesis: str

    def __str__(self) -> str:
        df = f"{self.df:g}"
        if self.df_residual is not None:
            df += f", {self.df_residual:g}"
        return (
            f"{self.hypothesis}: {self.name}({df}) = {number(self.statistic)}, "
            f"{p_equals(self.p)}"
        )


def nested_test(
    stats: Exact,
    features: Sequence[Column],
    *,
    fit_intercept: bool = True,
) -> HypothesisTest:
    """Test by F whether a model with fewer features explains as much.

    Both models are fitted at alpha = 0. It equals ``compare_f_test`` of statsmodels and
    ``anova(smaller, larger)`` of R.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows, of one target.
    features : sequence of str or int
        Features of the smaller model; the larger one has all.
    fit_intercept : bool
        Whether both have an intercept.

    Returns
    -------
    HypothesisTest
        That the coefficients of the other features are zero.

    Raises
    ------
    StatisticsError
        If there are several targets, or no rows are left for residuals.
    FedRidgeError
        If the smaller model is not smaller.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import nested_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> y = X[:, 0] + rng.normal(size=100)
    >>> print(nested_test(SufficientStatistics.from_data(X, y), ["x0"]))
    x1 = x2 = 0: F(2, 96) = 2.544, p = 0.084
    """
    if stats.n_targets > 1:
        raise StatisticsError("a test is of one target: choose it by select_columns.")
    smaller = select_columns(stats, features)
    larger = least_squares(stats, 0.0, fit_intercept=fit_intercept)
    fewer = stats.n_features - smaller.n_features
    if fewer < 1:
        raise FedRidgeError("the smaller model has all features: leave some out.")
    rest = least_squares(smaller, 0.0, fit_intercept=fit_intercept)
    # The difference of what they explain cancels less than that of the residuals.
    gain = float(larger.explained[0] - rest.explained[0])
    value, freedom = gain / fewer / float(larger.sigma2[0]), larger.residual_freedom
    kept = set(feature_labels(smaller.schema))
    dropped = [x for x in feature_labels(stats.schema) if x not in kept]
    value = max(value, 0.0)
    p = float(fdtrc(fewer, freedom, value))
    return HypothesisTest("F", value, fewer, freedom, p, _all_zero(dropped))


def wald_test(
    inference: Inference,
    terms: Sequence[str] | None = None,
    *,
    matrix: Any = None,
    value: Any = 0.0,
) -> HypothesisTest:
    """Test linear hypotheses by the covariance of the coefficients, of whatever kind.

    F where `inference` is by t, chi-squared where it is by the normal distribution; as
    ``wald_test`` of statsmodels.

    Parameters
    ----------
    inference : Inference
        Of one target; classical or cluster-robust.
    terms : sequence of str, optional
        Terms whose coefficients are all zero under the hypothesis.
    matrix : array of shape (q, p), optional
        Instead of terms, R of the hypothesis ``R b = value``.
    value : float or array of shape (q,)
        Right-hand side of the hypothesis.

    Returns
    -------
    HypothesisTest
        The test.

    Raises
    ------
    FedRidgeError
        If neither or both of terms and matrix are given, or a term is unknown.
    StatisticsError
        If there are several targets, or the hypotheses are dependent (of few sites,
        more hypotheses than sites less one).

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, infer
    >>> from fedridge_flwr.regression import wald_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> y = X[:, 0] + rng.normal(size=100)
    >>> found = infer(SufficientStatistics.from_data(X, y))
    >>> print(wald_test(found, ["x1", "x2"]))
    x1 = x2 = 0: F(2, 96) = 2.544, p = 0.084

    That two coefficients are equal:

    >>> print(wald_test(found, matrix=[[0.0, 1.0, -1.0, 0.0]]))
    1 linear hypothesis: F(1, 96) = 78.28, p = 4.4e-14
    """
    if len(inference.targets) > 1:
        raise StatisticsError("a test is of one target: use of_target(k).")
    if (terms is None) == (matrix is None):
        raise FedRidgeError("give either terms, or the matrix of the hypothesis.")
    if terms is not None:
        unknown = [term for term in terms if term not in inference.terms]
        if unknown or not terms:
            raise FedRidgeError(
                f"unknown terms: {quoted(unknown)}; there are "
                f"{quoted(inference.terms, 8)}."
            )
        places = [inference.terms.index(term) for term in terms]
        R, hypothesis = np.eye(len(inference.terms))[places], _all_zero(terms)
    else:
        R = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
        if R.shape[1] != len(inference.terms):
            raise FedRidgeError(
                f"the matrix needs {len(inference.terms)} columns, one per term, got "
                f"{R.shape[1]}."
            )
        hypothesis = _counted(len(R))
    squared = _wald(R, inference, np.broadcast_to(np.asarray(value, float), len(R)))
    q = len(R)
    if not inference.use_t:
        p = float(chdtrc(q, squared))
        return HypothesisTest("chi2", squared, q, None, p, hypothesis)
    freedom = inference.df_test
    p = float(fdtrc(q, freedom, squared / q))
    return HypothesisTest("F", squared / q, q, freedom, p, hypothesis)


def _wald(R: Array, inference: Inference, value: Array) -> float:
    covariance = R @ inference.covariance_matrix @ R.T
    scale = np.sqrt(np.maximum(np.diagonal(covariance), np.finfo(float).tiny))
    rank = np.linalg.matrix_rank(covariance / np.outer(scale, scale), tol=1e-10)
    if rank < len(R):
        raise StatisticsError(
            f"{_counted(len(R))} are dependent, or too many for so few sites."
        )
    return wald(R @ inference.coefficients - value, covariance)


def _counted(q: int) -> str:
    return "1 linear hypothesis" if q == 1 else f"{q} linear hypotheses"


def _all_zero(terms: Sequence[str]) -> str:
    if len(terms) > 4:
        return f"{' = '.join(terms[:3])} = ... = {terms[-1]} = 0"
    return " = ".join([*terms, "0"])
