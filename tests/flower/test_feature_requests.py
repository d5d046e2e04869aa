"""Feature maps over Flower: every client makes the same map, and says which."""

from __future__ import annotations

from functools import partial
from typing import Any

import fakes
import numpy as np
import pandas
import pytest
import wire
from fakes import Handler, InProcessGrid
from flwr.app import Message
from flwr.clientapp import ClientApp
from generators import pooled as pooled_rows
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    DifferentialPrivacy,
    FeatureMap,
    FedRidge,
    FedRidgeError,
    GaussianProjection,
    LegacyFedRidge,
    NeuralTangentFeatures,
    NotEnoughClientsError,
    PolynomialMap,
    PrivacyError,
    RandomFourierFeatures,
    RidgeClient,
    RidgeModel,
    Standardize,
    ridge_client_app,
)

K, D = 5, 6
MAPS = {
    "projection": GaussianProjection(4, seed=3),
    "fourier": RandomFourierFeatures(60, gamma=0.1, seed=1),
    "tangent": NeuralTangentFeatures(8, seed=2),
    "polynomial": PolynomialMap(2),
    "standardize-fourier": Standardize()
    | RandomFourierFeatures(40, gamma="scale", seed=5),
}


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=0.3 * k, scale=1 + 0.1 * k, size=(40 + 10 * k, D))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


def all_rows(clients: Any = range(K)) -> tuple[np.ndarray, np.ndarray]:
    return pooled_rows([rows_of(k) for k in clients])


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(
        *load_data(context), context=context
    ).to_client()
)


fit = partial(fakes.fit, num_rounds=60)


def close_to_pooled(model: RidgeModel, clients: Any = range(K), rtol: float = 1e-11):
    """Check against scikit-learn's ridge on the pooled mapped rows."""
    X, y = all_rows(clients)
    mapped = model.feature_map.transform(X)
    ridge = Ridge(alpha=model.alpha_, solver="svd").fit(mapped, y)
    expected = ridge.predict(mapped)
    error = np.abs(model.predict(X) - expected).max() / np.abs(expected).max()
    assert error < rtol
    assert model.n_features_in_ == D


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("feature_map", MAPS.values(), ids=MAPS)
def test_the_model_is_ridge_on_the_pooled_mapped_rows(kind, app, feature_map):
    """Done when 5: equal to scikit-learn to 1e-11, in all combinations of APIs."""
    grid = InProcessGrid.of_app(app, K)
    strategy = fit(kind(0.5, feature_map=feature_map, min_available_nodes=K), grid)
    close_to_pooled(strategy.model_)
    rounds = 2 if feature_map.needs_data else 1
    assert len(grid.sent) == K * rounds
    assert len(strategy.report_.participants) == K


@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_modes_of_several_rounds_go_through_the_map(mode):
    feature_map = Standardize() | RandomFourierFeatures(50, gamma="scale")
    strategy = FedRidge(0.5, feature_map=feature_map, mode=mode, min_available_nodes=K)
    fit(strategy, InProcessGrid.of_app(NATIVE, K))
    close_to_pooled(strategy.model_, rtol=1e-9)
    assert strategy.report_.n_features == 50


def test_rules_that_need_data_are_those_of_scikit_learn_on_the_pooled_rows():
    grid = InProcessGrid.of_app(NATIVE, K)
    strategy = fit(
        FedRidge(
            feature_map=RandomFourierFeatures(30, gamma="scale"), min_available_nodes=K
        ),
        grid,
    )
    X, _ = all_rows()
    sampler = RBFSampler(gamma="scale", n_components=30).fit(X)
    expected = 1.0 / (D * X.var())
    assert strategy.model_.feature_map.gamma == pytest.approx(expected, rel=1e-12)
    assert sampler.n_features_in_ == D
    scaled = fit(
        FedRidge(feature_map=Standardize(), min_available_nodes=K),
        InProcessGrid.of_app(NATIVE, K),
    )
    scaler = StandardScaler().fit(X)
    np.testing.assert_allclose(
        scaled.model_.feature_map.transform(X), scaler.transform(X), atol=1e-11
    )


def _asked_for_another_map(handler: Handler, other: FeatureMap) -> Handler:
    def handle(message: Message) -> Message:
        config = message.content.config_records["config"]
        if wire.MAP_KEY in config:
            config = dict(config)
            config[wire.MAP_KEY] = other.to_json()
            content = message.content
            message.content = wire.train_request(config)
            reply = handler(message)
            message.content = content
            return reply
        return handler(message)

    return handle


