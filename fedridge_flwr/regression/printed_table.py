"""Tables of text as HTML, LaTeX, Markdown or plain lines.

Names of columns come from clients, so that every format escapes them.
"""

import html
import math
from collections.abc import Sequence

from .._text import text_table

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "²": r"\textsuperscript{2}",
    ">": r"\textgreater{}",
    "<": r"\textless{}",
    "|": r"\textbar{}",
}

Rows = Sequence[Sequence[str]]


def number(value: float, digits: int = 4) -> str:
    """Return a number in a few digits, "" for NaN.

    Examples
    --------
    >>> number(0.000123456), number(152.13348), number(float("nan")), number(12.0)
    ('0.0001235', '152.1', '', '12')
    """
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def estimate(value: float, digits: int = 4) -> str:
    """Return the same with the zeros at the end, which are digits as well.

    Examples
    --------
    >>> estimate(0.31), estimate(2.0), estimate(-1234.0), estimate(0.0)
    ('0.3100', '2.000', '-1234', '0')
    """
    if math.isnan(value) or value == 0.0:
        return number(value)
    return f"{value:#.{digits}g}".removesuffix(".")


def p_text(value: float) -> str:
    """Return a p-value, bounded where its digits say nothing any more.

    Examples
    --------
    >>> p_text(0.0312), p_text(2e-7), p_text(0.0)
    ('0.031', '2.0e-07', '<2e-16')
    """
    if math.isnan(value):
        return ""
    if value < 2e-16:
        return "<2e-16"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def p_equals(value: float) -> str:
    """Return "p = 0.031", or "p < 2e-16"."""
    text = p_text(value)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def plain(heads: Sequence[str], rows: Rows) -> str:
    """Return aligned lines: names to the left, numbers to the right.

    Examples
    --------
    >>> print(plain(["", "coef"], [["age", "1.5"], ["intercept", "-2"]]))
               coef
    age         1.5
    intercept    -2
    """
    table = [[_one_line(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [f"{first:<{widths[0]}}"]
        cells += [f"{cell:>{w}}" for cell, w in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(heads: Sequence[str], rows: Rows) -> str:
    r"""Return a Markdown table.

    Examples
    --------
    >>> print(as_markdown(["", "P>|t|"], [["a|b", "0.1"]]))
    |      | P>\|t\| |
    | :--- | ------: |
    | a\|b |     0.1 |
    """
    head, *body = [
        [_one_line(cell).replace("|", r"\|") for cell in row] for row in (heads, *rows)
    ]
    return text_table([f"{head[0]:<4}", *head[1:]], body)


def as_latex(heads: Sequence[str], rows: Rows, notes: Sequence[str] = ()) -> str:
    r"""Return a LaTeX tabular with the rules of booktabs.

    Examples
    --------
    >>> print(as_latex(["", "coef"], [["a_b", "1"]]))
    \begin{tabular}{lr}
    \toprule
     & coef \\
    \midrule
    a\_b & 1 \\
    \bottomrule
    \end{tabular}
    """
    width = len(heads)
    lines = [f"\\begin{{tabular}}{{l{'r' * (width - 1)}}}", r"\toprule"]
    lines += [_latex_row(heads), r"\midrule", *map(_latex_row, rows), r"\bottomrule"]
    for note in notes:
        lines.append(f"\\multicolumn{{{width}}}{{l}}{{{_latex(note)}}} \\\\")
    return "\n".join([*lines, r"\end{tabular}"])


def as_html(
    heads: Sequence[str], rows: Rows, title: str = "", notes: Sequence[str] = ()
) -> str:
    """Return an HTML table.

    Examples
    --------
    >>> as_html([""], [["<b>"]])
    '<table><thead><tr><th></th></tr></thead><tbody><tr><th>&lt;b&gt;</th></tr>\
</tbody></table>'
    """
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
        body += f"<tr><th>{html.escape(first)}</th>{cells}</tr>"
    foot = "".join(
        f'<tr><td colspan="{len(heads)}">{html.escape(note)}</td></tr>'
        for note in notes
    )
    foot = f"<tfoot>{foot}</tfoot>" if foot else ""
    return (
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}"
        "</table>"
    )


def _one_line(cell: str) -> str:
    return cell if cell.isprintable() else ascii(cell)[1:-1]


def _latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in _one_line(text))


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"
