"""A `Method`: what is run on a problem, and with which settings."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import strategy as flower_strategies

__all__ = ["BOTH_READINGS", "CENTRALIZED", "CLIPPED_FEDAVG", "ONE_SHOT", "SCALED"]
__all__ += ["UNSCALED", "Method", "stock_strategies"]

SCALED, UNSCALED = "σ/n", "σ"
BOTH_READINGS = (SCALED, UNSCALED)
CLIPPED_FEDAVG = "Clipped DP-FedAvg"

_ESTIMATORS = {
    "noise_aware": "noise-aware",
    "ridge_floor": "ridge floor",
    "plain": "plain solve",
    "auto": "chosen beforehand",
}


@dataclass(frozen=True)
class Method:
    """One way to fit the problem.

    Parameters
    ----------
    name : str
        "One-Shot", "Centralized", the name of a stock Flower strategy, or one of the
        few that an experiment brings itself.
    rounds : int
        Rounds of communication.
    learning_rate, local_epochs, batch_size, proximal_mu
        Local training of the iterative methods; batch size 0 is full batch.
    penalty : str
        Local penalty: "σ/n" is the objective of One-Shot; "σ", not divided by the
        number of rows, another one, under which a gap like the paper's stays.
    tuned : bool
        The step size is the best of a grid by the test error itself, which favours
        the method; `learning_rate` is then not used.
    sampled : int
        Clients asked in each round; 0 is all.
    epsilon, delta : float
        Privacy, for the methods of the privacy experiment; nominal without `trust`.
    projection : int
        Dimension of a random projection; 0 is none.
    trust : str
        Who is trusted by a method that is really private: "local" is nobody, "server"
        the server. Empty for all others.
    estimator, x_norm_bound, y_bound
        Those of `DifferentialPrivacy`, or "plain", the paper's solution.
    tol : float
        Estimated error at which FedRidge's modes of several rounds stop; `rounds` is
        then their limit.
    waves : int
        Groups of clients that refinement asks one after another in a round.
    draws : int
        Runs of the cell, each with noise of its own: the error is their mean.
    clip, tail
        Bound on the gradient of a record, and whether the models of the last half of
        the rounds are averaged; with `learning_rate` set by tuning, not by the cell.
    features : str
        Feature map on the columns of a data set, as `FeatureMap.from_text` reads it;
        its seed is that of the problem.
    """

    name: str
    rounds: int = 1
    learning_rate: float = 0.0
    local_epochs: int = 0
    batch_size: int = 0
    proximal_mu: float = 0.0
    penalty: str = ""
    tuned: bool = False
    sampled: int = 0
    epsilon: float = 0.0
    delta: float = 0.0
    projection: int = 0
    trust: str = ""
    estimator: str = ""
    x_norm_bound: float = 0.0
    y_bound: float = 0.0
    clip: float = 0.0
    tail: bool = False
    tol: float = 0.0
    features: str = ""
    waves: int = 1
    draws: int = 1

    @property
    def private(self) -> bool:
        """Whether its epsilon and delta are what a record really has."""
        return bool(self.trust)

    def to_json(self) -> dict[str, Any]:
        """Return the settings by name.

        Those that came later are left out where they are not set, so that cells from
        before they existed keep their keys.
        """
        # Not asdict, which copies deeply: every look into a store makes keys of this.
        return {
            name: value
            for name, value in vars(self).items()
            if name not in _LATER or value != getattr(Method, name)
        }

    def local_penalty(self, alpha: float, rows: int) -> float:
        """Return the penalty beside a client's mean loss, of all clients' `rows`."""
        return alpha / rows if self.penalty == SCALED else alpha

    @property
    def label(self) -> str:
        """Name for tables and legends, without rounds and swept settings."""
        details = []
        name = self.name
        if name == "Refinement":
            waves = f" x {self.waves} waves" if self.waves > 1 else ""
            name = f"Refinement, {self.rounds} rounds{waves}"
        if name == CLIPPED_FEDAVG:
            name = f"DP-FedAvg-{self.rounds}, clipped"
        if self.features:
            details.append(self.features)
        if self.estimator:
            details.append(_ESTIMATORS[self.estimator])
        if self.trust in _TRUSTED:
            details.append(_TRUSTED[self.trust])
        if self.batch_size:
            details.append(f"batches of {self.batch_size}")
        if self.sampled:
            details.append(f"{self.sampled} clients a round")
        if self.tuned:
            details.append("tuned step")
        if self.penalty == SCALED:
            details.append("σ/n")
        elif self.penalty == UNSCALED:
            details.append("σ unscaled")
        return f"{name} ({', '.join(details)})" if details else name


_TRUSTED = {"server": "trusted server", "secagg": "secure sum"}
_LATER = (
    *("trust", "estimator", "x_norm_bound", "y_bound", "clip", "tail"),
    *("tol", "features", "waves", "draws"),
)

ONE_SHOT = Method("One-Shot")
CENTRALIZED = Method("Centralized", rounds=0)


def stock_strategies() -> list[str]:
    """Return the names of Flower's own strategies that train a model by averaging.

    Boosted trees and the wrappers for differential privacy are not among them.

    Examples
    --------
    >>> {"FedAvg", "FedProx", "FedAdam"} <= set(stock_strategies())
    True
    """
    return sorted(
        name
        for name, value in vars(flower_strategies).items()
        if inspect.isclass(value)
        and issubclass(value, flower_strategies.FedAvg)
        and "Xgb" not in name
    )
