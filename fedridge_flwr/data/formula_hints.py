"""What to write instead, for those who know formulas from R or have made a slip."""

from __future__ import annotations

import re

from ..errors import FedRidgeError
from .formula_tree import algebra

_IN_QUOTES = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
_CALL_IN_NAME = re.compile(r"`[^`(]*\([^`]*`")
_NAME = r"(`[^`]*`|[\w.]+)"
_LEVEL = r"(?:\"([^\"]*)\"|'([^']*)'|(\d[\d.]*))"
_RANDOM = re.compile(rf"\|\s*{_NAME}")
_RELEVEL = re.compile(
    rf"(?<![\w.])(?:relevel|C)\s*\(\s*(?:C\(|factor\()?\s*{_NAME}\s*\)?\s*,\s*"
    rf"(?:(?:ref|base|reference)\s*=\s*)?{_LEVEL}\s*\)"
)
_CALLED = re.compile(r"(?<![\w.])(relevel|offset|poly|cut|ifelse|Q)\s*\(")
_POLY = re.compile(rf"(?<![\w.])poly\s*\(\s*{_NAME}\s*,\s*(?:degree\s*=\s*)?([2-9])\b")
_FIRST = re.compile(rf"(?<![\w.])(?:cut|ifelse|Q|poly)\s*\(\s*['\"]?{_NAME}")
_ENDS = re.compile(r"(\*\*|[-+*/:~])$")
_MISPLACED = re.compile(r"Operator `(.+?)` has insuf+i?c?i?ent arguments")


def refuse_foreign(text: str) -> None:
    """Refuse what other programs know, and say what stands for it here.

    Examples
    --------
    >>> refuse_foreign("bp ~ age + relevel(sex, ref = 'm')")
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: formula: write C(sex, Treatment("m")) to \
compare with the level m.
    >>> refuse_foreign("bp ~ age + (1|hospital)")
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: formula: random effects such as (1|hospital) \
are not part of a formula: write C(hospital) for fixed effects, or use \
random_site_effects on the statistics of the sites.
    """
    # Long white space would take a regular expression long.
    told = _told(" ".join(text.split()))
    if told:
        raise FedRidgeError(f"formula: {told}")


def _told(text: str) -> str:
    bare = _IN_QUOTES.sub(lambda m: re.sub(r"[^`'\"]", "_", m[0]), text)
    if "|" in algebra(bare):
        name = _first(_RANDOM, text, "hospital")
        return (
            f"random effects such as (1|{name}) are not part of a formula: write "
            f"C({name}) for fixed effects, or use random_site_effects on the "
            "statistics of the sites."
        )
    # A name such as `C(x, 2)` is no call.
    found = _RELEVEL.search(_CALL_IN_NAME.sub("`_`", text))
    if found is not None:
        level = next(filter(None, found.groups()[1:]), "")
        return (
            f'write C({found[1]}, Treatment("{level}")) to compare with the level '
            f"{level}."
        )
    called = _CALLED.search(bare)
    return "" if called is None else _instead(called[1], text)


def _instead(function: str, text: str) -> str:
    """Return what to write in place of a call."""
    column = _first(_FIRST, text, "column")
    if function == "relevel":
        return 'write C(sex, Treatment("m")) for relevel(), to compare with a level.'
    if function == "offset":
        return (
            "offset() is not part of a formula. For counts with an exposure, a client "
            "app returns it with the rows: (X, y, weights, log of the exposure)."
        )
    if function == "poly":
        degree = int(_first(_POLY, text, "2", group=2))
        powers = " + ".join(f"I({column}**{k})" for k in range(2, degree + 1))
        return (
            "poly() would use each site's own rows, so that the same column would have "
            f"a different meaning at every site. Write {column} + {powers}, with "
            "standardize=True if there is a penalty."
        )
    if function == "Q":
        return "write a name with blanks in backquotes, as in `body mass`, without Q()."
    return (
        f"{function}() is not known: make such a column in every table, in the same "
        "way, or use C() of one that has categories."
    )


def _first(pattern: re.Pattern[str], text: str, instead: str, group: int = 1) -> str:
    found = pattern.search(text)
    return instead if found is None else found[group]


def slip(text: str) -> str:
    """Return what is wrong with a formula that cannot be read, "" if it is no slip.

    Examples
    --------
    >>> slip("bp ~ age + (bmi"), slip("bp ~ age +"), slip("bp ~ age")
    ('a bracket ( is not closed', 'something is missing after +', '')
    """
    bare = "".join(_IN_QUOTES.sub("_", text).split())
    for quote in ("`", '"', "'"):
        if quote in bare:
            return f"a quote {quote} is not closed"
    depth = 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return "a bracket ) is not opened"
    if depth:
        return "a bracket ( is not closed"
    ends = _ENDS.search(bare.replace(")", ""))
    return "" if ends is None else f"something is missing after {ends[1]}"


def misplaced(reason: str) -> str:
    """Return a reason of the parser in plain words, if it is about an operator."""
    found = _MISPLACED.search(reason)
    return reason if found is None else f"something is missing beside {found[1]}"
