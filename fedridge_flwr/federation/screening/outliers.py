"""Which clients sent statistics that are well-formed, and yet unlike all others.

Two questions, both answered by medians over clients, so that a minority cannot move
the answer: are the columns of a client on the scale of the others (`profiles`)? And
does it move the model of the others (`leverage`) both far and far more than others do,

    D_k > 0.1   and   log(D_k / share_k^p) > median + 4 max(1.4826 MAD, 0.5)

for p = 1 and p = 1/2, with Cook's distance D_k, the client's share of the weight, and
median and median absolute deviation (MAD) of the logarithms? D grows with the share
where sites differ, and with its root where they only have different rows: a large site
must not stand out by the one, nor a tiny site by the other. A client that fails the
first question is left out of the second.

Remarks ask for less, since nobody is left out for them: what is confused or copied
(`profiles`), and where the model of the others (of the core of `leverage`) is wrong by
far more than elsewhere. With q_k the mean squared error at client k, in residual
variances of the core, and n_k rows,

    log q_k > median + 6 max(1.4826 MAD, 0.2, 1.4 / sqrt n_k),   and 4 times the median.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np

from ..._text import counted
from ...regression.normal_equations import FitOptions
from ...statistics.sufficient import SufficientStatistics
from .leverage import Influence, influences
from .profiles import Profile, by_scale, copies, remarks
from .units import FEWEST_ROWS

SCREENS = ("report", "exclude", "off")
FEWEST = 4
TOO_FEW = f"too few clients to compare (at least {FEWEST} with rows are needed)"

DISTANCE_LIMIT = 0.1
LEVERAGE_LIMIT = 4.0
MISFIT_LIMIT = 6.0

_MAD = 1.4826
_LEVERAGE_UNIT = 0.5
_SMALLEST_PULL = 1e-3
_SMALLEST_SHARE = 1e-12
_FAR = 1e300
_MISFIT_UNIT = 0.2
_MISFIT_NOISE = 1.4
_MISFIT_RATIO = 4.0
SAME_STATISTICS = "sent exactly the same statistics"
_SHOWN = 5


@dataclass(frozen=True)
class Screening:
    """What was looked at, and who stands out.

    Attributes
    ----------
    suspects : dict of str to str
        Clients that stand out, and by what.
    words : str
        What was compared, and what was not and why.
    excluded : dict of str to str
        Suspects to be left out if that is asked for: all of them, or nobody where
        they are too many to tell who is right.
    remarks : dict of str to str
        What is unusual about clients that may well be honest; no client is left out
        for it.
    """

    suspects: dict[str, str] = field(default_factory=dict)
    words: str = ""
    excluded: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)


def screen(
    profiles: Mapping[str, Profile],
    parts: Mapping[str, SufficientStatistics] | str,
    alpha: float = 1.0,
    *,
    names: Sequence[str] | None = None,
    already_out: int = 0,
    **options: Unpack[FitOptions],
) -> Screening:
    """Compare clients; it never raises, whatever the numbers.

    Parameters
    ----------
    profiles : mapping of str to Profile
        Those of all clients.
    parts : mapping of str to SufficientStatistics, or str
        Their statistics; or the reason why there is no leverage, which `words` then
        give; "" where there is nothing to explain.
    alpha : float
        Of the model whose coefficients the leverage is about.
    names : sequence of str, optional
        Names of the features, where known.
    already_out : int
        Clients that were left out before; with them, too, it must stay a minority.
    **options
        `fit_intercept` and `standardize` of that model.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(5, 20, 3))
    >>> rows[3, :, 1] *= 1e4
    >>> parts = {
    ...     str(k): SufficientStatistics.from_data(X[:, :2], X[:, 2])
    ...     for k, X in enumerate(rows)
    ... }
    >>> found = screen({k: Profile.of(part) for k, part in parts.items()}, parts)
    >>> found.words
    '5 clients compared by scale and leverage'
    >>> print(found.suspects["3"])
    the spread of its column 1 is 1.4e+04 times the usual one
    """
    filled = {client: each for client, each in profiles.items() if each.weight > 0}
    if len(filled) < FEWEST:
        return Screening(words=TOO_FEW)
    reasons = by_scale(filled, names)
    found: dict[str, Influence] | str
    told = [remarks(filled, names)]
    if isinstance(parts, str):
        found = parts
        told.append(_copies(filled, {}))
    else:
        told.append(_copies(filled, parts))
        rest = {c: p for c, p in parts.items() if c in filled and c not in reasons}
        found = _influences(rest, alpha, options)
    words = f"{counted(len(filled), 'client')} compared by scale"
    if not isinstance(found, str):
        words += " and leverage"
        reasons |= _by_leverage(found)
        misfits = _by_misfit(found)
        told.append({c: why for c, why in misfits.items() if c not in reasons})
    elif found:
        words += f"; leverage not looked at: {found}"
    suspects = {client: reasons[client] for client in filled if client in reasons}
    excluded = suspects
    # The majority decides what is usual, and half of the clients is no majority.
    if len(suspects) + already_out > (len(filled) + already_out - 1) // 2:
        excluded = {}
        words += f"; {len(suspects)} of them stand out, too many to tell who is right"
    each = {c: "; ".join(t[c] for t in told if c in t) for c in filled}
    return Screening(suspects, words, excluded, {c: t for c, t in each.items() if t})


def _influences(
    parts: Mapping[str, SufficientStatistics], alpha: float, options: FitOptions
) -> dict[str, Influence] | str:
    """Return the influence of every client, or why it is not known."""
    if len(parts) < FEWEST:
        return "too few clients are left"
    counts = [part.count for part in parts.values()]
    d = next(iter(parts.values())).n_features
    if sum(counts) - max(counts) < 2 * (d + 1):
        return "too few rows for the number of features"
    try:
        found = influences(parts, alpha, **options)
    except (ArithmeticError, ValueError):
        return "the model of half of the clients cannot be computed"
    # A client of negligible weight moves nothing, so it says nothing about the usual.
    known = {
        client: each
        for client, each in found.items()
        if np.isfinite(each.distance) and each.share > _SMALLEST_SHARE
    }
    if len(known) < FEWEST:
        return "too few models without one client can be computed"
    return known


def _by_misfit(found: Mapping[str, Influence]) -> dict[str, str]:
    """Return where the model of the others is far worse than elsewhere."""
    clients = [c for c, f in found.items() if f.rows >= FEWEST_ROWS and f.misfit > 0]
    if len(clients) < FEWEST:
        return {}
    misfits = np.array([found[client].misfit for client in clients])
    counts = np.array([found[client].rows for client in clients])
    usual = np.median(np.log(misfits))
    above = np.log(misfits) - usual
    unit = max(_MAD * float(np.median(np.abs(above))), _MISFIT_UNIT)
    far = above > MISFIT_LIMIT * np.maximum(unit, _MISFIT_NOISE / np.sqrt(counts))
    far &= above > np.log(_MISFIT_RATIO)
    return {
        clients[k]: (
            "the model of the others does not fit it: mean squared error "
            f"{np.exp(above[k]):.2g} times the usual one; it moves their predictions "
            f"by {found[clients[k]].distance:.2g} residual standard deviations"
        )
        for k in np.flatnonzero(far)
    }


def _copies(
    profiles: Mapping[str, Profile], parts: Mapping[str, SufficientStatistics]
) -> dict[str, str]:
    """Return who has the very statistics of another client, bit for bit."""
    found: dict[str, str] = {}
    for group in copies(profiles):
        same: dict[bytes, list[str]] = {}
        for client in group:
            products = parts[client].triangle.tobytes() if client in parts else b""
            same.setdefault(products, []).append(client)
        for clients in same.values():
            shown, more = ", ".join(clients[:_SHOWN]), len(clients) - _SHOWN
            shown += f" and {more} more" if more > 0 else ""
            words = f"clients {shown} {SAME_STATISTICS}: copies?"
            # The same words for all of them: the report then shows them in one line.
            found |= {client: words for client in clients if len(clients) > 1}
    return found


def _by_leverage(found: Mapping[str, Influence]) -> dict[str, str]:
    """Return whose presence moves the model far, and far more than that of others."""
    distances = np.array([each.distance for each in found.values()])
    shares = np.array([each.share for each in found.values()])
    out = distances > DISTANCE_LIMIT
    ratios = np.full(len(found), np.inf)
    for power in (1.0, 0.5):
        with np.errstate(all="ignore"):
            pulls = np.log(np.clip(distances / shares**power, _SMALLEST_PULL, _FAR))
        usual = np.median(pulls)
        unit = max(_MAD * float(np.median(np.abs(pulls - usual))), _LEVERAGE_UNIT)
        out &= pulls - usual > LEVERAGE_LIMIT * unit
        ratios = np.minimum(ratios, np.exp(pulls - usual))
    return {
        client: (
            f"it moves predictions for the others by {distances[k]:.2g} residual "
            f"standard deviations, {ratios[k]:.2g} times as far as usual for its share "
            "of the rows"
        )
        for k, client in enumerate(found)
        if out[k]
    }
