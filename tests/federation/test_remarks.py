"""What is worth a look at clients that may well be honest."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import pytest
from fits import run_fit
from poisoning import honest_worlds, unseen_worlds
from real_data import SHARED_DATA
from sklearn.datasets import load_diabetes

from fedridge_flwr import PlainStatistics, SufficientStatistics
from fedridge_flwr.federation.screening.outliers import screen
from fedridge_flwr.federation.screening.profiles import Profile
from fedridge_flwr.federation.settings import FitSettings


def rows_of(k: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Column 0 around 0, column 1 a mass around 70, column 2 a dummy of one in ten."""
    rng = np.random.default_rng(k)
    X = np.c_[
        rng.normal(size=n), rng.normal(70.0, 10.0, size=n), rng.random(n) < 0.1
    ].astype(float)
    return X, target(X, k)


def target(X: np.ndarray, k: int) -> np.ndarray:
    return X @ [1.0, 0.2, 3.0] + np.random.default_rng(100 + k).normal(size=len(X))


def fitted(spoil: Any = None, n: int = 60, **settings: Any) -> Any:
    clients = {f"c{k}": rows_of(k, n) for k in range(6)}
    if spoil is not None:
        clients["c2"] = spoil(*clients["c2"])
    return run_fit(clients, **settings).report


def column(j: int, change: Any) -> Any:
    def spoil(X: np.ndarray, y: np.ndarray) -> Any:
        X = X.copy()
        X[:, j] = change(X[:, j])
        return X, y

    return spoil


@pytest.mark.parametrize("mode", ["oneshot", "refine", "cg"])
def test_a_column_that_is_constant_at_one_site_is_worth_a_look(mode):
    report = fitted(column(0, lambda x: 0.0 * x), mode=mode)
    told = "its column 0 is 0 in all rows (missing?), and varies at 5 others"
    assert report.remarks == {"c2": told}
    assert f"worth a look:\n    client c2: {told}" in str(report)


def test_a_constant_column_is_told_by_name_and_value():
    profiles = {str(k): Profile(90.0, np.ones(2), np.ones(2), 1) for k in range(5)}
    profiles["5"] = Profile(90.0, np.array([-2.5, 0.0]), np.array([0.0, 1.0]), 1)
    told = screen(profiles, "", names=["chol"]).remarks["5"]
    assert told == "its column 'chol' is -2.5 in all rows, and varies at 5 others"


@pytest.mark.parametrize("factor", [1000.0, 0.001])
@pytest.mark.parametrize("mode", ["oneshot", "cg"])
def test_so_are_other_units(factor, mode):
    report = fitted(column(1, lambda x: factor * x), mode=mode)
    assert list(report.remarks) == ["c2"]
    assert "mean of its column 1 is" in report.remarks["c2"]
    assert "are the units the same?" in report.remarks["c2"]


def test_nobody_is_left_out_for_a_remark():
    def zeros(X: np.ndarray, y: np.ndarray) -> Any:
        X = X * [0.0, 1.0, 1.0]
        return X, target(X, 2)

    told, kept = (fitted(zeros, screen=s) for s in ("report", "exclude"))
    assert kept.failures == {}
    assert kept.remarks == told.remarks != {}


def test_a_dummy_without_a_one_is_common():
    spoil = column(2, lambda x: 0.0 * x)
    assert fitted(spoil).remarks == {}
    # Of 600 rows 60 would be expected.
    assert list(fitted(spoil, n=600).remarks) == ["c2"]


@pytest.mark.parametrize("sizes", [[1] + [50] * 9, [3] * 2 + [50] * 18, range(2, 62)])
def test_small_sites_with_counts_are_not_worth_a_look(sizes):
    for seed in range(20):
        rng, profiles = np.random.default_rng(seed), {}
        for k, n in enumerate(sizes):
            counts = [rng.poisson(mean, n) for mean in (0.05, 0.3, 0.7)]
            X = np.column_stack([rng.normal(size=n), *counts, rng.integers(18, 90, n)])
            part = SufficientStatistics.from_data(X, rng.normal(size=n))
            profiles[str(k)] = Profile.of(part)
        assert screen(profiles, "not here").remarks == {}


