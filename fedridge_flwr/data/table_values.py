"""Columns of a table file as numbers, and as levels that every site spells alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .table_errors import load_arrow

_BOOL8 = "arrow.bool8"
LIMIT_OF_WHOLE = 2**53
"""From here on float64 does not have every whole number."""

NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
DATE = (
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( \d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)"
)
_WHOLE = r"^[+-]?\d{16,}$"
_CHANGING = (
    r"^(-?\d+\.\d*|-?\.\d+|-0|-?\d(\.\d+)?e[+-]\d{2,3}|(?i:true|false))$|[^\x00-\x7f]"
)
_CHANGES = re.compile(_CHANGING, re.ASCII)
_SCIENTIFIC = re.compile(r"-?\d(\.\d+)?e[+-]\d{2,3}", re.ASCII)
_PLAIN = re.compile(r"(-?)(0|[1-9]\d*)?(?:\.(\d*))?", re.ASCII)

# What an entry that is not a number looks like, and what to do; the first that matches.
_CAUSES = (
    (
        DATE,
        "a date or time. Convert dates to a number, such as years since birth",
    ),
    (
        r"[+-]?\d[\d.,]*,\d+",
        "a number with a comma, as a decimal mark or between thousands. Set decimal = "
        '"," if it is the decimal mark, or write numbers without commas',
    ),
    (
        r"[+-]?[\d.,]+\s?%|[+-]?\s?[$€£¥]\s?[\d.,]+|[+-]?[\d.,]+\s?[$€£¥]",
        "a number with a percent or currency sign. Write plain numbers",
    ),
    (
        "[+-]?\\d{1,3}(['’ \u00a0\u202f_.]\\d{3})+([.,]\\d+)?",  # Arrow knows no \\u
        "a number with separators of thousands. Write plain numbers",
    ),
    (
        rf"[−–‐]\s?{NUMBER}",
        "a number with another minus sign than that of the keyboard. Write plain "
        "numbers",
    ),
    (
        r"(?i)(yes|no|y|n|t|f)",
        "yes or no. Write 1 and 0, or use C() for a category",
    ),
)
MISREAD = "|".join([*(each for each, _ in _CAUSES[1:-1]), "[+-]?(?i:inf(inity)?)"])
"""What people read as a number although it is text here."""
_DATE, _INFINITE = _CAUSES[0][1], "infinite. Correct it, or leave it empty if missing"
_IDENTIFIER = (
    "a whole number of 2**53 or more, which float64 cannot hold: the column looks like "
    "an identifier. Leave it out, or use C() if it is a category"
)
_TEXT = (
    "text. Correct it, use C() if the column is a category, or set the option missing "
    "if the text means a missing value"
)


class NotNumbersError(DataError):
    """Entries of a column that are not numbers: how many, the first, and what to do.

    Parameters
    ----------
    count, rows : int
        How many entries are not numbers, and of how many.
    first : int
        Position of the first of them, from 0.
    cause : str
        What the first is, and what to do.
    """

    def __init__(self, count: int, rows: int, first: int, cause: str) -> None:
        self.count, self.rows, self.first, self.cause = count, rows, first, cause
        super().__init__(f"the column {self.problem(f'entry {first + 1}')}")

    def problem(self, place: str) -> str:
        """Return what is wrong, for a reader who finds the first entry at `place`."""
        return (
            f"must have numbers, but {self.count} of {self.rows} entries are not. The "
            f"first ({place}) is {self.cause}."
        )


def numbers(array: Any) -> NDArray[np.float64]:
    """Return a column as float64, with NaN where an entry is missing.

    Text is converted to the nearest number, as Python's ``float`` does; true and false
    are 1 and 0.

    Parameters
    ----------
    array : pyarrow.Array
        Numbers, decimals, booleans, or text of them.

    Raises
    ------
    DataError
        If an entry is not a number, infinite, a date, or a whole number of 2**53 or
        more. No value is told.

    Examples
    --------
    >>> import pyarrow as pa
    >>> numbers(pa.array(["1", "2.50", "1e1", None, "TRUE"]))
    array([ 1. ,  2.5, 10. ,  nan,  1. ])
    >>> numbers(pa.array(["1", "2.5 mg"]))
    Traceback (most recent call last):
    fedridge_flwr.data.table_values.NotNumbersError: the column must have numbers, but \
