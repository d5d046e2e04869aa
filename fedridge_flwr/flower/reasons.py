"""Errors on their way between client and server, each as one readable line."""

from __future__ import annotations

import re

from ..errors import DataError, FedRidgeError

__all__ = ["one_line", "readable_error", "tidy_reason"]

_LONGEST_REASON = 400
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WRAPPERS = (
    re.compile(
        r"Message contains an Error \(reason: (.*)\)\. It originated", re.DOTALL
    ),
    re.compile(r"<class '[^']*'>:<'(.*)'>", re.DOTALL),
    re.compile(r"ClientAppException occurred\. Message: (.*)", re.DOTALL),
)
_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception)\b.*: ")
_NOT_IMPORTED = re.compile(
    r"(?:No module named|cannot import name) .*?\bfedridge_flwr\b[\w.]*['\"]?"
)


def one_line(text: object) -> str:
    r"""Return text of others as one printable line of bounded length.

    Examples
    --------
    >>> one_line("no such\n table\x07")
    'no such table'
    """
    words = " ".join(str(text).split())
    return "".join(c for c in words if c.isprintable())[:_LONGEST_REASON]


def tidy_reason(text: str | None) -> str:
    r"""Return the telling line of an error that Flower or Ray wrapped up.

    Examples
    --------
    >>> tidy_reason("<class 'X'>:<'\x1b[36mray::run()\x1b[39m\n  File\nOSError: gone'>")
    'OSError: gone'

    Where a client's app cannot even be imported, nobody but the server can say what to
    do:

    >>> tidy_reason("No module named 'fedridge_flwr'")
    "No module named 'fedridge_flwr': install the same fedridge-flwr on both sides."
    """
    plain = _COLOUR.sub("", text or "")
    for wrapper in _WRAPPERS:
        found = wrapper.search(plain)
        plain = found.group(1) if found else plain
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    telling = [line for line in lines if _ERROR_LINE.match(line)] or lines
    if not telling:
        return "no reason given"
    missing = _NOT_IMPORTED.search(telling[-1])
    if missing:
        # What Flower adds is a path of the client's machine.
        told = one_line(missing.group(0))
        return f"{told}: install the same fedridge-flwr on both sides."
    return one_line(telling[-1])


def readable_error(error: Exception, share_names: bool) -> str:
    """Return what a client tells the server about an error of its own."""
    if isinstance(error, DataError) and not share_names:
        return error.anonymous()
    if isinstance(error, FedRidgeError):
        return str(error)
    return one_line(f"{type(error).__name__}: {error}")
