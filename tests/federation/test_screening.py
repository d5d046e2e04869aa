"""Screening: absurd clients are found, unlike ones are not, nothing else moves."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import replace
from typing import Any

import fits
import numpy as np
import poisoning
import pytest
from fakes import InProcessGrid, drive
from fits import run_fit
from generators import linear_rows, paper_clients
from hypothesis import given
from hypothesis import strategies as st
from poisoning import attacked, honest_worlds, own_models, screened, statistics
from real_data import LOADERS, by_client

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    NotEnoughClientsError,
    PlainStatistics,
    PrivacyError,
    SingularSystemError,
    Standardize,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.features.column_moments import ColumnMoments
from fedridge_flwr.federation import settings as settings_module
from fedridge_flwr.federation.fit_run import FitRun
from fedridge_flwr.federation.screening.leverage import influences
from fedridge_flwr.federation.screening.outliers import TOO_FEW, screen
from fedridge_flwr.federation.screening.profiles import Profile
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.multiround import Opening

K, D, N = 10, 4, 60
# Detection is a matter of luck in the end; of these draws all are known to go well.
seeds = st.integers(0, 40)


def rows_of(k: int, seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Return honest rows of a site with a mean of its own; residual sd is 1."""
    rng = np.random.default_rng([seed, k])
    X = rng.normal(size=(n, D)) + rng.normal(size=D)
    return X, X @ [20.0, -10.0, 10.0, 10.0] + rng.normal(size=n)


def honest(seed: int = 0, clients: int = K) -> dict[str, SufficientStatistics]:
    return statistics([rows_of(k, seed) for k in range(clients)])


def of(X: Any, y: Any) -> SufficientStatistics:
    return SufficientStatistics.from_data(X, y)


def giant(part: SufficientStatistics, factor: float) -> SufficientStatistics:
    """Return the statistics of all rows times a factor, as they come off the wire."""
    packed = part.to_array().copy()
    packed[1 : 1 + part.means.size] *= factor
    packed[1 + part.means.size :] *= factor**2
    return SufficientStatistics.from_array(packed, part.n_features, count=part.count)


def heavy(part: SufficientStatistics, factor: float) -> SufficientStatistics:
    return replace(
        part,
        total_weight=part.total_weight * factor,
        triangle=part.triangle * factor,
    )


def fitted(parts: dict[str, Any], **settings: Any) -> FitRun:
    fit = fits.begin(**settings)
    for client, part in parts.items():
        fit.round.into.take(client, lambda part=part: part)
    fit.finish_round()
    if fit.counts_losses:
        for client, request in fit.round.ask.items():
            fit.round.into.add(client, request.models.losses(parts[client]))
        fit.finish_round()
    return fit


LIES = {
    "mean shifted by 1e3 sd": lambda X, y: of(X + 1e3 * np.eye(D)[1], y),
    "variance times 1e6": lambda X, y: of(X * np.where(np.arange(D) == 2, 1e3, 1.0), y),
    "labels flipped": lambda X, y: of(X, -y),
    "labels scaled by 1e6": lambda X, y: of(X, 1e6 * y),
    "labels shifted by 500": lambda X, y: of(X, y + 500.0),
    "contribution times 1e70": lambda X, y: giant(of(X, y), 1e70),
    "weight times 1e100": lambda X, y: heavy(of(X, y), 1e100),
    "weight times 1e3, labels flipped": lambda X, y: heavy(of(X, -y), 1e3),
}
lies = st.sampled_from(sorted(LIES))


def poisoned(
    lie: str, seed: int = 0, liars: tuple[int, ...] = (3,)
) -> dict[str, SufficientStatistics]:
    parts = honest(seed)
    return parts | {str(k): LIES[lie](*rows_of(k, seed)) for k in liars}


# ---- who is found ------------------------------------------------------------------


@given(lie=lies, seed=seeds)
def test_absurd_clients_are_found_and_nobody_else(lie, seed):
    assert set(screened(poisoned(lie, seed)).suspects) == {"3"}


