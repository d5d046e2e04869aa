"""`Inference`: estimates with standard errors, tests and intervals, and their looks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._types import Array
from ...errors import FedRidgeError
from ..least_squares import from_centred
from ..prediction import Predictions, predictions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Inference:
    """Coefficients with standard errors, tests and intervals, and how well they fit.

    Returned by `infer`. With one target the arrays have the shapes below; with t
    targets each has one more dimension of length t in front, as ``coef_`` of
    scikit-learn has, and the numbers are arrays of length t. `of_target` returns that
    of one target. p counts the intercept, which is the first of `terms`.

    Parameters
    ----------
    terms : tuple of str
        Names of the p coefficients.
    targets : tuple of str
        Names of the targets.
    coefficients, se, t, p : ndarray of shape (p,)
        Coefficients, standard errors, their ratio (z, where `use_t` is false) and
        two-sided p-values.
    ci : ndarray of shape (p, 2)
        Confidence intervals of level `level`.
    r2, adjusted_r2 : float
        Share of the variance that is explained; without a constant, of the squares
        (uncentred, see `has_constant`).
    sigma : float
        Residual standard error.
    f, f_p : float
        F test that all coefficients but the intercept are zero (that all predictions
        are equal, where columns imply an intercept); NaN for alpha > 0,
        where there is none, and where there are fewer sites than coefficients.
    f_df : tuple of float
        Its degrees of freedom.
    log_likelihood, aic, bic : float
        As statsmodels defines them, with `df` for the number of coefficients. Of
        weighted rows they lack ``sum log(w / mean w) / 2``, which statistics do not
        have: a constant that cancels between models of the same rows.
    df, df_residual : float
        Effective degrees of freedom of the model, and of the residuals.
    df_test : float
        Degrees of freedom of t; infinite for the normal distribution.
    n_rows, n_sites : int
        Rows and sites behind it.
    total_weight : float
        Sum of the weights of the rows.
    alpha : float
        Penalty.
    alpha_chosen_by : str
        How it was chosen; empty if it was given.
    covariance : str
        "classical", "CR0", "CR1", "HC0", "HC1", "HC2" or "HC3".
    level : float
        Level of the intervals.
    fit_intercept, standardize : bool
        As in `solve`.
    has_constant : bool
        Whether there is an intercept, or a combination of columns that is constant.
    digits_lost : float
        Digits (of 16) that the residual sum of squares lost to cancellation.
    notes : tuple of str
        Assumptions and limits, as the summary prints them.
    means : ndarray of shape (d,)
        Means of the features.
    centred_covariance : ndarray of shape (p, p)
        Covariance of the coefficients where the features are centred at `means`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, infer
    >>> X = np.arange(8.0)[:, None]
    >>> y = 2.0 * X[:, 0] + [0.1, -0.2, 0.1, 0.3, -0.3, 0.1, -0.2, 0.1]
    >>> found = infer(SufficientStatistics.from_data(X, y))
    >>> found.terms, found.coefficients.round(3)
    (('intercept', 'x0'), array([0.025, 1.993]))
    >>> found.ci.round(2).tolist()
    [[-0.33, 0.38], [1.91, 2.08]]
    """

    terms: tuple[str, ...]
    targets: tuple[str, ...]
    coefficients: Array
    se: Array
    t: Array
    p: Array
    ci: Array
    r2: Any
    adjusted_r2: Any
    sigma: Any
    f: Any
    f_p: Any
    f_df: tuple[float, float]
    log_likelihood: Any
    aic: Any
    bic: Any
    df: float
    df_residual: float
    df_test: float
    n_rows: int
    n_sites: int
    total_weight: float
    alpha: float
    alpha_chosen_by: str
    covariance: str
    level: float
    fit_intercept: bool
    has_constant: bool
    standardize: bool
    digits_lost: float
    notes: tuple[str, ...]
    means: Array = field(repr=False)
    centred_covariance: Array = field(repr=False)

    # ---- views ----------------------------------------------------------------

    @property
    def use_t(self) -> bool:
        """Whether tests are by the t distribution, and not by the normal one."""
        return math.isfinite(self.df_test)

    @property
    def rss(self) -> Any:
        """Residual sum of squares, of weighted rows weighted."""
        return self.sigma**2 * self.df_residual

    @property
    def covariance_matrix(self) -> Array:
        """Covariance of the coefficients, shape (p, p), in the order of `terms`."""
        self.check_covariance()
        if not self.fit_intercept:
            return self.centred_covariance
        return from_centred(self.centred_covariance, self.means)

    def check_covariance(self) -> None:
        """Raise a `FedRidgeError` if a file that this was read from had no covariance.

        A report keeps that of up to 100 coefficients.
        """
        if self.terms and np.isnan(self.centred_covariance).all():
            raise FedRidgeError(
                "this inference was read from a report without the covariance of the "
                "coefficients, which predictions and Wald tests need: use "
                "strategy.inference_ after the fit, or infer(statistics)."
            )

    def of_target(self, target: str | int = 0) -> Inference:
        """Return the inference of one target, by its name or number."""
        if isinstance(target, str) and target not in self.targets:
            raise FedRidgeError(
                f"{target!r} is not a target: {', '.join(self.targets)}."
            )
        k = self.targets.index(target) if isinstance(target, str) else int(target)
        if len(self.targets) == 1 and k == 0:
            return self
        found = {name: entry_of(getattr(self, name), k) for name in _BY_TARGET}
        return replace(self, targets=(self.targets[k],), **found)

    def each_target(self) -> Iterator[Inference]:
        """Yield the inference of every target."""
        return (self.of_target(k) for k in range(len(self.targets)))

    def predict(self, X: Any) -> Predictions:
        """Return predictions for new rows, with confidence and prediction intervals.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features; columns of a data frame may be in any order.

        Returns
        -------
        Predictions
            Mean, its standard error, and both intervals at `level`.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import SufficientStatistics, infer
        >>> X = np.arange(8.0)[:, None]
        >>> y = 2.0 * X[:, 0] + [0.1, -0.2, 0.1, 0.3, -0.3, 0.1, -0.2, 0.1]
        >>> found = infer(SufficientStatistics.from_data(X, y)).predict([[10.0]])
        >>> found.mean.round(2), found.prediction_interval.round(2).tolist()
        (array([19.95]), [[19.16, 20.75]])
        """
        return predictions(self, X)

    # ---- looks ----------------------------------------------------------------

    def summary(self, style: str = "statsmodels") -> str:
        """Return the tables as text; ``print`` it.

        Parameters
        ----------
        style : {"statsmodels", "R"}
            Whose summary it should look like.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import SufficientStatistics, infer
        >>> X = np.arange(8.0)[:, None]
        >>> y = 2.0 * X[:, 0] + [0.1, -0.2, 0.1, 0.3, -0.3, 0.1, -0.2, 0.1]
        >>> print(infer(SufficientStatistics.from_data(X, y)).summary())
        Least squares                        standard errors: classical
        target             y                 R²                  0.9982
        rows               8                 adjusted R²         0.9979
        sites              1                 F(1, 6)             3360
        df (residual)      2 (6)             p of F              1.8e-09
        residual error     0.2228            log-likelihood      1.811
        alpha              0                 AIC, BIC            0.3784, 0.5372
        <BLANKLINE>
                      coef  std err       t    P>|t|   [0.025  0.975]
        intercept  0.02500   0.1438  0.1738    0.868  -0.3269  0.3769
        x0           1.993  0.03438   57.97  1.8e-09    1.909   2.077
        """
        from .inference_text import summary_text

        return summary_text(self, style)

    def __repr__(self) -> str:
        """Show the summary, as results of R do."""
        return self.summary()

    def _repr_html_(self) -> str:
        from .inference_text import summary_html

        return summary_html(self)

    def to_markdown(self) -> str:
        """Return the table of coefficients in Markdown."""
        from .inference_text import summary_markdown

        return summary_markdown(self)

    def to_latex(self) -> str:
        """Return the table of coefficients in LaTeX (package booktabs)."""
        from .inference_text import summary_latex

        return summary_latex(self)

    def plot(self, terms: Sequence[str] | None = None) -> Figure:
        """Return a forest plot of coefficients and intervals, without the intercept.

        Parameters
        ----------
        terms : sequence of str, optional
            Terms to show; by default all but the intercept.
        """
        from ..sites.forest_plot import plot_inference

        return plot_inference(self, terms)

    # ---- tables ---------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values; what is not a number is None."""
        return {each.name: _jsonable(getattr(self, each.name)) for each in fields(self)}

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    def tidy(self) -> Any:
        """Return a data frame with one row per coefficient, with broom's names.

        They are term, estimate, std.error, statistic, p.value, conf.low and conf.high;
        with several targets also response.
        """
        from .inference_frames import tidy_frame

        return tidy_frame(self)

    def glance(self) -> Any:
        """Return a data frame with one row per model, with broom's names.

        Among them r.squared, adj.r.squared, sigma, statistic, p.value, df, logLik, AIC,
        BIC, deviance, df.residual and nobs.
        """
        from .inference_frames import glance_frame

        return glance_frame(self)

    def to_frame(self) -> Any:
        """Return `tidy` with the terms as the index."""
        frame = self.tidy()
        keys = ["response", "term"] if "response" in frame else "term"
        return frame.set_index(keys)

    @property
    def __maketables_coef_table__(self) -> Any:
        """Coefficients as the package maketables reads them; of one target."""
        from .inference_frames import maketables_frame

        return maketables_frame(self)

    def __maketables_stat__(self, key: str) -> Any:
        """Return one number for a table of the package maketables, None if unknown."""
        from .inference_frames import maketables_value

        return maketables_value(self, key)

    @property
    def __maketables_depvar__(self) -> str:
        """Name of the target for a table of the package maketables."""
        return ", ".join(self.targets)

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        """Numbers that the package maketables shows by default."""
        return ["N", "n_clusters", "r2", "se_type"]


_BY_TARGET = (
    *("coefficients", "se", "t", "p", "ci", "r2", "adjusted_r2", "sigma", "f", "f_p"),
    *("log_likelihood", "aic", "bic", "centred_covariance"),
)


def entry_of(values: Any, k: int) -> Any:
    """Return what belongs to one target, a number as a float."""
    found = np.asarray(values)[k]
    return float(found) if found.ndim == 0 else found


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
