"""Names of columns as scalars of a message, and back: hashes, an order, or in clear."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._checks import check_numbers
from ..._files import strict_json
from ...data.labels import MOST_CLASSES, are_canonical, check_class_weight
from ...data.names import Columns, Names
from ...data.schema import Schema
from ...errors import ProtocolError, StatisticsError
from ...federation.requests import AskClasses

# Hash in order, hash of the sorted names, places of the sorted names, names in clear.
_KEYS = {
    "features": ("feature-hash", "feature-set-hash", "feature-order", "feature-names"),
    "targets": ("target-hash", "target-set-hash", "target-order", "target-names"),
}
CLASSES_KEY, _WEIGHTS = "classes", "class-weights"
_HASH = re.compile("[0-9a-f]{32}")
_LONGEST_NAME = 200
_MOST_BYTES = 4_000_000


def names_fields(columns: Columns, in_clear: bool) -> dict[str, Any]:
    """Return what travels of names; of sorted names, one hash says it all."""
    fields: dict[str, Any] = {}
    for names, keys in zip(columns, _KEYS.values(), strict=True):
        if names is None:
            continue
        in_order, sorted_hash, order, clear = keys
        fields[in_order] = names.hash
        if names.order:
            fields[sorted_hash] = names.sorted_hash
            dtype = "<u1" if len(names.order) <= 256 else "<u4"
            fields[order] = np.array(names.order, dtype).tobytes()
        if in_clear and names.known is not None:
            fields[clear] = json.dumps(names.known)
    return fields


def label_fields(labels: Sequence[str]) -> dict[str, Any]:
    """Return what travels of targets that are classes: their labels, in clear."""
    return {_KEYS["targets"][-1]: json.dumps(list(labels))}


def classes_fields(
    classes: Sequence[str], weights: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    """Return what a request says of the classes of y; of none, clients have theirs."""
    fields = {CLASSES_KEY: json.dumps(list(classes))}
    return {**fields, _WEIGHTS: json.dumps(dict(weights))} if weights else fields


def read_classes(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the classes of a request that is about classes."""
    labels = _read_clear(fields.get(CLASSES_KEY)) or ()
    if len(labels) > MOST_CLASSES or not are_canonical(labels):
        raise ProtocolError("the classes of the request are not valid labels.")
    return labels


def read_class_weight(fields: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Return by how much the rows of some classes count."""
    text = fields.get(_WEIGHTS)
    if text is None:
        return ()
    try:
        told = strict_json(text) if isinstance(text, str) else None
        return tuple(check_class_weight(told).items())
    except ValueError:
        raise ProtocolError("the class weights of the request are invalid.") from None


def read_class_counts(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> dict[str, int]:
    """Return how many rows a client has of each class, by the labels it sent."""
    if request.task != AskClasses.task or len(arrays) != 1:
        raise ProtocolError("sent counts of classes, which were not asked for.")
    labels = schema.target_names or ()
    if len(labels) > MOST_CLASSES or not are_canonical(labels):
        raise ProtocolError("sent labels of classes that are not valid.")
    if request.classes and not set(labels) <= set(request.classes):
        raise ProtocolError("sent other classes than those of the server.")
    counts = check_numbers(arrays[0], np.float64, len(labels), "counts of classes")
    whole = (counts == np.floor(counts)).all() and (counts >= 0).all()
    if not (labels and whole and 0 < counts.sum() <= count):
        raise ProtocolError("sent counts of classes that its rows cannot have.")
    return {label: int(n) for label, n in zip(labels, counts, strict=True) if n}


def read_columns(fields: Mapping[str, Any]) -> Columns:
    """Return the names in a message, or raise what is wrong with them."""
    return Columns(*(_read_names(fields, *keys) for keys in _KEYS.values()))


def read_digest(fields: Mapping[str, Any], key: str) -> str | None:
    """Return a hash in a message, if there is one."""
    digest = fields.get(key)
    if not (digest is None or (isinstance(digest, str) and _HASH.fullmatch(digest))):
        raise ProtocolError(f"the {key} is not a hash.")
    return digest


def _read_names(
    fields: Mapping[str, Any], in_order: str, sorted_hash: str, order: str, clear: str
) -> Names | None:
    known = _read_clear(fields.get(clear))
    digest = read_digest(fields, in_order)
    if digest is None:
        return None if known is None else Names.of(known)
    places = _read_order(fields.get(order))
    of_sorted = read_digest(fields, sorted_hash) or digest
    if (of_sorted == digest) != (places == tuple(range(len(places)))):
        raise ProtocolError("the order of the columns does not fit their hashes.")
    found = Names(digest, of_sorted, places)
    try:
        return found.with_known(known)
    except StatisticsError as error:
        raise ProtocolError(str(error)) from None


def _read_order(data: Any) -> tuple[int, ...]:
    if data is None:
        return ()
    if not isinstance(data, bytes) or len(data) > _MOST_BYTES:
        raise ProtocolError("the order of the columns is not made of bytes.")
    for dtype in ("<u1", "<u4"):
        if len(data) % np.dtype(dtype).itemsize == 0:
            order = np.frombuffer(data, dtype)
            if (np.sort(order) == np.arange(order.size)).all():
                return tuple(order.tolist())
    raise ProtocolError("the order of the columns does not name each of them once.")


def _read_clear(text: Any) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        names = strict_json(text) if isinstance(text, str) else None
    except ValueError:
        names = None
    if not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise ProtocolError("the names of the columns are not a list of text.")
    if not all(name.isprintable() and len(name) <= _LONGEST_NAME for name in names):
        raise ProtocolError("some names of columns are too long or not printable.")
    if len(set(names)) < len(names):
        raise ProtocolError("some names of columns occur twice.")
    return tuple(names)
