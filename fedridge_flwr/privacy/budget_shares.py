"""How the blocks of a release share one privacy budget: shares by block, above 0.

Over all answers of a fit they add up to 1.
"""

import math
from collections.abc import Mapping

from ..errors import PrivacyError
from .validators import check_number

_KNOWN = ("gram", "moment", "target_gram")
_MOMENTS = {"count", "trace", "gram", "residual"}

# Of one round, by the number of `rules`. A share of 0.35 for G stays within 6% of the
# best error over 70 settings of size, epsilon and design, 0.5 within 62%.
_DEFAULT = {1: {"gram": 0.5, "moment": 0.5}, 2: {"gram": 0.35, "moment": 0.65}}

# In refinement, by the number of `rules`. Count and trace are single numbers, and
# public bounds tell most of the trace.
_SINGLE = {1: {"count": 0.01, "trace": 0.01}, 2: {"count": 0.01, "trace": 0.0025}}


def replacement(shares: Mapping[str, float], n_targets: int) -> float:
    """Return how far replacing one record moves gram, moment and target_gram.

    Two rows at cosine c, with targets v and v', are at the squared distance
    2 p_G (1 - c²) + p_h (v² + v'² - 2 c v·v') + p_yy (v⁴ + v'⁴ - 2 (v·v')²), the
    largest for rows of length 1, since only c is gained by shorter ones.

    Examples
    --------
    >>> round(replacement({"gram": 0.5, "moment": 0.5}, 1), 4)
    1.5
    """
    known = [shares.get(block, 0.0) for block in _KNOWN]
    square = _one_target(*known) if n_targets == 1 else _several_targets(*known)
    return math.sqrt(square)


def _several_targets(gram: float, moment: float, target_gram: float) -> float:
    """Return 2 - 2 min (p_G c² + p_h c s + p_yy s²) over cosines c and s."""
    least = 0.0
    # The minimum is 0, or on an edge of the square, where one cosine is -1.
    for first, second in ((gram, target_gram), (target_gram, gram)):
        cosine = min(1.0, moment / (2 * first)) if first > 0 else 1.0
        least = min(least, first * cosine**2 - moment * cosine + second)
    return 2.0 - 2.0 * least


def _one_target(gram: float, moment: float, target_gram: float) -> float:
    """Return the largest squared distance over v = 1, v' = -s, and the best c."""

    def square(s: float) -> float:
        cosine = min(1.0, moment * s / (2 * gram))
        return (
            2 * gram * (1 - cosine**2)
            + moment * (1 + s * s + 2 * cosine * s)
            + target_gram * (1 - s * s) ** 2
        )

    # Until c reaches 1 it is convex in s²; from there on it may bulge once.
    candidates = [0.0, min(1.0, 2 * gram / moment), 1.0]
    if target_gram > 2 * moment:
        candidates.append((1.0 - math.sqrt(1.0 - 2 * moment / target_gram)) / 2)
    return max(square(s) for s in candidates)


def one_shot_shares(
    split: Mapping[str, float] | None, rules: int = 2
) -> Mapping[str, float]:
    """Return the shares of the one-shot release, checked.

    Examples
    --------
    >>> one_shot_shares({"gram": 0.45, "moment": 0.45, "target_gram": 0.1})["gram"]
    0.45
    """
    if split is None:
        return _DEFAULT[rules]
    known = {"gram", "moment"} <= set(split) <= set(_KNOWN)
    if not (known or set(split) == _MOMENTS):
        raise PrivacyError(
            'budget_split must have "gram" and "moment", and may have "target_gram", '
            f"got {', '.join(map(repr, split)) or 'nothing'}."
        )
    shares = {
        block: check_number(f"budget_split[{block!r}]", share, above=0.0, below=1.0)
        for block, share in split.items()
    }
    total = math.fsum(shares.values())
    if abs(total - 1.0) > 1e-9:
        raise PrivacyError(f"budget_split must add up to 1, got {total!r}.")
    return {block: share / total for block, share in shares.items()}


def refinement_shares(
    rounds: int, server_round: int, epsilon: float, rules: int = 2
) -> Mapping[str, float]:
    """Return the shares of one round of residual refinement.

    Rounds learn the curvature by themselves: G is worth less the more there are, and
    little where it is mostly noise. All rounds have the same share for residuals: as
    long as the model explains them the error falls by the same factor per share, and
    later their order does not matter.

    Examples
    --------
    >>> round(sum(sum(refinement_shares(5, t, 1.0).values()) for t in range(1, 6)), 9)
    1.0
    """
    known = 0.2 if epsilon >= 1.0 or rules == 1 else 0.01
    first = {**_SINGLE[rules], "gram": known / math.sqrt(rounds + 1)}
    residual = {"residual": (1.0 - math.fsum(first.values())) / rounds}
    return residual if server_round > 1 else first | residual
