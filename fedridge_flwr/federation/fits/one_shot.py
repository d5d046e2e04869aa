"""The fit in one round: every client's statistics, added up and solved."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from ..._types import Array
from ...errors import FedRidgeError, NotEnoughClientsError
from ...linalg.blas import one_blas_thread
from ...regression.alpha.alpha_grid import (
    GridEdgeWarning,
    best_of,
    check_alphas,
    warn_edge,
)
from ...regression.alpha.alpha_selection import AlphaSelection, gcv_scores, select_alpha
from ...regression.alpha.leave_client_out import ClampedLossWarning, held_out_models
from ...regression.normal_equations import Exact
from ...regression.solve import solve
from ..aggregate import Answers
from ..requests import AskLosses, AskStatistics
from ..round import Fit, FitResult, Round
from ..settings import FitSettings, is_auto
from .gather import Gathered, gather

_SHOWN = 10
# What the statistics can lead to; they are kept, and another alpha may do.
_UNSOLVED = (FedRidgeError, ArithmeticError, ValueError)


def one_shot(settings: FitSettings) -> Fit:
    """Ask for all statistics at once, add them up, choose alpha, solve."""
    request = AskStatistics(settings.wire_dtype, settings.statistics)
    gathered = yield from gather(settings, request)
    result = yield from solve_gathered(settings, gathered)
    if settings.asks_residuals:
        from .standard_errors import ask_residuals

        result = yield from ask_residuals(settings, result)
    return result


def solve_gathered(settings: FitSettings, gathered: Gathered) -> Fit:
    """Choose alpha as the settings say, and solve for it."""
    total, options = gathered.total, settings.options
    if settings.selection in ("clients", "server"):
        _refuse_one_client(gathered)
    if settings.selection == "clients":
        return (yield from choose_by_clients(settings, gathered))
    try:
        with gathered.naming_suspects(), _threads(settings):
            selection = _selection_on_server(settings, gathered)
            if selection is not None:
                model = selection.model
            else:
                model = solve(total, settings.alpha, **options)
    except _UNSOLVED as error:
        return FitResult(None, gathered, total, error=error)
    return FitResult(gathered.on_raw_columns(model), gathered, total, selection)


def choose_by_clients(settings: FitSettings, gathered: Gathered) -> Fit:
    """Let every client count the losses of the models of all others on its rows."""
    total, options, alphas = gathered.total, settings.options, settings.alphas
    parts = _in_order(gathered)
    try:
        with gathered.naming_suspects(), _threads(settings):
            auto = alphas is None or is_auto(alphas)
            candidates = (
                _grid_by_server(settings, gathered) if auto else check_alphas(alphas)
            )
            # Until the clients have counted, the model is the one GCV would choose.
            alpha = _gcv_choice(total, candidates, options)
            model = gathered.on_raw_columns(solve(total, alpha, **options))
            models = held_out_models(parts, candidates, **options)
    except _UNSOLVED as error:
        return FitResult(None, gathered, total, error=error)
    requests = {c: gathered.about(AskLosses(each)) for c, each in models.items()}
    answers = Answers()
    yield Round(
        requests,
        answers,
        to=list(requests),
        result=FitResult(model, gathered, total),
        counts_losses=True,
    )
    if not answers.parts:
        failed = list(answers.failures.items())[:5]
        raise NotEnoughClientsError(
            "no client computed its held-out losses, so alpha cannot be chosen: "
            + "; ".join(f"client {client}: {reason}" for client, reason in failed)
        )
    with _threads(settings):
        selection = AlphaSelection.from_losses(
            total,
            candidates,
            {c: answers.parts[c] for c in parts if c in answers.parts},
            {c: part.total_weight for c, part in parts.items()},
            one_standard_error=settings.one_standard_error,
            **options,
        )
    if selection.at_edge:
        warn_edge(selection, auto=auto)
    model = gathered.on_raw_columns(selection.model)
    return FitResult(model, gathered, total, selection, answers.failures)


def _threads(settings: FitSettings) -> AbstractContextManager[object]:
    """Return a limit of one BLAS thread where equal bits must give equal bits.

    How BLAS divides its work, and so rounds, depends on the number of threads.
    """
    return one_blas_thread() if settings.statistics == "fixed" else nullcontext()


def _in_order(gathered: Gathered) -> dict[str, Any]:
    """Return the contributions by node id; the order of arrival is never the same."""
    parts = gathered.answers.parts
    return {c: parts[c] for c in sorted(parts, key=lambda c: (len(c), c))}


def _refuse_one_client(gathered: Gathered) -> None:
    """Say who is missing, where alpha cannot be chosen by leaving one client out."""
    if len(gathered.answers.parts) > 1 or not gathered.failures:
        return
    failed = list(gathered.failures.items())
    lines = [f"  client {client}: {reason}" for client, reason in failed[:_SHOWN]]
    lines += [f"  ... and {len(failed) - _SHOWN} more"] if failed[_SHOWN:] else []
    raise NotEnoughClientsError(
        "alpha is chosen by leaving out one client at a time, but only one of "
        f"{1 + len(failed)} can be used:\n"
        + "\n".join(lines)
        + '\n  To choose alpha with one client, use cv="gcv".'
    )


def _grid_by_server(settings: FitSettings, gathered: Gathered) -> Array:
    """Return the grid that the server itself would end with, extended where it must be.

    Clients are asked once, so the grid must be long enough before.
    """
    with warnings.catch_warnings():
        # What the clients count is not lost to rounding, and decides about the edge.
        warnings.simplefilter("ignore", ClampedLossWarning)
        warnings.simplefilter("ignore", GridEdgeWarning)
        found = select_alpha(
            gathered.answers.parts,
            one_standard_error=settings.one_standard_error,
            **settings.options,
        )
    return found.alphas


def _gcv_choice(total: Exact, candidates: Array, options: dict[str, Any]) -> float:
    try:
        scores = gcv_scores(total, candidates, **options)
    except FedRidgeError:
        return float(candidates[-1])
    return float(candidates[best_of(scores, total)])


def _selection_on_server(
    settings: FitSettings, gathered: Gathered
) -> AlphaSelection | None:
    """Choose alpha from the statistics alone, if that was asked for."""
    alphas = "auto" if settings.alphas is None else settings.alphas
    if settings.selection in ("server", "groups"):
        found = select_alpha(
            _in_order(gathered),
            alphas,
            method="loco",
            one_standard_error=settings.one_standard_error,
            **settings.options,
        )
        if settings.selection == "groups":
            found = replace(found, method="groups")
            found.model.alpha_chosen_by = found.describe()
        return found
    if settings.selection == "gcv":
        return select_alpha(gathered.total, alphas, method="gcv", **settings.options)
    return None
