"""`RidgeClassifierModel`: a fitted model whose targets are classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..data.labels import (
    check_classes,
    class_targets,
    codes_among,
    encode_labels,
    natural_labels,
    target_labels,
)
from ..errors import FedRidgeError
from .evaluation import Evaluation, error_moments
from .model import RidgeModel

if TYPE_CHECKING:
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import Pipeline


class RidgeClassifierModel(RidgeModel):
    """Ridge classifier: minimises ``||Y - phi(X) W - b||² + alpha ||W||²``.

    Y has one column for each class, 1 for its rows and -1 for all others, and the class
    with the largest ``phi(x) w + b`` is predicted. Of two classes there is one column,
    that of the second. This is scikit-learn's RidgeClassifier on the pooled rows, and
    ``model_`` of a strategy with `classes`.

    Parameters
    ----------
    classes : sequence
        The labels of the classes.
    **parameters
        As in `RidgeModel`; `coef` has shape (1, d) for two classes, else (t, d).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes in order: integers if all labels are whole numbers, booleans if they
        are "true" and "false", else text.
    coef_ : ndarray of shape (1, d) or (n_classes, d)
        Coefficients, one row for each target.
    intercept_ : ndarray of shape (1,) or (n_classes,), or float
        Intercept; 0.0 where none was fitted.

    Examples
    --------
    >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [-1.0, -1.0, 1.0, 1.0]
    >>> fitted = solve(SufficientStatistics.from_data(X, y), alpha=1.0)
    >>> model = RidgeClassifierModel.from_model(fitted, ["fir", "oak"])
    >>> model
    RidgeClassifierModel(alpha=1.0, 1 feature, 4 rows, 1 client, R²=0.7778)
    >>> model.predict([[0.2], [5.0]])
    array(['fir', 'oak'], dtype='<U3')
    """

    def __init__(self, *, classes: Sequence[Any], **parameters: Any) -> None:
        super().__init__(**parameters)
        self.labels = check_classes(classes)
        wanted = len(target_labels(self.labels))
        if self.coef_.ndim != 2 or len(self.coef_) != wanted:
            raise FedRidgeError(
                f"{len(self.labels)} classes need coef of shape ({wanted}, d), got "
                f"{self.coef_.shape}."
            )

    @classmethod
    def from_model(
        cls, model: RidgeModel, classes: Sequence[Any]
    ) -> RidgeClassifierModel:
        """Return a model of the targets 1 and -1 as a classifier.

        With it another alpha needs no further round: solve the ``statistics_`` of a
        strategy.

        Parameters
        ----------
        model : RidgeModel
            The model; of two classes it has one target, 1 for the second.
        classes : sequence
            The labels of all classes, of which `classes_` is the order.

        Raises
        ------
        FedRidgeError
            If the model has another number of targets.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> Y = [[1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0], [5.0]], Y)
        >>> RidgeClassifierModel.from_model(solve(stats), [1, 2, 3]).predict([[9.0]])
        array([3])
        """
        labels = check_classes(classes)
        if len(np.atleast_2d(model.coef_)) != len(target_labels(labels)):
            raise FedRidgeError(
                f"a model of {len(np.atleast_2d(model.coef_))} targets cannot have "
                f"{len(labels)} classes."
            )
        found = cls.__new__(cls)
        found.__dict__.update(model.__dict__, labels=labels)
        found.coef_ = np.atleast_2d(model.coef_)
        if model.fit_intercept:
            found.intercept_ = np.atleast_1d(model.intercept_)
        return found

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes in order."""
        return natural_labels(self.labels)

    def decision_function(self, X: Any) -> Array:
        """Return ``phi(X) w + b``: one score for each class, or of the second of two.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features, as `RidgeModel.predict` takes them.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Scores; of two classes, above 0 where the second is predicted.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [-1.0, 1.0])
        >>> model = RidgeClassifierModel.from_model(solve(stats, 0.0), ["no", "yes"])
        >>> model.decision_function([[0.5], [1.0]]).round(6) + 0.0
        array([0., 1.])
        """
        scores = super().predict(X)
        return scores[:, 0] if len(self.labels) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score for every row.

        Parameters
        ----------
        X
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n,)
            Labels, of the type of `classes_`.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [-1.0, 1.0])
        >>> model = RidgeClassifierModel.from_model(solve(stats, 0.0), [False, True])
        >>> model.predict([[0.1], [2.0]])
        array([False,  True])
        """
        scores = self.decision_function(X)
        two = len(self.labels) == 2
        places = (scores > 0).astype(np.intp) if two else np.argmax(scores, axis=1)
        return np.asarray(self.classes_[places])

    def evaluate(self, X: Any, y: Any, sample_weight: Any = None) -> Evaluation:
        """Return mean squared error and R² of the targets 1 and -1, mean over classes.

        Rows of a class that the model does not know are -1 in every column (0 if there
        is one column for two classes).

        Parameters
        ----------
        X, sample_weight
            As in `RidgeModel.evaluate`.
        y : array of shape (n,)
            Labels.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [-1.0, 1.0])
        >>> model = RidgeClassifierModel.from_model(solve(stats, 0.0), ["no", "yes"])
        >>> round(model.evaluate([[0.0], [1.5]], ["no", "yes"]).mse, 6)
        0.5
        """
        return super().evaluate(X, self._targets(y), sample_weight)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy: the weighted share of rows whose class is predicted.

        Parameters
        ----------
        X, sample_weight
            As in `RidgeModel.evaluate`.
        y : array of shape (n,)
            Labels, of any type: 1, 1.0 and "1" are the same.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [-1.0, 1.0])
        >>> model = RidgeClassifierModel.from_model(solve(stats, 0.0), ["no", "yes"])
        >>> model.score([[0.1], [0.8], [0.2], [3.0]], ["no", "yes", "yes", "yes"])
        0.75
        """
        targets = self._targets(y)
        found = error_moments(self, X, targets, sample_weight, is_right)
        return float(found.accuracy or 0.0)

    def to_sklearn(self) -> RidgeClassifier | Pipeline:
        """Return a fitted ``sklearn.linear_model.RidgeClassifier``.

        With a feature map it is the last step of a pipeline, whose first is the map.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [-1.0, 1.0])
        >>> model = RidgeClassifierModel.from_model(solve(stats, 1.0), ["no", "yes"])
        >>> model.to_sklearn().predict([[3.0]])
        array(['yes'], dtype='<U3')
        """
        return super().to_sklearn()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RidgeClassifierModel:
        """Read a classifier written by `save`, as `RidgeModel.load` does as well.

        Raises
        ------
        FedRidgeError
            If it is not a classifier, or for any reason of `RidgeModel.load`.

        Examples
        --------
        >>> import tempfile
        >>> from fedridge_flwr import RidgeClassifierModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [-1.0, 1.0])
        >>> model = RidgeClassifierModel.from_model(solve(stats, 1.0), ["no", "yes"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.json")
        ...     RidgeClassifierModel.load(f"{folder}/model.json").classes_
        array(['no', 'yes'], dtype='<U3')
        """
        found = RidgeModel.load(path)
        if not isinstance(found, cls):
            raise FedRidgeError(f"{path} has no classes: read it with RidgeModel.load.")
        return found

    def _targets(self, y: Any) -> NDArray[np.int8]:
        codes = codes_among(self.labels, *encode_labels(y))
        return class_targets(codes, len(self.labels))


def is_right(targets: Any, scores: Array) -> NDArray[np.bool_]:
    """Return in which rows the largest score is that of the row's class.

    Of one column, the score of the second of two classes, the sign decides.

    Examples
    --------
    >>> is_right(np.array([[1], [-1], [0]]), np.array([[0.2], [0.3], [-0.1]])).tolist()
    [True, False, False]
    """
    if targets.shape[1] == 1:
        return np.asarray((targets * np.where(scores > 0, 1, -1))[:, 0] > 0)
    best = np.argmax(scores, axis=1)
    return np.asarray(np.take_along_axis(targets, best[:, None], axis=1)[:, 0] > 0)
