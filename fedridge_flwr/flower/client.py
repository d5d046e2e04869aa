"""The client side of both APIs: `ridge_client_app` and `RidgeClient`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
)
from flwr.compat.common.recorddict_compat import (
    arrayrecord_to_parameters,
    evaluateres_to_recorddict,
    fitres_to_recorddict,
)
from numpy.typing import NDArray

from .._text import counted
from .._types import Array
from ..data.rows import Rows, as_numbers, check_rows
from ..errors import DataError, FedRidgeError, PrivacyError, ProtocolError
from ..features import (
    ColumnMoments,
    FeatureMap,
    check_allowed,
    check_permission,
    map_rows,
)
from ..federation.costs import MOST_FEATURES
from ..federation.requests import AskColumns, AskOpening, AskProduct, Question
from ..federation.settings import check_whole
from ..multiround import Opening, centred_product
from ..privacy.curator import Curator
from ..privacy.curator import ReleaseRequest as Request
from ..privacy.ledger import PrivacyLedger
from ..privacy.policy import PrivacyPolicy
from ..regression.leave_client_out import HeldOut
from ..regression.model import Evaluation, RidgeModel
from ..statistics.encoding import encode_rows
from ..statistics.sufficient import SufficientStatistics, hash_names
from .error_text import readable_error
from .protocol import records as wire
from .protocol.arrays import (
    decode_array,
    decode_arrays,
    held_out_from_arrays,
    model_from_arrays,
)
from .protocol.multiround_records import COLUMNS, OPENING, PRODUCT, opening_mode
from .protocol.private_records import (
    ClientName,
    check_guards,
    curator_of,
    is_private,
)
from .ray_threads import keep_to_own_cores

__all__ = ["LoadData", "RidgeClient", "ridge_client_app"]

LoadData: TypeAlias = Callable[[Context], tuple[Any, ...]]

log = logging.getLogger("flwr")


def ridge_client_app(
    load_data: LoadData,
    load_eval_data: LoadData | None = None,
    *,
    min_rows: int = 2,
    share_feature_names: bool = False,
    feature_maps: Sequence[FeatureMap] | None = None,
    privacy_policy: PrivacyPolicy | None = None,
    privacy_ledger: PrivacyLedger | None = None,
    client_name: ClientName | None = None,
) -> ClientApp:
    """Return a ClientApp that answers `FedRidge`, or `LegacyFedRidge`.

    It sends the client's sufficient statistics, once, or what else the strategy asks
    for: a private release, an evaluation, a vector in each of several rounds.

    Parameters
    ----------
    load_data : callable
        ``load_data(context)`` returns this client's rows as (X, y) or
        (X, y, sample_weight). Of what it raises the server is told the type and the
        line; the message, which may quote data, is in the client's own log. To tell
        the server a reason, raise a `DataError`.
    load_eval_data : callable, optional
        The same for evaluation rows; by default the training rows.
    min_rows : int
        With fewer rows, weights of zero not counted, the client holds back: the
        statistics of one row are the row.
    share_feature_names : bool
        Send column names in clear and not only their hash. Errors name columns by
        number unless this is set.
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

    Returns
    -------
    ClientApp
        What a ``client_app.py`` has under the name ``app``.

    Raises
    ------
    PrivacyError
        If there is a ledger and no name.
    FedRidgeError
        If `load_data` is no function, `min_rows` no whole number of at least 1, or
        `feature_maps` are not maps.

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
    app = ClientApp()
    for load in (load_data, load_eval_data or load_data):
        if not callable(load):
            raise FedRidgeError(
                "load_data and load_eval_data must be functions of the context that "
                f"return (X, y), got {type(load).__name__}."
            )
        _check_takes_context(load)
    check_whole("min_rows", min_rows)
    feature_maps = check_permission(feature_maps)
    check_guards(privacy_policy, privacy_ledger, client_name)

    def client(context: Context, *, evaluating: bool) -> RidgeClient:
        if evaluating and load_eval_data is not None:
            load = load_eval_data
        else:
            load = load_data
        keep_to_own_cores()
        X, y, weight = _rows(load(context), "what load_data returns")
        return RidgeClient(
            X,
            y,
            sample_weight=weight,
            min_rows=min_rows,
            share_feature_names=share_feature_names,
            feature_maps=feature_maps,
            context=context,
            privacy_policy=privacy_policy,
            privacy_ledger=privacy_ledger,
            client_name=client_name,
        )

    def desk(context: Context, *, evaluating: bool) -> _Desk:
        return _Desk(
            curator=lambda: curator_of(
                context, privacy_policy, privacy_ledger, client_name
            ),
            client=lambda: client(context, evaluating=evaluating),
            share_names=share_feature_names,
            guarded=privacy_policy is not None or privacy_ledger is not None,
        )

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _answer_train(message, desk(context, evaluating=False))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        # Held-out losses are counted on the rows that were held out: the training rows.
        evaluating = not wire.asks_for_losses(message.content)
        return _answer_evaluate(message, desk(context, evaluating=evaluating))

    return app


