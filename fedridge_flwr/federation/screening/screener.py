"""`Screener`: the comparison of clients in the course of one fit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import FedRidgeError
from ...regression.normal_equations import as_moments
from ..settings import SCREENED_BYTES, FitSettings
from .outliers import TOO_FEW, Screening, screen
from .profiles import Profile

if TYPE_CHECKING:
    from ..aggregate import Aggregate, Answers


_NAMED = 5


@dataclass
class Screener:
    """Which clients stand out so far, and which are left out for it.

    Attributes
    ----------
    settings : FitSettings
        Whether to compare, to leave out, and what is solved.
    suspects : dict of str to str
        Clients that stand out, and by what.
    remarks : dict of str to str
        What else is worth a look.
    summary : str
        What was compared, and what was not and why.
    seconds : float
        How long it took.
    """

    settings: FitSettings
    suspects: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    seconds: float = 0.0
    _columns: Screening = field(default_factory=Screening)
    _left_out: dict[str, str] = field(default_factory=dict)

    def compare_columns(self, columns: Answers) -> None:
        """Compare the moments of columns, before a feature map is made of them."""
        if not self.settings.screens:
            return
        profiles = {client: Profile.of(part) for client, part in columns.parts.items()}
        names, out = self.settings.feature_names, len(self._left_out)
        self._columns = screen(profiles, "", names=names, already_out=out)
        for client, reason in self._to_leave_out(self._columns).items():
            columns.reject(client, reason)
        self._record(Screening(words=TOO_FEW))

    def compare(self, aggregate: Aggregate, total: Any) -> Any:
        """Return the total, without the clients that are to be left out."""
        began, settings = time.perf_counter(), self.settings
        names: Sequence[str] | None = None
        if aggregate.feature_map is None:  # columns that a map made have no names
            names = settings.feature_names or total.schema.feature_names
        profiles = {
            client: Profile.of_scale(aggregate.scales[client], total.n_features)
            for client in aggregate.participants
        }
        found = screen(
            profiles,
            parts_to_screen(aggregate, total),
            settings.alpha,
            names=names,
            already_out=len(self._left_out),
            **settings.options,
        )
        out = self._to_leave_out(found)
        if out:
            aggregate.leave_out(out)
            total = aggregate.result()
        self._record(found)
        self.seconds += time.perf_counter() - began
        return total

    def explain(self, error: Exception, gone: Mapping[str, str]) -> Exception:
        """Return a numerical error that names the clients that may have caused it."""
        named = [c for c in self.suspects if c not in gone][:_NAMED]
        if not named:
            return error
        kind = type(error) if isinstance(error, FedRidgeError) else FedRidgeError
        who = "; ".join(f"client {client}: {self.suspects[client]}" for client in named)
        return kind(
            f"{error} It may be caused by clients that are unlike the others "
            f'(screen="exclude" leaves them out): {who}.'
        )

    def _record(self, found: Screening) -> None:
        self.suspects = self._columns.suspects | found.suspects
        # Of the columns before a map where there is one: those have a meaning.
        self.remarks = found.remarks | self._columns.remarks
        self.summary = found.words
        if self._columns.words:
            self.summary += f"; their columns before: {self._columns.words}"

    def _to_leave_out(self, found: Screening) -> dict[str, str]:
        if not self.settings.excludes:
            return {}
        out = {c: f"unlike the others: {why}" for c, why in found.excluded.items()}
        self._left_out |= out
        return out


def parts_to_screen(aggregate: Aggregate, total: Any) -> Mapping[str, Any] | str:
    """Return the statistics of all clients, or why they are not there."""
    form, clients = total.form, aggregate.participants
    if form == "outcome":
        coded = {client: total.coded(aggregate.parts[client]) for client in clients}
        return {client: part for client, part in coded.items() if part is not None}
    if form == "opening":
        return "in several rounds the server never has the statistics"
    if form == "plain":
        return "from (G, h) alone residuals are not known"
    if len(aggregate.parts) < len(clients):
        return (
            f"the statistics of {len(clients)} clients are more than "
            f'{SCREENED_BYTES >> 20} MB, and only screen="exclude" keeps them'
        )
    return {client: as_moments(aggregate.parts[client]) for client in clients}
