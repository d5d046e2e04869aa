"""What privacy costs, and what its intervals cover: `make private-costs`.

Into docs/results/private-costs.json, from which `make readme` makes tables, and
docs/figures/private-costs.png. All noise is simulated, from fixed seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedridge_flwr import DifferentialPrivacy, SufficientStatistics, infer
from fedridge_flwr.app.synthetic import paper_rows
from fedridge_flwr.privacy import infer_private
from fedridge_flwr.privacy.intervals import reason_to_withhold
from fedridge_flwr.privacy.planning import simulated_release
from fedridge_flwr.privacy.private_solve import solve_release

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "private-costs.json"
FIGURE = ROOT / "docs" / "figures" / "private-costs.png"
CLIENTS, ROWS, DELTA, RELEASES = 20, 400, 1e-5, 500
SPLIT = {"gram": 0.35, "moment": 0.55, "target_gram": 0.10}
EPSILONS, FEATURES = (0.5, 1.0, 3.0, 10.0), (5, 10, 20, 50)
ALL_ROWS = (500, 2_000, 10_000)


@dataclass(frozen=True)
class Setting:
    """One line of the table of coverage."""

    features: int
    epsilon: float
    variances: str = "equal"
    intercept: bool = False
    targets: int = 1
    rows: int = ROWS


@dataclass(frozen=True)
class Coverage:
    """How often 95% intervals cover, and how wide they are beside the exact ones."""

    setting: Setting
    releases: int
    withheld: int
    coverage: float | None
    half_width: float | None
    exact_half_width: float | None


def settings() -> Iterator[Setting]:
    """Yield what is simulated."""
    for variances in ("equal", "1/i"):
        for features in (5, 10, 20):
            for epsilon in (1.0, 3.0):
                yield Setting(features, epsilon, variances)
    for features in (5, 10):
        for epsilon in (1.0, 3.0):
            yield Setting(features, epsilon, intercept=True)
            yield Setting(features, epsilon, targets=2)


AT_THE_LIMIT = (
    Setting(5, 1.0, rows=80),
    Setting(10, 1.0, rows=180),
    Setting(20, 1.0, rows=480),
)
"""So few rows that some releases have intervals and some have none."""


def coverage(setting: Setting, releases: int = RELEASES) -> Coverage:
    """Simulate releases of the paper's data, and count what the intervals cover."""
    covered, widths, exact = [], [], []
    for seed in range(releases):
        X, Y, W = _rows(setting, seed)
        privacy = DifferentialPrivacy(
            setting.epsilon,
            DELTA,
            x_norm_bound=1.1 * math.sqrt(setting.features),
            y_bound=3.0 * math.sqrt(setting.targets),
            budget_split=SPLIT,
        )
        rng = np.random.default_rng([seed, setting.features, int(10 * setting.epsilon)])
        stats = simulated_release(
            privacy, X, Y, 1.0, CLIENTS, rng, intercept=setting.intercept
        )
        if reason_to_withhold(stats):
            continue
        ci = infer_private(stats).ci()
        covered.append(np.mean((ci[..., 0] <= W) & (ci[..., 1] >= W)))
        widths.append(np.median(ci[..., 1] - ci[..., 0]) / 2)
        pooled = SufficientStatistics.from_data(X, Y)
        own = infer(pooled, alpha=0.0, fit_intercept=setting.intercept).ci
        exact.append(np.median(own[..., 1] - own[..., 0]) / 2)
    # Of very few that were given there is nothing to say.
    known = len(covered) >= releases // 10
    return Coverage(
        setting,
        releases,
        releases - len(covered),
        float(np.mean(covered)) if known else None,
        float(np.median(widths)) if known else None,
        float(np.median(exact)) if known else None,
    )


