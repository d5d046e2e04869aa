"""The app behind ``flwr run .``: settings, data, local steps, and the run itself."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fakes import run_app
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from fedridge_flwr import FedRidgeError, RidgeModel
from fedridge_flwr.app import launch, processes
from fedridge_flwr.app.__main__ import main
from fedridge_flwr.app.client_app import app as client_app
from fedridge_flwr.app.descent import gradient_steps
from fedridge_flwr.app.launch import LocalSuperLink, local_superlink
from fedridge_flwr.app.processes import END_LOST
from fedridge_flwr.app.run_config import AppSettings, read_settings
from fedridge_flwr.app.server_app import app as server_app
from fedridge_flwr.app.task import (
    client_rows,
    feature_names,
    largest_curvature,
    pooled_rows,
)
from fedridge_flwr.federation.reporting.run_folder import page_from_folder
from fedridge_flwr.federation.settings import SECURE_ROUNDS
from fedridge_flwr.flower.exchange import log

PROJECT = Path(__file__).resolve().parents[2]


# ---- settings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"alpha": "big"}, "alpha must be a number of at least 0, got 'big'"),
        ({"alpha": -1.0}, "alpha must be a number of at least 0"),
        ({"alpha": True}, "alpha must be a number"),
        ({"alpha": float("nan")}, "alpha must be a number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"compare-rounds": "ten"}, "compare-rounds must be a whole number"),
        ({"compare-rounds": -1}, "compare-rounds must be a whole number"),
        ({"test-fraction": 1.0}, "at least 0 and below 1"),
        ({"dataset": 3}, "dataset must be .diabetes., .digits. or .synthetic., got 3"),
        ({"feature-map": 3}, "feature-map must be text"),
        ({"dataset": "iris"}, ".diabetes., .digits. or .synthetic., got .iris."),
        ({"output-dir": "results"}, "absolute path"),
        ({"d": 0}, "d must be a whole number of at least 1"),
        ({"cv": "loo"}, "cv must be .server., .clients., .gcv., .groups., .noise. or"),
        ({"alphas": "a, b"}, "alphas must be .auto. or numbers like"),
        ({"wire-dtype": "float16"}, "wire-dtype must be .float64. or .float32."),
        ({"mode": "fast"}, "mode must be .oneshot., .refine., .cg. or .auto."),
        ({"strict": "yes"}, "strict must be true or false, got 'yes'"),
        ({"secure": 1}, "secure must be true or false, got 1"),
        ({"secure": True, "compare-rounds": 3}, "must be 0 with secure sums"),
        ({"screen": "strict"}, "screen must be .report., .exclude. or .off."),
        ({"feature-map": "fourier"}, "feature-map: fourier needs n_components"),
        ({"feature-map": "magic 3"}, "feature-map: there is no feature map 'magic'"),
        (
            {"feature-map": "polynomial 2", "compare-rounds": 3},
            "0 with a feature-map",
        ),
        ({"epsilon": -1.0}, "epsilon must be a number of at least 0"),
        ({"epsilon": 1.0}, "x_norm_bound must be a number above"),
        ({"epsilon": 1.0, "x-norm-bound": 1.0}, "y_bound must be a number above"),
        (
            {
                "epsilon": 1.0,
                "x-norm-bound": 1.0,
                "y-bound": 1.0,
                "compare-rounds": 3,
            },
            "0 with privacy",
        ),
    ],
)
def test_a_wrong_run_config_says_what_was_expected(config: Any, reason: str) -> None:
    with pytest.raises(FedRidgeError, match=reason):
        read_settings(config)


def test_whole_numbers_do_for_numbers() -> None:
    assert read_settings({"alpha": 3, "gamma": 0}).alpha == 3.0


def test_pyproject_has_the_defaults_of_the_settings() -> None:
    import tomllib

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert read_settings(project["tool"]["flwr"]["app"]["config"]) == AppSettings()


# ---- data ----------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 7, 200])
def test_clients_together_hold_every_row_once(K: int) -> None:
    pooled = pooled_rows(AppSettings(), K)
    X, y = load_diabetes(return_X_y=True)
    held = np.vstack([pooled.X, pooled.X_test])
    targets = np.concatenate([pooled.y, pooled.y_test])
    order, expected = np.lexsort(held.T), np.lexsort(X.T)
    np.testing.assert_array_equal(held[order], (X * np.sqrt(len(X)))[expected])
    np.testing.assert_array_equal(targets[order], y[expected])


def test_synthetic_clients_do_not_change_when_others_join() -> None:
    settings = AppSettings(dataset="synthetic", d=5, n=8)
    few, many = client_rows(settings, 1, 2), client_rows(settings, 1, 50)
    np.testing.assert_array_equal(few.X, many.X)
    other = client_rows(settings, 0, 2)
    assert not np.array_equal(few.X, other.X)


def test_synthetic_noise_and_heterogeneity_are_the_papers() -> None:
    settings = AppSettings(dataset="synthetic", d=20, n=4000, gamma=3.0)
    rows = client_rows(settings, 0, 1)
    ridge = Ridge(alpha=1e-6).fit(rows.X, rows.y)
    assert np.std(rows.y - ridge.predict(rows.X)) == pytest.approx(0.1, rel=0.05)
    assert np.linalg.norm(ridge.coef_) == pytest.approx(1.0, rel=0.02)
    assert np.linalg.norm(rows.X.mean(axis=0)) == pytest.approx(3.0, rel=0.05)


def test_digits_have_ten_targets_and_named_pixels() -> None:
    settings = AppSettings(dataset="digits")
    rows = client_rows(settings, 0, 3)
    assert rows.y.shape[1] == 10
    assert len(feature_names(settings) or []) == rows.X.shape[1] == 64
    assert feature_names(AppSettings(dataset="synthetic")) is None


# ---- local steps ---------------------------------------------------------------------


@pytest.mark.parametrize("targets", [(), (3,)])
def test_gradient_steps_of_one_client_end_at_ridge(targets: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)) + 0.3, rng.normal(size=(60, *targets))
    curvature = np.linalg.norm(np.column_stack([X, np.ones(60)]), 2) ** 2 / 60
    coef, intercept = gradient_steps(
        (np.zeros((*targets, 4)), np.zeros(targets or (1,))),
        X,
        y,
        epochs=3000,
        learning_rate=1.0 / (curvature + 0.1),
        penalty=2.0 / 60,
    )
    ridge = Ridge(alpha=2.0).fit(X, y)
    np.testing.assert_allclose(coef, ridge.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(intercept, np.atleast_1d(ridge.intercept_), rtol=1e-8)


def test_the_proximal_term_keeps_a_client_near_the_global_model() -> None:
    rows = client_rows(AppSettings(dataset="synthetic", d=4, n=50), 0, 1)
    start = (np.zeros(4), np.zeros(1))
    step = {"epochs": 200, "learning_rate": 0.02, "penalty": 0.0}
    free, _ = gradient_steps(start, rows.X, rows.y, **step)  # type: ignore[arg-type]
    held, _ = gradient_steps(start, rows.X, rows.y, **step, proximal_mu=10.0)  # type: ignore[arg-type]
    assert np.linalg.norm(held) < 0.3 * np.linalg.norm(free)


def test_the_step_size_is_safe_for_every_client() -> None:
    settings = AppSettings(dataset="synthetic", d=3, n=30)
    largest = largest_curvature(settings, 4)
    for k in range(4):
        X = np.column_stack([client_rows(settings, k, 4).X, np.ones(24)])
        assert np.linalg.eigvalsh(X.T @ X / 24)[-1] <= largest * (1 + 1e-12)


# ---- the run -------------------------------------------------------------------------


@pytest.mark.superlink
def test_a_terminated_launcher_takes_its_superlink_with_it() -> None:
    code = """
