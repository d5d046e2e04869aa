"""Pieces of HTML: every text is escaped here, and nowhere else.

`Markup` is text that is HTML already. Whatever else goes into a piece is escaped,
whoever it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

_LONGEST_WORD = 18
_AFTER = re.compile(r"(?<=[_/.:\[-])(?=\w)")  # where long names may break


class Markup(str):
    """Text that is HTML already.

    Examples
    --------
    >>> tag("p", "a < b & ", tag("b", "c"), title='"')
    '<p title="&quot;">a &lt; b &amp; <b>c</b></p>'
    """

    __slots__ = ()


def tag(name: str, *content: object, **attributes: str | None) -> Markup:
    """Return an element; an attribute ``class_`` is class, ``data_x`` is data-x."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{join(content)}</{name}>")


def join(content: Iterable[object]) -> Markup:
    """Return pieces one after another."""
    return Markup("".join(_piece(each) for each in content))


def _piece(content: object) -> str:
    return content if isinstance(content, Markup) else escaped(str(content))


def escaped(text: str) -> str:
    """Return text that is inert, without characters that turn it around.

    Examples
    --------
    >>> escaped('<script src="x">')
    '&lt;script src=&quot;x&quot;&gt;'
    """
    visible = (c if c.isprintable() or c in "\n\t\u00a0" else "�" for c in text)
    return escape("".join(visible), quote=True)


def breakable(content: object) -> Markup:
    """Return text in which long words may break, after the marks inside them.

    Examples
    --------
    >>> breakable("blood_pressure_at_admission 1.5")
    'blood_<wbr>pressure_<wbr>at_<wbr>admission 1.5'
    """
    if isinstance(content, Markup):
        return content
    words = re.split(r"([ \t\n]+)", str(content))
    return Markup(
        "".join(
            Markup("<wbr>").join(map(escaped, _AFTER.split(word)))
            if len(word) > _LONGEST_WORD
            else escaped(word)
            for word in words
        )
    )


def _pieces(content: object) -> list[str]:
    """Return what a line cannot be broken in."""
    return [piece for word in str(content).split() for piece in _AFTER.split(word)]


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: int = 0,
    class_: str = "",
) -> Markup:
    """Return a table; the first cell of a row is its head.

    Parameters
    ----------
    caption : str
        What the table shows.
    heads : sequence of str
        Heads of the columns.
    rows : iterable of sequences
        The cells.
    numbers : int
        How many columns after the first are numbers, aligned to the right.
    class_ : str
        "cards" for a table that is one card a row on a narrow screen.
    """

    def looks(k: int, cell: object = "") -> str | None:
        kind = "number" if 0 < k <= numbers else "long" if k else ""
        words = str(cell).split() if isinstance(cell, Markup) else _pieces(cell)
        wide = any(len(word) > _LONGEST_WORD for word in words)
        return f"{kind} breaks".strip() if wide else kind or None

    top = [
        tag("th", head, scope="col", class_=looks(k)) for k, head in enumerate(heads)
    ]
    body = []
    for first, *others in rows:
        head = breakable(first)
        cells = [tag("th", head, scope="row", class_=looks(0, first))]
        for k, cell in enumerate(others, start=1):
            looked = looks(k, cell)
            cells.append(tag("td", breakable(cell), class_=looked, data_head=heads[k]))
        body.append(tag("tr", *cells))
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *top)),
        tag("tbody", *body),
        class_=class_ or None,
    )


def facts(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Return pairs of a name and a value as a list."""
    items = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs]
    return tag("dl", *items, class_="facts")
