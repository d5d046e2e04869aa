"""One federated fit from the first answer to the report, whatever carries it.

The strategies of both Flower APIs translate their messages and leave every decision
to `OneShotFit`: fold, solve, tell.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .compact import WIRE_DTYPES
from .errors import FedRidgeError, NotEnoughClientsError, PrivacyError
from .fold import Contribution, Fold
from .heldout import HeldOut, held_out_models
from .model import Evaluation, RidgeModel
from .privacy.curator import Request
from .privacy.mechanism import DifferentialPrivacy
from .privacy.statistics import PrivateStatistics
from .report import FitReport
from .rows import Array
from .selection import (
    Alphas,
    AlphaSelection,
    auto_alphas,
    check_alphas,
    gcv_scores,
    select_alpha,
    warn_edge,
)
from .solve import Statistics, check_alpha, solve
from .spectrum import spectrum
from .statistics import SufficientStatistics, hash_names
from .threads import one_blas_thread

__all__ = ["FitSettings", "OneShotFit", "average_evaluations", "check_whole"]


@dataclass(frozen=True)
class FitSettings:
    """What to solve, from how many clients, and where the model goes."""

    alpha: float = 1.0
    fit_intercept: bool = True
    standardize: bool = False
    min_clients: int = 1
    feature_names: Sequence[str] | None = None
    alphas: Alphas | None = None
    cv: str | None = None
    one_standard_error: bool = False
    wire_dtype: str = "float64"
    on_model: Callable[[RidgeModel], object] | None = None
    save_model: str | os.PathLike[str] | None = None
    privacy: DifferentialPrivacy | None = None

    def __post_init__(self) -> None:
        """Refuse settings that would only fail after the round."""
        check_alpha(self.alpha)
        if self.privacy is not None:
            check_private_settings(self)
        elif self.cv not in (None, "clients", "server", "gcv"):
            raise FedRidgeError(
                f'cv must be "clients", "server" or "gcv", got {self.cv!r}.'
            )
        if self.alphas is not None and not _is_auto(self.alphas):
            check_alphas(self.alphas)
        if self.one_standard_error and self.selection in (None, "gcv"):
            raise FedRidgeError(
                'the one-standard-error rule needs cv="clients" or cv="server".'
            )
        if not isinstance(self.wire_dtype, str) or self.wire_dtype not in WIRE_DTYPES:
            raise FedRidgeError(
                f'wire_dtype must be "float64" or "float32", got {self.wire_dtype!r}.'
            )
        check_whole("the number of valid answers needed", self.min_clients)
        if isinstance(self.feature_names, str):
            raise FedRidgeError("feature_names must be a sequence of names, not text.")
        if not isinstance(self.save_model, str | os.PathLike | None):
            raise FedRidgeError(f"save_model must be a path, got {self.save_model!r}.")
        if self.on_model is not None and not callable(self.on_model):
            raise FedRidgeError("on_model must be a function of the fitted model.")

    @property
    def selection(self) -> str | None:
        """How alpha is to be chosen: "clients", "server", "gcv", or not at all.

        With privacy on there is only "noise".
        """
        default = "server" if self.privacy is None else "noise"
        return default if self.cv is None and self.alphas is not None else self.cv

    @property
    def rounds(self) -> int:
        """Train rounds of the fit."""
        return 1 if self.privacy is None else self.privacy.rounds

    @property
    def options(self) -> dict[str, bool]:
        """What every solver is told."""
        return {"fit_intercept": self.fit_intercept, "standardize": self.standardize}


def check_private_settings(settings: FitSettings) -> None:
    """Refuse what would tell more than a private release does, with the reason."""
    privacy = settings.privacy
    if not isinstance(privacy, DifferentialPrivacy):
        raise PrivacyError(
            f"privacy must be DifferentialPrivacy(...), got {privacy!r}."
        )
    if settings.cv == "gcv":
        raise PrivacyError(
            'cv="gcv" needs the exact sum of squared residuals, which is not sent with '
            'privacy. Give alphas alone (cv="noise"): alpha is then chosen from the '
            "noisy statistics, at no cost in privacy."
        )
    if settings.cv not in (None, "noise"):
        raise PrivacyError(
            f'cv="{settings.cv}" cannot be had with privacy: losses of clients are a '
            "further release about the same rows, and exact statistics of single "
            'clients are not sent. Give alphas alone (cv="noise"): alpha is then '
            "chosen from the noisy statistics, at no cost in privacy."
        )
    if settings.standardize:
        raise PrivacyError(
            "standardize=True would scale by variances of the data, which are private: "
            "scale features by public constants in load_data."
        )
    if settings.wire_dtype != "float64":
        raise PrivacyError('a private release is sent as wire_dtype="float64".')
    if privacy.trust == "secagg":
        raise PrivacyError(
            'trust="secagg" needs secure sums, which this version does not have: use '
            '"local", or "server" if the server may see sums of single clients.'
        )
    if privacy.rounds > 1 and settings.alphas is not None:
        raise PrivacyError("alpha cannot be chosen with more than one private round.")


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

    def __post_init__(self) -> None:
        """Start with nobody."""
        self.fold = self._new_fold()

    def _new_fold(self) -> Fold:
        settings = self.settings
        names = settings.feature_names
        return Fold(
            accept_plain=not any([*settings.options.values(), settings.selection]),
            feature_names=None if names is None else tuple(names),
            keep=settings.selection in ("clients", "server"),
            accept_rounded=settings.wire_dtype == "float32",
            private=settings.privacy is not None,
        )

    @property
    def continues(self) -> bool:
        """Whether the same fit has asked before and has to ask again."""
        return False

    @property
    def wanted(self) -> list[str]:
        """Clients to be asked again, if any are."""
        return []

    def request(self) -> Request | None:
        """Return the private question of this round; the exact fit asks for all."""
        return None

    def take(self, client: str, read: Callable[[], Contribution]) -> None:
        """Fold in what `read` returns; whatever it raises is the reason not to."""
        try:
            with one_blas_thread():
                self.fold.add(client, read())
        except FedRidgeError as error:
            self.fold.refuse(client, str(error))
        except Exception as error:  # hostile input must not end the round
            reason = f"unreadable answer ({type(error).__name__})"
            self.fold.refuse(client, reason)

    def refuse_silent(self, asked: Iterable[str], reason: str) -> None:
        """Name everybody who was asked and has not been heard of."""
        answered = self.fold.answered
        for client in asked:
            if client not in answered:
                self.fold.refuse(client, reason)

    def finish(self) -> RidgeModel:
        """Solve, write the report, and hand the model on."""
        began = time.perf_counter()
        total = self._total()
        self.statistics = total
        model = self._solve(total)
        self.model = model
        self.seconds["solve"] = time.perf_counter() - began
        self.report = self._report(total, model)
        if not self.awaits_losses:
            self._hand_on(model)
        return model

    def _total(self) -> Contribution:
        settings = self.settings
        total = self.fold.finish()
        taken = len(self.fold.participants)
        if total is None or taken < settings.min_clients:
            raise NotEnoughClientsError(self._too_few(taken))
        names = settings.feature_names
        if names is not None and isinstance(total, SufficientStatistics):
            total = total.with_feature_names(names)
        return total

    def _report(self, total: Contribution, model: RidgeModel) -> FitReport:
        exact = None if isinstance(total, PrivateStatistics) else total
        return FitReport(
            participants=self.fold.participants,
            failures=self.fold.failures,
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
        )

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
        self.model = self._named(self.selection.model)
        report.alpha = self.model.alpha_
        report.spectrum = spectrum(total, self.model)
        report.wire_error = _wire_error(total, self.model)
        report.selection = self.selection.to_dict()
        report.selection_failures = dict(failures)
        self._hand_on(self.model)
        return self.model

    def _solve(self, total: Contribution) -> RidgeModel:
        if isinstance(total, PrivateStatistics):
            raise FedRidgeError("a private release is solved by a PrivateFit.")
        settings, method = self.settings, self.settings.selection
        if method is None or not isinstance(total, SufficientStatistics):
            return self._named(solve(total, settings.alpha, **settings.options))
        alphas: Alphas = "auto" if settings.alphas is None else settings.alphas
        if method == "server":
            self.selection = select_alpha(
                self.fold.parts,
                alphas,
                method="loco",
                one_standard_error=settings.one_standard_error,
                **settings.options,
            )
            return self._named(self.selection.model)
        if method == "gcv":
            self.selection = select_alpha(
                total, alphas, method="gcv", **settings.options
            )
            return self._named(self.selection.model)
        self.candidates = (
            auto_alphas(total, **settings.options)
            if _is_auto(alphas)
            else check_alphas(alphas)
        )
        # Until the clients have counted, the model is the one GCV would choose.
        try:
            scores = gcv_scores(total, self.candidates, **settings.options)
            alpha = float(self.candidates[np.argmin(scores)])
        except FedRidgeError:
            alpha = float(self.candidates[-1])
        return self._named(solve(total, alpha, **settings.options))

    def _named(self, model: RidgeModel) -> RidgeModel:
        names = self.settings.feature_names
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        return model

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
            self.report.bytes_up += up
            self.report.bytes_down += down

    def selection_metrics(self) -> dict[str, int | float | list[int] | list[float]]:
        """Return what the strategies report of the choice, in Flower's spelling."""
        chosen = self.selection
        if chosen is None:
            return {}
        best = int(np.flatnonzero(chosen.alphas == chosen.alpha)[0])
        return {"alpha": chosen.alpha, "held-out-mse": float(chosen.mean[best])}

    def schema(self) -> dict[str, str]:
        """Return what a client needs to know to see if its columns are the model's."""
        known = getattr(self.statistics, "feature_hash", None)
        if known is None and self.settings.feature_names is not None:
            known = hash_names(self.settings.feature_names)
        return {} if known is None else {"feature-hash": known}

    def compare_bytes(self, fedavg_bytes_per_client: int) -> None:
        """Tell how many FedAvg rounds with the same clients cost as many bytes."""
        asked = len(self.fold.answered)
        if self.report is not None and asked:
            spent = self.bytes_up + self.bytes_down
            self.report.fedavg_rounds = spent / (asked * fedavg_bytes_per_client)

    def _too_few(self, taken: int) -> str:
        failures = self.fold.failures
        lines = [
            f"{taken} valid answer(s), at least {self.settings.min_clients} needed."
        ]
        for client, reason in list(failures.items())[:10]:
            lines.append(f"  client {client}: {reason}")
        if len(failures) > 10:
            lines.append(f"  ... and {len(failures) - 10} more")
        return "\n".join(lines)


def _is_auto(alphas: object) -> bool:
    return isinstance(alphas, str) and alphas == "auto"


def _wire_error(total: Statistics, model: RidgeModel) -> float | None:
    if not total.rounding or model.condition_ is None:
        return None
    return min(1.0, total.rounding * model.condition_)


def check_whole(what: str, value: object) -> int:
    """Return a whole number of at least 1, or say what it is for."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FedRidgeError(
            f"{what} must be a whole number of at least 1, got {value!r}."
        )
    return value


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
