# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One exact round, compared with FedAvg
#
# Ten hospitals hold rows of scikit-learn's diabetes data. The rows may not be pooled.
# We fit ridge regression over all of them in **one** round of Flower, compare the
# result with scikit-learn on the pooled rows, and run Flower's own FedAvg for thirty
# rounds.

# %%
import json
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from fedridge_flwr import FitReport, RidgeModel, SufficientStatistics, solve
from fedridge_flwr.app.launch import local_superlink

CLIENTS, ROUNDS, ALPHA = 10, 30, 1.0
APP = Path("quickstart_app")
shutil.rmtree(APP, ignore_errors=True)
APP.mkdir()

# %% [markdown]
# ## What a client sends
#
# A client turns its rows into one small symmetric matrix. The statistics of parts add
# up to the statistics of the whole. This is the entire method.

# %%
X, y = load_diabetes(return_X_y=True, as_frame=True)
X *= np.sqrt(len(X))  # columns of unit variance, as FedAvg likes them
part_a = SufficientStatistics.from_data(X[:200], y[:200])
part_b = SufficientStatistics.from_data(X[200:], y[200:])
total = part_a + part_b
print(total, "as", total.to_array().size, "numbers")

pooled = Ridge(alpha=ALPHA).fit(X, y)
model = solve(total, alpha=ALPHA)
gap = np.abs(model.coef_ - pooled.coef_).max()
print(f"largest difference to scikit-learn's coefficients: {gap:.0e}")

# %% [markdown]
# ## The same in Flower
#
# A Flower app is a folder with a client, a server and a `pyproject.toml`. The client
# only needs `load_data`; `ridge_client_app` makes a ClientApp of it.
# (`share_feature_names` sends column names, for a readable summary; by default only a
# hash is sent.)
#
# For the comparison the same clients also take gradient steps for FedAvg. Without it,
# `app = ridge_client_app(load_data)` would be the end of the file.

# %%
# %%writefile quickstart_app/client_app.py
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_diabetes

from fedridge_flwr import ridge_client_app


def load_data(context: Context):
    """Return the rows of one hospital."""
    k = context.node_config["partition-id"]
    n = context.node_config["num-partitions"]
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X[k::n] * np.sqrt(len(X)), y[k::n]


ridge_app = ridge_client_app(load_data, share_feature_names=True)
app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    if "fedridge-protocol" in message.content["config"]:
        return ridge_app(message, context)
    X, y = (table.to_numpy() for table in load_data(context))
    step, penalty = context.run_config["step"], context.run_config["penalty"]
    coef, intercept = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(5):
        error = X @ coef + intercept - y
        coef = coef - step * (X.T @ error / len(y) + penalty * coef)
        intercept = intercept - step * error.mean()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord([coef, intercept]), "metrics": metrics})
    return Message(content, reply_to=message)


# %% [markdown]
# The server. `FedRidge` replaces `FedAvg`: no initial model, no rounds, no evaluation
# on the way. (FedAvg runs first here and includes the start of Ray, so that the seconds
# in FedRidge's report are those of one round.)

# %%
# %%writefile quickstart_app/server_app.py
import json
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedridge_flwr import FedRidge

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    folder, clients = Path(config["folder"]), config["clients"]

    models = []  # FedAvg's, after every round

    def keep(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        coef, intercept = arrays.to_numpy_ndarrays()
        models.append([*coef.tolist(), float(intercept[0])])
        return MetricRecord({})

    fedavg = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
    )
    fedavg.start(
        grid,
        initial_arrays=ArrayRecord([np.zeros(10), np.zeros(1)]),
        num_rounds=config["rounds"],
        evaluate_fn=keep,
    )
    (folder / "fedavg.json").write_text(json.dumps(models))

    strategy = FedRidge(alpha=config["alpha"], min_available_nodes=clients)
    strategy.start(grid)
    strategy.model_.save(folder / "model.json")
    strategy.report_.save(folder / "report.json")
    strategy.statistics_.save(folder / "total.stats")


# %%
PYPROJECT = """\
[project]
name = "quickstart"
version = "1.0.0"
description = "Ridge regression in one round, and FedAvg"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
folder = ""
clients = 2
rounds = 1
alpha = 1.0
step = 0.1
penalty = 0.0
"""
_ = (APP / "pyproject.toml").write_text(PYPROJECT)

# %% [markdown]
# In a terminal you would now type `flwr run quickstart_app --stream`. `local_superlink`
# does the same and stops everything that it started.
#
# FedAvg gets the same objective (alpha divided by the number of all rows) and a step of
# 1/L, where L is the largest curvature of that objective at any hospital. This step is
# safe, but in practice nobody knows it beforehand.


