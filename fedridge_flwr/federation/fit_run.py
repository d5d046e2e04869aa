"""`FitRun`: one fit as an adapter drives it, round by round, to model and report."""

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .._text import human_bytes
from ..data.formula import TableFormula
from ..errors import FedRidgeError, IncompleteFitError
from ..regression.diagnostics import LARGEST_SPECTRUM, spectrum
from ..regression.likelihood.family_inference import ROWS
from ..regression.model import RidgeModel
from ..statistics.outcome import FRACTIONS, has_fractions
from .advice import (
    better_form,
    better_scale,
    sentences,
    several_classes,
    without_suspects,
)
from .fits.family_fit import family_fit
from .fits.multiround_fit import multiround
from .fits.one_shot import one_shot, solve_gathered
from .fits.private_fit import private_one_shot, private_refinement
from .fits.standard_errors import infer_result
from .recommend import better_mode
from .report import FitReport
from .reporting.site_comparison import compare_sites
from .round import Fit, FitResult, Round
from .scope import NOT_ASKED, STRICT, by_reason, scope_text, with_reasons
from .settings import FitSettings

log = logging.getLogger("flwr")

# Names of columns are in the model; what the tables must be like is in the formula.
_TOLD = (
    "alphas",
    "cv",
    "one_standard_error",
    "standard_errors",
    "fit_intercept",
    "standardize",
    "class_weight",
    "min_clients",
    "wire_dtype",
    "statistics",
    "family",
    "mode",
    "tol",
    "max_rounds",
    "max_bytes",
    "screen",
    "unnamed",
    "strict",
)
_LOGGED = 10
_ROUNDING = 1e-9


def way_of_fitting(settings: FitSettings) -> Fit:
    """Return the fit that given settings need, before its first round."""
    if settings.secure is not None:
        # It brings the primitives along, which no other fit needs.
        from .fits.secure_fit import secure_fit

        return secure_fit(settings)
    if settings.privacy is not None:
        many = settings.privacy.uses_residuals
        return private_refinement(settings) if many else private_one_shot(settings)
    if settings.family != "gaussian":
        return family_fit(settings)
    return one_shot(settings) if settings.one_shot else multiround(settings)


