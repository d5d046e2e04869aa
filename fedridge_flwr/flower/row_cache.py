"""Rows kept between the rounds of a fit, so that load_data is called once."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..data.local_table import RawRows

LARGEST_CACHE = 1 << 30
"""Bytes of rows kept in one process, at most; the ones used last stay."""

# Flower unpickles a simulated client's app for every message: only what belongs to the
# process itself, and not to the app, is still there in the next round.
_kept: OrderedDict[tuple[Any, ...], tuple[object, RawRows, int]] = OrderedDict()
_lock = threading.Lock()


def cached_rows(
    place: tuple[Any, ...], fit: object, load: Callable[[], RawRows]
) -> RawRows:
    """Return the rows of a place, loaded once for each fit if they can be kept.

    Rows whose size is not known, such as lists and streams, are loaded again. Kept are
    copies: load_data may fill the same buffer for its next caller.
    """
    with _lock:
        known = _kept.pop(place, None)
        if known is not None and known[0] == fit:
            _kept[place] = known
            return known[1]
    rows = load()
    if not isinstance(rows, tuple):  # finished statistics
        return rows
    sizes = [_bytes_of(part) for part in rows[:3] if part is not None]
    size = sum(each for each in sizes if each is not None)
    if None in sizes or size > LARGEST_CACHE:
        return rows
    # Arrow tables have no copy, and nobody can change them.
    copies = RawRows(*map(_copy_of, rows))
    with _lock:
        _kept[place] = fit, copies, size
        while sum(kept for *_, kept in _kept.values()) > LARGEST_CACHE:
            _kept.popitem(last=False)
    return copies


def _copy_of(part: Any) -> Any:
    return part.copy() if hasattr(part, "copy") else part


def _bytes_of(part: Any) -> int | None:
    """Return the memory that arrays, frames and sparse matrices take, else None."""
    if hasattr(part, "memory_usage"):
        used = part.memory_usage(deep=True)
        return int(getattr(used, "sum", lambda: used)())
    if hasattr(part, "indptr"):
        return int(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes)
    return getattr(part, "nbytes", None)
