"""Requests as Flower records, and back; nothing that arrives is trusted.

A request carries both forms at once, ``config`` for message-API clients and
``fitins.*`` for NumPyClients, until the server knows which one a client reads. A client
answers in the form it was asked in.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.common import Parameters
from flwr.compat.common.recorddict_compat import parameters_to_arrayrecord
from numpy.typing import NDArray

from ..._files import strict_json
from ..._types import Array
from ...data.coding import Coding
from ...data.formula import TableFormula
from ...data.labels import read_labels, write_labels
from ...errors import PrivacyError, ProtocolError, StatisticsError
from ...features import FeatureMap
from ...federation.requests import (
    OPENING_MODES,
    SECURE_TASKS,
    AskClasses,
    AskColumns,
    AskCounts,
    AskEvaluation,
    AskKeys,
    AskLosses,
    AskMasked,
    AskOpening,
    AskOutcome,
    AskProduct,
    AskRelease,
    AskResiduals,
    AskStatistics,
    AskTable,
    AskWorking,
    Limits,
    Request,
)
from ...privacy.curator import ReleaseRequest
from ...privacy.mechanism import DifferentialPrivacy
from ...privacy.release import ReleaseQuestion
from ...privacy.request_fields import PREFIX
from ...regression.inference.residual_moments import ResidualProbe
from ...regression.likelihood.families import FAMILIES
from ...regression.likelihood.working import Points
from ...statistics.encoding import STATISTICS
from ...statistics.float32 import WIRE_DTYPES
from ..error_text import one_line
from .array_records import (
    array_record,
    held_out_arrays,
    held_out_from_arrays,
    model_arrays,
    model_from_arrays,
)
from .name_records import (
    CLASSES_KEY,
    classes_fields,
    names_fields,
    read_class_weight,
    read_classes,
    read_columns,
)
from .secure_records import read_secure, secure_parts
from .upload_records import UPLOADS_KEY, read_uploads, uploads_fields

PROTOCOL_KEY = "fedridge-protocol"
PROTOCOL = 1
PRIVATE_PROTOCOL = 2
"""Clients that know no privacy decline this version instead of answering exactly."""
ROUNDS_PROTOCOL = 3
"""Clients that know one round only decline this version."""
SECURE_PROTOCOL = 4
"""Clients that know no secure sums decline this version."""
_KNOWN_PROTOCOLS = (PROTOCOL, PRIVATE_PROTOCOL, ROUNDS_PROTOCOL, SECURE_PROTOCOL)

FORMS = ("both", "message", "legacy")
"""In which API a request is written: in both as long as the client's is not known."""

FIT_KEY = "fedridge-fit"
"""Name of a fit that takes several rounds: the same name is about the same rows."""

SITES_KEY = "fedridge-sites"
"""How many clients are asked at the same time, as the server says."""

MAP_KEY = "feature-map"
CODING_KEY = "table-coding"
_FORMULA = "table-formula"
NAMED = {"feature-hash", "feature-names", "target-hash", "target-names"}
"""Keys of which a message has one if it says anything about the names of columns."""

_TASK, _LOSSES = "fedridge-task", "held-out-losses"
_DTYPE, _MODE, _BYTES, _FEATURES = "wire-dtype", "mode", "max-bytes", "max-features"
_BY_ROWS, _STATISTICS = "auto-by-rows", "statistics"
_RELEASE, _INTERCEPT = "release-id", "release-intercept"
_ROUND, _CLIP = "release-round", "release-clip"
_POWER = "leverage-power"
_FAMILY, _LABELS = "family", "labels"
_LARGEST = 1e200
_LARGEST_COEF = 1e100
_UNSUPPORTED = (
    "the server asks for something that this client does not support: install the same "
    "fedridge-flwr on both sides."
)
_NO_ARRAYS = Parameters(tensors=[], tensor_type="numpy.ndarray")


# ---- the server writes --------------------------------------------------------------


