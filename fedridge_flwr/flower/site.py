"""`Site`: answers messages of both APIs by `respond`, errors as reasons."""

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any, TypeAlias

from flwr.app import ConfigRecord, Context, Message
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

from .._text import quoted
from ..errors import (
    ColumnNamesError,
    FedRidgeError,
    PolicyError,
    PrivacyError,
    ProtocolError,
)
from ..federation.answering.respond import (
    EVALUATION_TASKS,
    Guards,
    loaded_rows,
    respond,
)
from ..federation.requests import (
    SECURE_TASKS,
    AskCounts,
    AskRelease,
    AskStatistics,
    AskTable,
    Request,
)
from ..federation.secure_sum.terms import STATE, SecurePolicy
from ..federation.site.disclosure import SitePolicy
from ..federation.site.policy_file import CONFIG_KEY, VARIABLE, policies_in_force
from ..linalg.blas import keep_to_own_cores
from .error_text import LONGEST_NAME, one_line, readable_error
from .protocol.answer_records import (
    NAME_KEY,
    answer_fields,
    counts_metrics,
    error_content,
    evaluation_metrics,
    losses_metrics,
    reply_content,
)
from .protocol.array_records import decode_array, decode_arrays
from .protocol.request_records import (
    FIT_KEY,
    asks_for_losses,
    check_protocol,
    is_private,
    open_request,
    read_request,
)
from .release_memory import RELEASES, PrivacyTerms
from .row_cache import cached_rows

LoadData: TypeAlias = Callable[[Context], Any]
LoadNewData: TypeAlias = Callable[[Context, Any], tuple[Any, Any]]

log = logging.getLogger("flwr")
_OK = Status(Code.OK, "Success")
_OTHER_APP = (
    "load_data has other code here than in the app: another app with a module of this "
    "name is imported. Stop the local SuperLink, which imports from the folder it was "
    "started in, or start flwr run from an empty folder."
)
_HARMLESS = PolicyError | PrivacyError | ProtocolError | ColumnNamesError


@dataclass(frozen=True)
class Site:
    """One client as a message finds it.

    Parameters
    ----------
    load : callable
        From a request, and the name of its fit if it takes several rounds, to the rows.
    guards : callable
        From the task of a request to what the client insists on.
    share_names : bool
        Whether column names may travel.
    private_only : bool
        Whether the client has a privacy policy or ledger.
    reports_failures : bool
        Whether the server may hear why a private release failed.
    named : mapping of str to str
        What answers say of who it is: nothing, or the name that people know it by.
    respond_since : callable, optional
        From a request of a server that keeps uploads, and guards, to the answer with
        the new rows.
    """

    load: Callable[[Request, object], Any]
    guards: Callable[[str], Guards]
    share_names: bool
    private_only: bool
    reports_failures: bool = False
    named: Mapping[str, str] = field(default_factory=dict)
    respond_since: Callable[[Any, Guards], Any] | None = None

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
        guards = self.guards(request.task)
        streams = getattr(request, "uploads", None) is not None
        if streams and self.respond_since is not None:
            answer = self.respond_since(request, guards)
        else:
            fit = config.get(FIT_KEY)
            answer = respond(request, lambda: self.load(request, fit), guards)
        if guards.policies:  # the site's own record of what has left it
            schema = getattr(answer, "schema", None)
            names = getattr(schema, "feature_names", None) or ()
            about = f", of the columns {quoted(names, len(names))}" if names else ""
            log.info("Answered under the site policy: %r%s", request.task, about)
        return answer

    def explain(self, error: Exception, config: Mapping[str, Any]) -> str:
        """Return what the server is told of an error; the rest is in the log."""
        expected = isinstance(error, FedRidgeError)
        log.warning(
            "This client does not contribute: %s",
            error,
            exc_info=not expected and error,
        )
        # Whether rows are valid is itself about the rows.
        harmless = isinstance(error, _HARMLESS)
        quiet = self.private_only or is_private(config)
        if quiet and not (harmless or self.reports_failures):
            return "could not make a private release; the reason is in its own log."
        return readable_error(error, self.share_names)

    def refusal(self, error: Exception, config: Mapping[str, Any]) -> Status:
        """Return an error as a status of the older API."""
        # Flower has no code for "declined"; the message carries the reason.
        return Status(Code.FIT_NOT_IMPLEMENTED, self.explain(error, config))


