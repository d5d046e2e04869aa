"""`PrivacyPolicy`: the weakest privacy a client accepts from any server."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .._checks import check_whole
from ..errors import PrivacyError
from .accounting import compose, epsilon_of
from .mechanism import CHOICES, DifferentialPrivacy
from .validators import check_choice, check_setting


@dataclass(frozen=True)
class PrivacyPolicy:
    """The weakest privacy a client accepts; it declines every weaker request.

    It applies to each run separately: the requests of a server in one run add up, and
    their sum must not exceed the policy. To limit all runs together, and requests that
    arrive at the same time, keep a `PrivacyLedger`.

    Parameters
    ----------
    max_epsilon, max_delta : float
        The largest accepted.
    neighboring : str, optional
        The only relation accepted; by default either.
    trust : str or collection of str
        Whom the client trusts; by default ("local",), which trusts nobody.
    calibration : str or collection of str
        Calibrations accepted; there is only "exact".
    report_failures : bool
        Whether the server learns why a release cannot be made: that ``load_data``
        failed, or that some column contains no numbers (it would contribute only
        noise). Off by default: such facts are about the rows, and the guarantee does
        not cover them. The server always learns if column *names* differ from those
        agreed on.
    max_colluding : int
        How many clients may collude with the server, in the client's own judgement. If
        noise is divided in a secure sum, `DifferentialPrivacy.max_colluding` must be at
        least this number.

    Raises
    ------
    PrivacyError
        If a setting is invalid.

    Examples
    --------
    >>> from fedridge_flwr import DifferentialPrivacy, PrivacyPolicy
    >>> policy = PrivacyPolicy(max_epsilon=1.0, max_delta=1e-5)
    >>> asked = DifferentialPrivacy(3.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    >>> policy.check(asked)
    Traceback (most recent call last):
    fedridge_flwr.errors.PrivacyError: declined: the server asks for epsilon 3, this \
client's policy allows 1 at most.
    """

    max_epsilon: float
    max_delta: float
    neighboring: str | None = None
    trust: Collection[str] = ("local",)
    calibration: Collection[str] = ("exact",)
    report_failures: bool = False
    max_colluding: int = 0

    def __post_init__(self) -> None:
        """Validate all settings."""
        check_setting("epsilon", self.max_epsilon)
        check_setting("delta", self.max_delta)
        check_whole("max_colluding", self.max_colluding, 0, error=PrivacyError)
        if not isinstance(self.report_failures, bool):
            raise PrivacyError("report_failures must be True or False.")
        if self.neighboring is not None:
            check_choice("neighboring", self.neighboring, CHOICES["neighboring"])
        for name in ("trust", "calibration"):
            given = getattr(self, name)
            accepted = (given,) if isinstance(given, str) else tuple(given)
            for value in accepted:
                check_choice(name, value, CHOICES[name])
            object.__setattr__(self, name, accepted)

    def check(self, asked: DifferentialPrivacy | None) -> None:
        """Raise the reason to decline a request, if there is one.

        Parameters
        ----------
        asked : DifferentialPrivacy or None
            The privacy of the request; None is exact statistics, which are declined.

        Raises
        ------
        PrivacyError
            With the reason, which is sent to the server.
        """
        if asked is None:
            limit = f"private ones only (epsilon {self.max_epsilon:g} at most)"
            raise _declined("exact statistics", limit)
        relations = (self.neighboring,) if self.neighboring else CHOICES["neighboring"]
        accepted = {"calibration": self.calibration, "trust": self.trust}
        for name, allowed in (accepted | {"neighboring": relations}).items():
            value = getattr(asked, name)
            if value not in allowed:
                choices = " or ".join(f'"{choice}"' for choice in allowed)
                raise _declined(f'{name}="{value}"', f"{choices} only")
        for name in ("epsilon", "delta"):
            value, limit = getattr(asked, name), getattr(self, f"max_{name}")
            if value > limit:
                raise _declined(f"{name} {value:g}", f"{limit:g} at most")
        if asked.trust == "secagg" and asked.max_colluding < self.max_colluding:
            told = f"max_colluding {asked.max_colluding}"
            raise _declined(told, f"{self.max_colluding} at least")

    def check_sum(self, mus: Sequence[float]) -> None:
        """Raise if several releases together exceed the policy.

        Parameters
        ----------
        mus : sequence of float
            `DifferentialPrivacy.mu` of each.

        Raises
        ------
        PrivacyError
            With their total epsilon.
        """
        together = compose(mus)
        if len(mus) < 2:
            return
        epsilon = epsilon_of(together, self.max_delta)
        if epsilon > self.max_epsilon:
            raise PrivacyError(
                "declined: together with the earlier requests of this run, epsilon "
                f"would be {epsilon:.4g}; this client's policy allows "
                f"{self.max_epsilon:g}. Ask for less in each fit, or start another run."
            )


def _declined(asked: str, allowed: str) -> PrivacyError:
    return PrivacyError(
        f"declined: the server asks for {asked}, this client's policy allows {allowed}."
    )
