"""Records to statistics and back: the only place that knows the record keys.

A request carries both forms at once, ``config`` for message-API clients and
``fitins.*`` for NumPyClients, since a strategy cannot know who is out there. A
client answers in the form it was asked in. Whatever arrives is checked before use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    MetricRecord,
    RecordDict,
)
from flwr.common import Parameters
from flwr.compat.common.recorddict_compat import parameters_to_arrayrecord
from numpy.typing import NDArray

from ..._files import strict_json
from ...data.rows import Rows
from ...errors import ProtocolError
from ...features import FeatureMap
from ...federation.one_shot import OneShotFit
from ...federation.requests import (
    AskColumns,
    AskOpening,
    AskProduct,
    AskStatistics,
    Question,
)
from ...privacy.curator import ReleaseRequest as Request
from ...regression.model import Evaluation
from ...statistics.encoding import KINDS, decode, encode
from ...statistics.float32 import WIRE_DTYPES
from ...statistics.plain import PlainStatistics
from ...statistics.sufficient import SufficientStatistics, hash_names
from ..error_text import one_line
from .arrays import decode_arrays
from .multiround_records import (
    COLUMNS,
    OPENING,
    PRODUCT,
    ROUNDS_PROTOCOL,
    TASK_KEY,
    question_arrays,
    question_fields,
    read_columns,
    read_opening,
    read_product,
    refuse_statistics,
)
from .multiround_records import read_question as read_rounds_question
from .private_records import (
    PRIVATE_PROTOCOL,
    PROTOCOL_KEY,
    private_request,
    read_release,
    request_arrays,
    request_fields,
)

_Record = TypeVar("_Record", ArrayRecord, ConfigRecord, MetricRecord)

__all__ = [
    "FEATURE_HASH_KEY",
    "FORMS",
    "LOSSES_TASK",
    "MAP_KEY",
    "PRIVATE",
    "PROTOCOL",
    "PROTOCOL_KEY",
    "TASK_KEY",
    "Answer",
    "answer_reply",
    "asked_dtype",
    "asked_for",
    "asked_map",
    "asks_for_losses",
    "check_request",
    "error_reply",
    "evaluate_request",
    "evaluation_metrics",
    "evaluation_reply",
    "form_of",
    "is_legacy_request",
    "losses_metrics",
    "losses_reply",
    "map_fields",
    "read_answer",
    "read_evaluation",
    "read_fields",
    "read_losses",
    "read_question",
    "request_config",
    "schema_fields",
    "statistics_reply",
    "train_request",
]

PROTOCOL = 1
_NAMES_KEY = "feature-names"
_ERROR_KEY = "error"
LOSSES_TASK = "held-out-losses"
_LOSSES_KEY = "losses"
FEATURE_HASH_KEY = "feature-hash"
MAP_KEY = "feature-map"
_RAW_KEY = "n-features-in"
_DTYPE_KEY = "wire-dtype"
PRIVATE = "private"
_HASH = re.compile("[0-9a-f]{32}")
_LONGEST_NAME = 200
_LARGEST_COUNT = 2**53
_LARGEST_FLOAT = float(np.finfo(np.float64).max)
_KNOWN_PROTOCOLS = (PROTOCOL, PRIVATE_PROTOCOL, ROUNDS_PROTOCOL)

FORMS = ("both", "message", "legacy")
"""In which API a request is written: in both as long as the client's is not known."""


# ---- requests --------------------------------------------------------------------


def train_request(
    config: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]] | None = None,
    form: str = FORMS[0],
) -> RecordDict:
    """Return a question to clients; in both forms, arrays travel twice."""
    record = ArrayRecord({k: FlowerArray(a) for k, a in (arrays or {}).items()})
    content = _request("fitins", record, config)
    if form == "both":
        return content
    legacy = form == "legacy"
    return RecordDict(
        {k: v for k, v in content.items() if k.startswith("fitins.") == legacy}
    )


