"""Standard errors of a fit, and the round that the heteroskedasticity-robust ones take.

Classical ones follow from the total, cluster-robust ones from the statistics of every
site. HC0 to HC3 need squared residuals of all rows, so every client in the model is
asked once more. If one of them does not answer there are none: without its rows they
would be those of another fit.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from ...errors import FedRidgeError, StatisticsError
from ...regression.inference.infer import infer
from ...regression.inference.inference_result import Inference
from ...regression.inference.residual_moments import POWERS, ResidualProbe
from ...regression.least_squares import least_squares
from ...statistics.encoding import EXACT_FORMS
from ..aggregate import Answers
from ..requests import AskResiduals
from ..round import Fit, FitResult, Round
from ..settings import FitSettings

_SHOWN = 10
_GONE = "not connected any more"
_NOT_ASKED = (
    "no client was asked for its residuals: with ServerAppComponents, give "
    "ServerConfig(num_rounds=2) or more."
)


def ask_residuals(settings: FitSettings, result: FitResult) -> Fit:
    """Ask every client in the model for its squared residuals, and add them up."""
    gathered, total, model = result.gathered, result.statistics, result.model
    if model is None or total.form not in EXACT_FORMS:
        return result
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit has warned already
            fit = least_squares(total, model.alpha_, **settings.options)
        fit.check_freedom()
    except FedRidgeError as error:
        return replace(result, no_residuals=str(error))
    probe = ResidualProbe.of(fit, settings.standard_errors)
    members = gathered.answers.participants
    answers = Answers()
    yield Round(
        gathered.about(AskResiduals(probe)),
        answers,
        to=members,
        result=replace(result, no_residuals=_NOT_ASKED),
    )
    answers.refuse_silent(members, _GONE)
    for client, rows in gathered.answers.rows_of(list(answers.parts)).items():
        found = answers.parts[client].count
        if found != rows:
            told = f"it has {found} rows now, where it had {rows}"
            answers.reject(client, told)
    if answers.failures:
        return replace(
            result,
            residual_failures=answers.failures,
            no_residuals=_missing(settings.standard_errors, answers.failures),
        )
    first, *others = (answers.parts[client] for client in members)
    return replace(result, residuals=sum(others, start=first))


def infer_result(settings: FitSettings, result: FitResult) -> Inference:
    """Return the standard errors that the settings ask for.

    Raises
    ------
    FedRidgeError
        If there are none, with the reason.
    """
    model, total, kind = result.model, result.statistics, settings.standard_errors
    if model is None or getattr(total, "form", "") not in EXACT_FORMS:
        raise StatisticsError("standard errors need full statistics without noise.")
    if result.no_residuals:
        raise StatisticsError(result.no_residuals)
    answers = result.gathered.answers
    parts = None
    if kind.startswith("CR"):
        parts = {client: answers.parts[client] for client in answers.participants}
    return infer(
        total,
        model.alpha_ if result.selection is None else result.selection,
        fit_intercept=model.fit_intercept,
        standardize=model.standardize,
        covariance=kind,
        parts=parts,
        residuals=result.residuals if kind in POWERS else None,
    )


def _missing(kind: str, failures: dict[str, str]) -> str:
    """Say which clients did not send residuals, and what to do."""
    lines = [f"client {c}: {why}" for c, why in list(failures.items())[:_SHOWN]]
    if len(failures) > _SHOWN:
        lines.append(f"and {len(failures) - _SHOWN} more")
    return (
        f"there are no {kind} standard errors, which need the residuals of every "
        f"client in the model: {'; '.join(lines)}. The model is complete: run the fit "
        "again, or use infer(strategy.statistics_, strategy.model_.alpha_) for "
        "classical ones."
    )