@pytest.mark.parametrize(
    "other",
    [
        RandomFourierFeatures(60, gamma=0.1, seed=2),
        RandomFourierFeatures(60, gamma=0.2, seed=1),
        RandomFourierFeatures(61, gamma=0.1, seed=1),
        RandomFourierFeatures(60, gamma=0.1, seed=1) | GaussianProjection(60, seed=1),
    ],
    ids=["seed", "gamma", "size", "composition"],
)
@pytest.mark.parametrize("mode", ["oneshot", "refine"])
def test_a_client_with_another_map_is_rejected_and_named(other, mode):
    """Done when 4."""
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1003] = _asked_for_another_map(grid.handlers[1003], other)
    strategy = FedRidge(
        0.5,
        feature_map=RandomFourierFeatures(60, gamma=0.1, seed=1),
        mode=mode,
        min_available_nodes=K,
    )
    fit(strategy, grid)
    close_to_pooled(strategy.model_, [0, 1, 2, 4], rtol=1e-9)
    assert list(strategy.report_.failures) == ["1003"]
    assert "another feature map" in strategy.report_.failures["1003"]


def test_even_where_it_is_one_of_two_the_servers_map_counts():
    grid = InProcessGrid.of_app(NATIVE, 2)
    other = RandomFourierFeatures(60, gamma=0.1, seed=7)
    grid.handlers[1000] = _asked_for_another_map(grid.handlers[1000], other)
    strategy = FedRidge(
        feature_map=RandomFourierFeatures(60, gamma=0.1, seed=1), min_available_nodes=2
    )
    fit(strategy, grid)
    close_to_pooled(strategy.model_, [1])


def test_a_client_that_knows_no_maps_is_named():
    def without_map(handler: Handler) -> Handler:
        def handle(message: Message) -> Message:
            content = message.content
            config = dict(content.config_records["config"])
            config.pop(wire.MAP_KEY)
            message.content = wire.train_request(config)
            reply = handler(message)
            message.content = content
            return reply

        return handle

    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1001] = without_map(grid.handlers[1001])
    strategy = fit(FedRidge(feature_map=PolynomialMap(2), min_available_nodes=K), grid)
    assert "used no feature map" in strategy.report_.failures["1001"]
    plain = InProcessGrid.of_app(NATIVE, K)
    plain.handlers[1001] = _asked_for_another_map_always(plain.handlers[1001])
    strategy = fit(FedRidge(min_available_nodes=K), plain)
    assert "which was not asked for" in strategy.report_.failures["1001"]


def _asked_for_another_map_always(handler: Handler) -> Handler:
    def handle(message: Message) -> Message:
        content = message.content
        config = dict(content.config_records["config"])
        config[wire.MAP_KEY] = PolynomialMap(1).to_json()
        message.content = wire.train_request(config)
        reply = handler(message)
        message.content = content
        return reply

    return handle


def test_clients_with_other_columns_do_not_agree_on_a_map():
    def load(context: Any) -> Any:
        X, y = load_data(context)
        odd = context.node_config["partition-id"] == 2
        return (X[:, :3] if odd else X), y

    grid = InProcessGrid.of_app(ridge_client_app(load), K)
    strategy = FedRidge(
        feature_map=Standardize() | GaussianProjection(3), min_available_nodes=K
    )
    fit(strategy, grid)
    assert strategy.report_.failures == {
        "1002": "its columns are not those of 4 other clients: 3 features against 6"
    }
    close_to_pooled_projection(strategy.model_)


def close_to_pooled_projection(model: RidgeModel) -> None:
    X, y = all_rows([0, 1, 3, 4])
    mapped = model.feature_map.transform(X)
    ridge = Ridge(alpha=1.0).fit(mapped, y)
    np.testing.assert_allclose(model.predict(X), ridge.predict(mapped), rtol=1e-10)