def evaluate_request(arrays: ArrayRecord, config: Mapping[str, Any]) -> RecordDict:
    """Return the request to evaluate a model."""
    return _request("evaluateins", arrays, config)


def _request(form: str, arrays: ArrayRecord, config: Mapping[str, Any]) -> RecordDict:
    marked = {PROTOCOL_KEY: PROTOCOL, **config}
    scalars = {k: v for k, v in marked.items() if not isinstance(v, list)}
    # The older form knows no empty record, only a record of one empty array.
    legacy = arrays if len(arrays) else parameters_to_arrayrecord(_NO_ARRAYS, True)
    return RecordDict(
        {
            "arrays": arrays,
            "config": ConfigRecord(marked),
            f"{form}.parameters": legacy,
            f"{form}.config": ConfigRecord(scalars),
        }
    )


_NO_ARRAYS = Parameters(tensors=[], tensor_type="numpy.ndarray")


def is_legacy_request(content: RecordDict) -> bool:
    """Whether only the older form is there, so the answer must have it too."""
    return _first(content, ConfigRecord, "config") is None


def request_config(content: RecordDict) -> Mapping[str, Any]:
    """Return the configuration of a request of either form."""
    keys = ("config", "fitins.config", "evaluateins.config")
    return _first(content, ConfigRecord, *keys) or {}


def form_of(content: RecordDict) -> str:
    """Return the form of an answer, which is the one its client reads."""
    legacy = any(key.startswith("fitres.") for key in content)
    return "legacy" if legacy else "message"


def asks_for_losses(content: RecordDict) -> bool:
    """Whether a request wants held-out losses and not an evaluation."""
    return request_config(content).get(TASK_KEY) == LOSSES_TASK


def check_request(config: Mapping[str, Any]) -> None:
    """Refuse requests of strategies that are not ours, or of another version."""
    version = config.get(PROTOCOL_KEY)
    if version is None:
        raise ProtocolError(
            "the server's strategy is not FedRidge, and would average the statistics "
            "as if they were weights: use FedRidge (or LegacyFedRidge with "
            "ServerAppComponents) as the strategy."
        )
    if version not in _KNOWN_PROTOCOLS:
        known = ", ".join(map(str, _KNOWN_PROTOCOLS))
        raise ProtocolError(
            f"the server speaks version {version!r} of the FedRidge protocol, this "
            f"client {known}: install the same fedridge-flwr on both sides."
        )


def asked_for(fit: OneShotFit) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return config and arrays of what a fit asks every client now."""
    question, mapped = fit.question(), map_fields(fit.map_now)
    if isinstance(question, Request):
        return {**request_fields(question), **mapped}, request_arrays(question)
    if not isinstance(question, AskStatistics):
        fields = {PROTOCOL_KEY: ROUNDS_PROTOCOL, **question_fields(question)}
        return {**fields, **mapped}, question_arrays(question)
    dtype = question.wire_dtype
    return {**({} if dtype == "float64" else {_DTYPE_KEY: dtype}), **mapped}, {}


def map_fields(feature_map: FeatureMap | None) -> dict[str, str]:
    """Return the feature map that rows are to go through, if there is one."""
    return {} if feature_map is None else {MAP_KEY: feature_map.to_json()}


def asked_map(config: Mapping[str, Any]) -> FeatureMap | None:
    """Return the feature map in a request."""
    text = config.get(MAP_KEY)
    return None if text is None else FeatureMap.from_json(text)


def read_question(config: Mapping[str, Any], arrays: list[NDArray[Any]]) -> Question:
    """Return what a request asks for."""
    private = private_request(config, arrays)
    if private is not None:
        return private
    rounds = read_rounds_question(config, arrays)
    return AskStatistics(asked_dtype(config)) if rounds is None else rounds


def asked_dtype(config: Mapping[str, Any]) -> str:
    """Return the form that a request wants statistics in."""
    dtype = config.get(_DTYPE_KEY, "float64")
    if dtype not in WIRE_DTYPES:
        raise ProtocolError(
            f"the server wants statistics as {one_line(repr(dtype))}, this client can "
            f"send {' and '.join(WIRE_DTYPES)}: install the same fedridge-flwr on both "
            "sides."
        )
    return str(dtype)


# ---- answers ---------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Arrays of an answer, in order, the number of rows, and what travels beside."""

    arrays: dict[str, NDArray[Any]]
    count: int
    fields: dict[str, bool | int | str]


