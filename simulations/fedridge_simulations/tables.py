"""Tables: what the paper claims, what was measured, and a verdict in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from fedridge_flwr._text import text_table

__all__ = ["Claim", "claims_table", "megabytes", "percent", "same", "table", "times"]

table = text_table


@dataclass(frozen=True)
class Claim:
    """One claim of the paper beside what was measured.

    Parameters
    ----------
    what, claimed, measured : str
        The quantity, the paper's value, ours.
    holds : bool or None
        Whether the claim holds, decided by what was measured; None if nothing was.
    reason : str
        Why, in one sentence.
    beyond : bool
        Whether it is our own question and not a claim of the paper.
    """

    what: str
    claimed: str
    measured: str
    holds: bool | None
    reason: str
    beyond: bool = False

    @property
    def verdict(self) -> str:
        """Return the verdict, always with its reason."""
        if self.beyond:
            return self.reason
        if self.holds is None:
            return f"not decided: {self.reason}"
        return f"{'holds' if self.holds else 'does not hold'}: {self.reason}"


def claims_table(claims: list[Claim]) -> str:
    """Return the table of claims."""
    return table(
        ["what", "claimed", "measured ± sd", "verdict"],
        [[c.what, c.claimed, c.measured, c.verdict] for c in claims],
        text_columns=4,
    )


def same(claimed: float, measured: float, relative: float) -> bool:
    """Return whether a measured value is the claimed one within a relative margin."""
    return abs(measured - claimed) <= relative * abs(claimed)


def times(ratio: float) -> str:
    """Return a ratio of seconds.

    Examples
    --------
    >>> times(86.7), times(float("nan"))
    ('87 times', 'not timed')
    """
    return "not timed" if ratio != ratio else f"{ratio:.0f} times"


def percent(value: float) -> str:
    """Return a relative difference in readable form.

    Examples
    --------
    >>> percent(0.0071), percent(-1e-9), percent(float("inf")), percent(25.0)
    ('+0.71%', '+0.00%', 'diverges', '+2,500%')
    >>> percent(float("nan"))
    'not run'
    """
    if value != value:
        return "not run"
    if value > 1e9:
        return "diverges"
    if abs(value) < 5e-5:
        value = 0.0
    return f"{100 * value:+,.2f}%" if abs(value) < 1 else f"{100 * value:+,.0f}%"


def megabytes(size: float) -> str:
    """Return bytes as MB, with three digits.

    Examples
    --------
    >>> megabytes(848_180), megabytes(11_414)
    ('0.848 MB', '0.0114 MB')
    """
    return "not run" if size != size else f"{size / 1e6:.3g} MB"
