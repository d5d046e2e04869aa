"""Predictions for new rows with confidence and prediction intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._types import Array
from ..data.names import Names
from ..data.rows import named_block, places_of
from ..errors import DataError
from .inference.inference_numbers import quantile

if TYPE_CHECKING:
    from .inference.inference_result import Inference


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted means of new rows, and how well they are known.

    With t targets there is one more dimension of length t in front.

    Parameters
    ----------
    mean : ndarray of shape (n,)
        Predictions.
    se : ndarray of shape (n,)
        Standard errors of the means.
    confidence_interval : ndarray of shape (n, 2)
        Intervals for the means.
    prediction_interval : ndarray of shape (n, 2)
        Intervals for single new rows of weight 1, whose errors are normal.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, infer
    >>> X, y = np.arange(6.0)[:, None], np.array([0.1, 1.2, 1.8, 3.1, 3.9, 5.1])
    >>> found = infer(SufficientStatistics.from_data(X, y)).predict([[2.5], [6.0]])
    >>> found.mean.round(3), found.se.round(3)
    (array([2.533, 5.973]), array([0.067, 0.153]))
    """

    mean: Array
    se: Array
    confidence_interval: Array
    prediction_interval: Array

    def to_frame(self) -> Any:
        """Return a pandas data frame with the names of statsmodels; for one target."""
        import pandas as pd

        confidence, prediction = self.confidence_interval, self.prediction_interval
        return pd.DataFrame(
            {
                "mean": self.mean,
                "mean_se": self.se,
                "mean_ci_lower": confidence[:, 0],
                "mean_ci_upper": confidence[:, 1],
                "obs_ci_lower": prediction[:, 0],
                "obs_ci_upper": prediction[:, 1],
            }
        )


def predictions(inference: Inference, X: Any) -> Predictions:
    """Return the predictions of a model for new rows, by centred coordinates."""
    inference.check_covariance()
    rows = _rows(inference, X)
    coef = np.atleast_2d(inference.coefficients)
    if inference.fit_intercept:
        mean = coef[:, 1:] @ rows.T + coef[:, :1]
        rows = np.column_stack([np.ones(len(rows)), rows - inference.means])
    else:
        mean = coef @ rows.T
    covariance = np.reshape(inference.centred_covariance, (-1, *rows.shape[1:] * 2))
    variance = np.einsum("np,tpq,nq->tn", rows, covariance, rows)
    noise = np.atleast_1d(inference.sigma)[:, None] ** 2
    factor = quantile(inference.level, inference.df_test)
    halves = factor * np.sqrt(variance), factor * np.sqrt(variance + noise)
    intervals = [np.stack([mean - half, mean + half], axis=-1) for half in halves]
    found = [mean, np.sqrt(variance), *intervals]
    if len(inference.targets) == 1:
        found = [each[0] for each in found]
    return Predictions(*found)


def _rows(inference: Inference, X: Any) -> Array:
    names = inference.terms[inference.fit_intercept :]
    block, own = named_block(X)
    if block.shape[1] != len(names):
        raise DataError(
            f"X has {block.shape[1]} features, but the model was fitted with "
            f"{len(names)}."
        )
    given = not all(name == f"x{j}" for j, name in enumerate(names))
    places = places_of("X", own, Names.of(names) if given else None)
    dense = np.asarray(block.todense() if hasattr(block, "todense") else block)
    return dense if places is None else dense[:, places]