@given(lie=lies, seed=seeds)
def test_two_of_ten_who_lie_the_same_way_do_not_hide_each_other(lie, seed):
    assert set(screened(poisoned(lie, seed, (3, 7))).suspects) == {"3", "7"}


@given(lie=lies, seed=seeds, order=st.permutations(range(K)))
def test_the_order_of_clients_does_not_matter(lie, seed, order):
    parts = poisoned(lie, seed)
    found = screened({str(k): parts[str(k)] for k in order})
    assert found.suspects == screened(parts).suspects


@given(
    lie=st.sampled_from(["honest", *sorted(LIES)]),
    seed=seeds,
    exponents=st.tuples(*[st.integers(-40, 40)] * (D + 1)),
)
def test_the_units_of_columns_do_not_matter(lie, seed, exponents):
    parts = honest(seed) if lie == "honest" else poisoned(lie, seed)
    units = 2.0 ** np.array(exponents)
    rows, columns = np.triu_indices(D + 1)

    def in_units(part):
        triangle = part.triangle * (units[rows] * units[columns])
        return replace(part, means=part.means * units, triangle=triangle)

    other = {client: in_units(part) for client, part in parts.items()}
    assert set(screened(other, alpha=0.0).suspects) == set(
        screened(parts, alpha=0.0).suspects
    )


def test_one_column_moment_that_is_absurd_is_found():
    told = [ColumnMoments.from_rows(check_rows(*rows_of(k))) for k in range(K)]
    named = {str(k): moments for k, moments in enumerate(told)}

    def by_scale(columns, **options):
        profiles = {client: Profile.of(part) for client, part in columns.items()}
        return screen(profiles, "", **options)

    assert by_scale(named).words == f"{K} clients compared by scale"
    assert not by_scale(named).suspects
    far = replace(told[2], means=told[2].means + 1e9 * np.eye(D)[1])
    wide = replace(told[5], variances=told[5].variances * 1e9)
    found = by_scale(named | {"2": far, "5": wide}, names=["a", "b", "c", "d"])
    assert set(found.suspects) == set(found.excluded) == {"2", "5"}
    assert found.suspects["2"].startswith("the mean of its column 'b' is ")
    assert "(and so for 1 more column)" in found.suspects["5"]


# ---- who is not --------------------------------------------------------------------


@given(
    gamma=st.floats(0.0, 20.0),
    seed=st.integers(0, 2**32 - 1),
    clients=st.integers(4, 20),
    n=st.integers(2, 100),
)
def test_clients_of_the_paper_are_not_suspect_however_unlike(gamma, seed, clients, n):
    parts = statistics(paper_clients(6, n, clients, gamma, seed))
    assert not screened(parts).suspects


@given(
    tau=st.floats(0.0, 3.0),
    seed=st.integers(0, 2**32 - 1),
    largest=st.sampled_from([1, 500]),
)
def test_sites_with_models_of_their_own_and_one_large_site_are_not(tau, seed, largest):
    tau = min(tau, 0.3) if largest > 1 else tau
    assert not screened(statistics(own_models(tau, seed, largest))).suspects


@pytest.mark.parametrize("name", sorted(LOADERS))
@pytest.mark.parametrize("split", ["groups", "sorted", "dirichlet"])
def test_sites_of_real_data_are_not_suspect(name, split, shared_data):
    X, y, groups = LOADERS[name](shared_data)
    if split == "sorted":
        groups = poisoning.slices(y, 20)
    elif split == "dirichlet":
        groups = poisoning.dirichlet(y, 10, 0.1, 0)
    found = screened(by_client(X, y, groups))
    assert not found.suspects
    assert found.words.endswith("compared by scale and leverage")


