"""`Screener`: the comparison of clients in the course of one fit."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import FedRidgeError
from ..settings import SCREENED_BYTES, FitSettings
from .comparison import Screening, screen, screen_columns

if TYPE_CHECKING:
    from ..aggregate import Aggregate
    from ..answers import Answers

__all__ = ["Screener"]

_NAMED = 5


class Screener:
    """Which clients stand out so far, and which are left out for it.

    Parameters
    ----------
    settings : FitSettings
        Whether to compare, to leave out, and what is solved.
    """

    def __init__(self, settings: FitSettings) -> None:
        self._settings = settings
        self._columns = Screening()
        self._contributions = Screening()
        self._left_out: dict[str, str] = {}
        self.seconds = 0.0

    def compare_columns(self, columns: Answers) -> None:
        """Compare the moments of columns, before a feature map is made of them."""
        if not self._settings.screens:
            return
        self._columns = screen_columns(
            columns.parts,
            names=self._settings.feature_names,
            already_out=len(self._left_out),
        )
        for client, reason in self._to_leave_out(self._columns).items():
            columns.reject(client, reason)

    def compare(self, aggregate: Aggregate) -> Any:
        """Return the total, without the clients that are to be left out."""
        total, settings = aggregate.result(), self._settings
        self._contributions = Screening()
        if total is None or not settings.screens:
            return total
        began = time.perf_counter()
        names: Sequence[str] | None = None
        if aggregate.feature_map is None:  # columns that a map made have no names
            names = settings.feature_names or total.schema.feature_names
        self._contributions = screen(
            {client: aggregate.profiles[client] for client in aggregate.participants},
            _parts_to_screen(aggregate, total.form),
            settings.alpha,
            names=names,
            already_out=len(self._left_out),
            **settings.options,
        )
        out = self._to_leave_out(self._contributions)
        if out:
            aggregate.leave_out(out)
            total = aggregate.result()
        self.seconds += time.perf_counter() - began
        return total

    def suspects(self, gone: Collection[str]) -> dict[str, str]:
        """Return who stands out and is not gone, and by what."""
        found = self._columns.suspects | self._contributions.suspects
        return {client: why for client, why in found.items() if client not in gone}

    @property
    def summary(self) -> str:
        """What was compared, and what was not and why."""
        found = self._contributions.words
        if not self._columns.words:
            return found
        return f"{found}; their columns before: {self._columns.words}"

    @contextmanager
    def naming_suspects(self, gone: Collection[str] = ()) -> Iterator[None]:
        """Let numerical errors name the clients that may have caused them."""
        try:
            yield
        except (ArithmeticError, ValueError) as error:
            named = list(self.suspects(gone).items())[:_NAMED]
            if not named:
                raise
            kind = type(error) if isinstance(error, FedRidgeError) else FedRidgeError
            who = "; ".join(f"client {client}: {reason}" for client, reason in named)
            raise kind(
                f"{error} It may be caused by clients that are unlike the others "
                f'(screen="exclude" leaves them out): {who}.'
            ) from error

    def _to_leave_out(self, found: Screening) -> dict[str, str]:
        if not self._settings.excludes:
            return {}
        out = {c: f"unlike the others: {why}" for c, why in found.excluded.items()}
        self._left_out |= out
        return out


def _parts_to_screen(aggregate: Aggregate, form: str) -> Mapping[str, Any] | str:
    """Return the statistics of all clients, or why they are not there."""
    if form == "opening":
        return "in several rounds the server never has the statistics"
    if form == "plain":
        return "from (G, h) alone residuals are not known"
    clients = aggregate.participants
    if len(aggregate.parts) < len(clients):
        return (
            f"the statistics of {len(clients)} clients are more than "
            f'{SCREENED_BYTES >> 20} MB, and only screen="exclude" keeps them'
        )
    return {client: aggregate.parts[client] for client in clients}
