"""`SiteFacts`: the clients of a fit one by one, from their statistics alone.

The statistics of a client with one row are that row. What would tell of fewer than
`FEWEST_ROWS` rows is therefore withheld, here and so in every file and page made of it.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..._text import quoted
from ..._types import Array
from ...data.table_profile import TableProfile
from ...errors import FedRidgeError
from ...linalg.packed import mean_rounding
from ...regression.alpha.leave_client_out import each_rest
from ...regression.model import RidgeModel
from ...regression.normal_equations import FitOptions, mean_r2
from ...regression.solve import solve
from ...regression.summary import coefficient_names
from ...statistics.sufficient import SufficientStatistics

FEWEST_ROWS = 5
"""Numbers of a site's own are shown from this many rows on."""

_COSTLY = 1 / 3
_LARGEST_WORK = 2e10
_UNSOLVED = (FedRidgeError, ArithmeticError, ValueError)

Parts = Mapping[str, SufficientStatistics]


@dataclass(frozen=True)
class SiteFacts:
    """One client of a fit; None is what is not known or withheld.

    Parameters
    ----------
    client : str
        Its node id; ``FitReport.names`` has its name.
    rows : int or None
        Its rows in the model; 0 of a client that was left out.
    rows_read : int or None
        Rows of its table, those with missing values included.
    missing : dict of str to int
        Missing values by column, where there are any.
    share : float or None
        Its part of all rows in the model.
    y_mean : list of float or None
        Mean of each target.
    r2, rmse : float or None
        R² and root mean squared error of the model of all on its rows (mean over
        targets). R² compares with the site's own mean, and is below 0 where that
        predicts better.
    influence : float or None
        Root mean squared change of all predictions if the site were missing, in
        standard deviations of y.
    most_changed : str
        The coefficient whose standardised effect would change most.
    change : float or None
        By how much, as a part of its size.
    remark : str
        What is worth a look.
    """

    client: str
    rows: int | None = None
    rows_read: int | None = None
    missing: dict[str, int] = field(default_factory=dict)
    share: float | None = None
    y_mean: list[float] | None = None
    r2: float | None = None
    rmse: float | None = None
    influence: float | None = None
    most_changed: str = ""
    change: float | None = None
    remark: str = ""

    @property
    def dropped(self) -> int | None:
        """Rows of its table that are not in the model."""
        if self.rows is None or self.rows_read is None:
            return None
        return self.rows_read - self.rows


def site_table(
    parts: Parts,
    total: Any,
    model: RidgeModel | None,
    profiles: Mapping[str, TableProfile] | None = None,
    *,
    rows: Mapping[str, int] | None = None,
    without: Mapping[str, RidgeModel | None] | None = None,
) -> list[SiteFacts]:
    """Return what is known of every client.

    Parameters
    ----------
    parts : mapping of str to SufficientStatistics
        Contributions that were kept: of all clients, or of none.
    total : SufficientStatistics
        Their sum.
    model : RidgeModel
        Its solution.
    profiles : mapping of str to profile, optional
        Tables of the clients: ``rows``, ``complete`` and ``missing``.
    rows : mapping of str to int, optional
        Rows of clients whose contributions were not kept.
    without : mapping of str to RidgeModel, optional
        Models without each client; by default `models_without` is called.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> parts = {
    ...     name: SufficientStatistics.from_data(X[k::3], y[k::3])
    ...     for k, name in enumerate("abc")
    ... }
    >>> total = sum(parts.values())
    >>> for site in site_table(parts, total, solve(total, alpha=1.0)):
    ...     print(site.client, site.rows, round(site.r2, 2), round(site.influence, 2))
    a 20 0.63 0.15
    b 20 0.37 0.07
    c 20 0.12 0.08
    """
    profiles = profiles or {}
    counts = {**(rows or {}), **{c: part.count for c, part in parts.items()}}
    if without is None:
        without = {} if model is None else models_without(parts, model)
    hidden = too_small(counts)
    everything = sum(counts.values())
    sites = Counter(level for each in profiles.values() for level in set(_levels(each)))
    found = []
    for client in dict.fromkeys([*counts, *profiles]):
        own: dict[str, Any] = {"rows": counts.get(client, 0)}
        if everything:
            own["share"] = own["rows"] / everything
        remarks = []
        if client in hidden:
            remarks.append(hidden[client])
        elif client in parts and model is not None:
            own |= _fit_at(parts[client], model)
            if client in without:
                left = without[client]
                own |= {} if left is None else _influence(total, model, left)
                if left is None:
                    remarks.append("without it, the coefficients are not determined")
        own = {key: value for key, value in own.items() if _is_finite(value)}
        if client in profiles:
            own |= _gaps(profiles[client])
            remarks += _costly(profiles[client])
            remarks += _only_here(profiles[client], sites) if len(profiles) > 1 else []
        found.append(SiteFacts(client=client, remark="; ".join(remarks), **own))
    return found


