"""Labels of classes: one spelling of each, whatever type a client keeps them in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import as_number
from .._types import Array
from ..errors import DataError, FedRidgeError, StatisticsError
from .table_values import level_of

MOST_CLASSES = 1_000
LONGEST_LABEL = 200
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
_TRUTH = {"false": 0.0, "true": 1.0}
_KINDS = "text, whole numbers or booleans"


class _NoLabelError(ValueError):
    """A value that cannot be the label of a class."""


def label_text(value: object) -> str:
    """Return the one spelling of a label: 1, 1.0, "1" and " 1.00" are the label "1".

    It is the rule by which tables spell their levels. True is the label "true".

    Examples
    --------
    >>> [label_text(value) for value in (1, 1.0, "1.0", np.int64(1), True, " Oak ")]
    ['1', '1', '1', '1', 'true', 'Oak']
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not value.is_integer():
        raise _NoLabelError
    if not isinstance(value, str | int | float):
        raise _NoLabelError
    text = level_of(str(value))
    if not text or len(text) > LONGEST_LABEL or not text.isprintable():
        raise _NoLabelError
    return text


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels in the order of the classes: whole numbers by size, text by letter.

    Examples
    --------
    >>> sorted_labels(["10", "9", "-1"]), sorted_labels(["10", "9", "x"])
    (('-1', '9', '10'), ('10', '9', 'x'))
    """
    found = list(labels)
    return tuple(sorted(found, key=int) if are_whole(found) else sorted(found))


def natural_labels(labels: Sequence[str]) -> NDArray[Any]:
    """Return labels as an array: of integers if all are whole numbers, or of booleans.

    Examples
    --------
    >>> natural_labels(["1", "2"]), natural_labels(["1", "b"])
    (array([1, 2]), array(['1', 'b'], dtype='<U1'))
    """
    if all(label in _TRUTH for label in labels):
        return np.array([label == "true" for label in labels])
    return np.array([int(x) for x in labels] if are_whole(labels) else labels)


def label_numbers(labels: Sequence[str]) -> Array:
    """Return one number for every label, the same in every fit: its own, or a hash."""

    def number(label: str) -> float:
        if label in _TRUTH:
            return _TRUTH[label]
        if _WHOLE.fullmatch(label):
            return float(label)
        return float(int(hashlib.sha256(label.encode()).hexdigest()[:13], 16))

    return np.array([number(label) for label in labels])


def check_classes(given: Any) -> tuple[str, ...]:
    """Return a list of classes as labels in order, or say what is wrong with it.

    Examples
    --------
    >>> check_classes(["b", "a"]), check_classes([2, 1.0, "10"])
    (('a', 'b'), ('1', '2', '10'))
    """
    if isinstance(given, str) or not isinstance(given, Collection | np.ndarray):
        raise FedRidgeError(
            f'classes must be "auto" or a list of labels, got {given!r}.'
        )
    try:
        labels = [label_text(value) for value in given]
    except _NoLabelError:
        raise FedRidgeError(
            f"classes must be {_KINDS}, not empty, printable and at most "
            f"{LONGEST_LABEL} characters long."
        ) from None
    if len(set(labels)) < len(labels):
        raise FedRidgeError(
            "classes has a label twice; 1, 1.0 and '1' are the same label."
        )
    if not 2 <= len(labels) <= MOST_CLASSES:
        raise FedRidgeError(
            f"classes must be 2 to {MOST_CLASSES} labels, got {len(labels)}."
        )
    return sorted_labels(labels)


def check_class_weight(given: Any) -> dict[str, float]:
    """Return the weights of classes by label, or say what is wrong with them.

    Examples
    --------
    >>> check_class_weight({1: 2, "2.0": 0.5})
    {'1': 2.0, '2': 0.5}
    """
    pairs = list(given.items()) if isinstance(given, Mapping) else [("", None)]
    try:
        found = {label_text(label): as_number(weight) for label, weight in pairs}
    except _NoLabelError:
        found = {}
    if len(found) < len(pairs) or not all(0 < w < np.inf for w in found.values()):
        raise FedRidgeError(
            'class_weight must be "balanced" or a dictionary from each label to a '
            f"positive number, got {given!r}."
        )
    return found


def are_canonical(labels: Iterable[str]) -> bool:
    """Whether labels that came from elsewhere are spelled as they should be."""
    try:
        return all(label_text(label) == label for label in labels)
    except _NoLabelError:
        return False


def encode_labels(y: Any) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Return the labels of rows in order, and of every row the place of its own.

    Raises
    ------
    DataError
        If labels are missing, or are not text, whole numbers or booleans.

    Examples
    --------
    >>> encode_labels(["oak", "fir", "oak "])
    (('fir', 'oak'), array([1, 0, 1]))
    """
    values, inverse = _distinct(_column(y))
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    if missing.any():
        raise DataError(
            f"y has no label in {int(missing[inverse].sum())} of {len(inverse)} rows. "
            "Remove those rows before the fit."
        )
    try:
        texts = [label_text(value) for value in values]
    except _NoLabelError:
        raise DataError(
            f"y must have labels of classes, which are {_KINDS} of at most "
            f"{LONGEST_LABEL} printable characters. To predict numbers, leave out "
            "classes= or family= on the server."
        ) from None
    labels = sorted_labels(set(texts))
    if len(labels) > MOST_CLASSES:
        raise DataError(
            f"y has {len(labels)} different labels, at most {MOST_CLASSES} are "
            "allowed. To predict numbers, leave out classes= or family= on the server."
        )
    place = {label: k for k, label in enumerate(labels)}
    return labels, np.array([place[text] for text in texts], dtype=np.intp)[inverse]


