"""Numbers in readable words."""

from __future__ import annotations

__all__ = ["counted", "human_bytes", "text_table"]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(3, "row")
    ('1 row', '3 rows')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def human_bytes(size: float) -> str:
    """Return a size with a unit.

    Examples
    --------
    >>> human_bytes(512), human_bytes(848_180), human_bytes(41_200_000)
    ('512 B', '848.2 kB', '41.2 MB')
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} GB"


def text_table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table whose columns also line up as plain text.

    Examples
    --------
    >>> print(text_table(["method", "MSE"], [["One-Shot", "0.01"]]))
    | method   |  MSE |
    | :------- | ---: |
    | One-Shot | 0.01 |
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    ruler = [f":{'-' * (widths[0] - 1)}", *(f"{'-' * (w - 1)}:" for w in widths[1:])]

    def line(cells: list[str]) -> str:
        first = f"{cells[0]:<{widths[0]}}"
        rest = [f"{c:>{w}}" for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    return "\n".join([line(heads), line(ruler), *(line(row) for row in rows)])
