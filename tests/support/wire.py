"""Messages as tests write and read them, with the keys of the protocol at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedridge_flwr import RidgeModel
from fedridge_flwr.errors import ProtocolError
from fedridge_flwr.federation.requests import Answer, AskEvaluation, AskStatistics
from fedridge_flwr.flower.protocol import answer_records
from fedridge_flwr.flower.protocol.answer_records import (
    answer_fields,
    error_content,
    read_evaluation,
    reply_content,
)
from fedridge_flwr.flower.protocol.request_records import (
    MAP_KEY,
    PROTOCOL,
    PROTOCOL_KEY,
    open_request,
    read_request,
    request_content,
    request_parts,
)
from fedridge_flwr.statistics.encoding import encode

__all__ = [
    "LOSSES_TASK",
    "MAP_KEY",
    "PROTOCOL",
    "PROTOCOL_KEY",
    "TASK_KEY",
    "ProtocolError",
    "asked_dtype",
    "error_reply",
    "evaluate_request",
    "raise_refusal",
    "read_answer",
    "read_evaluation",
    "read_evaluation_reply",
    "read_fields",
    "read_losses",
    "request_config",
    "request_parts",
    "schema_fields",
    "statistics_reply",
    "train_request",
]

TASK_KEY, LOSSES_TASK = "fedridge-task", "held-out-losses"
error_reply = error_content


def raise_refusal(content: RecordDict) -> None:
    fields = content.get("config") or {}
    answer_records._raise_refusal(content, fields)


def request_config(content: RecordDict) -> Mapping[str, Any]:
    return open_request(content).config


def train_request(
    config: Mapping[str, Any], arrays: Any = None, form: str = "both"
) -> RecordDict:
    return request_content(config, arrays or {}, form)


def evaluate_request(arrays: Any, config: Mapping[str, Any]) -> RecordDict:
    plain = (
        {key: each.numpy() for key, each in arrays.items()}
        if isinstance(arrays, ArrayRecord)
        else arrays
    )
    return request_content(config, plain, older="evaluateins")


def statistics_reply(
    stats: Any, share_names: bool, dtype: str = "float64"
) -> RecordDict:
    sent = encode(stats, dtype)
    answer = Answer(sent.kind, sent.arrays, sent.count, stats.schema, sent.means_low)
    return reply_content(answer, share_names)


def schema_fields(kind: str, holder: Any, share_names: bool) -> dict[str, Any]:
    return answer_fields(Answer(kind, {}, 0, holder.schema), share_names)


def read_answer(
    content: RecordDict, request: Any = None, feature_map: Any = None
) -> Any:
    return answer_records.read_answer(content, _asked(request, feature_map))


def read_fields(
    fields: Any, arrays: Any, count: Any, request: Any = None, feature_map: Any = None
) -> Any:
    asked = _asked(request, feature_map)
    return answer_records.read_fields(fields, arrays, count, asked)


def read_losses(content: RecordDict, expected: int) -> Any:
    return answer_records.read_losses(content, expected)


def read_evaluation_reply(content: RecordDict) -> Any:
    model = RidgeModel(coef=np.zeros(2), intercept=0.0, alpha=1.0)
    return answer_records.read_answer(content, AskEvaluation(model))


def asked_dtype(config: Mapping[str, Any]) -> str:
    return read_request(config, [], evaluating=False).wire_dtype


def _asked(request: Any, feature_map: Any) -> Any:
    request = AskStatistics() if request is None else request
    return request if feature_map is None else replace(request, feature_map=feature_map)
