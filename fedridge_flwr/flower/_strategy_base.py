"""What both strategies share: the fit they drive, its results, and its log."""

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from .._checks import check_whole
from .._text import counted
from ..errors import FedRidgeError, PrivacyError
from ..federation.aggregate import Answers
from ..federation.fit_run import FitRun
from ..federation.report import FitReport
from ..federation.requests import AskEvaluation, Request
from ..federation.settings import FitSettings
from ..privacy.noisy_statistics import PrivateStatistics
from ..regression.alpha_selection import AlphaSelection
from ..regression.evaluation import Evaluation
from ..regression.model import RidgeModel
from ..regression.normal_equations import Statistics
from .exchange import fedavg_round_bytes
from .protocol.answer_records import read_answer
from .protocol.array_records import array_record, model_arrays
from .protocol.request_records import FIT_KEY

log = logging.getLogger("flwr")
NO_ROUND = -1
_T = TypeVar("_T")
_HOW_ALPHA = {
    "server": "chosen by leaving clients out (statistics of every client are kept)",
    "clients": "chosen by the clients in one more round (their statistics are kept)",
    "gcv": "chosen by generalized cross-validation",
    "noise": "chosen by the noisy statistics",
}
_NOT_FITTED = (
    "not fitted: start() has not been called, or it failed, or the older driver was "
    "not given enough of the rounds that the mode needs."
)


@dataclass(frozen=True)
class Reply:
    """One client's reply, whatever carried it: content, or the reason for having none.

    A client that `crashed` raised an error of its own instead of answering with it.
    """

    client: str
    content: RecordDict | None = None
    error: str = ""
    crashed: bool = False
    size: int = 0


class StrategyBase:
    """A strategy of either API: drives a `FitRun` and gives access to its results."""

    _settings: FitSettings
    _run: FitRun
    _last_round: int
    _arrays: ArrayRecord

    # ---- results ----------------------------------------------------------------

    @property
    def model_(self) -> RidgeModel:
        """The fitted model."""
        result = _fitted(self._run.result)
        if result.model is None:
            raise AttributeError(
                f"there is no model ({type(result.error).__name__}): {result.error} "
                "The statistics are kept: solve(strategy.statistics_, alpha=...) needs "
                "no further round."
            )
        return result.model

    @property
    def report_(self) -> FitReport:
        """Who took part, what it cost, how well posed the answer is."""
        return _fitted(self._run.report)

    @property
    def selection_(self) -> AlphaSelection:
        """How alpha was chosen, if it was."""
        result = self._run.result
        if result is not None and result.selection is None:
            raise AttributeError(
                "alpha was given and not chosen: there is no selection_. Use alphas=."
            )
        return _fitted(None if result is None else result.selection)

    @property
    def statistics_(self) -> Statistics | PrivateStatistics:
        """The total over all participants; another alpha needs no other round."""
        result = self._run.result
        if result is not None and result.statistics is None:
            raise AttributeError(
                "a fit in several rounds never has the statistics: for another alpha, "
                'run it again, or use mode="oneshot".'
            )
        total: Any = None if result is None else result.statistics
        return _fitted(total)  # type: ignore[no-any-return]

    # ---- rounds -----------------------------------------------------------------

    def _start_fit(self, settings: FitSettings, fraction_evaluate: float) -> None:
        """Keep the settings and be ready for the first round."""
        if settings.privacy is not None and fraction_evaluate > 0:
            raise PrivacyError(
                "fraction_evaluate must be 0 with privacy: errors counted on the "
                "clients' rows are a further release about them. Evaluate on rows that "
                "are public, or the server's own: start(grid, evaluate_fn=f), "
                "f(server_round, arrays)."
            )
        self._settings = settings
        self._new_fit()

    def _new_fit(self) -> None:
        self._run, self._last_round = FitRun(self._settings), NO_ROUND

    def _config(self, server_round: int) -> dict[str, Any]:
        """Return what every request says beside what it asks for."""
        named = {} if self._run.name is None else {FIT_KEY: self._run.name}
        return {"server-round": server_round, **named}

    def _trains(self, server_round: int) -> bool:
        """Whether the fit has anything to ask in this train round."""
        ended = self._run.round is None or self._run.counts_losses
        return server_round == 1 or self._run.failed or not ended

    def _hand_over(
        self,
        replies: Iterable[Reply],
        into: Answers,
        ask: Request | Mapping[str, Request],
        asked: Collection[str],
        silence: str,
    ) -> None:
        """Read every reply as it arrives, and name the clients that did not answer."""
        for reply in replies:
            client, content = reply.client, reply.content
            self._run.bytes_up += reply.size
            if content is None:
                (into.crash if reply.crashed else into.refuse)(client, reply.error)
                continue
            request = ask.get(client) if isinstance(ask, Mapping) else ask
            if request is not None:
                into.take(client, partial(read_answer, content, request))
        into.refuse_silent(asked, silence)

    def _take_round(
        self, replies: Iterable[Reply], asked: Collection[str], silence: str
    ) -> None:
        """Hand the replies of the current round over."""
        current = self._run.round
        if current is not None:
            self._hand_over(replies, current.into, current.ask, asked, silence)

    def _finish_round(self, where: str, server_round: int) -> RidgeModel | None:
        """Go on with the fit, and log who is left out and how far it has come."""
        run = self._run
        answers = None if run.round is None else run.round.into
        try:
            run.finish_round()
        finally:
            for client, reason in ({} if answers is None else answers.failures).items():
                log.warning("%s: client %s left out: %s", where, client, reason)
        if run.progress:
            log.info("%s: %s", where, run.progress)
        if run.model is not None:
            self._arrays = array_record(model_arrays(run.model))
        if run.report is not None:
            self._last_round = server_round
            run.compare_bytes(fedavg_round_bytes(self._arrays))
            for client, reason in run.report.suspects.items():
                log.warning("%s: client %s is suspect: %s", where, client, reason)
            if run.report.wire_error is not None:
                log.info(
                    "%s: by float32, coefficients are right to %.1e of their size",
                    where,
                    run.report.wire_error,
                )
        return run.model

    # ---- evaluation -------------------------------------------------------------

    def _evaluation_request(self) -> AskEvaluation:
        result = _fitted(self._run.result)
        gathered = result.gathered
        # The arrays of the model are on mapped columns.
        return AskEvaluation(self.model_, gathered.feature_hash, gathered.feature_map)

    def _finish_evaluation(
        self, answers: Answers, up: int, down: int, began: float
    ) -> dict[str, float]:
        """Average what the clients evaluated, and put it into the report."""
        report, averaged = (
            self.report_,
            average_evaluations(list(answers.parts.values())),
        )
        report.bytes_up += up
        report.bytes_down += down
        report.seconds["evaluate"] = time.perf_counter() - began
        report.evaluation, report.evaluation_failures = averaged, answers.failures
        return averaged

    # ---- log --------------------------------------------------------------------

    def _describe_settings(self) -> str:
        settings = self._settings
        alpha = _HOW_ALPHA.get(settings.selection or "", f"{settings.alpha:g}")
        return (
            f"{self._describe_rounds()}, alpha {alpha}, intercept "
            f"{settings.fit_intercept}, standardize {settings.standardize}, valid "
            f"answers needed: {settings.min_clients}"
        )

    def _describe_rounds(self) -> str:
        settings, privacy = self._settings, self._settings.privacy
        if privacy is not None:
            return (
                f"{counted(settings.rounds, 'round')}, private with epsilon "
                f"{privacy.epsilon:g} and delta {privacy.delta:g} for each record "
                f"({privacy.trust} trust)"
            )
        mapped = settings.map_needs_data
        first = ", after a small round for the feature map" if mapped else ""
        if settings.one_shot:
            return f"one round{first}"
        return f"{settings.mode}, at most {settings.max_rounds} rounds{first}"

    def _log_report(self) -> None:
        if log.isEnabledFor(logging.INFO):
            for line in self.report_.text(diagnostics=False).splitlines():
                log.info("%s", line)


