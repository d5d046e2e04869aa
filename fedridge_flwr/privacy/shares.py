"""How the blocks of a release share one privacy budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from ..errors import PrivacyError

__all__ = ["Shares", "one_shot_shares", "refinement_shares"]

_DEFAULT = {"gram": 0.5, "moment": 0.5}
_KNOWN = ("gram", "moment", "target_gram")
_TOLERANCE = 1e-9

# In refinement. Count and trace are single numbers: a hundredth each leaves 17% of
# error in 8,000 records of 20 clients at epsilon 0.1. Rounds learn the curvature by
# themselves, so G is worth less the more there are: a tenth for three, 4% for twenty.
_COUNT = 0.01
_TRACE = 0.01
_GRAM = 0.2


@dataclass(frozen=True)
class Shares:
    """Share of the budget of every block that one answer has.

    Parameters
    ----------
    of : mapping
        Shares by block, each above 0. Over all answers of a fit they add up to 1.
    """

    of: Mapping[str, float]

    def replacement(self, n_targets: int) -> float:
        """Return how far replacing one record moves gram, moment and target_gram.

        Two rows of length 1 at cosine c, with targets at cosine s, are at the squared
        distance 2 p_G (1 - c²) + 2 p_h (1 - c s) + 2 p_yy (1 - s²). A single target
        has s = 1 or -1, or is 0 on one side; several may be orthogonal.

        Examples
        --------
        >>> round(Shares({"gram": 0.5, "moment": 0.5}).replacement(1), 4)
        1.5
        """
        gram, moment = self.of["gram"], self.of["moment"]
        target_gram = self.of.get("target_gram", 0.0)
        cosine = min(1.0, moment / (2 * gram))
        opposite = 2 * gram * (1 - cosine**2) + 2 * moment * (1 + cosine)
        if n_targets > 1:
            return math.sqrt(max(opposite, 2 * (gram + moment + target_gram)))
        return math.sqrt(max(opposite, 2 * gram + moment + target_gram))


def one_shot_shares(split: Mapping[str, float] | None) -> Shares:
    """Return the shares of the one-shot release, checked.

    Examples
    --------
    >>> one_shot_shares({"gram": 0.45, "moment": 0.45, "target_gram": 0.1}).of["gram"]
    0.45
    """
    if split is None:
        return Shares(dict(_DEFAULT))
    unknown = sorted(set(split) - set(_KNOWN))
    if unknown or not {"gram", "moment"} <= set(split):
        raise PrivacyError(
            'budget_split must have "gram" and "moment", and may have "target_gram", '
            f"got {', '.join(map(repr, split)) or 'nothing'}."
        )
    for block, share in split.items():
        number = isinstance(share, Real) and not isinstance(share, bool)
        if not number or not 0 < share < 1:
            raise PrivacyError(
                f"budget_split[{block!r}] must be between 0 and 1, got {share!r}."
            )
    total = math.fsum(split.values())
    if abs(total - 1.0) > _TOLERANCE:
        raise PrivacyError(
            f"the shares of budget_split must add up to 1, got {total!r}."
        )
    return Shares({block: float(share) / total for block, share in split.items()})


def refinement_shares(rounds: int, server_round: int) -> Shares:
    """Return the shares of one round of residual refinement.

    All rounds have the same share for residuals: as long as the model explains them the
    error falls by the same factor per share, and later their order does not matter.

    Examples
    --------
    >>> sum(sum(refinement_shares(5, t).of.values()) for t in range(1, 6))
    1.0
    """
    gram = _GRAM / math.sqrt(rounds + 1)
    residual = (1.0 - _COUNT - _TRACE - gram) / rounds
    if server_round > 1:
        return Shares({"residual": residual})
    return Shares(
        {"count": _COUNT, "trace": _TRACE, "gram": gram, "residual": residual}
    )