def too_small(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the clients of which no numbers are shown, and why.

    What is hidden follows from the total and what is shown, so that as many are hidden
    as have `FEWEST_ROWS` rows together.

    Examples
    --------
    >>> list(too_small({"a": 30, "b": 2, "c": 12})), list(too_small({"a": 9, "b": 9}))
    (['b', 'c'], [])
    """
    by_size = sorted((n, client) for client, n in counts.items() if n)
    hidden: dict[str, str] = {}
    together = 0
    for n, client in by_size:
        if n < FEWEST_ROWS:
            hidden[client] = f"withheld: fewer than {FEWEST_ROWS} rows"
        elif hidden and together < FEWEST_ROWS:
            hidden[client] = "withheld: it would reveal the numbers of a smaller site"
        else:
            break
        together += n
    return hidden


def models_without(parts: Parts, model: RidgeModel) -> dict[str, RidgeModel | None]:
    """Return the model without each client; None where there is none.

    Nobody is left out where that would take too long, or leaves nobody.
    """
    filled = {client: part for client, part in parts.items() if part.total_weight > 0}
    if len(filled) < 2 or too_much_work(len(filled), model.coef_.shape[-1]):
        return {}
    options: FitOptions = {
        "fit_intercept": model.fit_intercept,
        "standardize": model.standardize,
    }
    found: dict[str, RidgeModel | None] = dict.fromkeys(filled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about no model of anybody's
        try:
            for client, rest in each_rest(filled, set(filled)):
                with contextlib.suppress(*_UNSOLVED):
                    found[client] = solve(rest, model.alpha_, **options)
        except _UNSOLVED:  # absurd numbers of one client leave nothing of the others
            return {}
    return found


def too_much_work(n_sites: int, n_features: int) -> bool:
    """Whether leaving each site out in turn would take more than some seconds."""
    return n_sites * float(n_features) ** 3 > _LARGEST_WORK


def _fit_at(part: SufficientStatistics, model: RidgeModel) -> dict[str, Any]:
    """Return R² and error of a model on the rows behind some statistics."""
    coef, weight = np.atleast_2d(model.coef_), part.total_weight
    if weight == 0.0:
        return {}
    spread = np.diagonal(part.centred_target_gram)
    product = coef @ part.centred_gram - 2.0 * part.centred_moment.T
    centred = np.maximum(spread + np.einsum("td,td->t", coef, product), 0.0)
    offset = part.target_means - coef @ part.feature_means - model.intercept_
    errors = centred + weight * offset**2
    return {
        "y_mean": part.target_means.tolist(),
        "r2": mean_r2(errors, spread, weight, part.target_means),
        "rmse": math.sqrt(float(np.mean(errors)) / weight),
    }


def _influence(
    total: SufficientStatistics, model: RidgeModel, left: RidgeModel
) -> dict[str, Any]:
    """Return how far predictions and coefficients are from those without a client."""
    coef = np.atleast_2d(model.coef_)
    moved, weight = np.atleast_2d(left.coef_) - coef, total.total_weight
    variances = np.diagonal(total.centred_target_gram) / weight
    if (variances <= mean_rounding(total.target_means)).any():
        return {}
    shift = moved @ total.feature_means + left.intercept_ - model.intercept_
    squares = np.einsum("td,td->t", moved @ total.centred_gram, moved) / weight
    squares = (squares + shift**2) / variances
    effects = np.abs(moved) * np.sqrt(total.variances) / np.sqrt(variances)[:, None]
    t, j = np.unravel_index(int(np.argmax(effects)), effects.shape)
    size = abs(float(coef[t, j]))
    return {
        "influence": math.sqrt(max(float(squares.mean()), 0.0)),
        "most_changed": coefficient_names(model)[j] if effects[t, j] > 0 else "",
        "change": float(moved[t, j]) / size if size and effects[t, j] > 0 else None,
    }


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _gaps(profile: TableProfile) -> dict[str, Any]:
    missing = {str(name): int(n) for name, n in profile.missing.items() if n}
    return {"rows_read": int(profile.rows), "missing": missing}


def _costly(profile: TableProfile) -> list[str]:
    return [
        f"{name} is missing in {n} of {profile.rows} rows"
        for name, n in profile.missing.items()
        if n > _COSTLY * profile.rows
    ]


def _levels(profile: TableProfile) -> Iterator[tuple[str, str]]:
    for name, column in profile.columns.items():
        for level in column.levels or ():
            yield name, level


def _only_here(profile: TableProfile, sites: Counter[tuple[str, str]]) -> list[str]:
    """Name levels that no other site has: their effect is not apart from the site's."""
    alone: dict[str, list[str]] = {}
    for name, level in _levels(profile):
        if sites[name, level] == 1:
            alone.setdefault(name, []).append(level)
    return [
        f"only here: level {quoted(told)} of {name}" for name, told in alone.items()
    ]


def standard_deviations(parts: Mapping[str, Any]) -> Array | None:
    """Return those of all columns over all clients, from weights, means and squares.

    Openings of a fit in several rounds have them; (G, h) alone does not.
    """
    scales = [part.scale() for part in parts.values()]
    if not scales or any(means is None for _, means, _ in scales):
        return None
    weights = np.array([weight for weight, _, _ in scales])
    means = np.array([means for _, means, _ in scales])
    if not weights.sum() > 0:
        return None
    centre = weights @ means / weights.sum()
    squares = sum(own for *_, own in scales) + weights @ (means - centre) ** 2
    return np.asarray(np.sqrt(squares / weights.sum()))
