"""Choosing alpha: equal to scikit-learn on real data, laws, and what is refused."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from generators import linear_rows, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import LOADERS, by_client, parkinsons
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import LeaveOneGroupOut
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    FedRidgeError,
    PlainStatistics,
    RidgeModel,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.linalg.shifted import ShiftedSystem
from fedridge_flwr.regression.alpha.alpha_grid import (
    GridEdgeWarning,
    auto_alphas,
    check_alphas,
)
from fedridge_flwr.regression.alpha.alpha_selection import (
    AlphaSelection,
    gcv_scores,
    select_alpha,
)
from fedridge_flwr.regression.alpha.leave_client_out import (
    ClampedLossWarning,
    _Blocks,
    held_out_losses,
    held_out_models,
)

from_data = SufficientStatistics.from_data
GRID = np.geomspace(1e-3, 1e4, 8)
FEW = np.array([0.01, 1.0, 100.0])


def row_errors(models, X, y, groups):
    """Return the errors the clients count on their own rows, (clients, a)."""
    found = []
    for group in np.unique(groups):
        own, rows = models[str(group)], groups == group
        truth = y[rows].reshape(rows.sum(), 1, -1)
        predicted = np.einsum("nd,atd->nat", X[rows], own.coef) + own.intercept
        found.append(((truth - predicted) ** 2).mean(axis=(0, 2)))
    return np.array(found)


def sklearn_losses(X, y, groups, alphas, fit_intercept=True, standardize=False):
    """Return the same by one fit of scikit-learn per client and alpha."""
    found = []
    for others, own in LeaveOneGroupOut().split(X, y, groups):
        # The scaler sees the same rows as Ridge, so it is fitted once.
        scaler = StandardScaler(with_mean=fit_intercept) if standardize else None
        train, test = X[others], X[own]
        if scaler is not None:
            train, test = scaler.fit_transform(train), scaler.transform(test)
        found.append([])
        for alpha in alphas:
            model = Ridge(alpha, fit_intercept=fit_intercept, solver="cholesky")
            error = y[own] - model.fit(train, y[others]).predict(test)
            found[-1].append((error**2).mean())
    return np.array(found)


def table_of(losses, groups):
    return np.array([losses[str(group)] for group in np.unique(groups)])


def clients_of(seed, K=6, n=15, d=4, t=None):
    """Return X, y and groups of K clients with a few rows each."""
    X, y = linear_rows(K * n, d, np.random.default_rng(seed), t)
    return X + 1.0, y, np.arange(K * n) % K


# ---- the same as scikit-learn -------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", LOADERS)
def test_server_clients_and_scikit_learn_agree(shared_data, name, fit_intercept):
    check_agreement(*LOADERS[name](shared_data), GRID, fit_intercept, False)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", ["diabetes", "exam", "communities"])
def test_they_agree_on_standardised_features(shared_data, name, fit_intercept):
    check_agreement(*LOADERS[name](shared_data), GRID, fit_intercept, True)


@pytest.mark.filterwarnings("ignore::fedridge_flwr.IllConditionedWarning")
def test_they_agree_on_columns_that_are_nearly_multiples(shared_data):
    # Standardised, the condition is 2.3e4 squared: 1e-10 is what any solver has here.
    check_agreement(*parkinsons(shared_data), GRID, True, True)


def test_they_agree_on_two_targets(shared_data):
    check_agreement(*parkinsons(shared_data, 2), GRID, True, False)


def check_agreement(X, y, groups, alphas, fit_intercept, standardize):
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    parts = by_client(X, y, groups)
    server = table_of(held_out_losses(parts, alphas, **options), groups)
    clients = row_errors(held_out_models(parts, alphas, **options), X, y, groups)
    expected = sklearn_losses(X, y, groups, alphas, **options)
    apart = [
        np.abs(a / b - 1).max()
        for a, b in [(server, clients), (server, expected), (clients, expected)]
    ]
    print(
        "relative: server-clients {:.0e}, server-sklearn {:.0e}, "
        "clients-sklearn {:.0e}".format(*apart)
    )
    assert max(apart) < 1e-9

    rows = np.unique(groups, return_counts=True)[1].astype(float)
    total, weights = sum(parts.values()), dict(zip(parts, rows, strict=True))
    chosen = {
        AlphaSelection.from_losses(
            total, alphas, dict(zip(parts, table, strict=True)), weights, **options
        ).alpha
        for table in (server, clients)
    }
    assert chosen == {alphas[np.argmin(rows @ expected)]}


@pytest.mark.parametrize("t", [None, 2])
def test_the_clients_own_function_is_the_same(t):
    X, y, groups = clients_of(0, t=t)
    models = held_out_models(by_client(X, y, groups), FEW)
    expected = row_errors(models, X, y, groups)
    for k, own in enumerate(expected):
        rows = groups == k
        found = models[str(k)].losses_of_rows(check_rows(X[rows], y[rows]))
        np.testing.assert_allclose(found, own, rtol=1e-13)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n", [5, 20])
def test_a_column_that_only_one_client_varies(n, fit_intercept, standardize):
    # Without that client the column is constant: nothing of it may remain.
    rng = np.random.default_rng(0)
    X, y = linear_rows(200, 20, rng)
    groups = np.repeat(np.arange(200 // n), n)
    X[:, 0] = 5.3
    X[groups == 3, 0] = rng.normal(size=n)
    alphas = np.geomspace(1e-8, 1.0, 5)
    check_agreement(X, y, groups, alphas, fit_intercept, standardize)


# ---- generalized cross-validation ---------------------------------------------------


def direct_gcv(X, y, alphas, fit_intercept, standardize):
    """Return n RSS / (n - df)² from the pooled rows and their singular values."""
    n = len(y)
    if standardize:
        X = X / X.std(axis=0)
    if fit_intercept:
        X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    U, values, _ = np.linalg.svd(X, full_matrices=False)
    scores = []
    for alpha in alphas:
        shrunk = values**2 / (values**2 + alpha)
        rss = ((y - U * shrunk @ (U.T @ y)) ** 2).sum()
        scores.append(n * rss / (n - shrunk.sum() - fit_intercept) ** 2)
    return np.array(scores)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", LOADERS)
def test_gcv_is_its_formula_on_the_pooled_rows(
    shared_data, name, fit_intercept, standardize
):
    X, y, groups = LOADERS[name](shared_data)
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    found = gcv_scores(sum(by_client(X, y, groups).values()), GRID, **options)
    expected = direct_gcv(X, y, GRID, **options)
    assert np.abs(found / expected - 1).max() < 1e-10


@pytest.mark.filterwarnings("ignore::fedridge_flwr.IllConditionedWarning")
@pytest.mark.parametrize("name", LOADERS)
def test_gcv_chooses_nearly_as_leaving_out_single_rows_does(shared_data, name):
    X, y, groups = LOADERS[name](shared_data)
    alphas = np.geomspace(1e-10, 1e4, 43)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        found = select_alpha(by_client(X, y, groups), alphas, method="gcv").alpha
    rowwise = RidgeCV(alphas).fit(X, y).alpha_
    print(f"{name}: GCV {found:.3g}, RidgeCV {rowwise:.3g}")
    assert abs(np.log(found / rowwise)) < 2.5 * np.log(alphas[1] / alphas[0])


def test_gcv_of_several_targets_is_the_mean_over_targets():
    X, y, _ = clients_of(0, t=3)
    found = gcv_scores(from_data(X, y), FEW)
    single = [gcv_scores(from_data(X, y[:, j]), FEW) for j in range(3)]
    np.testing.assert_allclose(found, np.mean(single, axis=0), rtol=1e-12)


def test_gcv_needs_no_more_than_the_total():
    X, y, groups = clients_of(0)
    one = select_alpha(from_data(X, y), GRID, method="gcv")
    many = select_alpha(by_client(X, y, groups), GRID, method="gcv")
    assert one.alpha == many.alpha
    np.testing.assert_allclose(one.mean, many.mean, rtol=1e-12)


@pytest.mark.parametrize("standardize", [True, False])
def test_gcv_of_columns_that_are_copies(standardize):
    X, y, _ = clients_of(0, d=6)
    X = np.column_stack([X, X[:, 0]])
    alphas = np.geomspace(1e-3, 1e2, 8)
    found = gcv_scores(from_data(X, y), alphas, standardize=standardize)
    np.testing.assert_allclose(
        found, direct_gcv(X, y, alphas, True, standardize), rtol=1e-10
    )


# ---- laws ---------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000), fit_intercept=st.booleans(), standardize=st.booleans()
)
def test_neither_order_nor_an_empty_client_matters(seed, fit_intercept, standardize):
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    X, y, groups = clients_of(seed)
    parts = by_client(X, y, groups)
    expected = held_out_losses(parts, FEW, **options)
    order = np.random.default_rng(seed).permutation(list(parts))
    shuffled = {client: parts[client] for client in order}
    shuffled["empty"] = from_data(np.empty((0, 4)), np.empty(0))
    found = held_out_losses(shuffled, FEW, **options)
    assert list(found) == list(order)
    for client, losses in expected.items():
        np.testing.assert_allclose(found[client], losses, rtol=1e-11)


@given(seed=st.integers(0, 10_000), n=st.sampled_from([2, 15]))
def test_a_weight_is_a_repeated_row(seed, n):
    X, y, groups = clients_of(seed, n=n)
    times = np.random.default_rng(seed).integers(1, 4, size=len(y))
    weighted = {
        str(k): from_data(X[groups == k], y[groups == k], times[groups == k])
        for k in np.unique(groups)
    }
    repeated = by_client(*(np.repeat(a, times, axis=0) for a in (X, y, groups)))
    a, b = held_out_losses(weighted, FEW), held_out_losses(repeated, FEW)
    for client in a:
        np.testing.assert_allclose(a[client], b[client], rtol=1e-9)


@given(seed=st.integers(0, 10_000), n=st.sampled_from([2, 15]))
def test_several_targets_are_the_mean_of_one_at_a_time(seed, n):
    X, y, groups = clients_of(seed, n=n, d=6, t=3)
    together = table_of(held_out_losses(by_client(X, y, groups), FEW), groups)
    single = [
        table_of(held_out_losses(by_client(X, y[:, j], groups), FEW), groups)
        for j in range(3)
    ]
    np.testing.assert_allclose(together, np.mean(single, axis=0), rtol=1e-10)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 5),
    fit_intercept=st.booleans(),
    t=st.sampled_from([None, 2]),
)
def test_the_block_identity_is_the_reduction(seed, n, fit_intercept, t):
    X, y, groups = clients_of(seed, K=15, n=n, d=12, t=t)
    parts = by_client(X, y, groups)
    alphas = np.array([0.5, 5.0, 50.0])
    options = {"fit_intercept": fit_intercept}
    blocks = _Blocks(sum(parts.values()), alphas, options)
    assert blocks.trusted
    models = held_out_models(parts, alphas, fit_intercept=fit_intercept)
    for client, part in parts.items():
        found, expected = blocks.losses(part), models[client].losses(part)
        # A row that happens to be met has a loss of rounding in y.
        rounding = 1e-15 * float(np.mean(y**2))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=rounding)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    n=st.sampled_from([2, 15]),
    powers=st.lists(st.integers(-4, 4), min_size=6, max_size=6),
)
def test_units_of_the_columns_do_not_cost_digits(seed, n, powers):
    X, y, groups = clients_of(seed, K=12, n=n, d=6)
    X = X * 10.0 ** np.array(powers)
    parts = by_client(X, y, groups)
    found = held_out_losses(parts, FEW)
    for k, losses in enumerate(table_of(found, groups)):
        others, own = groups != k, groups == k
        for alpha, loss in zip(FEW, losses, strict=True):
            model = solve(from_data(X[others], y[others]), alpha)
            expected = ((y[own] - model.predict(X[own])) ** 2).mean()
            rounding = 1e-13 * float(np.mean(y**2))
            assert loss == pytest.approx(expected, rel=1e-9, abs=rounding)


@given(
    alphas=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=6), seed=st.integers()
)
def test_order_and_repetition_of_candidates_do_not_matter(alphas, seed):
    shuffled = np.random.default_rng(abs(seed)).permutation(alphas + alphas[:2])
    assert check_alphas(shuffled).tolist() == sorted(set(alphas))


@pytest.mark.filterwarnings("ignore::fedridge_flwr.IllConditionedWarning")
def test_losses_follow_their_alphas_in_any_order():
    X, y, groups = clients_of(0, K=40, n=2, d=6)
    X[:, 1] = X[:, 0] + 1e-6 * X[:, 2]
    parts, alphas = by_client(X, y, groups), np.geomspace(1e-4, 1e4, 5)
    up, down = held_out_losses(parts, alphas), held_out_losses(parts, alphas[::-1])
    for client in parts:
        np.testing.assert_allclose(down[client][::-1], up[client], rtol=1e-12)


# ---- one reduction, many alphas -----------------------------------------------------


@given(seed=st.integers(0, 10_000), d=st.integers(1, 30), t=st.integers(1, 3))
def test_refined_solutions_are_those_of_numpy(seed, d, t):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(2 * d + 5, d))
    S, h = A.T @ A, rng.normal(size=(d, t))
    found, accurate = ShiftedSystem(S).solve_refined(h, FEW)
    assert accurate.all()
    for j, alpha in enumerate(FEW):
        expected = np.linalg.solve(S + alpha * np.eye(d), h)
        assert relative_error(found[:, j], expected) < 1e-11


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_smallest_systems(d):
    S = np.eye(d) + 1.0
    h = np.arange(1.0, 2 * d + 1).reshape(d, 2)
    expected = np.linalg.solve(S + 0.5 * np.eye(d), h)
    found = ShiftedSystem(S).solve_each(h[:, None, :], np.array([0.5]))
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-14)


def test_an_indefinite_system_is_not_solved():
    system = ShiftedSystem(-np.eye(3))
    assert system.solve_each(np.ones((3, 1, 1)), np.array([0.5])) is None
    solution, accurate = system.solve_refined(np.ones((3, 1)), np.array([0.5, 0.6]))
    assert np.isnan(solution).all()
    assert not accurate.any()


def test_an_inaccurate_solution_says_so():
    A, b = linear_rows(60, 6, np.random.default_rng(0))
    A = np.column_stack([A, A @ np.ones(6)])
    alphas = np.array([1e-9, 1.0])
    _, accurate = ShiftedSystem(A.T @ A).solve_refined(A.T @ b[:, None], alphas)
    assert accurate.tolist() == [False, True]


# ---- the choice ---------------------------------------------------------------------

LOSSES = {
    "a": [3.0, 1.0, 1.1, 4.0],
    "b": [5.0, 4.0, 4.2, 9.0],
    "c": [1.0, 1.5, 1.6, 2.0],
}
WEIGHTS = {"a": 10.0, "b": 30.0, "c": 60.0}
FOUR = np.array([0.1, 1.0, 10.0, 100.0])


def chosen_by_hand(losses=LOSSES, weights=WEIGHTS, **options):
    X, y, _ = clients_of(0)
    losses = {client: np.array(row) for client, row in losses.items()}
    return AlphaSelection.from_losses(from_data(X, y), FOUR, losses, weights, **options)


def test_mean_and_standard_error_by_hand():
    found = chosen_by_hand()
    mean = 0.1 * 3.0 + 0.3 * 5.0 + 0.6 * 1.0
    spread = (0.1 * (3 - mean)) ** 2 + (0.3 * (5 - mean)) ** 2 + (0.6 * (1 - mean)) ** 2
    assert found.mean[0] == pytest.approx(mean, rel=1e-15)
    assert found.standard_error[0] == pytest.approx(np.sqrt(spread * 3 / 2), rel=1e-14)
    assert found.alpha == 1.0
    assert found.clients == ["a", "b", "c"]
    assert found.losses.tolist() == list(LOSSES.values())


def test_with_equal_weights_the_standard_error_is_the_usual_one():
    found = chosen_by_hand(weights=dict.fromkeys(LOSSES, 7.0))
    expected = np.std(list(LOSSES.values()), axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(found.standard_error, expected, rtol=1e-14)


def test_weights_may_be_whole_numbers():
    found = chosen_by_hand(weights={"a": 10, "b": 30, "c": 60})
    np.testing.assert_array_equal(found.mean, chosen_by_hand().mean)


def test_one_standard_error_takes_the_largest_alpha_that_is_as_good():
    plain, cautious = chosen_by_hand(), chosen_by_hand(one_standard_error=True)
    within = plain.mean <= plain.mean[1] + plain.standard_error[1]
    assert cautious.alpha == FOUR[within].max() == 10.0
    assert (plain.rule, cautious.rule) == ("minimum", "one standard error")
    assert cautious.describe().endswith("one-standard-error rule")


def test_the_choice_uses_those_who_answered():
    found = chosen_by_hand({"c": LOSSES["c"]})
    assert found.clients == ["c"]
    assert found.alpha == 0.1
    assert found.model.n_rows_ == 90
    with pytest.raises(StatisticsError, match="no client"):
        chosen_by_hand({})
    with pytest.raises(StatisticsError, match="no client"):
        chosen_by_hand(weights=dict.fromkeys(LOSSES, 0.0))


def test_the_model_is_the_refit_on_all_rows_and_says_how(tmp_path):
    X, y, groups = clients_of(0)
    found = select_alpha(by_client(X, y, groups), [1e-2, 1e-1, 1.0, 10.0, 1e2, 1e3])
    expected = solve(from_data(X, y), found.alpha)
    assert relative_error(found.model.coef_, expected.coef_) < 1e-12
    assert found.model.alpha_ == found.alpha
    how = "leaving out 6 clients in turn, 6 candidates"
    assert found.describe() == found.model.alpha_chosen_by == how
    assert how in found.model.summary()
    found.model.save(tmp_path / "model.json")
    again = RidgeModel.load(tmp_path / "model.json")
    assert again.alpha_chosen_by == how
    assert how in again.summary()


@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_a_selection_is_json_and_a_figure(tmp_path, method):
    X, y, groups = clients_of(0)
    found = select_alpha(by_client(X, y, groups), "auto", method=method)
    back = json.loads(json.dumps(found.to_dict()))
    assert back["alpha"] == found.alpha
    assert back["mean"] == found.mean.tolist()
    assert back["at_edge"] is False
    if method == "loco":
        assert back["losses"] == dict(
            zip(found.clients, found.losses.tolist(), strict=True)
        )
    else:
        assert back["losses"] is back["standard_error"] is None
        assert found.describe().startswith("generalized cross-validation, ")
    found.draw(tmp_path / "new" / "selection.png")
    assert (tmp_path / "new" / "selection.png").stat().st_size > 10_000


@pytest.mark.parametrize("grid", [[1e3, 1e4, 1e5], [1e-7, 1e-6, 1e-5]])
@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_the_best_at_the_edge_of_a_given_grid_is_a_warning(grid, method):
    X, y, groups = clients_of(0)
    with pytest.warns(GridEdgeWarning, match="3 candidates is at the edge") as caught:
        found = select_alpha(by_client(X, y, groups), grid, method=method)
    assert caught[0].filename == __file__
    assert found.at_edge


def test_a_single_candidate_has_no_edge():
    X, y, groups = clients_of(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = select_alpha(by_client(X, y, groups), [3.0])
    assert found.alpha == 3.0
    assert not found.at_edge


def test_auto_spans_the_spectrum():
    X, y, _ = clients_of(0)
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True) * len(X))
    grid = auto_alphas(from_data(X, y))
    assert grid[0] <= values[0]
    assert grid[-1] >= values[-1] * (1 - 1e-12)


@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_auto_is_extended_until_the_best_is_inside(method):
    # A strong signal: the best alpha, about 1e-8, is far below the spectrum.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    y = 1e4 * X @ np.ones(5) + rng.normal(size=3000)
    parts = by_client(X, y, np.arange(3000) % 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GridEdgeWarning)
        found = select_alpha(parts, "auto", method=method)
    assert not found.at_edge
    assert found.alphas.size > auto_alphas(sum(parts.values())).size
    assert (np.diff(found.alphas) > 0).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_auto_stops_extending_where_copies_make_it_singular(method, standardize):
    X, _, groups = clients_of(0, K=10, n=20, d=6)
    X = np.column_stack([X, X[:, 0]])
    parts = by_client(X, X.sum(axis=1), groups)
    found = select_alpha(parts, "auto", method=method, standardize=standardize)
    assert found.alpha < 1e-3
    assert found.model.r2_ == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_auto_with_fewer_rows_than_features(method):
    X, y, groups = clients_of(0, K=6, n=5, d=50)
    found = select_alpha(by_client(X, y, groups), "auto", method=method)
    assert found.alpha > 0
    assert np.isfinite(found.mean).all()


# ---- refused ------------------------------------------------------------------------


def test_leaving_one_out_needs_two_clients_with_rows():
    X, y, _ = clients_of(0)
    one = {"only": from_data(X, y), "empty": from_data(X[:0], y[:0])}
    for parts in (one, [from_data(X, y)], from_data(X, y)):
        with pytest.raises(StatisticsError, match=r'at least 2 clients.*got 1.*"gcv"'):
            select_alpha(parts, FEW)
    with pytest.raises(StatisticsError, match="no clients"):
        select_alpha([], FEW)
    for compute in (held_out_losses, held_out_models):
        with pytest.raises(StatisticsError, match="at least 2 clients"):
            compute(one, FEW)


@pytest.mark.parametrize(
    ("alphas", "message"),
    [
        ([], "alphas is empty"),
        (np.array([]), "alphas is empty"),
        ([0.0, 1.0], "must be positive"),
        ([1.0, -1.0], "got -1.0"),
        ([1.0, np.nan], "got nan"),
        ([1.0, np.inf], "got inf"),
        ([1.0, "2"], "got '2'"),
        ([True], "got True"),
        (np.ones((2, 2)), "alphas must be finite positive numbers"),
        ("wrong", "must be \"auto\" or a sequence.*got 'wrong'"),
        (1.0, "must be a sequence of positive numbers, got 1.0"),
        (None, "must be a sequence of positive numbers, got None"),
    ],
)
def test_candidates_must_be_positive_numbers(alphas, message):
    X, y, groups = clients_of(0)
    for method in ("loco", "gcv"):
        with pytest.raises(FedRidgeError, match=message):
            select_alpha(by_client(X, y, groups), alphas, method=method)


def test_unknown_methods_and_rules_are_refused():
    X, y, groups = clients_of(0)
    parts = by_client(X, y, groups)
    with pytest.raises(FedRidgeError, match='"loco" or "gcv", got \'wrong\''):
        select_alpha(parts, FEW, method="wrong")
    with pytest.raises(FedRidgeError, match=r'one-standard-error.*method="loco"'):
        select_alpha(parts, FEW, method="gcv", one_standard_error=True)


@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_plain_statistics_are_refused_by_name(method):
    X, y, groups = clients_of(0)
    parts = by_client(X, y, groups)
    parts["3"] = PlainStatistics.from_statistics(parts["3"])
    with pytest.raises(StatisticsError, match=r"client 3: .* got PlainStatistics"):
        select_alpha(parts, FEW, method=method)


def test_constant_features_leave_nothing_to_choose():
    y = np.arange(8.0)
    parts = by_client(np.full((8, 2), 0.1), y, np.arange(8) % 2)
    with pytest.raises(StatisticsError, match="all features are constant"):
        select_alpha(parts, "auto")


@pytest.mark.parametrize("n", [2, 20])
def test_singular_without_a_client_names_the_client_and_the_columns(n):
    # Two columns are copies of each other but in the rows of client 3.
    X, y, groups = clients_of(0, K=10, n=n, d=6)
    X[:, 5] = X[:, 0]
    X[groups == 3, 5] *= -1.0
    parts = by_client(X, y, groups)
    with pytest.raises(SingularSystemError, match=r"without client 3: .*column 5"):
        held_out_losses(parts, np.array([1e-15, 1.0]))
    with pytest.raises(SingularSystemError, match=r"without client 3: .*column 5"):
        held_out_models(parts, np.array([1e-15, 1.0]))
    expected = sklearn_losses(X, y, groups, FEW)
    found = table_of(held_out_losses(parts, FEW), groups)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_gcv_without_degrees_of_freedom_says_at_which_alpha():
    rng = np.random.default_rng(0)
    stats = from_data(rng.normal(size=(5, 8)), rng.normal(size=5))
    with pytest.raises(StatisticsError, match=r"5 rows have no degrees.*alpha 1e-18"):
        gcv_scores(stats, np.array([1e-18, 1.0]))


def test_errors_lost_to_rounding_are_a_warning_and_not_negative():
    X, _, groups = clients_of(0)
    y = X @ np.ones(4) + 1.0
    parts, alphas = by_client(X, y, groups), np.array([1e-10, 1e-9])
    with pytest.warns(ClampedLossWarning, match='cv="clients"'):
        losses = held_out_losses(parts, alphas)
    assert (table_of(losses, groups) >= 0).all()
    with pytest.warns(ClampedLossWarning):
        gcv_scores(sum(parts.values()), alphas)


def test_small_clients_lose_no_digits_to_a_perfect_fit():
    # The block identity works on residuals: there is no difference of large numbers.
    X, _, groups = clients_of(0, K=30, n=2, d=6)
    y = X @ np.ones(6) + 1.0
    losses = held_out_losses(by_client(X, y, groups), np.array([1e-4]))
    expected = sklearn_losses(X, y, groups, [1e-4])
    assert np.abs(table_of(losses, groups) - expected).max() < 1e-15
