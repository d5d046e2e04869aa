"""Questions and answers of a fit in several rounds, as Flower records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._types import Array
from ...errors import ProtocolError
from ...features import ColumnMoments
from ...federation.costs import MOST_FEATURES
from ...federation.requests import (
    MODES,
    AskColumns,
    AskOpening,
    AskProduct,
    Limits,
    choose_mode,
)
from ...multiround import Opening
from ...statistics.validity import SMALLEST_SQUARE

__all__ = [
    "COLUMNS",
    "OPENING",
    "PRODUCT",
    "ROUNDS_PROTOCOL",
    "TASK_KEY",
    "opening_mode",
    "question_arrays",
    "question_fields",
    "read_columns",
    "read_opening",
    "read_product",
    "read_question",
    "refuse_statistics",
]

ROUNDS_PROTOCOL = 3
"""Clients that know one round only refuse this version."""

TASK_KEY = "fedridge-task"
COLUMNS, OPENING, PRODUCT = "columns", "opening", "product"
_MODE, _BYTES, _FEATURES = "mode", "max-bytes", "max-features"
_LARGEST = 1e200
_ONE_ROW = 1e-6

_Rounds = AskColumns | AskOpening | AskProduct


def question_fields(question: _Rounds) -> dict[str, int | str]:
    """Return a question as scalars of both APIs."""
    if isinstance(question, AskColumns):
        return {TASK_KEY: COLUMNS}
    if isinstance(question, AskProduct):
        return {TASK_KEY: PRODUCT}
    fields: dict[str, int | str] = {TASK_KEY: OPENING, _MODE: question.mode}
    if question.mode == "auto":
        fields[_BYTES] = question.limits.max_bytes
        fields[_FEATURES] = question.limits.max_features
    return fields


def question_arrays(question: _Rounds) -> dict[str, NDArray[Any]]:
    """Return the arrays of a question: the vectors to multiply by, if any."""
    if not isinstance(question, AskProduct):
        return {}
    return {"vectors": np.ascontiguousarray(question.vectors)}


def read_question(
    config: Mapping[str, Any], arrays: list[NDArray[Any]]
) -> _Rounds | None:
    """Return the question in a request, None if it is for statistics."""
    task = config.get(TASK_KEY)
    if task is None:
        return None
    if task == COLUMNS:
        return AskColumns()
    if task == PRODUCT:
        return AskProduct(_vectors(arrays))
    if task != OPENING or config.get(_MODE) not in MODES[1:]:
        raise ProtocolError(
            "the server asks for something that this client does not know: install "
            "the same fedridge-flwr on both sides."
        )
    mode = str(config[_MODE])
    if mode != "auto":
        return AskOpening(mode)
    limits = [config.get(_BYTES), config.get(_FEATURES)]
    if not all(type(limit) is int and limit > 0 for limit in limits):
        raise ProtocolError("the request does not say where auto ends.")
    return AskOpening(mode, Limits(*limits))  # type: ignore[arg-type]


def opening_mode(question: AskOpening, n_features: int, n_targets: int) -> str:
    """Return how to answer: "oneshot", "refine" or "cg"."""
    if question.mode != "auto":
        return question.mode
    return choose_mode(n_features, n_targets, question.limits)[0]


def read_opening(
    arrays: list[NDArray[Any]],
    n_features: int,
    n_targets: int,
    question: object,
    **beside: Any,
) -> Opening:
    """Return the opening in an answer, held against what was asked."""
    mode = ""
    if isinstance(question, AskOpening):
        mode = opening_mode(question, n_features, n_targets)
    if mode not in ("refine", "cg"):
        raise ProtocolError(
            "sent the opening of a refinement, which was not asked for."
        )
    if mode == "refine" and n_features > MOST_FEATURES:
        raise ProtocolError(
            f"has {n_features} features, too many for a matrix of d x d on the server "
            f'(at most {MOST_FEATURES}): use mode="cg".'
        )
    return Opening.from_arrays(
        arrays, n_features, n_targets, factor=mode == "refine", **beside
    )


def refuse_statistics(question: object, n_features: int, n_targets: int) -> None:
    """Refuse statistics where something else was asked for."""
    asked = question
    if isinstance(asked, AskOpening):
        good = opening_mode(asked, n_features, n_targets) == "oneshot"
    else:
        good = not isinstance(asked, AskColumns | AskProduct)
    if not good:
        raise ProtocolError(
            "sent full statistics, which were not asked for: install the same "
            "fedridge-flwr on both sides."
        )


def read_columns(
    arrays: list[NDArray[Any]], n_features: int, question: object, count: int
) -> ColumnMoments:
    """Return the moments of columns in an answer, of so many rows."""
    if not isinstance(question, AskColumns) or len(arrays) != 1:
        raise ProtocolError("sent moments of columns, which were not asked for.")
    found = ColumnMoments.from_array(arrays[0])
    if found.n_features != n_features:
        raise ProtocolError(
            f"sent moments of {found.n_features} columns for {n_features} features."
        )
    if count == 0 and found.weight:
        raise ProtocolError("sent moments of columns of no rows.")
    rounding = (_ONE_ROW * found.means) ** 2 + SMALLEST_SQUARE
    if count == 1 and (found.variances > rounding).any():
        raise ProtocolError("sent variances of columns of one row.")
    return found


def read_product(
    arrays: list[NDArray[Any]], n_features: int, question: object
) -> NDArray[Any]:
    """Return the product in an answer; what it can be is for others to say."""
    if not isinstance(question, AskProduct) or len(arrays) != 1:
        raise ProtocolError("sent a product, which was not asked for.")
    if n_features != question.vectors.shape[0]:
        raise ProtocolError(
            f"has {n_features} features now, where it had {question.vectors.shape[0]}."
        )
    return arrays[0]


def _vectors(arrays: list[NDArray[Any]]) -> Array:
    if len(arrays) != 1 or arrays[0].dtype != np.float64 or arrays[0].ndim != 2:
        raise ProtocolError("the request has no vectors to multiply by.")
    if not (np.abs(arrays[0]) <= _LARGEST).all():
        raise ProtocolError("the vectors to multiply by are not finite.")
    return arrays[0]