def test_the_only_site_with_a_rare_category_is_not_suspect():
    parts = {}
    for k in range(K):
        X, y = rows_of(k)
        rare = np.zeros((N, 2))
        rare[: N // 2, 0] = k == 4
        rare[:, 1] = 1e6 + (k == 5)
        parts[str(k)] = of(np.hstack([X, rare]), y)
    for alpha in (0.0, 1.0):
        assert not screened(parts, alpha).suspects


def test_a_small_lie_told_consistently_is_not_found():
    """What cannot be detected: half a residual deviation at one of ten clients."""
    for seed in range(20):
        parts = attacked(poisoning.shift_labels(0.5), 1, seed, 1.0, 1.0)
        assert not screened(parts).suspects


def test_a_lie_where_the_others_have_no_data_is_not_found():
    """What cannot be detected: a column that only the liar ever fills."""
    parts = {}
    for k in range(K):
        X, y = rows_of(k)
        extra = np.zeros((N, 1))
        extra[: N // 2] = k == 4
        parts[str(k)] = of(np.hstack([X, extra]), y + 50.0 * extra[:, 0])
    assert not screened(parts).suspects
    assert fitted(parts).model.coef_[-1] > 40.0


# ---- edge cases --------------------------------------------------------------------


EMPTY = SufficientStatistics.from_data(np.zeros((0, D)), np.zeros(0))
WEIGHTLESS = SufficientStatistics.from_data(*rows_of(0, n=5), np.zeros(5))
EDGES = {
    "no rows": lambda: honest() | {"a": EMPTY, "b": EMPTY},
    "no weight": lambda: honest() | {"a": WEIGHTLESS},
    "one or two rows": lambda: (
        honest() | {"a": of(*rows_of(1, n=1)), "b": of(*rows_of(2, n=2))}
    ),
    "all the same": lambda: {str(k): honest()["0"] for k in range(K)},
    "no noise": lambda: statistics(
        [(X, X @ np.arange(D)) for X, _ in map(rows_of, range(K))]
    ),
    "constant y": lambda: statistics(
        [(X, np.ones(N)) for X, _ in map(rows_of, range(K))]
    ),
    "constant X": lambda: statistics(
        [(np.ones((N, D)), y) for _, y in map(rows_of, range(K))]
    ),
    "fewer rows than columns": lambda: statistics(
        [rows_of(k, n=1) for k in range(D - 1)] + [rows_of(9, n=1)]
    ),
    "two targets": lambda: statistics(
        [linear_rows(30, D, np.random.default_rng(k), t=2) for k in range(K)]
    ),
}


@pytest.mark.parametrize("edge", sorted(EDGES))
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_edge_cases_raise_nothing_and_accuse_nobody(edge, alpha, fit_intercept):
    parts = EDGES[edge]()
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = poisoning.screen(profiles, parts, alpha, fit_intercept=fit_intercept)
    assert not found.suspects
    assert "compared by scale" in found.words


def test_a_lie_about_one_of_two_targets_is_found():
    clients = []
    w = np.random.default_rng(0).normal(size=(D, 2))
    for k in range(K):
        rng = np.random.default_rng(k)
        X = rng.normal(size=(N, D))
        clients.append((X, X @ w + 0.3 * rng.normal(size=(N, 2))))
    X, Y = clients[6]
    clients[6] = X, Y * [1.0, -1.0]
    assert set(screened(statistics(clients)).suspects) == {"6"}


def test_three_clients_are_too_few_for_an_opinion():
    parts = honest(clients=3)
    parts["0"] = giant(parts["0"], 1e9)
    fit = fitted(parts)
    assert fit.report.suspects == {}
    assert fit.report.screening == TOO_FEW
    assert "too few clients to compare" in str(fit.report)
    assert not fitted(parts, screen="exclude").report.failures


def test_a_majority_is_never_left_out():
    parts = honest()
    for k in range(6):
        parts[str(k)] = giant(parts[str(k)], 10.0 ** (5 + 4 * k))
    found = screened(parts)
    assert len(found.excluded) <= (K - 1) // 2
    # Each has a column of its own that is absurd: nobody is usual in all of them.
    clients = [rows_of(k) for k in range(6)]
    wide = [np.where(np.arange(D) == k % D, 1e4, 1.0) for k in range(6)]
    odd = [(X * wide[k], y) if k < 4 else (X, y) for k, (X, y) in enumerate(clients)]
    found = screened(statistics(odd))
    assert len(found.suspects) == 4
    assert found.excluded == {}
    assert found.words.endswith("4 of them stand out, too many to tell who is right")
    fit = fitted(statistics(odd), screen="exclude")
    assert not fit.report.failures
    assert set(fit.report.suspects) == set(found.suspects)


def test_cooks_distance_is_what_it_says():
    """Against its definition, on the rows, for a client outside of the core."""
    clients = [rows_of(k) for k in range(5)]
    X, y = clients[2]
    clients[2] = X, -y
    found = influences(statistics(clients), 1.0)
    # The core are the three that agree best: leave out one more than the liar.
    best = None
    for other in (0, 1, 3, 4):
        core = [clients[k] for k in range(5) if k not in (2, other)]
        rest = sum(statistics(core).values())
        joined = rest + of(X, -y)
        A, b = (np.concatenate(each) for each in zip(*core, strict=True))
        with_it, without = solve(joined, 1.0), solve(rest, 1.0)
        moved = with_it.predict(A) - without.predict(A)
        residuals = b - without.predict(A)
        sigma2 = (residuals**2).sum() / (len(b) - D - 1)
        distance = np.sqrt((moved**2).mean() / sigma2)
        if abs(distance - found["2"].distance) < 1e-9 * distance:
            best = other
    assert best is not None
    assert found["2"].share == pytest.approx(0.25)


# ---- in a fit ----------------------------------------------------------------------


SETTINGS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.0},
    {"fit_intercept": False},
    {"standardize": True},
    {"cv": "server", "alphas": [0.1, 1.0, 10.0]},
    {"cv": "gcv"},
    {"cv": "clients"},
]


