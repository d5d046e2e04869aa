"""`RidgeModel`: what a fit leaves behind, in scikit-learn's terms."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import DataError, FedRidgeError
from .rows import Array, Block, Rows, check_rows, finite_block
from .words import counted

if TYPE_CHECKING:
    import os

    from sklearn.linear_model import Ridge

__all__ = ["Evaluation", "RidgeModel"]

_FORMAT = "fedridge-model"
_VERSION = 1
_SUMMARY_ROWS = 40


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
        own = np.ones(len(block.Y)) if block.weight is None else block.weight
        total = total + own @ np.asarray(values(block), dtype=np.float64)
        weight += float(own.sum())
    return total / weight


class RidgeModel:
    """Ridge regression: minimises ||y - X w - b||² + alpha ||w||².

    Returned by `solve` and kept by the strategies as ``model_``.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (t, d)
        Coefficients, in the original units of the features.
    intercept_ : float or ndarray of shape (t,)
        Intercept; 0.0 where none was fitted.
    alpha_ : float
        The penalty used.
    alpha_chosen_by : str or None
        How it was chosen, if it was not given.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features; only there if they are known.
    n_rows_, n_clients_ : int
        How many rows and contributions the model stands on. Of a private model the
        rows are noisy, or None.
    condition_ : float
        Estimated condition of the scaled system that was solved.
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
        if feature_names is not None:
            self.feature_names_in_ = np.asarray(feature_names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of features d."""
        return int(self.coef_.shape[-1])

    # ---- use ------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """Return predictions of shape (n,) or (n, t).

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Features, in the order of the fit.
        """
        block = finite_block(X)
        self._check_columns(X, block.shape[1])
        return np.asarray(block @ self.coef_.T + self.intercept_)

    def evaluate(self, X: Any, y: Any, sample_weight: Any = None) -> Evaluation:
        """Return mean squared error and R² on the given rows (mean over targets)."""
        error, spread, n_rows = self._errors(X, y, sample_weight)
        defined = n_rows > 1 and bool(np.all(spread > 0))
        r2 = float(np.mean(1.0 - error / spread)) if defined else float("nan")
        return Evaluation(float(np.mean(error)), r2, n_rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² of the predictions, as scikit-learn's `score` does.

        Where y does not vary it is 1.0 for perfect predictions and 0.0 otherwise.
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
        with np.errstate(invalid="ignore", over="ignore"):
            mean = _weighted_mean(rows, lambda block: block.Y)
            error = _weighted_mean(
                rows, lambda block: (block.Y - self._predict_block(block.X)) ** 2
            )
            spread = _weighted_mean(rows, lambda block: (block.Y - mean) ** 2)
        if not np.isfinite(error).all():
            rows.refuse_bad_values()
        return _Errors(error, spread, rows.n_rows)

    def _predict_block(self, X: Any) -> Array:
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_)

    def _check_columns(self, X: Any, n_features: int) -> None:
        if n_features != self.n_features_in_:
            raise DataError(
                f"X has {n_features} features, but the model was fitted with "
                f"{self.n_features_in_}."
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

    # ---- look -----------------------------------------------------------------

    def summary(self) -> str:
        """Return a readable table of the fit.

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
        names = [f"x{j}" for j in range(self.n_features_in_)]
        names = names if known is None else [str(name) for name in known]
        coefs = np.atleast_2d(self.coef_)
        heads = (
            ["coefficient"]
            if coefs.shape[0] == 1
            else [f"target {k}" for k in range(coefs.shape[0])]
        )
        shown = min(len(names), _SUMMARY_ROWS)
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
            counted(self.n_features_in_, "feature"),
            *([] if self.n_rows_ is None else [counted(self.n_rows_, "row")]),
            counted(self.n_clients_, "client"),
            *([] if self.r2_ is None else [f"R²={self.r2_:.4g}"]),
        ]
        return f"RidgeModel({', '.join(facts)})"

    # ---- keep -----------------------------------------------------------------

    def to_sklearn(self) -> Ridge:
        """Return a fitted `sklearn.linear_model.Ridge` with these coefficients."""
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=self.alpha_, fit_intercept=self.fit_intercept)
        ridge.coef_ = self.coef_.copy()
        ridge.intercept_ = np.copy(self.intercept_)[()]
        ridge.n_features_in_ = self.n_features_in_
        ridge.n_iter_ = None
        ridge.solver_ = "cholesky"
        if hasattr(self, "feature_names_in_"):
            ridge.feature_names_in_ = self.feature_names_in_.copy()
        return ridge

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON; every float64 comes back exactly.

        Parameters
        ----------
        path : path-like
            File to write; missing folders are made.
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
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RidgeModel:
        """Read a model written by `save`; what does not look like one is refused.

        Parameters
        ----------
        path : path-like
            File to read.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise FedRidgeError(f"{path} is not a model file: {error}.") from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise FedRidgeError(f"{path} is not a model written by RidgeModel.save.")
        if content.get("version") != _VERSION:
            raise FedRidgeError(
                f"{path} has version {content.get('version')!r} of the model format, "
                f"this package reads {_VERSION}: install a matching fedridge-flwr."
            )
        try:
            return cls._from_content(content)
        except (KeyError, TypeError, ValueError) as error:
            raise FedRidgeError(f"{path} is damaged: {error!r}.") from error

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> RidgeModel:
        coef = np.asarray(content["coef"], dtype=np.float64)
        intercept = np.asarray(content["intercept"], dtype=np.float64)
        names = content["feature_names"]
        if (
            coef.ndim not in (1, 2)
            or coef.size == 0
            or intercept.shape not in ((), coef.shape[:-1])
        ):
            raise ValueError(
                f"coef of shape {coef.shape}, intercept of shape {intercept.shape}"
            )
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ValueError("coefficients that are not finite")
        if names is not None and len(names) != coef.shape[-1]:
            raise ValueError(f"{len(names)} names for {coef.shape[-1]} features")
        numbers = {
            key: None if content[key] is None else float(content[key])
            for key in ("condition", "r2")
        }
        alpha = float(content["alpha"])
        if not (np.isfinite(alpha) and alpha >= 0):
            raise ValueError("alpha is not a finite number, zero or more")
        return cls(
            coef=coef,
            intercept=float(intercept) if intercept.ndim == 0 else intercept,
            alpha=alpha,
            fit_intercept=bool(content["fit_intercept"]),
            standardize=bool(content["standardize"]),
            feature_names=names,
            n_rows=None if content["n_rows"] is None else int(content["n_rows"]),
            n_clients=int(content["n_clients"]),
            alpha_chosen_by=content.get("alpha_chosen_by"),
            privacy=content.get("privacy"),
            **numbers,
        )


def _promise(privacy: dict[str, Any]) -> str:
    words = (
        f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g} for each "
        f"{privacy['unit']} ({privacy['neighboring']}, {privacy['trust']} trust)"
    )
    if privacy["calibration"] == "paper":
        words += f"; NOT as claimed: {privacy['true_epsilon']:.3g}"
    return words
