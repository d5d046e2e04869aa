"""`ridge_client_app`: answers messages of both APIs by `respond`, errors as reasons."""

import inspect
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
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

from .._checks import check_whole, must_be
from ..errors import (
    ColumnNamesError,
    FedRidgeError,
    PolicyError,
    PrivacyError,
    ProtocolError,
)
from ..features import FeatureMap, check_permission
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
from ..privacy.ledger import PrivacyLedger
from ..privacy.policy import PrivacyPolicy
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
from .release_memory import RELEASES, ClientName, PrivacyTerms
from .row_cache import cached_rows

LoadData: TypeAlias = Callable[[Context], Any]
LoadNewData: TypeAlias = Callable[[Context, Any], tuple[Any, Any]]

log = logging.getLogger("flwr")
_OK = Status(Code.OK, "Success")
_HARMLESS = PolicyError | PrivacyError | ProtocolError | ColumnNamesError


def ridge_client_app(
    load_data: LoadData,
    load_eval_data: LoadData | None = None,
    *,
    load_new_data: LoadNewData | None = None,
    upload_folder: str | os.PathLike[str] | None = None,
    min_rows: int = 2,
    share_feature_names: bool = False,
    feature_maps: Sequence[FeatureMap] | None = None,
    privacy_policy: PrivacyPolicy | None = None,
    privacy_ledger: PrivacyLedger | None = None,
    client_name: ClientName | None = None,
    display_name: Callable[[Context], str | None] | None = None,
    site_policy: SitePolicy | None = None,
    secure_policy: SecurePolicy | None = None,
    reuse_data: bool = True,
) -> ClientApp:
    """Return a ClientApp that answers `FedRidge`, or `LegacyFedRidge`.

    It sends the client's sufficient statistics, once, or what else the strategy asks
    for: a private release, an evaluation, a vector in each of several rounds.

    Parameters
    ----------
    load_data : callable
        ``load_data(context)`` returns this client's rows as (X, y),
        (X, y, sample_weight) or (X, y, sample_weight, offset); or a whole table, a data
        frame or a `TableFile`, of which ``FedRidge(formula=...)`` says what is X and
        what is y. For data beyond memory: an iterable of such (X, y); an Arrow stream,
        such as a query of DuckDB or Polars, with the names of its target and weights,
        ``(query, "days")``; or finished `SufficientStatistics`. An offset is for
        ``FedRidge(family=...)``. Of what it raises the server is told the type and the
        line; the message, which may quote data, is in the client's own log. To tell the
        server a reason, raise a `DataError`.
    load_eval_data : callable, optional
        The same for evaluation rows; by default the training rows.
    load_new_data : callable, optional
        ``load_new_data(context, since)`` returns the rows since a position, and the new
        position, a number or a text: ``(X, y), position``. ``since`` is a position that
        it returned before, or None for all rows. With it, a server that has a ledger is
        sent new rows only, where both sides know exactly what was sent before.
    upload_folder : path-like, optional
        A folder in which the client records what it has sent (no rows), for tests and
        simulations. In a deployment the site names one of its own in its node-config,
        ``uploads="/data/uploads"``. Without any, all rows are sent every time.
    min_rows : int
        With fewer rows, weights of zero not counted, the client declines: the
        statistics of one row are the row.
    share_feature_names : bool
        Send the names of columns and targets in clear, and not only hashes and their
        order. Errors name columns by number unless this is set.
    feature_maps : sequence of FeatureMap, optional
        The only maps that this client lets its rows go through, whatever the numbers
        that stand for ``gamma="scale"`` and the like; an empty one allows none. By
        default the server's choice, which is logged: a map that is not linear can be
        chosen so that statistics tell single rows.
    privacy_policy : PrivacyPolicy, optional
        The least privacy this client insists on. With a policy, it answers private
        requests only, and no evaluation.
    privacy_ledger : PrivacyLedger, optional
        Account of what was released about these rows, over all runs.
    client_name : str or callable, optional
        Name in the ledger, or ``client_name(context)``: node ids change from run to
        run.
    display_name : callable, optional
        From the context to what reports call this client, if it is not the name in its
        node-config, or its partition.
    site_policy : SitePolicy, optional
        What this client refuses to send, for tests and simulations. In a deployment the
        site names a file of its own in its node-config or environment, which holds in
        any case; if there are both, both must be satisfied.
    secure_policy : SecurePolicy, optional
        What this client insists on in secure sums, for tests and simulations. With a
        policy it takes part in secure sums only; without one, it does so from the first
        secure sum of a run on.
    reuse_data : bool
        Keep rows in memory between the rounds of a fit that takes several, up to 1 GiB
        in a process, instead of calling `load_data` in each. Rows that are not arrays,
        data frames or sparse matrices are loaded again in any case, and so they are
        where Flower starts a process for every message, as in a deployment.

    Returns
    -------
    ClientApp
        What a ``client_app.py`` has under the name ``app``.

    Raises
    ------
    PrivacyError
        If there is a ledger and no name.
    FedRidgeError
        If `load_data` is no function, `min_rows` no whole number of at least 1,
        `feature_maps` are not maps, or a policy is none.

    Examples
    --------
    A ``client_app.py``; `FedRidge` has the whole path, server and simulation included.

    >>> import numpy as np
    >>> from fedridge_flwr import ridge_client_app
    >>> def load_data(context):
    ...     rng = np.random.default_rng(context.node_config["partition-id"])
    ...     X = rng.normal(size=(50, 3))
    ...     return X, X.sum(axis=1)
    >>> app = ridge_client_app(load_data)
    >>> type(app).__name__
    'ClientApp'

    What does not go together is refused before anybody asks:

    >>> from fedridge_flwr import PrivacyLedger
    >>> ledger = PrivacyLedger("/data/ledger.json", max_epsilon=3.0, max_delta=1e-5)
    >>> ridge_client_app(load_data, privacy_ledger=ledger)
    Traceback (most recent call last):
    fedridge_flwr.errors.PrivacyError: privacy_ledger needs client_name=, the name \
that these data have in the ledger in every run, as client_name="clinic-a": node ids \
change from run to run.
    """
    for load in (load_data, load_eval_data or load_data):
        check_takes_context(load)
    if load_new_data is not None and not callable(load_new_data):
        raise must_be("load_new_data", "a function of the context", load_new_data)
    check_whole("min_rows", min_rows)
    if site_policy is not None and not isinstance(site_policy, SitePolicy):
        raise must_be("site_policy", "a SitePolicy", site_policy)
    if secure_policy is not None and not isinstance(secure_policy, SecurePolicy):
        raise must_be("secure_policy", "a SecurePolicy", secure_policy)
    allowed = check_permission(feature_maps)
    terms = PrivacyTerms(privacy_policy, privacy_ledger, client_name)
    private_only = privacy_policy is not None or privacy_ledger is not None
    reports_failures = terms.reports_failures
    token = uuid.uuid4().hex

    def site(context: Context) -> Site:
        def load(request: Request, fit: object) -> Any:
            evaluating = request.task in EVALUATION_TASKS
            own = (load_eval_data if evaluating else None) or load_data

            def rows() -> Any:
                return loaded_rows(own(context), request, "what load_data returns")

            # The statistics of a table take one pass; to keep its rows is a copy.
            once = request.coding is not None and request.task == AskStatistics.task
            if fit is None or not reuse_data or once or request.task == AskTable.task:
                return rows()
            place = (token, context.run_id, context.node_id, own is load_data)
            # Sites that have gone may change the coding within a fit.
            return cached_rows(place, (fit, request.coding), rows)

        def respond_since(request: Request, guards: Guards) -> Any:
            from .new_rows import answer_since

            load_new: Any = partial(load_new_data or load_data, context)
            config = context.node_config
            return answer_since(request, guards, load_new, config, upload_folder)

        def guards(task: str) -> Guards:
            private = task == AskRelease.task or task in SECURE_TASKS
            remembers = private or private_only or RELEASES in context.state
            policies = site_policies(context.node_config, site_policy)
            secure = secure_policy is not None or task in SECURE_TASKS
            return Guards(
                min_rows,
                allowed,
                terms.curator(context) if remembers else None,
                policies,
                _secure_guard(context, secure_policy, policies)
                if secure or STATE in context.state
                else None,
            )

        return Site(
            load=load,
            guards=guards,
            share_names=share_feature_names,
            private_only=private_only,
            reports_failures=reports_failures,
            named=name_field(context, display_name),
            respond_since=None if load_new_data is None else respond_since,
        )

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return handle(message, site(context))

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return handle(message, site(context))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return handle(message, site(context), evaluating=True)

    return app


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
            return self.respond_since(request, guards)
        fit = config.get(FIT_KEY)
        return respond(request, lambda: self.load(request, fit), guards)

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


