"""Whole path: real Ray simulations with real ClientApps and ServerApps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
)
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp
from generators import paper_clients, relative_error
from shared_simulation import SharedSimulation
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Ridge, RidgeClassifier

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FixedPointStatistics,
    LegacyFedRidge,
    NotEnoughClientsError,
    PrivacyLedger,
    PrivacyPolicy,
    RidgeClient,
    RidgeModel,
    ridge_client_app,
    solve,
)
from fedridge_flwr.flower import exchange
from fedridge_flwr.flower.exchange import CountingGrid
from fedridge_flwr.linalg.blas import one_blas_thread

pytestmark = pytest.mark.ray

Rows = tuple[np.ndarray, np.ndarray]


def diabetes_of(context: Context) -> Rows:
    k, n = (int(context.node_config[f"{key}"]) for key in _PARTITION)
    X, y = load_diabetes(return_X_y=True)
    return X[k::n], y[k::n]


_PARTITION = ("partition-id", "num-partitions")


def assert_exact(model: RidgeModel, ridge: Ridge) -> None:
    assert relative_error(model.coef_, ridge.coef_) < 1e-12
    assert abs(model.intercept_ - ridge.intercept_) <= 1e-12 * max(
        1.0, abs(ridge.intercept_)
    )


# ---- all four combinations -----------------------------------------------------------


def message_server(found: dict[str, Any]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedRidge(alpha=0.1, min_available_nodes=5, fraction_evaluate=1.0)
        strategy.start(grid, timeout=600)
        found["strategy"] = strategy

    return app


def legacy_server(found: dict[str, Any]) -> ServerApp:
    def server_fn(context: Context) -> ServerAppComponents:
        strategy = LegacyFedRidge(0.1, min_available_nodes=5, fraction_evaluate=1.0)
        found["strategy"] = strategy
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1))

    return ServerApp(server_fn=server_fn)


def message_client() -> ClientApp:
    return ridge_client_app(diabetes_of)


def numpy_client() -> ClientApp:
    return ClientApp(lambda context: RidgeClient(*diabetes_of(context)).to_client())


@pytest.mark.parametrize("client", [message_client, numpy_client])
@pytest.mark.parametrize("make_server", [message_server, legacy_server])
def test_strategies_and_clients_of_both_apis_combine(
    make_server: Any, client: Any, simulation: SharedSimulation
) -> None:
    found: dict[str, Any] = {}
    simulation.run(make_server(found), client(), 5)
    strategy = found["strategy"]
    ridge = Ridge(alpha=0.1).fit(*load_diabetes(return_X_y=True))
    assert_exact(strategy.model_, ridge)
    assert len(strategy.report_.participants) == 5
    assert strategy.report_.evaluation["num-examples"] == 442


def test_triangular_statistics_through_the_simulation(
    simulation: SharedSimulation,
) -> None:
    found: dict[str, Any] = {}

    def main(grid: Grid) -> None:
        strategy = FedRidge(0.1, statistics="triangular", min_available_nodes=5)
        strategy.start(grid, timeout=600)
        found["strategy"] = strategy

    simulation.run(main, message_client(), 5)
    strategy = found["strategy"]
    assert_exact(strategy.model_, Ridge(0.1).fit(*load_diabetes(return_X_y=True)))
    assert strategy.statistics_.form == "triangular"


def flowers_of(context: Context) -> Rows:
    """Return 30 rows in order: no client has all three kinds of flower."""
    X, y = load_iris(return_X_y=True)
    own = slice(30 * int(context.node_config["partition-id"]), None)
    names = np.array(["setosa", "versicolor", "virginica"])
    return X[own][:30], names[y[own][:30]]


def test_labels_are_classified_through_the_simulation(
    simulation: SharedSimulation,
) -> None:
    strategy = FedRidge(classes="auto", min_available_nodes=5, fraction_evaluate=1.0)
    app = ridge_client_app(flowers_of)
    simulation.run(lambda grid: strategy.start(grid, timeout=600), app, 5)
    X, y = load_iris(return_X_y=True)
    pooled = RidgeClassifier().fit(X, y)
    assert relative_error(strategy.model_.coef_, pooled.coef_) < 1e-12
    assert (strategy.model_.predict(X) == load_iris().target_names[y])[:50].all()
    accuracy = strategy.report_.evaluation["accuracy"]
    assert accuracy == pytest.approx(pooled.score(X, y), abs=1e-12)


# ---- exactness over many data sets, in one simulation --------------------------------

WINE = Path(__file__).resolve().parents[3] / "shared" / "data" / "wine_quality"
PAPER = {
    f"paper d={d} gamma={gamma}": (d, gamma) for d in (10, 100, 400) for gamma in (0, 1)
}


@lru_cache(maxsize=1)
def all_clients(case: str, K: int) -> list[Rows]:
    """Return the rows of every client."""
    if case in PAPER:
        d, gamma = PAPER[case]
        return paper_clients(d=d, n_k=max(20, 600 // K), K=K, gamma=gamma, seed=1)
    if case == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        files = sorted(WINE.glob("winequality-*.csv"))
        rows = [np.loadtxt(path, delimiter=";", skiprows=1) for path in files]
        X, y = np.vstack(rows)[:, :-1], np.vstack(rows)[:, -1]
    return [(X[k::K], y[k::K]) for k in range(K)]


def many_data_sets() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        case = str(message.content.config_records["config"]["case"])
        k, K = (int(context.node_config[key]) for key in _PARTITION)
        ridge = ridge_client_app(lambda _: all_clients(case, K)[k])
        return ridge(message, context)

    return app


@pytest.mark.parametrize("K", [2, 20, 100])
def test_every_data_set_is_exact_through_the_simulation(
    K: int, simulation: SharedSimulation
) -> None:
    # A hundred clients with 400 features are 64 MB of messages, and prove no more than
    # twenty of them and a hundred with 100 features.
    paper = [case for case, (d, _) in PAPER.items() if K * d <= 10_000]
    cases = [*paper, "diabetes", *(["wine"] if WINE.exists() else [])]
    models: dict[str, RidgeModel] = {}

    def main(grid: Grid) -> None:
        for case in cases:
            strategy = FedRidge(alpha=0.01, min_available_nodes=K)
            config = ConfigRecord({"case": case})
            strategy.start(grid, train_config=config, timeout=600)
            models[case] = strategy.model_

    simulation.run(main, many_data_sets(), K)
    assert list(models) == cases
    for case, model in models.items():
        X, y = (
            np.concatenate(part) for part in zip(*all_clients(case, K), strict=True)
        )
        assert model.n_clients_ == K
        assert_exact(model, Ridge(alpha=0.01).fit(X, y))


# ---- faults --------------------------------------------------------------------------


def faulty_client(over: Path) -> ClientApp:
    """Clients 0-2 raise, 3 and 4 send malformed arrays, 5 is silent until over."""
    honest = ridge_client_app(diabetes_of)
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        if k in (0, 1):
            raise RuntimeError("this client is broken")
        if k == 2:
            return ridge_client_app(lambda _: 1 / 0)(message, context)
        while k == 5 and not over.exists():
            time.sleep(0.1)
        reply = honest(message, context)
        if k in (3, 4):
            array = reply.content["arrays"]["statistics"].numpy()
            array = array[:-1] if k == 3 else array * np.nan
            reply.content["arrays"] = ArrayRecord({"statistics": Array(array)})
        return reply

    return app


class AnsweredGrid(CountingGrid):
    """A grid with a clock that is past every timeout once enough have answered."""

    def __init__(self, grid: Grid, enough: int) -> None:
        super().__init__(grid)
        self._missing = enough

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        self._missing -= len(replies)
        return replies

    def monotonic(self) -> float:
        return time.monotonic() + (0.0 if self._missing else 1e6)


def test_six_faulty_clients_of_twenty_in_a_simulation(
    simulation: SharedSimulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}
    over = tmp_path / "over"

    def main(grid: Grid) -> None:
        strategy = FedRidge(alpha=1.0, min_available_nodes=20)
        answered = AnsweredGrid(grid, enough=19)
        own = SimpleNamespace(monotonic=answered.monotonic, sleep=time.sleep)
        monkeypatch.setattr(exchange, "time", own)
        try:
            strategy.start(answered, timeout=600)
        finally:
            over.touch()
        found["strategy"] = strategy

    simulation.run(main, faulty_client(over), 20)
    report = found["strategy"].report_
    assert len(report.participants) == 14
    assert sorted(_kind(reason) for reason in report.failures.values()) == [
        "NaN",
        "broken",
        "broken",
        "division",
        "late",
        "length",
    ]
    rows = [load_diabetes(return_X_y=True)] * 14
    parts = [(X[k::20], y[k::20]) for k, (X, y) in enumerate(rows, start=6)]
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    assert_exact(found["strategy"].model_, Ridge(alpha=1.0).fit(X, y))


def _kind(reason: str) -> str:
    words = {
        "NaN": "NaN or infinite",
        "broken": "this client is broken",
        "division": "ZeroDivisionError",
        "late": "no answer within 600 s",
        "length": "numbers, got an array of shape",
    }
    return next((kind for kind, word in words.items() if word in reason), reason)


def test_simulated_clients_keep_to_their_own_cores(
    simulation: SharedSimulation,
) -> None:
    """Although the simulation was started with OMP_NUM_THREADS=2."""

    def threads_as_target(context: Context) -> Rows:
        from threadpoolctl import threadpool_info

        # OpenMP pools of other libraries may be loaded after the first message.
        blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        threads = max(pool["num_threads"] for pool in blas)
        return np.eye(3), np.full(3, float(threads))

    found: list[float] = []

    def main(grid: Grid) -> None:
        strategy = FedRidge(alpha=1.0, min_available_nodes=2)
        strategy.start(grid, timeout=600)
        found.append(float(strategy.statistics_.target_means[0]))

    simulation.run(main, ridge_client_app(threads_as_target), 2)
    assert found == [1.0]


def test_a_process_that_is_no_actor_is_left_alone() -> None:
    from threadpoolctl import threadpool_info

    from fedridge_flwr.linalg.blas import keep_to_own_cores

    before = threadpool_info()
    assert keep_to_own_cores() is None
    assert threadpool_info() == before


def test_robust_standard_errors_through_the_simulation(
    simulation: SharedSimulation,
) -> None:
    found: dict[str, Any] = {}

    def main(grid: Grid) -> None:
        strategy = FedRidge(0.0, standard_errors="HC3", min_available_nodes=5)
        strategy.start(grid)
        found["strategy"] = strategy

    simulation.run(main, message_client(), 5)
    X, y = load_diabetes(return_X_y=True)
    wanted = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC3")
    np.testing.assert_allclose(found["strategy"].inference_.se, wanted.bse, rtol=1e-8)


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_private_fit_through_the_simulation(
    rounds: int, simulation: SharedSimulation, tmp_path: Path
) -> None:
    """Releases are remembered in the nodes' state, rounds and ledger count up."""
    K = 6
    privacy = DifferentialPrivacy(
        1e8, 1e-5, x_norm_bound=0.5, y_bound=400.0, rounds=rounds
    )
    ledger = PrivacyLedger(tmp_path / "ledger.json", 1e9, 1e-5)
    app = ridge_client_app(
        diabetes_of,
        privacy_policy=PrivacyPolicy(3e8, 1e-5),
        privacy_ledger=ledger,
        client_name=lambda c: f"site {c.node_config['partition-id']}",
    )
    found: list[Any] = []

    def main(grid: Grid) -> None:
        for _ in range(2):
            strategy = FedRidge(alpha=1e-3, privacy=privacy, min_available_nodes=K)
            strategy.start(grid)
            found.append(strategy)
        exact = FedRidge(min_available_nodes=K)
        with pytest.raises(NotEnoughClientsError, match="private ones only"):
            exact.start(grid)

    simulation.run(main, app, K)
    first, second = found
    assert len(first.report_.participants) == K
    assert first.report_.privacy.releases == rounds
    # Two fits, two releases, two entries; retries and rounds are not new ones.
    assert not np.array_equal(first.model_.coef_, second.model_.coef_)
    assert all(ledger.spent(f"site {k}").releases == 2 for k in range(K))
    X, y = load_diabetes(return_X_y=True)
    ridge = Ridge(alpha=1e-3).fit(X, y)
    if rounds == 1:
        assert relative_error(first.model_.coef_, ridge.coef_) < 0.05
    assert first.model_.score(X, y) > 0.9 * ridge.score(X, y)