1 of 2 entries are not. The first (entry 2) is text. Correct it, use C() if the column \
is a category, or set the option missing if the text means a missing value.
    """
    values, bad, array = parse_numbers(array)
    if bad.any():
        first = int(np.argmax(bad))
        cause = cause_of(array[first].as_py())
        raise NotNumbersError(int(bad.sum()), len(array), first, cause)
    return values


def level_text(array: Any) -> Any:
    """Return a column as the text of its levels, spelled alike at every site.

    White space around an entry is removed. 1, 1.0, "1" and "1.00" are the level "1",
    .5 and 0.50 the level "0.5", True and "TRUE" the level "true". Numbers with leading
    zeros, such as 007, are codes and stay as they are. Whole numbers of any size are
    exact.

    Parameters
    ----------
    array : pyarrow.Array
        Numbers, booleans, dates or text.

    Returns
    -------
    pyarrow.Array
        Text, null where the entry is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> level_text(pa.array(["1.0", " 1", ".50", "007", "True", ""])).to_pylist()
    ['1', '1', '0.5', '007', 'true', None]
    >>> level_text(pa.array([1.0, 2.5, None])).to_pylist()
    ['1', '2.5', None]
    """
    pa = load_arrow()
    coded = plain_array(array).dictionary_encode()
    return _level_names(pa, coded.dictionary).take(coded.indices)


def plain_array(array: Any) -> Any:
    """Return a column in one piece, without dictionary and extension type.

    Raises
    ------
    DataError
        If an entry is a list, a structure or binary data.
    """
    pa = load_arrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    name = getattr(array.type, "extension_name", "")
    if problem := extension_problem(name):
        raise DataError(f"the column {problem}.")
    if name:
        array = array.cast(pa.bool_()) if name == _BOOL8 else array.storage
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or "view" in str(kind):
        return array.cast(pa.string())
    if pa.types.is_nested(kind) or "binary" in str(kind):
        raise DataError(
            "the column must have numbers, text or dates, but has lists, structures or "
            "binary data. Write plain values, each in a column of its own."
        )
    return array


def extension_problem(name: str) -> str:
    """Say what is wrong with an extension type of Arrow, "" if nothing is.

    What it is stored as is not what it means: a true of arrow.bool8 may be 2, and a
    period of pandas is a number of months.
    """
    if name in ("", _BOOL8, "arrow.json"):
        return ""
    if name == "pandas.period":
        return f"has {_DATE}"
    return f"has the extension type {name!r}. Convert it to plain numbers or text"


def extension_name(field: Any) -> str:
    """Return the extension type of a field, also one that nobody has registered."""
    found: str = getattr(field.type, "extension_name", "")
    told = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    return found or told.decode(errors="replace")


def field_problem(field: Any) -> str:
    """Say what is wrong with the extension type of a field, as `extension_problem`."""
    return extension_problem(extension_name(field))


def refuse_extensions(schema: Any, columns: Sequence[str]) -> None:
    """Refuse columns whose extension type has another meaning than its storage."""
    problems = [field_problem(schema.field(column)) for column in columns]
    bad = [j for j, problem in enumerate(problems) if problem]
    if bad:
        alike = [j for j in bad if problems[j] == problems[bad[0]]]
        raise DataError(f"{{columns}} {problems[bad[0]]}.", alike, columns)


def parse_numbers(array: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_], Any]:
    """Return float64 numbers, which present entries are not numbers, and the column."""
    pa = load_arrow()
    array = plain_array(array)
    kind = array.type
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        values = _float64(pa, array)
        finite = all_finite(values)
        return (
            values,
            np.zeros(len(values), bool) if finite else np.isinf(values),
            array,
        )
    if pa.types.is_integer(kind):
        values = _float64(pa, array)
        return values, np.abs(values) >= LIMIT_OF_WHOLE, array
    if pa.types.is_temporal(kind):
        nothing = np.full(len(array), np.nan)
        return nothing, array.is_valid().to_numpy(zero_copy_only=False), array
    # Decimals become text first, so that they are rounded once, to the nearest.
    text = array.cast(pa.string())
    return *_parse_text(pa, text), text


def _parse_text(pa: Any, text: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    try:
        values = _float64(pa, text)
    except pa.ArrowInvalid:
        values = _float64(pa, _only_numbers(pa, text))
    # What is not a number is NaN by now; so are "nan" and "inf", and 1e999 is infinite.
    bad = np.zeros(len(values), bool) if all_finite(values) else ~np.isfinite(values)
    if text.null_count:
        bad &= text.is_valid().to_numpy(zero_copy_only=False)
    large = np.abs(values) >= LIMIT_OF_WHOLE
    if large.any():
        bad |= large & matches(pa, text, _WHOLE)
    return values, bad


def _only_numbers(pa: Any, text: Any) -> Any:
    """Return text with 1 for true, 0 for false, and null for what is not a number."""
    pc = pa.compute
    lower = pc.utf8_lower(text)
    found = pc.if_else(pc.match_substring_regex(text, f"^({NUMBER})$"), text, None)
    found = pc.if_else(pc.equal(lower, "true"), "1", found)
    return pc.if_else(pc.equal(lower, "false"), "0", found)


def _float64(pa: Any, array: Any) -> NDArray[np.float64]:
    if array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    return float64_values(array)


def float64_values(array: Any) -> NDArray[np.float64]:
    """Return an array of float64, NaN where it is null; without a copy where it can be.

    `to_numpy` copies where an array could have nulls, even if it has none.
    """
    if array.null_count == 0 and len(array):
        values = array.buffers()[1]
        return np.frombuffer(values, np.float64, len(array), 8 * array.offset)
    found: NDArray[np.float64] = array.to_numpy(zero_copy_only=False)
    return found


def all_finite(values: NDArray[np.float64]) -> bool:
    """Whether there is neither NaN nor infinity; False also where a sum overflows.

    Examples
    --------
    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.add.reduce(values)))


