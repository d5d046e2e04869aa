"""Fixed-point statistics through both APIs: the same bits, whoever answers first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit
from fits import aggregate, run_fit
from flwr.clientapp import ClientApp
from generators import linear_rows
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    FixedPointStatistics,
    LegacyFedRidge,
    PlainStatistics,
    PolynomialMap,
    ProtocolError,
    RidgeClient,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.fits import one_shot
from fedridge_flwr.federation.requests import AskStatistics
from fedridge_flwr.flower.protocol.answer_records import (
    answer_fields,
    read_fields,
    reply_content,
)
from fedridge_flwr.flower.protocol.request_records import read_request, request_parts
from fedridge_flwr.linalg.blas import blas_threads

K, D = 6, 4
PRIVACY = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
FIXED = AskStatistics(statistics="fixed")


def all_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, D)) * [1e-3, 1.0, 1.0, 1e3] + 1e4
    return X, X @ [1e3, 1.0, -1.0, 1e-3] + rng.normal(size=120)


def divided(order: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    X, y = all_rows()
    return [(X[part], y[part]) for part in np.array_split(order, k)]


def run(kind: Any, parts: list[Any], *, older: bool = False, **settings: Any) -> Any:
    def rows(context: Any) -> Any:
        return parts[int(context.node_config["partition-id"])]

    app = ridge_client_app(rows)
    if older:
        app = ClientApp(lambda context: RidgeClient(*rows(context)).to_client())
    grid = InProcessGrid.of_app(app, len(parts))
    settings = {"statistics": "fixed", "min_available_nodes": len(parts), **settings}
    return fit(kind(**settings), grid)


def test_both_apis_give_the_same_bits_for_every_order_and_division() -> None:
    rng, found = np.random.default_rng(1), set()
    for k, kind in [(1, FedRidge), (3, LegacyFedRidge), (7, FedRidge)]:
        for older in (False, True):
            strategy = run(kind, divided(rng.permutation(120), k), older=older)
            assert strategy.report_.failures == {}
            model = strategy.model_
            found.add((model.coef_.tobytes(), model.intercept_, model.r2_))
    assert len(found) == 1
    pooled = Ridge(alpha=1.0).fit(*all_rows())
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-8)


def test_the_order_of_arrival_changes_no_bit_of_the_total() -> None:
    parts = [FixedPointStatistics.from_data(*p) for p in divided(np.arange(120), K)]
    totals = set()
    for order in (range(K), reversed(range(K)), [3, 1, 5, 0, 4, 2]):
        fold = aggregate(statistics="fixed", screen="off")
        for k in order:
            fold.add(f"c{k}", parts[k])
        total = fold.result()
        assert total.n_clients == K
        totals.add((total.triangle.tobytes(), total.means.tobytes()))
    assert len(totals) == 1
    expected = sum(parts).to_sufficient()
    assert totals == {(expected.triangle.tobytes(), expected.means.tobytes())}


@pytest.mark.filterwarnings("ignore::fedridge_flwr.GridEdgeWarning")
@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_alpha_is_chosen_as_with_moments(kind: Any, cv: str) -> None:
    parts = divided(np.arange(120), K)
    options = {"cv": cv, "alphas": [1e-3, 1e-1, 10.0, 1e3]}
    fixed = run(kind, parts, **options)
    plain = run(kind, parts, statistics="moments", **options)
    assert fixed.selection_.alpha == plain.selection_.alpha
    np.testing.assert_allclose(fixed.model_.coef_, plain.model_.coef_, rtol=1e-7)
    again = run(kind, parts, **options)
    assert again.model_.coef_.tobytes() == fixed.model_.coef_.tobytes()


def test_whoever_is_left_out_leaves_no_bit_behind() -> None:
    parts = divided(np.arange(120), K)
    X, y = parts[2]
    spoiled = [*parts[:2], (X * 1e3, y), *parts[3:]]
    without = run(FedRidge, [*parts[:2], *parts[3:]], screen="exclude")
    fixed = run(FedRidge, spoiled, screen="exclude")
    assert len(fixed.report_.participants) == K - 1
    assert fixed.model_.coef_.tobytes() == without.model_.coef_.tobytes()


def test_clients_with_their_columns_in_another_order_are_rearranged() -> None:
    X, y = all_rows()
    frame = pd.DataFrame(X, columns=list("abcd"))
    parts = [(frame[k::3], y[k::3]) for k in range(3)]
    moved = [*parts[:2], (parts[2][0][["d", "b", "a", "c"]], parts[2][1])]
    for options in ({"screen": "off"}, {"screen": "exclude"}):
        one = run(FedRidge, parts, **options)
        other = run(FedRidge, moved, **options)
        assert other.report_.failures == {}
        assert one.model_.coef_.tobytes() == other.model_.coef_.tobytes()


def test_weights_feature_maps_and_several_targets() -> None:
    rng = np.random.default_rng(2)
    X, y = linear_rows(90, 3, rng, 2)
    w = rng.gamma(2.0, size=90)
    clients = {f"c{k}": (X[k::3], y[k::3], w[k::3]) for k in range(3)}
    options = {"statistics": "fixed", "feature_map": PolynomialMap(2)}
    model = run_fit(clients, **options).model
    assert model is not None
    pooled = Ridge(alpha=1.0).fit(PolynomialMap(2).transform(X), y, sample_weight=w)
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-9, atol=1e-12)


def test_a_client_whose_values_do_not_fit_is_named_with_the_remedy() -> None:
    parts = divided(np.arange(120), K)
    parts[1] = (parts[1][0] * [1.0, 1.0, 1e12, 1.0], parts[1][1])
    strategy = run(FedRidge, parts)
    (reason,) = strategy.report_.failures.values()
    assert "column 2" in reason
    assert "unit of the column" in reason
    assert len(strategy.report_.participants) == K - 1


@pytest.mark.parametrize("statistics", ["fixed", "moments"])
def test_whole_numbers_are_solved_with_one_blas_thread(
    statistics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(blas_threads())
        return solve(*args, **options)

    monkeypatch.setattr(one_shot, "solve", watched)
    clients = {"a": divided(np.arange(120), 1)[0]}
    with threadpool_limits(2, user_api="blas"):
        allowed = blas_threads()
        run_fit(clients, statistics=statistics)
    assert seen == [1 if statistics == "fixed" else allowed]


# ---- the wire -------------------------------------------------------------------


def test_the_request_says_so_only_where_it_is_not_the_usual() -> None:
    assert request_parts(AskStatistics()) == ({}, {})
    fields, _ = request_parts(FIXED)
    assert fields == {"statistics": "fixed"}
    asked: Any = read_request(fields, [], evaluating=False)
    assert asked.statistics == "fixed"
    for wrong in ("fixd", 1, b"fixed", True):
        with pytest.raises(ProtocolError, match="this client can send moments and fix"):
            read_request({"statistics": wrong}, [], evaluating=False)


@pytest.mark.parametrize(("d", "most"), [(100, 135e3), (400, 2.0e6)])
def test_the_upload_is_small_enough(d: int, most: float) -> None:
    X, y = linear_rows(d + 5, d, np.random.default_rng(0))
    answer: Any = respond(FIXED, lambda: (X, y, None), Guards())
    content = reply_content(answer, share_names=False)
    assert sum(len(a.data) for a in content.array_records["arrays"].values()) < most


def read(answer: Any, request: Any = FIXED, **changes: Any) -> Any:
    fields = {**answer_fields(answer, share_names=True), **changes}
    return read_fields(fields, list(answer.arrays.values()), answer.count, request)


def test_other_forms_than_asked_for_are_refused() -> None:
    X, y = linear_rows(9, 2, np.random.default_rng(0))
    fixed: Any = respond(FIXED, lambda: (X, y, None), Guards())
    assert read(fixed) == FixedPointStatistics.from_data(X, y)
    with pytest.raises(ProtocolError, match="not asked for"):
        read(fixed, AskStatistics())
    weighted: Any = respond(FIXED, lambda: (X, y, np.full(9, 0.3)), Guards())
    with pytest.raises(FedRidgeError, match="total weight is not the number of rows"):
        read(weighted, kind="fixed")
    assert weighted.kind == "fixed-weighted"

    stats = SufficientStatistics.from_data(X, y)
    fold = aggregate(statistics="fixed", fit_intercept=False)
    fold.add("0.1.0", stats)
    fold.add("foreign", PlainStatistics.from_statistics(stats))
    assert all("floating-point" in reason for reason in fold.failures.values())
    assert set(fold.failures) == {"0.1.0", "foreign"}
    fold = aggregate()
    fold.add("c", FixedPointStatistics.from_data(X, y))
    assert "not asked for" in fold.failures["c"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mode": "refine"}, 'mode="refine"'),
        ({"mode": "auto"}, 'mode="auto"'),
        ({"wire_dtype": "float32"}, "float32"),
        ({"privacy": PRIVACY}, "privacy"),
        ({"feature_map": "standardize"}, "feature map"),
    ],
)
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_what_cannot_go_with_it_is_refused(
    kind: Any, settings: Any, reason: str
) -> None:
    with pytest.raises(FedRidgeError, match=f"not available here.*{reason}"):
        kind(statistics="fixed", **settings)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(FedRidgeError, match="statistics must be"):
        FedRidge(statistics="exact")
