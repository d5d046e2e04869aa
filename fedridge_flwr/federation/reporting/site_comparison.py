"""`SiteComparison`: sites, and what each of them does to the coefficients of all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._text import human_bytes
from ..._types import Array
from ...data.table_profile import TableProfile
from ...errors import FedRidgeError
from ...linalg.blas import one_blas_thread
from ...linalg.packed import mean_rounding
from ...regression.model import RidgeModel
from ...regression.normal_equations import as_moments
from ...regression.sites.site_effects import fixed_site_effects
from ...statistics.encoding import EXACT_FORMS
from ..settings import SCREENED_BYTES
from .site_facts import (
    SiteFacts,
    models_without,
    site_table,
    standard_deviations,
    too_much_work,
    too_small,
)

if TYPE_CHECKING:
    from ..round import FitResult

LARGEST = 25
"""Coefficients that a figure shows."""

_DOTS = 100
_NUMBERS = {"share", "r2", "rmse", "influence", "change"}


@dataclass(frozen=True)
class Effects:
    """Scales of the columns, and the largest coefficients without each site.

    Parameters
    ----------
    x_sd : list of float
        Standard deviation of each feature over all rows.
    y_sd : list of float
        The same of each target.
    largest : list of list of int
        For each target the coefficients with the largest standardised effect,
        ``coef * x_sd / y_sd``.
    without : dict of str to list of list of float
        For each of the most influential clients, what those coefficients are without
        it.
    """

    x_sd: list[float]
    y_sd: list[float]
    largest: list[list[int]]
    without: dict[str, list[list[float]]] = field(default_factory=dict)

    def standardised(self, coef: Array) -> Array:
        """Return the effects of coefficients (t, d), zero of a constant target."""
        coef, y_sd = np.atleast_2d(coef), np.array(self.y_sd)[:, None]
        if coef.shape != (len(self.y_sd), len(self.x_sd)):
            raise ValueError("scales are of other columns than the coefficients")
        scaled = coef * np.array(self.x_sd)
        return np.asarray(scaled / np.where(y_sd > 0, y_sd, np.inf))


@dataclass(frozen=True)
class SiteComparison:
    """All that a report has of single sites.

    Parameters
    ----------
    sites : list of SiteFacts
        The clients, those with most rows first.
    effects : Effects or None
        Scales of the columns, where they are known.
    not_known : str
        What is not known of single sites, and why.
    intercepts : str
        Test that all sites have the same intercept, at alpha 0.
    """

    sites: list[SiteFacts] = field(default_factory=list)
    effects: Effects | None = None
    not_known: str = ""
    intercepts: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SiteComparison:
        """Return what `to_dict` wrote; a ValueError says what it cannot be."""
        effects, sites = content.get("effects"), content.get("sites") or []
        return cls(
            sites=[_read_site(each) for each in sites],
            effects=None if effects is None else _read_effects(effects),
            not_known=str(content.get("not_known", "")),
            intercepts=str(content.get("intercepts", "")),
        )


def compare_sites(
    result: FitResult, profiles: Mapping[str, TableProfile] | None = None
) -> SiteComparison:
    """Return what a fit knows of its sites.

    Parameters
    ----------
    result : FitResult
        What the fit ended with.
    profiles : mapping of str to profile, optional
        What sites told of their tables.
    """
    # Many small systems: threads would wait for each other, at twenty times the cost.
    with one_blas_thread():
        return _compare(result, profiles or {})


def _compare(result: FitResult, profiles: Mapping[str, TableProfile]) -> SiteComparison:
    answers, model = result.gathered.answers, result.model
    members = [c for c in answers.participants if c not in result.dropped]
    kept = {c: answers.parts[c] for c in members if c in answers.parts}
    # Differences between sites need no more digits than sums have.
    full = {c: as_moments(p) for c, p in kept.items() if p.form in EXACT_FORMS}
    full = full if len(full) == len(members) else {}
    counts = answers.rows_of(members)
    total: Any = as_moments(result.gathered.total)
    without = {} if model is None else models_without(full, model)
    sites = site_table(full, total, model, profiles, rows=counts, without=without)
    known = {site.client for site in sites}
    sites += [SiteFacts(client) for client in members if client not in known]
    sites.sort(key=lambda site: -(site.rows or 0))
    scales = None
    if total.form == "full":
        scales = standard_deviations({"": total})
    elif len(kept) == len(members) and total.form == "opening":
        scales = standard_deviations(kept)
    effects = None
    if scales is not None and model is not None:
        shown = [s for s in sites if s.influence is not None]
        shown = sorted(shown, key=lambda s: -(s.influence or 0.0))[:_DOTS]
        effects = _effects(model, scales, {s.client: without[s.client] for s in shown})
    reason = _not_known(result, full, len(members))
    if not reason and _is_constant(total):
        reason = (
            "R² and influence are not known: the outcome does not vary over the rows "
            "of all clients."
        )
    elif not reason and not without:
        reason = (
            "Influence is not known: the effect of leaving out a site is below "
            "rounding error."
        )
    return SiteComparison(sites, effects, reason, _intercepts(full, model))


def _is_constant(total: Any) -> bool:
    """Whether no target varies."""
    if total.form != "full" or not total.total_weight:
        return False
    spread = np.diagonal(total.centred_target_gram) / total.total_weight
    return bool((spread <= mean_rounding(total.target_means)).all())


def _intercepts(full: Mapping[str, Any], model: RidgeModel | None) -> str:
    """Return the test of equal intercepts of all sites, where there is one."""
    plain = model is not None and model.alpha_ == 0.0 and model.fit_intercept
    if not plain or len(full) < 2 or too_small({c: p.count for c, p in full.items()}):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit has warned already
            test = fixed_site_effects(full).equal
    except (FedRidgeError, ArithmeticError, ValueError):
        return ""
    differ = "differ" if test.p < 0.05 else "do not differ by more than chance"
    told = f"site intercepts {differ}: {str(test).split(': ', 1)[1]}"
    return f"{told}; see fixed_site_effects" if test.p < 0.05 else told


def _effects(
    model: RidgeModel, scales: Array, without: Mapping[str, RidgeModel | None]
) -> Effects:
    d = model.coef_.shape[-1]
    bare = Effects(scales[:d].tolist(), scales[d:].tolist(), [])
    sizes = np.abs(bare.standardised(model.coef_))
    largest = np.argsort(-sizes, axis=1, kind="stable")[:, :LARGEST]
    left = {c: np.atleast_2d(m.coef_) for c, m in without.items() if m is not None}
    return Effects(
        bare.x_sd,
        bare.y_sd,
        largest.tolist(),
        {c: np.take_along_axis(w, largest, 1).tolist() for c, w in left.items()},
    )


def _not_known(result: FitResult, full: Mapping[str, Any], n_sites: int) -> str:
    settings, total = result.gathered.settings, result.gathered.total
    if result.model is None:
        return "There is no model to compare the sites with."
    if settings.privacy is not None:
        return (
            "Nothing is known about single sites: with privacy, they send no exact "
            "numbers."
        )
    what = "R², error and influence of single sites are not known: "
    if result.refinement is not None:
        return f"{what}a fit in several rounds never has the statistics of a site."
    if total.form == "plain":
        return f"{what}some clients sent only (G, h), without means."
    if not full and not settings.keep_bytes:
        return f'{what}with screen="off" the statistics of single sites are not kept.'
    if not full:
        most = human_bytes(SCREENED_BYTES)
        return f"{what}the statistics of all sites exceed {most} and were not kept."
    if n_sites < 2:
        return "Influence is not known: there is only one site."
    if too_much_work(n_sites, total.n_features):
        return (
            f"Influence is not known: leaving out each of {n_sites} sites in turn "
            "would take too long."
        )
    return ""


# ---- reading ------------------------------------------------------------------------


def _read_site(content: Any) -> SiteFacts:
    names = {each.name for each in fields(SiteFacts)}
    known = {key: value for key, value in content.items() if key in names}
    for key in _NUMBERS & set(known):
        known[key] = None if known[key] is None else float(known[key])
    for key in ("rows", "rows_read"):
        known[key] = None if known.get(key) is None else int(known[key])
    for key in ("client", "most_changed", "remark"):
        known[key] = str(known.get(key, ""))
    means = known.get("y_mean")
    known["y_mean"] = None if means is None else [float(mean) for mean in means]
    missing = known.get("missing") or {}
    known["missing"] = {str(name): int(n) for name, n in missing.items()}
    return SiteFacts(**known)


def _read_effects(content: Any) -> Effects:
    x_sd, y_sd = ([float(v) for v in content[key]] for key in ("x_sd", "y_sd"))
    largest = [[int(j) for j in row] for row in content["largest"]]
    without = {
        str(client): [[float(v) for v in row] for row in rows]
        for client, rows in content["without"].items()
    }
    shape = [len(row) for row in largest]
    in_range = all(0 <= j < len(x_sd) for row in largest for j in row)
    same = all([len(row) for row in rows] == shape for rows in without.values())
    if len(largest) != len(y_sd) or not (in_range and same):
        raise ValueError("the effects of sites do not fit together")
    return Effects(x_sd, y_sd, largest, without)
