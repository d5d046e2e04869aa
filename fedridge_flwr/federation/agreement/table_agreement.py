"""Tables of several sites: one coding for all, and which sites it does not fit.

==============================  =====================================================
at some sites                   what becomes of it
==============================  =====================================================
a column is not there           the site does not fit
a column that few others have   ``y ~ .`` takes the columns of more than half of them
numbers here, text there        the smaller group does not fit; C() makes it a category
a date                          the site does not fit
every value is missing          does not fit, unless missing values are filled in
a level that others lack        levels of all sites together are the levels
a level that was not declared   does not fit, where ``levels=`` says which there are
constant                        fine: other sites vary
other order of the columns      fine: columns go by their names
==============================  =====================================================

Sites that do not fit are left out and named; with ``strict=True`` that ends the fit.
Levels that are spelled alike, and categories of one level, are nobody's fault alone,
and end it in any case.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from ..._text import quoted
from ...data.coding import MISSING_LEVEL, Coding, with_canonical_levels
from ...data.formula import TableFormula
from ...data.table_profile import (
    MOST_LEVELS,
    MOST_UNDECLARED,
    ColumnProfile,
    TableProfile,
)
from ...errors import FedRidgeError
from ..aggregate import Answers

_FILLED = "missing in all rows, and filled in by the mean over the other sites"
_SHOWN = 5
_ELSEWHERE = "(level of other sites)"
_ANY_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")


@dataclass
class TableAnswers(Answers):
    """Profiles of the tables of all sites, and the coding that they agree on."""

    coding: Coding | None = None

    @property
    def filled(self) -> dict[str, str]:
        """Clients of which a whole column is filled in, in words."""
        means = () if self.coding is None else self.coding.means
        found = {
            client: [
                column
                for column in means
                if column in profile.columns and profile.columns[column].kind == "empty"
            ]
            for client, profile in self.parts.items()
        }
        return {
            client: f"its column {quoted(names)} is {_FILLED}"
            for client, names in found.items()
            if names
        }

    def agree(self, formula: TableFormula) -> None:
        """Find the coding for all sites that have the columns for it."""
        profiles = {c: self.parts[c] for c in sorted(self.parts)}
        if profiles:
            self.coding, misfits = agree_on_coding(formula, profiles)
            for client, reason in misfits.items():
                self.failures[client] = reason


@dataclass
class _Tables:
    """Profiles by site, and reasons why some of them do not fit.

    If it is one of several tables, what it lacks may be at the others: `notes` say so.
    """

    formula: TableFormula
    profiles: Mapping[str, TableProfile]
    misfits: dict[str, list[str]] = field(default_factory=dict)
    one_of_several: bool = False
    notes: list[str] = field(default_factory=list)

    def column(self, name: str) -> dict[str, ColumnProfile]:
        """Return a column at the sites that have it and fit so far."""
        return {
            site: profile.columns[name]
            for site, profile in self.profiles.items()
            if name in profile.columns and site not in self.misfits
        }

    def refuse(self, site: str, reason: str) -> None:
        self.misfits.setdefault(site, []).append(reason)


def agree_on_coding(
    formula: TableFormula, profiles: Mapping[str, TableProfile]
) -> tuple[Coding, dict[str, str]]:
    """Return the coding of a formula, and why it does not fit some of the sites.

    Examples
    --------
    >>> a = TableProfile(9, 9, {"y": ColumnProfile("number"),
    ...     "cp": ColumnProfile("number", levels=("1", "2"))})
    >>> b = TableProfile(9, 9, {"y": ColumnProfile("number"),
    ...     "cp": ColumnProfile("text", levels=("2", "other"))})
    >>> c = TableProfile(9, 9, {"y": ColumnProfile("number")})
    >>> coding, misfits = agree_on_coding(TableFormula("y ~ C(cp)"),
    ...                                   {"a": a, "b": b, "c": c})
    >>> coding.levels, misfits
    ({'cp': ('1', '2', 'other')}, {'c': "the table has no column 'cp'"})
    """
    tables = _Tables(with_canonical_levels(formula), profiles)
    features, categories = _features_and_categories(tables)
    misfits = {site: "; ".join(why) for site, why in tables.misfits.items()}
    if len(misfits) == len(profiles):
        told = "\n".join(f"  client {site}: {why}" for site, why in misfits.items())
        raise FedRidgeError(f"no table matches the formula:\n{told}")
    return _coding(tables, features, categories), misfits


@dataclass
class OneOfSeveral:
    """How one table would be coded, as far as it decides that by itself.

    Attributes
    ----------
    coding : Coding or None
        Its coding; a level or a mean of other sites has a place, but no value.
    misfits : list of str
        Why it does not fit.
    notes : list of str
        What is left to the other sites.
    """

    coding: Coding | None
    misfits: list[str]
    notes: list[str]


def coding_of_one(formula: TableFormula, profile: TableProfile) -> OneOfSeveral:
    """Return what can be said of one table while the others are not known.

    Examples
    --------
    >>> men = TableProfile(9, 9, {"y": ColumnProfile("number"),
    ...     "sex": ColumnProfile("number", levels=("1",))})
    >>> found = coding_of_one(TableFormula("y ~ C(sex)"), men)
    >>> found.misfits, found.coding.levels["sex"]
    ([], ('1', '(level of other sites)'))
    >>> found.notes
    ["column 'sex' has only the level '1' here: there must be others at other sites."]
    """
    formula = with_canonical_levels(formula)
    tables = _Tables(formula, {"": profile}, one_of_several=True)
    try:
        features, categories = _features_and_categories(tables)
        if not tables.misfits:
            coding = _coding(tables, features, categories)
            return OneOfSeveral(coding, [], tables.notes)
    except ValueError as error:
        tables.refuse("", str(error).rstrip("."))
    return OneOfSeveral(None, tables.misfits[""], tables.notes)


def _features_and_categories(tables: _Tables) -> tuple[tuple[str, ...], list[str]]:
    """Return the columns in use; sites that they do not fit are misfits then."""
    formula = tables.formula
    features = formula.used_columns(_all_columns(tables.profiles))
    if not features:
        raise FedRidgeError("formula: the tables have no column beside the target.")
    formula.refuse_others(features)
    outcomes = [*formula.targets, *filter(None, [formula.weights])]
    for column in [*outcomes, *features]:
        _refuse_lacking(tables, column)
    for column in [*outcomes, *formula.numbers]:
        _refuse_unless_number(tables, column, outcome=column in formula.targets)
    categories = [c for c in features if _is_category(tables, c)]
    for column in [*outcomes, *features]:
        filled = column in features and _is_filled(formula, column in categories)
        _refuse_empty(tables, column, filled)
    _refuse_incomplete(tables)
    for column in categories:
        _refuse_levels(tables, column)
    return features, categories


def _coding(
    tables: _Tables, features: tuple[str, ...], categories: list[str]
) -> Coding:
    formula = tables.formula
    levels = {column: _levels(tables, column) for column in categories}
    numbers = [c for c in features if c not in categories]
    means = {c: _mean(tables, c) for c in numbers if _is_filled(formula, False)}
    marks = tuple(
        c for c in means if formula.missing == "indicator" and _gaps(tables, c)
    )
    coding = Coding(formula, features, levels, means, marks)
    _refuse_twice(coding)
    return coding


def _refuse_twice(coding: Coding) -> None:
    """Refuse a column of a table that is called what a coded one is called."""
    seen = Counter([*coding.names, *coding.target_names])
    twice = [name for name, n in seen.items() if n > 1]
    if twice:
        raise FedRidgeError(
            f"formula: several columns of the model would be called {quoted(twice)}. "
            "Rename that column in the tables."
        )


def _all_columns(profiles: Mapping[str, TableProfile]) -> tuple[str, ...]:
    """Return the columns that most tables have, in their order if all have the same.

    A column that one site alone has must not leave all others out.
    """
    orders = {tuple(profile.columns) for profile in profiles.values()}
    found = Counter(c for profile in profiles.values() for c in profile.columns)
    usual = [column for column, n in found.items() if 2 * n > len(profiles)]
    return next(iter(orders)) if len(orders) == 1 else tuple(sorted(usual))


def _refuse_lacking(tables: _Tables, column: str) -> None:
    for site, profile in tables.profiles.items():
        if column not in profile.columns:
            tables.refuse(site, f"the table has no column {column!r}")


def _refuse_unless_number(tables: _Tables, column: str, *, outcome: bool) -> None:
    for site, found in tables.column(column).items():
        if found.kind in ("number", "empty"):
            continue
        rows = tables.profiles[site].rows - found.missing
        reason = f"{_is_a(found)} and must be a number in this formula"
        if outcome and found.kind == "text" and found.n_text == rows:
            reason += ": for a yes/no outcome, write 1 for yes and 0 for no"
        tables.refuse(site, f"column {column!r} {reason}")


def _is_category(tables: _Tables, column: str) -> bool:
    """Whether a feature is a category: said so, or text at most of the sites."""
    formula = tables.formula
    if column in formula.categories or column in formula.levels:
        return True
    if column in formula.numbers:
        return False
    _refuse_kind(tables, column, "date")
    found = tables.column(column)
    text = [site for site, each in found.items() if each.kind == "text"]
    number = [site for site, each in found.items() if each.kind == "number"]
    is_text = len(text) > len(number)
    for site in (number if is_text else text) if text and number else ():
        tables.refuse(
            site,
            f"column {column!r} {_is_a(found[site])}, and "
            f"{('text' if is_text else 'a number')} at other sites. If it is a "
            f"category write C({column}), otherwise correct the table",
        )
    return is_text


def _refuse_kind(tables: _Tables, column: str, kind: str) -> None:
    for site, found in tables.column(column).items():
        if found.kind == kind:
            tables.refuse(
                site,
                f"column {column!r} {_is_a(found)}: convert it to a number, such as "
                "years since birth",
            )


def _is_a(found: ColumnProfile) -> str:
    if found.kind == "text":
        return f"has text in {found.n_text} row(s)"
    return f"is a {found.kind}"


def _is_filled(formula: TableFormula, category: bool) -> bool:
    """Whether something stands for missing values of a feature."""
    return formula.missing == "indicator" or (
        formula.missing == "mean" and not category
    )


def _refuse_empty(tables: _Tables, column: str, filled: bool) -> None:
    for site, found in tables.column(column).items():
        if found.kind == "empty" and not filled:
            rows = tables.profiles[site].rows
            reason = f"column {column!r} is missing in all {rows} rows"
            tables.refuse(site, reason if rows else "the table has no rows")


def _refuse_incomplete(tables: _Tables) -> None:
    """Name sites of which no row is left once incomplete rows are dropped."""
    if tables.formula.missing not in ("drop", "error"):
        return
    for site, profile in tables.profiles.items():
        if site not in tables.misfits and not profile.complete:
            worst = max(profile.missing, key=lambda c: profile.missing[c], default="")
            tables.refuse(
                site,
                f"no row has all columns; {worst!r} is missing in "
                f"{profile.missing.get(worst, 0)} of {profile.rows}",
            )


def _refuse_levels(tables: _Tables, column: str) -> None:
    """Name sites with too many levels, or others than were declared."""
    declared = tables.formula.levels.get(column)
    for site, found in tables.column(column).items():
        if found.levels is None and column in tables.formula.categories:
            tables.refuse(
                site,
                f"column {column!r} has more than {MOST_LEVELS} levels: is it an "
                "identifier, a date or free text?",
            )
        elif found.levels is None:
            numbers = tables.profiles[site].rows - found.missing - found.n_text
            also = f"numbers in {numbers}"
            if numbers < found.n_text:
                also = (
                    f"more than {MOST_UNDECLARED} different values, or numbers with "
                    "commas or signs"
                )
            tables.refuse(
                site,
                f"column {column!r} has text in {found.n_text} row(s), and {also}. If "
                "it is a number, correct these rows, or set the decimal mark or the "
                "missing markers of the file; if it is a category, write "
                f"C({column})",
            )
        elif declared is not None and not {*found.levels} <= {*declared}:
            unknown = sorted({*found.levels} - {*declared})[:_SHOWN]
            reason = f"column {column!r} has undeclared levels"
            tables.refuse(site, f"{reason}: {quoted(unknown)}")


def _levels(tables: _Tables, column: str) -> tuple[str, ...]:
    """Return the levels of a category at all sites together, sorted."""
    where: dict[str, list[str]] = {}
    for site, found in tables.column(column).items():
        for level in found.levels or ():
            where.setdefault(level, []).append(site)
    declared = tables.formula.levels.get(column)
    levels = sorted(where, key=_level_order) if declared is None else list(declared)
    _refuse_lookalikes(column, levels, where)
    if tables.one_of_several and declared is None:
        levels = _with_others(tables, column, levels)
    if tables.formula.missing == "indicator":
        if MISSING_LEVEL in levels:
            raise FedRidgeError(
                f"column {column!r} has a level {MISSING_LEVEL!r}, which stands for "
                "missing values: rename it in the tables."
            )
        levels += [MISSING_LEVEL] * _gaps(tables, column)
    if not 1 < len(levels) <= MOST_LEVELS:
        raise FedRidgeError(
            f"column {column!r} has {len(levels)} level(s) over all sites, and needs "
            f"2 to {MOST_LEVELS}: remove it from the formula, or correct the tables."
        )
    return tuple(levels)


def _with_others(tables: _Tables, column: str, levels: list[str]) -> list[str]:
    """Return levels with those that only other sites can have."""
    named = {level for c, level in tables.formula.references if c == column}
    absent = sorted(named - {*levels})
    if absent:
        tables.notes.append(
            f"column {column!r} does not have the level {quoted(absent)} of "
            "Treatment() here: it must be at another site."
        )
    found = sorted([*levels, *absent], key=_level_order)
    if len(found) > 1:
        return found
    has = f"only the level {found[0]!r}" if found else "no level"
    tables.notes.append(
        f"column {column!r} has {has} here: there must be others at other sites."
    )
    return [*found, _ELSEWHERE]


def _level_order(level: str) -> tuple[bool, float, str]:
    """Return the order of levels: numbers by size, then text."""
    is_number = bool(_NUMBER.fullmatch(level))
    return not is_number, float(level) if is_number else 0.0, level


def _refuse_lookalikes(
    column: str, levels: Iterable[str], where: Mapping[str, list[str]]
) -> None:
    """Refuse levels that are one level to people: 'Yes' and 'yes', '01' and '1'."""
    spellings: Mapping[str, Callable[[str], object]] = {
        "letters": lambda level: " ".join(level.casefold().split()),
        "number": _as_number,
    }
    for spelling in spellings.values():
        seen: dict[object, str] = {}
        for level in levels:
            other = seen.setdefault(spelling(level), level)
            if other != level:
                sites = [
                    f"{each!r} at {', '.join(f'client {s}' for s in where[each][:3])}"
                    for each in (other, level)
                    if each in where
                ]
                raise FedRidgeError(
                    f"column {column!r} has levels that differ only in spelling: "
                    f"{', '.join(sites)}. Use the same spelling in all tables."
                )


def _as_number(level: str) -> object:
    """Return a level as the number that another site may have written for it."""
    plain = {"true": "1", "false": "0"}.get(level, level).replace(",", ".")
    return Decimal(plain) if _ANY_NUMBER.fullmatch(plain) else level


def _gaps(tables: _Tables, column: str) -> bool:
    return any(found.missing for found in tables.column(column).values())


def _mean(tables: _Tables, column: str) -> float:
    """Return the mean over the rows of all sites in which a number is present."""
    found = tables.column(column)
    present = sum(tables.profiles[s].rows - each.missing for s, each in found.items())
    if not present and tables.one_of_several:
        tables.notes.append(
            f"column {column!r} is missing in all rows here: the mean over the other "
            "sites would stand for it."
        )
        return 0.0
    if not present:
        raise FedRidgeError(f"column {column!r} is missing at every site.")
    return math.fsum(part for each in found.values() for part in each.present_sum) / (
        present
    )
