"""Errors on their way between client and server, each as one readable line."""

from __future__ import annotations

import re

from ..errors import DataError, FedRidgeError

__all__ = ["one_line", "readable_error", "tidy_reason"]

_LONGEST_REASON = 400
_LONGEST_TEXT = 10_000
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WRAPPERS = (
    re.compile(
        r"Message contains an Error \(reason: (.*)\)\. It originated", re.DOTALL
    ),
    re.compile(r"<class '[^']*'>:<'(.*)'>", re.DOTALL),
    re.compile(r"ClientAppException occurred\. Message: (.*)", re.DOTALL),
)
_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception)\b.*: ")


def one_line(text: object) -> str:
    r"""Return text of others as one printable line of bounded length.

    Examples
    --------
    >>> one_line("no such\n table\x07")
    'no such table'
    """
    words = " ".join(_cut(str(text)).split())
    return "".join(c for c in words if c.isprintable())[:_LONGEST_REASON]


def tidy_reason(text: str | None) -> str:
    r"""Return the telling line of an error that Flower or Ray wrapped up.

    Examples
    --------
    >>> tidy_reason("<class 'X'>:<'\x1b[36mray::run()\x1b[39m\n  File\nOSError: gone'>")
    'OSError: gone'
    """
    plain = _COLOUR.sub("", _cut(text or ""))
    for wrapper in _WRAPPERS:
        found = wrapper.search(plain)
        plain = found.group(1) if found else plain
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    telling = [line for line in lines if _ERROR_LINE.match(line)] or lines
    return one_line(telling[-1]) if telling else "no reason given"


def readable_error(error: Exception, share_names: bool) -> str:
    """Return what a client tells the server about an error of its own."""
    if isinstance(error, DataError) and not share_names:
        return error.anonymous()
    if isinstance(error, FedRidgeError):
        return str(error)
    return one_line(f"{type(error).__name__}: {error}")


def _cut(text: str) -> str:
    """Return the beginning and the end of a long text.

    Whoever sends megabytes would keep the patterns above busy for hours.
    """
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n{text[-half:]}"
