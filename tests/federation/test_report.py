"""The report, the paper's run-time quantities, and the fit they are an account of."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from fits import begin, finish
from generators import linear_rows, paper_clients, pooled, relative_error
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    FedRidgeError,
    FitReport,
    NotEnoughClientsError,
    PlainStatistics,
    RidgeModel,
    SufficientStatistics,
    solve,
)
from fedridge_flwr._text import human_bytes, text_table
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.flower._strategy_base import model_metrics
from fedridge_flwr.flower.evaluation_metrics import pool_evaluations
from fedridge_flwr.regression import diagnostics as spectrum
from fedridge_flwr.regression.evaluation import Evaluation

quantities_of = spectrum.spectrum


def stats_of(n=30, d=4, seed=0, t=None):
    return SufficientStatistics.from_data(
        *linear_rows(n, d, np.random.default_rng(seed), t)
    )


# ---- spectrum -----------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    sigma=st.floats(1e-3, 1e3),
    t=st.sampled_from([None, 2]),
)
def test_quantities_are_those_the_paper_defines(seed, sigma, t):
    X, y = linear_rows(20, 4, np.random.default_rng(seed), t)
    stats = SufficientStatistics.from_data(X, y)
    model = solve(stats, sigma, fit_intercept=False)
    found = quantities_of(stats, model)
    values = np.linalg.eigvalsh(X.T @ X)
    assert found.coverage == pytest.approx(values[0], rel=1e-10)
    assert found.lambda_max == pytest.approx(values[-1], rel=1e-12)
    kappa = np.linalg.cond(X.T @ X + sigma * np.eye(4))
    assert found.kappa == pytest.approx(kappa, rel=1e-9)
    assert found.kappa <= found.kappa_bound
    assert found.kappa_bound == pytest.approx((values[-1] + sigma) / sigma, rel=1e-12)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    assert found.shrinkage == pytest.approx(
        np.linalg.norm(model.coef_.T - w), abs=1e-10
    )
    assert found.shrinkage_factor == pytest.approx(sigma / (values[0] + sigma))
    assert found.shrinkage_bound == pytest.approx(
        found.shrinkage_factor * np.linalg.norm(w), rel=1e-9
    )


@given(
    seed=st.integers(0, 10_000),
    sigma=st.floats(1e-6, 1e6),
    fit_intercept=st.booleans(),
    standardize=st.booleans(),
)
def test_the_bounds_of_the_paper_hold(seed, sigma, fit_intercept, standardize):
    stats = stats_of(12, 4, seed)
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    found = quantities_of(stats, solve(stats, sigma, **options))
    assert 0.0 <= found.shrinkage_factor <= 1.0
    assert found.shrinkage <= found.shrinkage_bound * (1 + 1e-9) + 1e-12
    assert 1.0 <= found.kappa <= found.kappa_bound


def test_standardised_quantities_are_those_of_standardised_rows():
    X, y = linear_rows(30, 3, np.random.default_rng(0))
    X = X * [1.0, 100.0, 0.01] + 5.0
    stats = SufficientStatistics.from_data(X, y)
    found = quantities_of(stats, solve(stats, 2.0, standardize=True))
    scaled = SufficientStatistics.from_data(StandardScaler().fit_transform(X), y)
    expected = quantities_of(scaled, solve(scaled, 2.0))
    for name in ("coverage", "lambda_max", "kappa", "shrinkage", "shrinkage_bound"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-10)


def test_without_an_unpenalised_solution_there_is_no_shrinkage_to_tell():
    stats = stats_of(n=3, d=6)
    found = quantities_of(stats, solve(stats, 1.0))
    assert found.shrinkage is None
    assert found.shrinkage_bound is None
    assert found.coverage == pytest.approx(0.0, abs=1e-12)
    assert found.vacuous


def test_without_a_penalty_nothing_shrinks():
    stats = stats_of()
    found = quantities_of(stats, solve(stats, 0.0))
    assert found.kappa_bound == math.inf
    assert found.shrinkage_factor == found.shrinkage == found.shrinkage_bound == 0.0
    assert not found.vacuous


@pytest.mark.parametrize(("sigma", "vacuous"), [(1e-3, False), (1e6, True)])
def test_a_bound_near_one_is_called_vacuous(sigma, vacuous):
    stats = stats_of()
    assert quantities_of(stats, solve(stats, sigma)).vacuous is vacuous


def test_plain_statistics_have_the_same_quantities():
    stats = stats_of()
    plain = PlainStatistics.from_statistics(stats)
    model = solve(plain, 1.0, fit_intercept=False)
    found, expected = quantities_of(plain, model), quantities_of(stats, model)
    assert found.kappa == pytest.approx(expected.kappa, rel=1e-12)
    assert found.shrinkage == pytest.approx(expected.shrinkage, rel=1e-10)


def test_beyond_the_largest_size_there_are_no_quantities(monkeypatch):
    stats = stats_of()
    model = solve(stats)
    monkeypatch.setattr(spectrum, "LARGEST_SPECTRUM", 4)
    assert quantities_of(stats, model) is not None
    monkeypatch.setattr(spectrum, "LARGEST_SPECTRUM", 3)
    assert quantities_of(stats, model) is None


# ---- report -------------------------------------------------------------------------


def report(**changes):
    content = {
        "participants": ["1", "2"],
        "failures": {"3": "sent NaN"},
        "n_rows": 100,
        "n_features": 10,
        "n_targets": 1,
        "alpha": 0.5,
        "bytes_up": 12_300,
        "bytes_down": 678,
        "seconds": {"wait": 1.5, "solve": 0.25},
    }
    quantities = changes.pop("spectrum", None)
    found = FitReport(**{**content, **changes})
    found.diagnose = None if quantities is None else lambda: quantities
    return found


def test_the_report_prints_who_what_and_how_much():
    shown = str(report(repeated=["2"], evaluation={"mse": 0.125, "r2": 0.5}))
    for words in (
        "2 in, 1 out",
        "100 rows, 10 features",
        "0.5",
        "12.3 kB up, 678 B down",
        "wait 1.50, solve 0.25",
        "client 3: sent NaN",
        "answered twice, counted once: 2",
        "mse 0.125, r2 0.5",
    ):
        assert words in shown


def test_the_report_prints_the_quantities_of_the_paper():
    stats = stats_of()
    found = quantities_of(stats, solve(stats, 1.0))
    shown = str(report(spectrum=found, fedavg_rounds=3.25))
    for words in (
        f"lambda_min {found.coverage:.4g}",
        f"{found.kappa:.4g} (bound {found.kappa_bound:.4g})",
        f"bound {found.shrinkage_bound:.3g}",
        "rounds of FedAvg (by the paper's count 3.8)",
    ):
        assert words in shown
    assert "vacuous" not in shown
    wide = quantities_of(stats, solve(stats, 1e6))
    assert "vacuous" in str(report(spectrum=wide))
    few = stats_of(n=2)
    none = quantities_of(few, solve(few, 1.0))
    assert "no unpenalised solution" in str(report(spectrum=none))


def test_many_failures_are_cut_and_counted():
    shown = str(report(failures={str(k): f"late by {k} s" for k in range(50)}))
    assert shown.count("    client") == 20
    first = "MODEL OF 2 OF 50 CLIENTS, 100 ROWS: client 0: late by 0 s; "
    assert shown.startswith(first)
    assert "; and 45 more\n" in shown
    assert "... and 30 more" in shown
    alike = str(report(failures={str(k): "late" for k in range(50)}))
    assert "ROWS: clients 0, 3, 4, 5, 6 and 43 more: late\n" in alike
    assert alike.count("late") == 2
    also = str(report(evaluation_failures={"7": "no rows"}))
    assert "did not evaluate" in also
    assert "client 7: no rows" in also


@given(d=st.integers(1, 2000))
def test_break_even_is_the_one_of_the_paper(d):
    assert report(n_features=d).fedavg_rounds_paper == (d + 5) / 4


def test_the_report_is_json_with_nothing_that_json_cannot_hold(tmp_path):
    stats = stats_of()
    found = quantities_of(stats, solve(stats, 0.0))
    account = report(spectrum=found, evaluation={"mse": 1.0, "r2": math.nan})
    account.save(tmp_path / "new" / "report.json")
    content = json.loads((tmp_path / "new" / "report.json").read_text("utf-8"))
    assert content == account.to_dict() == json.loads(account.to_json())
    assert content["spectrum"]["kappa_bound"] is None
    assert content["spectrum"]["kappa"] == found.kappa
    assert content["spectrum"]["vacuous"] is False
    assert content["evaluation"] == {"mse": 1.0, "r2": None}
    assert content["failures"] == {"3": "sent NaN"}
    assert content["fedavg_rounds_paper"] == 3.75


@given(size=st.integers(0, 10**17))
def test_human_bytes_are_the_size_to_two_digits(size):
    number, unit = human_bytes(size).split()
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    factor = 1000.0 ** units.index(unit)
    assert float(number) * factor == pytest.approx(size, rel=0.06)
    assert unit == "PB" or float(number) <= 1000


@given(
    rows=st.lists(
        st.lists(st.text("abc123. ", max_size=8), min_size=3, max_size=3), max_size=5
    )
)
def test_tables_line_up_and_keep_every_cell(rows):
    heads = ["method", "MSE", "seconds"]
    lines = text_table(heads, rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert len({len(line) for line in lines}) == 1
    for line, cells in zip([lines[0], *lines[2:]], [heads, *rows], strict=True):
        shown = [cell.strip() for cell in line.strip("|").split("|")]
        assert shown == [cell.strip() for cell in cells]


# ---- the whole fit ------------------------------------------------------------------


def clients(K=5):
    return paper_clients(3, 6, K, gamma=1.0, seed=0)


def fit_of(parts, **settings):
    fit = begin(**settings)
    for k, (A, b) in enumerate(parts):
        fit.round.into.add(str(k), SufficientStatistics.from_data(A, b))
    return fit


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_fit_is_solve_on_the_sum_of_the_clients(fit_intercept, standardize):
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    fit = fit_of(clients(), alpha=0.5, **options)
    model = finish(fit)
    X, y = pooled(clients())
    expected = solve(SufficientStatistics.from_data(X, y), 0.5, **options)
    assert relative_error(model.coef_, expected.coef_) < 1e-12
    assert model is fit.model
    assert fit.result.statistics.count == 30
    if fit_intercept and not standardize:
        assert relative_error(model.coef_, Ridge(0.5).fit(X, y).coef_) < 1e-12


def test_a_fit_leaves_an_account():
    fit = fit_of(clients(), alpha=0.5)
    fit.round.into.refuse("bad", "sent NaN")
    fit.bytes_up, fit.bytes_down = 600, 300
    fit.finish_round()
    fit.compare_bytes(50)
    account = fit.report
    assert account.participants == [str(k) for k in range(5)]
    assert account.failures == {"bad": "sent NaN"}
    assert (account.n_rows, account.n_features, account.n_targets) == (30, 3, 1)
    assert account.alpha == 0.5
    assert account.seconds["solve"] >= 0.0
    assert account.spectrum.coverage > 0.0
    assert account.fedavg_rounds == 900 / (6 * 50)
    assert json.loads(account.to_json())["n_rows"] == 30


def test_the_model_is_saved_and_handed_on(tmp_path):
    handed = []
    path = tmp_path / "deep" / "model.json"
    fit = fit_of(clients(), save_model=path, on_model=handed.append)
    model = finish(fit)
    assert handed == [model]
    assert RidgeModel.load(path).coef_.tobytes() == model.coef_.tobytes()


def test_the_metrics_are_spelt_as_flower_does():
    fit = fit_of(clients())
    model = finish(fit)
    assert model_metrics(model) == {
        "num-examples": 30,
        "num-clients": 5,
        "train-r2": model.r2_,
    }
    plain = begin(fit_intercept=False)
    A, b = clients()[0]
    plain.round.into.add("0", PlainStatistics.from_arrays(A.T @ A, A.T @ b, 6))
    plain.finish_round()
    assert model_metrics(plain.model) == {"num-examples": 6, "num-clients": 1}


def test_too_few_valid_answers_are_an_error_that_names_the_others():
    fit = fit_of(clients(2), min_clients=3)
    for k in range(12):
        fit.round.into.refuse(f"bad {k}", f"reason {k}")
    with pytest.raises(NotEnoughClientsError) as caught:
        fit.finish_round()
    message = str(caught.value)
    assert message.startswith("2 valid answer")
    assert "3 needed" in message
    assert "client bad 0: reason 0" in message
    assert "... and 2 more" in message
    with pytest.raises(NotEnoughClientsError, match=r"0 valid answer.*1 needed"):
        begin().finish_round()


def test_answers_that_do_not_fit_the_others_are_not_valid():
    fit = fit_of(clients(2), min_clients=3)
    fit.round.into.add("wide", stats_of(d=7))
    with pytest.raises(NotEnoughClientsError, match="7 features"):
        fit.finish_round()


def test_whoever_was_asked_and_is_silent_is_named():
    fit = fit_of(clients(3))
    fit.round.into.refuse_silent([str(k) for k in range(5)], "no answer in 3 s")
    fit.finish_round()
    assert fit.report.failures == {"3": "no answer in 3 s", "4": "no answer in 3 s"}
    assert fit.report.participants == ["0", "1", "2"]
    assert fit.report.repeated == []


def test_plain_clients_are_taken_only_where_their_numbers_suffice():
    A, b = clients()[0]
    plain = PlainStatistics.from_arrays(A.T @ A, A.T @ b, 6)
    for settings, taken in [
        ({"fit_intercept": False}, True),
        ({"fit_intercept": True}, False),
        ({"fit_intercept": False, "standardize": True}, False),
    ]:
        fit = begin(**settings)
        fit.round.into.add("0", plain)
        assert (len(fit.round.into.participants) == 1) is taken


def test_the_names_a_server_expects_are_checked_and_kept():
    names = ["a", "b", "c", "d"]
    fit = begin(feature_names=names, unnamed="accept")
    fit.round.into.add("narrow", stats_of(d=3))
    fit.round.into.add("unnamed", stats_of(d=4))
    assert "expects 4" in fit.round.into.failures["narrow"]
    assert list(finish(fit).feature_names_in_) == names
    assert fit.result.statistics.feature_names == tuple(names)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": -1.0}, "alpha must be"),
        ({"alpha": True}, "alpha must be"),
        ({"min_clients": 0}, "whole number of at least 1"),
        ({"on_model": "print"}, "on_model must be a function"),
    ],
)
def test_settings_that_would_fail_later_fail_at_once(settings, words):
    with pytest.raises(FedRidgeError, match=words):
        FitSettings(**settings)


def test_comparing_bytes_before_the_fit_is_harmless():
    fit = begin()
    fit.compare_bytes(100)
    assert fit.report is None


# ---- evaluation ---------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_the_average_error_is_the_error_over_all_rows(sizes):
    model = solve(stats_of(d=3))
    parts = [linear_rows(n, 3, np.random.default_rng(n)) for n in sizes]
    found, _ = pool_evaluations([model.evaluate(X, y) for X, y in parts])
    X, y = pooled(parts)
    assert found["mse"] == pytest.approx(model.evaluate(X, y).mse, rel=1e-12)
    assert found["num-examples"] == sum(sizes)
    assert "r2" not in found
    assert ("mean-site-r2" in found) == any(n > 1 for n in sizes)


def test_clients_without_r2_do_not_count_in_its_average():
    found, note = pool_evaluations(
        [
            Evaluation(1.0, 0.5, 10),
            Evaluation(4.0, math.nan, 1),
            Evaluation(1.0, 0.8, 5),
        ]
    )
    assert found["mean-site-r2"] == pytest.approx((0.5 * 10 + 0.8 * 5) / 15)
    assert "3 of 3 clients" in note
    assert found["mse"] == pytest.approx((10 + 4 + 5) / 16)


def test_no_evaluations_average_to_nothing():
    assert pool_evaluations([]) == ({}, "")


@pytest.mark.parametrize(
    ("known", "rows"),
    [({}, "440 ROWS"), ({"a": 300, "b": 85}, "440 OF 825 ROWS")],
)
def test_rows_of_others_are_told_where_they_are_known(known, rows):
    out = {"a": "other columns", "b": "other columns"}
    told = report(failures=out, n_rows=440, rows_left_out=known)
    assert told.scope == f"MODEL OF 2 OF 4 CLIENTS, {rows}"
    partly = report(failures=out, n_rows=440, rows_left_out={"a": 300})
    assert partly.scope == "MODEL OF 2 OF 4 CLIENTS, 440 OF AT LEAST 740 ROWS"


def test_a_client_that_only_missed_a_round_is_in_the_model():
    told = report(failures={"1": "round 2: not connected"})
    assert "1" in told.participants
    assert told.scope == told.incomplete == ""


def test_a_model_without_a_client_must_ask_nobody() -> None:
    run = begin(cv="clients", alphas=[0.1, 1.0])
    parts = [stats_of(seed=k) for k in range(3)]
    for k, part in enumerate(parts):
        run.round.into.add(str(k), part)
    run.finish_round()
    assert run.counts_losses
    with pytest.raises(FedRidgeError, match="must not take another round"):
        run.without("0", parts[1] + parts[2])


def test_clients_without_names_are_in_the_order_of_their_numbers_or_all() -> None:
    clients = [f"partition {k}" for k in (4, 10, 2, 1)]
    report = FitReport(
        participants=clients,
        failures={},
        n_rows=40,
        n_features=2,
        n_targets=1,
        alpha=1.0,
        unverified=clients[:3],
        rearranged=clients,
    )
    told = str(report)
    assert "taken to be in order: partition 2, partition 4, partition 10" in told
    assert "columns rearranged by name: all 4 clients" in told
