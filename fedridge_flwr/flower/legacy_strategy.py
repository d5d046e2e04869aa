"""`LegacyFedRidge`: the strategy for Flower's older fit/evaluate API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from flwr.app import Message, MessageType, RecordDict
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    NDArrays,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common.recorddict_compat import (
    evaluateins_to_recorddict,
    evaluateres_to_recorddict,
    fitins_to_recorddict,
    fitres_to_recorddict,
)
from flwr.server import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from .._checks import check_whole
from ..data.formula import TableFormula
from ..features import FeatureMap
from ..federation.aggregate import Answers
from ..federation.requests import Request
from ..federation.secure_sum.terms import SecureSum
from ..privacy.mechanism import DifferentialPrivacy
from ..regression.alpha.alpha_grid import Alphas
from ..regression.model import RidgeModel
from ._strategy_base import StrategyBase, log, model_metrics, settings_of
from .driver_rounds import DriverRounds
from .error_text import one_line, silence_of
from .evaluation_metrics import selection_metrics
from .exchange import Reply, check_share, message_bytes, sample, wait_for_nodes
from .foreign_keywords import either_name
from .protocol.answer_records import NAME_KEY
from .protocol.array_records import model_arrays
from .protocol.request_records import PROTOCOL, PROTOCOL_KEY, request_parts

if TYPE_CHECKING:
    import os


_WAIT_SECONDS = 3600.0
_ASK_FEWER = (
    "or ask for fewer (min_available_clients; also min_fit_clients, if it is larger)"
)
_Result: TypeAlias = FitRes | EvaluateRes


class LegacyFedRidge(StrategyBase, Strategy):
    """Ridge regression in one round, driven by ``ServerAppComponents``.

    The same as `fedridge_flwr.FedRidge`, that is ``||y - X w - b||² + alpha ||w||²`` is
    minimised over the rows of all clients, for Flower's older fit/evaluate API; the
    names of the parameters follow the older FedAvg.

    One round is all it needs, but for the cases in the notes; after that it selects
    nobody. Since a ``server_fn`` app never gets its strategy back, take the model with
    `on_model` or `save_model`.

    Parameters
    ----------
    alpha : float
        Penalty, zero or more. The intercept is never penalised.
    fit_intercept, standardize : bool
        As in `solve`.
    fraction_fit : float
        Fraction of the connected clients that are asked. The rows of the others are
        not in the model, and the report names them; with `strict` it must be 1.0.
    fraction_evaluate : float
        Fraction of the clients that evaluate the model; 0.0 means none.
    min_fit_clients : int, optional
        Clients with rows that must be in the model, by default one; with fewer,
        `NotEnoughClientsError` and no model.
    min_evaluate_clients : int
        Clients that evaluate at least, whatever the fraction.
    min_available_clients : int, optional
        Clients to wait for. Without it, the strategy waits until their number is
        stable, that is has not changed for three seconds.
    evaluate_fn : callable, optional
        ``evaluate_fn(server_round, [coef, intercept], config)`` on the server.
    on_fit_config_fn, on_evaluate_config_fn : callable, optional
        Given the round, return configuration sent along to the clients.
    feature_names : sequence of str, optional
        Names that the columns of every client must have, in any order.
    alphas, cv, one_standard_error
        Choice of alpha, as in `fedridge_flwr.FedRidge`; see the notes.
    privacy, feature_map, mode, tol, max_rounds
        As in `fedridge_flwr.FedRidge`; the notes say which need more than one round.
    classes, class_weight, family, standard_errors, wire_dtype, statistics, max_bytes, \
