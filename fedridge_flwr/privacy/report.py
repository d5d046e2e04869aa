"""`PrivacyReport`: what was promised, what it cost, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..words import counted
from .mechanism import DifferentialPrivacy
from .statistics import PrivateStatistics

__all__ = [
    "EXPERIMENTAL",
    "PrivacyReport",
    "gram_is_noise",
    "privacy_report",
    "what_helps",
]

_MANY = 20
"""Up to so many features the one-shot release is accurate at epsilon 1."""

_PROTECTS = {
    "local": "from everybody, the server included: noise is added where the rows are",
    "server": "from everybody but the server, which sees the clipped sums",
    "secagg": "from everybody, if the secure sum shows no single contribution",
}


@dataclass(frozen=True)
class PrivacyReport:
    """Account of the privacy of one fit.

    Attributes
    ----------
    epsilon, delta : float
        What was asked for.
    true_epsilon : float
        What the noise gives at that delta; another number only for the paper's
        calibration.
    unit : str
        What is protected: one record, that is one row.
    neighboring : str
        Which data sets look alike.
    trust : str
        Who is trusted.
    calibration, estimator : str
        As asked for.
    noise_multiplier : float
        Deviation of the noise over the sensitivity.
    releases : int
        Answers each client gave; together they are (epsilon, delta)-private.
    n_clients : int
        Clients whose noise is in the sum.
    deviations : dict of str to float
        Deviation of the noise in the sum of all clients, by block, in the units of the
        features and targets.
    x_norm_bound, y_bound : float
        Bounds of a row.
    damage : list of str
        What the noise does to the answer.
    advice : list of str
        What would help.
    intervals : str
        Why there are no confidence intervals.
    """

    epsilon: float
    delta: float
    true_epsilon: float
    unit: str
    neighboring: str
    trust: str
    calibration: str
    estimator: str
    noise_multiplier: float
    releases: int
    n_clients: int
    deviations: dict[str, float]
    x_norm_bound: float
    y_bound: float
    damage: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    intervals: str = "withheld: they would have to include the privacy noise"

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of a table."""
        promise = f"epsilon {self.epsilon:g}, delta {self.delta:g} for each {self.unit}"
        found = [
            ("privacy", f"{promise} ({self.neighboring})"),
            ("protects", _PROTECTS[self.trust]),
            (
                "noise",
                f"{self.noise_multiplier:.4g} times the sensitivity, "
                f"{counted(self.releases, 'release')} per client",
            ),
            (
                "deviation",
                ", ".join(f"{k} {v:.4g}" for k, v in self.deviations.items())
                + f" in the sum of {counted(self.n_clients, 'client')}",
            ),
        ]
        if self.calibration == "paper":
            found.insert(
                1, ("NOT PRIVATE", f"as claimed: true epsilon {self.true_epsilon:.3g}")
            )
        found += [("damage", words) for words in self.damage]
        found += [("advice", words) for words in self.advice]
        return [*found, ("intervals", self.intervals)]

    def __str__(self) -> str:
        """Return a readable table."""
        return "\n".join(f"  {name:<11}  {value}" for name, value in self.rows())


EXPERIMENTAL = (
    "residual refinement is experimental: it answers for medians rather than means "
    "where residuals are skewed, and is weak where features are correlated and epsilon "
    "is small"
)


def gram_is_noise(privacy: DifferentialPrivacy) -> str:
    """Return what a Gram matrix means whose noise is larger than itself."""
    return (
        f"the Gram matrix is mostly noise at epsilon {privacy.epsilon:g}: the "
        "eigenvalues of the noise are above its average one, so coefficients are "
        "shrunk hard"
    )


def what_helps(privacy: DifferentialPrivacy, stats: PrivateStatistics) -> str:
    """Return what would make the answer more accurate."""
    options = []
    if stats.n_features > _MANY:
        options.append(f"fewer features (now {stats.n_features}; {_MANY} work well)")
    if privacy.rounds == 1:
        options.append("more rounds (rounds=20, experimental)")
    if privacy.trust == "local":
        options.append("secure sums or a trusted server instead of local noise")
    options.append(f"a larger epsilon (now {privacy.epsilon:g})")
    return "; or ".join(options)


def privacy_report(
    privacy: DifferentialPrivacy,
    *,
    n_clients: int,
    n_rows: int | None,
    deviations: dict[str, float],
    damage: Sequence[str] = (),
    advice: Sequence[str] = (),
) -> PrivacyReport:
    """Write the report of a fit; the number of rows is a noisy one."""
    damage, advice = list(damage), list(advice)
    if n_rows is not None and privacy.delta >= 1.0 / max(n_rows, 1):
        damage.append(
            f"delta {privacy.delta:g} is not below one over the number of rows (about "
            f"{n_rows}): it would allow to publish a record now and then"
        )
        advice.append("choose delta far below one over the number of rows")
    if privacy.calibration == "paper":
        advice.append('use calibration="exact": this one is not what it claims')
    return PrivacyReport(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        true_epsilon=privacy.true_epsilon(),
        unit="record",
        neighboring=privacy.neighboring,
        trust=privacy.trust,
        calibration=privacy.calibration,
        estimator=privacy.estimator if privacy.rounds == 1 else "refinement",
        noise_multiplier=privacy.noise_multiplier,
        releases=privacy.rounds,
        n_clients=n_clients,
        deviations=deviations,
        x_norm_bound=privacy.x_norm_bound,
        y_bound=privacy.y_bound,
        damage=damage,
        advice=advice,
    )
