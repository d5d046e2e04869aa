"""`load_data` returns batches or a query: the same fit as with rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fakes import InProcessGrid, fit
from generators import relative_error

from fedridge_flwr import (
    DifferentialPrivacy,
    FeatureMap,
    FedRidge,
    LegacyFedRidge,
    NotEnoughClientsError,
    SecureSum,
    SitePolicy,
    ridge_client_app,
)
from fedridge_flwr.data import local_table

K, NAMES = 4, ["a", "b", "c"]


def frame(k: int) -> pd.DataFrame:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(60 + k, 3))
    y = rng.poisson(np.exp(0.1 * X[:, 0] - 0.1 * X[:, 1])).astype(float)
    return pd.DataFrame(X, columns=NAMES).assign(y=y, w=rng.integers(0, 3, len(y)))


def whole(data: pd.DataFrame) -> Any:
    return data[NAMES], data["y"], data["w"]


def in_batches(data: pd.DataFrame) -> Iterator[Any]:
    for start in range(0, len(data), 25):
        yield whole(data[start : start + 25])


class Tensor:
    """What a tensor of PyTorch shows of itself; its own error would be another one."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, values: Any, **about: Any) -> None:
        self.values = np.asarray(values)
        self.shape = self.values.shape
        vars(self).update(about)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if vars(self).keys() & {"requires_grad", "device"}:
            raise RuntimeError("Can't call numpy() on Tensor")
        return self.values


CUDA = SimpleNamespace(type="cuda")


class Loader:
    """Batches as lists of tensors, as a DataLoader of PyTorch has them."""

    def __init__(self, data: pd.DataFrame, **about: Any) -> None:
        self.data, self.about = data, about

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        for batch in in_batches(self.data):
            yield [Tensor(part.to_numpy(), **self.about) for part in batch]


def split(data: pd.DataFrame, n: int) -> Any:
    """Return the four parts of train_test_split."""
    X, y, _ = whole(data[:60])
    return X[n:], X[:n], y[n:], y[:n]


WAYS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "generator": in_batches,
    "list": lambda data: list(in_batches(data)),
    "pandas": lambda data: (data, "y", "w"),
    "reader": lambda data: (pa.Table.from_pandas(data).to_reader(20), "y", "w"),
    "query": lambda data: (pl.from_pandas(data).lazy(), "y", "w"),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def run(
    way: Any, kind: Any = FedRidge, client: Any = None, nodes: int = K, **given: Any
) -> Any:
    def load_data(context: Any) -> Any:
        return way(frame(int(context.node_config["partition-id"])))

    app = ridge_client_app(load_data, **(client or {}))
    strategy = kind(**{"min_available_nodes": nodes, **given})
    return fit(strategy, InProcessGrid.of_app(app, nodes), num_rounds=3)


@ways
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_one_shot_is_that_of_the_rows(way: Any, kind: Any) -> None:
    found, expected = run(way, kind), run(whole, kind)
    assert found.statistics_.count == expected.statistics_.count
    assert relative_error(found.model_.coef_, expected.model_.coef_) < 1e-12


@pytest.mark.parametrize("way", [in_batches, WAYS["query"]], ids=["batches", "query"])
@pytest.mark.parametrize(
    ("settings", "client"),
    [
        ({"mode": "cg"}, {}),
        ({"mode": "refine"}, {}),
        ({"mode": "auto"}, {}),
        ({"feature_map": FeatureMap.from_text("standardize | polynomial 2")}, {}),
        ({"statistics": "triangular"}, {}),
        ({"wire_dtype": "float32"}, {}),
        ({"family": "poisson"}, {}),
        ({"standard_errors": "HC3"}, {}),
        ({"alphas": [0.1, 1.0, 10.0], "cv": "clients"}, {}),
        ({"fraction_evaluate": 1.0}, {}),
        ({"secure": SecureSum(min_clients=3)}, {}),
        ({}, {"site_policy": SitePolicy.preset(5)}),
        ({}, {"site_policy": SitePolicy(allowed_columns=[*NAMES, "y"])}),
    ],
    ids=str,
)
def test_everything_else_works_on_the_rows(
    way: Any, settings: Any, client: Any
) -> None:
    found = run(way, client=client, **settings)
    expected = run(whole, client=client, **settings)
    assert not found.report_.failures
    coef = (found.model_.coef_, expected.model_.coef_)
    assert relative_error(*coef) < (1e-12 if "mode" not in settings else 1e-8)


@ways
def test_private_releases_are_made_of_rows_in_memory(way: Any) -> None:
    private = DifferentialPrivacy(
        epsilon=1.0, delta=1e-5, x_norm_bound=9.0, y_bound=9.0
    )
    with pytest.raises(NotEnoughClientsError, match="neither batches nor names"):
        run(way, privacy=private)


def test_rows_that_are_many_are_collected_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_table, "HELD_BYTES", 1000)
    found, expected = run(WAYS["query"], mode="cg"), run(whole, mode="cg")
    assert relative_error(found.model_.coef_, expected.model_.coef_) < 1e-8