def test_a_node_that_goes_away_after_the_first_round_is_named():
    grid = InProcessGrid.of_app(NATIVE, K)
    everybody = grid.get_node_ids
    grid.get_node_ids = lambda: [  # type: ignore[method-assign]
        node for node in everybody() if node != 1001 or not grid.sent
    ]
    strategy = fit(FedRidge(feature_map=Standardize(), min_available_nodes=K), grid)
    assert strategy.report_.failures == {"1001": "not connected any more"}
    close_to_pooled(strategy.model_, [0, 2, 3, 4])
    assert "map         6 standardised" in str(strategy.report_)


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("mode", ["oneshot", "refine"])
def test_a_map_knows_nothing_of_those_who_are_gone(kind, mode):
    grid = InProcessGrid.of_app(NATIVE, K)
    seen = []

    def gone_after_its_columns(message: Message, honest: Any = grid.handlers[1004]):
        seen.append(message)
        if len(seen) > 1:
            raise ConnectionError("gone")
        return honest(message)

    grid.handlers[1004] = gone_after_its_columns
    feature_map = Standardize() | RandomFourierFeatures(20, gamma="scale")
    strategy = kind(0.5, feature_map=feature_map, mode=mode, min_available_nodes=K)
    fit(strategy, grid)
    X, _ = all_rows(range(4))
    standardised = strategy.model_.feature_map.maps[0]
    np.testing.assert_allclose(standardised.means, X.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(standardised.scales, X.std(axis=0), rtol=1e-10)
    close_to_pooled(strategy.model_, range(4), rtol=1e-9)
    assert "gone" in strategy.report_.failures["1004"]
    assert sorted(strategy.report_.participants) == ["1000", "1001", "1002", "1003"]


def test_a_client_that_is_left_out_is_not_in_the_map_either():
    def load(context: Any) -> Any:
        X, y = load_data(context)
        if context.node_config["partition-id"] == 0:
            return 1000.0 * X, np.stack([y, y], axis=1)
        return X, y

    strategy = FedRidge(feature_map=Standardize(), min_available_nodes=K)
    fit(strategy, InProcessGrid.of_app(ridge_client_app(load), K))
    assert list(strategy.report_.failures) == ["1000"]
    X, _ = all_rows([1, 2, 3, 4])
    np.testing.assert_allclose(strategy.model_.feature_map.scales, X.std(axis=0))


def test_names_of_raw_columns_with_private_maps():
    privacy = DifferentialPrivacy(1e12, 1e-5, x_norm_bound=9.0, y_bound=60.0)
    names = [f"x{j}" for j in range(D)]
    strategy = FedRidge(
        feature_map=GaussianProjection(2),
        privacy=privacy,
        feature_names=names,
        unnamed="accept",
        min_available_nodes=K,
    )
    fit(strategy, InProcessGrid.of_app(NATIVE, K))
    assert strategy.report_.failures == {}
    assert list(strategy.model_.feature_names_in_) == names


def test_too_few_for_the_first_round():
    def load(context: Any) -> Any:
        raise OSError("no such table")

    grid = InProcessGrid.of_app(ridge_client_app(load), 2)
    strategy = FedRidge(feature_map=Standardize(), min_available_nodes=2)
    with pytest.raises(NotEnoughClientsError, match="OSError in load, line"):
        strategy.start(grid, timeout=120)


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_alpha_is_chosen_and_the_model_evaluated_on_mapped_rows(kind, app):
    feature_map = RandomFourierFeatures(40, gamma=0.1)
    for cv in ("server", "clients", "gcv"):
        strategy = kind(
            alphas=[0.01, 0.1, 1.0, 10.0],
            cv=cv,
            feature_map=feature_map,
            fraction_evaluate=0.0
            if cv == "clients" and kind is LegacyFedRidge
            else 1.0,
            min_available_nodes=K,
        )
        fit(strategy, InProcessGrid.of_app(app, K))
        close_to_pooled(strategy.model_)
        if strategy.report_.evaluation:
            X, y = all_rows()
            mse = mean_squared_error(y, strategy.model_.predict(X))
            assert strategy.report_.evaluation["mse"] == pytest.approx(mse, rel=1e-9)


def test_losses_of_the_clients_are_those_of_the_server():
    losses = []
    for cv in ("server", "clients"):
        strategy = FedRidge(
            alphas=[0.01, 1.0],
            cv=cv,
            feature_map=PolynomialMap(2),
            min_available_nodes=K,
        )
        fit(strategy, InProcessGrid.of_app(NATIVE, K))
        losses.append(strategy.selection_.losses)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-8)


def test_the_model_takes_raw_columns_wherever_it_goes(tmp_path):
    names = [f"column {j}" for j in range(D)]

    def load(context: Any) -> Any:
        X, y = load_data(context)
        return pandas.DataFrame(X, columns=names), y

    strategy = FedRidge(
        feature_map=GaussianProjection(4),
        save_model=tmp_path / "model.json",
        min_available_nodes=K,
        feature_names=names,
    )
    fit(strategy, InProcessGrid.of_app(ridge_client_app(load), K))
    X, _ = all_rows()
    model = RidgeModel.load(tmp_path / "model.json")
    assert list(model.feature_names_in_) == names
    expected = strategy.model_.predict(X)
    np.testing.assert_array_equal(model.predict(X), expected)
    np.testing.assert_allclose(model.to_sklearn().predict(X), expected, rtol=1e-12)
    np.testing.assert_allclose(
        X @ model.coef_original_ + model.intercept_, expected, rtol=1e-10
    )
    assert "projection" in model.summary()
    swapped = pandas.DataFrame(X, columns=names)[names[::-1]]
    np.testing.assert_array_equal(model.predict(swapped), expected)
    with pytest.raises(FedRidgeError, match="'column 0' is missing"):
        model.predict(swapped.rename(columns={"column 0": "another"}))


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_private_releases_of_mapped_rows(kind, app):
    # A row of Fourier features is never longer than the root of 2.
    feature_map = RandomFourierFeatures(10, gamma=0.05)
    privacy = DifferentialPrivacy(1e12, 1e-5, x_norm_bound=1.5, y_bound=60.0)
    strategy = kind(
        0.5, feature_map=feature_map, privacy=privacy, min_available_nodes=K
    )
    fit(strategy, InProcessGrid.of_app(app, K))
    X, y = all_rows()
    ridge = Ridge(alpha=0.5).fit(feature_map.transform(X), y)
    expected = ridge.predict(feature_map.transform(X))
    np.testing.assert_allclose(strategy.model_.predict(X), expected, atol=0.05)
    assert strategy.model_.n_features_in_ == D


