"""Numbers, sizes and tables as readable text."""

import difflib
from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(3, "row")
    ('1 row', '3 rows')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted(names: Sequence[str], most: int = 4) -> str:
    """Return some names in quotes, of many the first.

    Examples
    --------
    >>> quoted(["age", "bmi"]), quoted(list("abcdef"))
    ("'age', 'bmi'", "'a', 'b', 'c', 'd' and 2 more")
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the name that is most like another, "" if none is.

    Examples
    --------
    >>> nearest("Ages", ["age", "sex"]), nearest("bmi", ["age", "sex"])
    ('age', '')
    """
    lower = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[close[0]] if close else ""


def human_bytes(size: float) -> str:
    """Return a size with a unit.

    Examples
    --------
    >>> human_bytes(512), human_bytes(848_180), human_bytes(41_200_000)
    ('512 B', '848.2 kB', '41.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} PB"


def text_table(heads: list[str], rows: list[list[str]], text_columns: int = 1) -> str:
    """Return a Markdown table whose columns also line up as plain text.

    The first `text_columns` columns are text, aligned left; the others are numbers.

    Examples
    --------
    >>> print(text_table(["method", "MSE"], [["One-Shot", "0.01"]]))
    | method   |  MSE |
    | :------- | ---: |
    | One-Shot | 0.01 |
    """
    # A ruler of a single ":" is no table to Markdown.
    widths = [max(2, *map(len, each)) for each in zip(heads, *rows, strict=True)]
    left = [k < text_columns for k in range(len(heads))]
    ruler = [
        f":{'-' * (w - 1)}" if to_left else f"{'-' * (w - 1)}:"
        for w, to_left in zip(widths, left, strict=True)
    ]

    def line(cells: list[str]) -> str:
        padded = [
            f"{cell:<{w}}" if to_left else f"{cell:>{w}}"
            for cell, w, to_left in zip(cells, widths, left, strict=True)
        ]
        return "| " + " | ".join(padded) + " |"

    return "\n".join([line(heads), line(ruler), *(line(row) for row in rows)])
