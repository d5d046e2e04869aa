"""`fedridge check`: what a site would send, and what its policy would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._text import counted, human_bytes, text_table
from ..data.coding import Coding
from ..data.formula import TableFormula
from ..data.local_table import LocalTable, RowOrigin, table_of_file
from ..data.rows import Rows, check_rows
from ..data.site_files import table_options
from ..data.sources import TableFile
from ..data.table_profile import TableProfile
from ..errors import DataError
from ..federation.agreement.table_agreement import agree_on_coding
from ..federation.requests import AskStatistics, AskTable
from ..federation.site.disclosure import SitePolicy
from ..statistics.encoding import Encoded, encode_rows
from .fit import misspelt

_SHOWN_LEVELS = 8
_ENOUGH_SITES = 1_000_000


@dataclass
class SiteCheck:
    """What would leave a site, and why it would not.

    Attributes
    ----------
    profile : TableProfile
        What the server would be told before the fit.
    coding : Coding or None
        How this table would be coded by itself; None if it does not fit.
    sent : Encoded or None
        The statistics that would be sent.
    refusals : list of str
        Rules of the policy that would decline, or what is wrong with the table.
    notes : list of str
        What else the site should know.
    """

    profile: TableProfile
    coding: Coding | None = None
    sent: Encoded | None = None
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return all of it for a person at the site."""
        return "\n".join(_lines(self))

    def save(self, path: Path) -> None:
        """Write every number that would be sent, as JSON."""
        content: dict[str, Any] = {"declined": self.refusals}
        if not self.refusals:
            told = json.loads(bytes(self.profile.to_array()).decode())
            content = {"before the fit": told}
        if not self.refusals and self.sent is not None and self.coding is not None:
            content["in the round"] = {
                "rows": self.sent.count,
                "columns": [*self.coding.names, *self.coding.target_names],
                "kind": self.sent.kind,
                **{name: array.tolist() for name, array in self.sent.arrays.items()},
            }
        text = json.dumps(content, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


def check_site(
    path: Path,
    formula: TableFormula,
    *,
    table: Path | None = None,
    policy: SitePolicy | None = None,
) -> SiteCheck:
    """Return what this site would send for a formula; nothing is sent or remembered."""
    local = table_of_file(TableFile(path, table_options(path, table)))
    profile, origin = local.scan(formula)
    found = SiteCheck(profile)
    try:
        found.coding, misfits = agree_on_coding(formula, {path.name: profile})
        found.refusals += misfits.values()
    except ValueError as error:
        found.refusals.append(str(error).replace("\n", " "))
    if policy is not None:
        found.refusals += _declined(policy, AskTable(formula, sites=_ENOUGH_SITES))
        found.refusals += policy.reasons_by_table(profile.rows, origin)
        if policy.state is not None and not Path(policy.state).is_dir():
            found.refusals.append(f"state: there is no folder {policy.state}")
    if found.coding is not None and not found.refusals:
        _check_rows(found, local, found.coding, policy)
    _add_notes(found, formula, policy)
    found.notes += [hint.strip() for hint in misspelt(formula, local.names)]
    return found


def _check_rows(
    found: SiteCheck, local: LocalTable, coding: Coding, policy: SitePolicy | None
) -> None:
    try:
        X, y, weight, origin = local.coded(coding)
    except DataError as error:
        found.refusals.append(str(error))
        return
    rows = check_rows(X, y, weight)
    if policy is not None:
        asked = AskStatistics(sites=_ENOUGH_SITES, coding=coding)
        found.refusals += _declined(policy, asked)
        found.refusals += _row_reasons(policy, rows, origin)
    found.sent = encode_rows(rows)


def _declined(policy: SitePolicy, request: Any) -> Iterator[str]:
    return policy.reasons_by_request(request)


def _row_reasons(policy: SitePolicy, rows: Rows, origin: RowOrigin) -> Iterator[str]:
    yield from policy.reasons_by_columns(rows, origin)
    yield from policy.reasons_by_rows(rows, rows, origin)


def _add_notes(
    found: SiteCheck, formula: TableFormula, policy: SitePolicy | None
) -> None:
    rows, missing = found.profile.rows, found.profile.missing
    for column, count in missing.items():
        if 3 * count > rows and formula.missing == "drop":
            found.notes.append(
                f"column {column!r} is missing in {count} of {rows} rows, which are "
                "left out."
            )
    if policy is None:
        found.notes.append("there is no site policy: the site answers every request.")
    elif policy.min_row_difference > 1:
        found.notes.append(
            "min_row_difference was not checked: it compares with earlier uploads, "
            "and only when statistics are sent."
        )


def _lines(found: SiteCheck) -> Iterator[str]:
    profile = found.profile
    yield f"Rows: {profile.rows}, of which {profile.complete} have all columns."
    yield ""
    if found.refusals:
        yield "Nothing would be sent. The requested columns are:"
    else:
        yield "Before the fit, the server would learn this about the columns:"
    yield ""
    yield text_table(["column", "kind", "missing", "levels"], _columns(profile))
    yield ""
    if found.sent is not None and found.coding is not None:
        yield from _sent_lines(found.sent, found.coding)
    if found.refusals:
        yield "This site would DECLINE:"
        yield from (f"  - {reason}" for reason in dict.fromkeys(found.refusals))
    else:
        yield "This site would take part."
    yield from (f"Note: {note}" for note in found.notes)


def _columns(profile: TableProfile) -> list[list[str]]:
    rows = []
    for name, column in profile.columns.items():
        levels = column.levels
        told = "too many" if levels is None else ", ".join(levels[:_SHOWN_LEVELS])
        if levels and len(levels) > _SHOWN_LEVELS:
            told += f", ... ({len(levels)} in all)"
        rows.append([name, column.kind, str(column.missing), told])
    return rows


def _sent_lines(sent: Encoded, coding: Coding) -> Iterator[str]:
    numbers = sum(array.size for array in sent.arrays.values())
    size = sum(array.nbytes for array in sent.arrays.values())
    yield (
        f"In the round, the server would receive the number of rows ({sent.count}), "
        f"and the means and co-moments of {counted(len(coding.names), 'feature')} and "
        f"{counted(len(coding.target_names), 'target')}: {numbers} numbers, "
        f"{human_bytes(size)}."
    )
    yield f"Features: {', '.join(coding.names)}."
    yield ""