def site_policies(
    node_config: Mapping[str, object], own: SitePolicy | None
) -> tuple[SitePolicy, ...]:
    """Return what a site refuses to send, by its code and by a file of its own."""
    named = CONFIG_KEY in node_config or VARIABLE in os.environ
    return policies_in_force(node_config, own) if named or own is not None else ()


def _secure_guard(context: Context, own: SecurePolicy | None, site: Any) -> Any:
    # It brings the primitives along, which nobody else needs.
    from .secure_memory import secure_guard

    return secure_guard(context, own, site)


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


def _decoded(parameters: Parameters) -> list[NDArray[Any]]:
    return [decode_array(tensor) for tensor in parameters.tensors]


def check_takes_context(load: LoadData) -> None:
    """Refuse now what would fail at every client, in the middle of a round."""
    if not callable(load):
        raise FedRidgeError(
            "load_data and load_eval_data must be functions of the context that "
            f"return (X, y), got {type(load).__name__}."
        )
    try:
        signature = inspect.signature(load)
    except (TypeError, ValueError):  # some callables of C do not say
        return
    try:
        signature.bind(object())
    except TypeError:
        name = getattr(load, "__name__", type(load).__name__)
        raise FedRidgeError(
            f"load_data must take one argument, the context; {name}{signature} does "
            f"not. Wrap it, as in lambda context: {name}(...)."
        ) from None
