"""Markers on a site's own disk: which steps it has answered in a run and in a sum.

Flower saves a client's memory when the answer has left. A process that dies in between,
or a memory that is put back, would answer a step twice. A marker is written before.
"""

import os
from pathlib import Path

from ...errors import PolicyError, ProtocolError


def mark_step(folder: Path, where: str, step: str, most: int) -> None:
    """Write a marker that lasts, or raise if there are as many as may be.

    Parameters
    ----------
    folder : Path
        The folder of the site. It must exist: one that is not mounted knows nothing.
    where : str
        The run of Flower, or the name of the secure sum.
    step : str
        What is about to be answered.
    most : int
        How often that is done there.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> mark_step(folder, "7", "secure-masked", most=1)
    >>> mark_step(folder, "7", "secure-masked", most=1)
    Traceback (most recent call last):
    fedridge_flwr.errors.ProtocolError: this site has answered "secure-masked" in this \
run or sum, and does not do so again.
    """
    try:
        if not folder.is_dir():
            raise _unusable(f"there is no folder {folder}")
        for number in range(1, most + 1):
            if _create(folder / f"{step}-{where}-{number}"):
                _sync(os.open(folder, os.O_RDONLY))
                return
    except OSError as error:
        raise _unusable(f"{type(error).__name__}: {error}") from error
    raise ProtocolError(
        f'this site has answered "{step}" in this run or sum, and does not do so again.'
    )


def _create(file: Path) -> bool:
    """Create a file, unless it exists; two processes do not both create it."""
    try:
        _sync(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unusable(why: str) -> PolicyError:
    return PolicyError(
        f"declined by site policy: steps of secure sums cannot be marked ({why})."
    )