def test_nothing_is_remarked_where_nothing_is_compared():
    assert fitted(column(0, lambda x: 0.0 * x), screen="off").remarks == {}
    assert FitSettings(screen="report").screens


def test_a_site_of_one_row_is_not_worth_a_look():
    def one(X: np.ndarray, y: np.ndarray) -> Any:
        return X[:1], y[:1]

    assert fitted(one).remarks == {}


def test_honest_sites_that_were_drawn_are_never_worth_a_look():
    for name, draws in itertools.islice(honest_worlds(), 8):
        for parts in itertools.islice(draws, 5):
            profiles = {client: Profile.of(part) for client, part in parts.items()}
            assert screen(profiles, "not here").remarks == {}, name


def test_missing_values_that_became_zeros_are_found():
    """Cholesterol is 0 in all rows of one of four real hospitals."""
    worlds = dict(unseen_worlds()) if SHARED_DATA.exists() else {}
    hospitals = [draws for name, draws in worlds.items() if "4 hospitals" in name]
    if not hospitals:
        pytest.skip("the shared data are not beside this checkout")
    (parts,) = itertools.islice(hospitals[0], 1)
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    found = screen(profiles, "not here").remarks
    assert list(found) == ["processed.switzerland"]
    assert "column 4 is 0 in all rows (missing?)" in found["processed.switzerland"]


# ---- wrong everyday units, swapped columns, copies -----------------------------------


