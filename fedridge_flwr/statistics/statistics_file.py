"""Statistics as a file: one line of JSON, then the numbers; read without trust.

The line says what the numbers are and has a SHA-256 of itself and of them. That finds
damage; what no checksum finds, numbers that no rows have, is refused as in messages.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from .._files import read_bytes, strict_json, write_bytes
from ..errors import StatisticsError
from .packing import pack, unpack

_FORMAT, _VERSION = "fedridge-statistics", 1


def write_statistics(stats: Any, path: Path) -> None:
    """Write statistics; the file is there with all of them, or as it was before."""
    content = to_bytes(stats)
    # What cannot be read again, as a difference that rounding spoiled, is not written.
    from_bytes(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)


def read_statistics(path: Path, form: str | None = None) -> Any:
    """Return the statistics in a file, of this form if one is given."""
    try:
        found = from_bytes(read_bytes(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = str(error)[:300].rstrip(".")
        raise StatisticsError(
            f"{path} is no file of statistics, or is damaged: {reason}."
        ) from error
    if form is not None and found.form != form:
        name = type(found).__name__
        raise StatisticsError(f"{path} has {name}: use {name}.load.")
    return found


def to_bytes(stats: Any) -> bytes:
    """Return statistics as the content of a file.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> from_bytes(to_bytes(stats)).gram
    array([[10.]])
    """
    text, numbers = pack(stats)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "sha256": _checksum(text, numbers),
        "statistics": json.loads(text),
    }
    return json.dumps(content).encode() + b"\n" + numbers


def from_bytes(data: bytes) -> Any:
    """Return the statistics in bytes of which nothing is trusted.

    Raises
    ------
    ValueError
        With what is wrong; a `StatisticsError` is one.
    """
    line, _, numbers = data.partition(b"\n")
    content = strict_json(line.decode("utf-8"))
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError("it was not written by save of statistics")
    version = content.get("version")
    if type(version) is not int or version != _VERSION:
        raise ValueError("it has another version: install a matching fedridge-flwr")
    text = json.dumps(content.get("statistics"), sort_keys=True)
    if content.get("sha256") != _checksum(text, numbers):
        raise ValueError("its checksum is another: restore it from a copy")
    return unpack(text, numbers)


def _checksum(text: str, numbers: bytes) -> str:
    return hashlib.sha256(text.encode() + b"\n" + numbers).hexdigest()