def schema_fields(
    kind: str, schema: Rows | SufficientStatistics, share_names: bool
) -> dict[str, bool | int | str]:
    """Return what travels beside the arrays, as scalars of both APIs.

    It is the kind and the columns; the number of rows is not in it.
    """
    fields: dict[str, bool | int | str] = {
        PROTOCOL_KEY: PROTOCOL,
        "kind": kind,
        "n-features": schema.n_features,
        "n-targets": schema.n_targets,
    }
    names = schema.feature_names
    digest = hash_names(names) if isinstance(schema, Rows) else schema.feature_hash
    if digest is not None:
        fields[FEATURE_HASH_KEY] = digest
    if names is not None and share_names:
        fields[_NAMES_KEY] = json.dumps(names)
    mapped = schema.map_fingerprint if isinstance(schema, Rows) else schema.feature_map
    if mapped is not None and schema.n_features_in is not None:
        fields |= {MAP_KEY: mapped, _RAW_KEY: schema.n_features_in}
    return fields


def statistics_reply(
    stats: SufficientStatistics, share_names: bool, dtype: str = "float64"
) -> RecordDict:
    """Return statistics as the answer to a message-API request."""
    found = encode(stats, dtype)
    fields = schema_fields(found.kind, stats, share_names)
    return answer_reply(Answer(found.arrays, found.count, fields))


def answer_reply(answer: Answer) -> RecordDict:
    """Return the answer to a message-API request."""
    arrays = {name: FlowerArray(array) for name, array in answer.arrays.items()}
    return RecordDict(
        {
            "arrays": ArrayRecord(arrays),
            "metrics": MetricRecord({"num-examples": answer.count}),
            "config": ConfigRecord(dict(answer.fields)),
        }
    )


def error_reply(reason: str) -> RecordDict:
    """Return a refusal as readable content instead of a traceback."""
    return RecordDict(
        {"config": ConfigRecord({PROTOCOL_KEY: PROTOCOL, _ERROR_KEY: reason})}
    )


def read_answer(
    content: RecordDict,
    question: Question | None = None,
    feature_map: FeatureMap | None = None,
) -> Any:
    """Return what an answer of either form holds, or raise what is wrong.

    `question` is what was asked, statistics by default; rows are to have gone through
    `feature_map`.
    """
    _raise_refusal(content)
    fields: Mapping[str, Any] = (
        _first(content, ConfigRecord, "config", "fitres.metrics") or {}
    )
    arrays = _first(content, ArrayRecord, "arrays", "fitres.parameters")
    if arrays is None:
        raise ProtocolError("the answer has no arrays.")
    count = _count_of(content)
    return read_fields(fields, decode_arrays(arrays), count, question, feature_map)


