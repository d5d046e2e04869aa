"""How the blocks of a release share one privacy budget: shares by block, above 0.

Over all answers of a fit they add up to 1.
"""

import math
from collections.abc import Mapping

from ..errors import PrivacyError
from .validators import check_number

_KNOWN = ("gram", "moment", "target_gram")

_FIRST_ROUND = ("count", "trace", "gram")


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


def one_shot_shares(split: Mapping[str, float] | None) -> Mapping[str, float]:
    """Return the shares of the one-shot release, checked.

    Examples
    --------
    >>> one_shot_shares({"gram": 0.45, "moment": 0.45, "target_gram": 0.1})["gram"]
    0.45
    """
    if split is None:
        return {"gram": 0.5, "moment": 0.5}
    if not {"gram", "moment"} <= set(split) <= set(_KNOWN):
        raise PrivacyError(
            'budget_split must have "gram" and "moment", and may have "target_gram", '
            f"got {', '.join(map(repr, split)) or 'nothing'}."
        )
    shares = {block: _share(block, share) for block, share in split.items()}
    total = math.fsum(shares.values())
    if abs(total - 1.0) > 1e-9:
        raise PrivacyError(f"budget_split must add up to 1, got {total!r}.")
    return {block: share / total for block, share in shares.items()}


def refinement_split(epsilon: float, rounds: int) -> dict[str, float]:
    """Return the shares of what residual refinement asks for in its first round only.

    Count and trace are single numbers, and public bounds tell most of the trace. Rounds
    learn the curvature by themselves: G is worth less the more there are, and little
    where it is mostly noise.

    Examples
    --------
    >>> refinement_split(1.0, 24)
    {'count': 0.02, 'trace': 0.005, 'gram': 0.04}
    """
    gram = (0.2 if epsilon >= 1.0 else 0.05) / math.sqrt(rounds + 1)
    return {"count": 0.02, "trace": 0.005, "gram": gram}


def refinement_split_0_1_0(rounds: int) -> dict[str, float]:
    """Return the same for a server of version 0.1.0, which does not send shares."""
    return {"count": 0.01, "trace": 0.01, "gram": 0.2 / math.sqrt(rounds + 1)}


def refinement_shares(
    split: Mapping[str, float], rounds: int, server_round: int
) -> Mapping[str, float]:
    """Return the shares of one round of residual refinement, checked.

    All rounds have the same share for residuals: as long as the model explains them the
    error falls by the same factor per share, and later their order does not matter.

    Examples
    --------
    >>> split = refinement_split(1.0, 5)
    >>> sum(sum(refinement_shares(split, 5, t).values()) for t in range(1, 6))
    1.0
    """
    if set(split) != set(_FIRST_ROUND):
        raise PrivacyError(
            'with several rounds budget_split must have "count", "trace" and "gram" '
            f"(the rest is for residuals), got {', '.join(map(repr, split))}."
        )
    first = {block: _share(block, split[block]) for block in _FIRST_ROUND}
    left = 1.0 - math.fsum(first.values())
    if left <= 0:
        raise PrivacyError("budget_split leaves no share for residuals.")
    return {**(first if server_round == 1 else {}), "residual": left / rounds}


def _share(block: str, share: object) -> float:
    return check_number(f"budget_split[{block!r}]", share, above=0.0, below=1.0)
