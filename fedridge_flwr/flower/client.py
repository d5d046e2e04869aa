"""The client side of both APIs: `ridge_client_app` and `RidgeClient`."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from flwr.app import Context, Message
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes
from numpy.typing import NDArray

from .._checks import check_whole
from ..data.rows import check_rows
from ..errors import DataError, FedRidgeError, PrivacyError
from ..features import FeatureMap, check_permission
from ..federation.requests import (
    AskEvaluation,
    AskStatistics,
    Request,
)
from ..federation.respond import Guards, RawRows
from ..privacy.ledger import PrivacyLedger
from ..privacy.policy import PrivacyPolicy
from ..statistics.sufficient import SufficientStatistics
from .handlers import (
    Site,
    evaluate_arrays,
    evaluate_result,
    fit_result,
    handle_evaluate,
    handle_train,
)
from .protocol.answer_records import answer_fields
from .release_memory import ClientName, PrivacyTerms
from .row_cache import cached_rows

__all__ = ["LoadData", "RidgeClient", "ridge_client_app"]

LoadData: TypeAlias = Callable[[Context], tuple[Any, ...]]


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
    reuse_data: bool = True,
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
        With fewer rows, weights of zero not counted, the client declines: the
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
    for load in (load_data, load_eval_data or load_data):
        _check_takes_context(load)
    check_whole("min_rows", min_rows)
    allowed = check_permission(feature_maps)
    terms = PrivacyTerms(privacy_policy, privacy_ledger, client_name)
    token = uuid.uuid4().hex

    def site(context: Context) -> Site:
        def load(request: Request) -> RawRows:
            own = load_data
            if request.task == AskEvaluation.task and load_eval_data is not None:
                own = load_eval_data
            if not (reuse_data and request.asked_again):
                return _as_rows(own(context), "what load_data returns")
            key = (token, context.run_id, context.node_id)
            return cached_rows(
                key, lambda: _as_rows(own(context), "what load_data returns")
            )

        return Site(
            load=load,
            guards=lambda private: Guards(
                min_rows, allowed, terms.curator(context, private=private)
            ),
            share_names=share_feature_names,
            private_only=terms.insists,
        )

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return handle_train(message, site(context))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return handle_evaluate(message, site(context))

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
        With fewer rows the client declines.
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
    fedridge_flwr.errors.DataError: declined: it has fewer rows than its min_rows=2.
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
        train = (X, y, sample_weight)
        evaluation = train if eval_data is None else _as_rows(eval_data, "eval_data")
        check_whole("min_rows", min_rows)
        allowed = check_permission(feature_maps)
        terms = PrivacyTerms(privacy_policy, privacy_ledger, client_name)
        if context is None and terms.insists:
            raise PrivacyError(
                "privacy_policy and privacy_ledger need context=context, which "
                "client_fn(context) receives: releases are remembered there."
            )
        self._rows = train
        self._site = Site(
            load=lambda r: evaluation if r.task == AskEvaluation.task else train,
            guards=lambda private: Guards(
                min_rows, allowed, terms.curator(context, private=private)
            ),
            share_names=share_feature_names,
            private_only=terms.insists,
        )

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return check_rows(*self._rows).n_rows

    def statistics(self) -> SufficientStatistics:
        """Return the statistics of the training rows, if there are enough rows.

        Raises
        ------
        DataError
            If there are fewer than `min_rows`, or the rows are not valid.
        PrivacyError
            If the client's policy grants private releases only.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClient
        >>> RidgeClient([[0.0], [1.0]], [1.0, 3.0]).statistics()
        SufficientStatistics(2 rows, 1 feature, 1 target)
        """
        guards, rows = self._site.guards(False), check_rows(*self._rows)
        guards.check_request(AskStatistics())
        guards.check_rows(rows)
        return SufficientStatistics.from_rows(rows)

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
        answer = self._site.respond(config, parameters)
        fields = answer_fields(answer, self._site.share_names)
        return list(answer.arrays.values()), answer.count, dict(fields)

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
        return evaluate_arrays(self._site, config, parameters)

    def to_client(self) -> Client:
        """Return a Flower client that answers with a reason where it cannot fit.

        That is what ``client_fn`` has to return.
        """
        return _StatusClient(self._site)


class _StatusClient(Client):
    """Turn errors of a `RidgeClient` into a Status that the server can read."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def fit(self, ins: FitIns) -> FitRes:
        return fit_result(self._site, ins)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        return evaluate_result(self._site, ins)


def _check_takes_context(load: LoadData) -> None:
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


def _as_rows(data: Any, what: str) -> RawRows:
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        got = type(data).__name__
        if isinstance(data, tuple | list):
            got += f" of {len(data)}"
        raise DataError(f"{what} must be (X, y) or (X, y, sample_weight), got a {got}.")
    X, y, *weight = data
    return X, y, weight[0] if weight else None
