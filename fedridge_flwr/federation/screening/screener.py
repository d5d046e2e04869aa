"""`Screener`: the comparison of clients in the course of one fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...errors import FedRidgeError
from ...multiround import Openings
from ...statistics.sufficient import SufficientStatistics
from ..aggregate import Contribution, Fold
from ..answers import Roll
from ..settings import FitSettings
from .comparison import Screening, screen, screen_columns

__all__ = ["SCREENED_BYTES", "Screener", "naming_suspects"]

SCREENED_BYTES = 32 << 20
"""Statistics of clients kept together to look at their leverage, at most."""

_NAMED = 5


class Screener:
    """Who stands out so far, and who is left out for it.

    Parameters
    ----------
    settings : FitSettings
        Whether to compare, to leave out, and what is solved.
    """

    def __init__(self, settings: FitSettings) -> None:
        self._settings = settings
        self._columns = Screening()
        self._folded: Screening | None = None
        self._left_out: dict[str, str] = {}
        self.seconds = 0.0

    @property
    def excludes(self) -> bool:
        """Whether clients are left out, for which all contributions must be kept."""
        return self._settings.screens and self._settings.screen == "exclude"

    @property
    def keep_bytes(self) -> int:
        """Bytes of contributions to keep in any case, to look at their leverage."""
        return SCREENED_BYTES if self._settings.screens else 0

    def forget_contributions(self) -> None:
        """Begin with a new fold; who was left out before still counts."""
        self._folded = None

    def compare_columns(self, columns: Roll) -> None:
        """Compare what clients told of their columns, before a map is made of it."""
        settings = self._settings
        if not settings.screens:
            return
        self._columns = screen_columns(
            columns.parts,
            names=settings.feature_names,
            already_out=len(self._left_out),
        )
        for client, reason in self._to_leave_out(self._columns).items():
            columns.reject(client, reason)

    def finish(self, fold: Fold, *, mapped: bool) -> Contribution | None:
        """Return the total, without those who are to be left out.

        Columns that a map made (`mapped`) have no names.
        """
        total = fold.finish()
        if total is None or self._folded is not None or not self._settings.screens:
            return total
        began = time.perf_counter()
        names: Sequence[str] | None = None
        if not mapped:
            known = getattr(total, "feature_names", None)
            names = self._settings.feature_names or known
        self._folded = screen(
            {client: fold.profiles[client] for client in fold.participants},
            _parts_to_screen(fold, total),
            self._settings.alpha,
            names=names,
            already_out=len(self._left_out),
            **self._settings.options,
        )
        out = self._to_leave_out(self._folded)
        if out:
            fold.leave_out(out)
            total = fold.finish()
        self.seconds += time.perf_counter() - began
        return total

    def suspects(self, gone: Collection[str]) -> dict[str, str]:
        """Return who stands out and is not gone, and by what."""
        found = dict(self._columns.suspects)
        if self._folded is not None:
            found |= self._folded.suspects
        return {client: why for client, why in found.items() if client not in gone}

    @property
    def words(self) -> str:
        """What was compared, and what was not and why."""
        found = "" if self._folded is None else self._folded.words
        if not self._columns.words:
            return found
        return f"{found}; their columns before: {self._columns.words}"

    def _to_leave_out(self, found: Screening) -> dict[str, str]:
        if not self.excludes:
            return {}
        out = {c: f"unlike the others: {why}" for c, why in found.excluded.items()}
        self._left_out |= out
        return out


def _parts_to_screen(
    fold: Fold, total: Contribution
) -> Mapping[str, SufficientStatistics] | str:
    """Return the statistics of all clients, or why they are not there."""
    if isinstance(total, Openings):
        return "in several rounds the server never has the statistics"
    if not isinstance(total, SufficientStatistics):
        return "of (G, h) alone residuals are not known"
    clients = fold.participants
    if len(fold.parts) < len(clients):
        return (
            f"the statistics of {len(clients)} clients are more than "
            f'{SCREENED_BYTES >> 20} MB, and only screen="exclude" keeps them'
        )
    return {client: fold.parts[client] for client in clients}


@contextmanager
def naming_suspects(suspects: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Let errors of numbers say whose numbers they may be."""
    try:
        yield
    except (ArithmeticError, ValueError) as error:
        named = list(suspects().items())[:_NAMED]
        if not named:
            raise
        kind = type(error) if isinstance(error, FedRidgeError) else FedRidgeError
        who = "; ".join(f"client {client}: {reason}" for client, reason in named)
        raise kind(
            f"{error} It may be the doing of clients that are unlike the others "
            f'(screen="exclude" leaves them out): {who}.'
        ) from error
