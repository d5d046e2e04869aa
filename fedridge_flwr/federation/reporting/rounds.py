"""`Refinement`: how a fit in several rounds went."""

from dataclasses import dataclass

from ..._text import counted

TITLES = {
    "binomial": "Federated logistic regression",
    "poisson": "Federated Poisson regression",
}


@dataclass(frozen=True)
class Refinement:
    """How a fit in several rounds went.

    Attributes
    ----------
    mode : str
        "refine" or "cg", or a family: "binomial" or "poisson".
    why : str
        Why "auto" chose it, if it did.
    rounds : int
        Rounds, the first included.
    estimates : list of float
        Relative residual after every round, by which the rounds end; in "refine" it is
        scaled by the rough factors of the clients. Of a family it is the expected
        relative change of the penalised deviance by the step after the round.
    tol : float
        Where it was to stop.
    converged : bool
        Whether it did.
    error : float or None
        Estimated relative error of predictions at the end. Coefficients may be further
        off where columns are nearly dependent. None in "cg", and in reports of 0.1.0.
    """

    mode: str
    why: str
    rounds: int
    estimates: list[float]
    tol: float
    converged: bool
    error: float | None = None

    @property
    def is_family(self) -> bool:
        """Whether a likelihood was maximised."""
        return self.mode in TITLES

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the report."""
        mode = f"{self.mode} (auto: {self.why})" if self.why else self.mode
        what = "last change of the deviance" if self.is_family else "relative residual"
        reached = f"{what} {self.estimates[-1]:.1e} (tol {self.tol:g})"
        if not self.converged:
            reached += ", NOT what was asked for"
        if self.error is not None:
            reached += f"; predictions right to about {self.error:.1e} (estimate)"
        return [
            ("mode", f"{mode}, {counted(self.rounds, 'round')}"),
            ("accuracy", reached),
        ]