def codes_among(
    classes: Sequence[str], labels: Sequence[str], codes: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the places of the rows' labels among classes, -1 of other labels.

    Examples
    --------
    >>> codes_among(["ash", "fir", "oak"], *encode_labels(["oak", "elm", "oak"]))
    array([ 2, -1,  2])
    """
    place = {label: k for k, label in enumerate(classes)}
    places = np.array([place.get(label, -1) for label in labels], dtype=np.intp)
    return places[codes]


def outcome_codes(
    y: Any, classes: Sequence[str] | None = None
) -> tuple[tuple[str, ...], Array]:
    """Return the labels of yes/no outcomes, and of every row the place of its own.

    True and False count as 1 and 0, so that sites may have either. With `classes`, the
    places are among those.

    Examples
    --------
    >>> outcome_codes([True, False, True])
    (('0', '1'), array([1., 0., 1.]))
    """
    column = _column(y)
    if column.dtype.kind in "bO":
        column = np.array(
            [int(x) if isinstance(x, bool) else x for x in column.tolist()],
            dtype=object,
        )
    labels, codes = encode_labels(column)
    if classes is not None:
        codes = codes_among(classes, labels, codes)
        labels = tuple(classes)
    if (codes < 0).any():
        raise DataError("y has other labels than the server knows of this client.")
    return labels, codes.astype(np.float64)


def join_labels(parts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the labels of all clients in order; zeros alone are of the labels 0 and 1.

    Examples
    --------
    >>> join_labels([("a", "c"), ("b", "c")]), join_labels([("1",)])
    (('a', 'b', 'c'), ('0', '1'))
    """
    found = {label for part in parts for label in part}
    return sorted_labels(found | {"0", "1"} if found <= {"0", "1"} else found)


def write_labels(labels: Sequence[str]) -> str:
    """Return labels as text that travels."""
    return json.dumps(list(labels), ensure_ascii=False)


def read_labels(text: object) -> tuple[str, ...]:
    """Return the labels in a text of which nothing is trusted.

    Examples
    --------
    >>> read_labels('["no", "yes"]')
    ('no', 'yes')
    >>> read_labels('["yes", "no"]')
    Traceback (most recent call last):
    fedridge_flwr.errors.StatisticsError: the labels are not a sorted list of texts.
    """
    bad = StatisticsError("the labels are not a sorted list of texts.")
    most = MOST_CLASSES * (6 * LONGEST_LABEL + 4)
    if not isinstance(text, str) or len(text) > most:
        raise bad
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise bad from None
    if not isinstance(found, list) or not 0 < len(found) <= MOST_CLASSES:
        raise bad
    if not all(type(label) is str for label in found) or not are_canonical(found):
        raise bad
    if sorted_labels(set(found)) != tuple(found):
        raise bad
    return tuple(found)


def one_vs_rest(codes: NDArray[Any], n_classes: int) -> NDArray[np.int8]:
    """Return the targets of RidgeClassifier: 1 in the column of a row's class, else -1.

    A code of -1 belongs to no class.

    Examples
    --------
    >>> one_vs_rest(np.array([0, 2, -1]), 3).tolist()
    [[1, -1, -1], [-1, -1, 1], [-1, -1, -1]]
    """
    hit = codes[:, None] == np.arange(n_classes)
    return np.where(hit, np.int8(1), np.int8(-1))


def class_targets(codes: NDArray[Any], n_classes: int) -> NDArray[np.int8]:
    """Return the same; of two classes only the second, where 0 is neither of them.

    Examples
    --------
    >>> class_targets(np.array([0, 1, -1]), 2).tolist()
    [[-1], [1], [0]]
    """
    if n_classes != 2:
        return one_vs_rest(codes, n_classes)
    return np.where(codes < 0, 0, 2 * codes - 1).astype(np.int8).reshape(-1, 1)


def target_labels(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the targets of so many classes: of two, the second."""
    return tuple(classes[1:] if len(classes) == 2 else classes)


def are_whole(labels: Iterable[str]) -> bool:
    """Whether labels are whole numbers."""
    return all(_WHOLE.fullmatch(label) for label in labels)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return isinstance(value, str) and not value.strip()


def _column(y: Any) -> NDArray[Any]:
    try:
        array = np.asarray(y)
    except (TypeError, ValueError):
        raise DataError("y must be one label for each row.") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"y must be one label for each row, got an array of shape {array.shape}."
        )
    return array


def _distinct(array: NDArray[Any]) -> tuple[list[Any], NDArray[Any]]:
    """Return the different values of an array, and the place of each among them."""
    if array.dtype.kind in "biufU":
        values, inverse = np.unique(array, return_inverse=True)
        return list(values), inverse
    # In a dictionary True, 1 and 1.0 would be one key.
    found: dict[Any, int] = {}
    try:
        places = [found.setdefault((type(x), x), len(found)) for x in array.tolist()]
    except TypeError:  # of what cannot be a key
        raise DataError(f"y must have labels, which are {_KINDS}.") from None
    return [value for _, value in found], np.array(places, dtype=np.intp)