def matches(pa: Any, text: Any, pattern: str) -> NDArray[np.bool_]:
    """Return which entries of text match a pattern; one that is missing does not."""
    found = pa.compute.match_substring_regex(text, pattern).fill_null(False)
    matches: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return matches


def cause_of(entry: Any) -> str:
    """Say what an entry is that is not a number, and what to do, but not the entry."""
    if isinstance(entry, int):
        return _IDENTIFIER
    if isinstance(entry, float):
        return _INFINITE
    if not isinstance(entry, str):
        return _DATE
    if re.fullmatch(r"(?i)[+-]?(inf|infinity|nan)", entry):
        return _INFINITE
    if re.fullmatch(NUMBER, entry, re.ASCII):
        return _IDENTIFIER if re.fullmatch(_WHOLE, entry) else _INFINITE
    for pattern, cause in _CAUSES:
        if re.fullmatch(pattern, entry):
            return cause
    return _TEXT


def _level_names(pa: Any, values: Any) -> Any:
    """Return the text of distinct levels; no Python loop but over those that change."""
    kind = values.type
    if pa.types.is_floating(kind):  # the shortest text that is this number
        texts = [None if value != value else str(value) for value in values.to_numpy()]
        text = pa.array(texts, pa.string())
    else:
        text = pa.compute.utf8_trim_whitespace(values.cast(pa.string()))
    text = pa.compute.if_else(pa.compute.equal(text, ""), None, text)
    changing = np.flatnonzero(matches(pa, text, _CHANGING))
    if not len(changing):
        return text
    names = text.to_pylist()
    for j in changing:
        names[j] = _level_name(names[j])
    return pa.array(names, pa.string())


def level_of(text: str) -> str:
    """Return the one spelling of a single entry, "" where it is missing.

    Examples
    --------
    >>> [level_of(text) for text in ("1.0", " 1", "007", "True", " ")]
    ['1', '1', '007', 'true', '']
    """
    text = text.strip()
    return _level_name(text) if _CHANGES.search(text) else text


def _level_name(text: str) -> str:
    """Return the one spelling of a level.

    Examples
    --------
    >>> [_level_name(t) for t in ("1.0", "-0.0", "1e-05", "1.2e+20", "00.5", "1.2.3")]
    ['1', '0', '0.00001', '120000000000000000000', '00.5', '1.2.3']
    """
    if text.lower() in ("true", "false"):
        return text.lower()
    if _SCIENTIFIC.fullmatch(text):
        text = format(Decimal(text), "f")
    found = _PLAIN.fullmatch(text)
    if found is None or not text.isascii():
        return unicodedata.normalize("NFC", text)
    sign, whole, fraction = found[1], found[2] or "0", (found[3] or "").rstrip("0")
    name = f"{whole}.{fraction}" if fraction else whole
    return name if name == "0" else sign + name