@dataclass(frozen=True)
class AppSite:
    """What `ridge_client_app` was told, and its answers to messages.

    A class, not closures: the simulator pickles the app with every message, and this
    takes a quarter of the time.
    """

    load_data: LoadData
    load_eval_data: LoadData
    load_new_data: LoadNewData | None
    upload_folder: str | os.PathLike[str] | None
    min_rows: int
    share_names: bool
    feature_maps: Any
    terms: PrivacyTerms
    private_only: bool
    reports_failures: bool
    display_name: Callable[[Context], str | None] | None
    site_policy: SitePolicy | None
    secure_policy: SecurePolicy | None
    reuse_data: bool
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    code: str = ""

    def __post_init__(self) -> None:
        """Remember the code of `load_data`, which is pickled by its name."""
        object.__setattr__(self, "code", code_hash(self.load_data))

    def train(self, message: Message, context: Context) -> Message:
        """Answer a request for statistics, or a query."""
        return handle(message, self._site(context))

    def evaluate(self, message: Message, context: Context) -> Message:
        """Answer an evaluation."""
        return handle(message, self._site(context), evaluating=True)

    def _site(self, context: Context) -> Site:
        since = None if self.load_new_data is None else self._respond_since
        return Site(
            load=partial(self._load, context),
            guards=partial(self._guards, context),
            share_names=self.share_names,
            private_only=self.private_only,
            reports_failures=self.reports_failures,
            named=name_field(context, self.display_name),
            respond_since=since and partial(since, context),
        )

    def _load(self, context: Context, request: Request, fit: object) -> Any:
        if self.code != code_hash(self.load_data):
            raise ProtocolError(_OTHER_APP)
        evaluating = request.task in EVALUATION_TASKS
        own = self.load_eval_data if evaluating else self.load_data

        def rows() -> Any:
            told = f"what {_name_of(own)} returns"
            return loaded_rows(own(context), request, told)

        # The statistics of a table take one pass; to keep its rows is a copy.
        once = request.coding is not None and request.task == AskStatistics.task
        is_table = request.task == AskTable.task
        if fit is None or not self.reuse_data or once or is_table:
            return rows()
        place = (self.token, context.run_id, context.node_id, own is self.load_data)
        # Sites that have gone may change the coding within a fit.
        private = request.is_private
        return cached_rows(place, (fit, request.coding, private), rows)

    def _respond_since(self, context: Context, request: Any, guards: Guards) -> Any:
        from .new_rows import answer_since

        load_new: Any = partial(self.load_new_data or self.load_data, context)
        config = context.node_config
        return answer_since(request, guards, load_new, config, self.upload_folder)

    def _guards(self, context: Context, task: str) -> Guards:
        private = task == AskRelease.task or task in SECURE_TASKS
        remembers = private or self.private_only or RELEASES in context.state
        policies = site_policies(context.node_config, self.site_policy)
        secure = self.secure_policy is not None or task in SECURE_TASKS
        return Guards(
            self.min_rows,
            self.feature_maps,
            self.terms.curator(context, policies) if remembers else None,
            policies,
            _secure_guard(context, self.secure_policy, policies)
            if secure or STATE in context.state
            else None,
        )