def test_private_clients_with_another_map_are_named_too():
    grid = InProcessGrid.of_app(NATIVE, K)
    other = RandomFourierFeatures(10, gamma=0.05, seed=9)
    grid.handlers[1003] = _asked_for_another_map(grid.handlers[1003], other)
    privacy = DifferentialPrivacy(1e12, 1e-5, x_norm_bound=1.5, y_bound=60.0)
    strategy = FedRidge(
        feature_map=RandomFourierFeatures(10, gamma=0.05),
        privacy=privacy,
        min_available_nodes=K,
    )
    fit(strategy, grid)
    assert "another feature map" in strategy.report_.failures["1003"]


def test_numbers_of_the_data_are_not_taken_for_a_private_map():
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.5, y_bound=6.0)
    with pytest.raises(PrivacyError, match="would take numbers from the data"):
        FedRidge(feature_map=Standardize(), privacy=privacy)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (3, "feature_map must be a FeatureMap, .* got int"),
        ([1.0], "got list"),
        (Standardize, r"got the class Standardize: did you mean Standardize\(\)"),
        ("magic", "there is no feature map 'magic'"),
    ],
)
def test_what_is_no_map_is_refused_before_the_round(wrong, words):
    with pytest.raises(FedRidgeError, match=words):
        FedRidge(feature_map=wrong)


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_a_map_may_be_given_in_words(kind):
    strategy = kind(0.5, feature_map="standardize | fourier 20", min_available_nodes=K)
    fit(strategy, InProcessGrid.of_app(NATIVE, K))
    close_to_pooled(strategy.model_)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"kind":"fourier","n_components":100000000}',
        '{"kind":"magic"}',
        '{"kind":"polynomial","degree":40}',
    ],
)
def test_a_client_refuses_a_map_that_it_cannot_make(text):
    client = RidgeClient(*rows_of(0))
    with pytest.raises(FedRidgeError):
        client.fit([], {wire.MAP_KEY: text})


def test_a_client_lets_its_rows_go_through_no_other_map_than_it_allows():
    mine = Standardize() | RandomFourierFeatures(20, gamma="scale", seed=1)
    app = ridge_client_app(load_data, feature_maps=[mine])
    strategy = fit(
        FedRidge(feature_map=mine, min_available_nodes=K), InProcessGrid.of_app(app, K)
    )
    close_to_pooled(strategy.model_)
    fit(FedRidge(min_available_nodes=K), InProcessGrid.of_app(app, K))
    for other in (
        Standardize() | RandomFourierFeatures(20, gamma="scale", seed=2),
        RandomFourierFeatures(20, gamma=0.1, seed=1),
        Standardize() | NeuralTangentFeatures(1),
    ):
        strategy = FedRidge(feature_map=other, min_available_nodes=K)
        with pytest.raises(NotEnoughClientsError, match="does not allow"):
            strategy.start(InProcessGrid.of_app(app, K), timeout=120)
    with pytest.raises(FedRidgeError, match="must be a list of FeatureMap"):
        ridge_client_app(load_data, feature_maps=["fourier 20"])


def test_maps_of_too_many_features_are_refused_by_the_client():
    client = RidgeClient(*rows_of(0))
    wide = RandomFourierFeatures(30_000, gamma=0.1)
    with pytest.raises(FedRidgeError, match="makes 30000 features"):
        client.fit([], {wire.MAP_KEY: wide.to_json()})


def test_a_map_that_does_not_fit_the_columns_is_told_to_the_server():
    strategy = FedRidge(feature_map=GaussianProjection(50), min_available_nodes=2)
    with pytest.raises(NotEnoughClientsError, match="50"):
        strategy.start(InProcessGrid.of_app(NATIVE, 2), timeout=120)
