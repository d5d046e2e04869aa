"""`TableFormula`: which columns of a table a model is made of, and how."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from .._checks import check_choice, must_be
from .._text import nearest
from ..errors import FedRidgeError
from .formula_hints import misplaced, refuse_foreign, slip
from .formula_tree import (
    COMPARISONS,
    Facts,
    algebra,
    check_terms,
    facts_of,
    refuse_explosion,
    refuse_factor,
    refuse_mistakable,
    refuse_within,
)

MISSING = ("drop", "mean", "indicator", "error")
"""What becomes of rows in which a value is missing."""

_LONGEST = 10_000
_COMPARES = re.compile(r"Unknown operator '[<>=!]")
_EQUALS = re.compile(r"Unknown operator '='")
_COMPARED = re.compile("[<>=!]=")
_TILDE = (
    'formula: write ~ between the target and the features, as in "bp ~ age", not =.'
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|[⧛⧚]")


@dataclass(frozen=True)
class TableFormula:
    """A formula as R and statsmodels write it, for tables with the same columns.

    Parameters
    ----------
    text : str
        As in ``"bp ~ age + C(sex) + age:bmi + I(age**2) + log(income)"``; several
        targets as in ``"y1 + y2 ~ x"``; ``"y ~ ."`` takes all other columns, ``0 +``
        leaves the intercept out. Text columns are categories, whether in ``C()`` or
        not; ``C(cp, Treatment("4"))`` compares with level 4.
    categorical : sequence of str
        Columns that are categories although they look like numbers, without ``C()``.
    levels : mapping of str to sequence of str
        Levels that are known beforehand. Sites are asked for all others.
    missing : {"drop", "mean", "indicator", "error"}
        "drop" drops rows in which a column of the formula is missing. "mean" replaces
        missing numbers by the mean over all sites. "indicator" also adds a column that
        marks them, and a level for missing categories. "error" allows none. Rows
        without a target are always dropped.
    weights : str
        Column of sample weights.

    Examples
    --------
    >>> from fedridge_flwr import TableFormula
    >>> formula = TableFormula("bp ~ age + C(sex) + log(income)")
    >>> formula.columns, formula.targets, formula.categories
    (('age', 'sex', 'income'), ('bp',), ('sex',))
    >>> TableFormula("bp ~ scale(age)")
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: formula: scale() would use each site's own \
rows, so that the same column would have a different meaning at every site. Use \
standardize=True, or agreed constants as in I((age - 50) / 10).
    """

    text: str
    categorical: Sequence[str] = ()
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: str = "drop"
    weights: str = ""

    def __post_init__(self) -> None:
        """Read the formula, so that nothing else is ever evaluated."""
        if not isinstance(self.text, str) or not 0 < len(self.text) <= _LONGEST:
            expected = f"text of at most {_LONGEST} characters"
            raise must_be("formula", expected, self.text)
        check_choice("missing", self.missing, MISSING)
        if not isinstance(self.weights, str):
            raise must_be("weights", "the name of a column", self.weights)
        if isinstance(self.categorical, str):
            raise must_be("categorical", "a list of columns", self.categorical)
        # As in files: é is one sign, and not an e with an accent.
        object.__setattr__(self, "text", _composed(self.text))
        object.__setattr__(self, "weights", _composed(self.weights))
        categorical = tuple(_composed(str(column)) for column in self.categorical)
        object.__setattr__(self, "categorical", categorical)
        given = dict(self.levels)
        if text := [column for column, each in given.items() if isinstance(each, str)]:
            expected = f"a list of levels for {text[0]!r}"
            raise must_be("levels", expected, given[text[0]])
        levels = {_composed(str(c)): tuple(map(str, v)) for c, v in given.items()}
        for column, told in levels.items():
            if len(set(told)) < max(len(told), 1):
                raise FedRidgeError(
                    f"levels of {column!r} must be distinct, and at least one."
                )
        object.__setattr__(self, "levels", levels)
        self.parsed(())
        if not self.takes_all:
            self.refuse_others(self.columns)
        if self.weights in {*self.columns, *self.targets}:
            raise FedRidgeError(
                f"formula: {self.weights!r} is the column of weights, so it cannot "
                "also be in the formula."
            )

    @classmethod
    def of(
        cls,
        target: str | Sequence[str],
        features: str | Sequence[str] | None = None,
        **options: Any,
    ) -> TableFormula:
        """Return the formula of a target and plain features, by default all others.

        Examples
        --------
        >>> from fedridge_flwr import TableFormula
        >>> TableFormula.of("bp", ["age", "body mass"]).text
        '`bp` ~ `age` + `body mass`'
        """
        right = "." if features is None else _sum_of(features)
        return cls(f"{_sum_of(target)} ~ {right}", **options)

    def refuse_others(self, columns: Sequence[str]) -> None:
        """Refuse levels and categories of what is none of the features.

        They would have no effect, and a misspelt name would not be noticed.
        """
        for what, named in (("levels", self.levels), ("categorical", self.categorical)):
            for name in named:
                if name in columns:
                    continue
                close = nearest(name, columns)
                raise FedRidgeError(
                    f"{what}: {name!r} is not among the features of the formula"
                    + (f": is {close!r} meant?" if close else ".")
                )

    # ---- what is in it ----------------------------------------------------------

    @property
    def takes_all(self) -> bool:
        """Whether the columns are all that the tables have."""
        return bool(re.search(r"(?<![\w.)])\.(?![\w.])", algebra(self.text)))

    @cached_property
    def _facts(self) -> Facts:
        return facts_of(self.parsed(()))

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept."""
        return self._facts.intercept

    @property
    def targets(self) -> tuple[str, ...]:
        """Columns of the left-hand side."""
        return self._facts.targets

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the right-hand side, as far as they are named."""
        return self._facts.features

    @property
    def categories(self) -> tuple[str, ...]:
        """Columns that are categories whatever they look like."""
        known = dict.fromkeys([*self._facts.categories, *self.categorical])
        return tuple(known)

    @property
    def computes(self) -> bool:
        """Whether it has functions or arithmetic, and not only columns as they are."""
        return bool(self._facts.numbers) or self._facts.computed_targets

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must be numbers, because they are computed with."""
        return tuple(dict.fromkeys([*self._facts.targets, *self._facts.numbers]))

    @property
    def references(self) -> tuple[tuple[str, str], ...]:
        """Columns and the levels that Treatment() compares them with."""
        return self._facts.references

    def terms(self, available: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the columns of the factors of every term, "" for a computed one."""
        return facts_of(self.parsed(available)).terms

    def used_columns(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the features in use, where the tables have these columns."""
        if not self.takes_all:
            return self.columns
        others = [c for c in available if c != self.weights]
        return facts_of(self.parsed(others)).features

    def parsed(self, available: Sequence[str]) -> Any:
        """Return formulaic's own form of the formula, all of it checked."""
        return _parsed(self.text, tuple(available), self.takes_all)

    # ---- on the wire and in files -----------------------------------------------

    def content(self) -> dict[str, Any]:
        """Return the formula as it is written to JSON."""
        return {
            "formula": self.text,
            "categorical": list(self.categorical),
            "levels": {column: list(told) for column, told in self.levels.items()},
            "missing": self.missing,
            "weights": self.weights,
        }

    @classmethod
    def from_content(cls, content: Any) -> TableFormula:
        """Return the formula in JSON of which nothing is trusted."""
        if not isinstance(content, dict):
            raise must_be("formula", "an object", content)
        levels, listed = content.get("levels", {}), content.get("categorical", [])
        lists = [listed, *(levels.values() if isinstance(levels, dict) else [0])]
        if not all(isinstance(each, list) for each in lists):
            raise FedRidgeError("formula: levels and categorical must be lists.")
        text, missing = content.get("formula"), content.get("missing", "drop")
        weights: Any = content.get("weights", "")
        return cls(text, listed, levels, missing, weights)  # type: ignore[arg-type]


def as_formula(given: object) -> TableFormula | None:
    """Return a formula that is given as such, or as text."""
    if given is None or isinstance(given, TableFormula):
        return given
    if isinstance(given, str):
        return TableFormula(given)
    raise must_be("formula", "text or a TableFormula", given)


def formula_of(formula: str, target: str, features: str, **more: Any) -> TableFormula:
    """Return the formula in texts that people type, given in one of two ways.

    Examples
    --------
    >>> formula_of("", "bp", "age, sex", categorical="sex").text
    '`bp` ~ `age` + `sex`'
    """
    if not formula and not target:
        raise FedRidgeError(
            'there is no formula: give one, as in -f "bp ~ age + C(sex)", or a target.'
        )
    if formula and target:
        raise FedRidgeError(
            "a formula and a target are given: leave one of them out, since a formula "
            "names its own target."
        )
    if formula and features:
        raise FedRidgeError(
            "features can be given only with target; a formula names its own features."
        )
    more["categorical"] = names_in(more.get("categorical", ""))
    more["levels"] = _levels_in(more.get("levels", ""))
    if formula:
        return TableFormula(formula, **more)
    return TableFormula.of(names_in(target), names_in(features) or None, **more)


def names_in(text: str) -> list[str]:
    """Return the names in a list that is separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _levels_in(text: str) -> dict[str, list[str]]:
    """Return the levels in a text such as ``"stage=1|2|3; sex=f|m"``."""
    found = {}
    for part in filter(str.strip, text.split(";")):
        column, equals, levels = part.partition("=")
        if not equals:
            raise FedRidgeError('levels are written as in "stage=1|2|3; sex=f|m".')
        found[column.strip()] = [level.strip() for level in levels.split("|")]
    return found


def import_formulaic() -> Any:
    """Return the library that knows the algebra of formulas."""
    try:
        import formulaic
    except ImportError:
        raise FedRidgeError(
            "tables and formulas need more packages: pip install "
            "'fedridge-flwr[tables]'."
        ) from None
    return formulaic


# Every request of a fit has the same formula, and every client of a simulation.
@lru_cache(maxsize=64)
def _parsed(text: str, available: tuple[str, ...], takes_all: bool) -> Any:
    formulaic = import_formulaic()
    refuse_mistakable(text, available)
    refuse_factor(text)
    refuse_foreign(text)
    refuse_within(text)
    known = {"__formulaic_variables_available__": list(available)}
    try:
        parser = formulaic.parser.DefaultFormulaParser()
        syntax = parser.get_ast(text, context=known)
        refuse_explosion(text, syntax, len(available))
        found = formulaic.Formula.from_spec(text, context=known)
    except FedRidgeError:
        raise
    except (formulaic.errors.FormulaicError, SyntaxError, ValueError) as error:
        reason = _COLOUR.sub("", str(error)).split("\n")[0].rstrip(".")
        if _EQUALS.search(reason) and not _COMPARED.search(text):
            raise FedRidgeError(_TILDE) from None
        reason = slip(text) or misplaced(reason)
        hint = f" {COMPARISONS}" if _COMPARES.search(reason) else ""
        raise FedRidgeError(f"formula: {reason}.{hint}") from None
    except (RecursionError, MemoryError):
        raise FedRidgeError("formula: it is nested too deeply.") from None
    if not hasattr(found, "lhs") or isinstance(found.rhs, tuple):
        raise FedRidgeError(
            'formula must be "target ~ features", as in "bp ~ age + C(sex)".'
        )
    check_terms(found, takes_all=takes_all)
    return found


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _sum_of(names: str | Sequence[str]) -> str:
    names = [names] if isinstance(names, str) else names
    for name in names:
        if "`" in name:
            raise FedRidgeError(
                f"column names in a formula must not contain `, got {name!r}."
            )
    return " + ".join(f"`{name}`" for name in names)