def test_a_query_is_a_table_for_a_formula() -> None:
    def lazy(data: pd.DataFrame) -> Any:
        return pl.from_pandas(
            data.assign(sex=np.where(data.a > data.b, "f", "m"))
        ).lazy()

    found = run(lazy, formula="y ~ a + sex")
    expected = run(lambda data: lazy(data).collect(), formula="y ~ a + sex")
    assert relative_error(found.model_.coef_, expected.model_.coef_) == 0.0


# ---- guards and errors --------------------------------------------------------------


def test_min_rows_counts_rows_with_weight() -> None:
    n = int((frame(0).w > 0).sum())
    assert n < len(frame(0))
    for way in (in_batches, WAYS["query"]):
        with pytest.raises(NotEnoughClientsError, match=f"min_rows={n + 1}"):
            run(way, client={"min_rows": n + 1}, nodes=1)
        assert run(way, client={"min_rows": n}, nodes=1).statistics_.count == 60


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (lambda data: (data, "z"), "the stream has no column 5"),
        (lambda data: (np.eye(3), "y"), "a ndarray is no Arrow stream"),
        (lambda data: (data.assign(a="f"), "y"), "column 0 has text or categories"),
        (lambda data: (data.assign(a=None), "y"), "60 of 60 rows"),
        (lambda data: iter([data]), "each batch must be a tuple .* got a DataFrame"),
        (lambda data: iter([[[1.0], [2.0]]]), "each batch must be .* got a list of 2"),
        (lambda data: None, "what load_data returns is None: a return statement is"),
        (lambda data: split(data, 20), "load_data returns is four parts like those of"),
        (lambda data: split(data, 30), "load_data returns is four parts like those of"),
        (lambda data: list(split(data, 20)), r"return \(X_train, y_train\)"),
        (lambda data: (Loader(data), Loader(data)), r"return one iterable of \(X, y\)"),
        (
            lambda data: Loader(data, requires_grad=True),
            "X requires grad: return X.de",
        ),
        (lambda data: Loader(data, device=CUDA), r"cuda: return X.cpu\(\).numpy\(\)"),
        (lambda data: iter([]), "there are no batches"),
        (lambda data: [], "there are no batches"),
        (lambda data: iter([whole(data), whole(data)[:2]]), "and others have none"),
        (lambda data: {"X": 1}, "batches of .X, y., an Arrow stream and its target"),
        (lambda data: pl.from_pandas(data).lazy(), "does not say which columns"),
        (lambda data: "y", "got a str"),
    ],
)
def test_what_load_data_must_not_return(way: Any, said: str) -> None:
    with pytest.raises(NotEnoughClientsError, match=said) as error:
        run(way, nodes=1)
    assert "'a'" not in str(error.value)


def test_nor_batches_of_other_columns() -> None:
    def differ(data: pd.DataFrame) -> Any:
        yield data[["a", "b"]], data["y"]
        yield data[NAMES], data["y"]

    for settings in ({}, {"mode": "cg"}):
        with pytest.raises(NotEnoughClientsError, match="2 features against 3"):
            run(differ, nodes=1, **settings)


def test_a_formula_wants_a_table_and_not_batches() -> None:
    with pytest.raises(NotEnoughClientsError, match="return the whole table"):
        run(WAYS["query"], formula="y ~ a", nodes=1)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(FedRidge, "oneshot"), (LegacyFedRidge, "oneshot"), (FedRidge, "refine")],
)
def test_a_loader_of_tensors_is_an_iterable_of_batches(kind: Any, mode: str) -> None:
    wanted = run(in_batches, kind, alpha=0.5, mode=mode).model_.coef_
    found = run(Loader, kind, alpha=0.5, mode=mode).model_.coef_
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_list_of_two_arrays_is_x_and_y_as_before() -> None:
    def pair(data: pd.DataFrame) -> Any:
        return [data[NAMES].to_numpy(), data["y"].to_numpy()]

    assert run(pair, nodes=1).statistics_.count == 60
    assert run(lambda data: [Tensor(part) for part in pair(data)]).statistics_.count


def test_the_function_is_called_what_the_user_calls_it() -> None:
    def rows_of_the_clinic(context: Any) -> Any:
        context.node_config.get("partition-id")

    grid = InProcessGrid.of_app(ridge_client_app(rows_of_the_clinic), 1)
    with pytest.raises(NotEnoughClientsError, match="what rows_of_the_clinic returns"):
        FedRidge(min_available_nodes=1).start(grid)


def test_four_parts_are_weights_and_an_offset_where_they_may_be() -> None:
    rng = np.random.default_rng(0)
    X, ones = rng.normal(size=(40, 1)), np.ones(40)
    given = X, rng.poisson(1.0, size=(40, 1)) * 1.0, ones, ones
    fitted = run(lambda data: given, family="poisson", nodes=1)
    assert fitted.model_.n_rows_ == 40
