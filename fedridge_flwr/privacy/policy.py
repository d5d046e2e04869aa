"""`PrivacyPolicy`: what a client grants, whatever the server asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..errors import PrivacyError
from .accounting import compose, epsilon_of
from .mechanism import (
    CALIBRATIONS,
    RELATIONS,
    TRUSTS,
    DifferentialPrivacy,
    check_one_of,
    in_range,
)

__all__ = ["PrivacyPolicy"]


@dataclass(frozen=True)
class PrivacyPolicy:
    """The least privacy a client insists on; every weaker request is refused.

    It holds for each run by itself: what a server asks for in one run adds up, and the
    sum must not exceed the policy. For all runs together, and against questions asked
    at the very same time, keep a `PrivacyLedger`.

    Parameters
    ----------
    max_epsilon, max_delta : float
        The largest that is granted.
    neighboring : str, optional
        The only relation granted; by default either.
    trust : str or collection of str
        Who may be trusted: by default nobody sees anything without noise.
    calibration : str or collection of str
        Calibrations granted; "paper" is not what it claims to be.

    Raises
    ------
    PrivacyError
        If the policy would not mean anything.

    Examples
    --------
    >>> from fedridge_flwr import DifferentialPrivacy, PrivacyPolicy
    >>> policy = PrivacyPolicy(max_epsilon=1.0, max_delta=1e-5)
    >>> asked = DifferentialPrivacy(3.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    >>> policy.check(asked)
    Traceback (most recent call last):
    fedridge_flwr.errors.PrivacyError: the server asks for epsilon 3, this client's \
policy grants at most 1: ask for no more, or go on without it.
    """

    max_epsilon: float
    max_delta: float
    neighboring: str | None = None
    trust: Collection[str] = ("local",)
    calibration: Collection[str] = ("exact",)

    def __post_init__(self) -> None:
        """Refuse a policy that would not mean anything."""
        in_range("epsilon", self.max_epsilon)
        in_range("delta", self.max_delta)
        if self.neighboring is not None:
            check_one_of("neighboring", self.neighboring, RELATIONS)
        for name, known in (("trust", TRUSTS), ("calibration", CALIBRATIONS)):
            given = getattr(self, name)
            accepted = (given,) if isinstance(given, str) else tuple(given)
            for value in accepted:
                check_one_of(name, value, known)
            object.__setattr__(self, name, accepted)

    def check(self, asked: DifferentialPrivacy | None) -> None:
        """Raise the reason why a request is refused; say nothing if it is granted.

        Parameters
        ----------
        asked : DifferentialPrivacy or None
            What the server asks for; None is exact statistics, which are refused.

        Raises
        ------
        PrivacyError
            With the reason, which the server is told.
        """
        if asked is None:
            raise PrivacyError(
                "the server asks for exact statistics, this client's policy grants "
                f"private ones only (epsilon at most {self.max_epsilon:g})."
            )
        if asked.calibration not in self.calibration:
            raise PrivacyError(
                f'the server asks for calibration "{asked.calibration}", this '
                f"client's policy grants {_words(self.calibration)} only."
            )
        if asked.trust not in self.trust:
            raise PrivacyError(
                f'the server asks for trust="{asked.trust}", this client\'s policy '
                f"grants {_words(self.trust)} only."
            )
        if self.neighboring not in (None, asked.neighboring):
            raise PrivacyError(
                f'the server asks for neighbours by "{asked.neighboring}", this '
                f'client\'s policy grants "{self.neighboring}" only.'
            )
        claimed = max(asked.epsilon, asked.true_epsilon(asked.delta) * (1 - 1e-9))
        for name, value, limit in (
            ("epsilon", claimed, self.max_epsilon),
            ("delta", asked.delta, self.max_delta),
        ):
            if value > limit:
                raise PrivacyError(
                    f"the server asks for {name} {value:g}, this client's policy "
                    f"grants at most {limit:g}: ask for no more, or go on without it."
                )

    def check_sum(self, mus: Sequence[float]) -> None:
        """Raise if several releases together are more than what is granted.

        Parameters
        ----------
        mus : sequence of float
            `DifferentialPrivacy.mu` of each.

        Raises
        ------
        PrivacyError
            With what they would be together.
        """
        epsilon = epsilon_of(compose(mus), self.max_delta)
        if len(mus) > 1 and epsilon > self.max_epsilon:
            raise PrivacyError(
                "with what this run has asked for before, epsilon would be "
                f"{epsilon:.4g}; this client's policy grants {self.max_epsilon:g}. Ask "
                "for less in each fit, or start another run."
            )


def _words(granted: Collection[str]) -> str:
    return " and ".join(f'"{word}"' for word in granted)