@pytest.mark.slow
def test_the_older_api_gives_a_silent_client_up_at_its_round_timeout(
    simulation: SharedSimulation, tmp_path: Path
) -> None:
    over = tmp_path / "over"

    def client_fn(context: Context) -> Any:
        k = int(context.node_config["partition-id"])
        while k == 2 and not over.exists():
            time.sleep(0.1)
        X, y = load_diabetes(return_X_y=True)
        return RidgeClient(X[k::3], y[k::3]).to_client()

    strategy = LegacyFedRidge(alpha=1.0, min_available_clients=3)
    config = ServerConfig(num_rounds=1, round_timeout=60.0)
    components = ServerAppComponents(strategy=strategy, config=config)
    server = ServerApp(server_fn=lambda _: components)
    try:
        simulation.run(server, ClientApp(client_fn), 3)
    finally:
        over.touch()
    assert len(strategy.report_.participants) == 2
    (reason,) = strategy.report_.failures.values()
    assert reason == "no answer within the round_timeout"
    X, y = load_diabetes(return_X_y=True)
    kept = np.arange(len(y)) % 3 != 2
    assert_exact(strategy.model_, Ridge(alpha=1.0).fit(X[kept], y[kept]))


# ---- fixed point ---------------------------------------------------------------------


def test_a_fixed_point_fit_is_that_of_all_rows_bit_for_bit(
    simulation: SharedSimulation,
) -> None:
    found: dict[int, RidgeModel] = {}
    for K in (2, 5):

        def main(grid: Grid, K: int = K) -> None:
            strategy = FedRidge(alpha=0.1, min_available_nodes=K, statistics="fixed")
            strategy.start(grid, timeout=600)
            found[K] = strategy.model_

        simulation.run(main, ridge_client_app(diabetes_of), K)
    assert found[2].coef_.tobytes() == found[5].coef_.tobytes()
    pooled = FixedPointStatistics.from_data(*load_diabetes(return_X_y=True))
    with one_blas_thread():
        expected = solve(pooled.to_sufficient(), alpha=0.1)
    assert found[5].coef_.tobytes() == expected.coef_.tobytes()
    assert_exact(found[5], Ridge(alpha=0.1).fit(*load_diabetes(return_X_y=True)))
