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
# # Clients that differ, and clients that fail
#
# Two things make federated learning hard: clients differ, and some of them do not
# answer. This notebook shows how both affect Flower's FedAvg and FedRidge.
#
# In short: FedRidge adds up sums over rows. A sum does not depend on which client holds
# a row. So the model equals pooled ridge regression on the rows of the clients that
# answered, and the report lists these clients.

# %%
import logging
import time
import warnings
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    FedRidge,
    NotEnoughClientsError,
    SufficientStatistics,
    ridge_client_app,
    solve,
)

logging.disable(logging.ERROR)  # clients fail on purpose below
warnings.filterwarnings("ignore")
CLINICS, FEATURES, ROUNDS, ALPHA = 10, 10, 16, 1.0

# %% [markdown]
# ## Three federations
#
# Ten clinics, ten features, and one relation that holds at all of them. It is almost
# linear: it contains a square, as real relations usually do.
#
# - **alike**: every clinic draws its patients from the same population.
# - **shifted**: every clinic has a different population. Means and spreads differ.
# - **partial**: every clinic leaves three of the ten features unmeasured, and writes
#   the population mean, zero, in their place.

# %%
TRUE_COEF = np.array([3.0, -2.0, 2.0, -1.0, 1.0, -1.0, 0.5, 0.5, 0.0, 0.0])


def rows_of(world: str, clinic: int):
    rng = np.random.default_rng([7, clinic])
    n = int(rng.integers(40, 160))
    X = rng.normal(size=(n, FEATURES)) + 0.3 * rng.normal(size=(n, 1))
    if world == "shifted":
        X = X * rng.uniform(0.5, 1.5, size=FEATURES) + rng.normal(size=FEATURES)
    y = X @ TRUE_COEF + 0.5 * X[:, 0] ** 2 + rng.normal(size=n)
    if world == "partial":
        X[:, rng.permutation(FEATURES)[:3]] = 0.0
    return X, y


def pooled_rows(world: str, clinics=range(CLINICS)):
    parts = [rows_of(world, clinic) for clinic in clinics]
    return np.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])


# %%
WORLDS = ("alike", "shifted", "partial")
figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.2), layout="constrained", sharey=True)
for axis, world in zip(axes, WORLDS, strict=True):
    own = [rows_of(world, clinic)[0] for clinic in range(CLINICS)]
    means = [np.where(X.any(axis=0), X.mean(axis=0), np.nan) for X in own]
    image = axis.imshow(means, cmap="RdBu_r", vmin=-2.5, vmax=2.5)
    axis.set(title=world, xlabel="feature", xticks=[0, 4, 9], yticks=[0, 4, 9])
    axis.set_facecolor("0.6")
axes[0].set_ylabel("clinic")
figure.colorbar(image, ax=axes, label="mean at the clinic", shrink=0.85, extend="both")
plt.show()

# %% [markdown]
# Grey marks features that a clinic does not measure.
#
# ## Clients that answer both strategies
#
# FedRidge only needs `load_data`. FedAvg needs gradient steps, and the comparison is
# fair to it:
#
# - it minimises the same objective: its penalty is alpha divided by the number of all
#   rows;
# - its step is 1/L, where L is the largest curvature at any clinic. This step is safe
#   everywhere. We look at the rows of all clinics to find it. In a real federation you
#   would have to search for it.
#
# Two more federations have the rows of *partial*, and clinics that fail. In **dropout**
# three clinics are missing, each for a different reason. In **flaky** every clinic is
# offline in three rounds out of ten.

# %%
GONE = (2, 5, 7)
OFFLINE = np.random.default_rng(0).random((ROUNDS + 1, CLINICS)) < 0.3
ROWS = {world: world for world in WORLDS} | {"dropout": "partial", "flaky": "partial"}


def load_data(world: str, context: Context):
    clinic = context.node_config["partition-id"]
    if world == "dropout" and clinic == 2:
        raise DataError("clinic 2 waits for its ethics committee")
    if world == "dropout" and clinic == 5:
        raise FileNotFoundError("/data/clinic-5/patients.csv")
    if world == "dropout" and clinic == 7:
        time.sleep(4)
    return rows_of(ROWS[world], clinic)


ridge_apps = {world: ridge_client_app(partial(load_data, world)) for world in ROWS}
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    world, clinic = config["world"], context.node_config["partition-id"]
    if world == "flaky" and OFFLINE[config["server-round"], clinic]:
        raise ConnectionError(f"clinic {clinic} is offline")
    if "fedridge-protocol" in config:
        return ridge_apps[world](message, context)
    if world == "dropout" and clinic in GONE:
        raise ConnectionError(f"clinic {clinic} is gone")
    X, y = load_data(world, context)
    coef, intercept = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(config["local-steps"]):
        error = X @ coef + intercept - y
        slope = X.T @ error / len(y) + config["penalty"] * coef
        coef = coef - config["step"] * slope
        intercept = intercept - config["step"] * error.mean()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord([coef, intercept]), "metrics": metrics})
    return Message(content, reply_to=message)


