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
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from fedridge_flwr import FedRidge, SufficientStatistics, ridge_client_app, solve

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
CLIENTS, ROUNDS, ALPHA = 10, 30, 1.0

# %% [markdown]
# ## What a client sends
#
# A client turns its rows into one small symmetric matrix. The statistics of parts add
# up to the statistics of the whole. This is the entire method.


# %%
def diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X * np.sqrt(len(X)), y  # columns of unit variance, as FedAvg likes them


X, y = diabetes()
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
# A client only needs `load_data`. One line turns it into a ClientApp.
# (`share_feature_names` sends column names, for a readable summary; by default only a
# hash is sent.)


# %%
def load_data(context: Context):
    k = context.node_config["partition-id"]
    n = context.node_config["num-partitions"]
    X, y = diabetes()
    return X[k::n], y[k::n]


ridge_app = ridge_client_app(load_data, share_feature_names=True)

# %% [markdown]
# For the comparison the same clients also take gradient steps for FedAvg. FedAvg gets
# the same objective (alpha divided by the number of all rows) and a step of 1/L. This
# step is safe, but in practice nobody knows it beforehand.


# %%
def curvature(X) -> float:
    return np.linalg.norm(np.column_stack([X, np.ones(len(X))]), 2) ** 2 / len(X)


PENALTY = ALPHA / len(X)
STEP = 1 / (max(curvature(X[k::CLIENTS]) for k in range(CLIENTS)) + PENALTY)
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    if "fedridge-protocol" in message.content["config"]:
        return ridge_app(message, context)
    X, y = (table.to_numpy() for table in load_data(context))
    coef, intercept = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(5):
        error = X @ coef + intercept - y
        coef = coef - STEP * (X.T @ error / len(y) + PENALTY * coef)
        intercept = intercept - STEP * error.mean()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord([coef, intercept]), "metrics": metrics})
    return Message(content, reply_to=message)


# %% [markdown]
# The server. FedRidge replaces FedAvg. (FedAvg runs first here and includes the start
# of Ray, so that the seconds in FedRidge's report are those of one round.)

# %%
strategy = FedRidge(alpha=ALPHA, min_available_nodes=CLIENTS)
distances, r2_by_round = [], []
server_app = ServerApp()


def distance_to_pooled(coef) -> float:
    return float(np.linalg.norm(coef - pooled.coef_) / np.linalg.norm(pooled.coef_))


def look(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    coef, intercept = arrays.to_numpy_ndarrays()
    distances.append(distance_to_pooled(coef))
    r2_by_round.append(1 - np.mean((y - X @ coef - intercept) ** 2) / np.var(y))
    return MetricRecord({"distance": distances[-1]})


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    fedavg = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS
    )
    fedavg.start(
        grid,
        initial_arrays=ArrayRecord([np.zeros(10), np.zeros(1)]),
        num_rounds=ROUNDS,
        evaluate_fn=look,
    )
    strategy.start(grid)


run_simulation(
    server_app,
    client_app,
    num_supernodes=CLIENTS,
    backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0},
        "init_args": {"log_to_driver": False, "logging_level": "error"},
    },
)

# %% [markdown]
# ## The result

# %%
print(strategy.model_.summary())

# %%
print(strategy.report_)

# %%
oneshot = distance_to_pooled(strategy.model_.coef_)
assert oneshot < 1e-12

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.5), layout="constrained")
left.semilogy(distances, lw=2, label=f"FedAvg, {ROUNDS} rounds")
left.semilogy([1], [oneshot], "*", ms=16, color="#2ca02c", label="FedRidge, one round")
left.set(title="coefficients", ylabel="distance to pooled ridge", ylim=(1e-16, 30))
right.plot(r2_by_round, lw=2)
right.plot([1], [strategy.model_.r2_], "*", ms=16, color="#2ca02c")
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
print(f"FedRidge:         distance {oneshot:.0e}, R² {strategy.model_.r2_:.4f}")
assert distances[-1] > 0.1
assert r2_by_round[5] > strategy.model_.r2_ - 0.01
print(f"correlation of the columns s1 and s2: {X.corr().loc['s1', 's2']:.2f}")

# %% [markdown]
# FedAvg's *predictions* are nearly as good after a few rounds. Its *coefficients* are
# still far off. Some columns are nearly linear combinations of others, and gradient
# descent is slow to separate them. A direct solution is not affected. The difference
# matters if you interpret coefficients.
#
# ## Solve again without another round
#
# The total is kept in `strategy.statistics_`. Another alpha, or no intercept, needs no
# further round.

# %%
for alpha in (0.0, 10.0, 100.0):
    again = solve(strategy.statistics_, alpha=alpha)
    reference = Ridge(alpha=alpha).fit(X, y)
    assert np.allclose(again.coef_, reference.coef_, rtol=1e-9)
    print(f"alpha {alpha:5}   R² on the training rows: {again.r2_:.4f}")

# %% [markdown]
# The model predicts like scikit-learn's, and converts to one.

# %%
assert np.allclose(strategy.model_.predict(X), pooled.predict(X), rtol=1e-12)
print(strategy.model_.to_sklearn(), strategy.model_)

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
# - [Existing apps](../docs/how-to/existing-app.md): the diff for your FedAvg app.
#   [Deployment](../docs/how-to/deployment.md): run it at real sites.
