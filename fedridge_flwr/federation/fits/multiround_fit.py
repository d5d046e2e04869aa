"""The fit in several rounds: exact, with a part of the bytes of one shot.

The first round brings every client's `Opening`. From then on every round is one product
with all clients' rows, and the answer is exact for the clients that stay until the end.
A client that drops out, or whose answer cannot be right, is taken out again with all it
sent; the others go on from where they are.
"""

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from ..._text import counted
from ..._types import Array
from ...errors import NotConvergedWarning, ProtocolError, SingularSystemError
from ...linalg.conjugate_gradient import Precondition
from ...multiround import ConjugateSteps, Opening, System
from ...multiround.product_checks import KnownProduct, check_product, sizes_of
from ...regression.model import RidgeModel
from ..aggregate import Answers
from ..reporting.rounds import Refinement
from ..requests import AskOpening, AskProduct, choose_mode
from ..round import Fit, FitResult, Round
from ..settings import FitSettings
from .gather import Gathered, drop_members, gather, refuse_too_few
from .one_shot import solve_gathered

# A rough factor makes every round count; without it there are long plateaus.
_PATIENCE = {"refine": 25, "cg": 300}
_FEW_ROWS = "statistics of so few rows per client are within max_bytes"


def multiround(settings: FitSettings) -> Fit:
    """Ask for openings, then for one product in every round until it is exact."""
    request = AskOpening(settings.mode, settings.limits)
    gathered = yield from gather(settings, request)
    total, mode, why = gathered.total, settings.mode, ""
    if mode == "auto":
        mode, why = choose_mode(total.n_features, total.n_targets, settings.limits)
    if total.form != "opening":  # "auto", and the statistics are small enough
        result = yield from solve_gathered(settings, gathered)
        result.mode = f"oneshot (auto: {why if mode == 'oneshot' else _FEW_ROWS})"
        return result
    fit = _Refining(settings, gathered, mode)
    if fit.n_known:
        why += f"; {counted(fit.n_known, 'client')} with few rows sent them at once"
    rounds, repeated = 1, []
    trace = [fit.steps.estimate]
    while fit.members and not fit.steps.done and rounds < settings.max_rounds:
        answers = Answers()
        yield Round(
            gathered.about(AskProduct(fit.steps.directions)),
            answers,
            to=list(fit.members),
            solution=fit.steps.solution,
            progress=fit.progress,
        )
        gathered.rounds += 1
        rounds += 1
        with fit.naming_suspects():
            fit.take(answers)
        repeated += answers.repeated
        trace.append(fit.steps.estimate)
    if not fit.members:
        gathered.total = total.known
        result = yield from solve_gathered(settings, gathered)
        result.dropped, result.repeated = fit.dropped, repeated
        result.mode = f"oneshot (auto: {_FEW_ROWS}; all others dropped out)"
        return result
    with fit.naming_suspects():
        model = fit.model()
    refinement = Refinement(
        mode=mode,
        why=why,
        rounds=rounds,
        estimates=trace,
        tol=settings.tol,
        converged=fit.steps.converged,
        # Without the factors as a preconditioner, weak directions are met too late.
        error=float(fit.steps.errors()[: total.n_targets].max())
        if mode == "refine"
        else None,
    )
    return FitResult(
        gathered.on_raw_columns(model),
        gathered,
        dropped=fit.dropped,
        repeated=repeated,
        refinement=refinement,
        progress=fit.progress,
    )


@dataclass
class _Member:
    """What is known of one client: all that it takes to go on without it."""

    opening: Opening
    image: Array
    largest: Array
    last: KnownProduct | None = None

    def check(self, directions: Array, product: Array, solution: Array) -> Array:
        """Return a product that can be this client's.

        It must agree with the last one, and with what all of them together say.
        """
        # Rounding is relative to the largest that the solution has ever been.
        self.largest = np.maximum(self.largest, sizes_of(self.opening, solution))
        earlier = [KnownProduct(solution, self.image, self.largest)]
        earlier += [] if self.last is None else [self.last]
        return check_product(self.opening, directions, product, earlier)


