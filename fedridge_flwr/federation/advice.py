"""Advice of a report: what another setting would do better, in one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..regression.alpha.leave_client_out import total_of
from ..regression.model import RidgeModel
from ..regression.normal_equations import normal_equations
from ..regression.summary import recommends_triangular
from .round import FitResult
from .screening.screener import parts_to_screen


def better_scale(
    exact: Any, usual: Callable[[], Any] | None = None, **options: Any
) -> str:
    """Return in one sentence why columns should be scaled, if they should.

    `usual` returns the statistics without suspects: a column in other units at one of
    them is no reason to scale the columns of all.
    """
    unlike = normal_equations(exact, **options).unlike_scales()
    if unlike and usual is not None:
        unlike = normal_equations(usual(), **options).unlike_scales()
    return (
        f"standardize=True: {unlike}, and the same alpha penalises both."
        if unlike
        else ""
    )


def without_suspects(result: FitResult) -> Any:
    """Return the statistics without suspects, or all where they were not kept."""
    gathered = result.gathered
    if not gathered.screener.suspects:
        return result.statistics
    parts = parts_to_screen(gathered.answers, gathered.total)
    usual = {} if isinstance(parts, str) else dict(parts)
    for suspect in gathered.screener.suspects:
        usual.pop(suspect, None)
    return total_of(usual) if usual else result.statistics


def several_classes(model: Any) -> str:
    """Return in two sentences what is fitted where y has more than two classes."""
    if len(model.labels) <= 2:
        return ""
    known = None if model.targets is None else model.targets.known
    return (
        f"{known[0] if known else 'y'} has {len(model.labels)} values: one class "
        "against the rest is fitted. For a yes/no outcome make a column of 0 and 1."
    )


def better_form(model: RidgeModel) -> str:
    """Return in one sentence that sums lose too many digits, if they do."""
    if not recommends_triangular(model):
        return ""
    return (
        f'statistics="triangular": the system has condition {model.condition_:.0e}, of '
        "which sums lose the digits and a factor half as many."
    )


def sentences(asked: Sequence[Callable[[], str]]) -> str:
    """Return the pieces of advice there are, one after the other."""
    return " ".join(filter(None, (each() for each in asked)))