@given(
    lie=st.sampled_from(["honest", "labels flipped", "variance times 1e6"]),
    seed=seeds,
    settings=st.sampled_from(SETTINGS),
)
def test_a_report_changes_no_bit_of_the_model(lie, seed, settings):
    parts = honest(seed) if lie == "honest" else poisoned(lie, seed)
    on, off = fitted(parts, **settings), fitted(parts, screen="off", **settings)
    assert on.model.coef_.tobytes() == off.model.coef_.tobytes()
    assert on.model.intercept_ == off.model.intercept_
    assert on.model.alpha_ == off.model.alpha_
    assert on.result.statistics.to_array().tobytes() == (
        off.result.statistics.to_array().tobytes()
    )
    assert on.report.participants == off.report.participants == list(parts)
    assert set(on.report.suspects) == (set() if lie == "honest" else {"3"})
    assert off.report.suspects == {}
    assert off.report.screening == ""


@given(
    lie=lies,
    seed=seeds,
    settings=st.sampled_from(SETTINGS),
    liars=st.sampled_from([(3,), (0,), (3, 7)]),
)
def test_leaving_out_equals_the_fit_without_them(lie, seed, settings, liars):
    parts = poisoned(lie, seed, liars)
    rest = {c: p for c, p in parts.items() if int(c) not in liars}
    fit, alone = fitted(parts, screen="exclude", **settings), fitted(rest, **settings)
    assert set(fit.report.failures) == {str(k) for k in liars}
    assert all("unlike the others: " in why for why in fit.report.failures.values())
    assert fit.report.suspects == {}
    np.testing.assert_allclose(fit.model.coef_, alone.model.coef_, rtol=1e-12)
    np.testing.assert_allclose(fit.model.intercept_, alone.model.intercept_, rtol=1e-12)
    assert fit.model.alpha_ == alone.model.alpha_
    assert fit.model.n_clients_ == K - len(liars)
    assert fit.report.participants == alone.report.participants
    if settings.get("cv") == "clients":
        assert set(fit.result.selection.clients) == set(rest)