# %% [markdown]
# ## One server for everything
#
# FedAvg is Flower's own class. After each round we record the distance between its
# coefficients and scikit-learn's on the pooled rows.


# %%
def pooled_ridge(world: str, clinics=range(CLINICS)) -> Ridge:
    return Ridge(alpha=ALPHA).fit(*pooled_rows(ROWS[world], clinics))


def distance(coef, pooled: Ridge) -> float:
    return float(np.linalg.norm(coef - pooled.coef_) / np.linalg.norm(pooled.coef_))


def curvature(X) -> float:
    return np.linalg.norm(np.column_stack([X, np.ones(len(X))]), 2) ** 2 / len(X)


def safe_step(world: str, clinics=range(CLINICS)) -> float:
    steepest = max(curvature(rows_of(ROWS[world], clinic)[0]) for clinic in clinics)
    return 1 / (steepest + ALPHA / len(pooled_rows(ROWS[world], clinics)[1]))


def run_fedavg(grid: Grid, world: str, clinics=range(CLINICS), local_steps: int = 5):
    pooled = pooled_ridge(world, clinics)
    n_rows = len(pooled_rows(ROWS[world], clinics)[1])
    distances = []

    def note_distance(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        distances.append(distance(arrays.to_numpy_ndarrays()[0], pooled))
        return MetricRecord({"distance": distances[-1]})

    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=CLINICS, min_available_nodes=CLINICS
    )
    result = strategy.start(
        grid,
        initial_arrays=ArrayRecord([np.zeros(FEATURES), np.zeros(1)]),
        num_rounds=ROUNDS,
        train_config=ConfigRecord(
            {
                "world": world,
                "local-steps": local_steps,
                "step": safe_step(world, clinics),
                "penalty": ALPHA / n_rows,
            }
        ),
        evaluate_fn=note_distance,
    )
    return distances, result.arrays.to_numpy_ndarrays()


# %%
ridge, fedavg = {}, {}
still_there = [clinic for clinic in range(CLINICS) if clinic not in GONE]
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    for world in WORLDS:
        ridge[world] = FedRidge(alpha=ALPHA, min_available_nodes=CLINICS)
        ridge[world].start(grid, train_config=ConfigRecord({"world": world}))
        fedavg[world] = run_fedavg(grid, world)
    fedavg["one step"] = run_fedavg(grid, "partial", local_steps=1)
    fedavg["dropout"] = run_fedavg(grid, "dropout", still_there, local_steps=1)
    fedavg["flaky"] = run_fedavg(grid, "flaky", local_steps=1)

    strict = FedRidge(alpha=ALPHA, min_train_nodes=CLINICS)
    try:
        strict.start(grid, train_config=ConfigRecord({"world": "flaky"}))
    except NotEnoughClientsError as error:
        ridge["refused"] = error
    ridge["dropout"] = FedRidge(alpha=ALPHA, min_available_nodes=CLINICS)
    ridge["dropout"].start(
        grid, train_config=ConfigRecord({"world": "dropout"}), timeout=3.0
    )


run_simulation(
    server_app,
    client_app,
    num_supernodes=CLINICS,
    backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0},
        "init_args": {"log_to_driver": False, "logging_level": "error"},
    },
)

# %% [markdown]
# ## Clients that differ

# %%
print("           distance to pooled ridge     R² on all rows       FedAvg's")
print("           FedRidge    FedAvg           pooled   FedAvg      step")
for world in WORLDS:
    X, y = pooled_rows(world)
    pooled, model = pooled_ridge(world), ridge[world].model_
    exact = distance(model.coef_, pooled)
    assert exact < 1e-12
    assert np.allclose(model.predict(X), pooled.predict(X), rtol=1e-12, atol=1e-12)
    distances, (coef, intercept) = fedavg[world]
    r2 = 1 - np.mean((y - X @ coef - intercept) ** 2) / y.var()
    print(
        f"{world:9}  {exact:.1e}     {distances[-1]:.1e}          "
        f"{pooled.score(X, y):.4f}   {r2:.4f}      {safe_step(world):.3f}"
    )
ends = {name: distances[-1] for name, (distances, _) in fedavg.items()}
assert ends["alike"] < 0.01 < min(ends["shifted"], ends["partial"])
assert ends["one step"] < ends["partial"] / 3