import time
from fedridge_flwr.app.launch import local_superlink
with local_superlink() as running:
    print(running.environment["FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"], flush=True)
    time.sleep(600)
"""
    launcher = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    port = int(launcher.stdout.readline())
    socket.create_connection(("127.0.0.1", port), timeout=60).close()
    launcher.terminate()
    assert launcher.wait(timeout=300) == 143
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)


LOST = ("finished:failed", END_LOST)
BROKEN = ("finished:failed", "Simulation failed with exception: broken")
WELL = ("finished:completed", "")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([WELL], "output 1"),
        ([LOST, WELL], "output 2"),
        ([LOST, LOST], None),
        ([LOST, BROKEN], None),
        ([BROKEN, WELL], None),
    ],
)
def test_a_run_whose_end_was_lost_is_run_once_more_and_no_other(
    ends: list[tuple[str, str]], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, left = (f"output {k}" for k in (1, 2)), iter(ends)
    monkeypatch.setattr(launch.processes, "stream", lambda *_: next(outputs))
    monkeypatch.setattr(LocalSuperLink, "_last_run", lambda _: next(left))
    link = LocalSuperLink({})
    if expected is None:
        with pytest.raises(FedRidgeError, match="finished:failed"):
            link.run(PROJECT, num_supernodes=2, echo=False)
    else:
        assert link.run(PROJECT, num_supernodes=2, echo=False) == expected


def test_flower_still_says_so_of_a_run_whose_end_it_lost() -> None:
    from flwr.supercore.corestate import sql_corestate

    assert f'"{END_LOST}"' in Path(sql_corestate.__file__).read_text(encoding="utf-8")


def distance(folder: Path, settings: AppSettings, K: int) -> float:
    model = RidgeModel.load(folder / "model.json")
    rows = pooled_rows(settings, K)
    ridge = Ridge(alpha=settings.alpha).fit(rows.X, rows.y)
    error = np.linalg.norm(model.coef_ - ridge.coef_) / np.linalg.norm(ridge.coef_)
    return float(error)


@pytest.mark.superlink
def test_flwr_run_compares_and_writes_everything(
    superlink: LocalSuperLink, tmp_path: Path
) -> None:
    config = {"dataset": "synthetic", "d": 12, "n": 30, "compare-rounds": 3}
    output = superlink.run(
        PROJECT,
        num_supernodes=5,
        run_config={**config, "output-dir": str(tmp_path)},
        echo=False,
    )
    settings = AppSettings(dataset="synthetic", d=12, n=30)
    assert distance(tmp_path, settings, 5) < 1e-12
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert table.splitlines()[2] in output, "what is printed is what is written"
    for method in ("One-Shot (FedRidge)", "FedAvg", "FedProx", "Pooled ridge"):
        assert f"| {method}" in table
    assert "5 clients" in table
    assert "flwr 1." in table
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert len(report["participants"]) == 5
    assert (tmp_path / "comparison.png").stat().st_size > 10_000


@pytest.mark.superlink
def test_the_launcher_reports_failure_by_its_exit_code(
    tmp_path: Path, capsys: Any
) -> None:
    """And why: Flower ends such a run with 0, and takes values of any type."""
    options = ["--supernodes", "2", "--output-dir", str(tmp_path)]
    assert main([*options, "-c", "alpha='x' seed=1"]) == 1
    assert "alpha must be a number of at least 0" in capsys.readouterr().err


# ---- what else a run writes; in this process, as the transport makes no difference ---


def run_here(folder: Path, n_nodes: int, **config: object) -> dict[str, Any]:
    """Run the app into a folder, and return its report."""
    given = {key.replace("_", "-"): value for key, value in config.items()}
    run_app(server_app, client_app, n_nodes, {**given, "output-dir": str(folder)})
    found: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    return found


def test_a_secure_sum_is_a_setting_of_the_app(tmp_path: Path) -> None:
    report = run_here(tmp_path, 4, dataset="diabetes", secure=True)
    assert len(report["participants"]) == 4
    assert report["mode"].startswith("secure sum")
    assert distance(tmp_path, AppSettings(), 4) < 1e-12
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    (line,) = (each for each in table.splitlines() if "FedRidge, secure sum" in each)
    assert [cell.strip() for cell in line.split("|")][2] == str(SECURE_ROUNDS)
    with pytest.raises(FedRidgeError, match="the secure sum needs 3 clients"):
        run_here(tmp_path, 2, dataset="diabetes", secure=True)


def test_a_bare_run_says_how_to_get_more_supernodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = mock.Mock()
    monkeypatch.setattr(log, "warning", warning)
    run_here(tmp_path, 2, dataset="digits")
    assert "num-supernodes=20" in str(warning.call_args_list)
    assert distance(tmp_path, AppSettings(dataset="digits"), 2) < 1e-12


def test_a_run_chooses_alpha_and_draws_how(tmp_path: Path, capsys: Any) -> None:
    report = run_here(tmp_path, 10, cv="clients")
    model = RidgeModel.load(tmp_path / "model.json")
    assert distance(tmp_path, AppSettings(alpha=model.alpha_), 10) < 1e-12
    printed = capsys.readouterr().out
    assert "leaving out 10 clients in turn, 30 candidates" in printed
    assert len(report["selection"]["losses"]) == 10
    assert report["selection"]["bytes_down"] > 10 * 8 * 30 * 11
    assert (tmp_path / "alpha.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page == page_from_folder(tmp_path)
    assert "diabetes, 10 clients" in page
    assert (tmp_path / "figures" / "coefficients.png").stat().st_size > 10_000


def test_a_run_with_privacy_tells_what_is_promised(tmp_path: Path, capsys: Any) -> None:
    rows = {"dataset": "synthetic", "d": 5, "n": 400}
    report = run_here(tmp_path, 5, **rows, epsilon=5.0, x_norm_bound=3.0, y_bound=3.0)
    assert "epsilon 5, delta 1e-05 for each record" in capsys.readouterr().out
    assert "FedRidge, private" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert report["privacy"]["epsilon"] == 5.0
    model = RidgeModel.load(tmp_path / "model.json")
    assert model.privacy_ is not None
    assert model.privacy_["delta"] == 1e-5
    assert "epsilon 5" in model.summary()
    assert distance(tmp_path, AppSettings(dataset="synthetic", d=5, n=400), 5) < 0.3


def test_a_notebook_that_wants_colours_gets_none_from_flower(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as ipykernel does
    monkeypatch.setenv("KEPT", "1")
    found = processes.flower_environment(tmp_path)
    assert "FORCE_COLOR" not in found
    assert found["KEPT"] == "1"


def test_a_missing_ray_gives_the_install_command(monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FedRidgeError, match="pip install 'fedridge-flwr"):
        local_superlink().__enter__()
