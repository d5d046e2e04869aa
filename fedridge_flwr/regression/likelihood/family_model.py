"""`FamilyModel`: logistic and Poisson regression, as scikit-learn's estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..._text import counted
from ..._types import Array
from ...data.labels import natural_labels, outcome_codes
from ...data.rows import check_rows
from ...errors import DataError, FedRidgeError
from ..model import RidgeModel
from ..printed_table import plain
from ..summary import coefficient_names, weights_note
from .families import FAMILIES, check_counts
from .family_inference import FamilyInference
from .working import Points

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor

_TITLES = {"binomial": "Logistic regression", "poisson": "Poisson regression"}
_SHOWN = 40


class FamilyEvaluation(NamedTuple):
    """Mean deviance, D² and accuracy (NaN for counts) on some rows."""

    deviance: float
    d2: float
    accuracy: float
    n_rows: int


class FamilyModel(RidgeModel):
    """Minimises ``-log-likelihood(y; phi(X) w + b + offset) + alpha/2 ||w||²``.

    That is ``LogisticRegression(C=1/alpha)`` of scikit-learn for classes, and
    ``PoissonRegressor(alpha=alpha / sum of weights)`` for counts, with or without an
    offset. Returned by ``FedRidge(family="binomial")`` and "poisson" as ``model_``.
    With more than two classes there is one model for each class against all others, as
    in ``OneVsRestClassifier``.

    Parameters
    ----------
    family : {"binomial", "poisson"}
        What y is like.
    labels : tuple
        The labels of the classes, sorted; empty for counts.
    deviance, null_deviance : float or ndarray
        On the training rows, of the model and of one mean for all.
    log_likelihood : float or None
        On the training rows; None for more than two classes.
    covariance : ndarray, optional
        Of the coefficients, intercept first, where alpha is 0.
    has_offset : bool
        Whether rows of the fit had an offset.
    **kwargs
        As in `RidgeModel`.

    Attributes
    ----------
    classes_ : ndarray
        The labels; models of counts have none (`AttributeError`).
    deviance_, null_deviance_ : float or ndarray
        As above.
    d2_ : float
        Part of the deviance that is explained, ``1 - deviance / null_deviance``, mean
        over classes; NaN with an offset.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import FamilyModel
    >>> model = FamilyModel(
    ...     family="binomial", labels=("no", "yes"), coef=np.array([2.0]),
    ...     intercept=-1.0, alpha=1.0
    ... )
    >>> model.predict([[0.0], [1.0]])
    array(['no', 'yes'], dtype='<U3')
    >>> model.predict_proba([[0.5]])
    array([[0.5, 0.5]])
    """

    def __init__(
        self,
        *,
        family: str,
        labels: tuple[str, ...] = (),
        deviance: float | Array = np.nan,
        null_deviance: float | Array = np.nan,
        log_likelihood: float | None = None,
        covariance: Array | None = None,
        has_offset: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.family = family
        self.labels = labels
        self.deviance_, self.null_deviance_ = deviance, null_deviance
        self.log_likelihood_ = log_likelihood
        self.covariance_ = covariance
        self.has_offset = has_offset

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes, sorted."""
        if not self.labels:
            raise AttributeError(f"a model of family {self.family} has no classes_.")
        return natural_labels(self.labels)

    @property
    def d2_(self) -> float:
        """Part of the deviance on the training rows that the model explains."""
        null = np.asarray(self.null_deviance_)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.mean(1.0 - np.asarray(self.deviance_) / null))

    # ---- use ------------------------------------------------------------------

    def decision_function(self, X: Any, offset: Any = None) -> Array:
        """Return ``phi(X) w + b + offset``: log-odds or log-rates, (n,) or (n, k).

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features, as `RidgeModel.predict` takes them.
        offset : array of shape (n,), optional
            As in the fit, log-exposure of counts; zero by default.
        """
        found = super().predict(X)
        if offset is None:
            return found
        shift = np.asarray(offset, dtype=np.float64)
        if shift.shape != found.shape[:1] or not np.isfinite(shift).all():
            raise DataError(
                f"offset must be finite numbers of shape {found.shape[:1]}, one for "
                f"each row of X, got shape {shift.shape}."
            )
        return found + (shift if found.ndim == 1 else shift[:, None])

    def predict_mean(self, X: Any, offset: Any = None) -> Array:
        """Return the mean of y: rates, or the probability of the second label.

        With more than two classes the shape is (n, k), one probability for each class
        against all others, which need not add up to one.
        """
        return FAMILIES[self.family].mean(self.decision_function(X, offset))

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Return the most probable labels, or the mean of counts.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features.
        offset : array of shape (n,), optional
            As in the fit; zero by default.
        """
        if not self.labels:
            return self.predict_mean(X, offset)
        found = self.decision_function(X, offset)
        places = (
            np.argmax(found, axis=1) if found.ndim == 2 else (found > 0).astype(int)
        )
        return np.asarray(self.classes_[places])

    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Return the probability of every class, shape (n, k); rows add up to one."""
        if not self.labels:
            raise AttributeError("counts have no classes: use predict.")
        found = self.decision_function(X, offset)
        if found.ndim == 1:
            return np.column_stack([expit(-found), expit(found)])
        one_vs_rest = expit(found)
        return np.asarray(one_vs_rest / one_vs_rest.sum(axis=1, keepdims=True))

    def evaluate(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
    ) -> FamilyEvaluation:
        """Return mean deviance, D² and accuracy on the given rows.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features.
        y : array of shape (n,)
            Labels, or counts.
        sample_weight, offset : array of shape (n,), optional
            Weights, and offsets.

        Returns
        -------
        FamilyEvaluation
            D² is the part of the deviance of the mean of y that the model explains;
            accuracy the part of the rows whose label is predicted, NaN for counts.
        """
        counts = not self.labels
        codes = np.asarray(y, float) if counts else outcome_codes(y, self.labels)[1]
        eta = self.decision_function(X, offset)
        rows = check_rows(np.zeros((len(eta), 1)), codes, sample_weight)
        own = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        if not own.any():
            raise DataError("there are no rows with weight to evaluate on.")
        family, accuracy = FAMILIES[self.family], np.nan
        if counts:
            check_counts(codes)
            columns, eta = codes[:, None], eta[:, None]
        elif eta.ndim == 1:
            accuracy = float(own @ ((eta > 0) == (codes == 1)) / own.sum())
            columns, eta = (codes == 1)[:, None].astype(float), eta[:, None]
        else:
            accuracy = float(own @ (np.argmax(eta, axis=1) == codes) / own.sum())
            columns = (codes[:, None] == np.arange(eta.shape[1])).astype(float)
        deviances, explained = [], []
        for values, along in zip(columns.T, eta.T, strict=True):
            total = float(own @ values)
            entropy = family.sums(values, own)[0]
            null = family.constant_deviance(
                own.sum(), total, entropy, total / own.sum()
            )
            deviances.append(float(own @ family.working(values, along).deviance))
            explained.append(1.0 - deviances[-1] / null if null > 0 else np.nan)
        mean = float(np.mean(deviances)) / float(own.sum())
        return FamilyEvaluation(mean, float(np.mean(explained)), accuracy, rows.n_rows)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
    ) -> float:
        """Return the accuracy of labels, or D² of counts, as scikit-learn scores."""
        found = self.evaluate(X, y, sample_weight, offset)
        return found.accuracy if self.labels else found.d2

    def points(self) -> Points:
        """Return the coefficients of all classes, as clients are asked about them."""
        coef = np.atleast_2d(self.coef_)
        several = len(coef) > 1
        return Points(
            coef,
            np.array(np.broadcast_to(self.intercept_, len(coef)), dtype=np.float64),
            np.arange(len(coef)) if several else np.ones(1, dtype=np.int64),
            np.zeros(coef.shape[1]),
        )

    # ---- look -----------------------------------------------------------------

    @property
    def title(self) -> str:
        """Kind of the model, "Logistic regression" or "Poisson regression"."""
        return _TITLES[self.family]

    @property
    def terms(self) -> list[str]:
        """Names of the coefficients, the intercept first if there is one."""
        return [
            *(["intercept"] if self.fit_intercept else []),
            *coefficient_names(self),
        ]

    def inference(self) -> FamilyInference:
        """Return standard errors, z, p, ratios and AIC, as ``GLM`` of statsmodels.

        Raises
        ------
        FedRidgeError
            If alpha is above 0, which biases the coefficients towards zero by more than
            standard errors tell, or there are more than two classes.
        """
        if self.covariance_ is None or self.log_likelihood_ is None:
            why = f"this one has alpha={self.alpha_:g}"
            if self.coef_.ndim == 2:
                why = f"this one has {len(self.labels)} classes"
            raise FedRidgeError(
                "standard errors are available only for alpha=0, with two classes or "
                f"counts: {why}."
            )
        first = [float(self.intercept_)] if self.fit_intercept else []
        return FamilyInference(
            self.family,
            self.terms,
            np.append(first, self.coef_),
            self.covariance_,
            int(self.n_rows_ or 0),
            float(self.deviance_),
            float(self.null_deviance_),
            self.log_likelihood_,
            self.weighted_by,
        )

    def summary(self, inference: Any = None) -> str:
        """Return a readable table of the fit, with tests where alpha is 0."""
        chosen = f" ({self.alpha_chosen_by})" if self.alpha_chosen_by else ""
        facts = {
            "rows": f"{self.n_rows_}",
            "clients": f"{self.n_clients_}",
            "alpha": f"{self.alpha_:g}{chosen}",
            "deviance": f"{float(np.sum(self.deviance_)):.6g}",
        }
        if not np.isnan(self.d2_):
            facts["D² (train)"] = f"{self.d2_:.6g}"
        if self.labels:
            shown = ", ".join(map(str, self.classes_[:10].tolist()))
            facts["classes"] = shown + (", ..." if len(self.labels) > 10 else "")
        lines = [self.title]
        lines += [f"  {name:<10}  {value}" for name, value in facts.items()]
        if self.covariance_ is not None and self.coef_.ndim == 1:
            table = self.inference().summary()
        else:
            table = plain(*self._cells())
        lines += ["", *(f"  {line}" for line in table.splitlines())]
        if self.covariance_ is None and self.weighted_by:
            lines += ["", f"  {weights_note(self)}"]
        return "\n".join([*lines, "", self.scope_] if self.scope_ else lines)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        several = self.coef_.ndim == 2
        heads = [str(label) for label in self.classes_] if several else ["coefficient"]
        first = np.atleast_1d(self.intercept_)[:, None]
        table = np.atleast_2d(self.coef_)
        if self.fit_intercept:
            table = np.hstack([first, table])
        rows = [
            [term, *(f"{value:.6g}" for value in values)]
            for term, values in zip(self.terms[:_SHOWN], table.T, strict=False)
        ]
        if len(self.terms) > _SHOWN:
            rest = len(self.terms) - _SHOWN
            rows.append([f"... and {rest} more (see coef_)", *[""] * len(heads)])
        return ["", *heads], rows

    def __repr__(self) -> str:
        """Show the size of the model and of the data behind it."""
        facts = [self.family, f"alpha={self.alpha_}"]
        facts.append(counted(self.coef_.shape[-1], "feature"))
        if len(self.labels) > 2:
            facts.append(f"{len(self.labels)} classes")
        facts += [counted(self.n_rows_ or 0, "row"), counted(self.n_clients_, "client")]
        if not np.isnan(self.d2_):
            facts.append(f"D²={self.d2_:.4g}")
        return f"FamilyModel({', '.join(facts)})"

    # ---- keep -----------------------------------------------------------------

    def to_sklearn(self) -> LogisticRegression | PoissonRegressor | Any:
        """Return a fitted estimator of scikit-learn with these coefficients.

        It is a ``LogisticRegression``, a ``PoissonRegressor``, or a
        ``OneVsRestClassifier`` of several; behind a feature map the last step of a
        pipeline. None of them knows offsets: it predicts what this model predicts for
        an offset of zero.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import FamilyModel
        >>> model = FamilyModel(
        ...     family="poisson", coef=np.array([0.1]), intercept=0.5, alpha=0.0
        ... )
        >>> model.to_sklearn().predict([[1.0]]).round(4)
        array([1.8221])
        """
        return super().to_sklearn()