def test_too_few_left_is_an_error_that_says_why():
    parts = poisoned("labels flipped")
    assert fitted(parts, screen="exclude", min_clients=K - 1).model is not None
    with pytest.raises(NotEnoughClientsError, match="client 3: unlike the others"):
        fitted(parts, screen="exclude", min_clients=K)


def test_names_are_used_where_the_server_knows_them():
    parts, names = poisoned("mean shifted by 1e3 sd"), ["a", "b", "c", "d"]
    assert "its column 1 is" in fitted(parts).report.suspects["3"]
    named = fitted(parts, feature_names=names, unnamed="accept")
    assert "its column 'b' is" in named.report.suspects["3"]
    label = poisoned("labels scaled by 1e6")
    assert "its target 0 is" in fitted(label).report.suspects["3"]


def test_the_report_shows_suspects_and_is_json():
    report = fitted(poisoned("labels flipped")).report
    assert "  suspect, but in the model:\n    client 3: it moves predictions" in str(
        report
    )
    assert "screening   10 clients compared by scale and leverage; 1 suspect" in str(
        report
    )
    content = json.loads(report.to_json())
    assert content["suspects"] == report.suspects
    assert content["screening"] == "10 clients compared by scale and leverage"
    assert report.seconds["screen"] >= 0.0


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_giant_that_makes_the_total_singular_is_named(alpha):
    """The only thing known of columns beside it is rounding, whoever else answered."""
    line = of([[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0]], [1.0, 2.0])
    for absurd in (giant(line, 1e60), heavy(line, 1e100)):
        parts = honest() | {"3": absurd}
        with pytest.raises(SingularSystemError, match="do not determine") as caught:
            fitted(parts, alpha=alpha, screen="off")
        assert "client" not in str(caught.value)
        with pytest.raises(SingularSystemError, match=r'screen="exclude".* client 3: '):
            fitted(parts, alpha=alpha)
        rest = {client: part for client, part in parts.items() if client != "3"}
        expected = fitted(rest, alpha=alpha).model.coef_
        found = fitted(parts, alpha=alpha, screen="exclude").model.coef_
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_beyond_the_budget_only_scales_are_compared(monkeypatch):
    parts = poisoned("labels flipped")
    size = parts["0"].triangle.nbytes
    monkeypatch.setattr(settings_module, "SCREENED_BYTES", K * size)
    assert set(fitted(parts).report.suspects) == {"3"}
    monkeypatch.setattr(settings_module, "SCREENED_BYTES", K * size - 1)
    fit = fitted(parts)
    assert fit.result.gathered.answers.parts == {}
    assert fit.report.suspects == {}
    assert "compared by scale; leverage not looked at: the stat" in fit.report.screening
    assert set(fitted(poisoned("labels scaled by 1e6")).report.suspects) == {"3"}
    assert set(fitted(parts, screen="exclude").report.failures) == {"3"}


