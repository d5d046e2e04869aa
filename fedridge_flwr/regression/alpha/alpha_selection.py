"""Choose alpha: leave one client out, or generalized cross-validation.

The losses behind a choice come from `leave_client_out.held_out_losses`, which the
server can compute alone, or from the clients, each of which evaluates the models of all
others on its own rows; `AlphaSelection.from_losses` takes both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..._checks import check_choice
from ..._text import counted
from ..._types import Array
from ...errors import FedRidgeError, SingularSystemError, StatisticsError
from ..model import RidgeModel
from ..normal_equations import (
    Exact,
    FitOptions,
    normal_equations,
    residual_squares,
    target_squares,
)
from ..solve import solve
from .alpha_grid import (
    Alphas,
    auto_alphas,
    best_of,
    check_alphas,
    extended_grid,
    warn_edge,
    weigh_losses,
)
from .leave_client_out import (
    held_out_losses,
    solve_in_penalty_units,
    squared_errors,
    total_of,
)


@dataclass(frozen=True, eq=False)
class AlphaSelection:
    """How alpha was chosen: every candidate, its loss, and the refitted model.

    Returned by `select_alpha` and kept by the strategies as ``selection_``. The
    parameters are also the attributes.

    Parameters
    ----------
    alpha : float
        The choice.
    alphas : ndarray of shape (a,)
        Candidates, ascending.
    mean : ndarray of shape (a,)
        Mean squared error over all held-out rows, or the GCV score.
    standard_error : ndarray of shape (a,) or None
        Its standard error across clients, weighted by rows; None for GCV.
    losses : ndarray of shape (clients, a) or None
        Mean squared error on the rows of each client; None for GCV. Row k is that of
        ``clients[k]``.
    clients : list of str
        Clients behind the rows of `losses`: in the order of their node ids after a
        federated fit (``report_.names`` has their names), and otherwise in that of
        `parts`.
    method : str
        "loco" or "gcv", "groups" in a secure sum, or "noise" for a private model. Of
        families "deviance" or "one-step": `mean` and `losses` are then mean deviances.
    rule : str
        "minimum" or "one standard error".
    model : RidgeModel
        The model at `alpha`, fitted on all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, select_alpha
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> parts = {
    ...     f"clinic-{k}": SufficientStatistics.from_data(X[k::3], y[k::3])
    ...     for k in range(3)
    ... }
    >>> chosen = select_alpha(parts, [0.1, 1.0, 10.0, 100.0])
    >>> chosen.alpha, chosen.mean.round(3)
    (1.0, array([1.46 , 1.459, 1.48 , 1.734]))
    >>> chosen.clients, chosen.losses.shape
    (['clinic-0', 'clinic-1', 'clinic-2'], (3, 4))
    >>> chosen.model.alpha_
    1.0
    >>> print(chosen)
    alpha 1: leaving out 3 clients in turn, 4 candidates
           alpha        loss
             0.1     1.46031
               1     1.45855  chosen
              10     1.48007
             100     1.73374
    """

    alpha: float
    alphas: Array
    mean: Array
    _: KW_ONLY
    standard_error: Array | None = None
    losses: Array | None = None
    clients: list[str] = field(default_factory=list)
    method: str
    rule: str = "minimum"
    model: RidgeModel = field(repr=False)

    @property
    def at_edge(self) -> bool:
        """Whether the best candidate is at an end of the grid.

        The one-standard-error rule goes up from the best, and may be cut off there.
        """
        chosen = int(np.searchsorted(self.alphas, self.alpha))
        last = self.alphas.size - 1
        best = chosen if self.rule == "minimum" else best_of(self.mean)
        return last > 0 and (best in (0, last) or chosen == last)

    def describe(self) -> str:
        """Return in one line how alpha was chosen.

        The model has the same text in ``alpha_chosen_by`` and in its summary.
        """
        how = {
            "loco": f"leaving out {counted(len(self.clients), 'client')} in turn",
            "groups": f"leaving out {len(self.clients)} groups of clients in turn",
            "gcv": "generalized cross-validation",
            "noise": "splitting the privacy noise",
            "deviance": f"deviance of {len(self.clients)} clients left out in turn",
            "one-step": (
                f"deviance of {len(self.clients)} clients left out in turn, by one "
                "Newton step"
            ),
        }[self.method]
        rule = "" if self.rule == "minimum" else ", one-standard-error rule"
        return f"{how}, {counted(self.alphas.size, 'candidate')}{rule}"

    def __str__(self) -> str:
        """Return how alpha was chosen, and the loss of every candidate."""
        lines = [f"alpha {self.alpha:g}: {self.describe()}", "       alpha        loss"]
        for alpha, loss in zip(self.alphas, self.mean, strict=True):
            mark = "  chosen" if alpha == self.alpha else ""
            lines.append(f"{alpha:12.4g}{loss:12.6g}{mark}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the model as JSON-able values."""
        errors, losses = self.standard_error, None
        if self.losses is not None:
            losses = dict(zip(self.clients, self.losses.tolist(), strict=True))
        return {
            "alpha": self.alpha,
            "description": self.describe(),
            "method": self.method,
            "rule": self.rule,
            "at_edge": self.at_edge,
            "alphas": self.alphas.tolist(),
            "mean": self.mean.tolist(),
            "standard_error": None if errors is None else errors.tolist(),
            "losses": losses,
        }

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw loss against alpha: mean, one-standard-error band, clients, choice.

        Needs matplotlib, and no display.

        Parameters
        ----------
        path : path-like
            Image to write, in the format of its suffix (.png, .svg, .pdf); missing
            folders are made.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from fedridge_flwr import SufficientStatistics, select_alpha
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(60, 4)), rng.normal(size=60)
        >>> total = SufficientStatistics.from_data(X, X[:, 0] + y)
        >>> chosen = select_alpha(total, method="gcv")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     figure = pathlib.Path(folder, "alpha.png")
        ...     chosen.draw(figure)
        ...     figure.exists()
        True
        """
        from .alpha_plot import draw_selection

        draw_selection(self, Path(path))

    @classmethod
    def from_losses(
        cls,
        total: Exact,
        alphas: Array,
        losses: Mapping[str, Array],
        weights: Mapping[str, float],
        *,
        one_standard_error: bool = False,
        **options: Unpack[FitOptions],
    ) -> AlphaSelection:
        """Choose by the losses of the clients that answered, and refit on all rows.

        For losses that the clients computed themselves; `select_alpha` computes them
        from statistics.

        Parameters
        ----------
        total : SufficientStatistics
            Statistics of all rows, which the model is fitted on.
        alphas : ndarray of shape (a,)
            Candidates, ascending.
        losses : mapping of str to ndarray of shape (a,)
            Mean squared error of the models of all others on each client's rows.
        weights : mapping of str to float
            Weight of each client's rows; clients of weight 0 do not count.
        one_standard_error : bool
            As in `select_alpha`.
        **options : bool
            `fit_intercept` and `standardize`, as in `select_alpha`.

        Raises
        ------
        StatisticsError
            If no client answered, or an answer is not one finite loss per candidate.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import AlphaSelection, SufficientStatistics
        >>> total = SufficientStatistics.from_data([[0.0], [1.0], [2.0]], [0, 1, 3])
        >>> losses = {"a": np.array([0.5, 0.2]), "b": np.array([0.1, 0.2])}
        >>> weights = {"a": 2.0, "b": 1.0}
        >>> alphas = np.array([0.1, 1.0])
        >>> AlphaSelection.from_losses(total, alphas, losses, weights).mean.round(3)
        array([0.367, 0.2  ])
        """
        mean, chosen, found = weigh_losses(
            alphas, losses, weights, total, one_standard_error=one_standard_error
        )
        return _refitted(total, alphas, chosen, options, mean, method="loco", **found)

    @classmethod
    def from_models(
        cls,
        models: list[RidgeModel],
        losses: Mapping[str, Array],
        weights: Mapping[str, float],
        *,
        method: str,
        one_standard_error: bool = False,
    ) -> AlphaSelection:
        """Choose among models that are fitted already, in the order of their alphas.

        The other parameters are as in `from_losses`, for losses of any kind.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import AlphaSelection, SufficientStatistics, solve_path
        >>> stats = SufficientStatistics.from_data([[0.0], [1.0], [2.0]], [0, 1, 3])
        >>> losses = {"a": np.array([0.5, 0.2]), "b": np.array([0.1, 0.2])}
        >>> models = solve_path(stats, [0.1, 1.0])
        >>> weights = {"a": 2.0, "b": 1.0}
        >>> AlphaSelection.from_models(models, losses, weights, method="loco").alpha
        1.0
        """
        alphas = np.array([model.alpha_ for model in models])
        mean, chosen, found = weigh_losses(
            alphas, losses, weights, None, one_standard_error=one_standard_error
        )
        model = models[chosen]
        selection = cls(model.alpha_, alphas, mean, model=model, method=method, **found)
        model.alpha_chosen_by = selection.describe()
        return selection


def select_alpha(
    per_client: Mapping[str, Exact] | Iterable[Exact] | Exact,
    alphas: Alphas = "auto",
    *,
    method: str = "loco",
    one_standard_error: bool = False,
    fit_intercept: bool = True,
    standardize: bool = False,
) -> AlphaSelection:
    """Choose the alpha that predicts rows of clients it has not seen best.

    Minimises over alpha the squared error on the rows of each client under the model
    of all others (``method="loco"``), or ``n RSS / (n - df)²`` of the total
    (``method="gcv"``), which needs no statistics of single clients. Both follow from
    the statistics: no row is read again. n is the number of rows, not the sum of their
    weights: for "gcv" a row of weight 2 is one observation, though the model is that of
    two equal rows. If weights and alphas are both multiplied by c, so is the chosen
    alpha.

    Parameters
    ----------
    per_client : mapping or iterable of SufficientStatistics, or one of them
        Statistics by client, with names from a mapping and numbers otherwise; for "gcv"
        the total is enough. Losses computed from `TriangularStatistics` do not suffer
        from cancellation.
    alphas : sequence of float or "auto"
        Positive candidates, or a grid over the spectrum of the Gram matrix, which is
        extended where the best one is at its edge.
    method : {"loco", "gcv"}
        Leave one client out, or generalized cross-validation.
    one_standard_error : bool
        Take the largest alpha whose loss is within one standard error of the best.
    fit_intercept, standardize : bool
        As in `solve`.

    Returns
    -------
    AlphaSelection
        The choice, the losses behind it, and the model refitted on all rows. Of
        candidates that are equally good but for rounding, the largest is chosen.

    Raises
    ------
    StatisticsError
        If fewer than two clients have rows ("loco"), or rows leave no degrees of
        freedom at a candidate ("gcv").
    FedRidgeError
        If a candidate is not positive, or another argument is not valid.

    Warns
    -----
    GridEdgeWarning
        If the best of a given grid is its smallest or largest.
    ClampedLossWarning
        If losses are so small that rounding of the statistics hides them.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, select_alpha
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::6], y[k::6]) for k in range(6)]
    >>> chosen = select_alpha(parts, [0.1, 1.0, 10.0, 100.0])
    >>> chosen.alpha
    1.0
    >>> chosen.describe()
    'leaving out 6 clients in turn, 4 candidates'

    From the total alone:

    >>> select_alpha(sum(parts), [0.1, 1.0, 10.0, 100.0], method="gcv").alpha
    10.0
    """
    parts = _named(per_client)
    total: Any = total_of(parts)
    options: FitOptions = {"fit_intercept": fit_intercept, "standardize": standardize}
    auto = isinstance(alphas, str) and alphas == "auto"
    grid = auto_alphas(total, **options) if auto else check_alphas(alphas)
    check_choice("method", method, ("loco", "gcv"))
    if one_standard_error and method == "gcv":
        raise FedRidgeError(
            "the one-standard-error rule needs losses of single clients: use "
            'method="loco".'
        )

    def choose(candidates: Array) -> AlphaSelection:
        if method == "gcv":
            scores = gcv_scores(total, candidates, **options)
            chosen = best_of(scores, total)
            return _refitted(total, candidates, chosen, options, scores, method="gcv")
        return AlphaSelection.from_losses(
            total,
            candidates,
            held_out_losses(parts, candidates, **options),
            {client: part.total_weight for client, part in parts.items()},
            one_standard_error=one_standard_error,
            **options,
        )

    found = choose(grid)
    for _ in range(4 if auto else 0):
        if not found.at_edge:
            break
        downwards = int(np.argmin(found.mean)) == 0
        try:
            found = choose(extended_grid(found.alphas, downwards=downwards))
        except (SingularSystemError, StatisticsError):
            break
    if found.at_edge:
        warn_edge(found, auto=auto)
    return found


def gcv_scores(total: Any, alphas: Array, **options: Unpack[FitOptions]) -> Array:
    """Return n RSS / (n - df)² for every alpha, with df the effective parameters.

    df is the trace of S (S + alpha I)^-1, and one more for the intercept. n is the
    number of rows, whatever their weights, and RSS is in units of the mean weight: the
    scores are the same for weights and alphas that are both c times as large.
    """
    equations = normal_equations(total, **options)
    matrix, rhs, unit = equations.in_penalty_units()
    factor = equations.factor
    if factor is None:
        values = np.maximum(np.linalg.eigvalsh(matrix), 0.0)
    else:
        rows = factor[:, : unit.size] * unit
        values = np.linalg.svd(rows, compute_uv=False) ** 2
    shrunk = values[:, None] / (values[:, None] + alphas)
    freedom = shrunk.sum(axis=0) + equations.fit_intercept
    n = total.count
    if (freedom >= n).any():
        raise StatisticsError(
            f"{counted(n, 'row')} have no degrees of freedom left at alpha "
            f"{alphas[freedom >= n].max():g}: use larger candidates only."
        )
    solution, _ = solve_in_penalty_units(equations, alphas)
    if factor is None:
        squares = target_squares(total, centred=equations.fit_intercept)
        residual = squared_errors(matrix, rhs, squares, solution, total.rounding)
    else:
        residual = residual_squares(factor, solution * unit[:, None, None])
    residual = residual.mean(axis=1) / (total.total_weight / n)
    scores: Array = n * residual / (n - freedom) ** 2
    return scores


def _refitted(
    total: Exact,
    alphas: Array,
    chosen: int,
    options: FitOptions,
    mean: Array,
    **found: Any,
) -> AlphaSelection:
    model = solve(total, float(alphas[chosen]), **options)
    selection = AlphaSelection(model.alpha_, alphas, mean, model=model, **found)
    model.alpha_chosen_by = selection.describe()
    return selection


def _named(per_client: Any) -> dict[str, Any]:
    if isinstance(per_client, Mapping):
        parts = {str(client): part for client, part in per_client.items()}
    elif isinstance(per_client, Iterable):
        parts = {str(k): part for k, part in enumerate(per_client)}
    else:
        parts = {"total": per_client}
    for client, part in parts.items():
        if getattr(part, "form", "") not in ("full", "triangular"):
            raise StatisticsError(
                f"client {client}: choosing alpha needs SufficientStatistics, got "
                f"{type(part).__name__}."
            )
    if not parts:
        raise StatisticsError("there are no clients to choose alpha with.")
    if len({part.form for part in parts.values()}) > 1:
        raise StatisticsError(
            "statistics of some clients are triangular and of others not: use "
            "to_sufficient() of the triangular ones, or TriangularStatistics of all."
        )
    return parts