# %%
def curvature(X) -> float:
    return np.linalg.norm(np.column_stack([X, np.ones(len(X))]), 2) ** 2 / len(X)


penalty = ALPHA / len(X)
settings = {
    "folder": str(APP.resolve()),
    "clients": CLIENTS,
    "rounds": ROUNDS,
    "alpha": ALPHA,
    "penalty": penalty,
    "step": 1 / (max(curvature(X[k::CLIENTS]) for k in range(CLIENTS)) + penalty),
}
with local_superlink() as flower:
    flower.run(APP, num_supernodes=CLIENTS, run_config=settings, echo=False)

# %% [markdown]
# ## The result

# %%
model = RidgeModel.load(APP / "model.json")
print(model.summary())

# %%
print(FitReport.load(APP / "report.json"))

# %%
by_round = np.array(json.loads((APP / "fedavg.json").read_text()))


def distance_to_pooled(coef) -> float:
    return float(np.linalg.norm(coef - pooled.coef_) / np.linalg.norm(pooled.coef_))


def r2(coef, intercept) -> float:
    return float(1 - np.mean((y - X @ coef - intercept) ** 2) / np.var(y))


distances = [distance_to_pooled(each[:-1]) for each in by_round]
r2_by_round = [r2(each[:-1], each[-1]) for each in by_round]
oneshot = distance_to_pooled(model.coef_)
assert oneshot < 1e-12

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.5), layout="constrained")
left.semilogy(distances, lw=2, label=f"FedAvg, {ROUNDS} rounds")
left.semilogy([1], [oneshot], "*", ms=16, color="#2ca02c", label="FedRidge, one round")
left.set(title="coefficients", ylabel="distance to pooled ridge", ylim=(1e-16, 30))
right.plot(r2_by_round, lw=2)
right.plot([1], [model.r2_], "*", ms=16, color="#2ca02c")
right.axhline(pooled.score(X, y), ls=":", color="0.3", label="pooled ridge")
right.set(title="predictions", ylabel="R²", ylim=(0.4, 0.53))
for axis in (left, right):
    axis.set_xlabel("round")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="center right")
plt.show()

# %%
for after in (1, 5, ROUNDS):
    print(f"FedAvg, round {after:2}: distance {distances[after]:.3f}, ", end="")
    print(f"R² {r2_by_round[after]:.4f}")
print(f"FedRidge:         distance {oneshot:.0e}, R² {model.r2_:.4f}")
assert distances[-1] > 0.1
assert r2_by_round[5] > model.r2_ - 0.01
print(f"correlation of the columns s1 and s2: {X.corr().loc['s1', 's2']:.2f}")

# %% [markdown]
# FedAvg's *predictions* are nearly as good after a few rounds. Its *coefficients* are
# still far off. Some columns are nearly linear combinations of others, and gradient
# descent is slow to separate them. A direct solution is not affected. The difference
# matters if you interpret coefficients.
#
# ## Solve again without another round
#
# The total is in `strategy.statistics_`, and can be saved. Another alpha, or no
# intercept, needs no further round.

# %%
total = SufficientStatistics.load(APP / "total.stats")
for alpha in (0.0, 10.0, 100.0):
    again = solve(total, alpha=alpha)
    reference = Ridge(alpha=alpha).fit(X, y)
    assert np.allclose(again.coef_, reference.coef_, rtol=1e-9)
    print(f"alpha {alpha:5}   R² on the training rows: {again.r2_:.4f}")

# %% [markdown]
# The model predicts like scikit-learn's, and converts to one.

# %%
assert np.allclose(model.predict(X), pooled.predict(X), rtol=1e-12)
print(model.to_sklearn(), model)

# %% [markdown]
# ## Where to go next
#
# - [02_heterogeneity_and_dropout.ipynb](02_heterogeneity_and_dropout.ipynb): clients
#   that differ, and clients that fail.
# - [03_choosing_alpha.ipynb](03_choosing_alpha.ipynb): alpha by cross-validation,
#   without another round.
# - [04_privacy.ipynb](04_privacy.ipynb): a guarantee for every row, and its cost.
# - [05_high_dimension_and_kernels.ipynb](05_high_dimension_and_kernels.ipynb): many
#   features, and nonlinear models.
# - [08_yes_no_outcomes.ipynb](08_yes_no_outcomes.ipynb): odds ratios.
# - [Existing apps](../docs/how-to/existing-app.md): the diff for your FedAvg app.
#   [Deployment](../docs/how-to/deployment.md): run it at real sites.
