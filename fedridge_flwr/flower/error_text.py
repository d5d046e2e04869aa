"""Errors on their way between client and server, each as one readable line."""

import re
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from ..errors import DataError, FedRidgeError, PolicyError

# Between a message and load_data there is nothing but these.
_CALLERS = (
    __package__,
    "fedridge_flwr.federation.answering.respond",
    "fedridge_flwr.federation.answering.secure_respond",
)
_LONGEST_REASON = 400
LONGEST_NAME = 64
DECLINED = "declined by site policy."
_LONGEST_TEXT = 10_000
_EXPIRED = "Message Unavailable"
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
    words = " ".join(_cut(str(text)).split())
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
    plain = _COLOUR.sub("", _cut(text or ""))
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


def silence_of(failures: Sequence[object]) -> str:
    """Return why clients that are missing are, by what the older driver caught.

    It does not say which client failed, and of one that was late only that its message
    is not there any more.
    """
    errors = [each for each in failures if isinstance(each, BaseException)]
    told = {tidy_reason(str(error)) for error in errors}
    late = {why for why in told if _EXPIRED in why}
    crashes = sorted(told - late)
    reasons = [f"failed ({'; '.join(crashes)})"] if crashes else []
    if late:
        reasons.append("no answer within the round_timeout")
    return ", or ".join(reasons) or "no answer"


def readable_error(error: Exception, share_names: bool) -> str:
    """Return what a client tells the server about an error of its own.

    Messages of this package hold no value of the data. Those of others do, as in
    "could not convert string to float: 'Alice'", and they name columns and files: of
    such an error only the type and the place travel. So it is with errors of ours that
    come out of load_data, which may be about a file, unless it is a `DataError`: that
    is how load_data tells the server something. Of a `PolicyError` nothing travels but
    that there is one: which rule it was may be about the rows.

    Examples
    --------
    >>> def load_data():
    ...     return {"age": 41}["income"]
    >>> try:
    ...     load_data()
    ... except KeyError as error:
    ...     text = readable_error(error, share_names=True)
    >>> "income" in text
    False
    """
    if isinstance(error, PolicyError):
        return DECLINED
    if isinstance(error, DataError):
        return str(error) if share_names else error.anonymous()
    where = _called(error)
    if isinstance(error, FedRidgeError) and (where is None or _is_ours(where[0])):
        return str(error)
    place = "" if where is None else f" in {where[0].f_code.co_name}, line {where[1]}"
    return one_line(
        f"{type(error).__name__}{place}. Its message may quote the data and is only in "
        "this client's own log: look there."
    )


def _called(error: Exception) -> tuple[FrameType, int] | None:
    """Return where in load_data it went wrong, or in what these adapters called.

    Between them and a function of the user may be others of this package, as where
    load_new_data is asked for new rows, or load_data is a generator.
    """
    first = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        room = _module(frame).partition(".")[0]
        # What the standard library does between two functions of ours is no place.
        if not _is_ours(frame) and room not in sys.stdlib_module_names:
            return frame, line
        if first is None and not _module(frame).startswith(_CALLERS):
            first = frame, line
    return first


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] == __package__.partition(".")[0]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _cut(text: str) -> str:
    """Return the beginning and the end of a long text.

    Whoever sends megabytes would keep the patterns above busy for hours.
    """
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n{text[-half:]}"
