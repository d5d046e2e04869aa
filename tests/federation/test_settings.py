"""Settings that would give another fit than asked for are refused before any round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedridge_flwr import (
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    SufficientStatistics,
    TableFormula,
    solve,
)
from fedridge_flwr.federation.settings import FitSettings

strategies = pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
FLAGS = ["fit_intercept", "standardize", "one_standard_error", "strict"]


@strategies
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", ["no", "False", 0, None])
def test_what_merely_looks_like_a_flag_is_refused(kind, flag, value) -> None:
    with pytest.raises(FedRidgeError, match=f"{flag} must be true or false, got"):
        kind(**{flag: value})


@pytest.mark.parametrize("flag", ["fit_intercept", "standardize"])
def test_solve_refuses_them_as_well(flag) -> None:
    stats = SufficientStatistics.from_data([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0])
    with pytest.raises(FedRidgeError, match=f"{flag} must be true or false, got 'no'"):
        solve(stats, **{flag: "no"})
    assert solve(stats, **{flag: np.True_}).coef_.shape == (1,)


@strategies
@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("age", "must be a sequence of names, got 'age'"),
        ([], "must be a sequence of names, got"),
        ([1, 2], "must be a sequence of names, got"),
        (7, "must be a sequence of names, got 7"),
        (["a", "b", "a"], "has 'a' more than once"),
    ],
)
def test_feature_names_are_different_texts(kind, names: Any, why: str) -> None:
    with pytest.raises(FedRidgeError, match=f"feature_names {why}"):
        kind(feature_names=names)


@strategies
def test_what_can_be_read_only_once_is_read_once(kind) -> None:
    made = kind(alphas=(a for a in [1.0, 100.0]), feature_names=iter("ab"))
    assert made._settings.alphas == (1.0, 100.0)
    assert made._settings.feature_names == ("a", "b")


def test_numbers_of_numpy_are_numbers() -> None:
    assert FedRidge(mode="cg", tol=np.float32(1e-6))._settings.tol > 0
    for timeout in (0, True, "60", np.nan):
        with pytest.raises(FedRidgeError, match="timeout must be seconds above 0"):
            FedRidge().start(grid=None, timeout=timeout)  # type: ignore[arg-type]


def test_levels_of_a_formula_are_lists() -> None:
    with pytest.raises(FedRidgeError, match="levels must be a list of levels for 'x'"):
        TableFormula("y ~ C(x)", levels={"x": "no"})


@pytest.mark.parametrize("alpha", ["auto", [0.1, 1.0], np.ones(2)])
def test_candidates_given_as_alpha_are_told_their_name(alpha: Any) -> None:
    with pytest.raises(FedRidgeError, match=r"alpha must be one number.* use alphas=,"):
        FitSettings(alpha=alpha)


@pytest.mark.parametrize("wrong", [-1, float("nan"), "x"])
def test_candidates_are_called_alphas(wrong: Any) -> None:
    with pytest.raises(FedRidgeError, match=r"^alphas must be finite positive numbers"):
        FitSettings(alphas=[1.0, wrong])


def test_an_alpha_that_is_not_used_is_told(caplog: Any) -> None:
    FitSettings(alpha=1.0, alphas=[0.1, 1.0])
    FitSettings(alpha=2.0)
    assert "ignored" not in caplog.text
    FitSettings(alpha=2.0, alphas=[0.1, 1.0])
    assert "alpha=2 is ignored: alphas are given, and alpha is chosen." in caplog.text