def read_fields(
    fields: Mapping[str, Any],
    arrays: list[NDArray[Any]],
    count: Any,
    question: Question | None = None,
    feature_map: FeatureMap | None = None,
) -> Any:
    """Return what is given by arrays and what travels beside them."""
    if PROTOCOL_KEY not in fields:
        rounds = isinstance(question, AskColumns | AskOpening | AskProduct)
        if feature_map is not None or rounds:
            raise ProtocolError("knows nothing of what it is asked for.")
        return _plain(arrays, count)
    version = fields[PROTOCOL_KEY]
    if type(version) is not int or version != PROTOCOL:
        raise ProtocolError(
            f"the client speaks version {one_line(repr(version))} of "
            f"the FedRidge protocol, the server {PROTOCOL}: install the same "
            "fedridge-flwr on both sides."
        )
    kind = fields.get("kind")
    if kind not in (PRIVATE, COLUMNS, OPENING, PRODUCT, *KINDS):
        raise ProtocolError(f"unknown kind of statistics {one_line(repr(kind))}.")
    d, t = _size(fields, "n-features"), _size(fields, "n-targets")
    count = _check_count(count)
    if kind == PRODUCT:
        return read_product(arrays, d, question)
    schema = _schema(fields, d, feature_map)
    if kind == PRIVATE:
        if not isinstance(question, Request):
            raise ProtocolError("sent a private release, which was not asked for.")
        return read_release(arrays, d, t, question, **schema)
    if kind == COLUMNS:
        return read_columns(arrays, d, question, count)
    beside = {"count": count, **schema}
    if kind == OPENING:
        return read_opening(arrays, d, t, question, **beside)
    refuse_statistics(question, d, t)
    return decode(kind, arrays, d, t, **beside)


def _schema(
    fields: Mapping[str, Any], n_features: int, feature_map: FeatureMap | None
) -> dict[str, Any]:
    """Return names, hash and map of the columns, which fit to each other."""
    mapped = _mapped(fields, n_features, feature_map)
    names, digest = _names_of(fields), _digest(fields, FEATURE_HASH_KEY)
    columns = mapped.get("n_features_in", n_features)
    if names is not None and len(names) != columns:
        raise ProtocolError(f"{len(names)} feature names for {columns} features.")
    if names is not None and digest not in (None, hash_names(names)):
        raise ProtocolError("the feature names do not match their hash.")
    return {
        "feature_names": names,
        "feature_hash": digest if names is None else hash_names(names),
        **mapped,
    }


def _mapped(
    fields: Mapping[str, Any], n_features: int, feature_map: FeatureMap | None
) -> dict[str, Any]:
    """Return how the rows were mapped, as far as that can be checked here."""
    digest = _digest(fields, MAP_KEY)
    if digest is None and feature_map is None:
        return {}
    if digest is None:
        raise ProtocolError("used no feature map although one was asked for.")
    if feature_map is None:
        raise ProtocolError("used a feature map, which was not asked for.")
    raw = _size(fields, _RAW_KEY)
    if feature_map.n_features_out(raw) != n_features:
        raise ProtocolError(
            f"used another feature map than the server: {n_features} features of {raw} "
            f"columns, where there should be {feature_map.n_features_out(raw)}."
        )
    return {"feature_map": digest, "n_features_in": raw}


def _digest(fields: Mapping[str, Any], key: str) -> str | None:
    digest = fields.get(key)
    if not (digest is None or (isinstance(digest, str) and _HASH.fullmatch(digest))):
        raise ProtocolError(f"the {key} is not a hash.")
    return digest


def _plain(arrays: list[NDArray[Any]], count: Any) -> PlainStatistics:
    if len(arrays) != 2:
        raise ProtocolError(
            "the answer is neither FedRidge statistics nor the two arrays [G, h]: it "
            f"has {len(arrays)} array(s)."
        )
    return PlainStatistics.from_arrays(arrays[0], arrays[1], _check_count(count))


def _names_of(fields: Mapping[str, Any]) -> list[str] | None:
    text = fields.get(_NAMES_KEY)
    if text is None:
        return None
    try:
        names = strict_json(text) if isinstance(text, str) else None
    except ValueError:
        names = None
    if not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise ProtocolError("the feature names are not a list of text.")
    if not all(name.isprintable() and len(name) <= _LONGEST_NAME for name in names):
        raise ProtocolError("some feature names are too long or not printable.")
    return names


