"""`LegacyFedRidge` for Flower's older fit/evaluate API (`ServerAppComponents`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

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
    arrayrecord_to_parameters,
    evaluateins_to_recorddict,
    evaluateres_to_recorddict,
    fitins_to_recorddict,
    fitres_to_recorddict,
)
from flwr.server import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from .._types import Array
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..federation.one_shot import average_evaluations
from ..federation.settings import (
    FitSettings,
    as_feature_map,
    check_fraction,
    check_whole,
)
from ..federation.ways import new_fit
from ..privacy.mechanism import DifferentialPrivacy
from ..regression.alpha_selection import Alphas
from ..regression.model import Evaluation, RidgeModel
from ._strategy_base import FitResults
from .error_text import one_line, tidy_reason
from .exchange import log, sample, wait_for_nodes
from .message_sizes import fedavg_bytes, message_bytes
from .protocol import records as wire
from .protocol.arrays import decode_array, held_out_arrays, model_arrays
from .protocol.private_records import refuse_private_evaluation

if TYPE_CHECKING:
    import os

__all__ = ["LegacyFedRidge"]

_WAIT_SECONDS = 3600.0
_NO_ROUND = -1
_T = TypeVar("_T")


class LegacyFedRidge(FitResults, Strategy):
    """Ridge regression in one round, driven by ``ServerAppComponents``.

    The same as `fedridge_flwr.FedRidge`, that is ``||y - X w - b||² + alpha ||w||²`` is
    minimised over the rows of all clients, for Flower's older fit/evaluate API; the
    names of the parameters follow the older FedAvg.

    One round is all it needs, but for private rounds, the modes of several rounds, and
    maps that need data: when it is done, it selects nobody any more. Since a
    ``server_fn`` app never gets its strategy back, take the model with `on_model` or
    `save_model`.

    Parameters
    ----------
    alpha : float
        Penalty, zero or more. The intercept is never penalised.
    fit_intercept, standardize : bool
        As in `solve`.
    fraction_fit : float
        Fraction of the connected clients that are asked. Anything but 1.0 leaves rows
        out.
    fraction_evaluate : float
        Fraction of the clients that evaluate the model; 0.0 means none.
    min_fit_clients : int, optional
        Valid answers needed, by default one; with fewer, `NotEnoughClientsError` and no
        model.
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
        The schema every client must have, where the server knows it.
    alphas, cv, one_standard_error
        Choice of alpha, as in `fedridge_flwr.FedRidge`; see the notes.
    privacy, feature_map, mode, tol, max_rounds
        As in `fedridge_flwr.FedRidge`; the notes say which need more than one round.
    wire_dtype, max_bytes, screen
        As in `fedridge_flwr.FedRidge`.
    on_model : callable, optional
        Called with the fitted `RidgeModel`.
    save_model : path-like, optional
        File the model is written to, as JSON; use an absolute path.
    initial_parameters : Parameters, optional
        Accepted where FedAvg had it, and ignored.
    min_available_nodes : int, optional
        Another spelling of `min_available_clients`.
    min_train_nodes : int, optional
        Another spelling of `min_fit_clients`.

    Attributes
    ----------
    model_ : RidgeModel
        The fitted model, for whoever holds on to the strategy.
    selection_ : AlphaSelection
        How alpha was chosen, if it was.
    report_ : FitReport
        Who took part, what it cost, how well posed the answer is.
    statistics_ : SufficientStatistics
        The total, as in `fedridge_flwr.FedRidge`.

    Raises
    ------
    FedRidgeError
        If settings do not go together, before any round.

    Notes
    -----
    Flower's older driver hands over all answers at once, so memory grows with the
    number of clients. Give ``ServerConfig`` a ``round_timeout``: without, a client that
    never answers holds up the round. `fedridge_flwr.FedRidge` has neither limitation.

    The strategy does not know how many rounds ``ServerConfig`` has; one is enough but
    for these:

    - Private rounds: as many as the privacy has.
    - The modes of several rounds end by themselves, after `max_rounds` at the latest.
      Give ``ServerConfig`` as many, or there may be no model.
    - A map that needs data takes one round more, up to four if clients go away.

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
    ...     return RidgeClient(X, y).to_client()
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

    The model is that of all rows in one place:

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
        alphas: Alphas | None = None,
        cv: str | None = None,
        one_standard_error: bool = False,
        wire_dtype: str = "float64",
        privacy: DifferentialPrivacy | None = None,
        feature_map: FeatureMap | str | None = None,
        mode: str = "oneshot",
        tol: float = 1e-12,
        max_rounds: int = 500,
        max_bytes: int = 8_000_000,
        screen: str = "report",
        on_model: Callable[[RidgeModel], object] | None = None,
        save_model: str | os.PathLike[str] | None = None,
        initial_parameters: Parameters | None = None,
        min_available_nodes: int | None = None,
        min_train_nodes: int | None = None,
    ) -> None:
        if initial_parameters is not None:
            log.info("FedRidge needs no initial parameters: they are ignored.")
        self.fraction_fit = check_fraction("fraction_fit", fraction_fit)
        self.fraction_evaluate = check_fraction("fraction_evaluate", fraction_evaluate)
        self.min_evaluate_clients = check_whole(
            "min_evaluate_clients", min_evaluate_clients
        )
        self.min_available_clients = _either(
            min_available_clients=min_available_clients,
            min_available_nodes=min_available_nodes,
        )
        self.evaluate_fn = evaluate_fn
        self.on_fit_config_fn = on_fit_config_fn
        self.on_evaluate_config_fn = on_evaluate_config_fn
        self._settings = FitSettings(
            alpha=alpha,
            fit_intercept=fit_intercept,
            standardize=standardize,
            min_clients=_either(
                min_fit_clients=min_fit_clients, min_train_nodes=min_train_nodes
            )
            or 1,
            feature_names=feature_names,
            alphas=alphas,
            cv=cv,
            one_standard_error=one_standard_error,
            wire_dtype=wire_dtype,
            privacy=privacy,
            feature_map=as_feature_map(feature_map),
            mode=mode,
            tol=tol,
            max_rounds=max_rounds,
            max_bytes=max_bytes,
            screen=screen,
            on_model=on_model,
            save_model=save_model,
        )
        refuse_private_evaluation(privacy, fraction_evaluate)
        self._fit = new_fit(self._settings)
        self._asked: dict[str, None] = {}
        self._began = 0.0
        self._sent = 0
        self._last_round = _NO_ROUND

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
        if server_round > 1 and self._fit.model is not None:
            return []
        clients = self._whom_to_ask(server_round, client_manager)
        if not clients:
            # The driver skips a round without clients: the fit ends here.
            self._finish(server_round)
            return []
        config = (
            dict(self.on_fit_config_fn(server_round)) if self.on_fit_config_fn else {}
        )
        fields, arrays = wire.asked_for(self._fit)
        ins = FitIns(
            ndarrays_to_parameters(list(arrays.values())),
            {
                **config,
                wire.PROTOCOL_KEY: wire.PROTOCOL,
                **fields,
                "server-round": server_round,
            },
        )
        rounds = self._settings.rounds
        if server_round == 1 and rounds > 1:
            log.warning(
                "configure_fit: %s %d rounds are needed, ServerConfig(num_rounds=%d); "
                "with fewer there %s no model%s.",
                "all" if self._settings.privacy else "up to",
                rounds,
                rounds,
                "is" if self._settings.privacy else "may be",
                ""
                if self._settings.one_shot
                else " (or lower max_rounds to them: "
                "the best model so far is then kept, with a warning)",
            )
        self._asked = dict.fromkeys(_name(client) for client in clients)
        self._fit.bytes_down += len(clients) * _bytes(fitins_to_recorddict(ins, True))
        self._began = time.perf_counter()
        return [(client, ins) for client in clients]

    def _whom_to_ask(
        self, server_round: int, client_manager: ClientManager
    ) -> list[ClientProxy]:
        if server_round > 1 and self._fit.continues:
            again = set(self._fit.wanted)
            return [c for c in _connected(client_manager) if _name(c) in again]
        self._fit, self._last_round = new_fit(self._settings), _NO_ROUND
        began = time.perf_counter()
        wanted = self.min_available_clients
        if self._settings.min_clients > 1:
            wanted = max(wanted or 0, self._settings.min_clients)
        clients = wait_for_nodes(
            lambda: _connected(client_manager), wanted, _WAIT_SECONDS
        )
        self._fit.seconds["wait"] = time.perf_counter() - began
        return sample(clients, self.fraction_fit, self._settings.min_clients)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Fold the answers, solve, and return ``[coef, intercept]`` and metrics."""
        if server_round > 1 and self._fit.model is not None:
            return None, {}
        fit = self._fit
        for client, result in results:
            self._take(_name(client), result)
        crashes = []
        for failure in failures:
            if isinstance(failure, tuple):
                client, result = failure
                fit.roll.refuse(_name(client), _status_of(result))
            else:
                crashes.append(tidy_reason(str(failure)))
        fit.refuse_silent(self._asked, _missing(crashes))
        spent = time.perf_counter() - self._began
        fit.seconds["train"] = fit.seconds.get("train", 0.0) + spent
        model = self._finish(server_round)
        if model is None:
            return None, {}
        return ndarrays_to_parameters(_model_ndarrays(model)), dict(fit.metrics())

    def _finish(self, server_round: int) -> RidgeModel | None:
        fit = self._fit
        model = self._finish_round("aggregate_fit")
        if model is None:
            return None
        if fit.model is not None:
            self._last_round = server_round
        if fit.report is not None:
            self._log_wire_error("aggregate_fit")
            fit.compare_bytes(fedavg_bytes(model_arrays(model)))
            for line in str(fit.report).splitlines():
                log.info("%s", line)
        return model

    def _take(self, client: str, result: FitRes) -> None:
        if self._asked and client not in self._asked:
            self._fit.roll.refuse(client, "was not asked")
            return
        question, feature_map = self._fit.question(), self._fit.map_now

        def read() -> Any:
            self._fit.bytes_up += _bytes(fitres_to_recorddict(result, True))
            arrays = [decode_array(t) for t in result.parameters.tensors]
            return wire.read_fields(
                result.metrics, arrays, result.num_examples, question, feature_map
            )

        self._fit.take(client, read)

    # ---- evaluation -----------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Send the model to be evaluated, or each client the models of the others."""
        if self._fit.awaits_losses:
            return self._ask_for_losses(server_round, client_manager)
        if self.fraction_evaluate == 0 or server_round != self._last_round:
            return []
        available = client_manager.num_available()
        wanted = max(
            self.min_evaluate_clients, round(self.fraction_evaluate * available)
        )
        number = min(available, wanted)
        config = (
            dict(self.on_evaluate_config_fn(server_round))
            if self.on_evaluate_config_fn
            else {}
        )
        ins = EvaluateIns(
            ndarrays_to_parameters(_model_ndarrays(self.model_)),
            {
                **config,
                **self._schema(),
                "server-round": server_round,
                wire.PROTOCOL_KEY: wire.PROTOCOL,
            },
        )
        clients = client_manager.sample(number)
        self._asked = dict.fromkeys(_name(client) for client in clients)
        sent = len(clients) * _bytes(evaluateins_to_recorddict(ins, True))
        self.report_.bytes_down += sent
        self._began = time.perf_counter()
        return [(client, ins) for client in clients]

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Average the clients' errors and R², or choose alpha by their losses."""
        if self._fit.awaits_losses:
            return self._choose_alpha(results, failures)
        if server_round != self._last_round:
            return None, {}
        found: dict[str, Evaluation] = {}

        def read(result: EvaluateRes) -> Evaluation:
            content = evaluateres_to_recorddict(result)
            self.report_.bytes_up += _bytes(content)
            return wire.read_evaluation(content)

        failed = self._read_evaluations(results, failures, found, read)
        averaged = average_evaluations(list(found.values()))
        self.report_.seconds["evaluate"] = time.perf_counter() - self._began
        self.report_.evaluation = averaged
        self.report_.evaluation_failures = failed
        return averaged.get("mse"), dict(averaged)

    def _ask_for_losses(
        self, server_round: int, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        config: dict[str, Scalar] = {
            **self._schema(),
            "server-round": server_round,
            wire.PROTOCOL_KEY: wire.PROTOCOL,
            wire.TASK_KEY: wire.LOSSES_TASK,
        }
        models = self._fit.held_out()
        instructions = []
        self._sent = 0
        for client in _connected(client_manager):
            if _name(client) in models:
                arrays = held_out_arrays(models[_name(client)])
                parameters = arrayrecord_to_parameters(arrays, True)
                ins = EvaluateIns(parameters, config)
                self._sent += _bytes(evaluateins_to_recorddict(ins, True))
                instructions.append((client, ins))
        self._asked = dict.fromkeys(models)
        self._began = time.perf_counter()
        return instructions

    def _choose_alpha(
        self,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        fit, up = self._fit, 0
        losses: dict[str, Array] = {}

        def read(result: EvaluateRes) -> Array:
            nonlocal up
            content = evaluateres_to_recorddict(result)
            up += _bytes(content)
            return wire.read_losses(content, fit.candidates.size)

        failed = self._read_evaluations(results, failures, losses, read)
        fit.choose(losses, failed)
        fit.seconds["select"] = time.perf_counter() - self._began
        fit.count_selection_bytes(up=up, down=self._sent)
        for line in str(self.report_).splitlines():
            log.info("%s", line)
        metrics = fit.selection_metrics()
        return float(metrics["held-out-mse"]), dict(metrics)  # type: ignore[arg-type]

    def _read_evaluations(
        self,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
        found: dict[str, _T],
        read: Callable[[EvaluateRes], _T],
    ) -> dict[str, str]:
        """Fill `found` with what clients sent; return who did not, and why."""
        failed: dict[str, str] = {}
        for client, result in results:
            name = _name(client)
            if name in found or name in failed:
                continue
            if self._asked and name not in self._asked:
                continue
            try:
                found[name] = read(result)
            except FedRidgeError as error:
                failed[name] = str(error)
            except Exception as error:  # hostile input must not end the round
                failed[name] = f"unreadable answer ({type(error).__name__})"
        crashes = []
        for failure in failures:
            if isinstance(failure, tuple):
                failed[_name(failure[0])] = _status_of(failure[1])
            else:
                crashes.append(tidy_reason(str(failure)))
        for name in self._asked:
            if name not in found and name not in failed:
                failed[name] = _missing(crashes)
        return failed

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate on the server with `evaluate_fn`, once per model."""
        if self.evaluate_fn is None or server_round != self._last_round:
            return None
        return self.evaluate_fn(server_round, parameters_to_ndarrays(parameters), {})

    # ---- words ----------------------------------------------------------------

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


def _model_ndarrays(model: RidgeModel) -> NDArrays:
    return [array.numpy() for array in model_arrays(model).values()]


def _connected(client_manager: ClientManager) -> list[ClientProxy]:
    client_manager.num_available()  # brings the list up to date
    return list(client_manager.all().values())


def _status_of(result: FitRes | EvaluateRes) -> str:
    return one_line(getattr(result.status, "message", "no reason given"))


def _missing(crashes: list[str]) -> str:
    # The driver does not say which client crashed; who is missing did.
    reasons = "; ".join(sorted(set(crashes)))
    return f"failed ({reasons})" if reasons else "no answer"


def _bytes(content: RecordDict) -> int:
    # The driver builds the real messages out of sight; this one has their content
    # and a node id of usual length.
    return message_bytes(Message(content, 2**62, MessageType.TRAIN))


def _either(**spellings: int | None) -> int | None:
    """Return the number of clients that was given under one of two names."""
    given = {
        name: check_whole(name, n) for name, n in spellings.items() if n is not None
    }
    if len(set(given.values())) > 1:
        told = " and ".join(f"{name}={n}" for name, n in given.items())
        raise FedRidgeError(f"{told} are two names of one setting: give one of them.")
    return next(iter(given.values()), None)