def request_parts(request: Request) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a request as scalars of both APIs, and arrays."""
    fields, arrays = _WRITERS[request.task](request)
    if request.feature_map is not None:
        fields[MAP_KEY] = request.feature_map.to_json()
    if request.coding is not None:
        fields[CODING_KEY] = request.coding.to_json()
    if request.columns is not None:
        fields |= names_fields(request.columns, in_clear=True)
    if request.classes is not None:
        fields |= classes_fields(request.classes, request.class_weight)
    return fields, arrays


def _write_table(request: AskTable) -> Any:
    told = json.dumps(request.formula.content(), ensure_ascii=False)
    return {PROTOCOL_KEY: ROUNDS_PROTOCOL, _TASK: request.task, _FORMULA: told}, {}


def _write_statistics(request: AskStatistics) -> Any:
    dtype, form = request.wire_dtype, request.statistics
    fields: dict[str, Any] = {} if dtype == "float64" else {_DTYPE: dtype}
    if request.uploads is not None:
        fields |= uploads_fields(request.uploads)
    return (fields if form == "moments" else fields | {_STATISTICS: form}), {}


def _write_task(request: AskClasses | AskColumns) -> Any:
    return {PROTOCOL_KEY: ROUNDS_PROTOCOL, _TASK: request.task}, {}


def _write_opening(request: AskOpening) -> Any:
    fields = {PROTOCOL_KEY: ROUNDS_PROTOCOL, _TASK: request.task, _MODE: request.mode}
    limits = request.limits
    if request.mode == "auto":
        fields |= {_BYTES: limits.max_bytes, _FEATURES: limits.max_features}
        fields |= {_BY_ROWS: limits.by_rows}
    return fields, {}


def _write_product(request: AskProduct) -> Any:
    fields = {PROTOCOL_KEY: ROUNDS_PROTOCOL, _TASK: request.task}
    return fields, {"vectors": np.ascontiguousarray(request.vectors)}


def _write_outcome(request: AskOutcome) -> Any:
    fields = {PROTOCOL_KEY: ROUNDS_PROTOCOL, _TASK: request.task}
    return {**fields, _FAMILY: request.family}, {}


def _write_working(request: AskWorking | AskCounts) -> Any:
    fields = {
        PROTOCOL_KEY: ROUNDS_PROTOCOL,
        _TASK: request.task,
        _FAMILY: request.family,
    }
    if request.labels:
        fields[_LABELS] = write_labels(request.labels)
    return fields, request.points.to_arrays()


def _write_release(request: AskRelease) -> Any:
    fields = {**_release_fields(request.release), PROTOCOL_KEY: PRIVATE_PROTOCOL}
    return fields, _coefficients(request.release)


def _coefficients(release: ReleaseRequest) -> dict[str, NDArray[Any]]:
    coef = release.question.coef
    return {} if coef is None else {"coef": np.ascontiguousarray(coef)}


def _release_fields(release: ReleaseRequest) -> dict[str, Any]:
    return {
        **release.privacy.to_config(),
        _RELEASE: release.release,
        _INTERCEPT: release.intercept,
        _ROUND: release.question.server_round,
        _CLIP: float(release.question.clip),
    }


def _write_evaluation(request: AskEvaluation) -> Any:
    return {}, model_arrays(request.model)


def _write_losses(request: AskLosses) -> Any:
    return {_TASK: _LOSSES}, held_out_arrays(request.models)


def _write_residuals(request: AskResiduals) -> Any:
    probe = request.probe
    fields = {PROTOCOL_KEY: ROUNDS_PROTOCOL, _TASK: request.task, _POWER: probe.power}
    return fields, probe.to_arrays()


def _write_secure(request: Request) -> Any:
    fields, arrays = secure_parts(request)
    release = request.private_release
    if release is not None:
        fields |= _release_fields(release)
        arrays |= _coefficients(release)
    return {PROTOCOL_KEY: SECURE_PROTOCOL, _TASK: request.task, **fields}, arrays


_WRITERS: dict[str, Any] = {
    AskTable.task: _write_table,
    AskStatistics.task: _write_statistics,
    AskClasses.task: _write_task,
    AskColumns.task: _write_task,
    AskOpening.task: _write_opening,
    AskProduct.task: _write_product,
    AskOutcome.task: _write_outcome,
    AskWorking.task: _write_working,
    AskCounts.task: _write_working,
    AskRelease.task: _write_release,
    AskEvaluation.task: _write_evaluation,
    AskLosses.task: _write_losses,
    AskResiduals.task: _write_residuals,
    **dict.fromkeys(SECURE_TASKS, _write_secure),
}


def request_content(
    fields: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    form: str = FORMS[0],
    older: str = "fitins",
) -> RecordDict:
    """Return a message of one or both forms; in both, arrays travel twice."""
    record = array_record(arrays)
    marked = {PROTOCOL_KEY: PROTOCOL, **fields}
    content: dict[str, Any] = {}
    if form != "legacy":
        content = {"arrays": record, "config": ConfigRecord(marked)}
    if form != "message":
        scalars = {k: v for k, v in marked.items() if not isinstance(v, list)}
        # The older form knows no empty record, only a record of one empty array.
        legacy = record if len(record) else parameters_to_arrayrecord(_NO_ARRAYS, True)
        content[f"{older}.parameters"] = legacy
        content[f"{older}.config"] = ConfigRecord(scalars)
    return RecordDict(content)


# ---- the client reads ---------------------------------------------------------------


class Asked(NamedTuple):
    """The parts of a request; `is_legacy` if only the older form is there."""

    config: Mapping[str, Any]
    arrays: ArrayRecord
    is_legacy: bool


def open_request(content: RecordDict) -> Asked:
    """Return the parts of a request in the form that its answer must have."""
    config, arrays = content.get("config"), content.get("arrays")
    is_legacy = not isinstance(config, ConfigRecord)
    if is_legacy:
        form = "fitins" if "fitins.config" in content else "evaluateins"
        config, arrays = (
            content.get(f"{form}.config"),
            content.get(f"{form}.parameters"),
        )
    return Asked(
        config if isinstance(config, ConfigRecord) else {},
        arrays if isinstance(arrays, ArrayRecord) else ArrayRecord(),
        is_legacy,
    )


def is_private(config: Mapping[str, Any]) -> bool:
    """Whether a request is a private one, however badly made."""
    return config.get(PROTOCOL_KEY) == PRIVATE_PROTOCOL or any(
        str(key).startswith(PREFIX) for key in config
    )


def asks_for_losses(config: Mapping[str, Any]) -> bool:
    """Whether a request wants held-out losses and not an evaluation."""
    return config.get(_TASK) == _LOSSES


def check_protocol(config: Mapping[str, Any]) -> None:
    """Decline requests of strategies that are not ours, or of another version."""
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
            f"the server speaks version {one_line(repr(version))} of the FedRidge "
            f"protocol, this client {known}: install the same fedridge-flwr on both "
            "sides."
        )


def read_request(
    config: Mapping[str, Any], arrays: Sequence[NDArray[Any]], *, evaluating: bool
) -> Request:
    """Return what a request asks for, or raise what is wrong with it."""
    text, coding = config.get(MAP_KEY), config.get(CODING_KEY)
    sites = config.get(SITES_KEY)
    rest: dict[str, Any] = {
        "feature_map": None if text is None else FeatureMap.from_json(text),
        "columns": read_columns(config) if NAMED & config.keys() else None,
        "coding": None if coding is None else Coding.from_json(coding),
        "sites": sites if type(sites) is int else None,
    }
    if CLASSES_KEY in config:
        rest |= {"classes": read_classes(config)}
        rest |= {"class_weight": read_class_weight(config)}
    if evaluating:
        if asks_for_losses(config):
            return AskLosses(held_out_from_arrays(arrays), **rest)
        if str(config.get(_FAMILY)) in FAMILIES:
            return _read_family(config, arrays, rest)
        return AskEvaluation(model_from_arrays(arrays), **rest)
    task = config.get(_TASK)
    if task in SECURE_TASKS:
        if is_private(config) and task in (AskKeys.task, AskMasked.task):
            own = int(task == AskMasked.task)  # its boxes come before coefficients
            asked = _read_release(config, arrays[own:])
            rest["release"] = replace(asked, in_secure_sum=True)
            arrays = arrays[:own]
        return read_secure(str(task), config, arrays, rest)
    if is_private(config):
        return AskRelease(_read_release(config, arrays), **rest)
    if task is None:
        dtype = _read_choice(config, _DTYPE, WIRE_DTYPES)
        form = _read_choice(config, _STATISTICS, STATISTICS)
        known = read_uploads(config) if UPLOADS_KEY in config else None
        return AskStatistics(dtype, form, known, **rest)
    if task == AskTable.task:
        return AskTable(_read_formula(config), sites=rest["sites"])
    if task == AskColumns.task:
        return AskColumns(**rest)
    if task == AskClasses.task:
        return AskClasses(**{"classes": (), **rest})
    if task == AskProduct.task:
        return AskProduct(_read_vectors(arrays), **rest)
    if task == AskResiduals.task:
        return AskResiduals(_read_probe(config, arrays), **rest)
    if str(config.get(_FAMILY)) in FAMILIES:
        return _read_family(config, arrays, rest)
    if task != AskOpening.task or config.get(_MODE) not in OPENING_MODES:
        raise ProtocolError(_UNSUPPORTED)
    mode = str(config[_MODE])
    if mode != "auto":
        return AskOpening(mode, Limits(), **rest)
    limits: list[Any] = [config.get(_BYTES), config.get(_FEATURES)]
    if not all(type(limit) is int and limit > 0 for limit in limits):
        raise ProtocolError(
            'the request does not say up to which size mode="auto" sends statistics.'
        )
    limits.append(config.get(_BY_ROWS) is True)
    return AskOpening(mode, Limits(*limits), **rest)


def _read_family(
    config: Mapping[str, Any], arrays: Sequence[NDArray[Any]], rest: dict[str, Any]
) -> Request:
    family, task = str(config[_FAMILY]), config.get(_TASK)
    if task == AskOutcome.task:
        return AskOutcome(family, **rest)
    asked: Any = {AskWorking.task: AskWorking, AskCounts.task: AskCounts}.get(str(task))
    if asked is None:
        raise ProtocolError(_UNSUPPORTED)
    points = Points.from_arrays(arrays)
    labels: tuple[str, ...] = ()
    try:
        if family == "binomial":
            labels = read_labels(config.get(_LABELS))
    except StatisticsError as error:
        raise ProtocolError(str(error)) from None
    found: Request = asked(family, labels, points, **rest)
    return found


def _read_formula(config: Mapping[str, Any]) -> TableFormula:
    try:
        return TableFormula.from_content(strict_json(str(config.get(_FORMULA))))
    except ValueError as error:
        reason = one_line(str(error))
        raise ProtocolError(f"the request has no valid formula: {reason}") from None


def _read_choice(config: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
    """Return in which form statistics are wanted; the first where nothing is said."""
    found = config.get(key, choices[0])
    if found not in choices:
        raise ProtocolError(
            f"the server wants statistics as {one_line(repr(found))}, this client can "
            f"send {' and '.join(choices)}: install the same fedridge-flwr on both "
            "sides."
        )
    return str(found)


def _read_vectors(arrays: Sequence[NDArray[Any]]) -> Array:
    if len(arrays) != 1 or arrays[0].dtype != np.float64 or arrays[0].ndim != 2:
        raise ProtocolError("the request has no vectors to multiply by.")
    if not (np.abs(arrays[0]) <= _LARGEST).all():
        raise ProtocolError("the vectors to multiply by are not finite.")
    return arrays[0]


def _read_probe(
    config: Mapping[str, Any], arrays: Sequence[NDArray[Any]]
) -> ResidualProbe:
    power = config.get(_POWER)
    if type(power) is not int or power not in (0, 1, 2):
        raise ProtocolError("the request does not say which residuals it asks for.")
    return ResidualProbe.from_arrays(arrays, power)


def _read_release(
    config: Mapping[str, Any], arrays: Sequence[NDArray[Any]]
) -> ReleaseRequest:
    privacy = DifferentialPrivacy.from_config(config)
    if privacy is None:
        raise PrivacyError("the request for privacy does not say how much.")
    server_round: Any = config.get(_ROUND)
    clip: Any = config.get(_CLIP)
    intercept: Any = config.get(_INTERCEPT)
    # Python takes True for 1, and a second name for a round would be a second answer.
    kinds = (type(server_round), type(intercept))
    if kinds != (int, bool) or not isinstance(clip, float):
        raise PrivacyError("the request does not say what it asks for.")
    if not np.isfinite(clip) or clip < 0:
        raise PrivacyError("the bound on residuals must be a finite number.")
    coef = None
    if arrays:
        coef = np.asarray(arrays[0], dtype=np.float64)
        sane = coef.ndim == 1 and bool((np.abs(coef) <= _LARGEST_COEF).all())
        if len(arrays) != 1 or not sane:
            raise PrivacyError("the coefficients of the request are not a vector.")
    return ReleaseRequest(
        release=str(config.get(_RELEASE)),
        privacy=privacy,
        intercept=intercept,
        question=ReleaseQuestion(server_round, coef, float(clip)),
    )
