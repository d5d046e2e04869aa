"""A client's messages of both APIs, answered by `respond`; errors become reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    Status,
    ndarrays_to_parameters,
)
from flwr.compat.common.recorddict_compat import (
    arrayrecord_to_parameters,
    evaluateres_to_recorddict,
    fitres_to_recorddict,
)
from numpy.typing import NDArray

from ..errors import FedRidgeError, PrivacyError, ProtocolError
from ..federation.requests import Request
from ..federation.respond import Guards, RawRows, respond
from ..linalg.blas import keep_to_own_cores
from .error_text import readable_error
from .protocol.answer_records import (
    answer_content,
    answer_fields,
    error_content,
    evaluation_content,
    losses_content,
    losses_metrics,
)
from .protocol.array_records import decode_array, decode_arrays
from .protocol.request_records import (
    asks_for_losses,
    check_protocol,
    find_record,
    is_legacy_request,
    is_private,
    read_request,
    request_config,
)

__all__ = [
    "Site",
    "evaluate_arrays",
    "evaluate_result",
    "fit_result",
    "handle_evaluate",
    "handle_train",
]

log = logging.getLogger("flwr")
_OK = Status(Code.OK, "Success")


@dataclass(frozen=True)
class Site:
    """One client as a message finds it.

    Parameters
    ----------
    load : callable
        From a request to the rows that it is about.
    guards : callable
        From whether a request is private to what the client insists on.
    share_names : bool
        Whether column names may travel.
    private_only : bool
        Whether the client has a privacy policy or ledger.
    """

    load: Callable[[Request], RawRows]
    guards: Callable[[bool], Guards]
    share_names: bool
    private_only: bool

    def respond(
        self,
        config: Mapping[str, Any],
        arrays: Sequence[NDArray[Any]],
        *,
        evaluating: bool = False,
    ) -> Any:
        """Return the answer to a request as it came over the wire."""
        request = read_request(config, arrays, evaluating=evaluating)
        keep_to_own_cores()
        guards = self.guards(is_private(config))
        return respond(request, lambda: self.load(request), guards)

    def explain(self, error: Exception, config: Mapping[str, Any]) -> str:
        """Return what the server is told of an error; the rest is in the log."""
        expected = isinstance(error, FedRidgeError)
        log.warning(
            "This client does not contribute: %s",
            error,
            exc_info=not expected and error,
        )
        # Whether rows are valid is itself about the rows.
        harmless = isinstance(error, PrivacyError | ProtocolError)
        if not harmless and (self.private_only or is_private(config)):
            return "could not make a private release; the reason is in its own log."
        return readable_error(error, self.share_names)

    def refusal(self, error: Exception, config: Mapping[str, Any]) -> Status:
        """Return an error as a status of the older API."""
        # Flower has no code for "declined"; the message carries the reason.
        return Status(Code.FIT_NOT_IMPLEMENTED, self.explain(error, config))


def handle_train(message: Message, site: Site) -> Message:
    """Answer a train message of either form."""
    content, config = message.content, request_config(message.content)
    if is_legacy_request(content):
        asked = content.array_records["fitins.parameters"]
        ins = FitIns(arrayrecord_to_parameters(asked, True), dict(config))
        reply = fitres_to_recorddict(fit_result(site, ins), False)
        return Message(reply, reply_to=message)

    def answer() -> RecordDict:
        check_protocol(config)
        answer = site.respond(config, _arrays(content))
        return answer_content(answer, site.share_names)

    return Message(_or_refusal(answer, site, config), reply_to=message)


def handle_evaluate(message: Message, site: Site) -> Message:
    """Answer an evaluate message of either form."""
    content, config = message.content, request_config(message.content)
    if is_legacy_request(content):
        asked = content.array_records["evaluateins.parameters"]
        ins = EvaluateIns(arrayrecord_to_parameters(asked, True), dict(config))
        reply = evaluateres_to_recorddict(evaluate_result(site, ins))
        return Message(reply, reply_to=message)

    def answer() -> RecordDict:
        check_protocol(config)
        answer = site.respond(config, _arrays(content), evaluating=True)
        if asks_for_losses(config):
            return losses_content(answer)
        return evaluation_content(answer)

    return Message(_or_refusal(answer, site, config), reply_to=message)


def fit_result(site: Site, ins: FitIns) -> FitRes:
    """Answer the fit of the older API."""
    try:
        check_protocol(ins.config)
        answer = site.respond(ins.config, _decoded(ins.parameters))
    except Exception as error:
        nothing = Parameters(tensors=[], tensor_type="numpy.ndarray")
        return FitRes(site.refusal(error, ins.config), nothing, 0, {})
    fields: dict[str, Scalar] = dict(answer_fields(answer, site.share_names))
    parameters = ndarrays_to_parameters(list(answer.arrays.values()))
    return FitRes(_OK, parameters, answer.count, fields)


def evaluate_result(site: Site, ins: EvaluateIns) -> EvaluateRes:
    """Answer the evaluation of the older API."""
    try:
        check_protocol(ins.config)
        loss, count, metrics = evaluate_arrays(
            site, ins.config, _decoded(ins.parameters)
        )
    except Exception as error:
        return EvaluateRes(site.refusal(error, ins.config), 0.0, 0, {})
    return EvaluateRes(_OK, loss, count, metrics)


def evaluate_arrays(
    site: Site, config: Mapping[str, Any], arrays: Sequence[NDArray[Any]]
) -> tuple[float, int, dict[str, Any]]:
    """Return loss, number of rows and metrics, as the older API has them."""
    found = site.respond(config, arrays, evaluating=True)
    if asks_for_losses(config):
        smallest = float(found.values.min())
        return smallest, found.n_rows, dict(losses_metrics(found))
    return found.mse, found.n_rows, {"mse": found.mse, "r2": found.r2}


def _arrays(content: RecordDict) -> list[NDArray[Any]]:
    record = find_record(content, ArrayRecord, "arrays")
    return [] if record is None else decode_arrays(record)


def _decoded(parameters: Parameters) -> list[NDArray[Any]]:
    return [decode_array(tensor) for tensor in parameters.tensors]


def _or_refusal(
    answer: Callable[[], RecordDict], site: Site, config: Mapping[str, Any]
) -> RecordDict:
    try:
        return answer()
    except Exception as error:
        return error_content(site.explain(error, config))
