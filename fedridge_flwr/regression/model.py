"""`RidgeModel`: what a fit leaves behind, in scikit-learn's terms."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._files import read_file, strict_json
from .._text import counted
from .._types import Array
from ..data.rows import Block, Rows, check_rows, finite_block
from ..errors import DataError, FedRidgeError
from ..features import FeatureMap, GaussianProjection, map_rows
from . import model_file as saved

if TYPE_CHECKING:
    import os

    from sklearn.linear_model import Ridge
    from sklearn.pipeline import Pipeline

__all__ = ["Evaluation", "RidgeModel"]

_FORMAT = "fedridge-model"
_VERSION = 1
_SUMMARY_ROWS = 40
_MAPPED_ROWS = 5
_PREDICT_BYTES = 8 << 20
_LONGEST_REASON = 300


class Evaluation(NamedTuple):
    """Mean squared error and R² on some rows; R² is NaN where y does not vary."""

    mse: float
    r2: float
    n_rows: int


class _Errors(NamedTuple):
    """Mean squared error and variance of y, per target."""

    error: Array
    spread: Array
    n_rows: int


def _weighted_mean(rows: Rows, values: Callable[[Block], Array]) -> Array:
    """Return the weighted mean of something over all rows, block by block."""
    total, weight = np.zeros(rows.n_targets), 0.0
    for block in rows.blocks():
        own = block.weights
        total = total + own @ np.asarray(values(block), dtype=np.float64)
        weight += float(own.sum())
    return total / weight


class RidgeModel:
    """Ridge regression: minimises ``||y - phi(X) w - b||² + alpha ||w||²``.

    Returned by `solve` and kept by the strategies as ``model_``; there is no need to
    make one by hand. Without a feature map ``phi(X)`` is X. With d features and t
    targets the shapes are those of scikit-learn's Ridge.

    Parameters
    ----------
    coef, intercept, alpha, n_rows, n_clients, condition, r2, privacy
        Kept as the attribute of the same name with an underscore, see below.
    fit_intercept : bool
        Whether the intercept was fitted.
    standardize : bool
        Whether the penalty was on the coefficients of standardised features.
    feature_names : sequence of str, optional
        Names of the columns that `predict` takes.
    alpha_chosen_by : str, optional
        How alpha was chosen, in words.
    feature_map : FeatureMap, optional
        Map of the raw columns; needs `n_features_in`.
    n_features_in : int, optional
        Number of raw columns, where there is a map.
    map_fingerprint : str, optional
        Fingerprint of the map of the fit; a map that has another one is refused.

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
    feature_names_in_ : ndarray of str
        Names of the columns that `predict` takes; only there if they are known.
    feature_map : FeatureMap or None
        Map of the raw columns, which `predict` applies.
    map_fingerprint : str or None
        Fingerprint of the map that the statistics went through.
    n_rows_ : int or None
        How many rows the model stands on. Of a private model the number is noisy, or
        None.
    n_clients_ : int
        How many contributions the model stands on.
    condition_ : float or None
        Estimated condition of the scaled system that was solved; None where it is not
        known, as of a private model.
    r2_ : float or None
        R² on the training rows (mean over targets); None where the statistics do
        not tell.
    privacy_ : dict or None
        The privacy report of a private model: what is promised, and what it cost.

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
        feature_names: Sequence[str] | None = None,
        n_rows: int | None = 0,
        n_clients: int = 0,
        condition: float | None = None,
        r2: float | None = None,
        alpha_chosen_by: str | None = None,
        privacy: dict[str, Any] | None = None,
        feature_map: FeatureMap | None = None,
        n_features_in: int | None = None,
        map_fingerprint: str | None = None,
    ) -> None:
        self.coef_ = coef
        self.intercept_ = intercept
        self.alpha_ = alpha
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.n_rows_ = n_rows
        self.n_clients_ = n_clients
        self.condition_ = condition
        self.r2_ = r2
        self.alpha_chosen_by = alpha_chosen_by
        self.privacy_ = privacy
        self.feature_map: FeatureMap | None = None
        self._n_features_in: int | None = None
        self.map_fingerprint = map_fingerprint
        if feature_names is not None:
            self.feature_names_in_ = np.asarray(feature_names, dtype=object)
        if feature_map is not None:
            self._set_map(feature_map, n_features_in)

    @property
    def n_features_in_(self) -> int:
        """Number of columns that `predict` takes, raw ones where there is a map."""
        mapped = int(self.coef_.shape[-1])
        return mapped if self._n_features_in is None else self._n_features_in

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
            "coef_original_ is only there without a feature map, or with a "
            "GaussianProjection alone: use predict, or to_sklearn()."
        )

    def with_feature_map(
        self,
        feature_map: FeatureMap,
        n_features_in: int,
        feature_names: Sequence[str] | None = None,
    ) -> RidgeModel:
        """Return the same model on raw columns, which are mapped before they are used.

        `solve` knows statistics only, and so only the fingerprint of the map behind
        them; the strategies do this step by themselves.

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
            raise FedRidgeError("the model has a feature map already.")
        model = copy.copy(self)
        vars(model).pop("feature_names_in_", None)
        if feature_names is not None:
            model.feature_names_in_ = np.asarray(feature_names, dtype=object)
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
        names = getattr(self, "feature_names_in_", None)
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
            Features, in the order of the fit; raw columns, where there is a map.

        Returns
        -------
        ndarray of shape (n,) or (n, t)
            Predictions; (n,) for one target.

        Raises
        ------
        DataError
            If X has another number of columns or, as a data frame, other names or
            another order, or NaN or infinite values.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> solve(stats, alpha=0.0).predict([[2.0], [10.0]]).round(6)
        array([ 5., 21.])
        """
        block = finite_block(X)
        self._check_columns(X, block.shape[1])
        if self.feature_map is None:
            return np.asarray(block @ self.coef_.T + self.intercept_)
        return self._predict_mapped(block, self.feature_map)

    def _predict_mapped(self, raw: Any, feature_map: FeatureMap) -> Array:
        height = max(1, _PREDICT_BYTES // (8 * feature_map.widest(raw.shape[1])))
        predictions = np.empty((raw.shape[0], *self.coef_.shape[:-1]))
        for start in range(0, raw.shape[0], height):
            mapped = feature_map.transform(raw[start : start + height])
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
        error, spread, n_rows = self._errors(X, y, sample_weight)
        defined = n_rows > 1 and bool(np.all(spread > 0))
        r2 = float(np.mean(1.0 - error / spread)) if defined else float("nan")
        return Evaluation(float(np.mean(error)), r2, n_rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² of the predictions, as ``score`` of scikit-learn's Ridge does.

        Where y does not vary it is 1.0 for perfect predictions and 0.0 otherwise; of
        a single row it is NaN.

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
        float
            1 - (squared errors) / (squared deviations of y), mean over targets.

        Raises
        ------
        DataError
            If there are no rows, or they do not fit the model.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0])
        >>> round(solve(stats, alpha=0.0).score([[2.0], [3.0]], [5.0, 8.0]), 6)
        0.777778
        """
        errors = self._errors(X, y, sample_weight)
        if errors.n_rows < 2:
            return float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = 1.0 - errors.error / errors.spread
        flat = np.where(errors.error > 0, 0.0, 1.0)
        return float(np.mean(np.where(errors.spread > 0, r2, flat)))

    def _errors(self, X: Any, y: Any, sample_weight: Any) -> _Errors:
        rows = check_rows(X, y, sample_weight)
        if rows.n_rows == 0:
            raise DataError("there are no rows to evaluate on.")
        if rows.weight is not None and not rows.weight.any():
            raise DataError("sample_weight is zero for every row to evaluate on.")
        self._check_columns(X, rows.n_features)
        targets = self.coef_.shape[0] if self.coef_.ndim == 2 else 1
        if rows.n_targets != targets:
            raise DataError(
                f"y has {counted(rows.n_targets, 'target')}, but the model "
                f"predicts {targets}."
            )
        mapped = map_rows(rows, self.feature_map)
        with np.errstate(invalid="ignore", over="ignore"):
            mean = _weighted_mean(rows, lambda block: block.Y)
            error = _weighted_mean(
                mapped, lambda block: (block.Y - self._predict_block(block.X)) ** 2
            )
            spread = _weighted_mean(rows, lambda block: (block.Y - mean) ** 2)
        if not np.isfinite(error).all():
            mapped.refuse_bad_values()
        return _Errors(error, spread, rows.n_rows)

    def _predict_block(self, X: Any) -> Array:
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_)

    def _check_columns(self, X: Any, n_features: int) -> None:
        if n_features != self.n_features_in_:
            raise DataError(
                f"X has {n_features} features, but the model was fitted with "
                f"{self.n_features_in_}{self._map_missing()}."
            )
        columns = getattr(X, "columns", None)
        known = getattr(self, "feature_names_in_", None)
        if columns is None or known is None:
            return
        other = [j for j, name in enumerate(known) if name != columns[j]]
        if other:
            raise DataError(
                "the columns of X are not those of the fit, in the same order: "
                "see {columns}.",
                other,
                [str(column) for column in columns],
            )

    def _map_missing(self) -> str:
        if self.feature_map is not None or self.map_fingerprint is None:
            return ""
        return (
            " behind a feature map; with_feature_map(feature_map, n_features_in) "
            "returns a model on raw columns"
        )

    # ---- look -----------------------------------------------------------------

    def summary(self) -> str:
        """Return a readable table of the fit; ``print`` it.

        Of many features the first are shown.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics, solve
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 2.0])
        >>> print(solve(stats, alpha=0.0).summary())
        Ridge regression
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
        facts = [
            ("rows", self._rows_in_words()),
            ("clients", f"{self.n_clients_}"),
            ("alpha", self._alpha_in_words()),
            ("R² (train)", "not known" if self.r2_ is None else f"{self.r2_:.6g}"),
            (
                "condition",
                "not known"
                if self.condition_ is None
                else f"{self.condition_:.1f}"
                if self.condition_ < 1e4
                else f"{self.condition_:.1e}",
            ),
        ]
        if self.privacy_ is not None:
            facts.append(("privacy", _promise(self.privacy_)))
        if self.standardize:
            facts.insert(3, ("penalty on", "standardised features"))
        if self.feature_map is not None:
            words = self.feature_map.describe(self.n_features_in_)
            facts.insert(0, ("features", words))
        lines = ["Ridge regression"]
        lines += [f"  {name:<10}  {value}" for name, value in facts]
        return "\n".join([*lines, "", *self._coefficient_table()])

    def _rows_in_words(self) -> str:
        if self.n_rows_ is None:
            return "hidden by the noise"
        return f"{self.n_rows_}" if self.privacy_ is None else f"about {self.n_rows_}"

    def _alpha_in_words(self) -> str:
        chosen = self.alpha_chosen_by
        return f"{self.alpha_:g}" + ("" if chosen is None else f" ({chosen})")

    def _coefficient_table(self) -> list[str]:
        known = getattr(self, "feature_names_in_", None)
        behind_map = self.map_fingerprint is not None
        letter = "f" if behind_map else "x"
        names = [f"{letter}{j}" for j in range(self.coef_.shape[-1])]
        if known is not None and not behind_map:
            names = [str(name) for name in known]
        coefs = np.atleast_2d(self.coef_)
        heads = (
            ["coefficient"]
            if coefs.shape[0] == 1
            else [f"target {k}" for k in range(coefs.shape[0])]
        )
        shown = min(len(names), _MAPPED_ROWS if behind_map else _SUMMARY_ROWS)
        table = [(names[j], coefs[:, j]) for j in range(shown)]
        if self.fit_intercept:
            table.append(("intercept", np.atleast_1d(self.intercept_)))
        width = max(9, *(len(name) for name, _ in table))
        lines = [f"  {'':<{width}}  " + "  ".join(f"{head:>11}" for head in heads)]
        for name, values in table:
            cells = "  ".join(f"{value:>11.6g}" for value in values)
            lines.append(f"  {name:<{width}}  {cells}")
        if shown < len(names):
            left_out = f"  ... and {len(names) - shown} more features (see coef_)"
            lines.insert(1 + shown, left_out)
        return lines

    def __repr__(self) -> str:
        """Show what the model is and what it stands on."""
        facts = [
            f"alpha={self.alpha_}",
            self._features_in_words(),
            *([] if self.n_rows_ is None else [counted(self.n_rows_, "row")]),
            counted(self.n_clients_, "client"),
            *([] if self.r2_ is None else [f"R²={self.r2_:.4g}"]),
        ]
        return f"RidgeModel({', '.join(facts)})"

    def _features_in_words(self) -> str:
        features = counted(self.coef_.shape[-1], "feature")
        if self.feature_map is None:
            return features
        return f"{features} of {counted(self.n_features_in_, 'column')}"

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
        if self.feature_map is None:
            return self._to_ridge()
        from sklearn.pipeline import Pipeline

        mapping = self.feature_map.to_sklearn(self.n_features_in_)
        if hasattr(self, "feature_names_in_"):
            first = mapping[0] if isinstance(mapping, Pipeline) else mapping
            first.feature_names_in_ = self.feature_names_in_.copy()
        return Pipeline([("features", mapping), ("ridge", self._to_ridge())])

    def _to_ridge(self) -> Ridge:
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=self.alpha_, fit_intercept=self.fit_intercept)
        ridge.coef_ = self.coef_.copy()
        ridge.intercept_ = np.copy(self.intercept_)[()]
        ridge.n_features_in_ = self.coef_.shape[-1]
        ridge.n_iter_ = None
        ridge.solver_ = "cholesky"
        if self.feature_map is None and hasattr(self, "feature_names_in_"):
            ridge.feature_names_in_ = self.feature_names_in_.copy()
        return ridge

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON; every float64 comes back exactly.

        Parameters
        ----------
        path : path-like
            File to write; missing folders are made, and a file that is there is
            replaced.

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
        names = getattr(self, "feature_names_in_", None)
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "coef": self.coef_.tolist(),
            "intercept": np.asarray(self.intercept_).tolist(),
            "alpha": self.alpha_,
            "fit_intercept": self.fit_intercept,
            "standardize": self.standardize,
            "feature_names": None if names is None else names.tolist(),
            "n_rows": self.n_rows_,
            "n_clients": self.n_clients_,
            "condition": self.condition_,
            "r2": self.r2_,
            "alpha_chosen_by": self.alpha_chosen_by,
            "privacy": self.privacy_,
        }
        if self.map_fingerprint is not None:
            content["map_fingerprint"] = self.map_fingerprint
        if self.feature_map is not None:
            content["feature_map"] = self.feature_map.content()
            content["n_features_in"] = self.n_features_in_
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RidgeModel:
        """Read a model written by `save`; what does not look like one is refused.

        No pickle: a file from elsewhere can hold wrong numbers, but runs no code.

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
        try:
            content = strict_json(read_file(Path(path)))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise FedRidgeError(
                f"{path} is not a model file, or is damaged: {error}."
            ) from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise FedRidgeError(f"{path} is not a model written by RidgeModel.save.")
        version = content.get("version")
        if type(version) is not int or version != _VERSION:
            raise FedRidgeError(
                f"{path} has version {str(version)[:60]} of the model format, "
                f"this package reads {_VERSION}: install a matching fedridge-flwr."
            )
        try:
            return cls._from_content(content)
        except KeyError as error:
            raise FedRidgeError(f"{path} is damaged: it has no {error}.") from error
        except ValueError as error:
            reason = str(error)[:_LONGEST_REASON]
            raise FedRidgeError(f"{path} is damaged: {reason}.") from error

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> RidgeModel:
        coef = saved.numbers(content["coef"], "coef")
        intercept = saved.numbers(content["intercept"], "intercept")
        if (
            coef.ndim not in (1, 2)
            or coef.size == 0
            or intercept.shape not in ((), coef.shape[:-1])
        ):
            raise ValueError(
                f"coef of shape {coef.shape}, intercept of shape {intercept.shape}"
            )
        feature_map, n_features_in = _map_from(content)
        expected = coef.shape[-1] if n_features_in is None else n_features_in
        return cls(
            coef=coef,
            intercept=float(intercept) if intercept.ndim == 0 else intercept,
            alpha=saved.number(content["alpha"], "alpha", 0.0),
            fit_intercept=saved.flag(content["fit_intercept"], "fit_intercept"),
            standardize=saved.flag(content["standardize"], "standardize"),
            feature_names=saved.names(content["feature_names"], expected),
            n_rows=saved.maybe(saved.whole, content["n_rows"], "n_rows"),
            n_clients=saved.whole(content["n_clients"], "n_clients"),
            condition=saved.maybe(saved.number, content["condition"], "condition"),
            r2=saved.maybe(saved.number, content["r2"], "r2"),
            alpha_chosen_by=saved.maybe(
                saved.text, content.get("alpha_chosen_by"), "alpha_chosen_by"
            ),
            privacy=saved.maybe(saved.promise, content.get("privacy"), "privacy"),
            feature_map=feature_map,
            n_features_in=n_features_in,
            map_fingerprint=saved.maybe(
                saved.text, content.get("map_fingerprint"), "map_fingerprint"
            ),
        )


def _map_from(content: dict[str, Any]) -> tuple[FeatureMap | None, int | None]:
    if content.get("feature_map") is None:
        return None, None
    feature_map = FeatureMap.from_json(json.dumps(content["feature_map"]))
    return feature_map, saved.whole(content["n_features_in"], "n_features_in")


def _promise(privacy: dict[str, Any]) -> str:
    words = (
        f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g} for each "
        f"{privacy['unit']} ({privacy['neighboring']}, {privacy['trust']} trust)"
    )
    if privacy["calibration"] == "paper":
        words += f"; NOT as claimed: {privacy['true_epsilon']:.3g}"
    return words