def _rows(setting: Setting, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of all clients, their targets, and the coefficients behind them."""
    d, spectrum = setting.features, 0.0 if setting.variances == "equal" else 1.0
    parts = [
        paper_rows(
            k,
            rows=setting.rows,
            features=d,
            gamma=0.5,
            seed=seed,
            spectrum=spectrum,
        )
        for k in range(CLIENTS)
    ]
    X, y = (np.concatenate([part[j] for part in parts]) for j in (0, 1))
    w = np.random.default_rng([seed, 0]).normal(size=d)
    W = w / np.linalg.norm(w)
    if setting.intercept:
        # Features and target with a mean, as subtracted typical values leave one.
        y, X = y + 0.5 + 0.2 * W.sum(), X + 0.2
        W = np.concatenate([[0.5], W])
    if setting.targets == 2:
        rng = np.random.default_rng([seed, 1])
        second = rng.normal(size=d)
        second /= np.linalg.norm(second)
        y = np.column_stack([y, X @ second + 0.1 * rng.normal(size=len(X))])
        W = np.array([W, second])
    return X, y, np.atleast_2d(W)


def costs() -> list[dict[str, float]]:
    """Return the share of R² that noise is expected to take, for five clients."""
    found = []
    for n_rows in ALL_ROWS:
        for epsilon in EPSILONS:
            for d in FEATURES:
                privacy = DifferentialPrivacy(
                    epsilon, DELTA, x_norm_bound=math.sqrt(d), y_bound=3.0
                )
                lost = privacy.expected_loss(d, n_rows, 5)
                found.append(
                    {
                        "rows": n_rows,
                        "epsilon": epsilon,
                        "features": d,
                        "lost": min(lost, 1.0),
                        "rows_needed": privacy.rows_needed(d, 5, 0.9 * math.sqrt(d)),
                    }
                )
    return found


AUTO = {"n_features": 100, "n_rows": 8_000, "n_clients": CLIENTS}
"""What "auto" is told of the rows below."""


def lost_to_noise(privacy: DifferentialPrivacy, seeds: int = 6) -> float:
    """Return the share of the signal that one round loses on correlated features.

    Rows of normal features with principal components of variance 1/i.
    """
    d, n, lost = AUTO["n_features"], AUTO["n_rows"], []
    variances = 1.0 / np.arange(1, d + 1)
    variances *= d / variances.sum()
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        X = (rng.normal(size=(n, d)) * np.sqrt(variances)) @ turn
        w = rng.normal(size=d)
        w /= np.sqrt(variances @ (turn @ w) ** 2)
        y = X @ w + 0.1 * rng.normal(size=n)
        noise = np.random.default_rng([seed, int(10 * privacy.epsilon)])
        stats = simulated_release(privacy, X, y, 1.0, CLIENTS, noise)
        error = solve_release(stats, 0.01, fit_intercept=False).coef_ - w
        lost.append(float(variances @ (turn @ error) ** 2))
    return float(np.mean(lost))


def on_correlated(epsilon: float) -> dict[str, DifferentialPrivacy]:
    """Return the default, what "auto" chooses, and what it does if it is told."""
    common = {"delta": DELTA, "x_norm_bound": 11.0, "y_bound": 3.0}
    chosen = {**common, "estimator": "auto"}
    return {
        "default": DifferentialPrivacy(epsilon, **common),
        "auto": DifferentialPrivacy(epsilon, **chosen, expected=AUTO),
        "decay": DifferentialPrivacy(epsilon, **chosen, expected={**AUTO, "decay": 1}),
    }


def choices() -> list[dict[str, float]]:
    """Return what each of them loses at some epsilons."""
    return [
        {"epsilon": epsilon}
        | {name: lost_to_noise(each) for name, each in on_correlated(epsilon).items()}
        for epsilon in (0.5, 1.0, 2.0, 5.0, 10.0)
    ]


def draw(found: list[dict[str, float]]) -> None:
    """Draw what is left of R² against epsilon, a panel for each number of rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    panels = figure.subplots(1, len(ALL_ROWS), sharey=True)
    for panel, n_rows in zip(panels, ALL_ROWS, strict=True):
        for d, marker in zip(FEATURES, "os^D", strict=True):
            own = [f for f in found if (f["rows"], f["features"]) == (n_rows, d)]
            left = [100.0 * (1.0 - f["lost"]) for f in own]
            panel.plot(EPSILONS, left, marker=marker, label=f"{d} features")
        panel.set(title=f"{n_rows:,} rows", xscale="log", xlabel="epsilon")
        panel.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set(ylabel="% of R² that is left", ylim=(-3, 103))
    panels[-1].legend(loc="lower right", fontsize="small")
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    """Write results and figure."""
    found = costs()
    draw(found)
    covered = []
    for setting in (*settings(), *AT_THE_LIMIT):
        covered.append(asdict(coverage(setting)))
        print(covered[-1], flush=True)
    content = {"costs": found, "choices": choices(), "coverage": covered}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