def handle(message: Message, site: Site, *, evaluating: bool = False) -> Message:
    """Answer a message of either form, in the form it came in."""
    asked = open_request(message.content)
    config = asked.config
    if asked.is_legacy and evaluating:
        ins = EvaluateIns(arrayrecord_to_parameters(asked.arrays, True), dict(config))
        reply = evaluateres_to_recorddict(evaluate_result(site, ins))
    elif asked.is_legacy:
        fit = FitIns(arrayrecord_to_parameters(asked.arrays, True), dict(config))
        reply = fitres_to_recorddict(fit_result(site, fit), False)
    else:
        try:
            check_protocol(config)
            arrays = decode_arrays(asked.arrays)
            answer = site.respond(config, arrays, evaluating=evaluating)
            reply = reply_content(answer, site.share_names)
        except Exception as error:
            reply = error_content(site.explain(error, config))
        record = reply.get("config")
        if isinstance(record, ConfigRecord):
            record.update(site.named)
    return Message(reply, reply_to=message)


def fit_result(site: Site, ins: FitIns) -> FitRes:
    """Answer the fit of the older API."""
    try:
        check_protocol(ins.config)
        answer = site.respond(ins.config, _decoded(ins.parameters))
    except Exception as error:
        nothing = Parameters(tensors=[], tensor_type="numpy.ndarray")
        return FitRes(site.refusal(error, ins.config), nothing, 0, dict(site.named))
    fields: dict[str, Scalar] = {**answer_fields(answer, site.share_names)}
    fields |= site.named
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
        return EvaluateRes(site.refusal(error, ins.config), 0.0, 0, dict(site.named))
    return EvaluateRes(_OK, loss, count, metrics)


def evaluate_arrays(
    site: Site, config: Mapping[str, Any], arrays: Sequence[NDArray[Any]]
) -> tuple[float, int, dict[str, Any]]:
    """Return loss, number of rows and metrics, as the older API has them."""
    found = site.respond(config, arrays, evaluating=True)
    if asks_for_losses(config):
        smallest = float(found.values.min())
        return smallest, found.n_rows, dict(losses_metrics(found))
    if getattr(found, "kind", "") == AskCounts.task:
        metrics = counts_metrics(found, site.share_names)
        return float(found.arrays[AskCounts.task][1]), found.count, metrics
    return found.mse, found.n_rows, dict(evaluation_metrics(found))


def _secure_guard(context: Context, own: SecurePolicy | None, site: Any) -> Any:
    # It brings the primitives along, which nobody else needs.
    from .secure_memory import secure_guard

    return secure_guard(context, own, site)


def site_policies(
    node_config: Mapping[str, object], own: SitePolicy | None
) -> tuple[SitePolicy, ...]:
    """Return what a site refuses to send, by its code and by a file of its own."""
    named = CONFIG_KEY in node_config or VARIABLE in os.environ
    return policies_in_force(node_config, own) if named or own is not None else ()


def name_field(
    context: Context, display_name: Callable[[Context], str | None] | None = None
) -> dict[str, str]:
    """Return the name a site was started with, or its partition, to be sent along."""
    told = context.node_config
    name = told.get("name") or (display_name(context) if display_name else None)
    if name:
        return {NAME_KEY: one_line(name)[:LONGEST_NAME]}
    if "partition-id" in told:
        return {NAME_KEY: f"partition {told['partition-id']}"}
    return {}


def _name_of(load: object) -> str:
    """Return what the user calls a function that loads rows."""
    name = str(getattr(load, "__name__", ""))
    return name if name.isidentifier() else "load_data"


def code_hash(function: object) -> str:
    """Return a hash of what a function does; "" if it has no code of Python's.

    Examples
    --------
    >>> code_hash(lambda x: x + 1) == code_hash(lambda x: x + 2), code_hash(len)
    (False, '')
    """

    def told(each: Any) -> str:
        if isinstance(each, CodeType):
            consts = [told(const) for const in each.co_consts]
            return repr((each.co_code, each.co_names, consts))
        # The order in a set is another in every process.
        return repr(sorted(map(repr, each)) if isinstance(each, frozenset) else each)

    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    return hashlib.sha256(told(code).encode()).hexdigest()


def _decoded(parameters: Parameters) -> list[NDArray[Any]]:
    return [decode_array(tensor) for tensor in parameters.tensors]
