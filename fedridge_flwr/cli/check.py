"""`fedridge check`: what a site would send, and what its policy would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._text import counted, human_bytes, text_table
from ..data.coding import Coding
from ..data.formula import TableFormula
from ..data.local_table import LocalTable, RawRows, table_of_file
from ..data.rows import Rows, check_rows
from ..data.site_files import table_options
from ..data.sources import TableFile
from ..data.table_profile import TableProfile
from ..errors import DataError
from ..federation.agreement.table_agreement import coding_of_one
from ..federation.answering.family_respond import family_answer, family_rows
from ..federation.answering.respond import Guards
from ..federation.requests import (
    Answer,
    AskOutcome,
    AskResiduals,
    AskStatistics,
    AskTable,
)
from ..federation.settings import FAMILY_ROUNDS, FitSettings
from ..federation.site.disclosure import SitePolicy
from ..regression.inference.residual_moments import POWERS, ResidualProbe
from ..statistics.encoding import Encoded, encode_rows
from ..statistics.outcome import FRACTIONS
from .column_ranges import ColumnRange, code_notes, column_ranges
from .fit import misspelt

_MIXED = "Where other sites have only numbers in it, the fit leaves this site out."
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
    family : str
        Family of the fit.
    standard_errors : str
        Their kind.
    sent : Encoded, Answer or None
        The statistics that would be sent, of families in the first round.
    refusals : list of str
        Rules of the policy that would decline, or what is wrong with the table.
    no_residuals : list of str
        Rules that would decline residuals, which robust standard errors need.
    notes : list of str
        What else the site should know.
    ranges : dict of str to ColumnRange
        Ends of the columns of numbers, which are shown here and never sent.
    """

    profile: TableProfile
    coding: Coding | None = None
    sent: Encoded | Answer | None = None
    family: str = "gaussian"
    standard_errors: str = "classical"
    refusals: list[str] = field(default_factory=list)
    no_residuals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ranges: dict[str, ColumnRange] = field(default_factory=dict)

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
            linear = self.family == "gaussian"
            content["in the round" if linear else "in the first round"] = {
                "rows": self.sent.count,
                "columns": [*self.coding.names, *_outcomes(self.sent, self.coding)],
                "kind": self.sent.kind,
                **_values(self.sent),
            }
        text = json.dumps(content, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


def check_site(
    path: Path,
    formula: TableFormula,
    *,
    table: Path | None = None,
    policy: SitePolicy | None = None,
    family: str = "gaussian",
    standard_errors: str = "classical",
) -> SiteCheck:
    """Return what this site would send for a formula; nothing is sent or remembered."""
    # It refuses what does not go together, as a fit does.
    FitSettings(formula=formula, family=family, standard_errors=standard_errors)
    local = table_of_file(TableFile(path, table_options(path, table)))
    profile, origin = local.scan(formula)
    one = coding_of_one(formula, profile)
    found = SiteCheck(
        profile,
        one.coding,
        family=family,
        standard_errors=standard_errors,
        refusals=one.misfits,
    )
    if policy is not None:
        found.refusals += policy.reasons_by_request(
            AskTable(formula, sites=_ENOUGH_SITES)
        )
        found.refusals += policy.reasons_by_request(_first_request(found))
        found.refusals += policy.reasons_by_table(profile.rows, origin)
        if policy.state is not None and not Path(policy.state).is_dir():
            found.refusals.append(f"state: there is no folder {policy.state}")
    if found.coding is None:
        found.refusals += origin.mixed
    else:
        _check_rows(found, local, found.coding, policy)
        found.notes += [f"{place}. {_MIXED}" for place in origin.mixed]
    found.notes += one.notes
    found.ranges = column_ranges(local, profile)
    found.notes += code_notes(found.ranges)
    _add_notes(found, formula, policy)
    found.notes += [hint.strip() for hint in misspelt(formula, local.names)]
    return found


def _first_request(found: SiteCheck) -> AskStatistics | AskOutcome:
    """Return the request that follows the one for the table."""
    about: dict[str, Any] = {"sites": _ENOUGH_SITES, "coding": found.coding}
    if found.family == "gaussian":
        return AskStatistics(**about)
    return AskOutcome(found.family, **about)


def _check_rows(
    found: SiteCheck, local: LocalTable, coding: Coding, policy: SitePolicy | None
) -> None:
    """Add what is wrong with the rows, and what would be sent if nothing is."""
    try:
        raw = local.coded(coding)
        if found.family == "gaussian":
            _check_statistics(found, raw, policy)
        else:
            _check_family(found, raw, policy)
    except DataError as error:
        found.refusals.append(str(error))


def _check_statistics(
    found: SiteCheck, raw: RawRows, policy: SitePolicy | None
) -> None:
    rows = check_rows(raw.X, raw.y, raw.weight)
    if policy is not None:
        found.refusals += policy.reasons_by_rows(rows, rows, raw.origin)
        if found.standard_errors in POWERS and not found.refusals:
            probe = _probe(rows, found.standard_errors)
            more = AskResiduals(probe, sites=_ENOUGH_SITES, coding=found.coding)
            found.no_residuals += policy.reasons_by_request(more)
    Guards().check_number(rows.n_filled)
    if not found.refusals:
        found.sent = encode_rows(rows)


def _probe(rows: Rows, kind: str) -> ResidualProbe:
    """Return what a server would send to ask for residuals, without its numbers."""
    d, t = rows.n_features, rows.n_targets
    coef, intercept = np.zeros((t, d)), np.zeros(t)
    if not POWERS[kind]:
        return ResidualProbe(coef, intercept)
    bread = np.zeros((1 + d, 1 + d))
    return ResidualProbe(coef, intercept, POWERS[kind], np.zeros(d), bread)


def _check_family(found: SiteCheck, raw: RawRows, policy: SitePolicy | None) -> None:
    asked = _first_request(found)
    if policy is not None:
        seen = family_rows(asked, raw)
        visible = seen.visible
        found.refusals += policy.reasons_by_rows(visible, visible, seen.origin)
        if not found.refusals:
            found.notes.append(
                "later rounds were not checked: if the coefficients of the server gave "
                "almost all weight to a few rows, the policy would decline."
            )
    if found.family == "poisson" and bool(np.mod(raw[1], 1.0).any()):
        found.notes.append(FRACTIONS.replace("its", "the"))
    sent = family_answer(asked, raw, Guards())
    found.sent = None if found.refusals else sent


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
        yield (
            "Before the fit, the server would learn this about the columns (but not "
            "min and max, which are shown only here):"
        )
    yield ""
    heads = ["column", "kind", "missing", "min", "max", "levels"]
    yield text_table(heads, _columns(found))
    yield ""
    if not found.refusals and found.sent is not None and found.coding is not None:
        yield from _sent_lines(found, found.sent, found.coding)
    if found.refusals:
        yield "This site would DECLINE:"
        yield from (f"  - {reason}" for reason in dict.fromkeys(found.refusals))
    elif found.no_residuals:
        yield (
            "This site would take part, but DECLINE to send residuals, which "
            f"{found.standard_errors} standard errors need from every site:"
        )
        yield from (f"  - {reason}" for reason in found.no_residuals)
    else:
        yield "This site would take part."
    yield from (f"Note: {note}" for note in found.notes)


def _columns(found: SiteCheck) -> list[list[str]]:
    rows = []
    for name, column in found.profile.columns.items():
        levels = column.levels
        told = "too many" if levels is None else ", ".join(levels[:_SHOWN_LEVELS])
        if levels and len(levels) > _SHOWN_LEVELS:
            told += f", ... ({len(levels)} in all)"
        ends = found.ranges.get(name)
        ends_told = ["", ""] if ends is None else [f"{ends.low:g}", f"{ends.high:g}"]
        rows.append([name, column.kind, str(column.missing), *ends_told, told])
    return rows


def _outcomes(sent: Encoded | Answer, coding: Coding) -> list[str]:
    """Return the columns of y: the targets, or one for each label."""
    target, *_ = targets = list(coding.target_names)
    return [f"{target}={label}" for label in _labels(sent)] or targets


def _labels(sent: Encoded | Answer) -> list[str]:
    """Return the labels of y that would be sent; there are none of numbers."""
    told = bytes(sent.arrays.get("labels", b""))
    return json.loads(told) if told else []


def _values(sent: Encoded | Answer) -> dict[str, Any]:
    """Return everything in an answer, as JSON can have it."""
    found = {name: array.tolist() for name, array in sent.arrays.items()}
    return found | ({"labels": _labels(sent)} if "labels" in found else {})


def _sent_lines(
    found: SiteCheck, sent: Encoded | Answer, coding: Coding
) -> Iterator[str]:
    linear, columns = found.family == "gaussian", _outcomes(sent, coding)
    numbers = sum(a.size for name, a in sent.arrays.items() if name != "labels")
    size = sum(array.nbytes for array in sent.arrays.values())
    yield (
        f"In the {'' if linear else 'first '}round, the server would receive the "
        f"number of rows ({sent.count}), "
        f"and the means and co-moments of {counted(len(coding.names), 'feature')} and "
        f"{counted(len(columns), 'label' if _labels(sent) else 'target')}: "
        f"{numbers} numbers, {human_bytes(size)}."
    )
    if not linear:
        yield (
            f"In each of up to {FAMILY_ROUNDS} more rounds the server would choose "
            "coefficients and receive the deviance and the co-moments of the rows, "
            "weighted by these coefficients."
        )
    elif found.standard_errors in POWERS and not found.no_residuals:
        yield (
            "In one more round, the server would receive sums of squared residuals of "
            "its model, and of their products with the features."
        )
    yield f"Features: {', '.join(coding.names)}."
    yield ""
