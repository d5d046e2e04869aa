"""What a strategy of either API has after a fit: model, report, statistics."""

from typing import Any, TypeVar, cast

from ..errors import PrivacyError
from ..federation.fit_run import FitRun
from ..federation.fits.standard_errors import infer_result
from ..federation.report import FitReport
from ..federation.settings import FitSettings
from ..privacy.intervals import PrivateInference, infer_private
from ..privacy.noisy_statistics import PrivateStatistics
from ..regression.alpha.alpha_selection import AlphaSelection
from ..regression.inference.infer import Inference
from ..regression.inference.residual_moments import ResidualMoments
from ..regression.likelihood.family_inference import FamilyInference
from ..regression.likelihood.family_model import FamilyModel
from ..regression.model import RidgeModel
from ..regression.normal_equations import Exact, Statistics
from ..statistics.encoding import EXACT_FORMS

_T = TypeVar("_T")
_NOT_FITTED = (
    "not fitted: start() has not been called, or it failed, or the older driver was "
    "not given enough of the rounds that the mode needs."
)


class FittedAttributes:
    """The attributes that end in an underscore, or the reason why there are none."""

    _settings: FitSettings
    _run: FitRun
    _names: Any

    @property
    def model_(self) -> RidgeModel:
        """The fitted model."""
        result = fitted(self._run.result)
        if result.model is None:
            raise AttributeError(
                f"there is no model ({type(result.error).__name__}): {result.error} "
                "The statistics are kept: solve(strategy.statistics_, alpha=...) needs "
                "no further round."
            )
        if self._run.model is None:
            raise AttributeError(
                "there is no model_: clients are missing in it, and strict=True. "
                "solve(strategy.statistics_, alpha) is the model without them."
            )
        return result.model

    @property
    def report_(self) -> FitReport:
        """Who took part, what the fit cost, and how well conditioned it is."""
        return fitted(self._run.report)

    @property
    def selection_(self) -> AlphaSelection:
        """How alpha was chosen, if it was."""
        result = self._run.result
        if result is not None and result.selection is None:
            raise AttributeError(
                "alpha was given and not chosen: there is no selection_. Use alphas=."
            )
        return fitted(None if result is None else result.selection)

    @property
    def statistics_(self) -> Statistics | PrivateStatistics:
        """The total over all participants; another alpha needs no further round."""
        result = self._run.result
        if result is not None and result.statistics is None:
            raise AttributeError(
                "a fit in several rounds never has the statistics: for another alpha, "
                'run it again, or use mode="oneshot".'
            )
        total: Any = None if result is None else result.statistics
        return fitted(total)  # type: ignore[no-any-return]

    @property
    def client_statistics_(self) -> dict[str, Exact]:
        """Statistics by client (by its name, if it has one), if the server kept them.

        The server keeps them with ``cv="server"`` or "clients", and for screening if
        they take at most 32 MB together.
        """
        gathered = fitted(self._run.result).gathered
        parts, wanted = gathered.answers.parts, gathered.answers.participants
        if any(getattr(parts.get(c), "form", "") not in EXACT_FORMS for c in wanted):
            if self._settings.secure is not None or self._settings.privacy is not None:
                raise AttributeError(
                    "the server did not keep full statistics of every client: in a "
                    "secure sum it only ever has their total, with privacy noisy sums."
                )
            raise AttributeError(
                "the server did not keep full statistics of every client, but their "
                'total only: use alphas=[...] with cv="server", which does.'
            )
        return {self._names.of(client): parts[client] for client in wanted}

    @property
    def inference_(self) -> Inference | FamilyInference | PrivateInference:
        """Standard errors, tests and intervals of the model.

        For a private model they include the noise, or are withheld with a reason.

        Their kind is that of `standard_errors`. For other kinds call `infer` with
        `statistics_`, and ``parts`` from `client_statistics_` or ``residuals`` from
        `residual_moments_`.
        """
        model = self.model_
        if isinstance(model, FamilyModel):
            return model.inference()
        total = cast("Statistics", self.statistics_)
        if total.form == PrivateStatistics.form:
            try:
                return infer_private(cast("PrivateStatistics", total))
            except PrivacyError as error:
                raise AttributeError(f"there is no inference_: {error}") from error
        if total.form not in EXACT_FORMS:
            raise AttributeError(
                "there is no inference_: standard errors need full statistics without "
                "noise."
            )
        result = fitted(self._run.result)
        if result.no_residuals:
            raise AttributeError(result.no_residuals)
        return infer_result(self._settings, result)

    @property
    def residual_moments_(self) -> ResidualMoments:
        """Squared residuals of all clients, with `standard_errors` "HC0" to "HC3"."""
        result = fitted(self._run.result)
        if result.residuals is None:
            raise AttributeError(
                result.no_residuals
                or 'nobody was asked for residuals: use standard_errors="HC3" or the '
                "like."
            )
        return result.residuals


def fitted(value: _T | None) -> _T:
    """Return what there is after a fit, or raise that there is none."""
    if value is None:
        raise AttributeError(_NOT_FITTED)
    return value
