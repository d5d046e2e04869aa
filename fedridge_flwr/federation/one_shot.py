"""One federated fit from the first answer to the report, whatever carries it.

The strategies of both Flower APIs translate their messages and leave every decision
to `OneShotFit`: fold, solve, tell.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._text import counted
from .._types import Array
from ..errors import FedRidgeError, NotEnoughClientsError
from ..features import FeatureMap
from ..linalg.blas import one_blas_thread
from ..multiround import Openings
from ..privacy.noisy_statistics import PrivateStatistics
from ..regression.alpha_selection import (
    Alphas,
    AlphaSelection,
    auto_alphas,
    check_alphas,
    gcv_scores,
    select_alpha,
    warn_edge,
)
from ..regression.diagnostics import spectrum
from ..regression.leave_client_out import HeldOut, held_out_models
from ..regression.model import Evaluation, RidgeModel
from ..regression.solve import Statistics, solve
from ..statistics.sufficient import SufficientStatistics, hash_names
from .aggregate import Contribution, Fold
from .answers import Roll
from .recommend import better_mode
from .report import FitReport
from .requests import AskColumns, AskStatistics, Question
from .screening.screener import Screener, naming_suspects
from .settings import MORE_AGREEMENTS, FitSettings, is_auto

__all__ = ["OneShotFit", "average_evaluations"]

_STILL_IN_MAP = " (what it told of its columns is still in the feature map)"


@dataclass
class OneShotFit:
    """The state of one fit.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> fit = OneShotFit(FitSettings(alpha=0.0))
    >>> for k in range(3):
    ...     X = [[k + 0.0], [k + 1.0]]
    ...     part = SufficientStatistics.from_data(X, [k, k + 1])
    ...     fit.fold.add(f"client {k}", part)
    >>> fit.finish()
    RidgeModel(alpha=0.0, 1 feature, 6 rows, 3 clients, R²=1)
    """

    settings: FitSettings
    fold: Fold = field(init=False)
    statistics: Statistics | PrivateStatistics | None = None
    model: RidgeModel | None = None
    selection: AlphaSelection | None = None
    candidates: Array = field(default_factory=lambda: np.empty(0))
    report: FitReport | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    columns: Roll = field(default_factory=Roll)
    feature_map: FeatureMap | None = field(init=False)
    _n_features_in: int | None = None
    _feature_hash: str | None = None
    _agreements: int = 0
    _screener: Screener = field(init=False)

    def __post_init__(self) -> None:
        """Start with nobody."""
        self.feature_map = self.settings.feature_map
        self._screener = Screener(self.settings)
        self.fold = self._new_fold()

    def _new_fold(self) -> Fold:
        settings = self.settings
        names = settings.feature_names
        self._screener.forget_contributions()
        keeps_all = settings.selection in ("clients", "server")
        return Fold(
            accept_plain=not any([*settings.options.values(), settings.selection]),
            feature_names=None if names is None else tuple(names),
            keep=keeps_all or self._screener.excludes,
            accept_rounded=settings.wire_dtype == "float32",
            private=settings.privacy is not None,
            feature_map=self.feature_map,
            profiled=settings.screens,
            keep_bytes=self._screener.keep_bytes,
        )

    @property
    def continues(self) -> bool:
        """Whether the same fit has asked before and has to ask again."""
        asked_before = bool(self.columns.answered) and not self._awaits_columns
        return self.model is None and asked_before

    @property
    def wanted(self) -> list[str]:
        """Clients to be asked again, if any are."""
        return self.columns.participants

    @property
    def map_now(self) -> FeatureMap | None:
        """The feature map that rows are to go through in this round."""
        return None if self._awaits_columns else self.feature_map

    @property
    def _awaits_columns(self) -> bool:
        return self.feature_map is not None and self.feature_map.needs_data

    @property
    def progress(self) -> str:
        """What there is to tell after a round, if there is anything."""
        return ""

    def question(self) -> Question:
        """Return what every client is asked now."""
        if self._awaits_columns:
            return AskColumns()
        return AskStatistics(self.settings.wire_dtype)

    @property
    def roll(self) -> Roll:
        """The answers of this round."""
        return self.columns if self._awaits_columns else self.fold

    def take(self, client: str, read: Callable[[], Any]) -> None:
        """Fold in what `read` returns; whatever it raises is the reason not to."""
        try:
            with one_blas_thread():
                self.roll.add(client, read())
        except FedRidgeError as error:
            self.roll.refuse(client, str(error))
        except Exception as error:  # hostile input must not end the round
            reason = f"unreadable answer ({type(error).__name__})"
            self.roll.refuse(client, reason)

    def refuse_silent(self, asked: Iterable[str], reason: str) -> None:
        """Name everybody who was asked and has not been heard of."""
        answered = self.roll.answered
        for client in asked:
            if client not in answered:
                self.roll.refuse(client, reason)

    def finish(self) -> RidgeModel | None:
        """Take the round in; after the last, write the report and hand the model on.

        There is no model yet if the clients have to be asked again.
        """
        if self._awaits_columns:
            self._agree_on_map()
            return None
        if self.roll is self.fold and self.columns.participants:
            self.refuse_silent(self.columns.participants, "not connected any more")
            self._folded()  # so that it is known who is left out
            if self._agreed_with_others():
                return None
        return self._finish()

    def _agree_on_map(self) -> None:
        """Put numbers into the feature map, from what clients told of their columns.

        They are those of exactly the clients that are asked next.
        """
        sizes = Counter(part.n_features for part in self.columns.parts.values())
        expected = sizes.most_common(1)[0][0] if sizes else 0
        for client, part in list(self.columns.parts.items()):
            if part.n_features != expected:
                self.columns.reject(
                    client,
                    f"has {counted(part.n_features, 'column')} where most clients have "
                    f"{expected}",
                )
        self._screener.compare_columns(self.columns)
        moments, asked = list(self.columns.parts.values()), self.settings.feature_map
        if len(moments) < self.settings.min_clients or asked is None:
            raise NotEnoughClientsError(_too_few(self.columns, self.settings))
        self.feature_map = asked.resolve(sum(moments[1:], start=moments[0]))
        self.fold = self._new_fold()

    def _agreed_with_others(self) -> bool:
        """Whether the map has to be made anew, without those who are gone since.

        The model is then that of the others, to the last digit, as if those who are
        gone had never been there.
        """
        gone = [c for c in self.columns.participants if c in self.fold.failures]
        if self._agreements >= MORE_AGREEMENTS:
            for client in gone:
                self.fold.failures[client] += _STILL_IN_MAP
            return False
        for client in gone:
            self.columns.reject(client, self.fold.failures[client])
        if gone:
            self._agreements += 1
            self._agree_on_map()
        return bool(gone)

    @property
    def suspects(self) -> dict[str, str]:
        """Clients that stand out and are in the model all the same, and by what."""
        return self._screener.suspects({*self.columns.failures, *self.fold.failures})

    def _folded(self) -> Contribution | None:
        """Return the total, without those who are to be left out."""
        total = self._screener.finish(self.fold, mapped=self.feature_map is not None)
        if self.settings.screens:
            self.seconds["screen"] = self._screener.seconds
        return total

    def _naming_suspects(self) -> AbstractContextManager[None]:
        return naming_suspects(lambda: self.suspects)

    # ---- the end --------------------------------------------------------------------

    def _finish(self) -> RidgeModel | None:
        return self._finish_with(self._total())

    def _finish_with(self, total: Contribution) -> RidgeModel:
        if isinstance(total, Openings):
            raise FedRidgeError("openings need a fit in several rounds.")
        began = time.perf_counter()
        with self._naming_suspects():
            model = self._solve(total)
        self.statistics, self.model = total, model
        self._count_seconds(began)
        with self._naming_suspects():
            self.report = self._report(total, model)
        if not self.awaits_losses:
            self._hand_on(model)
        return model

    def _count_seconds(self, began: float) -> None:
        spent = time.perf_counter() - began
        self.seconds["solve"] = self.seconds.get("solve", 0.0) + spent

    def _total(self) -> Contribution:
        settings = self.settings
        total = self._folded()
        if total is None or len(self.fold.participants) < settings.min_clients:
            raise NotEnoughClientsError(_too_few(self.fold, settings))
        self._n_features_in = getattr(total, "n_features_in", None)
        self._feature_hash = getattr(total, "feature_hash", None)
        names = settings.feature_names
        if names is not None and isinstance(total, SufficientStatistics):
            total = total.with_feature_names(names)
        return total

    def _report(self, total: Contribution, model: RidgeModel) -> FitReport:
        exact = None if isinstance(total, PrivateStatistics | Openings) else total
        return FitReport(
            participants=self.fold.participants,
            failures={**self.columns.failures, **self.fold.failures},
            repeated=self.fold.repeated,
            n_rows=model.n_rows_,
            n_features=total.n_features,
            n_targets=total.n_targets,
            alpha=model.alpha_,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            seconds=self.seconds,
            spectrum=None if exact is None else spectrum(exact, model),
            wire_error=None if exact is None else _wire_error(exact, model),
            selection=None if self.selection is None else self.selection.to_dict(),
            advice=self._advice(total),
            feature_map=self._map_in_words(),
            mode=self._mode_in_words(),
            suspects=self.suspects,
            screening=self._screener.words,
        )

    def _mode_in_words(self) -> str:
        """Return why "auto" is one shot."""
        if self.settings.mode != "auto":
            return ""
        private = self.settings.privacy is not None
        needs = "privacy needs it" if private else "choosing alpha needs the statistics"
        return f"oneshot (auto: {needs})"

    def _map_in_words(self) -> str:
        if self.feature_map is None:
            return ""
        return self.feature_map.describe(self._raw_features)

    def _advice(self, total: Contribution) -> str:
        """Return what would have been better, if something would."""
        if isinstance(total, PrivateStatistics | Openings) or not total.count:
            return ""
        if self.settings.selection is not None:
            return ""  # which needs the statistics
        clients = len(self.fold.participants)
        rows = max(total.count // clients, 1)
        d, t, budget = total.n_features, total.n_targets, self.settings.max_bytes
        return better_mode("oneshot", d, rows, clients, t, budget)

    @property
    def awaits_losses(self) -> bool:
        """Whether the clients still have to count their held-out losses."""
        fitted = self.model is not None
        return fitted and self.settings.selection == "clients" and not self.selection

    def held_out(self) -> dict[str, HeldOut]:
        """Return for every participant the models of all others."""
        return held_out_models(
            self.fold.parts, self.candidates, **self.settings.options
        )

    def choose(
        self, losses: Mapping[str, Array], failures: Mapping[str, str]
    ) -> RidgeModel:
        """Choose alpha by the losses that clients counted, and refit on all rows."""
        total, report = self.statistics, self.report
        if not losses:
            raise NotEnoughClientsError(
                "no client counted its held-out losses, so alpha cannot be chosen: "
                + "; ".join(f"client {c}: {r}" for c, r in list(failures.items())[:5])
            )
        if report is None or not isinstance(total, SufficientStatistics):
            raise FedRidgeError("there is no fit to choose alpha for.")
        weights = {
            client: part.total_weight for client, part in self.fold.parts.items()
        }
        self.selection = AlphaSelection.from_losses(
            total,
            self.candidates,
            losses,
            weights,
            one_standard_error=self.settings.one_standard_error,
            **self.settings.options,
        )
        if self.selection.at_edge:
            warn_edge(self.selection)
        self.model = self._dressed(self.selection.model)
        report.alpha = self.model.alpha_
        report.spectrum = spectrum(total, self.model)
        report.wire_error = _wire_error(total, self.model)
        report.selection = self.selection.to_dict()
        report.selection_failures = dict(failures)
        self._hand_on(self.model)
        return self.model

    def _solve(self, total: Contribution) -> RidgeModel:
        if isinstance(total, PrivateStatistics | Openings):
            raise FedRidgeError("a private release is solved by a PrivateFit.")
        settings, method = self.settings, self.settings.selection
        if method is None or not isinstance(total, SufficientStatistics):
            return self._dressed(solve(total, settings.alpha, **settings.options))
        alphas: Alphas = "auto" if settings.alphas is None else settings.alphas
        if method == "server":
            self.selection = select_alpha(
                self.fold.parts,
                alphas,
                method="loco",
                one_standard_error=settings.one_standard_error,
                **settings.options,
            )
            return self._dressed(self.selection.model)
        if method == "gcv":
            self.selection = select_alpha(
                total, alphas, method="gcv", **settings.options
            )
            return self._dressed(self.selection.model)
        self.candidates = (
            auto_alphas(total, **settings.options)
            if is_auto(alphas)
            else check_alphas(alphas)
        )
        # Until the clients have counted, the model is the one GCV would choose.
        try:
            scores = gcv_scores(total, self.candidates, **settings.options)
            alpha = float(self.candidates[np.argmin(scores)])
        except FedRidgeError:
            alpha = float(self.candidates[-1])
        return self._dressed(solve(total, alpha, **settings.options))

    def _dressed(self, model: RidgeModel) -> RidgeModel:
        """Return the model with the map and the names that the server knows."""
        names = self.settings.feature_names
        if self.feature_map is not None:
            known = getattr(model, "feature_names_in_", names)
            model = model.with_feature_map(self.feature_map, self._raw_features, known)
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        return model

    @property
    def _raw_features(self) -> int:
        """Number of columns before the map; all participants have the same."""
        if self._n_features_in is None:
            raise FedRidgeError("the clients did not say how many columns they have.")
        return self._n_features_in

    def _hand_on(self, model: RidgeModel) -> None:
        settings = self.settings
        if settings.save_model is not None:
            model.save(Path(settings.save_model).absolute())
        if settings.on_model is not None:
            settings.on_model(model)

    def metrics(self) -> dict[str, int | float]:
        """Return what the strategies report of the round, in Flower's spelling."""
        model = self.model
        if model is None:
            return {}
        found: dict[str, int | float] = {"num-clients": model.n_clients_}
        if model.n_rows_ is not None:
            found["num-examples"] = model.n_rows_
        return found if model.r2_ is None else {**found, "train-r2": model.r2_}

    def count_selection_bytes(self, *, up: int, down: int) -> None:
        """Add what the choice of alpha cost to the report."""
        if self.report is not None and self.report.selection is not None:
            self.report.selection |= {"bytes_up": up, "bytes_down": down}
            before = self.report.bytes_up + self.report.bytes_down
            self.report.bytes_up += up
            self.report.bytes_down += down
            if self.report.fedavg_rounds is not None and before:
                self.report.fedavg_rounds *= 1.0 + (up + down) / before

    def selection_metrics(self) -> dict[str, int | float | list[int] | list[float]]:
        """Return what the strategies report of the choice, in Flower's spelling."""
        chosen = self.selection
        if chosen is None:
            return {}
        best = int(np.flatnonzero(chosen.alphas == chosen.alpha)[0])
        return {"alpha": chosen.alpha, "held-out-mse": float(chosen.mean[best])}

    def schema(self) -> dict[str, str]:
        """Return what a client needs to know to see if its columns are the model's."""
        known = self._feature_hash
        if known is None and self.settings.feature_names is not None:
            known = hash_names(self.settings.feature_names)
        return {} if known is None else {"feature-hash": known}

    def compare_bytes(self, fedavg_bytes_per_client: int) -> None:
        """Tell how many FedAvg rounds with the same clients cost as many bytes."""
        if self.report is None:
            return
        asked = len(self.report.participants) + len(self.report.failures)
        if asked:
            spent = self.bytes_up + self.bytes_down
            self.report.fedavg_rounds = spent / (asked * fedavg_bytes_per_client)


def _too_few(roll: Roll, settings: FitSettings) -> str:
    failures = roll.failures
    taken = len(roll.participants)
    answers = counted(taken, "valid answer")
    lines = [f"{answers}, at least {settings.min_clients} needed."]
    for client, reason in list(failures.items())[:10]:
        lines.append(f"  client {client}: {reason}")
    if len(failures) > 10:
        lines.append(f"  ... and {len(failures) - 10} more")
    if failures and set(failures) <= roll.crashed:
        lines.append(
            "  No client understood the question: is their app ridge_client_app("
            "load_data), or a RidgeClient?"
        )
    return "\n".join(lines)


def _wire_error(total: Statistics, model: RidgeModel) -> float | None:
    if not total.rounding or model.condition_ is None:
        return None
    return min(1.0, total.rounding * model.condition_)


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
