"""`Round` and `FitResult`: what a way of fitting yields, and what it returns."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from .._types import Array
from ..privacy.privacy_report import PrivacyReport
from ..regression.alpha.alpha_selection import AlphaSelection
from ..regression.inference.residual_moments import ResidualMoments
from ..regression.model import RidgeModel
from .aggregate import Answers
from .reporting.rounds import Refinement
from .requests import Request

if TYPE_CHECKING:
    from .fits.gather import Gathered


@dataclass(frozen=True)
class Round:
    """One round: what is asked, of whom, and where the answers go.

    Parameters
    ----------
    ask : Request, or mapping of str to Request
        One request for all, or one for each client.
    into : Answers
        Takes the answers as they arrive.
    to : sequence of str, optional
        Clients to ask; by default all that are connected.
    model : RidgeModel, optional
        The model so far, where there is one before the fit has ended.
    result : FitResult, optional
        What the fit ends with if nobody answers in this round.
    solution : ndarray, optional
        Where a fit in several rounds stands, shape (d, t), for those who watch it.
    counts_losses : bool
        Whether clients count losses, each of models of its own.
    progress : str
        How far the fit has come, for the log.
    """

    ask: Request | Mapping[str, Request]
    into: Answers
    to: Sequence[str] | None = None
    model: RidgeModel | None = None
    result: FitResult | None = None
    solution: Array | None = None
    counts_losses: bool = False
    progress: str = ""


@dataclass
class FitResult:
    """What a fit ends with.

    Attributes
    ----------
    model : RidgeModel or None
        The model, on raw columns; None where the statistics do not determine one.
    gathered : Gathered
        The contributions behind it.
    statistics : optional
        The total, where the server has one.
    selection : AlphaSelection, optional
        How alpha was chosen.
    selection_failures : dict of str to str
        Clients that have no part in the choice, and why.
    dropped : dict of str to str
        Clients that went away after the first round and are not in the model.
    absent : dict of str to str
        Clients that are in the model and missed later rounds.
    repeated : list of str
        Clients that answered twice in later rounds.
    refinement : Refinement, optional
        Account of the rounds, if there were several.
    privacy : PrivacyReport, optional
        What was promised and what it cost.
    mode : str
        What "auto" chose and why, if it was one shot.
    progress : str
        How far a fit in several rounds has come, for the log.
    residuals : ResidualMoments, optional
        Squared residuals of all rows, if robust standard errors need them.
    residual_failures : dict of str to str
        Clients in the model that did not send theirs, and why.
    no_residuals : str
        Why there are none, though they are needed.
    error : Exception, optional
        Why there is no model. The contributions are kept all the same: nobody need be
        asked again for another alpha.
    """

    model: RidgeModel | None
    gathered: Gathered
    statistics: Any = None
    selection: AlphaSelection | None = None
    selection_failures: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    refinement: Refinement | None = None
    privacy: PrivacyReport | None = None
    mode: str = ""
    progress: str = ""
    residuals: ResidualMoments | None = None
    residual_failures: dict[str, str] = field(default_factory=dict)
    no_residuals: str = ""
    error: Exception | None = None


Fit: TypeAlias = Generator[Round, None, FitResult]
