"""Estimators for notebooks and pipelines: groups of rows stand for clients."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MultiOutputMixin,
    RegressorMixin,
)
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._checks import check_choice
from .._types import Array
from ..data.labels import class_targets
from ..errors import FedRidgeError
from ..statistics.sufficient import SufficientStatistics
from .alpha.alpha_grid import Alphas
from .alpha.alpha_selection import AlphaSelection, select_alpha
from .inference.infer import Inference, infer
from .model import RidgeModel
from .normal_equations import FitOptions
from .solve import solve

_SPARSE = ("csr", "csc")


class _GroupedRidge(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: statistics of each group, merged, and solved."""

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        alphas: Alphas | None = None,
        cv: Any = None,
        fit_intercept: bool = True,
        standardize: bool = False,
    ) -> None:
        self.alpha = alpha
        self.alphas = alphas
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.standardize = standardize

    def _fit_groups(
        self, X: Any, Y: Any, sample_weight: Any, groups: Any
    ) -> RidgeModel:
        """Keep the statistics of every group and their sum, and return the model."""
        self.group_statistics_ = self._statistics(X, Y, sample_weight, groups)
        first, *others = self.group_statistics_.values()
        self.statistics_ = sum(others, start=first)
        self.selection_: AlphaSelection | None = None
        if self.alphas is None:
            model = solve(self.statistics_, self.alpha, **self._options)
        else:
            parts = self._left_out(X, Y, sample_weight)
            self.selection_ = select_alpha(
                self.statistics_ if parts is None else parts,
                self.alphas,
                method="gcv" if parts is None else "loco",
                **self._options,
            )
            model = self.selection_.model
        self.alpha_ = model.alpha_
        return model

    @property
    def _options(self) -> FitOptions:
        return {
            "fit_intercept": bool(self.fit_intercept),
            "standardize": bool(self.standardize),
        }

    def _left_out(
        self, X: Any, Y: Any, sample_weight: Any
    ) -> dict[str, SufficientStatistics] | None:
        """Return what is left out in turn to choose alpha; None for "gcv"."""
        if len(Y) < 2:
            raise FedRidgeError("n_samples=1 is not enough to choose alpha.")
        if self.cv is None:
            several = len(self.group_statistics_) > 1
            return self.group_statistics_ if several else None
        if isinstance(self.cv, str):
            check_choice("cv", self.cv, ("groups", "gcv"))
            return self.group_statistics_ if self.cv == "groups" else None
        return self._statistics(X, Y, sample_weight, _folds(self.cv, len(Y)))

    def _statistics(
        self, X: Any, Y: Any, sample_weight: Any, groups: Any
    ) -> dict[str, SufficientStatistics]:
        if sample_weight is not None:
            sample_weight = np.broadcast_to(np.asarray(sample_weight), len(Y))
            if not np.any(sample_weight):
                raise FedRidgeError("sample_weight is zero for every row.")
        groups = np.zeros(len(Y), int) if groups is None else column_or_1d(groups)
        check_consistent_length(Y, sample_weight, groups)
        missing = sum(group is None or group != group for group in groups.tolist())
        if missing:
            raise FedRidgeError(
                f"groups is missing in {missing} of {len(Y)} rows: say which client "
                "every row belongs to."
            )
        found = {}
        for group in np.unique(groups):
            own = np.flatnonzero(groups == group)
            weight = None if sample_weight is None else sample_weight[own]
            stats = SufficientStatistics.from_data(X[own], Y[own], weight)
            if hasattr(self, "feature_names_in_"):
                stats = stats.with_feature_names(list(self.feature_names_in_))
            found[str(group)] = stats
        return found

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=_SPARSE, reset=False)
        return np.asarray(self.model_.predict(X))

    @property
    def inference_(self) -> Inference:
        """Standard errors, tests and intervals, as `infer` computes them."""
        check_is_fitted(self)
        return infer(
            self.statistics_,
            self.alpha_ if self.selection_ is None else self.selection_,
            **self._options,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _folds(splits: Any, n_rows: int) -> NDArray[np.intp]:
    """Return in which of the splits each row is left out."""
    times, folds = np.zeros(n_rows, int), np.zeros(n_rows, np.intp)
    for k, (_, test) in enumerate(splits):
        times[test] += 1
        folds[test] = k
    if (times != 1).any():
        raise FedRidgeError("the splits of cv must leave every row out once.")
    return folds


class FederatedRidge(MultiOutputMixin, RegressorMixin, _GroupedRidge):  # type: ignore[misc]
    """Ridge regression: minimises ``||y - X w - b||² + alpha ||w||²``, group by group.

    This estimator treats groups of rows as `FedRidge` treats clients, for notebooks,
    pipelines and rehearsals. The statistics of each group are computed separately and
    added up, and alpha is chosen by leaving out one group at a time. The model equals
    scikit-learn's Ridge on all rows.

    Parameters
    ----------
    alpha : float
        Penalty, zero or more. The intercept is never penalised.
    alphas : sequence of float or "auto", optional
        Candidates to choose alpha from, instead of `alpha`.
    cv : {"groups", "gcv"} or list of splits, optional
        How to choose: by leaving groups out, or by generalized cross-validation on the
        total. By default "groups" if there are several. Splits (train, test), as
        scikit-learn makes them, must leave every row out once.
    fit_intercept : bool
        Whether there is an intercept.
    standardize : bool
        Penalise coefficients of features scaled to unit variance.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (t, d)
        Coefficients.
    intercept_ : float or ndarray of shape (t,)
        Intercept; 0.0 where none was fitted.
    alpha_ : float
        The penalty used.
    selection_ : AlphaSelection or None
        How it was chosen, if it was.
    statistics_ : SufficientStatistics
        Those of all rows; another alpha is ``solve(statistics_, alpha)``.
    group_statistics_ : dict of str to SufficientStatistics
        Those of every group.
    model_ : RidgeModel
        The model, as the strategies return it.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X was a data frame; `predict` compares them.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from fedridge_flwr import FederatedRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> clinic = [row % 5 for row in range(len(y))]
    >>> ridge = FederatedRidge(alphas=[0.01, 0.1, 1.0]).fit(X, y, groups=clinic)
    >>> ridge.alpha_
    0.01
    >>> ridge.selection_.describe()
    'leaving out 5 clients in turn, 3 candidates'
    >>> bool(abs(ridge.coef_ - Ridge(alpha=0.01).fit(X, y).coef_).max() < 1e-8)
    True
    """

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Add up the statistics of all groups, choose alpha if asked to, and solve.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features.
        y : array of shape (n,) or (n, t)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights.
        groups : array of shape (n,), optional
            To which client each row belongs; by default all to one.

        Returns
        -------
        FederatedRidge
            The estimator itself.

        Examples
        --------
        >>> from fedridge_flwr import FederatedRidge
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0]
        >>> FederatedRidge(alpha=0.0).fit(X, y, groups=["a", "a", "b", "b"]).coef_
        array([2.])
        """
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=_SPARSE,
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
        )
        self.model_ = self._fit_groups(X, y, sample_weight, groups)
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_
        return self

    def predict(self, X: Any) -> Array:
        """Return ``X w + b``.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features; a data frame must have the columns of the fit, in their order.

        Examples
        --------
        >>> from fedridge_flwr import FederatedRidge
        >>> ridge = FederatedRidge(alpha=0.0).fit([[0.0], [1.0]], [1.0, 3.0])
        >>> ridge.predict([[2.0]]).round(6)
        array([5.])
        """
        return self._scores(X)


class FederatedRidgeClassifier(ClassifierMixin, _GroupedRidge):  # type: ignore[misc]
    """Ridge classifier: one-vs-rest targets of 1 and -1, fitted group by group.

    This estimator treats groups of rows as `FedRidge` with `classes` treats clients.
    The model equals scikit-learn's RidgeClassifier on all rows.

    Parameters
    ----------
    alpha, alphas, cv, fit_intercept, standardize
        As in `FederatedRidge`.
    class_weight : dict or "balanced", optional
        Weight of the rows of each class, as in scikit-learn.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes in order.
    coef_ : ndarray of shape (1, d) or (n_classes, d)
        Coefficients; of two classes, those of the second.
    intercept_ : ndarray of shape (1,) or (n_classes,), or float
        Intercept; 0.0 where none was fitted.
    alpha_, selection_, statistics_, group_statistics_, model_
        As in `FederatedRidge`, of the targets 1 and -1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fedridge_flwr import FederatedRidgeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> garden = [row % 3 for row in range(len(y))]
    >>> iris = FederatedRidgeClassifier(alpha=1.0).fit(X, y, groups=garden)
    >>> iris.predict(X[[0, 60, 120]]), round(iris.score(X, y), 3)
    (array([0, 1, 2]), 0.853)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        alphas: Alphas | None = None,
        cv: Any = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        standardize: bool = False,
    ) -> None:
        super().__init__(
            alpha,
            alphas=alphas,
            cv=cv,
            fit_intercept=fit_intercept,
            standardize=standardize,
        )
        self.class_weight = class_weight

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Add up the statistics of all groups, choose alpha if asked to, and solve.

        Parameters
        ----------
        X, sample_weight, groups
            As in `FederatedRidge.fit`.
        y : array of shape (n,)
            Labels of classes.

        Returns
        -------
        FederatedRidgeClassifier
            The estimator itself.

        Examples
        --------
        >>> from fedridge_flwr import FederatedRidgeClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["fir", "fir", "oak", "oak"]
        >>> FederatedRidgeClassifier().fit(X, y, groups=[1, 2, 1, 2]).classes_
        array(['fir', 'oak'], dtype='<U3')
        """
        X, y = validate_data(self, X, y, accept_sparse=_SPARSE, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise FedRidgeError("y has only 1 class: at least two are needed.")
        if self.class_weight is not None:
            factors = compute_sample_weight(self.class_weight, y)
            sample_weight = factors * (1.0 if sample_weight is None else sample_weight)
        targets = class_targets(codes, len(self.classes_))
        self.model_ = self._fit_groups(X, targets, sample_weight, groups)
        self.coef_ = np.atleast_2d(self.model_.coef_)
        self.intercept_ = self.model_.intercept_
        if self.fit_intercept:
            self.intercept_ = np.atleast_1d(self.intercept_)
        return self

    def decision_function(self, X: Any) -> Array:
        """Return ``X w + b``: one score for each class, or of the second of two.

        Parameters
        ----------
        X
            As in `FederatedRidge.predict`.

        Examples
        --------
        >>> from fedridge_flwr import FederatedRidgeClassifier
        >>> found = FederatedRidgeClassifier(0.0).fit([[0.0], [1.0]], ["no", "yes"])
        >>> found.decision_function([[1.0], [2.0]]).round(6)
        array([1., 3.])
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score for every row.

        Parameters
        ----------
        X
            As in `FederatedRidge.predict`.

        Examples
        --------
        >>> from fedridge_flwr import FederatedRidgeClassifier
        >>> found = FederatedRidgeClassifier().fit([[0.0], [1.0]], ["no", "yes"])
        >>> found.predict([[0.2], [2.0]])
        array(['no', 'yes'], dtype='<U3')
        """
        scores = self.decision_function(X)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[places])
