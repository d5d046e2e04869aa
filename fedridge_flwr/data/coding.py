"""`Coding`: columns of a table as the numbers of a model, alike at every site.

A formula says which columns; the coding adds what must be agreed on before two sites
can compute the same thing: the levels of categories, and what stands for missing
values. Columns and their names follow from it alone, and from no row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._files import strict_json
from .._text import quoted
from .._types import Array
from ..errors import DataError, FedRidgeError, PrivacyError
from .formula import TableFormula, import_formulaic
from .formula_tree import FUNCTIONS
from .table_errors import UnknownLevelsError, load_arrow, place_of
from .table_profile import MOST_LEVELS, is_finite_number
from .table_values import NotNumbersError, level_text, numbers, parse_numbers

MISSING_LEVEL = "(missing)"
_LARGEST_JSON = 16 << 20
_MOST_COLUMNS = 10_000


class CodedRows(NamedTuple):
    """Some rows as numbers; `kept` says which of the rows of the table they are.

    `level_counts` has the rows of every level, of every cell of an interaction of
    categories, and of numbers that something stands for where they are missing.
    """

    X: Array
    Y: Array | None
    weight: Array | None
    kept: NDArray[np.bool_]
    level_counts: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Coding:
    """How the columns of a table become the columns of X and Y.

    Parameters
    ----------
    formula : TableFormula
        What is wanted.
    columns : tuple of str
        Raw features in use.
    levels : mapping of str to sequence of str
        The levels of every category; the first is the reference, unless the formula
        says otherwise.
    means : mapping of str to float
        What stands for missing numbers.
    indicators : tuple of str
        Numbers that get another column, which is 1 where they are missing.

    Examples
    --------
    >>> coding = Coding(TableFormula("bp ~ age + C(sex)"), ("age", "sex"),
    ...                 {"sex": ("f", "m")})
    >>> coding.names, coding.target_names
    (('age', 'C(sex)[T.m]'), ('bp',))
    >>> import pyarrow as pa
    >>> table = {"bp": pa.array([120, 130]), "age": pa.array(["41", None]),
    ...          "sex": pa.array(["m", "f"])}
    >>> rows = coding.code(table)
    >>> rows.X, rows.Y, rows.kept
    (array([[41.,  1.]]), array([[120.]]), array([ True, False]))
    """

    formula: TableFormula
    columns: tuple[str, ...]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    indicators: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Equal codings have equal text."""
        return hash(self.to_json())

    @classmethod
    def public(cls, formula: TableFormula) -> Coding:
        """Return the coding that follows from a formula without looking at any table.

        Private releases must not be preceded by levels, counts and means of the rows.

        Raises
        ------
        PrivacyError
            If the formula leaves anything to be found out.
        """
        unknown = [c for c in formula.categories if c not in formula.levels]
        if unknown or formula.takes_all or formula.missing != "drop":
            raise PrivacyError(
                "with privacy, no site describes its table before the release. Give "
                f"levels= for {quoted(unknown) or 'all categories'}, name every "
                'column, and use missing="drop".'
            )
        known = with_canonical_levels(formula)
        return cls(known, known.columns, known.levels)

    # ---- names ------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coded features, without the intercept."""
        coded = tuple(self._features.column_names[self._n_intercept :])
        return coded + tuple(f"missing({column})" for column in self.indicators)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets."""
        return tuple(self._targets.column_names)

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """Every column of the table that a fit reads."""
        weights = [self.formula.weights] if self.formula.weights else []
        return tuple(dict.fromkeys([*self.columns, *self.formula.targets, *weights]))

    def describe(self) -> str:
        """Return formula, levels and what stands for missing values, as text."""
        formula = self.formula
        lines = [f"Formula: {formula.text}"]
        if formula.weights:
            lines.append(f"Weights: {formula.weights}")
        if formula.categorical:
            lines.append(f"Categorical: {', '.join(formula.categorical)}")
        for column, told in self.levels.items():
            declared = " (declared)" if column in formula.levels else ""
            lines.append(f"Levels of {column}: {', '.join(told)}{declared}")
        lines.append(f"Missing values: {formula.missing}")
        for column, mean in self.means.items():
            lines.append(f"  {column}: {mean:.6g} in place of a missing value")
        return "\n".join(lines)

    # ---- rows -------------------------------------------------------------------

    def code(
        self,
        table: Mapping[str, Any],
        *,
        with_target: bool = True,
        unknown_is_missing: bool = False,
        quiet: bool = False,
    ) -> CodedRows:
        """Return the rows of a table, or of a part of it, as numbers.

        Parameters
        ----------
        table : mapping of str to pyarrow array
            The columns.
        with_target : bool
            Whether targets and weights are read; new rows have none.
        unknown_is_missing : bool
            Whether a level that is not among those agreed on counts as missing.
        quiet : bool
            Whether what does not fit is missing, and its row dropped or not finite: in
            a private release, an error would tell that a record is there.

        Raises
        ------
        DataError
            If a column is not what it was agreed to be.
        """
        formula = self.formula
        outcome = [*formula.targets, *filter(None, [formula.weights])]
        values: dict[str, NDArray[Any]] = {
            c: self._column(table, c, unknown_is_missing, quiet) for c in self.columns
        }
        read = _numbers_or_nan if quiet else numbers
        values |= {c: _read(read, table, c) for c in outcome if with_target}
        blank = {column: _is_missing(found) for column, found in values.items()}
        n_rows = len(next(iter(blank.values())))
        filled = {c for c in self.columns if c in self.means}
        required = [blank[c] for c in values if c not in filled]
        kept = ~np.logical_or.reduce([*required, np.zeros(n_rows, dtype=bool)])
        if formula.missing == "error" and not quiet and not kept.all():
            bad = [c for c in values if blank[c].any()]
            told = ", ".join(f"{int(blank[c].sum())} in {c!r}" for c in bad)
            raise DataError(
                f'values are missing ({told}), which missing="error" does not allow.'
            )
        marks = [blank[c] for c in self.indicators]
        for column in filled:
            values[column] = np.where(blank[column], self.means[column], values[column])
        values = {c: found[kept] for c, found in values.items()}
        counts = {c: _counts(values[c], told) for c, told in self.levels.items()}
        counts |= {":".join(c): self._cells(values, c) for c in self._crossed}
        for column in filled:
            gaps = int(blank[column][kept].sum())
            present = int(kept.sum()) - gaps
            counts[f"missing({column})"] = {"yes": gaps, "no": present}
        frame = _frame(values, self.levels)
        X = self._design(self._features, frame, quiet)[:, self._n_intercept :]
        if marks:
            X = np.column_stack([X, *(mark[kept].astype(np.float64) for mark in marks)])
        if not with_target:
            return CodedRows(X, None, None, kept, counts)
        weight = values[formula.weights] if formula.weights else None
        Y = self._design(self._targets, frame, quiet)
        return CodedRows(X, Y, weight, kept, counts)

    def _column(
        self, table: Mapping[str, Any], column: str, lenient: bool, quiet: bool
    ) -> NDArray[Any]:
        """Return numbers with NaN, or codes of levels with -1, where missing."""
        found: NDArray[Any]
        if column not in self.levels:
            found = _read(_numbers_or_nan if quiet else numbers, table, column)
            return found
        found, known = _read(_codes, table, column, self.levels[column])
        if not known.all() and not (lenient or quiet):
            raise UnknownLevelsError(table, column, ~known)
        levels = list(self.levels[column])
        if self.formula.missing == "indicator" and MISSING_LEVEL in levels:
            return np.where((found < 0) & known, levels.index(MISSING_LEVEL), found)
        return found

    def _cells(
        self, values: Mapping[str, NDArray[Any]], columns: Sequence[str]
    ) -> dict[str, int]:
        """Return how many rows have each combination of levels that occurs."""
        shape = [len(self.levels[c]) for c in columns]
        place = np.ravel_multi_index([values[c] for c in columns], shape)
        cells, found = np.unique(place, return_counts=True)
        return dict(zip(map(str, cells.tolist()), found.tolist(), strict=True))

    def _design(self, spec: Any, frame: Any, quiet: bool) -> Array:
        with np.errstate(all="ignore"):
            found = spec.get_model_matrix(frame, context=_context())
        values = np.asarray(found, dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values).all(axis=0))
        if bad.size and not quiet:
            j, names = int(bad[0]), spec.column_names
            count = int((~np.isfinite(values[:, j])).sum())
            raise DataError(
                f"{names[j]} is not a finite number in {count} row(s), as log(0) is, "
                "for example. Remove these rows from the table, or use another "
                "function."
            )
        return values

    # ---- terms ------------------------------------------------------------------

    @property
    def computes(self) -> bool:
        """Whether columns are functions, arithmetic or products of numbers."""
        numbers = ([c for c in t if c not in self.levels] for t in self._terms)
        return self.formula.computes or any(len(found) > 1 for found in numbers)

    @cached_property
    def _terms(self) -> tuple[tuple[str, ...], ...]:
        return self.formula.terms(self._available)

    @property
    def _crossed(self) -> list[tuple[str, ...]]:
        """Categories of each interaction that has several."""
        found = (tuple(c for c in term if c in self.levels) for term in self._terms)
        return [columns for columns in dict.fromkeys(found) if len(columns) > 1]

    def _refuse_size(self) -> None:
        """Refuse a coding of which one row would fill the memory."""
        for column, told in self.levels.items():
            if len(told) > MOST_LEVELS + 1:  # and one for missing values
                raise FedRidgeError(
                    f"column {column!r} has {len(told)} levels; at most {MOST_LEVELS} "
                    "are allowed."
                )
        known = {column: len(told) for column, told in self.levels.items()}
        width = sum(math.prod(known.get(c, 1) for c in term) for term in self._terms)
        if width > _MOST_COLUMNS:
            raise FedRidgeError(
                f"formula: it makes {width} columns; at most {_MOST_COLUMNS} are "
                "allowed. Remove interactions of categories that have many levels."
            )

    def _refuse_references(self) -> None:
        """Refuse Treatment() with a level that there is not."""
        for column, reference in self.formula.references:
            levels = self.levels.get(column, ())
            if reference not in levels:
                raise FedRidgeError(
                    f"formula: {column!r} has no level {reference!r} that Treatment() "
                    f"could compare with. Its levels are {quoted(levels, most=12)}."
                )

    # ---- formulaic --------------------------------------------------------------

    @property
    def _n_intercept(self) -> int:
        return int(self.formula.intercept)

    @cached_property
    def _features(self) -> Any:
        return self._spec("rhs")

    @cached_property
    def _targets(self) -> Any:
        return self._spec("lhs")

    def _spec(self, side: str) -> Any:
        """Return what formulaic makes of columns of these kinds, from no row of data.

        It learns levels from rows, so it is shown as many rows as the longest category
        has levels: every level once, and ones for numbers.
        """
        self._refuse_size()
        self._refuse_references()
        height = max([2, *map(len, self.levels.values())])
        rows: dict[str, NDArray[Any]] = {
            c: np.arange(height) % len(told) for c, told in self.levels.items()
        }
        others = [*self.columns, *self.formula.targets]
        rows |= {c: np.ones(height) for c in others if c not in rows}
        parsed = getattr(self.formula.parsed(self._available), side)
        try:
            made = parsed.get_model_matrix(
                _frame(rows, self.levels),
                context=_context(),
                output="numpy",
                na_action="ignore",
            )
        except (import_formulaic().errors.FormulaicError, ValueError) as error:
            reason = str(error.__cause__ or error).split("\n")[0]
            raise FedRidgeError(f"formula: {reason}") from None
        return made.model_spec

    @property
    def _available(self) -> tuple[str, ...]:
        return (*self.formula.targets, *self.columns)

    # ---- on the wire and in files -----------------------------------------------

    def content(self) -> dict[str, Any]:
        """Return the coding as it is written to JSON."""
        return {
            **self.formula.content(),
            "columns": list(self.columns),
            "agreed_levels": {c: list(told) for c, told in self.levels.items()},
            "means": dict(self.means),
            "indicators": list(self.indicators),
        }

    def to_json(self) -> str:
        """Return the coding as text."""
        return json.dumps(self.content(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_content(cls, content: Any) -> Coding:
        """Return the coding in JSON of which nothing is trusted."""
        formula = TableFormula.from_content(content)
        columns, marks = content.get("columns"), content.get("indicators")
        levels, means = content.get("agreed_levels"), content.get("means")
        lists = [columns, marks, *(levels.values() if isinstance(levels, dict) else [])]
        texts = all(isinstance(each, list) and _are_texts(each) for each in lists)
        if not texts or not isinstance(levels, dict) or not isinstance(means, dict):
            raise FedRidgeError("the coding of the table is damaged.")
        if not all(map(is_finite_number, means.values())):
            raise FedRidgeError("the coding has a mean that is not a finite number.")
        if {*means} & {*levels} or len({*marks}) < len(marks) or {*marks} - {*means}:
            raise FedRidgeError(
                "the coding fills in missing values of a column that is not numeric."
            )
        expected = set(formula.used_columns(columns))
        named = {*levels, *means, *marks}
        if set(columns) != expected or not named <= expected:
            raise FedRidgeError("the coding has other columns than its formula.")
        agreed = {column: tuple(told) for column, told in levels.items()}
        if any(len(set(told)) < max(len(told), 1) for told in agreed.values()):
            raise FedRidgeError("the coding has a level twice, or none.")
        means = {column: float(mean) for column, mean in means.items()}
        return cls(formula, tuple(columns), agreed, means, tuple(marks))

    @classmethod
    def from_json(cls, text: Any) -> Coding:
        """Return the coding in a text of which nothing is trusted."""
        if not isinstance(text, str) or len(text) > _LARGEST_JSON:
            raise FedRidgeError("the coding of the table is not text, or too long.")
        return _coding_of(text)


# Every request of a fit has the same coding, and every client of a simulation.
@lru_cache(maxsize=16)
def _coding_of(text: str) -> Coding:
    try:
        return Coding.from_content(strict_json(text))
    except FedRidgeError:
        raise
    except ValueError as error:
        raise FedRidgeError(f"the coding of the table is damaged: {error}.") from None


def with_canonical_levels(formula: TableFormula) -> TableFormula:
    """Return a formula whose declared levels are spelled as those of tables are.

    Examples
    --------
    >>> formula = TableFormula("y ~ C(cp)", levels={"cp": ["1.0", "2"]})
    >>> with_canonical_levels(formula).levels
    {'cp': ('1', '2')}
    """
    if not formula.levels:
        return formula
    pa = load_arrow()
    found = {
        column: level_text(pa.array(list(told), pa.string())).to_pylist()
        for column, told in formula.levels.items()
    }
    for column, told in found.items():
        if None in told or len(set(told)) < len(told):
            raise FedRidgeError(
                f"levels of {column!r} must be distinct, and none may be empty."
            )
    return replace(formula, levels=found)


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(each, str) and each.isprintable() for each in values)


def _is_missing(found: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(found) if found.dtype.kind == "f" else found < 0


def _read(convert: Any, table: Mapping[str, Any], column: str, *more: Any) -> Any:
    """Return a converted column; an error says which column it was."""
    if column not in table:
        raise DataError(f"the table has no column {column!r}.")
    try:
        return convert(table[column], *more)
    except NotNumbersError as error:
        place = place_of(table, error.first)
        raise DataError(f"column {column!r} {error.problem(place)}") from None
    except DataError as error:
        raise DataError(f"column {column!r}: {error}") from None


def _numbers_or_nan(array: Any) -> NDArray[np.float64]:
    values, bad, _ = parse_numbers(array)
    return np.where(bad, np.nan, values)


def _codes(array: Any, levels: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the places of values among levels, -1 elsewhere, and which are known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = level_text(array)
    found = pc.index_in(text, value_set=pa.array(levels, pa.string()))
    codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
    present = pc.is_valid(text).to_numpy(zero_copy_only=False)
    return codes, (codes >= 0) | ~present


def _counts(codes: NDArray[Any], levels: Sequence[str]) -> dict[str, int]:
    found = np.bincount(codes, minlength=len(levels)).tolist()
    return dict(zip(levels, found, strict=True))


def _frame(values: Mapping[str, NDArray[Any]], levels: Mapping[str, Any]) -> Any:
    """Return columns as the data frame that formulaic reads."""
    import pandas as pd

    return pd.DataFrame(
        {
            column: pd.Categorical.from_codes(found, categories=list(levels[column]))
            if column in levels
            else found
            for column, found in values.items()
        }
    )


def _context() -> dict[str, Any]:
    contrasts = import_formulaic().transforms.contrasts
    return {
        **FUNCTIONS,
        "Treatment": lambda reference: contrasts.TreatmentContrasts(base=reference),
    }