class FitRun:
    """A fit between its first request and its report.

    An adapter sends what `round` asks, hands every reply to ``round.into``, and calls
    `finish_round`, until there is a `result`.

    Parameters
    ----------
    settings : FitSettings
        What to solve, and in which way.

    Attributes
    ----------
    round : Round or None
        The round to ask now; None when the fit has ended.
    result : FitResult or None
        What it ended with.
    model : RidgeModel or None
        The model, or the one so far.
    counts_losses : bool
        Whether the clients are to count held-out losses now.
    failed : bool
        Whether the fit ended with an error.
    report : FitReport or None
        Account of the fit, when it has ended.
    name : str or None
        Name of a fit that asks its clients more than once.
    seconds : dict of str to float
        Time per phase.
    bytes_up, bytes_down : int
        Size of all messages, counted by the adapter.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> run = FitRun(FitSettings(alpha=0.0))
    >>> for k in range(3):
    ...     X = [[k + 0.0], [k + 1.0]]
    ...     part = SufficientStatistics.from_data(X, [k, k + 1])
    ...     run.round.into.add(f"client {k}", part)
    >>> run.finish_round()
    >>> run.model
    RidgeModel(alpha=0.0, 1 feature, 6 rows, 3 clients, R²=1)
    """

    def __init__(self, settings: FitSettings) -> None:
        self.settings = settings
        self._steps = way_of_fitting(settings)
        self.round: Round | None = next(self._steps)
        self.result: FitResult | None = None
        self.model: RidgeModel | None = None
        self.counts_losses = self.failed = False
        self.report: FitReport | None = None
        self.name = (
            secrets.token_hex(16)
            if settings.rounds > 1 or settings.selection == "clients"
            else None
        )
        self.seconds: dict[str, float] = {}
        self.bytes_up = self.bytes_down = 0
        self._before_losses: tuple[int, int] | None = None

    @property
    def progress(self) -> str:
        """What there is to log after a round, if anything."""
        now: Any = self.result if self.round is None else self.round
        if now is None or not now.progress:
            return ""
        spent = (self.bytes_up + self.bytes_down) / max(self._n_members, 1)
        return f"{now.progress}, {human_bytes(spent)} per client so far"

    @property
    def _n_members(self) -> int:
        if self.round is None:
            return len(self.report.participants) if self.report is not None else 0
        return len(self.round.to or ())

    def add_seconds(self, phase: str, began: float) -> None:
        """Count the time since `began` for a phase."""
        spent = time.perf_counter() - began
        self.seconds[phase] = self.seconds.get(phase, 0.0) + spent

    def finish_round(self, complete: Callable[[FitReport], None] | None = None) -> None:
        """Go on with the answers of this round, to the next round or to the end.

        `complete` adds to a new report what only the adapter knows, before the model
        is handed over.
        """
        began = time.perf_counter()
        asked = self.round
        try:
            self.round = next(self._steps)
            found, ended = self.round.result, False
            self.model, self.counts_losses = self.round.model, self.round.counts_losses
        except StopIteration as end:
            self.round, self.counts_losses = None, False
            found, ended = end.value, True
        except BaseException:
            self.release_ledger()
            self.round, self.counts_losses, self.failed = None, False, True
            raise
        self.add_seconds("solve", began)
        if found is not None:
            self.result, self.model = found, found.model
            self._write_report(found)
            if complete is not None and self.report is not None:
                complete(self.report)
            if self.settings.ledger is not None:
                self._close_ledger(found)
            if found.error is not None:
                self.failed = True
                raise found.error
        self._refuse_incomplete(asked)
        if ended:
            self._log_remarks()
            self._hand_over(self.result)
        elif self.counts_losses:
            self._before_losses = self.bytes_up, self.bytes_down

    def _log_remarks(self) -> None:
        """Log what was seen of clients in the model: few people print the report."""
        if self.report is None or self.result is None:
            return
        seen = self.result.gathered.screener.remarks
        told = {c: why for c, why in seen.items() if c in self.report.remarks}
        if not told:
            return
        for clients, reason in by_reason(self.report.named(told))[:_LOGGED]:
            log.warning("%s is in the model, but worth a look: %s", clients, reason)

    def _close_ledger(self, result: FitResult) -> None:
        """Put what arrived into the ledger's total, unless somebody is missing."""
        answers: Any = result.gathered.answers
        if self.settings.strict and self.report is not None and self.report.incomplete:
            answers.release()  # the run stays open: the next fit asks who is missing
        else:
            answers.close_run()

    def release_ledger(self) -> None:
        """Let others use the ledger, if this fit has one open."""
        if self.settings.ledger is not None and self.round is not None:
            answers: Any = self.round.into
            answers.release()

    def without(self, client: str, total: Any) -> None:
        """Go on without a client that has withdrawn: model and report of the others."""
        if self.result is None or self._is_refused:
            return
        gathered = self.result.gathered
        gathered.answers.reject(client, "withdrawn: removed from the ledger")
        gathered.total = total.to_sufficient() if total.form == "fixed" else total
        try:
            next(solve_gathered(self.settings, gathered))
        except StopIteration as end:
            self.result, self.model = end.value, end.value.model
            self._write_report(end.value)
            return
        # The one who withdrew, and those who have gone, cannot be asked: with a ledger
        # no setting that asks again is accepted (`check_ledger_settings`).
        raise FedRidgeError("a model without a client must not take another round.")

    @property
    def _is_refused(self) -> bool:
        """Whether clients are missing in a model that must have all of them."""
        return self.failed and self.result is not None and self.result.error is None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the rounds behind: a generator cannot be copied."""
        return {**self.__dict__, "_steps": None, "round": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin again, unless the fit has ended."""
        self.__dict__.update(state)
        if self.result is None:
            self.__dict__.update(FitRun(self.settings).__dict__)

    def _refuse_incomplete(self, asked: Round | None) -> None:
        """Raise what is missing in a model that must have everybody, once known."""
        if not self.settings.strict or asked is None:
            return
        if self.report is not None:
            told = self.report.incomplete
        elif self.settings.privacy is None:
            out, inside = asked.into.failures, len(asked.into.participants)
            scope = scope_text(inside, out, None, {}, no_model=STRICT)
            told = with_reasons(scope, out)
        else:
            told = ""  # a client that misses a private round stays in the model
        if told:
            self.round, self.counts_losses, self.failed = None, False, True
            self.model = None
            raise IncompleteFitError(told)

    def _hand_over(self, result: FitResult | None) -> None:
        """Give the model to those who wait for it."""
        settings = self.settings
        if result is None or result.model is None:
            return
        if settings.save_model is not None:
            path = Path(settings.save_model).absolute()
            result.model.save(path)
            log.info("The model is in %s", path)
        if settings.on_model is not None:
            settings.on_model(result.model)

    def _write_report(self, result: FitResult) -> None:
        gathered, model = result.gathered, result.model
        total, answers = result.gathered.total, result.gathered.answers
        if self.settings.screens:
            self.seconds["screen"] = gathered.screener.seconds
        failures = {**gathered.failures, **result.absent, **result.dropped}
        exact = result.statistics if result.privacy is None else None
        feature_map = gathered.feature_map
        self.report = FitReport(
            participants=[c for c in answers.participants if c not in result.dropped],
            failures=failures,
            rows_left_out=answers.rows_left_out,
            rearranged=[c for c in answers.rearranged if c not in failures],
            from_ledger=[
                c for c in getattr(answers, "earlier", ()) if c not in failures
            ],
            uploads={
                client: what
                for client, what in getattr(answers, "uploads", {}).items()
                if client not in failures
            },
            unverified=[c for c in answers.unverified if c not in failures],
            repeated=list(dict.fromkeys([*answers.repeated, *result.repeated])),
            n_rows=total.count if model is None else model.n_rows_,
            n_features=total.n_features,
            n_targets=total.n_targets,
            alpha=self._given_alpha if model is None else model.alpha_,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            seconds=self.seconds,
            wire_error=None if exact is None else _wire_error(exact, model),
            selection=None if result.selection is None else result.selection.to_dict(),
            selection_failures=dict(result.selection_failures),
            privacy=result.privacy,
            refinement=result.refinement,
            mode=result.mode or self._why_one_shot(),
            feature_map=""
            if feature_map is None
            else feature_map.describe(gathered.raw_features),
            suspects={
                client: why
                for client, why in gathered.screener.suspects.items()
                if client not in failures
            },
            remarks={
                client: why
                for client, why in self._remarks(gathered).items()
                if client not in failures
            },
            screening=gathered.screener.summary,
            error=str(result.error or ""),
            settings=told_settings(self.settings),
            residual_failures=dict(result.residual_failures),
            compare=partial(compare_sites, result, gathered.table.parts),
        )
        if weights := weighted_by(self.settings, total):
            self.report.settings["weights"] = weights
            if model is not None:
                model.weighted_by = weights
        if self.settings.family != "gaussian":
            self.report.infer = getattr(model, "inference", None)
        elif total.n_features <= LARGEST_SPECTRUM:
            self.report.infer = infer = partial(infer_result, self.settings, result)
            if model is not None:
                model.infer = infer
        if failures and model is not None:
            model.scope_ = self.report.scope
        if self._before_losses is not None and self.report.selection is not None:
            up, down = self._before_losses
            self.report.selection["bytes_up"] = self.bytes_up - up
            self.report.selection["bytes_down"] = self.bytes_down - down
        if exact is not None and model is not None:
            self.report.diagnose = partial(spectrum, exact, model)
        self.report.advise = self._advice(result)

    def _remarks(self, gathered: Any) -> dict[str, str]:
        """Return what is unusual about clients, with their counts that are none."""
        found = dict(gathered.remarks)
        if self.settings.family == "poisson":
            for client, part in gathered.answers.parts.items():
                if has_fractions(part):
                    both = filter(None, [found.get(client), FRACTIONS])
                    found[client] = "; ".join(both)
        return found

    @property
    def _given_alpha(self) -> float:
        """The penalty that was given, NaN where one was to be chosen."""
        return math.nan if self.settings.selection else self.settings.alpha

    def _why_one_shot(self) -> str:
        """Return why "auto" is one shot, if it is."""
        if self.settings.mode != "auto" or not self.settings.one_shot:
            return ""
        private = self.settings.privacy is not None
        chooses = self.settings.selection is not None
        needs = "choosing alpha needs" if chooses else "robust standard errors need"
        needs = "privacy needs it" if private else f"{needs} the statistics"
        return f"oneshot (auto: {needs})"

    def _advice(self, result: FitResult) -> Callable[[], str]:
        """Return a function that says what would have been better, if anything."""
        settings, exact, model = self.settings, result.statistics, result.model
        asked = []
        if settings.privacy is None and model is not None:
            asked += self._mode_advice(result)
            if exact is not None and model.alpha_ > 0:
                usual = partial(without_suspects, result)
                asked.append(partial(better_scale, exact, usual, **settings.options))
            if getattr(exact, "form", "") == "full":
                asked.append(partial(better_form, model))
            if settings.family != "gaussian":
                asked.append(partial(several_classes, model))
        return partial(sentences, asked)

    def _mode_advice(self, result: FitResult) -> list[Callable[[], str]]:
        settings, total = self.settings, result.gathered.total
        multiround = result.refinement is not None
        chosen_by_auto = settings.mode == "auto" and not settings.one_shot
        no_choice = settings.selection is not None or settings.secure is not None
        iterates = settings.family != "gaussian"
        if no_choice or iterates or not total.count or chosen_by_auto:
            return []
        clients = len(result.gathered.answers.participants) - len(result.dropped)
        mode = settings.mode if multiround else "oneshot"
        rows = max(total.count // max(clients, 1), 1)
        d, t, budget = total.n_features, total.n_targets, settings.max_bytes
        return [partial(better_mode, mode, d, rows, clients, t, budget)]

    def compare_bytes(self, fedavg_bytes_per_client: int) -> None:
        """Say how many FedAvg rounds with the same clients cost as many bytes."""
        if self.report is None:
            return
        asked = len(self.report.participants) + sum(
            not why.startswith(NOT_ASKED) for why in self.report.failures.values()
        )
        if asked:
            spent = self.report.bytes_up + self.report.bytes_down
            self.report.fedavg_rounds = spent / (asked * fedavg_bytes_per_client)


def told_settings(settings: FitSettings) -> dict[str, Any]:
    """Return the settings that are not the defaults, as JSON-able values.

    Examples
    --------
    >>> asked = TableFormula("bp ~ age", missing="mean", weights="w")
    >>> told_settings(FitSettings(formula=asked, strict=True))
    {'strict': True, 'missing': 'mean', 'weights': 'w'}
    """
    given = {name: getattr(settings, name) for name in _TOLD}
    if not isinstance(given["alphas"], str | None):
        given["alphas"] = [float(alpha) for alpha in given["alphas"]]
    found = {k: v for k, v in given.items() if v != getattr(FitSettings, k)}
    return found | _of_formula(settings.formula)


def _of_formula(formula: TableFormula | None) -> dict[str, Any]:
    """Return what a formula says beside its text."""
    if formula is None:
        return {}
    told: dict[str, Any] = {
        "missing": "" if formula.missing == "drop" else formula.missing,
        "categorical": list(formula.categorical),
        "levels": {column: list(each) for column, each in formula.levels.items()},
        "weights": formula.weights,
    }
    return {name: value for name, value in told.items() if value}


def weighted_by(settings: FitSettings, total: Any) -> str:
    """Return the column of weights, "rows" if it has no name, "" if there is none.

    Weights of arrays are known by their sum, unless that is the number of rows. Those
    that `class_weight` makes are told as that setting.
    """
    if settings.formula is not None:
        return settings.formula.weights
    if settings.class_weight is not None or settings.privacy is not None:
        return ""
    parts: Sequence[Any] = getattr(total, "parts", None) or [total]
    weights = [_total_weight(part) for part in parts]
    if None in weights or not total.count:
        return ""
    apart = abs(sum(filter(None, weights)) - total.count)
    return ROWS if apart > _ROUNDING * total.count else ""


def _total_weight(part: Any) -> float | None:
    """Return the sum of weights, where these statistics have it."""
    found: float | None = getattr(getattr(part, "stats", part), "total_weight", None)
    return found


def _wire_error(total: Any, model: RidgeModel | None) -> float | None:
    if not total.rounding or model is None or model.condition_ is None:
        return None
    return float(min(1.0, total.rounding * model.condition_))