def _size(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**6:
        raise ProtocolError(f"{key} must be a positive whole number.")
    return value


def _count_of(content: RecordDict) -> Any:
    metrics = _first(content, MetricRecord, "metrics", "fitres.num_examples")
    if metrics is None:
        return None
    return metrics.get("num-examples", metrics.get("num_examples"))


def _check_count(count: Any) -> int:
    if (
        not isinstance(count, int)
        or isinstance(count, bool)
        or not 0 <= count < _LARGEST_COUNT
    ):
        raise ProtocolError(
            f"num-examples must be a whole number of rows, got {one_line(repr(count))}."
        )
    return count


def _first(content: RecordDict, kind: type[_Record], *keys: str) -> _Record | None:
    # Flower's `config_records` and the like make a new dictionary for every look.
    for key in keys:
        record = content.get(key)
        if isinstance(record, kind):
            return record
    return None


def _raise_refusal(content: RecordDict) -> None:
    fields = _first(content, ConfigRecord, "config")
    if fields is not None and _ERROR_KEY in fields:
        raise ProtocolError(_reason(fields[_ERROR_KEY]))
    for key in ("fitres.status", "evaluateres.status"):
        status = _first(content, ConfigRecord, key)
        if status is not None and status.get("code", 0) != 0:
            raise ProtocolError(_reason(status.get("message", "")))


def _reason(text: object) -> str:
    return one_line(text) or "no reason given"


# ---- held-out losses ----------------------------------------------------------------


def losses_reply(losses: NDArray[np.float64], count: int) -> RecordDict:
    """Return the answer to a message-API request: one number per candidate."""
    metrics = MetricRecord({"num-examples": count, _LOSSES_KEY: losses.tolist()})
    return RecordDict({"metrics": metrics})


def losses_metrics(losses: NDArray[np.float64]) -> dict[str, bytes]:
    """Return the same for the older API, whose scalars exclude lists."""
    return {_LOSSES_KEY: losses.astype("<f8").tobytes()}


def read_losses(content: RecordDict, expected: int) -> NDArray[np.float64]:
    """Return the losses in an answer of either form, or raise what is wrong."""
    _raise_refusal(content)
    metrics: Mapping[str, Any] = _first(content, MetricRecord, "metrics") or {}
    found = metrics.get(_LOSSES_KEY)
    if found is None:
        older = _first(content, ConfigRecord, "evaluateres.metrics")
        legacy: Mapping[str, Any] = older or {}
        data = legacy.get(_LOSSES_KEY)
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


# ---- evaluation ------------------------------------------------------------------


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Return what a client tells of its evaluation, beside the number of rows."""
    return {"mse": evaluation.mse, "r2": evaluation.r2}


def evaluation_reply(evaluation: Evaluation) -> RecordDict:
    """Return the answer to a message-API request."""
    metrics = MetricRecord({"num-examples": evaluation.n_rows})
    metrics.update(evaluation_metrics(evaluation))
    return RecordDict({"metrics": metrics})


def read_evaluation(content: RecordDict) -> Evaluation:
    """Return the evaluation in an answer of either form, or raise what is wrong.

    A client of somebody else's may call its mean squared error ``loss``, and need
    not know R².
    """
    _raise_refusal(content)
    found: dict[str, Any] = {}
    for key in ("evaluateres.num_examples", "evaluateres.loss", "metrics"):
        found.update(_first(content, MetricRecord, key) or {})
    found.update(_first(content, ConfigRecord, "evaluateres.metrics") or {})
    count = _check_count(found.get("num-examples", found.get("num_examples")))
    mse: Any = found.get("mse", found.get("loss"))
    if not _is_number(mse) or not 0 <= mse <= _LARGEST_FLOAT:
        raise ProtocolError("mse must be a finite number, zero or more.")
    r2: Any = found.get("r2", float("nan"))
    if not _is_number(r2) or not (r2 != r2 or -1e300 < r2 <= 1):
        raise ProtocolError("r2 must be a number of at most 1.")
    return Evaluation(float(mse), float(r2), count)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
