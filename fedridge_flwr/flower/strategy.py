"""`FedRidge`: the strategy for Flower's message API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from .._checks import as_number, check_whole
from ..data.formula import TableFormula
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..federation.aggregate import Answers
from ..federation.requests import AskTable
from ..federation.secure_sum.terms import SecureSum
from ..privacy.mechanism import DifferentialPrivacy
from ..regression.alpha.alpha_grid import Alphas
from ..regression.model import RidgeModel
from ._strategy_base import StrategyBase, log, model_metrics, settings_of
from .evaluation_metrics import selection_metrics
from .exchange import (
    MessageSizes,
    NodeNames,
    ask,
    check_share,
    messages_to,
    no_grid,
    read_replies,
    sample,
    wait_for_nodes,
)

if TYPE_CHECKING:
    import os


_DEFAULT_TIMEOUT = 3600.0


class FedRidge(StrategyBase, Strategy):
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
    family : {"gaussian", "binomial", "poisson"}
        Ridge regression, or logistic or Poisson regression in up to 26 rounds:
        minimises -log-likelihood + alpha/2 ||w||², and `model_` is a `FamilyModel`.
    fraction_train : float
        Fraction of the connected nodes that are asked. The rows of the others are not
        in the model, and the report names them; with `strict` it must be 1.0.
    fraction_evaluate : float
        Fraction of the nodes that evaluate the model; 0.0 means no evaluate round.
    min_train_nodes : int
        Clients with rows that must be in the model; with fewer,
        `NotEnoughClientsError` and no model.
    min_evaluate_nodes : int
        Nodes that evaluate at least, whatever the fraction.
    min_available_nodes : int, optional
        Nodes to wait for. Without it, `start` waits until their number is stable, that
        is has not changed for three seconds.
    feature_names : sequence of str, optional
        Names that the columns of every client must have, where the server knows them.
        Clients that have them in another order rearrange their rows.
    classes : sequence of labels or "auto", optional
        Classify: y of every client has labels (text, whole numbers, booleans), and the
        model is that of RidgeClassifier. "auto" uses the labels that clients have.
    class_weight : mapping or "balanced", optional
        Weight of the rows of each class; "balanced" takes one more small round.
    alphas : sequence of float or "auto", optional
        Candidates to choose alpha from, instead of `alpha`; "auto" where only `cv` is
        given.
    cv : {"server", "clients", "gcv", "groups"}, optional
        How to choose; where only `alphas` is given "server", with `secure` "gcv", with
        `privacy` the noisy statistics. "server" leaves one client
        out in turn and computes the losses itself; "clients" sends every client the
        models of the others in one more round, which compute the losses. Both keep the
        statistics of every client. "gcv" needs only the total. "groups", in secure
        sums, leaves out one of several groups of at least `SecureSum.min_clients`.
    one_standard_error : bool
        Choose the largest alpha within one standard error of the best.
    standard_errors : {"classical", "CR0", "CR1", "HC0", "HC1", "HC2", "HC3"}
        The kind of standard errors in `inference_`, as in `infer`. HC takes one more
        round, in which every client in the model must answer; the model is the same.
    wire_dtype : {"float64", "float32"}
        With "float32" clients send correlations as float32: half the bytes, and
        coefficients accurate to 6e-8 (clients with fewer rows than features: 1.2e-7)
        times the condition of the system (``report_.wire_error``).
    statistics : {"moments", "fixed", "triangular"}
        "fixed": sums as whole numbers, three times the bytes. The model is the same,
        bit for bit, for any order of the clients and any division of rows among them.
        "triangular": `TriangularStatistics`, for nearly dependent columns.
    privacy : DifferentialPrivacy, optional
        Differential privacy of every record. Clients then send only noisy sums, there
        is no evaluate round, and alpha is chosen from the noisy statistics.
    feature_map : FeatureMap or str, optional
        The map that every client applies to its columns first: random Fourier or neural
        tangent features, a projection, and so on. The map is part of the request. A map
        that needs data (``gamma="scale"``) takes one more small round. The model takes
        raw columns.
    mode : {"oneshot", "refine", "cg", "auto"}
        "oneshot": everything in one round. "refine": exact as well, in a few rounds and
        a seventh to a quarter of the bytes: clients send a rough factor first and then
        one vector in each round. "cg": the same without the factor, for servers that
        cannot hold a matrix of d x d. "auto" does what `recommend` says: "oneshot"
        while the statistics are within `max_bytes`, else "refine", or "cg" beyond
        25,819 features.
    tol : float
        Relative residual at which "refine" and "cg" stop.
    max_rounds : int
        Rounds after which they stop in any case, with a warning.
    max_bytes : int
        The largest message of one client in "auto". Clients with so few rows that they
        stay below it send their statistics and are not asked again; the model is that
        of all clients.
    screen : {"report", "exclude", "off"}
        Compare clients with each other, by the scale of their columns and by how far
        each one moves the model of the others. "report" names clients that stand out in
        ``report_.suspects`` and changes nothing. "exclude" leaves them out, as long as
        they are a minority. Not available with privacy.
    unnamed : {"refuse", "accept"}
        What to do with clients whose columns have no names (bare arrays) if other
        clients, or `feature_names`, have names: their order cannot be checked. "accept"
        assumes that it is right, and ``report_.unverified`` names the clients.
    strict : bool
        End with an `IncompleteFitError`, and without a model, if any client that was
        asked is not in it. Off by default: the model is exact for the others, and the
        first line of the report says how many clients and rows are in it.
    secure : SecureSum, optional
        The server learns the exact sum of all clients' statistics, but no single
        client's, in five exchanges. Experimental; see `SecureSum`.
    formula : str or TableFormula, optional
        As in ``"bp ~ age + C(sex)"``, if clients have whole tables. One more round
        agrees on the levels of categories and names tables that do not match.
    ledger : path-like, optional
        File of a `Ledger`, as an absolute path. Answers are added to it and replace
        earlier ones of the same site; an interrupted run is continued.
    on_model : callable, optional
        Called with the fitted `RidgeModel`.
    save_model : path-like, optional
        File the model is written to, as JSON. Use an absolute path: the working
        directory of a ServerApp is that of the SuperLink. Missing folders are made.

    Attributes
    ----------
    model_ : RidgeModel
        The fitted model.
    selection_ : AlphaSelection
        How alpha was chosen, if it was.
    report_ : FitReport
        Who took part, what the fit cost, and how well conditioned it is.
    statistics_ : SufficientStatistics
        The total, with which another alpha needs no further round; with privacy,
        `PrivateStatistics`. Fits in several rounds have none.

    Raises
    ------
    FedRidgeError
        If settings cannot be combined; raised before any round.

    Examples
    --------
    Three clients, each with a part of the diabetes data. In your own app, the client
    and the server are in separate files, and ``flwr run`` replaces ``run_simulation``.

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

    The model equals that of all rows in one place:

    >>> strategy.model_
    RidgeModel(alpha=1.0, 10 features, 442 rows, 3 clients, R²=0.4512)
    >>> pooled = Ridge(alpha=1.0).fit(*load_diabetes(return_X_y=True))
    >>> bool(abs(strategy.model_.coef_ - pooled.coef_).max() < 1e-9)
    True
    >>> len(strategy.report_.participants), strategy.report_.failures
    (3, {})

    Another alpha needs no further round:

    >>> solve(strategy.statistics_, alpha=0.1)
    RidgeModel(alpha=0.1, 10 features, 442 rows, 3 clients, R²=0.5126)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        standardize: bool = False,
        family: str = "gaussian",
        fraction_train: float = 1.0,
        fraction_evaluate: float = 0.0,
        min_train_nodes: int = 1,
        min_evaluate_nodes: int = 1,
        min_available_nodes: int | None = None,
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
    ) -> None:
        share = check_share("fraction_train", fraction_train, strict=strict is True)
        self.fraction_train = share
        self.fraction_evaluate = check_share("fraction_evaluate", fraction_evaluate)
        self.min_evaluate_nodes = check_whole("min_evaluate_nodes", min_evaluate_nodes)
        if min_available_nodes is not None:
            check_whole("min_available_nodes", min_available_nodes)
        self.min_available_nodes = min_available_nodes
        settings = settings_of(locals(), min_clients=min_train_nodes)
        self._start_fit(settings, self.fraction_evaluate, min_available_nodes)
        self._asked: list[Message] = []
        self._timeout: float | None = None
        self._sizes = MessageSizes()
        self._forms: dict[str, str] = {}

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
        """Run the round: wait for nodes, ask them, add up, solve, and evaluate.

        Parameters
        ----------
        grid : Grid
            The grid to reach the nodes.
        initial_arrays : ArrayRecord, optional
            Accepted as in FedAvg; only `evaluate_fn` sees it, as round 0.
        num_rounds : int
            Accepted as in FedAvg, and ignored: the number of rounds is one, or follows
            from the privacy settings or the mode.
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
        IncompleteFitError
            If `strict`, and a client that was asked is not in the model.
        SingularSystemError
            If the rows of all clients do not determine the coefficients.
        """
        if num_rounds not in (1, self._settings.rounds) or initial_arrays is not None:
            log.info(
                "FedRidge decides on its own rounds (%s) and needs no initial arrays: "
                "num_rounds and initial_arrays are ignored.",
                self._describe_rounds(),
            )
        seconds = timeout if type(timeout) is float else as_number(timeout)
        if not seconds > 0:
            raise FedRidgeError(f"timeout must be seconds above 0, got {timeout!r}.")
        if not hasattr(grid, "get_node_ids"):
            raise no_grid(grid)
        self._timeout = timeout
        self.summary()
        result = Result()
        if evaluate_fn is not None and initial_arrays is not None:
            _keep(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, initial_arrays))
        arrays = ArrayRecord()
        for server_round in range(1, self._settings.rounds + 1):
            config = train_config or ConfigRecord()
            asked = list(self.configure_train(server_round, arrays, config, grid))
            replies = ask(grid, asked, timeout, "aggregate_train", self._keep_answers)
            found, metrics = self.aggregate_train(server_round, replies)
            arrays = arrays if found is None else found
            _keep(result.train_metrics_clientapp, server_round, metrics)
            if not self._trains(server_round + 1):
                break
        else:
            raise FedRidgeError("the fit needs more rounds than its settings say.")
        last, config = self._last_round, evaluate_config or ConfigRecord()
        evaluate_rounds = self._run.counts_losses + (self.fraction_evaluate > 0)
        for _ in range(evaluate_rounds):
            requests = self.configure_evaluate(last, arrays, config, grid)
            replies = ask(grid, list(requests), timeout, "aggregate_evaluate")
            averaged = self.aggregate_evaluate(last, replies)
            _keep(result.evaluate_metrics_clientapp, last, averaged)
        # An alpha that the clients chose changes the model after the train round.
        result.arrays = arrays = self._arrays
        if evaluate_fn is not None:
            _keep(result.evaluate_metrics_serverapp, last, evaluate_fn(last, arrays))
        self._log_report()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every node for its statistics, in the first round only.

        A fit in several rounds asks those that answered again. `start` calls it and
        the other three methods of a round, as does any other driver.
        """
        self._asked = []
        if not self._trains(server_round):
            return []
        began = time.perf_counter()
        if server_round == 1 or self._run.failed:
            self._new_fit()
            self._forms = {}
        current = self._run.round
        if current is None:
            return []
        if current.to is None:
            nodes = self._wait_for_nodes(grid)
            self._names.register(grid)
            nodes = self._sample(nodes, "fraction_train", str)
            self._run.add_seconds("wait", began)
        else:
            connected = set(grid.get_node_ids())
            nodes = [node for node in map(int, current.to) if node in connected]
        requests = self._ask(current.ask, map(str, nodes))
        asks_table = any(each.task == AskTable.task for each in requests.values())
        self._asked = messages_to(
            requests,
            {**config, **self._config(server_round, len(nodes))},
            MessageType.QUERY if asks_table else MessageType.TRAIN,
            self._forms,
        )
        which = "" if self._settings.rounds == 1 else f" in round {server_round}"
        log.info("configure_train: asked %d nodes%s", len(requests), which)
        return self._asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up the answers, solve, and return coefficients and intercept."""
        if not self._trains(server_round):
            return None, None
        began, run = time.perf_counter(), self._run
        names = NodeNames(self._asked)
        heard = read_replies(replies, names, self._sizes, self._forms)
        self._take_round(heard, names.all, self._silence())
        run.bytes_down += self._sizes.of_all(self._asked)
        run.add_seconds("train", began)
        model = self._finish_round("aggregate_train", server_round)
        if model is None:
            return None, None
        return self._arrays, MetricRecord(dict(model_metrics(model)))

    # ---- evaluation -----------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model to be evaluated, or each client the models of the others."""
        self._asked = []
        current = self._run.round
        if self._run.counts_losses and current is not None:
            requests: Any = current.ask
        elif self.fraction_evaluate == 0 or server_round != self._last_round:
            return []
        else:
            # No waiting here: the model exists, even if nodes have left since.
            nodes = sorted(set(grid.get_node_ids()))
            nodes = sample(nodes, self.fraction_evaluate, self.min_evaluate_nodes)
            requests = dict.fromkeys(map(str, nodes), self._evaluation_request())
        self._asked = messages_to(
            requests,
            {**config, **self._config(server_round, len(requests))},
            MessageType.EVALUATE,
        )
        log.info("configure_evaluate: asked %d nodes", len(self._asked))
        return self._asked

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Average the clients' errors and R², or choose alpha by their losses."""
        if not self._asked and server_round != self._last_round:
            return None
        began, run = time.perf_counter(), self._run
        names, up = NodeNames(self._asked), run.bytes_up
        heard = read_replies(replies, names, self._sizes, self._forms)
        if run.counts_losses:
            self._take_round(heard, names.all, self._silence())
            run.bytes_down += self._sizes.of_all(self._asked)
            run.add_seconds("select", began)
            self._finish_round("aggregate_evaluate", server_round)
            return MetricRecord(dict(selection_metrics(self.selection_)))
        answers, request = Answers(), self._evaluation_request()
        known = (reply for reply in heard if reply.client in names.all)
        self._hand_over(known, answers, request, names.all, self._silence())
        if not self._asked and not answers.parts:
            return None
        down = self._sizes.of_all(self._asked)
        averaged = self._finish_evaluation(answers, run.bytes_up - up, down, began)
        return MetricRecord(dict(averaged)) if averaged else None

    # ---- messages -------------------------------------------------------------

    def _wait_for_nodes(self, grid: Grid) -> list[int]:
        return wait_for_nodes(
            lambda: sorted(set(grid.get_node_ids())),
            self.min_available_nodes,
            self._timeout or _DEFAULT_TIMEOUT,
            at_least=self._least,
        )

    def _silence(self) -> str:
        """Return why a node that sent nothing is left out."""
        if self._timeout is None:
            return "no answer"
        return f"no answer within {self._timeout:g} s"

    # ---- text -----------------------------------------------------------------

    def summary(self) -> None:
        """Log the settings, as every strategy of Flower does; nothing is returned."""
        wanted = self.min_available_nodes
        log.info(
            "FedRidge: %s, nodes: %s, evaluate round: %s",
            self._describe_settings(),
            "until their number is stable" if wanted is None else f"at least {wanted}",
            "yes" if self.fraction_evaluate > 0 else "no",
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise a `TypeError`: ``ServerAppComponents`` drives `LegacyFedRidge` only."""
        raise TypeError(
            "fedridge_flwr.FedRidge is for the message API: call "
            "FedRidge(...).start(grid=grid) in @app.main(). With ServerAppComponents "
            "or server_fn use fedridge_flwr.LegacyFedRidge."
        )


def _keep(
    history: dict[int, MetricRecord], key: int, found: MetricRecord | None
) -> None:
    if found is not None:
        history[key] = found
