"""One fit in several rounds: exact, with a part of the bytes of one shot.

The first round brings every client's `Opening`. From then on every round is one product
with all clients' rows, and the answer is exact for the clients that stay until the end.
Whoever drops out, or answers what cannot be, is taken out again, with everything it
ever said; the others go on from where they are.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field

import numpy as np

from .._text import human_bytes
from .._types import Array
from ..errors import (
    FedRidgeError,
    NotConvergedWarning,
    NotEnoughClientsError,
    ProtocolError,
    SingularSystemError,
)
from ..multiround import ConjugateSteps, Opening, Openings, System
from ..multiround.product_checks import Told, check_product, sizes_of
from ..multiround.steps import Precondition
from ..regression.model import RidgeModel
from .aggregate import Contribution
from .answers import Roll
from .one_shot import OneShotFit
from .recommend import better_mode
from .report import FitReport, Refinement, error_in_words
from .requests import AskOpening, AskProduct, Question, choose_mode

__all__ = ["RefineFit"]

# A rough factor makes every round count; without it there are long plateaus.
_PATIENCE = {"refine": 25, "cg": 300}


@dataclass
class _Member:
    """What is known of one client: all that it takes to go on without it."""

    opening: Opening
    image: Array
    largest: Array
    last: Told | None = None

    def check(self, directions: Array, product: Array, solution: Array) -> Array:
        """Return a product that can be this client's.

        It must fit to the last one, and to what all of them together say.
        """
        # Rounding goes by the largest that the solution has ever been.
        self.largest = np.maximum(self.largest, sizes_of(self.opening, solution))
        earlier = [Told(solution, self.image, self.largest)]
        earlier += [] if self.last is None else [self.last]
        return check_product(self.opening, directions, product, earlier)


@dataclass
class RefineFit(OneShotFit):
    """The state of one fit that comes back to its clients."""

    members: dict[str, _Member] = field(default_factory=dict)
    system: System | None = None
    steps: ConjugateSteps | None = None
    products: Roll = field(default_factory=Roll)
    dropped: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    trace: list[float] = field(default_factory=list)
    rounds: int = 0
    mode: str = ""
    why: str = ""

    # ---- rounds -----------------------------------------------------------------

    @property
    def continues(self) -> bool:
        """Whether the same fit has asked before and has to ask again."""
        return self.model is None and (self.steps is not None or super().continues)

    @property
    def wanted(self) -> list[str]:
        """Clients whose rows are in the system."""
        return list(self.members) if self.steps is not None else super().wanted

    @property
    def roll(self) -> Roll:
        """The answers of this round."""
        return super().roll if self.steps is None else self.products

    @property
    def progress(self) -> str:
        """How far the refinement is."""
        if self.steps is None:
            return ""
        asked = len(self.members) + len(self.fold.failures) + len(self.dropped)
        spent = (self.bytes_up + self.bytes_down) / max(asked, 1)
        return (
            f"{self.mode}: round {self._round}, {error_in_words(self.mode)} "
            f"{self.steps.estimate:.1e} (until {self.settings.tol:g}), "
            f"{human_bytes(spent)} per client, up and down, so far"
        )

    def question(self) -> Question:
        """Return what every client is asked now."""
        if self.steps is not None:
            return AskProduct(self.steps.directions)
        if self._awaits_columns:
            return super().question()
        return AskOpening(self.settings.mode, self.settings.limits)

    def _finish(self) -> RidgeModel | None:
        began = time.perf_counter()
        self.rounds += 1
        if self.steps is None:
            total = self._total()
            self.mode, self.why = self._chosen(total)
            if not isinstance(total, Openings):
                return self._finish_with(total)
            with self._naming_suspects():
                steps = self._open(total)
        else:
            with self._naming_suspects():
                steps = self._go_on(self.steps)
        self.trace.append(steps.estimate)
        self._count_seconds(began)
        over = steps.done or self.rounds >= self.settings.max_rounds
        return self._end(steps) if over else None

    @property
    def _round(self) -> int:
        """The round as Flower counts, with those that a feature map took."""
        agreed = 1 + self._agreements if self.columns.answered else 0
        return self.rounds + agreed

    @property
    def _probes(self) -> int:
        """Right-hand sides that are only there to find dependent columns."""
        return int(self.settings.alpha == 0.0)

    def _chosen(self, total: Contribution) -> tuple[str, str]:
        mode, limits = self.settings.mode, self.settings.limits
        if mode != "auto":
            return mode, ""
        return choose_mode(total.n_features, total.n_targets, limits)

    def _open(self, openings: Openings) -> ConjugateSteps:
        shape = (openings.n_features, openings.n_targets + self._probes)
        self.members = {
            client: _Member(opening, np.zeros(shape), np.zeros(shape[1]))
            for client, opening in openings.of.items()
        }
        return self._build(start=None)

    def _build(self, start: Array | None) -> ConjugateSteps:
        """Set up the system of the members, and go on from `start`."""
        settings = self.settings
        openings = {client: member.opening for client, member in self.members.items()}
        system = System.of(openings, settings.alpha, **settings.options)
        rhs, precondition = system.rhs, system.preconditioner()
        if self._probes:
            rhs = np.column_stack([rhs, system.probe()])
        image = None
        if start is not None:
            image = self._image(system, start)
            start = self._worth_keeping(start, rhs, rhs - image, precondition)
            image = self._image(system, start)
        self.system = system
        patience = _PATIENCE[self.mode]
        self.steps = ConjugateSteps(
            rhs, precondition, settings.tol, patience, start, image
        )
        return self.steps

    def _worth_keeping(
        self, start: Array, rhs: Array, residual: Array, precondition: Precondition
    ) -> Array:
        """Return where to go on from: from nothing, where nothing is nearer.

        What is left over of a client that is gone may be larger than all there is, and
        would take the digits of the others with it.
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
        """Return A times the solution, which the members have told piece by piece."""
        told = np.sum([member.image for member in self.members.values()], axis=0)
        return np.asarray(told + system.beside_clients(solution))

    def _go_on(self, steps: ConjugateSteps) -> ConjugateSteps:
        """Take one round of products in, from whoever answered as it should."""
        directions, active = steps.directions, steps.active
        products = self._checked_products(directions, steps.solution)
        lost = [client for client in self.members if client not in products]
        if lost:
            self._drop(lost)
            steps = self._build(start=steps.solution)
        images = np.sum(list(products.values()), axis=0)
        images = images + self._known_system.beside_clients(directions)
        lengths = steps.take(images, directions, active)
        for client, product in products.items():
            member = self.members[client]
            member.image[:, active] += product * lengths[active]
            sizes = sizes_of(member.opening, directions)
            member.last = Told(directions, product, sizes)
        self.repeated += self.products.repeated
        self.products = Roll()
        return steps

    @property
    def _known_system(self) -> System:
        if self.system is None:
            raise FedRidgeError("no client has told of its rows yet.")
        return self.system

    def _checked_products(self, directions: Array, solution: Array) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for client, product in list(self.products.parts.items()):
            if client not in self.members:
                continue
            try:
                member = self.members[client]
                found[client] = member.check(directions, product, solution)
            except ProtocolError as error:
                self.products.reject(client, str(error))
        return found

    def _drop(self, lost: list[str]) -> None:
        reasons = self.products.failures
        for client in lost:
            reason = reasons.get(client, "not connected any more")
            self.dropped[client] = f"round {self._round}: {reason}"
            del self.members[client]
        if len(self.members) < self.settings.min_clients:
            left = "; ".join(f"client {c}: {r}" for c, r in self.dropped.items())
            raise NotEnoughClientsError(
                f"{len(self.members)} client(s) left in round {self._round}, at least "
                f"{self.settings.min_clients} needed. {left}"
            )

    # ---- the end ----------------------------------------------------------------

    def _end(self, steps: ConjugateSteps) -> RidgeModel:
        system = self._known_system
        solution, targets = steps.solution, system.rhs.shape[1]
        probe = self._probes and (targets in steps.stuck or steps.estimates[-1] > 1.0)
        if probe:
            with self._naming_suspects():
                raise SingularSystemError(
                    "the data do not determine the coefficients: some columns depend "
                    "on each other. Remedy: use alpha > 0, or drop columns "
                    '(mode="oneshot" names them).'
                )
        if not steps.converged:
            ended = steps.ended or f"max_rounds={self.settings.max_rounds} was reached"
            warnings.warn(
                f"the fit ended at {error_in_words(self.mode)} "
                f"{steps.estimate:.1e}, above tol={self.settings.tol:g}: {ended}. "
                "Raise max_rounds or alpha, or drop nearly dependent columns.",
                NotConvergedWarning,
                stacklevel=4,
            )
        image = self._image(system, solution)[:, :targets]
        model = self._dressed(system.model(solution[:, :targets], image))
        self.model = model
        self.report = self._report(
            Openings({client: m.opening for client, m in self.members.items()}), model
        )
        self._hand_on(model)
        return model

    @property
    def suspects(self) -> dict[str, str]:
        """Clients that stand out and are in the model all the same, and by what."""
        found = super().suspects
        return {
            client: why for client, why in found.items() if client not in self.dropped
        }

    def _mode_in_words(self) -> str:
        return f"{self.mode} (auto: {self.why})" if self.steps is None else ""

    def _advice(self, total: Contribution) -> str:
        if self.steps is None or self.settings.mode == "auto":
            return ""
        members, settings = self.members.values(), self.settings
        rows = sum(member.opening.count for member in members) // len(members)
        d, t, budget = total.n_features, total.n_targets, settings.max_bytes
        return better_mode(self.mode, d, max(rows, 1), len(members), t, budget)

    def _report(self, total: Contribution, model: RidgeModel) -> FitReport:
        report = super()._report(total, model)
        report.participants = [c for c in report.participants if c not in self.dropped]
        report.failures = {**report.failures, **self.dropped}
        report.repeated = list(dict.fromkeys([*report.repeated, *self.repeated]))
        if self.steps is not None:
            report.refinement = Refinement(
                mode=self.mode,
                why=self.why,
                rounds=self.rounds,
                estimates=self.trace,
                tol=self.settings.tol,
                converged=self.steps.converged,
            )
        return report
