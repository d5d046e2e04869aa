"""`RidgeModel`: the fitted coefficients, as a scikit-learn estimator has them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..data.coding import Coding
from ..data.local_table import coded_features
from ..data.names import Names
from ..data.rows import named_block, places_of
from ..errors import DataError, FedRidgeError
from ..features import FeatureMap, GaussianProjection
from .evaluation import Evaluation, error_moments
from .model_file import read_model, write_model
from .sklearn_form import fitted_estimator
from .summary import model_repr, model_summary

if TYPE_CHECKING:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import Pipeline

    from .inference.inference_result import Inference

_PREDICT_BYTES = 8 << 20


class RidgeModel:
    """Ridge regression: minimises ``||y - phi(X) w - b||² + alpha ||w||²``.

    Returned by `solve` and kept by the strategies as ``model_``; you do not need to
    create one yourself. Without a feature map ``phi(X)`` is X. With d features and t
    targets the shapes are those of scikit-learn's Ridge.

    Parameters
    ----------
    coef, intercept, alpha, n_rows, n_clients, condition, r2, privacy, scope, coding, \
        weighted_by
        Kept as the attribute of the same name, most with an underscore, see below.
    fit_intercept : bool
        Whether the intercept was fitted.
    standardize : bool
        Whether the penalty was on the coefficients of standardised features.
    feature_names : sequence of str or Names, optional
        Names of the columns that `predict` takes, or their hashes.
    target_names : sequence of str or Names, optional
        The same of the targets.
    alpha_chosen_by : str, optional
        How alpha was chosen.
    feature_map : FeatureMap, optional
        Map of the raw columns; needs `n_features_in`.
    n_features_in : int, optional
        Number of raw columns, where there is a map.
    map_fingerprint : str, optional
        Fingerprint of the map of the fit; a map that has another one is refused.
    form : {"moments", "triangular"}
        Form of the statistics.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (t, d)
        Coefficients, in the original units of the features; with a feature map, of the
        mapped columns.
    intercept_ : float or ndarray of shape (t,)
        Intercept; 0.0 where none was fitted.
    alpha_ : float
        The penalty used.
    alpha_chosen_by : str or None
        How it was chosen, if it was not given.
    features, targets : Names or None
        What is known of the names of columns and targets; hashes, where clients do not
        share the names. `predict` compares the columns of a data frame with them.
    feature_map : FeatureMap or None
        Map of the raw columns, which `predict` applies.
    map_fingerprint : str or None
        Fingerprint of the map that the statistics went through.
    n_rows_ : int or None
        Number of rows of the fit. Of a private model the number is noisy, or None.
    n_clients_ : int
        Number of contributions in the fit.
    condition_ : float or None
        Estimated condition of the scaled system that was solved; None where it is not
        known, as of a private model.
    r2_ : float or None
        R² on the training rows (mean over targets); None where it cannot be computed
        from the statistics.
    privacy_ : dict or None
        The privacy report of a private model: the guarantee, and the budget spent.
    scope_ : str
        How many clients and rows are in the model, if some were left out.
    coding : Coding or None
        How the columns of a table become features, where there was a formula.
    form : str
        Form of the statistics it was solved from: "moments" or "triangular".
    weighted_by : str
        Column of weights, "rows" if it has no name; empty without weights.
    infer : callable or None
        Returns the `Inference` of a federated fit; neither saved nor copied.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics, solve
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> model = solve(stats, alpha=1.0)
    >>> model
    RidgeModel(alpha=1.0, 1 feature, 3 rows, 1 client, R²=0.8571)
    >>> model.coef_.round(6), round(model.intercept_, 6)
    (array([1.]), 1.333333)
    >>> model.predict([[3.0]]).round(6)
    array([4.333333])
    """

    def __init__(
        self,
        *,
        coef: Array,
        intercept: float | Array,
        alpha: float,
        fit_intercept: bool = True,
        standardize: bool = False,
        feature_names: Sequence[str] | Names | None = None,
        target_names: Sequence[str] | Names | None = None,
        n_rows: int | None = 0,
        n_clients: int = 0,
        condition: float | None = None,
        r2: float | None = None,
        alpha_chosen_by: str | None = None,
        privacy: dict[str, Any] | None = None,
        feature_map: FeatureMap | None = None,
        n_features_in: int | None = None,
        map_fingerprint: str | None = None,
        scope: str = "",
        coding: Coding | None = None,
        form: str = "moments",
        weighted_by: str = "",
    ) -> None:
        self.coef_, self.intercept_, self.alpha_ = coef, intercept, alpha
        self.fit_intercept, self.standardize = fit_intercept, standardize
        self.n_rows_, self.n_clients_ = n_rows, n_clients
        self.condition_, self.r2_ = condition, r2
        self.alpha_chosen_by, self.privacy_ = alpha_chosen_by, privacy
        self.infer: Callable[[], Inference] | None = None
        self.scope_, self.coding, self.form = scope, coding, form
        self.weighted_by = weighted_by
        self.feature_map: FeatureMap | None = None
        self._n_features_in: int | None = None
        self.map_fingerprint = map_fingerprint
        given = feature_names, target_names
        self.features, self.targets = (n if n is None else Names.of(n) for n in given)
        if feature_map is not None:
            self._set_map(feature_map, n_features_in)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns that `predict` takes; only there if they are known."""
        if self.features is None or self.features.known is None:
            raise AttributeError("the names of the columns are not known.")
        return np.asarray(self.features.known, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns that `predict` takes, raw ones where there is a map."""
        return self._n_features_in or int(self.coef_.shape[-1])

    @property
    def coef_original_(self) -> Array:
        """Coefficients of the raw columns, shape (d,) or (t, d).

        They are ``R w`` of a projection, and ``coef_`` without a map.
        ``X @ coef_original_.T + intercept_`` is what `predict` returns. Models with
        maps other than `GaussianProjection` do not have it (`AttributeError`).

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import GaussianProjection, SufficientStatistics, solve
        >>> X, y = np.eye(4), [1.0, 2.0, 3.0, 4.0]
        >>> projection = GaussianProjection(2)
        >>> stats = SufficientStatistics.from_data(X, y, feature_map=projection)
        >>> model = solve(stats, alpha=1.0).with_feature_map(projection, 4)
        >>> model.coef_.shape, model.coef_original_.shape
        ((2,), (4,))
        >>> by_hand = X @ model.coef_original_ + model.intercept_
        >>> bool(np.allclose(by_hand, model.predict(X)))
        True
        """
        if self.feature_map is None:
            return self.coef_
        if isinstance(self.feature_map, GaussianProjection):
            return self.feature_map.original_coef(self.coef_, self.n_features_in_)
        raise AttributeError(
            "coef_original_ is only defined without a feature map, or with a "
            "GaussianProjection alone: use predict, or to_sklearn()."
        )

    def with_feature_map(
        self,
        feature_map: FeatureMap,
        n_features_in: int,
        feature_names: Sequence[str] | None = None,
    ) -> RidgeModel:
        """Return the same model on raw columns, which are mapped before they are used.

        `solve` sees only statistics, and so only the fingerprint of their map. The
        strategies call this method automatically.

        Parameters
        ----------
        feature_map : FeatureMap
            The map that the rows of the fit went through.
        n_features_in : int
            Number of raw columns.
        feature_names : sequence of str, optional
            Names of the raw columns.

        Returns
        -------
        RidgeModel
            A copy; this model stays as it is.

        Raises
        ------
        FedRidgeError
            If it is not the map of the fit, or the model has a map already.

        Examples
        --------
        >>> from fedridge_flwr import PolynomialMap, SufficientStatistics, solve
        >>> X, y, square = [[0.0], [1.0], [2.0]], [1.0, 2.0, 5.0], PolynomialMap(2)
        >>> stats = SufficientStatistics.from_data(X, y, feature_map=square)
        >>> model = solve(stats, alpha=0.0).with_feature_map(square, 1)
        >>> model.predict([[3.0]]).round(6)
        array([10.])
        """
        if self.feature_map is not None:
            raise FedRidgeError("the model already has a feature map.")
        model = copy.copy(self)
        if feature_names is not None:
            model.features = Names.of(feature_names)
        model._set_map(feature_map, n_features_in)
        return model

    def _set_map(self, feature_map: FeatureMap, n_features_in: int | None) -> None:
        if not isinstance(feature_map, FeatureMap) or n_features_in is None:
            raise FedRidgeError(
                "a model on raw columns needs a FeatureMap and n_features_in, their "
                "number."
            )
        made, needed = feature_map.n_features_out(n_features_in), self.coef_.shape[-1]
        if made != needed:
            raise FedRidgeError(
                f"{feature_map.kind} makes {made} columns of {n_features_in}, but the "
                f"model has coefficients of {needed}."
            )
        names = None if self.features is None else self.features.known
        if names is not None and len(names) != n_features_in:
            raise FedRidgeError(f"{len(names)} names for {n_features_in} raw columns.")
        fingerprint = feature_map.fingerprint(n_features_in)
        if self.map_fingerprint not in (None, fingerprint):
            raise FedRidgeError(
                "this is not the feature map that the model was fitted with: kind, "
                "size, seed or parameters differ, or the random numbers, if another "
                "NumPy drew them."
            )
        self.feature_map, self._n_features_in = feature_map, int(n_features_in)
        self.map_fingerprint = fingerprint

    # ---- use ------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """Return ``phi(X) w + b``: predictions of shape (n,), or (n, t).

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features; raw columns, where there is a map or a formula. Columns of a data
            frame may be in any order if the model knows their names or their hashes.

        Returns
        -------
        ndarray of shape (n,) or (n, t)
            Predictions; (n,) for one target.

        Raises
        ------
        DataError
            If X has another number of columns or, as a data frame, other names, or
            NaN or infinite values.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> solve(stats, alpha=0.0).predict([[2.0], [10.0]]).round(6)
        array([ 5., 21.])
        """
        X = X if self.coding is None else coded_features(self.coding, X)
        block, names = named_block(X)
        self._check_width(block.shape[1])
        places = places_of("X", names, self.features)
        if places is not None:
            block = block[:, places]
        if self.feature_map is None:
            return np.asarray(block @ self.coef_.T + self.intercept_)
        n_rows, d = block.shape
        height = max(1, _PREDICT_BYTES // (8 * self.feature_map.widest(d)))
        predictions = np.empty((n_rows, *self.coef_.shape[:-1]))
        for start in range(0, n_rows, height):
            mapped = self.feature_map.transform(block[start : start + height])
            predictions[start : start + height] = mapped @ self.coef_.T
        return predictions + self.intercept_

    def evaluate(self, X: Any, y: Any, sample_weight: Any = None) -> Evaluation:
        """Return mean squared error and R² on the given rows (mean over targets).

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features, as `predict` takes them.
        y : array of shape (n,) or (n, t)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights.

        Returns
        -------
        Evaluation
            A named tuple ``(mse, r2, n_rows)``; ``r2`` is NaN where y does not vary.

        Raises
        ------
        DataError
            If there are no rows, or they do not fit the model.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> model = solve(stats, alpha=0.0)
        >>> mse, r2, n_rows = model.evaluate([[2.0], [3.0]], [5.0, 8.0])
        >>> round(mse, 6), round(r2, 6), n_rows
        (0.5, 0.777778, 2)
        """
        found = error_moments(self, X, y, sample_weight)
        return Evaluation(found.mse, found.r2, found.n_rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² of the predictions, as ``score`` of scikit-learn's Ridge does.

        The mean over targets of 1 - (squared errors) / (squared deviations of y), for
        arguments as in `evaluate`. Where y does not vary it is 1.0 for perfect
        predictions and 0.0 otherwise; of a single row it is NaN.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> round(solve(stats, alpha=0.0).score([[2.0], [3.0]], [5.0, 8.0]), 6)
        0.777778
        """
        return error_moments(self, X, y, sample_weight).score

    def _check_width(self, n_features: int) -> None:
        if n_features != self.n_features_in_:
            missing = ""
            if self.feature_map is None and self.map_fingerprint is not None:
                missing = (
                    " behind a feature map; with_feature_map(feature_map, "
                    "n_features_in) returns a model on raw columns"
                )
            raise DataError(
                f"X has {n_features} features, but the model was fitted with "
                f"{self.n_features_in_}{missing}."
            )

    # ---- look -----------------------------------------------------------------

    def summary(self, inference: Inference | None = None) -> str:
        """Return a readable table of the fit, of many features the first; ``print`` it.

        The model of a federated fit has standard errors, as the fit was asked for;
        others have them with what `infer` returned for the same fit.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 2.0])
        >>> print(solve(stats, alpha=0.0).summary())
        Linear regression (least squares)
          rows        2
          clients     1
          alpha       0
          R² (train)  1
          condition   1.0
        <BLANKLINE>
                     coefficient
          x0                   1
          intercept            1
        """
        return model_summary(self, inference)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the statistics behind that standard errors are computed from."""
        return {**self.__dict__, "infer": None}

    def __repr__(self) -> str:
        """Show the size of the model and of the data behind it."""
        return model_repr(self)

    # ---- keep -----------------------------------------------------------------

    def to_sklearn(self) -> Ridge | Pipeline:
        """Return a fitted ``sklearn.linear_model.Ridge`` with these coefficients.

        With a feature map it is the last step of a ``sklearn.pipeline.Pipeline``, whose
        first step is the map.

        Returns
        -------
        Ridge or Pipeline
            It predicts what this model predicts, and can be pickled and deployed like
            any other estimator.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> ridge = solve(stats, alpha=1.0).to_sklearn()
        >>> ridge
        Ridge()
        >>> ridge.predict([[2.0]]).round(6)
        array([3.])
        """
        return fitted_estimator(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON; every float64 comes back exactly.

        Parameters
        ----------
        path : path-like
            File to write; missing folders are made, an existing file is replaced.

        Examples
        --------
        >>> import tempfile
        >>> from fedridge_flwr import RidgeModel, SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> model = solve(stats, alpha=1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.json")
        ...     same = RidgeModel.load(f"{folder}/model.json")
        >>> bool((same.coef_ == model.coef_).all())
        True
        """
        write_model(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RidgeModel:
        """Read a model written by `save`; every value is checked.

        It does not use pickle: a file from elsewhere can contain wrong numbers, but
        cannot run code.

        Parameters
        ----------
        path : path-like
            File to read.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        FedRidgeError
            If it is not a model, is damaged, or is of another version.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from fedridge_flwr import FedRidgeError, RidgeModel
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "model.json")
        ...     _ = path.write_text('{"coef": [1.0]}')
        ...     try:
        ...         RidgeModel.load(path)
        ...     except FedRidgeError as error:
        ...         print(str(error).replace(str(path), "model.json"))
        model.json is not a model written by RidgeModel.save.
        """
        return read_model(Path(path), cls)
