"""Files and JSON of any origin, read without trust, and databases that stay whole."""

import json
import math
import os
import sqlite3
import stat
import tempfile
from pathlib import Path
from typing import Any

_LARGEST_FILE = 1 << 30
_BUSY_SECONDS = 120.0


def strict_json(text: str) -> Any:
    """Parse JSON text, or raise a `ValueError` that says what is wrong.

    Python's own parser takes the last of two equal keys, NaN, and numbers that
    overflow, and raises a RecursionError where brackets are nested too deeply.

    Examples
    --------
    >>> strict_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: a key occurs twice
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_file(path: Path) -> str:
    """Return the text of a regular file of bounded size.

    A path may lead to a folder, a pipe that never ends, or a device full of zeros.
    """
    _check_regular(path)
    return path.read_text(encoding="utf-8")


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file of bounded size."""
    _check_regular(path)
    return path.read_bytes()


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file, at once and on disk: after a crash it is the old or the new one.

    Only its owner can read it. Where `path` is a link, what it leads to is replaced.
    """
    real = Path(os.path.realpath(path))
    handle, beside = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(beside, real)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # elsewhere folders cannot be synced
        folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _check_regular(path: Path) -> None:
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("it is not a regular file")
    if about.st_size > _LARGEST_FILE:
        raise ValueError(f"it has {about.st_size} bytes, {_LARGEST_FILE} at most")


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a database without links, for it and all files beside it.

    Raises
    ------
    OSError
        If there is no folder for it, or something is there that is no file. A new
        database in place of one on a disk that is not mounted would forget it.
    """
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise OSError("is in a folder that does not exist")
    if os.path.lexists(path) and not real.is_file():
        raise OSError("is not a file, or a link to a file that is missing")
    return real


def connect(
    path: Path, mode: str = "rw", seconds: float | None = None
) -> sqlite3.Connection:
    """Open a database whose transactions are begun and committed by hand.

    Where another process has it locked, they wait for some seconds.

    Only SQLite may open the file: on Unix, closing any other handle would drop the
    locks that other threads of this process hold on it.
    """
    database = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        timeout=_BUSY_SECONDS if seconds is None else seconds,
        isolation_level=None,
        uri=True,
        check_same_thread=False,
    )
    # FULL may lose the last commit in a power failure: the folder is not synced.
    database.execute("PRAGMA synchronous = EXTRA")
    return database


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond float64")
    return number
