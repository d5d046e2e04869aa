"""`PrivacyReport`: the guarantee of a fit, its cost in accuracy, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._text import counted
from .mechanism import DifferentialPrivacy
from .noisy_statistics import PrivateStatistics
from .planning import USABLE_BELOW, WEAK_BELOW, likely_loss, typical_length

_PROTECTS = {
    "local": "from everybody, the server included: noise is added where the rows are",
    "server": "from everybody but the server, which sees the clipped sums",
    "secagg": "from everybody, if the secure sum shows no single contribution",
}


@dataclass(frozen=True)
class PrivacyReport:
    """Account of the privacy of one fit; ``print`` it.

    Kept by the strategies as ``report_.privacy``. The parameters are also the
    attributes.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    true_epsilon : float
        Epsilon of the noise at that delta: the same number, but for rounding.
    unit : str
        What is protected: one record, that is one row.
    neighboring : str
        Which data sets are neighbours.
    trust : str
        Who is trusted.
    calibration, estimator : str
        Those of `DifferentialPrivacy`; in several rounds the estimator is
        "refinement".
    noise_multiplier : float
        Deviation of the noise over the sensitivity.
    releases : int
        Rounds of answers; together they are (epsilon, delta)-private.
    n_clients : int
        Clients whose noise is in the sum.
    deviations : dict of str to float
        Deviation of the noise in the sum of all clients, by block, in the units of the
        features and targets; of residuals, of which one row adds 1 at most, in theirs.
    x_norm_bound, y_bound : float
        Bounds of a row.
    verdict : str
        Whether the model is usable, judged from noisy numbers.
    damage : list of str
        How the noise affects the model.
    advice : list of str
        How to improve it.
    intervals : str
        What confidence intervals cover, or why there are none.
    effective_rows : int or None
        Noisy sum of the squared factors that rows were shortened by: about as many
        rows, or more if some were shortened; None if it is not known.
    expected_r2_loss : float or None
        Share of R² that the noise has taken, estimated from noisy numbers; in nine of
        ten simulations it is within a range that the report prints. None for residual
        refinement.

    Examples
    --------
    ``print(strategy.report_.privacy)`` after a private fit of three clients:

    >>> from fedridge_flwr import PrivacyReport
    >>> report = PrivacyReport(
    ...     epsilon=1.0,
    ...     delta=1e-5,
    ...     true_epsilon=1.0,
    ...     unit="record",
    ...     neighboring="add-or-remove-one",
    ...     trust="local",
    ...     calibration="exact",
    ...     estimator="noise_aware",
    ...     noise_multiplier=3.7306,
    ...     releases=1,
    ...     n_clients=3,
    ...     deviations={"gram": 9.14},
    ...     x_norm_bound=1.0,
    ...     y_bound=2.0,
    ...     verdict="WEAK: check the model on public rows before use",
    ... )
    >>> print(report)
      verdict      WEAK: check the model on public rows before use
      privacy      epsilon 1, delta 1e-05 for each record (add-or-remove-one)
      protects     from everybody, the server included: noise is added where the rows \
are
      bounds       rows to length 1, targets to 2
      noise        3.731 times what one row can change; deviation in the sum of 3 \
