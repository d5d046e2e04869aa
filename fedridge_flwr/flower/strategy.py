"""`FedRidge` for Flower's message API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from .._text import counted
from .._types import Array
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..federation.one_shot import average_evaluations
from ..federation.requests import Question
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
from .error_text import tidy_reason
from .exchange import ask, log, sample, wait_for_nodes
from .message_sizes import MessageSizes, fedavg_bytes
from .protocol import records as wire
from .protocol.arrays import held_out_arrays, model_arrays
from .protocol.private_records import refuse_private_evaluation

if TYPE_CHECKING:
    import os

__all__ = ["FedRidge"]

_DEFAULT_TIMEOUT = 3600.0
_ALPHA_WORDS = {
    "server": "chosen by leaving clients out (statistics of every client are kept)",
    "clients": "chosen by the clients in one more round (their statistics are kept)",
    "gcv": "chosen by generalized cross-validation",
    "noise": "chosen by the noisy statistics",
}
_NO_ROUND = -1
_T = TypeVar("_T")


class FedRidge(FitResults, Strategy):
    """Ridge regression in one round: minimises ``||y - X w - b||² + alpha ||w||²``.

    The model equals ridge regression on the pooled rows of the clients that
    answered, to rounding, whatever their distributions, order or number. This is the
    strategy for Flower's message API: call `start` in the main function of a
    ``ServerApp``. Clients are `ridge_client_app` or `RidgeClient`. For
    ``ServerAppComponents`` there is `LegacyFedRidge`.

    Parameters
    ----------
    alpha : float
        Penalty, zero or more. The intercept is never penalised.
    fit_intercept : bool
        Whether there is an intercept; without it this is the paper's Algorithm 1.
    standardize : bool
        Penalise coefficients of features scaled to unit variance.
    fraction_train : float
        Fraction of the connected nodes that are asked. Anything but 1.0 leaves rows
        out.
    fraction_evaluate : float
        Fraction of the nodes that evaluate the model; 0.0 means no evaluate round.
    min_train_nodes : int
        Valid answers needed; with fewer, `NotEnoughClientsError` and no model.
    min_evaluate_nodes : int
        Nodes that evaluate at least, whatever the fraction.
    min_available_nodes : int, optional
        Nodes to wait for. Without it, `start` waits until their number is stable, that
        is has not changed for three seconds.
    feature_names : sequence of str, optional
        The schema every client must have, where the server knows it.
    alphas : sequence of float or "auto", optional
        Candidates to choose alpha from, instead of `alpha`; "auto" where only `cv` is
        given.
    cv : {"server", "clients", "gcv"}, optional
        How to choose; "server" where only `alphas` is given. "server" leaves one client
        out in turn and computes the losses itself; "clients" sends every client the
        models of the others in one more round and lets it count (t times d + 1 numbers
        down and one up for each candidate); both keep the statistics of every client,
        so memory grows with their number. "gcv" needs the total only.
    one_standard_error : bool
        Choose the largest alpha within one standard error of the best.
    wire_dtype : {"float64", "float32"}
        With "float32" clients send correlations as float32 and all else as float64:
        half the bytes, and coefficients right to 6e-8 (clients with fewer rows than
        features: 1.2e-7) times the condition of the system, which `report_` tells
        (`wire_error`). Clients that know only float64 are taken too.
    privacy : DifferentialPrivacy, optional
        Differential privacy of every record. Clients then send noisy sums and nothing
        else; there is no evaluate round, and `alphas` are chosen from by the noisy
        statistics alone.
    feature_map : FeatureMap or str, optional
        What every client does to its columns first: random Fourier or neural tangent
        features, a projection, and so on. Clients need no change; the map travels in
        the request, and a client whose map is not the server's is left out. A map that
        needs data (``gamma="scale"``) costs one small round more. The model takes raw
        columns.
    mode : {"oneshot", "refine", "cg", "auto"}
        "oneshot": everything in one round. "refine": exact as well, in a few rounds
        and a seventh to a quarter of the bytes, for many features: clients send a rough
        factor first and then one vector in each round, and must all stay. "cg": the
        same without the factor, where a matrix of d x d is too much for the server.
        "auto": "oneshot" while the statistics are within `max_bytes`, else "refine",
        or "cg" beyond 25,819 features.
    tol : float
        Estimated relative error at which "refine" and "cg" stop.
    max_rounds : int
        Rounds after which they stop in any case, with a warning.
    max_bytes : int
        What one client may have to send at once in "auto", by the number of its
        columns; with few rows it sends less than is counted.
    screen : {"report", "exclude", "off"}
        Compare clients with each other, by the scale of their columns and by how far
        each one moves the model of the others. "report" names those who stand out in
        `report_.suspects`, and changes nothing; it keeps statistics up to 32 MB and
        compares by scale alone beyond. "exclude" leaves them out, as if they had never
        answered, as long as they are a minority; it keeps the statistics of every
        client, so memory grows with their number. With privacy on nothing can be
        compared. A small consistent lie cannot be told from data.
    on_model : callable, optional
        Called with the fitted `RidgeModel`.
    save_model : path-like, optional
        File the model is written to, as JSON. Use an absolute path: the working
        directory of a ServerApp is that of the SuperLink.

    Attributes
    ----------
    model_ : RidgeModel
        The fitted model.
    selection_ : AlphaSelection
        How alpha was chosen, if it was.
    report_ : FitReport
        Who took part, what it cost, how well posed the answer is.
    statistics_ : SufficientStatistics
        The total, so that another alpha needs no other round; with privacy on,
        `PrivateStatistics`. There is none in the modes of several rounds.

    Raises
    ------
    FedRidgeError
        If settings do not go together, before any round.

    Examples
    --------
    Three clients with a part of the diabetes data each. In an app of yours,
    ``client_app`` and ``server_app`` are in files of their own, and ``flwr run`` takes
    the place of ``run_simulation``.

    >>> from flwr.app import Context
    >>> from flwr.serverapp import Grid, ServerApp
    >>> from flwr.simulation import run_simulation
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from fedridge_flwr import FedRidge, ridge_client_app, solve
    >>> def load_data(context: Context):
    ...     k = context.node_config["partition-id"]
    ...     X, y = load_diabetes(return_X_y=True)
    ...     return X[k::3], y[k::3]
    >>> client_app = ridge_client_app(load_data)
    >>> strategy = FedRidge(alpha=1.0, min_available_nodes=3)
    >>> server_app = ServerApp()
    >>> @server_app.main()
    ... def main(grid: Grid, context: Context) -> None:
    ...     strategy.start(grid=grid)
    >>> quiet = {"log_to_driver": False, "logging_level": "error"}
    >>> backend = {"client_resources": {"num_cpus": 1}, "init_args": quiet}
    >>> run_simulation(server_app, client_app, num_supernodes=3, backend_config=backend)

    The model is that of all rows in one place:

    >>> strategy.model_
    RidgeModel(alpha=1.0, 10 features, 442 rows, 3 clients, R²=0.4512)
    >>> pooled = Ridge(alpha=1.0).fit(*load_diabetes(return_X_y=True))
    >>> bool(abs(strategy.model_.coef_ - pooled.coef_).max() < 1e-9)
    True
    >>> len(strategy.report_.participants), strategy.report_.failures
    (3, {})

    Another alpha needs no other round:

    >>> solve(strategy.statistics_, alpha=0.1)
    RidgeModel(alpha=0.1, 10 features, 442 rows, 3 clients, R²=0.5126)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        standardize: bool = False,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 0.0,
        min_train_nodes: int = 1,
        min_evaluate_nodes: int = 1,
        min_available_nodes: int | None = None,
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
    ) -> None:
        self.fraction_train = check_fraction("fraction_train", fraction_train)
        self.fraction_evaluate = check_fraction("fraction_evaluate", fraction_evaluate)
        self.min_evaluate_nodes = check_whole("min_evaluate_nodes", min_evaluate_nodes)
        if min_available_nodes is not None:
            check_whole("min_available_nodes", min_available_nodes)
        self.min_available_nodes = min_available_nodes
        self._settings = FitSettings(
            alpha=alpha,
            fit_intercept=fit_intercept,
            standardize=standardize,
            min_clients=min_train_nodes,
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
        refuse_private_evaluation(privacy, self.fraction_evaluate)
        self._fit = new_fit(self._settings)
        self._asked: list[Message] = []
        self._timeout: float | None = None
        self._sizes = MessageSizes()
        self._forms: dict[str, str] = {}
        self._last_round = _NO_ROUND

    # ---- one round ------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 1,
        timeout: float = _DEFAULT_TIMEOUT,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the round: wait for nodes, ask, fold, solve, and evaluate if wanted.

        Parameters
        ----------
        grid : Grid
            The grid to reach the nodes.
        initial_arrays : ArrayRecord, optional
            Accepted where FedAvg had it; only `evaluate_fn` sees it, as round 0.
        num_rounds : int
            Accepted where FedAvg had it, and ignored: one round is all there is, or
            those of the privacy or the mode.
        timeout : float
            Seconds per phase: waiting for nodes, training, evaluation. Nodes that have
            not answered by then are left out and named in ``report_.failures``.
        train_config, evaluate_config : ConfigRecord, optional
            Sent along to the clients.
        evaluate_fn : callable, optional
            ``evaluate_fn(server_round, arrays)`` evaluates the model on the server.

        Returns
        -------
        Result
            ``arrays`` holds "coef" and "intercept".

        Raises
        ------
        NotEnoughClientsError
            If too few nodes connect or too few answers are valid.
        SingularSystemError
            If the rows of all clients do not determine the coefficients.
        """
        needed = self._settings.rounds
        if num_rounds not in (1, needed) or initial_arrays is not None:
            log.info(
                "FedRidge decides on its own rounds (%s) and needs no initial arrays: "
                "num_rounds and initial_arrays are ignored.",
                self._rounds_in_words(),
            )
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise FedRidgeError(f"timeout must be seconds above 0, got {timeout!r}.")
        self._timeout = timeout
        self.summary()
        result = Result()
        if evaluate_fn is not None and initial_arrays is not None:
            _keep(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, initial_arrays))

        arrays = ArrayRecord()
        for server_round in range(1, self._settings.rounds + 1):
            requests = self.configure_train(
                server_round, arrays, train_config or ConfigRecord(), grid
            )
            replies = ask(grid, list(requests), timeout, "aggregate_train")
            found, metrics = self.aggregate_train(server_round, replies)
            arrays = arrays if found is None else found
            _keep(result.train_metrics_clientapp, server_round, metrics)
            if self._fit.model is not None:
                break
        rounds = [self._fit.awaits_losses, self.fraction_evaluate > 0]
        last = self._last_round
        for _ in range(sum(rounds)):
            requests = self.configure_evaluate(
                last, arrays, evaluate_config or ConfigRecord(), grid
            )
            replies = ask(grid, list(requests), timeout, "aggregate_evaluate")
            told = self.aggregate_evaluate(last, replies)
            _keep(result.evaluate_metrics_clientapp, last, told)
        # Aggregated evaluation cannot return parameters, so the choice is put in here.
        arrays = model_arrays(self.model_)
        result.arrays = arrays
        if evaluate_fn is not None:
            told = evaluate_fn(last, arrays)
            _keep(result.evaluate_metrics_serverapp, last, told)
        for line in str(self.report_).splitlines():
            log.info("%s", line)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every node for its statistics, in the first round only.

        A fit in several rounds asks those that answered again. `start` calls it, and
        `aggregate_train`, `configure_evaluate` and `aggregate_evaluate`, or whoever
        else drives the strategy.
        """
        self._asked = []
        if server_round > 1 and self._fit.model is not None:
            return []
        began = time.perf_counter()
        if server_round > 1 and self._fit.continues:
            connected = set(grid.get_node_ids())
            nodes = [node for node in map(int, self._fit.wanted) if node in connected]
        else:
            self._fit, self._forms = new_fit(self._settings), {}
            self._last_round = _NO_ROUND
            nodes = self._wait_for_nodes(grid)
            nodes = sample(nodes, self.fraction_train, self._settings.min_clients)
            self._fit.seconds["wait"] = time.perf_counter() - began
        fields, arrays_down = wire.asked_for(self._fit)
        own = {**config, **fields, "server-round": server_round}
        self._asked = []
        for form in wire.FORMS:
            to = [n for n in nodes if self._forms.get(str(n), wire.FORMS[0]) == form]
            if to:
                content = wire.train_request(own, arrays_down, form)
                self._asked += _messages(content, to, MessageType.TRAIN)
        which = "" if self._settings.rounds == 1 else f" in round {server_round}"
        log.info("configure_train: asked %d nodes%s", len(nodes), which)
        return self._asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fold the answers, solve, and return coefficients and intercept."""
        if server_round > 1 and self._fit.model is not None:
            return None, None
        fit = self._fit
        began = time.perf_counter()
        names = _NodeNames(self._asked)
        question = fit.question()
        for reply in replies:
            fit.bytes_up += self._sizes.of(reply)
            self._take(names, reply, question)
        fit.bytes_down += self._sizes.of_all(self._asked)
        fit.refuse_silent(names.all, self._silence())
        spent = time.perf_counter() - began
        fit.seconds["train"] = fit.seconds.get("train", 0.0) + spent
        model = self._finish_round("aggregate_train")
        if model is None:
            return None, None
        arrays = model_arrays(model)
        if fit.model is not None:
            self._last_round = server_round
        if fit.report is not None:
            self._log_wire_error("aggregate_train")
            fit.compare_bytes(fedavg_bytes(arrays))
        return arrays, MetricRecord(dict(fit.metrics()))

    def _take(self, names: _NodeNames, reply: Message, question: Question) -> None:
        client, roll = names.of(reply), self._fit.roll
        if client is None:
            stranger = str(reply.metadata.src_node_id)
            # Who was asked, and sent something else as well, may still answer.
            if stranger not in names.all:
                roll.refuse(stranger, "was not asked")
        elif reply.has_error():
            roll.crash(client, tidy_reason(reply.error.reason))
        else:
            self._forms[client] = wire.form_of(reply.content)
            feature_map = self._fit.map_now
            self._fit.take(
                client, lambda: wire.read_answer(reply.content, question, feature_map)
            )

    # ---- evaluation -----------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model to be evaluated, or each client the models of the others."""
        self._asked = []
        if self._fit.awaits_losses:
            return self._ask_for_losses(server_round, config)
        if self.fraction_evaluate == 0 or server_round != self._last_round:
            return []
        # No waiting here: the model is there, and whoever left must not cost it.
        nodes = sorted(set(grid.get_node_ids()))
        nodes = sample(nodes, self.fraction_evaluate, self.min_evaluate_nodes)
        content = wire.evaluate_request(
            model_arrays(self.model_),
            {**config, **self._schema(), "server-round": server_round},
        )
        self._asked = _messages(content, nodes, MessageType.EVALUATE)
        log.info("configure_evaluate: asked %d nodes", len(nodes))
        return self._asked

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Average the clients' errors and R², or choose alpha by their losses."""
        if not self._asked and server_round != self._last_round:
            return None
        if self._fit.awaits_losses:
            return self._choose_alpha(replies)
        began = time.perf_counter()
        found: dict[str, Evaluation] = {}
        failed, up = self._read_replies(replies, found, wire.read_evaluation)
        if not self._asked and not found:
            return None
        averaged = average_evaluations(list(found.values()))
        report = self.report_
        report.bytes_up += up
        report.bytes_down += self._sizes.of_all(self._asked)
        report.seconds["evaluate"] = time.perf_counter() - began
        report.evaluation, report.evaluation_failures = averaged, failed
        return MetricRecord(dict(averaged)) if averaged else None

    def _read_replies(
        self,
        replies: Iterable[Message],
        found: dict[str, _T],
        read: Callable[[RecordDict], _T],
    ) -> tuple[dict[str, str], int]:
        """Fill `found` with what nodes sent; return who did not and why, and bytes."""
        names, failed, size = _NodeNames(self._asked), dict[str, str](), 0
        for reply in replies:
            size += self._sizes.of(reply)
            client = names.of(reply)
            if client is None or client in found or client in failed:
                continue
            try:
                if reply.has_error():
                    raise FedRidgeError(tidy_reason(reply.error.reason))
                found[client] = read(reply.content)
            except FedRidgeError as error:
                failed[client] = str(error)
            except Exception as error:  # hostile input must not end the round
                failed[client] = f"unreadable answer ({type(error).__name__})"
        for client in names.all:
            if client not in found and client not in failed:
                failed[client] = self._silence()
        return failed, size

    # ---- choice of alpha by the clients -----------------------------------------

    def _ask_for_losses(self, server_round: int, config: ConfigRecord) -> list[Message]:
        settings = {
            **config,
            **self._schema(),
            "server-round": server_round,
            wire.TASK_KEY: wire.LOSSES_TASK,
        }
        self._asked = [
            Message(
                wire.evaluate_request(held_out_arrays(models), settings),
                dst_node_id=int(client),
                message_type=MessageType.EVALUATE,
            )
            for client, models in self._fit.held_out().items()
        ]
        log.info("configure_evaluate: asked %d nodes for losses", len(self._asked))
        return self._asked

    def _choose_alpha(self, replies: Iterable[Message]) -> MetricRecord:
        fit, began = self._fit, time.perf_counter()
        losses: dict[str, Array] = {}
        n = fit.candidates.size
        failed, up = self._read_replies(
            replies, losses, lambda content: wire.read_losses(content, n)
        )
        fit.choose(losses, failed)
        fit.seconds["select"] = time.perf_counter() - began
        fit.count_selection_bytes(up=up, down=self._sizes.of_all(self._asked))
        return MetricRecord(fit.selection_metrics())

    # ---- words ----------------------------------------------------------------

    def summary(self) -> None:
        """Log the settings, as every strategy of Flower does; nothing is returned."""
        settings = self._settings
        wanted = self.min_available_nodes
        log.info(
            "FedRidge: %s, alpha %s, intercept %s, standardize %s, nodes: %s, "
            "valid answers needed: %d, evaluate round: %s",
            self._promise(),
            _ALPHA_WORDS.get(settings.selection or "", f"{settings.alpha:g}"),
            settings.fit_intercept,
            settings.standardize,
            "until their number is stable" if wanted is None else f"at least {wanted}",
            settings.min_clients,
            "yes" if self.fraction_evaluate > 0 else "no",
        )

    def _promise(self) -> str:
        privacy = self._settings.privacy
        rounds = self._rounds_in_words()
        if privacy is None:
            return rounds
        return (
            f"{rounds}, private with epsilon {privacy.epsilon:g} and delta "
            f"{privacy.delta:g} for each record ({privacy.trust} trust)"
        )

    def _rounds_in_words(self) -> str:
        settings = self._settings
        if settings.privacy is not None:
            return counted(settings.rounds, "round")
        mapped = settings.feature_map is not None and settings.feature_map.needs_data
        first = ", after a small round for the feature map" if mapped else ""
        if settings.one_shot:
            return f"one round{first}"
        return f"{settings.mode}, at most {settings.max_rounds} rounds{first}"

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise a `TypeError`: ``ServerAppComponents`` drives `LegacyFedRidge` only."""
        raise TypeError(
            "fedridge_flwr.FedRidge is for the message API: call "
            "FedRidge(...).start(grid=grid) in @app.main(). With ServerAppComponents "
            "or server_fn use fedridge_flwr.LegacyFedRidge."
        )

    # ---- internals ------------------------------------------------------------

    def _wait_for_nodes(self, grid: Grid) -> list[int]:
        wanted = self.min_available_nodes
        if self._settings.min_clients > 1:
            wanted = max(wanted or 0, self._settings.min_clients)
        return wait_for_nodes(
            lambda: sorted(set(grid.get_node_ids())),
            wanted,
            self._timeout or _DEFAULT_TIMEOUT,
        )

    def _silence(self) -> str:
        """Return why a node that said nothing is left out."""
        if self._timeout is None:
            return "no answer"
        return f"no answer within {self._timeout:g} s"


class _NodeNames:
    """Which node an answer belongs to.

    Errors about dead nodes come with the SuperLink as their source, so answers are
    matched by the request they reply to. Requests get their ids when they are sent.
    What replies to another request, of an earlier round or run, or to that of another
    node, is no answer.
    """

    def __init__(self, asked: Sequence[Message]) -> None:
        self._asked = asked
        self.all = {str(message.metadata.dst_node_id): None for message in asked}

    @cached_property
    def _by_request(self) -> dict[str, str]:
        return {
            message.metadata.message_id: str(message.metadata.dst_node_id)
            for message in self._asked
            if message.metadata.message_id
        }

    def of(self, reply: Message) -> str | None:
        source = str(reply.metadata.src_node_id)
        if not self.all:
            return source
        if not self._by_request:
            return source if source in self.all else None
        known = self._by_request.get(reply.metadata.reply_to_message_id)
        by_superlink = reply.has_error() and source == str(SUPERLINK_NODE_ID)
        return known if known == source or by_superlink else None


def _messages(content: RecordDict, nodes: list[int], kind: str) -> list[Message]:
    return [Message(content, dst_node_id=node, message_type=kind) for node in nodes]


def _keep(
    history: dict[int, MetricRecord], key: int, found: MetricRecord | None
) -> None:
    if found is not None:
        history[key] = found
