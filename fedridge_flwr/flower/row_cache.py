"""Rows kept between the rounds of a run, so that load_data is called once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

from ..federation.respond import RawRows

__all__ = ["cached_rows"]

LARGEST_CACHE = 1 << 30
"""Bytes of rows kept in one process, at most; the ones used last stay."""

_Key: TypeAlias = tuple[Any, ...]
# Flower unpickles a simulated client's app for every message: only what belongs to the
# process itself, and not to the app, is still there in the next round.
_kept: OrderedDict[_Key, tuple[RawRows, int]] = OrderedDict()


def cached_rows(key: _Key, load: Callable[[], RawRows]) -> RawRows:
    """Return the rows of a key, loaded once if they can be kept.

    Rows whose size is not known, such as lists and streams, are loaded again.
    """
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key][0]
    rows = load()
    sizes = [_bytes_of(part) for part in rows if part is not None]
    if None in sizes:
        return rows
    size = sum(filter(None, sizes))
    if size <= LARGEST_CACHE:
        _kept[key] = rows, size
        while sum(kept for _, kept in _kept.values()) > LARGEST_CACHE:
            _kept.popitem(last=False)
    return rows


def _bytes_of(part: Any) -> int | None:
    """Return the memory that arrays, frames and sparse matrices take, else None."""
    if hasattr(part, "memory_usage"):
        used = part.memory_usage(deep=True)
        return int(getattr(used, "sum", lambda: used)())
    if hasattr(part, "indptr"):
        return int(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes)
    return getattr(part, "nbytes", None)