clients: gram 9.14
      intervals    withheld: they would have to include the privacy noise
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
    verdict: str
    damage: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    intervals: str = "withheld: they would have to include the privacy noise"
    effective_rows: int | None = None
    expected_r2_loss: float | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of a table, as pairs of a title and a text."""
        epsilon = f"epsilon {self.epsilon:g}, delta {self.delta:g} for each {self.unit}"
        spent = "" if self.releases == 1 else f", spent over {self.releases} rounds"
        bounds = f"rows to length {self.x_norm_bound:g}, targets to {self.y_bound:g}"
        noise = f"{self.noise_multiplier:.4g} times what one row can change; deviation "
        noise += f"in the sum of {counted(self.n_clients, 'client')}: "
        noise += ", ".join(f"{k} {v:.4g}" for k, v in self.deviations.items())
        return [
            ("verdict", self.verdict),
            ("privacy", f"{epsilon} ({self.neighboring}){spent}"),
            ("protects", _PROTECTS[self.trust]),
            ("bounds", bounds),
            *(("cost", text) for text in self._cost()),
            *(("rows", text) for text in self._effective()),
            ("noise", noise),
            *(("damage", text) for text in self.damage),
            *(("advice", text) for text in self.advice),
            ("intervals", self.intervals),
        ]

    def _cost(self) -> list[str]:
        if self.expected_r2_loss is None:
            return []
        least, most = likely_loss(self.expected_r2_loss)
        return [
            f"noise takes about {self.expected_r2_loss:.0%} of R² (in nine of ten "
            f"simulations {least:.0%} to {most:.0%})"
        ]

    def _effective(self) -> list[str]:
        if self.effective_rows is None:
            return []
        return [f"about {self.effective_rows} effective rows, from noisy sums"]

    def __str__(self) -> str:
        """Return a readable table."""
        return "\n".join(f"  {name:<11}  {value}" for name, value in self.rows())


_AT_BOUND = 0.9
REFINEMENT_LIMITS = (
    "residual refinement estimates medians where residuals are skewed, is weak on "
    "correlated features at small epsilon, and shrinks an intercept like a coefficient "
    "(subtract a public typical value from the target)"
)

USABLE = (
    "noise is small beside the data; what clipping changed is in the clients' own logs"
)
WEAK = "WEAK: check the model on public rows before use"
UNRELIABLE = "NOT RELIABLE: noise is likely to take most of what could be predicted"
UNKNOWN = "check the model on public rows before use: refinement has no R² of its own"


def judged(noise_over_signal: float) -> str:
    """Return the verdict on a model of one round.

    Of 402 simulated models below 0.15 none lost more than a quarter of the signal, of
    those below 0.5 one in 17, of the others two in three. With rows much shorter than
    their bound, or strongly correlated features, it is one in five of those below 0.5.
    """
    if noise_over_signal < USABLE_BELOW:
        return USABLE
    return WEAK if noise_over_signal < WEAK_BELOW else UNRELIABLE


def useless(
    targets: Sequence[int], n_targets: int, predictions: Sequence[float]
) -> str:
    """Return the verdict on a model without coefficients, for some targets or all."""
    values = ", ".join(f"{value + 0.0:g}" for value in predictions)  # no "-0"
    why = f"every coefficient is 0, so the model predicts {values} for every row"
    if n_targets == 1:
        return f"NOT USABLE: {why}"
    which = ", ".join(map(str, targets))
    return f"NOT USABLE for {counted(len(targets), 'target')} ({which}): {why}"


def gram_is_noise(privacy: DifferentialPrivacy) -> str:
    """Return the text for a Gram matrix that is smaller than its noise."""
    return (
        f"the Gram matrix is mostly noise at epsilon {privacy.epsilon:g}: the "
        "eigenvalues of the noise are above its average one, so coefficients are "
        "strongly shrunk"
    )


def accuracy_advice(privacy: DifferentialPrivacy, stats: PrivateStatistics) -> str:
    """Return ways to make the model more accurate."""
    d, clients = stats.n_features, stats.n_clients
    length, many = typical_length(stats), ""
    if privacy.rounds == 1 and length is not None:
        needed = privacy.rows_needed(d, clients, length)
        many = f" (about {needed:,.0f} in all, with rows of length {length:.2g} as now)"
    bounds = "smaller public bounds (half of x_norm_bound is a quarter of the noise)"
    if length is None or length > _AT_BOUND * privacy.x_norm_bound:
        # Shortened rows are as long as the bound, or so short that noise hides them.
        bounds += (
            " unless bounds and rows are in different units, so that nearly all rows "
            "are shortened, as the clients' own logs say (then change the units)"
        )
    options = [
        "more rows" + many,
        bounds,
        "a target with a public typical value subtracted",
        f"fewer features (now {d})",
    ]
    if privacy.rounds == 1 and stats.n_targets == 1:
        options.append("rounds=20")
    options.append(f"a larger epsilon (now {privacy.epsilon:g})")
    if privacy.trust == "local":
        options.append('trust="server", if every policy allows it')
    return "; or ".join(options)


def privacy_report(
    privacy: DifferentialPrivacy,
    *,
    rounds: int,
    n_rows: int | None,
    damage: Sequence[str] = (),
    advice: Sequence[str] = (),
    **known: Any,
) -> PrivacyReport:
    """Return the report of a fit; the number of rows is noisy."""
    damage, advice = list(damage), list(advice)
    if n_rows is not None and privacy.delta >= 1.0 / max(n_rows, 1):
        damage.append(
            f"delta {privacy.delta:g} is not below one over the number of rows (about "
            f"{n_rows}): publishing a record now and then would be within it"
        )
        advice.append("choose delta far below one over the number of rows")
    return PrivacyReport(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        x_norm_bound=privacy.x_norm_bound,
        y_bound=privacy.y_bound,
        neighboring=privacy.neighboring,
        trust=privacy.trust,
        calibration=privacy.calibration,
        noise_multiplier=privacy.noise_multiplier,
        true_epsilon=privacy.true_epsilon(),
        unit="record",
        estimator=privacy.estimator if privacy.rounds == 1 else "refinement",
        releases=rounds,
        damage=damage,
        advice=advice,
        effective_rows=None if privacy.uses_residuals else n_rows,
        **known,
    )
