"""Candidates for alpha: checked, or a grid over the spectrum of the Gram matrix."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np

from ..._checks import as_number, must_be
from ..._text import counted
from ..._types import Array
from ...errors import FedRidgeError, StatisticsError, users_level
from ..normal_equations import Exact, FitOptions, normal_equations

_EQUAL = 1e-6
_HIDDEN = 1e-13
Alphas: TypeAlias = Sequence[float] | Literal["auto"]


class GridEdgeWarning(UserWarning):
    """The best alpha is the smallest or largest of the grid.

    A better one may lie outside. Also raised if the one-standard-error rule ends at the
    largest. ``alphas="auto"`` extends the grid automatically, and warns only if that
    does not help.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from fedridge_flwr import GridEdgeWarning, SufficientStatistics, select_alpha
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> parts = [SufficientStatistics.from_data(X[k::6], y[k::6]) for k in range(6)]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", GridEdgeWarning)
    ...     chosen = select_alpha(parts, [100.0, 1000.0])
    >>> print(caught[0].message)
    the best of 2 candidates is at the edge of the grid, 100 to 1e+03: extend it.
    >>> select_alpha(parts, [0.1, 1.0, 10.0, 100.0]).alpha
    1.0
    """


class UnlikeScalesWarning(UserWarning):
    """Alpha is chosen for columns whose scales differ by more than a thousand.

    Any single alpha is then too small for some columns or too large for others.
    ``standardize=True`` penalises all columns equally.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, select_alpha
    >>> from fedridge_flwr import UnlikeScalesWarning
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2)) * [1.0, 1e5]
    >>> y = X @ [1.0, 1e-5] + rng.normal(size=60)
    >>> total = SufficientStatistics.from_data(X, y)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", UnlikeScalesWarning)
    ...     chosen = select_alpha(total, "auto", method="gcv")
    >>> print(caught[0].message)
    column 1 varies 1e+05 times as much as column 0, so no single alpha suits both: \
use standardize=True.
    """


def check_alphas(alphas: Any) -> Array:
    """Return candidates as an ascending array without repetitions, all positive."""
    if isinstance(alphas, str):
        raise must_be("alphas", '"auto" or a sequence of positive numbers', alphas)
    try:
        candidates = list(alphas)
    except TypeError:
        raise must_be("alphas", "a sequence of positive numbers", alphas) from None
    numbers = [as_number(alpha) for alpha in candidates]
    for number, alpha in zip(numbers, candidates, strict=True):
        if not (math.isfinite(number) and number >= 0):
            raise must_be("alphas", "finite positive numbers", alpha)
    grid = np.unique(numbers)
    if grid.size == 0:
        raise FedRidgeError("alphas is empty: give at least one candidate.")
    if grid[0] <= 0:
        raise FedRidgeError(
            "alphas to choose from must be positive: without a penalty the system of "
            "the others may be singular."
        )
    return grid


def auto_alphas(total: Exact, **options: Unpack[FitOptions]) -> Array:
    """Return a logarithmic grid over the spectrum of the Gram matrix.

    It reaches from the largest eigenvalue, where even the best determined direction is
    shrunk by half, to below the smallest that is not zero, and at least six decades
    down where none is zero.

    Warns
    -----
    UnlikeScalesWarning
        If columns differ in scale by more than a thousand.
    """
    equations = normal_equations(total, **options)
    if unlike := equations.unlike_scales():
        warnings.warn(
            f"{unlike}, so no single alpha suits both: use standardize=True.",
            UnlikeScalesWarning,
            stacklevel=users_level(),
        )
    matrix, _, _ = equations.in_penalty_units()
    values = np.linalg.eigvalsh(matrix)
    largest = float(values[-1])
    if largest <= 0:
        raise StatisticsError("all features are constant: there is no alpha to choose.")
    span = max(1e-8, values.size * total.rounding)
    filled = values[values > span * largest]
    smallest = float(filled[0]) / 10
    if filled.size == values.size:
        smallest = min(smallest, 1e-6 * largest)
    return np.geomspace(smallest, largest, 30)


def best_of(scores: Array, total: Exact | None = None) -> int:
    """Return the largest alpha, by its place, whose score is the best but for rounding.

    Where the curve is flat towards zero, every choice down there is as good, and which
    of them is the lowest is chance. Scores that differ by a millionth are taken for
    equal, and those below what rounding of the statistics hides in the spread of y.

    Examples
    --------
    >>> best_of(np.array([2.0, 2.0000001, 2.1, 3.0]))
    1
    """
    hidden = 0.0
    if total is not None and total.total_weight > 0:
        weight, _, squares = total.scale()
        spread = float(squares[total.n_features :].mean()) / weight
        # The square root of a triangular score is right to rounding.
        own = _HIDDEN**2 if total.form == "triangular" else _HIDDEN
        hidden = max(own, total.rounding) * spread
    best = float(np.min(scores))
    return int(np.flatnonzero(scores <= best + _EQUAL * abs(best) + hidden)[-1])


def weigh_losses(
    alphas: Array,
    losses: Mapping[str, Array],
    weights: Mapping[str, float],
    total: Exact | None,
    *,
    one_standard_error: bool,
) -> tuple[Array, int, dict[str, Any]]:
    """Return the mean loss of every candidate, the place of the best, and the rest."""
    clients = [client for client in losses if weights[client] > 0]
    if not clients:
        raise StatisticsError("no client computed its held-out losses.")
    table = np.array([losses[client] for client in clients])
    if table.shape != (len(clients), alphas.size) or not np.isfinite(table).all():
        raise StatisticsError(
            f"every client must compute {alphas.size} finite losses, one for each "
            "candidate."
        )
    share = np.array([weights[client] for client in clients], dtype=np.float64)
    share /= share.sum()
    mean = share @ table
    spread = share**2 @ (table - mean) ** 2
    if len(clients) > 1:
        spread *= len(clients) / (len(clients) - 1)
    error = np.sqrt(spread)
    chosen = best_of(mean, total)
    if one_standard_error:
        best = int(np.argmin(mean))
        chosen = int(np.flatnonzero(mean <= mean[best] + error[best])[-1])
    rule = "one standard error" if one_standard_error else "minimum"
    found = {"standard_error": error, "losses": table, "clients": clients, "rule": rule}
    return mean, chosen, found


def extended_grid(alphas: Array, *, downwards: bool) -> Array:
    """Return a grid with eight more candidates at one of its ends."""
    step = max(alphas[1] / alphas[0], 10**0.25)
    more = np.geomspace(step, step**8, 8)
    if downwards:
        return np.concatenate([alphas[0] / more[::-1], alphas])
    return np.concatenate([alphas, alphas[-1] * more])


def warn_edge(alpha: float, alphas: Array, *, auto: bool = False) -> None:
    """Warn that the grid should be longer, or, if it is ours, that this is its end."""
    reached, remedy = "", "extend it"
    if auto:
        most = "much" if alpha == float(alphas[-1]) else "little"
        reached = "automatic "
        remedy = f"the data favour as {most} penalty as possible"
    warnings.warn(
        f"the best of {counted(alphas.size, 'candidate')} is at the edge of the "
        f"{reached}grid, {alphas[0]:.3g} to {alphas[-1]:.3g}: {remedy}.",
        GridEdgeWarning,
        stacklevel=users_level(),
    )