class RidgeClient(NumPyClient):
    """A NumPyClient that sends its sufficient statistics once.

    For apps that have a ``client_fn``; it answers `FedRidge` and `LegacyFedRidge`.

    Parameters
    ----------
    X, y : array-like
        This client's rows, as `SufficientStatistics.from_data` takes them.
    eval_data : tuple, optional
        Evaluation rows (X, y) or (X, y, sample_weight); by default the training rows.
    sample_weight : array-like, optional
        Non-negative weights.
    min_rows : int
        With fewer rows the client holds back.
    share_feature_names : bool
        Send column names in clear and not only their hash.
    feature_maps : sequence of FeatureMap, optional
        As in `ridge_client_app`.
    context : Context, optional
        The context that ``client_fn`` gets; private requests need it, since a release
        is remembered there.
    privacy_policy, privacy_ledger, client_name
        As in `ridge_client_app`.

    Raises
    ------
    PrivacyError
        If there is a policy or a ledger and no context.
    DataError
        If `eval_data` is not as it should be. The training rows are checked when they
        are asked for, so that the server hears of it.

    Notes
    -----
    What a ``client_fn`` raises before there is a client, Flower sends to the server
    with its message. `ridge_client_app` keeps the message, and answers both strategies.

    Examples
    --------
    In an app, ``client_fn`` returns ``RidgeClient(X, y).to_client()``; `LegacyFedRidge`
    has the whole path, server and simulation included. What such a client sends:

    >>> from fedridge_flwr import RidgeClient
    >>> client = RidgeClient([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> arrays, num_examples, fields = client.fit([], {})
    >>> arrays[0].tolist(), num_examples
    ([3.0, 1.0, 3.0, 2.0, 4.0, 8.0], 3)

    These are weight, means and co-moments (`SufficientStatistics.to_array`). Of one row
    they would be the row, so it is refused:

    >>> RidgeClient([[0.0]], [1.0]).fit([], {})
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: holds back: it has fewer rows than its min_rows=2.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        eval_data: tuple[Any, ...] | None = None,
        *,
        sample_weight: Any = None,
        min_rows: int = 2,
        share_feature_names: bool = False,
        feature_maps: Sequence[FeatureMap] | None = None,
        context: Context | None = None,
        privacy_policy: PrivacyPolicy | None = None,
        privacy_ledger: PrivacyLedger | None = None,
        client_name: ClientName | None = None,
    ) -> None:
        self._train_rows = (X, y, sample_weight)
        self._eval_rows = (
            self._train_rows if eval_data is None else _rows(eval_data, "eval_data")
        )
        self.min_rows = check_whole("min_rows", min_rows)
        self.share_feature_names = share_feature_names
        self._feature_maps = check_permission(feature_maps)
        check_guards(privacy_policy, privacy_ledger, client_name)
        self._guarded = privacy_policy is not None or privacy_ledger is not None
        if context is None and self._guarded:
            raise PrivacyError(
                "privacy_policy and privacy_ledger need context=context, which "
                "client_fn(context) receives: releases are remembered there."
            )
        self._remembers = context is not None
        self._curator = (
            Curator()
            if context is None
            else curator_of(context, privacy_policy, privacy_ledger, client_name)
        )

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return check_rows(*self._train_rows).n_rows

    def statistics(self) -> SufficientStatistics:
        """Return the statistics of the training rows, if there are enough rows.

        Raises
        ------
        DataError
            If there are fewer than `min_rows`, or the rows are not in order.
        PrivacyError
            If the client's policy grants private releases only.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClient
        >>> RidgeClient([[0.0], [1.0]], [1.0, 3.0]).statistics()
        SufficientStatistics(2 rows, 1 feature, 1 target)
        """
        return SufficientStatistics.from_rows(self._exact_rows())

    def answer(
        self, question: Question, feature_map: FeatureMap | None = None
    ) -> wire.Answer:
        """Return what is asked for, in the fewest bytes, and the schema beside it.

        `fit` reads the question from Flower's configuration and calls this.

        Parameters
        ----------
        question : Question
            What the strategy asks: statistics, a private release, a first rough
            factor, or a product.
        feature_map : FeatureMap, optional
            What rows go through first.
        """
        check_allowed(feature_map, self._feature_maps)
        if isinstance(question, Request):
            return self._release(question, feature_map)
        rows = map_rows(self._exact_rows(), feature_map)
        if not isinstance(question, AskProduct):
            _log_map(rows, feature_map)
        if isinstance(question, AskColumns):
            columns = ColumnMoments.from_rows(rows)
            return self._told(COLUMNS, {"columns": columns.to_array()}, rows)
        if isinstance(question, AskProduct):
            _check_vectors(question.vectors, rows)
            product = centred_product(rows, question.vectors)
            return self._told(PRODUCT, {"product": product}, rows)
        mode, dtype = "oneshot", "float64"
        if isinstance(question, AskOpening):
            mode = opening_mode(question, rows.n_features, rows.n_targets)
        else:
            dtype = question.wire_dtype
        if mode != "cg":
            _refuse_too_many(rows)
        if mode != "oneshot":
            opening = Opening.from_rows(rows, factor=mode == "refine")
            return self._told(OPENING, opening.to_arrays(), rows)
        found = encode_rows(rows, dtype)
        return self._told(found.kind, found.arrays, rows)

    def _told(
        self, kind: str, arrays: dict[str, NDArray[Any]], rows: Rows
    ) -> wire.Answer:
        fields = wire.schema_fields(kind, rows, self.share_feature_names)
        return wire.Answer(arrays, rows.n_rows, fields)

    def _exact_rows(self) -> Rows:
        self._curator.refuse_exact()
        keep_to_own_cores()
        rows = check_rows(*self._train_rows)
        self._hold_back(rows)
        return rows

    def _release(self, request: Request, feature_map: FeatureMap | None) -> wire.Answer:
        """Return a private release, which counts as one example."""
        if not self._remembers:
            raise PrivacyError(
                "a private release must be remembered, or asking twice would halve the "
                "noise: use RidgeClient(X, y, context=context)."
            )
        keep_to_own_cores()
        X, y, weight = self._train_rows
        rows = map_rows(check_rows(as_numbers(X), as_numbers(y), weight), feature_map)
        _log_map(rows, feature_map)
        found = self._curator.answer(request, rows)
        fields = wire.schema_fields(wire.PRIVATE, rows, self.share_feature_names)
        return wire.Answer({"release": found}, 1, fields)

    def score_model(
        self,
        model: RidgeModel,
        feature_hash: object = None,
        feature_map: FeatureMap | None = None,
    ) -> Evaluation:
        """Return error and R² of a model on the evaluation rows.

        The hash of the model's feature names, where known, must be that of the rows.

        Parameters
        ----------
        model : RidgeModel
            Model on raw columns, or on those that the map makes.
        feature_hash : str, optional
            Hash of the feature names of the model.
        feature_map : FeatureMap, optional
            What rows go through first.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClient, solve
        >>> client = RidgeClient([[0.0], [1.0]], [1.0, 3.0])
        >>> model = solve(client.statistics(), alpha=1.0)
        >>> round(client.score_model(model).mse, 6)
        0.444444
        """
        self._curator.refuse_exact()
        check_allowed(feature_map, self._feature_maps)
        rows = check_rows(*self._eval_rows)
        self._hold_back(rows)
        _check_names(rows, feature_hash)
        if feature_map is not None:
            model = model.with_feature_map(feature_map, rows.n_features)
        return model.evaluate(*self._eval_rows)

    def held_out_losses(
        self,
        models: HeldOut,
        feature_hash: object = None,
        feature_map: FeatureMap | None = None,
    ) -> Array:
        """Return the error of the models of all others on the training rows.

        Parameters
        ----------
        models : HeldOut
            One model for each candidate alpha, fitted without this client.
        feature_hash, feature_map
            As in `score_model`.

        Returns
        -------
        ndarray
            Mean squared error, one for each candidate.
        """
        check_allowed(feature_map, self._feature_maps)
        rows = self._exact_rows()
        _check_names(rows, feature_hash)
        return models.losses_of_rows(map_rows(rows, feature_map))

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Return the packed statistics, the number of rows, and what they are.

        A private release counts as one example, whatever the number of rows.

        Parameters
        ----------
        parameters : list of ndarray
            What the strategy sends: nothing in one round, vectors in several.
        config : dict
            What it asks for; empty means full statistics.
        """
        question = wire.read_question(config, parameters)
        answer = self.answer(question, wire.asked_map(config))
        return list(answer.arrays.values()), answer.count, dict(answer.fields)

    def evaluate(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        """Return the mean squared error, the number of rows, and MSE and R².

        Asked for held-out losses, return those instead.

        Parameters
        ----------
        parameters : list of ndarray
            ``[coef, intercept]`` of the model.
        config : dict
            What the strategy sends along.
        """
        if config.get(wire.TASK_KEY) == wire.LOSSES_TASK:
            models = held_out_from_arrays(parameters)
            losses = self.held_out_losses(
                models, config.get(wire.FEATURE_HASH_KEY), wire.asked_map(config)
            )
            return float(losses.min()), self.n_rows, dict(wire.losses_metrics(losses))
        evaluation = self.score_model(
            model_from_arrays(parameters),
            config.get(wire.FEATURE_HASH_KEY),
            wire.asked_map(config),
        )
        metrics = dict(wire.evaluation_metrics(evaluation))
        return evaluation.mse, evaluation.n_rows, metrics

    def to_client(self) -> Client:
        """Return a Flower client that answers with a reason where it cannot fit.

        That is what ``client_fn`` has to return.
        """
        return _StatusClient(self)

    def _hold_back(self, rows: Rows) -> None:
        weight = rows.weight
        count = rows.n_rows if weight is None else np.count_nonzero(weight)
        if count < self.min_rows:
            raise DataError(
                f"holds back: it has fewer rows than its min_rows={self.min_rows}."
            )


class _StatusClient(Client):
    """Turn errors of a `RidgeClient` into a Status that the server can read."""

    def __init__(self, client: RidgeClient) -> None:
        self._client = client

    def fit(self, ins: FitIns) -> FitRes:
        return _fit_result(self._desk, ins)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        return _evaluate_result(self._desk, ins)

    @property
    def _desk(self) -> _Desk:
        return _Desk(
            curator=lambda: self._client._curator,
            client=lambda: self._client,
            share_names=self._client.share_feature_names,
            guarded=self._client._guarded,
        )


@dataclass(frozen=True)
class _Desk:
    """Where questions arrive: who may answer, and what an error may say.

    The curator is asked before the rows are loaded, so that nothing about loading them
    is told to whoever gets no answer.
    """

    curator: Callable[[], Curator]
    client: Callable[[], RidgeClient]
    share_names: bool
    guarded: bool

    def client_for(self, question: Question) -> RidgeClient:
        """Return the client if it may answer this question."""
        if not isinstance(question, Request):
            return self.exact_client()
        self.curator().agree(question)
        return self.client()

    def exact_client(self) -> RidgeClient:
        """Return the client if it may tell anything exact."""
        self.curator().refuse_exact()
        return self.client()

    def told(self, error: Exception, config: Mapping[str, Any]) -> str:
        """Return what the server is told of an error; the rest is in the log."""
        expected = isinstance(error, FedRidgeError)
        log.warning(
            "This client does not contribute: %s",
            error,
            exc_info=not expected and error,
        )
        # Whether rows are in order is itself about the rows.
        harmless = isinstance(error, PrivacyError | ProtocolError)
        if not harmless and (self.guarded or is_private(config)):
            return "could not make a private release; the reason is in its own log."
        return readable_error(error, self.share_names)

    def refusal(self, error: Exception, config: Mapping[str, Any]) -> Status:
        # Flower has no code for "refused"; the message carries the reason.
        return Status(Code.FIT_NOT_IMPLEMENTED, self.told(error, config))


def _fit_result(desk: _Desk, ins: FitIns) -> FitRes:
    try:
        wire.check_request(ins.config)
        asked = [decode_array(tensor) for tensor in ins.parameters.tensors]
        client = desk.client_for(wire.read_question(ins.config, asked))
        arrays, count, metrics = client.fit(asked, ins.config)
    except Exception as error:
        return FitRes(desk.refusal(error, ins.config), _nothing(), 0, {})
    return FitRes(_OK, ndarrays_to_parameters(arrays), count, metrics)


def _evaluate_result(desk: _Desk, ins: EvaluateIns) -> EvaluateRes:
    try:
        wire.check_request(ins.config)
        arrays = [decode_array(tensor) for tensor in ins.parameters.tensors]
        loss, count, metrics = desk.exact_client().evaluate(arrays, ins.config)
    except Exception as error:
        return EvaluateRes(desk.refusal(error, ins.config), 0.0, 0, {})
    return EvaluateRes(_OK, loss, count, metrics)


def _answer_train(message: Message, desk: _Desk) -> Message:
    content = message.content
    config = wire.request_config(content)
    if wire.is_legacy_request(content):
        asked = content.array_records["fitins.parameters"]
        ins = FitIns(arrayrecord_to_parameters(asked, True), dict(config))
        result = _fit_result(desk, ins)
        return Message(fitres_to_recorddict(result, False), reply_to=message)

    def reply() -> RecordDict:
        wire.check_request(config)
        arrays = content.get("arrays")
        asked = decode_arrays(arrays) if isinstance(arrays, ArrayRecord) else []
        question = wire.read_question(config, asked)
        client = desk.client_for(question)
        return wire.answer_reply(client.answer(question, wire.asked_map(config)))

    return Message(_or_refusal(reply, desk, config), reply_to=message)


def _answer_evaluate(message: Message, desk: _Desk) -> Message:
    content = message.content
    config = wire.request_config(content)
    if wire.is_legacy_request(content):
        arrays = content.array_records["evaluateins.parameters"]
        ins = EvaluateIns(arrayrecord_to_parameters(arrays, True), dict(config))
        result = _evaluate_result(desk, ins)
        return Message(evaluateres_to_recorddict(result), reply_to=message)

    def reply() -> RecordDict:
        wire.check_request(config)
        arrays = decode_arrays(content.array_records["arrays"])
        digest, feature_map = config.get(wire.FEATURE_HASH_KEY), wire.asked_map(config)
        if wire.asks_for_losses(content):
            models = held_out_from_arrays(arrays)
            own = desk.exact_client()
            losses = own.held_out_losses(models, digest, feature_map)
            return wire.losses_reply(losses, own.n_rows)
        model = model_from_arrays(arrays)
        own = desk.exact_client()
        return wire.evaluation_reply(own.score_model(model, digest, feature_map))

    return Message(_or_refusal(reply, desk, config), reply_to=message)


def _log_map(rows: Rows, feature_map: FeatureMap | None) -> None:
    """Tell the client's log what the server makes of its columns."""
    if feature_map is not None:
        log.info("Rows go through %s.", feature_map.describe(rows.n_features_in))


def _refuse_too_many(rows: Rows) -> None:
    """Refuse a map of the server's whose statistics would fill the memory."""
    if rows.map_fingerprint is not None and rows.n_features > MOST_FEATURES:
        raise ProtocolError(
            f"the server's feature map makes {rows.n_features} features, of which a "
            f"matrix of d x d is too much (at most {MOST_FEATURES}): use a smaller "
            'map, or mode="cg".'
        )


def _check_vectors(vectors: Array, rows: Rows) -> None:
    # One for each target, and one more to find out whether columns are dependent.
    if vectors.shape[1] > rows.n_targets + 1:
        raise ProtocolError(
            f"the server sends {vectors.shape[1]} vectors for "
            f"{counted(rows.n_targets, 'target')}."
        )
    if vectors.shape[0] != rows.n_features:
        raise ProtocolError(
            f"the server sends vectors of {vectors.shape[0]} entries for "
            f"{rows.n_features} features: these are not the rows it asked about first."
        )


def _check_names(rows: Rows, feature_hash: object) -> None:
    own = hash_names(rows.feature_names)
    if own is not None and feature_hash not in (None, own):
        raise DataError("the model has other feature names, or another order.")


def _or_refusal(
    reply: Callable[[], RecordDict], desk: _Desk, config: Mapping[str, Any]
) -> RecordDict:
    try:
        return reply()
    except Exception as error:
        return wire.error_reply(desk.told(error, config))


def _check_takes_context(load: LoadData) -> None:
    """Refuse now what would fail at every client, in the middle of a round."""
    try:
        signature = inspect.signature(load)
    except (TypeError, ValueError):  # some callables of C do not tell
        return
    try:
        signature.bind(object())
    except TypeError:
        name = getattr(load, "__name__", type(load).__name__)
        raise FedRidgeError(
            f"load_data must take one argument, the context; {name}{signature} does "
            f"not. Wrap it, as in lambda context: {name}(...)."
        ) from None


def _rows(data: Any, what: str) -> tuple[Any, Any, Any]:
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        got = type(data).__name__
        if isinstance(data, tuple | list):
            got += f" of {len(data)}"
        raise DataError(f"{what} must be (X, y) or (X, y, sample_weight), got a {got}.")
    return (*data, None) if len(data) == 2 else tuple(data)


def _nothing() -> Parameters:
    return Parameters(tensors=[], tensor_type="numpy.ndarray")


_OK = Status(Code.OK, "Success")