class _Refining:
    """The system of all members, and how far its solution has come."""

    system: System
    steps: ConjugateSteps

    def __init__(self, settings: FitSettings, gathered: Gathered, mode: str) -> None:
        self._settings, self._gathered, self._mode = settings, gathered, mode
        # One right-hand side more, only to find out whether columns are dependent.
        self._probes = int(settings.alpha == 0.0)
        self.dropped: dict[str, str] = {}
        shape = (gathered.total.n_features, gathered.total.n_targets + self._probes)
        parts, everybody = gathered.answers.parts, gathered.answers.participants
        self.members = {
            client: _Member(parts[client], np.zeros(shape), np.zeros(shape[1]))
            for client in everybody
            if client in parts and parts[client].form == "opening"
        }
        # Clients with few rows have sent their statistics, and are not asked again.
        self.n_known = len(everybody) - len(self.members)
        with self.naming_suspects():
            self._build(start=None)

    @property
    def progress(self) -> str:
        """How far the fit has come, for the log."""
        where = f"{self._mode}: round {self._gathered.rounds}"
        reached = f"relative residual {self.steps.estimate:.1e}"
        return f"{where}, {reached} (until {self._settings.tol:g})"

    def naming_suspects(self) -> AbstractContextManager[None]:
        """Let numerical errors name the clients that may have caused them."""
        gone = {**self._gathered.failures, **self.dropped}
        return self._gathered.naming_suspects(gone)

    def take(self, answers: Answers) -> None:
        """Take one round of products in; a member whose product is wrong is dropped."""
        steps = self.steps
        directions, active = steps.directions, steps.active
        products = self._checked(answers, directions, steps.solution)
        lost = [client for client in self.members if client not in products]
        if lost:
            self._drop(lost, answers.failures)
            if not self.members:
                return
            self._build(start=steps.solution)
            steps = self.steps
        images = np.sum(list(products.values()), axis=0)
        images = images + self.system.beside_clients(directions)
        lengths = steps.take(images, directions, active)
        for client, product in products.items():
            member = self.members[client]
            member.image[:, active] += product * lengths[active]
            sizes = sizes_of(member.opening, directions)
            member.last = KnownProduct(directions, product, sizes)

    def model(self) -> RidgeModel:
        """Return the model of the solution, with a warning where it is not exact."""
        steps, targets = self.steps, self.system.rhs.shape[1]
        if self._probes and (targets in steps.stuck or steps.estimates[-1] > 1.0):
            raise SingularSystemError(
                "the data do not determine the coefficients: some columns depend on "
                "each other. Remedy: use alpha > 0, or drop columns "
                '(mode="oneshot" names them).'
            )
        if not steps.converged:
            limit = f"max_rounds={self._settings.max_rounds} was reached"
            warnings.warn(
                f"the fit ended at a relative residual of {steps.estimate:.1e}, "
                f"above tol={self._settings.tol:g}: {steps.ended or limit}. Raise "
                "max_rounds or alpha, or drop nearly dependent columns.",
                NotConvergedWarning,
                stacklevel=4,
            )
        image = self._image(self.system, steps.solution)[:, :targets]
        return self.system.model(steps.solution[:, :targets], image)

    def _checked(
        self, answers: Answers, directions: Array, solution: Array
    ) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for client, product in list(answers.parts.items()):
            if client not in self.members:
                continue
            try:
                member = self.members[client]
                found[client] = member.check(directions, product, solution)
            except ProtocolError as error:
                answers.reject(client, str(error))
        return found

    def _drop(self, lost: list[str], reasons: dict[str, str]) -> None:
        self.dropped |= drop_members(self._gathered, self.members, lost, reasons)
        remaining = len(self.members) + self.n_known
        # Where nobody is left who is asked, what the others sent may be enough.
        if remaining < self._settings.min_clients:
            refuse_too_few(self._gathered, remaining, self.dropped)

    def _build(self, start: Array | None) -> None:
        """Set up the system of the members, and go on from `start`."""
        settings = self._settings
        openings = {client: member.opening for client, member in self.members.items()}
        known = self._gathered.total.known
        system = System(openings, settings.alpha, known, **settings.options)
        rhs, precondition = system.rhs, system.preconditioner()
        if self._probes:
            rhs = np.column_stack([rhs, system.probe()])
        image = None
        if start is not None:
            residual = rhs - self._image(system, start)
            start = self._worth_keeping(start, rhs, residual, precondition)
            image = self._image(system, start)
        self.system = system
        patience = _PATIENCE[self._mode]
        self.steps = ConjugateSteps(
            rhs, precondition, settings.tol, patience, start, image
        )

    def _worth_keeping(
        self, start: Array, rhs: Array, residual: Array, precondition: Precondition
    ) -> Array:
        """Return where to go on from: from zero, where zero is nearer.

        What a client that is gone leaves behind may be larger than all the rest, and
        would cost the others their digits.
        """
        size, left = (
            np.einsum("dt,dt->t", each, precondition(each)) for each in (rhs, residual)
        )
        kept = left <= size
        for member in self.members.values():
            member.image = member.image * kept
            member.largest = member.largest * kept
        return np.asarray(start * kept)

    def _image(self, system: System, solution: Array) -> Array:
        """Return A times the solution, which the members have sent piece by piece."""
        told = np.sum([member.image for member in self.members.values()], axis=0)
        return np.asarray(told + system.beside_clients(solution))