screen, unnamed, strict, formula, ledger
        As in `fedridge_flwr.FedRidge`.
    secure : SecureSum, optional
        Refused: secure sums need `fedridge_flwr.FedRidge`.
    on_model : callable, optional
        Called with the fitted `RidgeModel`.
    save_model : path-like, optional
        JSON file of the model, by an absolute path; missing folders are made.
    initial_parameters : Parameters, optional
        Accepted where FedAvg had it, and ignored.
    min_available_nodes, min_train_nodes : int, optional
        Other spellings of `min_available_clients` and `min_fit_clients`.

    Attributes
    ----------
    model_ : RidgeModel
        The fitted model, if you keep a reference to the strategy.
    selection_ : AlphaSelection
        How alpha was chosen, if it was.
    report_ : FitReport
        Who took part, what the fit cost, and how well conditioned it is.
    statistics_ : SufficientStatistics
        The total, as in `fedridge_flwr.FedRidge`.

    Raises
    ------
    FedRidgeError
        If settings cannot be combined; raised before any round.

    Notes
    -----
    Flower's older driver hands over all answers at once, so memory grows with the
    number of clients. Give ``ServerConfig`` a ``round_timeout``: without, a client that
    never answers holds up the round. `fedridge_flwr.FedRidge` has neither limitation.

    ``ServerConfig`` needs one round only, but for these:

    - Private rounds: as many as the privacy has.
    - The modes of several rounds end by themselves, after `max_rounds` at the latest,
      and families after 26. Give ``ServerConfig`` as many: if it has fewer than the fit
      takes, there is no model, and a warning at the end says so.
    - A map that needs data, and balanced classes, take one round more each, up to
      four if clients go away. ``standard_errors="HC0"`` to "HC3" take one more, too.

    With ``cv="clients"`` alpha is chosen in the evaluate round, whose result the older
    driver does not take as parameters: ``model_``, `on_model` and `save_model` carry
    the refitted model, `evaluate_fn` and the driver see the one that GCV would choose.

    Examples
    --------
    Two clients with rows of their own:

    >>> import numpy as np
    >>> from flwr.app import Context
    >>> from flwr.clientapp import ClientApp
    >>> from flwr.server import ServerAppComponents, ServerConfig
    >>> from flwr.serverapp import ServerApp
    >>> from flwr.simulation import run_simulation
    >>> from sklearn.linear_model import Ridge
    >>> from fedridge_flwr import LegacyFedRidge, RidgeClient
    >>> def rows_of(k: int):
    ...     X = np.random.default_rng(k).normal(loc=k, size=(50, 3))
    ...     return X, X @ [1.0, 2.0, 3.0] + k
    >>> def client_fn(context: Context):
    ...     X, y = rows_of(context.node_config["partition-id"])
    ...     return RidgeClient(X, y, context=context).to_client()
    >>> models = []
    >>> def server_fn(context: Context) -> ServerAppComponents:
    ...     strategy = LegacyFedRidge(
    ...         alpha=1.0, min_available_clients=2, on_model=models.append
    ...     )
    ...     config = ServerConfig(num_rounds=1)
    ...     return ServerAppComponents(strategy=strategy, config=config)
    >>> quiet = {"log_to_driver": False, "logging_level": "error"}
    >>> run_simulation(
    ...     ServerApp(server_fn=server_fn),
    ...     ClientApp(client_fn),
    ...     num_supernodes=2,
    ...     backend_config={"client_resources": {"num_cpus": 1}, "init_args": quiet},
    ... )

    The model equals that of all rows in one place:

    >>> models
    [RidgeModel(alpha=1.0, 3 features, 100 rows, 2 clients, R²=0.9916)]
    >>> (X_0, y_0), (X_1, y_1) = rows_of(0), rows_of(1)
    >>> pooled = Ridge(alpha=1.0).fit(np.vstack([X_0, X_1]), np.append(y_0, y_1))
    >>> bool(np.allclose(models[0].coef_, pooled.coef_, rtol=1e-10))
    True
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        standardize: bool = False,
        family: str = "gaussian",
        fraction_fit: float = 1.0,
        fraction_evaluate: float = 0.0,
        min_fit_clients: int | None = None,
        min_evaluate_clients: int = 1,
        min_available_clients: int | None = None,
        evaluate_fn: (
            Callable[
                [int, NDArrays, dict[str, Scalar]],
                tuple[float, dict[str, Scalar]] | None,
            ]
            | None
        ) = None,
        on_fit_config_fn: Callable[[int], dict[str, Scalar]] | None = None,
        on_evaluate_config_fn: Callable[[int], dict[str, Scalar]] | None = None,
        feature_names: Sequence[str] | None = None,
        classes: Sequence[Any] | str | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        alphas: Alphas | None = None,
        cv: str | None = None,
        one_standard_error: bool = False,
        standard_errors: str = "classical",
        wire_dtype: str = "float64",
        statistics: str = "moments",
        privacy: DifferentialPrivacy | None = None,
        feature_map: FeatureMap | str | None = None,
        mode: str = "oneshot",
        tol: float = 1e-12,
        max_rounds: int = 500,
        max_bytes: int = 8_000_000,
        screen: str = "report",
        unnamed: str = "refuse",
        strict: bool = False,
        secure: SecureSum | None = None,
        formula: TableFormula | str | None = None,
        ledger: str | os.PathLike[str] | None = None,
        on_model: Callable[[RidgeModel], object] | None = None,
        save_model: str | os.PathLike[str] | None = None,
        initial_parameters: Parameters | None = None,
        min_available_nodes: int | None = None,
        min_train_nodes: int | None = None,
    ) -> None:
        if initial_parameters is not None:
            log.info("LegacyFedRidge needs no initial parameters: they are ignored.")
        share = check_share("fraction_fit", fraction_fit, strict=strict is True)
        self.fraction_fit = share
        self.fraction_evaluate = check_share("fraction_evaluate", fraction_evaluate)
        self.min_evaluate_clients = check_whole(
            "min_evaluate_clients", min_evaluate_clients
        )
        self.min_available_clients = either_name(
            min_available_clients=min_available_clients,
            min_available_nodes=min_available_nodes,
        )
        needed = either_name(
            min_fit_clients=min_fit_clients, min_train_nodes=min_train_nodes
        )
        self.evaluate_fn = evaluate_fn
        self.on_fit_config_fn = on_fit_config_fn
        self.on_evaluate_config_fn = on_evaluate_config_fn
        settings = settings_of(locals(), min_clients=needed or 1, older=True)
        self._start_fit(settings, self.fraction_evaluate)
        self._asked: list[str] = []
        self._began = 0.0
        self._sent = 0
        many = settings.rounds > 1
        self._rounds = DriverRounds(self, settings) if many else None

    # ---- fit ------------------------------------------------------------------

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """Return no parameters, so that no client is asked for them."""
        return Parameters(tensors=[], tensor_type="numpy.ndarray")

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Ask every client for its statistics, in the first round only.

        Flower's driver calls it, and all other methods.
        """
        if not self._trains(server_round):
            if server_round == self._last_round + 1:
                log.info(
                    "configure_fit: the model is complete after round %d; the rounds "
                    "that ServerConfig still has ask nobody and change nothing. "
                    "num_rounds=%d is enough.",
                    self._last_round,
                    self._last_round,
                )
            return []
        if server_round == 1 or self._run.failed:
            self._new_fit()
            if self._rounds is not None:
                self._rounds.begin()
        current = self._run.round
        if current is None:
            return []
        if current.to is None:
            clients = self._wait_for_clients(client_manager)
        else:
            again = set(current.to)
            clients = [c for c in _connected(client_manager) if _name(c) in again]
        requests = self._ask(current.ask, map(_name, clients))
        clients = [client for client in clients if _name(client) in requests]
        self._asked, self._began = list(requests), time.perf_counter()
        if not clients:
            # The driver skips a round without clients: the fit goes on here.
            self._finish("aggregate_fit", server_round)
            if self._run.report is not None:
                self._log_report()
            return []
        function, sites = self.on_fit_config_fn, len(clients)
        ins = {
            key: FitIns(*self._ins(each, function, server_round, sites))
            for key, each in {id(each): each for each in requests.values()}.items()
        }
        size = _bytes(fitins_to_recorddict(next(iter(ins.values())), True))
        self._run.bytes_down += len(clients) * size
        return [(client, ins[id(requests[_name(client)])]) for client in clients]

    def _finish(self, where: str, server_round: int) -> RidgeModel | None:
        """Go on with the fit, and note whether the driver needs another round."""
        if self._rounds is not None:
            self._rounds.ended(server_round, is_over=True)  # so it is after an error
        model = self._finish_round(where, server_round)
        if self._rounds is not None:
            self._rounds.ended(server_round, is_over=self._is_over)
        return model

    def _ins(
        self,
        request: Request,
        config_fn: Callable[[int], dict[str, Scalar]] | None,
        server_round: int,
        sites: int,
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Return parameters and configuration of a request."""
        fields, arrays = request_parts(request)
        config: dict[str, Scalar] = dict(config_fn(server_round)) if config_fn else {}
        ours = self._config(server_round, sites)
        config |= {PROTOCOL_KEY: PROTOCOL, **fields, **ours}
        return ndarrays_to_parameters(list(arrays.values())), config

    def _wait_for_clients(self, client_manager: ClientManager) -> list[ClientProxy]:
        began = time.perf_counter()
        clients = wait_for_nodes(
            lambda: _connected(client_manager),
            self.min_available_clients,
            _WAIT_SECONDS,
            at_least=self._least,
            remedy=_ASK_FEWER,
        )
        self._names.register(getattr(clients[0], "grid", None))
        self._run.add_seconds("wait", began)
        return self._sample(clients, "fraction_fit", _name)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Add up the answers, solve, and return ``[coef, intercept]`` and metrics."""
        if not self._trains(server_round):
            return None, {}
        replies = self._read(results, failures)
        self._take_round(replies, self._asked, _silence(failures))
        self._run.add_seconds("train", self._began)
        model = self._finish("aggregate_fit", server_round)
        if self._run.report is not None and self._is_over:
            self._log_report()
        if model is None:
            return None, {}
        arrays = list(model_arrays(model).values())
        return ndarrays_to_parameters(arrays), dict(model_metrics(model))

    def _read(self, results: Sequence[Any], failures: Sequence[Any]) -> Iterator[Reply]:
        """Yield what the driver hands over, under the names of the clients."""
        for client, result in results:
            name = _name(client)
            if self._asked and name not in self._asked:
                yield Reply(name, error="was not asked")
                continue
            content, size = _content(result)
            yield Reply(name, content, size=size)
        for failure in failures:
            if isinstance(failure, tuple):
                client, result = failure
                reason = getattr(result.status, "message", "no reason given")
                told = getattr(result, "metrics", {}).get(NAME_KEY)
                yield Reply(_name(client), error=one_line(reason), name=told)

    # ---- evaluation -----------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Send the model to be evaluated, or each client the models of the others."""
        current, connected = self._run.round, _connected(client_manager)
        if self._run.counts_losses and current is not None:
            requests: Any = current.ask
            config_fn = None
        elif self.fraction_evaluate == 0 or server_round != self._last_round:
            return []
        else:
            share, least = self.fraction_evaluate, self.min_evaluate_clients
            connected = sample(connected, share, least)
            request = self._evaluation_request()
            requests = {_name(client): request for client in connected}
            config_fn = self.on_evaluate_config_fn
        instructions, self._sent = [], 0
        for client in connected:
            if _name(client) in requests:
                own = requests[_name(client)]
                asked = self._ins(own, config_fn, server_round, len(requests))
                ins = EvaluateIns(*asked)
                self._sent += _bytes(evaluateins_to_recorddict(ins, True))
                instructions.append((client, ins))
        self._asked, self._began = list(requests), time.perf_counter()
        return instructions

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Average the clients' errors and R², or choose alpha by their losses."""
        run, replies = self._run, self._read(results, failures)
        if run.counts_losses:
            self._take_round(replies, self._asked, _silence(failures))
            run.bytes_down += self._sent
            run.add_seconds("select", self._began)
            self._finish_round("aggregate_evaluate", server_round)
            self._log_report()
            chosen = selection_metrics(self.selection_)
            return chosen["held-out-mse"], dict(chosen)
        if server_round != self._last_round or run.result is None:
            return None, {}
        answers, up = Answers(), run.bytes_up
        request = self._evaluation_request()
        self._hand_over(replies, answers, request, self._asked, _silence(failures))
        averaged = self._finish_evaluation(
            answers, run.bytes_up - up, self._sent, self._began
        )
        return averaged.get("mse"), dict(averaged)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate on the server with `evaluate_fn`, once per model."""
        if self.evaluate_fn is None or server_round != self._last_round:
            return None
        return self.evaluate_fn(server_round, parameters_to_ndarrays(parameters), {})

    # ---- text -----------------------------------------------------------------

    def start(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise a `TypeError`: ``start`` belongs to `fedridge_flwr.FedRidge`."""
        raise TypeError(
            "fedridge_flwr.LegacyFedRidge is for ServerAppComponents: return it from "
            "server_fn with ServerConfig(num_rounds=1). To call start(grid=grid) in "
            "@app.main() use fedridge_flwr.FedRidge."
        )

    def __repr__(self) -> str:
        """Show the settings that matter."""
        return f"LegacyFedRidge(alpha={self._settings.alpha})"


def _name(client: ClientProxy) -> str:
    return str(getattr(client, "node_id", client.cid))


def _connected(client_manager: ClientManager) -> list[ClientProxy]:
    client_manager.num_available()  # brings the list up to date
    return list(client_manager.all().values())


def _content(result: _Result) -> tuple[RecordDict | None, int]:
    """Return an answer as the records of the message API, and its size."""
    if isinstance(result, FitRes):
        content = fitres_to_recorddict(result, True)
    else:
        content = evaluateres_to_recorddict(result)
    return content, _bytes(content)


def _silence(failures: Sequence[Any]) -> str:
    return silence_of(failures) if failures else "no answer"


def _bytes(content: RecordDict) -> int:
    # The driver builds the real messages itself; this one has their content and a node
    # id of usual length.
    return message_bytes(Message(content, 2**62, MessageType.TRAIN))
