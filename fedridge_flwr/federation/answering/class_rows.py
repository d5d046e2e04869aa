"""The client's side of classes: labels become the targets of RidgeClassifier."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..._text import counted
from ...data.labels import (
    class_targets,
    codes_among,
    encode_labels,
    label_numbers,
    one_vs_rest,
    target_labels,
)
from ...data.local_table import RawRows
from ...data.names import Columns, Names
from ...data.rows import Rows, check_rows
from ...errors import DataError
from ..requests import AskClasses, AskColumns, AskEvaluation, Request


def class_rows(request: Request, raw: RawRows) -> tuple[Rows, Rows]:
    """Return rows as they are remembered, and with one target for each class.

    What is remembered does not depend on the classes of the request: the difference of
    two uploads tells the same, whatever they are called.
    """
    labels, codes = encode_labels(raw.y)
    loaded = check_rows(raw.X, label_numbers(labels)[codes], raw.weight)
    wanted = Columns(None if request.columns is None else request.columns.features)
    arranged = loaded.arranged(wanted)
    if request.task == AskColumns.task:  # which says nothing of y
        return loaded, replace(arranged, Y=np.zeros(loaded.n_rows, np.int8))
    if not loaded.n_filled:
        raise DataError("there are no rows with weight, and so no classes.")
    places = _codes_among(request, labels, codes)
    if request.classes and request.task != AskClasses.task:
        names = target_labels(request.classes)
        targets = class_targets(places, len(request.classes))
    else:
        filled = codes if loaded.weight is None else codes[loaded.weight > 0]
        present = np.unique(filled)
        names = tuple(labels[k] for k in present)
        own = np.where(np.isin(codes, present), np.searchsorted(present, codes), -1)
        targets = one_vs_rest(own, len(present))
    schema = replace(arranged.schema, n_targets=len(names), targets=Names.of(names))
    rows = replace(arranged, Y=targets, schema=schema)
    if not request.class_weight or request.task == AskEvaluation.task:
        return loaded, rows
    by_label = dict(request.class_weight)
    factors = np.array([by_label.get(label, 1.0) for label in labels])[codes]
    weights = factors if rows.weight is None else factors * rows.weight
    return loaded, replace(rows, weight=weights)


def _codes_among(
    request: Request, labels: tuple[str, ...], codes: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the places of the rows' labels among the classes of the server, if any.

    In an evaluation, rows of another class have -1 and count as wrong.
    """
    classes = request.classes or labels
    found = codes_among(classes, labels, codes)
    unknown = int(np.count_nonzero(found < 0))
    if unknown and request.task != AskEvaluation.task:
        raise DataError(
            f"y has {counted(unknown, 'row')} with a label that is not among the "
            f"{len(classes)} classes of the server. Correct the labels, or use "
            'classes="auto" on the server.'
        )
    return found