def test_plain_statistics_are_compared_by_size():
    full = poisoned("variance times 1e6")
    plain = {c: PlainStatistics.from_statistics(part) for c, part in full.items()}
    mixed = {c: plain[c] if int(c) % 2 else full[c] for c in full}
    for parts in (plain, mixed):
        report = fitted(parts, fit_intercept=False).report
        assert set(report.suspects) == {"3"}
        assert "from (G, h) alone residuals are not known" in report.screening
        out = fitted(parts, fit_intercept=False, screen="exclude")
        assert set(out.report.failures) == {"3"}
        rest = sum(part for client, part in full.items() if client != "3")
        expected = solve(rest, fit_intercept=False).coef_
        np.testing.assert_allclose(out.model.coef_, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_openings_are_compared_by_scale(mode):
    clients = {str(k): rows_of(k) for k in range(K)}
    X, y = clients["3"]
    clients["3"] = X, 1e6 * y
    fit = run_fit(clients, mode=mode, alpha=1.0)
    off = run_fit(clients, mode=mode, alpha=1.0, screen="off")
    assert fit.model.coef_.tobytes() == off.model.coef_.tobytes()
    assert set(fit.report.suspects) == {"3"}
    assert "in several rounds the server never has" in fit.report.screening
    out = run_fit(clients, mode=mode, alpha=1.0, screen="exclude")
    assert set(out.report.failures) == {"3"}
    assert out.report.suspects == {}
    rest = {client: rows for client, rows in clients.items() if client != "3"}
    alone = run_fit(rest, mode=mode, alpha=1.0)
    np.testing.assert_allclose(out.model.coef_, alone.model.coef_, rtol=1e-11)
    label = Profile.of(Opening.from_rows(check_rows(X, y)))
    same = Profile.of(of(X, y))
    np.testing.assert_allclose(label.deviations, same.deviations, rtol=1e-12)


def test_privacy_is_not_screened_and_says_so():
    privacy = DifferentialPrivacy(3.0, 1e-5, x_norm_bound=3.0, y_bound=10.0)
    for make in (FitSettings, FedRidge, LegacyFedRidge):
        with pytest.raises(PrivacyError, match='screen="exclude" compares'):
            make(privacy=privacy, screen="exclude")
        make(privacy=privacy)
    settings = FitSettings(privacy=privacy)
    assert not settings.screens
    assert settings.keep_bytes == 0


@pytest.mark.parametrize("make", [FitSettings, FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("value", ["yes", True, None])
def test_an_unknown_way_to_screen_is_refused(make, value):
    with pytest.raises(FedRidgeError, match='screen must be "report", "exclude" or'):
        make(screen=value)


# ---- over Flower -------------------------------------------------------------------


def app(lie: str = "labels flipped", liar: int = 3) -> Any:
    def load_data(context: Any) -> Any:
        k = int(context.node_config["partition-id"])
        X, y = rows_of(k)
        if k != liar:
            return X, y
        return (X + 1e6, y) if lie == "columns" else (X, -y)

    return ridge_client_app(load_data)


def run(strategy: Any, grid: InProcessGrid, rounds: int = 1) -> Any:
    if isinstance(strategy, FedRidge):
        strategy.start(grid)
    else:
        drive(strategy, grid, rounds)
    return strategy


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_both_apis_report_and_exclude(kind, caplog):
    caplog.set_level(logging.WARNING, logger="flwr")
    logging.getLogger("flwr").propagate = True
    reported = run(kind(min_available_nodes=K), InProcessGrid.of_app(app(), K))
    assert set(reported.report_.suspects) == {"1003"}
    assert "client partition 3 is suspect: it moves predictions" in caplog.text
    assert len(reported.report_.participants) == K
    out = kind(min_available_nodes=K, screen="exclude")
    run(out, InProcessGrid.of_app(app(), K))
    assert set(out.report_.failures) == {"1003"}
    assert "client partition 3 left out: unlike the others: it moves" in caplog.text
    rest = {c: part for c, part in honest().items() if c != "3"}
    expected = fitted(rest).model
    np.testing.assert_allclose(out.model_.coef_, expected.coef_, rtol=1e-12)
    assert out.model_.n_clients_ == K - 1


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_columns_for_a_map_are_screened_too(kind):
    settings = {"feature_map": Standardize(), "min_available_nodes": K}
    first = run(kind(**settings), InProcessGrid.of_app(app("columns"), K), 6)
    assert set(first.report_.suspects) == {"1003"}
    assert "their columns before: 10 clients compared" in first.report_.screening
    out = kind(screen="exclude", **settings)
    run(out, InProcessGrid.of_app(app("columns"), K), 6)
    assert set(out.report_.failures) == {"1003"}
    means = np.mean([rows_of(k)[0] for k in range(K) if k != 3], axis=(0, 1))
    np.testing.assert_allclose(out.model_.feature_map.means, means, rtol=1e-12)


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_who_is_left_out_later_is_not_in_the_map_either(kind):
    settings = {"feature_map": Standardize(), "min_available_nodes": K}
    out = kind(screen="exclude", **settings)
    run(out, InProcessGrid.of_app(app("labels flipped"), K), 6)
    assert set(out.report_.failures) == {"1003"}
    means = np.mean([rows_of(k)[0] for k in range(K) if k != 3], axis=(0, 1))
    np.testing.assert_allclose(out.model_.feature_map.means, means, rtol=1e-12)


@pytest.mark.parametrize("mode", ["refine", "cg", "auto"])
def test_modes_over_flower(mode):
    out = FedRidge(min_available_nodes=K, mode=mode, screen="exclude")
    out.start(InProcessGrid.of_app(app("columns"), K))
    assert set(out.report_.failures) == {"1003"}
    rest = {c: part for c, part in honest().items() if c != "3"}
    expected = fitted(rest).model.coef_
    np.testing.assert_allclose(out.model_.coef_, expected, rtol=1e-9)


# ---- the page ----------------------------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_results():
    results = json.loads(poisoning.RESULTS.read_text(encoding="utf-8"))
    text = poisoning.PAGE.read_text(encoding="utf-8")
    for (begin, end), table in (
        (poisoning.FALSE_ALARMS, poisoning.false_alarm_table(results)),
        (poisoning.DETECTION, poisoning.detection_table(results)),
        (poisoning.EVERYDAY, poisoning.everyday_table(results)),
        (poisoning.COSTS, poisoning.costs_in_words(results)),
    ):
        assert text.split(begin)[1].split(end)[0].strip() == table


def test_committed_rates_are_measured_again():
    results = json.loads(poisoning.RESULTS.read_text(encoding="utf-8"))
    row = next(
        each for each in results["attacks"] if (each["size"], each["liars"]) == (-1, 2)
    )
    found = poisoning._rates(poisoning.scale_labels(-1), 2, 3.0)
    assert found == row["strong"]
    words, draws = next(honest_worlds())
    first = results["honest"][0]
    assert first["clients"] == words
    assert (
        sum(len(screened(parts).suspects) for parts in draws) == (first["false_alarms"])
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_first_look_at_many_clients_gives_the_verdicts_of_a_close_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many clients, only those that may stand out get a model of their own."""
    from fedridge_flwr.federation.screening import leverage

    rng = np.random.default_rng(seed)
    coef, parts = rng.normal(size=6), {}
    for k in range(60):
        X = rng.normal(size=(int(rng.integers(20, 300)), 6)) + rng.normal(size=6)
        y = X @ coef + rng.normal(size=len(X))
        if k == 7:
            y = y + 10.0
        if k == 8:
            X[:, 3] *= 30.0
        parts[str(k)] = SufficientStatistics.from_data(X, y)
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    by_scale = screen(profiles, "").suspects
    rest = {client: part for client, part in parts.items() if client not in by_scale}
    first, looked = screen(profiles, parts), influences(rest, 1.0)
    monkeypatch.setattr(leverage, "_FEW", 1000)
    close, looked_closely = screen(profiles, parts), influences(rest, 1.0)
    assert set(first.suspects) == set(close.suspects) == {"7", "8"}
    for client, influence in looked_closely.items():
        if influence.distance > 0.1:
            assert looked[client].distance == influence.distance
        else:
            expected = pytest.approx(influence.distance, rel=0.5)
            assert looked[client].distance == expected


@pytest.mark.parametrize("weight", [1e-5, 1e-10, 1e-15, 1e-20, 1e-100, 1e-300])
@pytest.mark.parametrize("n_dust", [1, 2])
def test_a_client_of_no_weight_does_not_hide_a_liar(weight: float, n_dust: int) -> None:
    rng = np.random.default_rng(5)
    parts = {}
    for k in range(8 + n_dust):
        X = rng.normal(size=(200, 3)) + rng.normal(size=3)
        y = X @ [3.0, -2.0, 1.0] + rng.normal(size=200)
        y = -y if k == 5 else y
        weights = np.full(200, weight if k >= 8 else 1.0)
        parts[str(k)] = SufficientStatistics.from_data(X, y, weights)
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    found = screen(profiles, parts)
    assert set(found.suspects) == {"5"}
    assert "leverage" in found.words
