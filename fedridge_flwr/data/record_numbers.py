"""Numbers out of rows of any type, record by record: for private releases."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from .._types import Array
from .tables import as_table

_REAL_KINDS = "biuf"


def as_numbers(data: Any) -> Any:
    """Return data with NaN for every entry that is not a number.

    A private release leaves such rows out without a word: an error about one of them
    would tell that it is there. So every record is read by itself, and one of another
    length than most is all NaN.

    Examples
    --------
    >>> as_numbers([[1.0, "two"], [3.0], [4, [5]], [10**400, 6]])
    array([[ 1., nan],
           [nan, nan],
           [ 4., nan],
           [nan,  6.]])
    """
    table = as_table(data)
    if table is not None:
        return table.with_nan_for(_number)
    if isinstance(data, np.ma.MaskedArray):
        return as_numbers(np.ma.filled(data.astype(object), np.nan))
    if sparse.issparse(data):
        if data.dtype.kind in _REAL_KINDS:
            return data
        entries = sparse.coo_array(data)
        numbers = as_numbers(entries.data)
        return sparse.csr_array((numbers, entries.coords), shape=entries.shape)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _from_records(data)
    array = np.asarray(data)
    if array.dtype.kind in _REAL_KINDS:
        return data
    if array.dtype == object and array.ndim == 1:
        return _from_records(array.tolist())
    flat = [_number(entry) for entry in array.ravel()]
    return np.array(flat, dtype=np.float64).reshape(array.shape)


def _from_records(records: Sequence[Any]) -> Array:
    """Return records of entries, or single entries, of the length that most have."""
    lengths = [_length(record) for record in records]
    common = Counter(lengths).most_common(1)[0][0] if lengths else None
    if common is None:
        return np.array([_number(record) for record in records], dtype=np.float64)
    found = np.full((len(records), common), np.nan)
    for row, (record, length) in enumerate(zip(records, lengths, strict=True)):
        if length == common:
            found[row] = [_number(entry) for entry in record]
    return found


def _length(record: Any) -> int | None:
    """Return the number of entries of a record, None for a single entry."""
    flat = isinstance(record, np.ndarray) and record.ndim == 1
    return len(record) if flat or isinstance(record, list | tuple) else None


def _number(entry: Any) -> float:
    try:
        if isinstance(entry, complex | np.complexfloating):
            return float(entry.real) if entry.imag == 0 else float("nan")
        return float("nan") if _is_no_entry(entry) else float(entry)
    except Exception:  # whatever an object says for itself, it is no number
        return float("nan")


def _is_no_entry(entry: Any) -> bool:
    """Whether float() would take a date, or the one entry of an array, for a number."""
    return isinstance(entry, np.ndarray | np.datetime64 | np.timedelta64)