def settings_of(arguments: Mapping[str, Any], *, min_clients: int) -> FitSettings:
    """Return the settings among the arguments of a strategy, which are named alike."""
    names = {each.name for each in fields(FitSettings) if each.init}
    given = {name: value for name, value in arguments.items() if name in names}
    return FitSettings(**given, min_clients=min_clients)


def model_metrics(model: RidgeModel) -> dict[str, int | float]:
    """Return what strategies report of a model, in Flower's spelling."""
    found: dict[str, int | float] = {"num-clients": model.n_clients_}
    if model.n_rows_ is not None:
        found["num-examples"] = model.n_rows_
    return found if model.r2_ is None else {**found, "train-r2": model.r2_}


def selection_metrics(chosen: AlphaSelection) -> dict[str, float]:
    """Return what strategies report of the choice of alpha."""
    best = int(np.flatnonzero(chosen.alphas == chosen.alpha)[0])
    return {"alpha": chosen.alpha, "held-out-mse": float(chosen.mean[best])}


def average_evaluations(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Average MSE and R² over clients, weighted by rows, as Flower does.

    The mean MSE is the MSE over all rows. The mean R² is a mean of clients' own R²,
    over those that have one; it is not the R² over all rows.

    Examples
    --------
    >>> average_evaluations([Evaluation(1.0, 0.5, 10), Evaluation(4.0, 0.2, 20)])
    {'mse': 3.0, 'r2': 0.3, 'num-examples': 30.0}
    """
    rows = sum(evaluation.n_rows for evaluation in evaluations)
    if rows == 0:
        return {}
    averaged = {"mse": sum(e.mse * (e.n_rows / rows) for e in evaluations)}
    with_r2 = [e for e in evaluations if e.n_rows and not math.isnan(e.r2)]
    if with_r2:
        weight = sum(e.n_rows for e in with_r2)
        averaged["r2"] = sum(e.r2 * (e.n_rows / weight) for e in with_r2)
    return {**averaged, "num-examples": float(rows)}


def either_name(**spellings: int | None) -> int | None:
    """Return the number of clients that was given under one of two names."""
    given = {
        name: check_whole(name, value)
        for name, value in spellings.items()
        if value is not None
    }
    if len(set(given.values())) > 1:
        both = " and ".join(f"{name}={value}" for name, value in given.items())
        raise FedRidgeError(f"{both} are two names of one setting: give one of them.")
    return next(iter(given.values()), None)


def _fitted(value: _T | None) -> _T:
    if value is None:
        raise AttributeError(_NOT_FITTED)
    return value
