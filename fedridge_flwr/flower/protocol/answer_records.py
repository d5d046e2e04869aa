"""Answers as Flower records, and back; whatever arrives is checked before use."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from ..._types import Array
from ...data.names import Columns
from ...data.schema import Schema
from ...data.table_profile import TableProfile
from ...errors import ProtocolError, StatisticsError
from ...features import ColumnMoments, FeatureMap
from ...federation.costs import MOST_FEATURES
from ...federation.requests import (
    Answer,
    AskClasses,
    AskColumns,
    AskCounts,
    AskEvaluation,
    AskLosses,
    AskOpening,
    AskProduct,
    AskRelease,
    AskResiduals,
    AskStatistics,
    AskTable,
    Losses,
    Request,
)
from ...multiround import Opening
from ...privacy.noisy_statistics import PrivateStatistics
from ...regression.evaluation import ErrorMoments, Evaluation
from ...regression.inference.residual_moments import ResidualMoments
from ...statistics.encoding import KINDS, decode
from ...statistics.fixed_point import FixedPointStatistics
from ...statistics.plain import PlainStatistics
from ...statistics.validity import SMALLEST_SQUARE
from ..error_text import one_line
from .array_records import array_record, decode_arrays
from .family_records import FAMILY_READERS
from .name_records import (
    label_fields,
    names_fields,
    read_class_counts,
    read_columns,
    read_digest,
)
from .request_records import MAP_KEY, NAMED, PROTOCOL, PROTOCOL_KEY
from .secure_records import SECURE_READERS
from .upload_records import as_sent, upload_fields

_RAW, _ERROR, _LOSSES = "n-features-in", "error", "losses"
_SUMS, _ACCURACY = "evaluation-sums", "accuracy"
NAME_KEY = "client-name"
_LOW = "means-low"
_Record = TypeVar("_Record", ArrayRecord, ConfigRecord, MetricRecord)
_LARGEST_COUNT = 2**53
_LARGEST_FLOAT = float(np.finfo(np.float64).max)
_ONE_ROW = 1e-6
_SAME = 1e-9
_unnamed_schema = lru_cache(maxsize=8)(Schema)  # the answers of a round share it


def _find(content: RecordDict, kind: type[_Record], *keys: str) -> _Record | None:
    """Return the first record of this kind under one of these keys."""
    # Flower's `config_records` and the like make a new dictionary for every look.
    for key in keys:
        record = content.get(key)
        if isinstance(record, kind):
            return record
    return None


_Reply: TypeAlias = Answer | ErrorMoments | Losses


# ---- the client writes --------------------------------------------------------------


def answer_fields(
    answer: Answer, share_names: bool
) -> dict[str, bool | int | str | bytes]:
    """Return what travels beside the arrays, as scalars of both APIs.

    It is the kind, the columns and the last digits of the means, in a field that
    servers of 0.1.0 do not look at; the number of rows is not in it.
    """
    schema = answer.schema
    fields: dict[str, bool | int | str | bytes] = {
        PROTOCOL_KEY: PROTOCOL,
        "kind": answer.kind,
        "n-features": schema.n_features,
        "n-targets": schema.n_targets,
    }
    if schema.features or schema.targets:
        fields |= names_fields(schema.columns, share_names)
    if answer.labelled:
        fields |= label_fields(schema.target_names or ())
    if schema.feature_map is not None and schema.n_features_in is not None:
        fields |= {MAP_KEY: schema.feature_map, _RAW: schema.n_features_in}
    if answer.means_low:
        fields[_LOW] = answer.means_low
    if answer.upload:
        fields |= upload_fields(answer)
    return fields


def error_content(reason: str) -> RecordDict:
    """Return a refusal as readable content instead of a traceback."""
    return RecordDict(
        {"config": ConfigRecord({PROTOCOL_KEY: PROTOCOL, _ERROR: reason})}
    )


def reply_content(answer: _Reply, share_names: bool) -> RecordDict:
    """Return an answer for the message API."""
    if isinstance(answer, Answer):
        metrics: dict[str, Any] = {"num-examples": answer.count}
        content: dict[str, Any] = {
            "arrays": array_record(answer.arrays),
            "config": ConfigRecord(dict(answer_fields(answer, share_names))),
        }
    else:
        content = {}
        metrics = {"num-examples": answer.n_rows}
        if isinstance(answer, Losses):
            metrics[_LOSSES] = answer.values.tolist()
        else:
            metrics |= _evaluation_scalars(answer)
            metrics[_SUMS] = answer.to_array().tolist()
    return RecordDict({**content, "metrics": MetricRecord(metrics)})


def losses_metrics(losses: Losses) -> dict[str, bytes]:
    """Return the same for the older API, whose scalars exclude lists."""
    return {_LOSSES: losses.values.astype("<f8").tobytes()}


def counts_metrics(answer: Answer, share_names: bool) -> dict[str, Any]:
    """Return counts in bins for the older API, whose evaluations have no arrays."""
    counts = answer.arrays[AskCounts.task].astype("<f8").tobytes()
    return {**answer_fields(answer, share_names), AskCounts.task: counts}


def evaluation_metrics(found: ErrorMoments) -> dict[str, float | bytes]:
    """Return an evaluation for the older API."""
    sums = found.to_array().astype("<f8").tobytes()
    return {**_evaluation_scalars(found), _SUMS: sums}


def _evaluation_scalars(found: ErrorMoments) -> dict[str, float]:
    told = {"mse": found.mse, "r2": found.r2}
    return told if found.accuracy is None else {**told, _ACCURACY: found.accuracy}


# ---- the server reads ---------------------------------------------------------------


def form_of(content: RecordDict) -> str:
    """Return the form of an answer, which is the one its client reads."""
    legacy = any(key.startswith("fitres.") for key in content)
    return "legacy" if legacy else "message"


def read_answer(content: RecordDict, request: Request) -> Any:
    """Return what an answer of either form brings, or raise what is wrong with it.

    That is a contribution, losses or an evaluation, by what was asked.
    """
    keys = ("config", "fitres.metrics")
    fields: Mapping[str, Any] = _find(content, ConfigRecord, *keys) or {}
    _raise_refusal(content, fields)
    if request.task == AskEvaluation.task:
        asked: Any = request
        found = read_evaluation(content, len(np.atleast_2d(asked.model.coef_)))
        if request.classes is not None and getattr(found, _ACCURACY, None) is None:
            raise ProtocolError(
                "did not count its rows by class: does its y contain labels?"
            )
        return found
    if isinstance(request, AskLosses):
        return read_losses(content, len(request.models.coef))
    arrays = _find(content, ArrayRecord, "arrays", "fitres.parameters")
    if arrays is None and request.task == AskCounts.task:
        return _read_older_counts(content, request)
    if arrays is None:
        raise ProtocolError("the answer has no arrays.")
    keys = ("metrics", "fitres.num_examples")
    metrics: Mapping[str, Any] = _find(content, MetricRecord, *keys) or {}
    count = metrics.get("num-examples", metrics.get("num_examples"))
    found = read_fields(fields, decode_arrays(arrays), count, request)
    kept = getattr(request, "uploads", None) is not None
    return as_sent(found, fields, request) if kept else found


def read_fields(
    fields: Mapping[str, Any], arrays: Sequence[NDArray[Any]], count: Any, request: Any
) -> Any:
    """Return the contribution that arrays and the fields beside them stand for."""
    if PROTOCOL_KEY not in fields:
        return _read_foreign(arrays, count, request)
    version = fields[PROTOCOL_KEY]
    if type(version) is not int or version != PROTOCOL:
        raise ProtocolError(
            f"the client speaks version {one_line(repr(version))} of the FedRidge "
            f"protocol, the server {PROTOCOL}: install the same fedridge-flwr on both "
            "sides."
        )
    kind = fields.get("kind")
    if not isinstance(kind, str) or (kind not in KINDS and kind not in _READERS):
        raise ProtocolError(f"unknown kind of statistics {one_line(repr(kind))}.")
    schema = _read_schema(fields, request.feature_map)
    count = _check_count(count)
    read = _READERS.get(kind)
    if read is not None:
        return read(request, arrays, schema, count)
    wanted = request.task == AskStatistics.task or (
        request.task == AskOpening.task and request.mode_for(schema, count) == "oneshot"
    )
    # Exact statistics in place of a private release are named where they are added up.
    if not wanted and request.task != AskRelease.task:
        raise ProtocolError(
            "sent full statistics, which were not asked for: install the same "
            "fedridge-flwr on both sides."
        )
    return decode(kind, arrays, schema, count, fields.get(_LOW, b""))


def _read_older_counts(content: RecordDict, request: Request) -> Any:
    """Return counts in bins from an evaluation of the older API."""
    fields: Any = _find(content, ConfigRecord, "evaluateres.metrics") or {}
    told: Any = _find(content, MetricRecord, "evaluateres.num_examples") or {}
    data = fields.get(AskCounts.task)
    if not isinstance(data, bytes) or len(data) % 8:
        raise ProtocolError("the answer has no counts in bins.")
    counts = np.frombuffer(data, dtype="<f8")
    return read_fields(fields, [counts], told.get("num_examples"), request)


def _read_foreign(arrays: Sequence[NDArray[Any]], count: Any, request: Any) -> Any:
    """Return the (G, h) of a client that does not use this package."""
    supported = (AskStatistics.task, AskRelease.task)
    if request.feature_map is not None or request.task not in supported:
        raise ProtocolError("does not support this request.")
    if len(arrays) != 2:
        raise ProtocolError(
            "the answer is neither FedRidge statistics nor the two arrays [G, h]: it "
            f"has {len(arrays)} array(s)."
        )
    return PlainStatistics.from_arrays(arrays[0], arrays[1], _check_count(count))


def _read_release(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> PrivateStatistics:
    if request.task != AskRelease.task:
        raise ProtocolError("sent a private release, which was not asked for.")
    if len(arrays) != 1:
        raise ProtocolError(f"expected one array of a release, got {len(arrays)}.")
    asked = request.release
    d, t = schema.n_features, schema.n_targets
    return PrivateStatistics(
        sums=arrays[0],
        privacy=asked.privacy,
        bounds=asked.privacy.bounds(d, t, asked.intercept),
        server_round=asked.question.server_round,
        schema=schema,
    )


def _read_fixed(
    request: Any,
    arrays: Sequence[NDArray[Any]],
    schema: Schema,
    count: int,
    *,
    weighted: bool = False,
) -> FixedPointStatistics:
    if request.task != AskStatistics.task or request.statistics != "fixed":
        raise ProtocolError("sent fixed-point statistics, which were not asked for.")
    if len(arrays) != 1:
        raise ProtocolError(f"expected one array of words, got {len(arrays)}.")
    return FixedPointStatistics.from_words(arrays[0], count, schema, weighted=weighted)


def _read_columns(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> ColumnMoments:
    if request.task != AskColumns.task or len(arrays) != 1:
        raise ProtocolError("sent moments of columns, which were not asked for.")
    found = ColumnMoments.from_array(arrays[0])
    if found.n_features != schema.n_features:
        raise ProtocolError(
            f"sent moments of {found.n_features} columns for {schema.n_features} "
            "features."
        )
    if count == 0 and found.weight:
        raise ProtocolError("sent moments of columns of no rows.")
    rounding = (_ONE_ROW * found.means) ** 2 + SMALLEST_SQUARE
    if count == 1 and (found.variances > rounding).any():
        raise ProtocolError("sent variances of columns of one row.")
    return replace(found, schema=schema)


def _read_opening(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> Opening:
    mode = request.opening_for(schema) if request.task == AskOpening.task else ""
    if mode not in ("refine", "cg"):
        raise ProtocolError(
            "sent the opening of a refinement, which was not asked for."
        )
    if mode == "refine" and schema.n_features > MOST_FEATURES:
        raise ProtocolError(
            f"has {schema.n_features} features, too many for a matrix of d x d on the "
            f'server (at most {MOST_FEATURES}): use mode="cg".'
        )
    return Opening.from_arrays(arrays, schema, count, factor=mode == "refine")


def _read_product(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> NDArray[Any]:
    """Return the product in an answer; whether it can be right is checked later."""
    if request.task != AskProduct.task or len(arrays) != 1:
        raise ProtocolError("sent a product, which was not asked for.")
    expected = request.vectors.shape[0]
    if schema.n_features != expected:
        raise ProtocolError(
            f"has {schema.n_features} features now, where it had {expected}."
        )
    return arrays[0]


def _read_table(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> TableProfile:
    if request.task != AskTable.task or len(arrays) != 1:
        raise ProtocolError("sent the profile of a table, which was not asked for.")
    return TableProfile.from_array(arrays[0])


def _read_residuals(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> ResidualMoments:
    if request.task != AskResiduals.task or len(arrays) != 2:
        raise ProtocolError("sent residual moments, which were not asked for.")
    return ResidualMoments.from_arrays(arrays, count, request.probe)


_READERS: dict[str, Any] = {
    AskTable.task: _read_table,
    "private": _read_release,
    "fixed": _read_fixed,
    "fixed-weighted": partial(_read_fixed, weighted=True),
    AskClasses.task: read_class_counts,
    AskColumns.task: _read_columns,
    AskOpening.task: _read_opening,
    AskProduct.task: _read_product,
    AskResiduals.task: _read_residuals,
    **SECURE_READERS,
    **FAMILY_READERS,
}


def _read_schema(fields: Mapping[str, Any], feature_map: FeatureMap | None) -> Schema:
    """Return the columns of an answer: names, hash and map that fit together."""
    d, t = _read_size(fields, "n-features"), _read_size(fields, "n-targets")
    raw, digest = None, read_digest(fields, MAP_KEY) if MAP_KEY in fields else None
    if digest is None and feature_map is not None:
        raise ProtocolError("used no feature map although one was asked for.")
    if digest is not None:
        if feature_map is None:
            raise ProtocolError("used a feature map, which was not asked for.")
        raw = _read_size(fields, _RAW)
        if feature_map.n_features_out(raw) != d:
            raise ProtocolError(
                f"used another feature map than the server: {d} features of {raw} "
                f"columns, where there should be {feature_map.n_features_out(raw)}."
            )
    try:
        names = read_columns(fields) if NAMED & fields.keys() else Columns()
        if names == Columns():
            return _unnamed_schema(d, t, None, None, digest, raw)
        return Schema(d, t, names.features, names.targets, digest, raw)
    except StatisticsError as error:
        raise ProtocolError(str(error)) from None


def _read_size(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**6:
        raise ProtocolError(f"{key} must be a positive whole number.")
    return value


def _check_count(count: Any) -> int:
    if type(count) is not int or not 0 <= count < _LARGEST_COUNT:
        raise ProtocolError(
            f"num-examples must be a whole number of rows, got {one_line(repr(count))}."
        )
    return count


def _raise_refusal(content: RecordDict, fields: Mapping[str, Any]) -> None:
    """Raise the reason that a client gives for not answering."""
    keys = ("fitres.status", "evaluateres.status")
    status: Mapping[str, Any] = _find(content, ConfigRecord, *keys) or {}
    refused = status.get("code", 0) != 0
    if _ERROR in fields or refused:
        reason = status.get("message", "") if refused else fields[_ERROR]
        raise ProtocolError(one_line(reason) or "no reason given")


def read_losses(content: RecordDict, expected: int) -> Array:
    """Return the losses in an answer of either form, or raise what is wrong."""
    metrics: Mapping[str, Any] = _find(content, MetricRecord, "metrics") or {}
    found = metrics.get(_LOSSES)
    if found is None:
        older = _find(content, ConfigRecord, "evaluateres.metrics")
        legacy: Mapping[str, Any] = older or {}
        data = legacy.get(_LOSSES)
        if not isinstance(data, bytes) or len(data) % 8:
            raise ProtocolError("the answer has no held-out losses.")
        found = np.frombuffer(data, dtype="<f8").tolist()
    losses = np.asarray(found, dtype=np.float64)
    if losses.shape != (expected,):
        raise ProtocolError(
            f"expected {expected} held-out losses, got shape {losses.shape}."
        )
    if not (np.isfinite(losses).all() and (losses >= 0).all()):
        raise ProtocolError("some held-out losses are negative or not finite.")
    return losses


def read_evaluation(content: RecordDict, n_targets: int) -> ErrorMoments | Evaluation:
    """Return the evaluation in an answer of either form, or raise what is wrong.

    A client of 0.1.0 sends no sums, from which R² over the rows of all clients is
    computed. A foreign one may call its mean squared error ``loss``, and need not know
    R².
    """
    found: dict[str, Any] = {}
    for key in ("evaluateres.num_examples", "evaluateres.loss", "metrics"):
        found.update(_find(content, MetricRecord, key) or {})
    found.update(_find(content, ConfigRecord, "evaluateres.metrics") or {})
    count = _check_count(found.get("num-examples", found.get("num_examples")))
    mse: Any = found.get("mse", found.get("loss"))
    if not _is_number(mse) or not 0 <= mse <= _LARGEST_FLOAT:
        raise ProtocolError("mse must be a finite number, zero or more.")
    r2: Any = found.get("r2", float("nan"))
    if not _is_number(r2) or not (r2 != r2 or -1e300 < r2 <= 1):
        raise ProtocolError("r2 must be a number of at most 1.")
    accuracy: Any = found.get(_ACCURACY)
    if accuracy is not None and not (_is_number(accuracy) and 0 <= accuracy <= 1):
        raise ProtocolError("accuracy must be a number from 0 to 1.")
    told, sums = Evaluation(float(mse), float(r2), count), found.get(_SUMS)
    if sums is None:
        return told
    return replace(_read_sums(sums, told, n_targets), accuracy=accuracy)


def _read_sums(sums: Any, told: Evaluation, n_targets: int) -> ErrorMoments:
    """Return what mse and R² were computed from; it must say the same."""
    if isinstance(sums, bytes) and len(sums) % 8 == 0:
        sums = np.frombuffer(sums, dtype="<f8").tolist()
    if not isinstance(sums, list) or not all(isinstance(x, float) for x in sums):
        raise ProtocolError("the evaluation sums are not a list of numbers.")
    try:
        found = ErrorMoments.from_array(np.array(sums, float), told.n_rows, n_targets)
    except StatisticsError as error:
        raise ProtocolError(str(error)) from None
    mse, r2 = abs(found.mse - told.mse), abs(found.r2 - told.r2)
    # Both are NaN where y does not vary; one that is left out contradicts the other.
    unknown = math.isnan(found.r2) and math.isnan(told.r2)
    same_r2 = unknown or r2 <= _SAME * (1.0 + abs(found.r2))
    if not (same_r2 and mse <= _SAME * found.mse):
        raise ProtocolError("mse and r2 contradict the evaluation sums.")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