def diabetes_sites(change: Any = None, clients: int = 10) -> dict[str, Any]:
    """Return the patients in usual units; the fourth site may have made a mistake."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    rows = np.array_split(np.arange(len(y)), clients)
    sites = {f"c{k}": (X[some], y[some]) for k, some in enumerate(rows)}
    return sites if change is None else sites | {"c3": change(*sites["c3"])}


def swapped(*order: int) -> Any:
    """Return a mistake: the first columns are in this order."""
    return lambda X, y: (np.c_[X[:, list(order)], X[:, len(order) :]], y)


MISTAKES = {
    "bmi / 10": (column(2, lambda x: x / 10), "column 2 is 0.1", "(about 1/10)"),
    "bmi x 2.54": (column(2, lambda x: x * 2.54), "column 2 is 2.", "inch and cm"),
    "bp in kPa": (column(3, lambda x: x / 7.5), "column 3 is 0.1", "mmHg and kPa"),
    "y / 100": (lambda X, y: (X, y / 100), "target 0 is 0.01", "(about 1/100"),
    "y x 10": (lambda X, y: (X, y * 10), "target 0 is 1", "(about 10"),
    "bmi x 1000": (column(2, lambda x: x * 1000), "column 2 is 1e+03", "(about 1000)"),
    "age and sex swapped": (
        swapped(1, 0),
        "its column 0 looks like column 1 of the others, and the other way round: are",
        "they swapped?; the model of the others does not fit it: mean squared error",
    ),
    "three columns rotated": (
        swapped(3, 0, 2, 1),
        "its columns look like others of the other clients, column 0 like column 3, ",
        "column 1 like column 0, column 3 like column 1: are they in another order?",
    ),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
@pytest.mark.parametrize("screen", ["report", "exclude"])
def test_everyday_mistakes_are_worth_a_look(mistake, screen):
    change, *expected = MISTAKES[mistake]
    honest = run_fit(diabetes_sites(), screen=screen).report
    assert honest.remarks == honest.suspects == {}
    report = run_fit(diabetes_sites(change), screen=screen).report
    if "c3" in report.failures:  # it was a suspect
        assert mistake in ("y x 10", "bmi x 1000")
        return
    assert list(report.remarks) == ["c3"]
    for words in expected:
        assert words in report.remarks["c3"]
    assert report.failures == {}


def test_units_are_compared_without_the_statistics_too():
    change, *expected = MISTAKES["bp in kPa"]
    report = run_fit(diabetes_sites(change), mode="cg").report
    assert list(report.remarks) == ["c3"]
    assert all(words in report.remarks["c3"] for words in expected)


def test_a_remark_tells_columns_by_name():
    X, y = load_diabetes(return_X_y=True, scaled=False, as_frame=True)
    sites = {f"c{k}": (X[k::10], y[k::10]) for k in range(10)}
    wrong = sites["c3"][0].rename(columns={"age": "bmi", "bmi": "age"})[list(X)]
    sites["c3"] = wrong.assign(bp=wrong["bp"] / 7.5), sites["c3"][1]
    names = list(X)
    parts = {c: SufficientStatistics.from_data(*rows) for c, rows in sites.items()}
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    told = screen(profiles, parts, names=names).remarks["c3"]
    assert "its column 'age' looks like column 'bmi' of the others" in told
    assert "the mean of its column 'bp' is 0.14 times the usual one" in told
    assert told.count("the mean of its") == 1


def test_a_column_around_zero_is_told_by_its_spread():
    report = fitted(column(0, lambda x: 20.0 * x))
    assert list(report.remarks) == ["c2"]
    assert "the spread of its column 0 is " in report.remarks["c2"]
    assert fitted(column(0, lambda x: 3.0 * x)).remarks == {}


def test_plain_statistics_have_units_too():
    sites = diabetes_sites(MISTAKES["bp in kPa"][0])
    full = {c: SufficientStatistics.from_data(*rows) for c, rows in sites.items()}
    plain = {c: PlainStatistics.from_statistics(part) for c, part in full.items()}
    profiles = {client: Profile.of(part) for client, part in plain.items()}
    found = screen(profiles, "no residuals").remarks
    assert list(found) == ["c3"]
    assert "the spread of its column 3 is 0.1" in found["c3"]


def test_a_site_whose_rows_follow_another_model_is_worth_a_look():
    report = fitted(lambda X, y: (X, y + 8.0 * X[:, 2]), n=100)
    assert list(report.remarks) == ["c2"]
    assert "the model of the others does not fit it: " in report.remarks["c2"]


def test_clients_with_the_same_rows_are_named_together():
    sites = diabetes_sites()
    report = run_fit(sites | {"c7": sites["c3"]}).report
    told = "clients c3, c7 sent exactly the same statistics: copies?"
    assert report.remarks == {"c3": told, "c7": told}
    # Equal means and variances are not enough where the products are known.
    X, y = sites["c3"]
    X = X.copy()
    X[:, 5] = X[::-1, 5]
    near = run_fit(sites | {"c7": (X, y)}).report
    assert near.remarks == {}


def test_few_rows_are_the_same_by_chance():
    rows = np.eye(4), np.arange(4.0)
    sites = {f"c{k}": rows for k in range(5)}
    assert run_fit(sites).report.remarks == {}


def test_advice_is_about_the_rows_of_clients_that_are_not_suspect():
    sites = diabetes_sites(column(2, lambda x: x * 1e5))
    report = run_fit(sites).report
    assert list(report.suspects) == ["c3"]
    assert "standardize" not in report.advice
    all_of_them = {c: (X * np.r_[1e5, np.ones(9)], y) for c, (X, y) in sites.items()}
    assert "standardize=True: column 0 varies" in run_fit(all_of_them).report.advice


def test_copies_are_shown_by_name_and_remarks_are_logged(caplog):
    caplog.set_level(logging.WARNING, logger="flwr")
    logging.getLogger("flwr").propagate = True
    ids = [f"1234567890123{k}" for k in range(10)]
    sites = dict(zip(ids, diabetes_sites().values(), strict=True))
    report = run_fit(sites | {ids[7]: sites[ids[3]]}).report
    assert "is in the model, but worth a look: clients 12345678901233, " in caplog.text
    report.names = {client: f"clinic {k}" for k, client in enumerate(ids)}
    told = "clients clinic 3, clinic 7 sent exactly the same statistics: copies?"
    assert f"    client clinic 3: {told}" in str(report)
