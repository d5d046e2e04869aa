"""Labels of classes: which ones a client has, and what number stands for each."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._text import counted
from .._types import Array
from ..errors import DataError, StatisticsError

Label: TypeAlias = float | str

MOST_LABELS = 100
LONGEST_LABEL = 200


def labels_of(y: Any) -> tuple[Label, ...]:
    """Return the labels among outcomes, sorted: numbers, or texts.

    Examples
    --------
    >>> labels_of([True, True]), labels_of(["no", "yes", "no"])
    ((1.0,), ('no', 'yes'))
    """
    found: tuple[Label, ...] = tuple(np.unique(_flat(y)).tolist())
    if len(found) > MOST_LABELS:
        raise DataError(
            f"y has {len(found)} different values, more than {MOST_LABELS}, too many "
            'for classes. Use family="gaussian" for numbers.'
        )
    if not all(_is_short(label) for label in found if isinstance(label, str)):
        raise DataError(
            "labels in y must be printable texts of at most "
            f"{LONGEST_LABEL} characters."
        )
    return found


def codes_of(y: Any, labels: Sequence[Label]) -> Array:
    """Return the place of every outcome among labels.

    Examples
    --------
    >>> codes_of(["yes", "no"], ("no", "yes"))
    array([1., 0.])
    """
    values, known = _flat(y), np.asarray(labels)
    if values.size and values.dtype.kind != known.dtype.kind:
        raise DataError("y has other labels than the server knows of this client.")
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    if (known[places] != values).any():
        raise DataError("y has other labels than the server knows of this client.")
    return places.astype(np.float64)


def join_labels(parts: Iterable[Sequence[Label]]) -> tuple[Label, ...]:
    """Return the labels of all clients, sorted; all must be numbers, or all texts.

    Zeros and ones are the labels 0 and 1 even where all are the same.

    Examples
    --------
    >>> join_labels([("a", "c"), ("b", "c")]), join_labels([(1.0,)])
    (('a', 'b', 'c'), (0.0, 1.0))
    """
    found = {label for part in parts for label in part}
    found |= {0.0, 1.0} if found <= {0.0, 1.0} else set()
    return tuple(sorted(found, key=_by_kind))


def are_texts(labels: Sequence[Label]) -> bool:
    """Whether labels are texts and not numbers."""
    return any(isinstance(label, str) for label in labels)


def labels_array(labels: Sequence[Label]) -> NDArray[Any]:
    """Return labels as the ``classes_`` of an estimator: integers where they are.

    Examples
    --------
    >>> labels_array((0.0, 1.0)), labels_array(("no", "yes"))
    (array([0, 1]), array(['no', 'yes'], dtype='<U3'))
    """
    array = np.asarray(labels)
    whole = array.dtype.kind == "f" and (array == np.rint(array)).all()
    small = whole and np.abs(array).max(initial=0.0) < 2**53
    return array.astype(np.int64) if small else array


def write_labels(labels: Sequence[Label]) -> str:
    """Return labels as text that travels."""
    return json.dumps(list(labels), ensure_ascii=False, allow_nan=False)


def read_labels(text: object) -> tuple[Label, ...]:
    """Return the labels in a text of which nothing is trusted.

    Examples
    --------
    >>> read_labels('["no", "yes"]')
    ('no', 'yes')
    >>> read_labels('["no", 1]')
    Traceback (most recent call last):
    fedridge_flwr.errors.StatisticsError: the labels are not a sorted list of texts or \
numbers.
    """
    bad = StatisticsError("the labels are not a sorted list of texts or numbers.")
    most = MOST_LABELS * (6 * LONGEST_LABEL + 4)
    if not isinstance(text, str) or len(text) > most:
        raise bad
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise bad from None
    if not isinstance(found, list) or not 0 < len(found) <= MOST_LABELS:
        raise bad
    if all(type(label) is str and _is_short(label) for label in found):
        labels: list[Label] = list(found)
    elif all(type(label) in (int, float) for label in found):
        labels = [float(label) for label in found if abs(label) <= 1e300]
    else:
        raise bad
    # As NumPy sorts them, which is by code points, as Python does.
    if len(labels) != len(found) or sorted(set(labels), key=_by_kind) != labels:
        raise bad
    return tuple(labels)


def _is_short(text: str) -> bool:
    return len(text) <= LONGEST_LABEL and text.isprintable()


def _by_kind(label: Label) -> tuple[bool, Any]:
    return isinstance(label, str), label


def _flat(y: Any) -> NDArray[Any]:
    """Return outcomes as one column of floats or texts, with nothing missing."""
    try:
        array = np.asarray(y)
    except (TypeError, ValueError):
        raise DataError("y is not an array of labels.") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"y must have one label for each row, got shape {tuple(array.shape)}."
        )
    if array.dtype.kind in "biuf":
        numbers = array.astype(np.float64)
        missing = int(np.count_nonzero(~np.isfinite(numbers)))
    else:
        entries = array.tolist()
        if all(isinstance(entry, bool | int | float) for entry in entries):
            return _flat(np.array(entries, dtype=np.float64))
        missing = sum(not isinstance(entry, str) for entry in entries)
        numbers = np.array([str(entry) for entry in entries])
    if missing:
        raise DataError(
            f"y has {counted(missing, 'value')} that are missing, not finite or of "
            f"another kind than the other labels ({len(array)} rows). Remove those "
            "rows before the fit."
        )
    return numbers