# %%
COLOURS = {"alike": "#1f77b4", "shifted": "#ff7f0e", "partial": "#9467bd"}
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7, 4.6), sharex=True, height_ratios=[4, 1], layout="constrained"
)
for shift, (world, colour) in enumerate(COLOURS.items()):
    above.semilogy(fedavg[world][0], lw=2, color=colour, label=f"FedAvg, {world}")
    exact = distance(ridge[world].model_.coef_, pooled_ridge(world))
    below.semilogy(
        [0.7 + 0.3 * shift],
        [exact],
        "*",
        ms=13,
        color=colour,
        label=f"FedRidge, {world}",
    )
above.semilogy(
    fedavg["one step"][0],
    "--",
    color=COLOURS["partial"],
    label="FedAvg, partial, one local step",
)
below.set(ylim=(1e-16, 1e-13), yticks=[1e-16, 1e-13])
below.set(xlabel="round", xticks=range(0, ROUNDS + 1, 4))
figure.supylabel("distance to pooled ridge", fontsize="medium")
for axis in (above, below):
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
plt.show()

# %% [markdown]
# **If clients are alike, FedAvg works well.** It comes within a percent of the pooled
# coefficients in a few rounds, and its predictions are as good.
#
# **If clients differ, it converges to a different point.** In its five local steps
# every clinic moves towards the best model for its own rows. Clinics with other
# patients, or with other features, move in other directions. Their average does not
# lead to the pooled model, and more rounds do not help. This is called client drift.
#
# **It is also slower** if populations are shifted: one step size has to suit all
# clinics, so the most extreme clinic determines it.
#
# Drift can be avoided, as the dashed line shows. One local step per round is plain
# gradient descent. It converges to the right point, in more rounds. Coefficients are
# affected more than predictions: look at R². If you only need predictions at the same
# clinics, FedAvg may be sufficient.
#
# FedRidge has no steps to tune, and no drift. Differences between clients only add
# information to its sums.

# %% [markdown]
# ## Clients that fail
#
# Three clinics did not contribute: one sent a reason, one crashed, one exceeded the
# timeout of three seconds.

# %%
strategy = ridge["dropout"]
print(strategy.report_)

# %% [markdown]
# Clients are identified by Flower's node ids. A client sends the server a reason by
# raising a `DataError`. For any other exception in `load_data` only type and line are
# sent, because messages may quote data: the path of that file stays in the clinic's own
# log.
#
# The model is exact for the other seven.

# %%
survivors = pooled_ridge("dropout", still_there)
print("distance to ridge on the rows of those that answered:", end=" ")
print(f"{distance(strategy.model_.coef_, survivors):.1e}")
assert distance(strategy.model_.coef_, survivors) < 1e-12
assert strategy.report_.n_rows == len(pooled_rows("partial", still_there)[1])
assert len(strategy.report_.participants) == len(still_there)
assert len(strategy.report_.failures) == len(GONE)
assert "patients.csv" not in str(strategy.report_)

# %% [markdown]
# To require a number of clients, set `min_train_nodes`: with fewer answers the fit
# raises an error. This is the error when some of the flaky clinics were offline. (Their
# own app crashed, outside of `load_data`. Flower sends such messages unchanged.)

# %%
print(ridge["refused"])

# %% [markdown]
# Nothing is lost if a clinic is late. Clinic 2 may take part next week, and its
# statistics are simply added.

# %%
late = SufficientStatistics.from_data(*rows_of("partial", 2))
model = solve(strategy.statistics_ + late, alpha=ALPHA)
assert distance(model.coef_, pooled_ridge("partial", [*still_there, 2])) < 1e-12
print(strategy.model_, model, sep="\n")

# %% [markdown]
# ### And FedAvg?
#
# FedAvg runs with one local step, so that drift plays no role, and without the slow
# clinic, for which it would have to wait in every round.

# %%
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.semilogy(fedavg["one step"][0], "--", color="0.5", label="everybody is there")
axis.semilogy(fedavg["dropout"][0], lw=2, label="three are gone, the others stay")
axis.semilogy(fedavg["flaky"][0], lw=2, label="each is offline now and then")
axis.set(xlabel="round", ylabel="distance to pooled ridge", title="FedAvg")
axis.set_xticks(range(0, ROUNDS + 1, 4))
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False)
plt.show()
last = slice(-4, None)
for name in ("dropout", "flaky"):
    print(f"{name}, last rounds:", np.round(fedavg[name][0][last], 4))
assert fedavg["dropout"][0][-1] < 0.01 < min(fedavg["flaky"][0][last])
assert max(fedavg["flaky"][0][last]) > 2 * min(fedavg["flaky"][0][last])

# %% [markdown]
# FedAvg tolerates clinics that are *missing throughout*: it converges to the ridge
# model of the others, slowly as before. Clinics that are *intermittently offline* are
# worse. In every round the average belongs to another set of rows, and the model does
# not converge. It does not correspond to any well-defined set of rows.
#
# With FedRidge every client has to be online once. The report lists the clients that
# were.
#
# Next: [03_choosing_alpha.ipynb](03_choosing_alpha.ipynb).
