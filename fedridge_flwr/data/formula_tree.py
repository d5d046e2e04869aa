"""What may stand in a formula: read as a tree, before anything is evaluated.

The algebra (``+``, ``:``, ``*``) is formulaic's. What it would run as Python is read
here first: names, ``C()``, arithmetic and a few functions of one value. Functions that
look at all rows (``scale``, ``poly``, ``bs``) would code every site in its own way, and
are refused.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._text import quoted
from ..errors import FedRidgeError

FUNCTIONS = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
}
"""What may be applied to a column: functions of each value by itself."""

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
COMPARISONS = "Comparisons are not supported: make a column of 0 and 1 in every table."
_SITE_DEPENDENT = (
    *("scale", "center", "standardize", "poly"),
    *("bs", "ns", "cs", "cc", "cr"),
)
_FACTOR = re.compile(r"(?<![\w.])((?:as\.)?factor)\s*\(\s*(`[^`]*`|[\w.]+)?")
_MOST_TERMS = 2_000
_MOST_STEPS = 20_000
_LARGEST_POWER = 3
_LARGEST_EXPONENT = 16
_IN_QUOTES = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
_QUOTED = re.compile(r"`([^`]*)`")
# formulaic writes the text of a call into code of its own, where these would end it.
_NO_LEVEL = re.compile(r"[`'\"\\{}\x00-\x1f]")


@dataclass(frozen=True)
class Facts:
    """Columns of a formula: of its left side, its right side, and what they are.

    Of every term on the right, `terms` has the columns of its factors, "" for one that
    is computed; `references` has the levels that Treatment() names.
    """

    targets: tuple[str, ...]
    features: tuple[str, ...]
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    intercept: bool
    computed_targets: bool
    terms: tuple[tuple[str, ...], ...]
    references: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Factor:
    """One factor of a term: its columns, and whether it is a category."""

    columns: tuple[str, ...]
    category: bool = False
    computed: bool = False
    reference: str = ""

    @property
    def plain(self) -> bool:
        """Whether it is a column by itself."""
        return not (self.category or self.computed)


def facts_of(parsed: Any) -> Facts:
    """Return which columns a parsed formula has, and which are categories."""
    left: list[str] = []
    right: list[str] = []
    numbers: list[str] = []
    categories: list[str] = []
    plain: list[str] = []
    terms: list[tuple[str, ...]] = []
    references: list[tuple[str, str]] = []
    intercept = False
    outcomes = [_factor(f) for term in parsed.lhs for f in term.factors]
    left += [c for each in outcomes for c in each.columns]
    for term in parsed.rhs:
        intercept |= all(f.eval_method.value == "literal" for f in term.factors)
        factors = [_factor(f) for f in term.factors]
        terms.append(
            tuple("" if f.computed else f.columns[0] for f in factors if f.columns)
        )
        for each in factors:
            right += each.columns
            numbers += each.columns if each.computed else ()
            categories += each.columns if each.category else ()
            plain += each.columns if each.plain else ()
            references += [(c, each.reference) for c in each.columns if each.reference]
    both = sorted(set(categories) & {*numbers, *plain, *left})
    if both:
        raise FedRidgeError(
            f"formula: {quoted(both)} is a category in C() and something else in "
            "another term. Use C() in all terms, or a second column."
        )
    twice = sorted(set(left) & set(right))
    if twice:
        raise FedRidgeError(f"formula: {quoted(twice)} is on both sides.")
    targets, features, computed, coded = (
        tuple(dict.fromkeys(each)) for each in (left, right, numbers, categories)
    )
    by_function = any(each.computed for each in outcomes)
    return Facts(
        *(targets, features, computed, coded, intercept, by_function),
        terms=tuple(terms),
        references=tuple(dict.fromkeys(references)),
    )


def check_terms(parsed: Any, *, takes_all: bool) -> None:
    """Refuse whatever is neither a column nor a known function of one."""
    if len(parsed.rhs) > _MOST_TERMS:
        raise FedRidgeError(f"formula: {len(parsed.rhs)} terms, {_MOST_TERMS} at most.")
    for term in parsed.lhs:
        found = [_factor(each) for each in term.factors]
        if len(found) != 1 or found[0].category or not found[0].columns:
            raise FedRidgeError(
                "formula: a target must be a column of numbers, or a function of one, "
                'as in "log(income) ~ age".'
            )
    for term in parsed.rhs:
        methods = {each.eval_method.value for each in term.factors}
        if "literal" in methods and len(methods) > 1:
            raise FedRidgeError("formula: write a multiple in I(), as in I(2*age).")
    facts = facts_of(parsed)
    if not facts.features and not takes_all:
        raise FedRidgeError("formula: it has no features.")
    _refuse_called(parsed, {*facts.features, *facts.targets})


def _refuse_called(parsed: Any, columns: Iterable[str]) -> None:
    """Refuse a column that formulaic would take for the function of the same name."""
    factors = (f for side in (parsed.lhs, parsed.rhs) for t in side for f in t.factors)
    called = {name for f in factors for name in re.findall(r"(\w+)\s*\(", f.expr)}
    both = sorted(called & set(columns) & {*FUNCTIONS, "C", "I", "Treatment"})
    if both:
        raise FedRidgeError(
            f"formula: {quoted(both)} is a column and a function. Rename the column "
            "in the tables."
        )


def _factor(factor: Any) -> _Factor:
    """Return what a factor is made of, or raise what must not be in it."""
    method = factor.eval_method.value
    if method == "literal":
        return _Factor(())
    if method == "lookup":
        return _Factor((factor.expr,))
    tree, names = _as_evaluated(factor.expr)
    if isinstance(tree, ast.Call) and _called(tree) == "C":
        column, reference = _category(tree, names)
        return _Factor((column,), category=True, reference=reference)
    found = _arithmetic(tree, names)
    if not found:
        raise FedRidgeError("formula: a term without any column.")
    return _Factor(tuple(dict.fromkeys(found)), computed=True)


def _as_evaluated(text: str) -> tuple[ast.expr, dict[str, str]]:
    """Return an expression as formulaic will run it, and which columns names stand for.

    Where quoted names and strings end is formulaic's to say: by other rules, text that
    is a name here could be code there.
    """
    from formulaic.utils.code import sanitize_variable_names

    names: dict[str, str] = {}
    taken = dict.fromkeys(re.findall(r"\w+", text))
    try:
        code = sanitize_variable_names(text, taken, names)
        return ast.parse(code, mode="eval").body, names
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        raise FedRidgeError("formula: it is not an expression.") from None


def _called(tree: ast.Call) -> str:
    return tree.func.id if isinstance(tree.func, ast.Name) else ""


def _category(tree: ast.Call, names: Mapping[str, str]) -> tuple[str, str]:
    """Return column and level in C(column) or C(column, Treatment("level"))."""
    match tree:
        case ast.Call(args=[ast.Name(id=column)], keywords=[]):
            return names.get(column, column), ""
        case ast.Call(args=[ast.Name(id=column), contrast], keywords=[]):
            reference = _reference(contrast)
            if reference:
                return names.get(column, column), reference
    raise FedRidgeError(
        'formula: C() takes a column, as in C(sex) or C(stage, Treatment("2")). Levels '
        "are agreed across all sites, or given as levels=, of which the first is the "
        "reference; Treatment() takes none with quotes or backslashes."
    )


def _reference(tree: ast.AST) -> str:
    """Return the level in Treatment("level"), "" if it is anything else."""
    if not isinstance(tree, ast.Call) or _called(tree) != "Treatment":
        return ""
    given = [*tree.args, *(k.value for k in tree.keywords if k.arg == "reference")]
    one = len(given) == 1 == len(tree.args) + len(tree.keywords)
    level = given[0].value if one and isinstance(given[0], ast.Constant) else None
    return level if isinstance(level, str) and not _NO_LEVEL.search(level) else ""


def _arithmetic(tree: ast.AST, names: Mapping[str, str]) -> list[str]:
    """Return the columns of an expression in which nothing else occurs."""
    match tree:
        case ast.Name(id=name):
            return [names.get(name, name)]
        case ast.Constant(value=int() | float()) if not isinstance(tree.value, bool):
            return []
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            return _arithmetic(inner, names)
        case ast.BinOp(op=ast.Pow(), left=left, right=exponent):
            found = _arithmetic(left, names)
            if found and _is_small_number(exponent):
                return found
            raise FedRidgeError(
                "formula: ** takes a column and a number of at most "
                f"{_LARGEST_EXPONENT}, as in I(age**2)."
            )
        case ast.BinOp(op=op, left=left, right=right) if isinstance(op, _OPERATORS):
            return _arithmetic(left, names) + _arithmetic(right, names)
        case ast.Call(args=[inner], keywords=[]) if (
            _called(tree) == "I" or _called(tree) in FUNCTIONS
        ):
            return _arithmetic(inner, names)
    raise _not_allowed(tree)


def _is_small_number(tree: ast.AST) -> bool:
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        tree = tree.operand
    value = tree.value if isinstance(tree, ast.Constant) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _LARGEST_EXPONENT  # type: ignore[arg-type]


def _not_allowed(tree: ast.AST) -> FedRidgeError:
    if isinstance(tree, ast.Call) and _called(tree) in _SITE_DEPENDENT:
        return FedRidgeError(
            f"formula: {_called(tree)}() would use each site's own rows, so that the "
            "same column would have a different meaning at every site. Use "
            "standardize=True, or agreed constants as in I((age - 50) / 10)."
        )
    if isinstance(tree, ast.Compare):
        return FedRidgeError(f"formula: {COMPARISONS}")
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitXor):
        return FedRidgeError("formula: write a power with **, as in I(age**2).")
    return FedRidgeError(
        "formula: only columns, C(), I() with + - * / **, and "
        f"{', '.join(FUNCTIONS)} can be used."
    )


def algebra(text: str) -> str:
    """Return a formula without what is inside calls, {} and `quotes`."""
    found, depth = "", 0
    for part in re.split(r"(`[^`]*`|[\w.]\s*\(|[(){}])", text):
        opens = part == "{" or (part.endswith("(") and (len(part) > 1 or depth > 0))
        if depth == 0 and not part.startswith("`"):
            found += part
        depth += opens - (depth > 0 and part in (")", "}"))
    return found


def refuse_explosion(text: str, syntax: Any, n_available: int) -> None:
    """Refuse products of so many terms that to write them down takes forever.

    Parameters
    ----------
    text : str
        The formula.
    syntax : ASTNode or Token
        The same as formulaic reads it, before it multiplies anything out.
    n_available : int
        Columns that a point stands for.
    """
    powers = re.findall(r"(?:\*\*|\^)\s*(\w+)", algebra(text))
    too_high = any(not p.isdigit() or int(p) > _LARGEST_POWER for p in powers)
    if len(powers) > 1 or too_high or _most_terms(syntax, n_available) > _MOST_STEPS:
        raise FedRidgeError(
            f"formula: at most {_MOST_TERMS} terms and one power of at most "
            f"{_LARGEST_POWER}: write the interactions that you need as a:b."
        )


def _most_terms(syntax: Any, n_available: int) -> int:
    """Return a bound on the terms that any part of a formula stands for."""
    nodes = [syntax]
    for node in nodes:  # parents before their parts
        nodes += getattr(node, "args", ())
    sizes: dict[int, int] = {}
    for node in reversed(nodes):
        parts = [sizes[id(part)] for part in getattr(node, "args", ())]
        sign = str(getattr(node, "operator", ""))
        size = {"": 1, ".": n_available}.get(sign, sum(parts))
        if sign in (":", "*"):
            size += math.prod(parts)
        elif sign in ("**", "^"):
            size = parts[0] ** _LARGEST_POWER
        sizes[id(node)] = min(size, _MOST_STEPS + 1)
    return max(sizes.values())


def refuse_factor(text: str) -> None:
    """Say how a category is written, to those who know it from R."""
    found = _FACTOR.search(_IN_QUOTES.sub(lambda m: m[0].replace("(", "_"), text))
    if found is not None:
        raise FedRidgeError(
            f"formula: {found[1]}() is C() here: write C({found[2] or 'column'}) for a "
            "category."
        )


def refuse_within(text: str) -> None:
    """Refuse %in%, which formulaic reads as g/x, and R as g:x."""
    if re.search(r"%\s*in\s*%", _IN_QUOTES.sub("", text)):
        raise FedRidgeError(
            "formula: %in% is not supported: write x:g for x within the levels of g."
        )


def refuse_mistakable(text: str, available: Iterable[str]) -> None:
    """Refuse columns that formulaic takes for another term, and drops without a word.

    To it a column of the name 1 is the intercept, and one of the name log(x) is the
    logarithm of x.
    """
    bare = "".join(_QUOTED.sub(" ", text).split())
    for name in [*_QUOTED.findall(text), *available]:
        if name in ("0", "1") or ("(" in name and "".join(name.split()) in bare):
            raise FedRidgeError(
                f"formula: a column named {name!r} would be mistaken for another "
                "term. Rename it in the tables."
            )
