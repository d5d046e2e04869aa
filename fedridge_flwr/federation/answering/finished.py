"""Answers from statistics that were computed where the data are, instead of rows."""

from typing import Any

from ...data.names import Columns
from ...data.rows import places_of
from ...data.schema import HasSchema
from ...errors import ColumnNamesError, DataError, ProtocolError
from ...statistics.encoding import encode, encode_stats
from ..requests import Answer, AskOpening, AskStatistics, Request
from .respond import Guards

_FORMS = ("full", "triangular", "fixed")
_ONLY = "this client has finished statistics and no rows, and the server asks for"
_REMEDY = "let load_data return the rows."
_ASKED = {
    "evaluation": "an evaluation: pass load_eval_data=, or ",
    "counts": "an evaluation: pass load_eval_data=, or ",
    "losses": 'losses of models: use cv="server", or ',
    "residuals": 'residuals: use standard_errors="classical", or ',
    "table": "columns by a formula: leave out formula=, or ",
    "columns": "means and variances first: resolve the feature map, or ",
    "product": 'products: use mode="oneshot", or ',
    "classes": "labels: ",
    "outcome": "a family: ",
    "working": "a family: ",
    "release": "a private release: ",
}


def check_finished(stats: HasSchema, request: Request) -> HasSchema:
    """Return statistics as they are if a request can be answered from them.

    Raises
    ------
    ProtocolError
        If it needs rows; it says what to do, at the server or at the client.
    DataError
        If they are no statistics of rows, or not exact.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> check_finished(stats, AskOpening("cg"))
    Traceback (most recent call last):
    fedridge_flwr.errors.ProtocolError: this client has finished statistics and no \
rows, and the server asks for a fit in several rounds: use mode="oneshot", or let \
load_data return the rows.
    """
    if getattr(stats, "form", None) not in _FORMS:
        raise DataError(
            f"{type(stats).__name__} cannot stand for rows: return "
            "SufficientStatistics."
        )
    if request.task not in (AskStatistics.task, AskOpening.task):
        asked = _ASKED.get(request.task, "a secure sum: ")
        raise ProtocolError(f"{_ONLY} {asked}{_REMEDY}")
    if request.coding is not None or request.classes is not None:
        asked = _ASKED["table" if request.classes is None else "classes"]
        raise ProtocolError(f"{_ONLY} {asked}{_REMEDY}")
    _check_map(stats, request)
    _check_form(stats, request)
    return stats


def _check_map(stats: HasSchema, request: Request) -> None:
    """Statistics behind a map are those that the server wants behind the same map."""
    mapping, raw = request.feature_map, stats.n_features_in
    wanted = None if mapping is None or raw is None else mapping.fingerprint(raw)
    if (mapping is None) != (stats.feature_map is None) or wanted != stats.feature_map:
        asked = "no feature map" if mapping is None else "a feature map"
        raise ProtocolError(
            f"{_ONLY} {asked}, but they are of rows behind "
            f"{'another' if stats.feature_map else 'none'}: compute them with "
            f"feature_map= as the server has it, or {_REMEDY}"
        )


def _check_form(stats: Any, request: Any) -> None:
    mode = "oneshot"
    if request.task == AskOpening.task:
        mode = request.mode_for(stats.schema, stats.count)
    if mode != "oneshot":
        raise ProtocolError(
            f'{_ONLY} a fit in several rounds: use mode="oneshot", or {_REMEDY}'
        )
    form = getattr(request, "statistics", "moments")
    if form == "fixed" or (form == "triangular" and stats.form != "triangular"):
        raise ProtocolError(
            f'{_ONLY} statistics="{form}": use statistics="moments", or {_REMEDY}'
        )
    if stats.rounding and getattr(request, "wire_dtype", "float64") == "float64":
        raise DataError(
            "some of these statistics came as float32, and the server asks for "
            'float64: use wire_dtype="float32" there, or float64 here.'
        )


def finished_answer(request: Any, stats: Any, guards: Guards) -> Answer:
    """Return finished statistics as an answer, if the guards allow it.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> finished_answer(AskStatistics(), stats, Guards()).count
    2
    >>> finished_answer(AskStatistics(), stats, Guards(min_rows=3))
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: declined: it has fewer rows than its min_rows=3.
    """
    guards.check_finished(stats)
    stats = _arranged(stats, request.columns)
    if getattr(request, "statistics", "moments") == "triangular":
        found = encode_stats("triangular", stats)
    else:
        moments = stats if stats.form == "full" else stats.to_sufficient()
        found = encode(moments, getattr(request, "wire_dtype", "float64"))
    return Answer(found.kind, found.arrays, found.count, stats.schema, found.means_low)


def _arranged(stats: Any, wanted: Columns | None) -> Any:
    if wanted is None:
        return stats
    features = places_of("X", stats.schema.features, wanted.features)
    targets = places_of("y", stats.schema.targets, wanted.targets)
    if features is None and targets is None:
        return stats
    if stats.feature_map is not None:
        raise ColumnNamesError(
            "the server wants the columns in another order, in which statistics behind "
            "a feature map cannot be brought: compute them again in that order."
        )
    return stats.arranged(wanted)
