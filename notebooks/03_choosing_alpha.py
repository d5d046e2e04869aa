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
# # Choosing alpha
#
# How much should ridge regression shrink? Cross-validation answers this, but usually
# needs many fits. Here it needs none: the held-out losses of every alpha follow from
# the statistics that the clients have already sent.
#
# | `cv=` | leaves out | further messages |
# |---|---|---|
# | `"server"` | one client at a time; the server computes the losses | none |
# | `"clients"` | the same; every client computes its own losses | one small round |
# | `"gcv"` | single rows, by a formula (generalized cross-validation) | none |
#
# We use all three on scikit-learn's diabetes data, compare the losses with
# scikit-learn, and then look at clients that differ, where it matters what is left out.

# %%
import logging
import warnings
from functools import partial
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from IPython.display import Image, display
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import LeaveOneGroupOut

from fedridge_flwr import FedRidge, ridge_client_app, select_alpha, solve_path

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
CLINICS = 20

# %% [markdown]
# ## Two federations
#
# - **diabetes**: 442 patients, randomly assigned to 20 clinics. Clinics are alike.
# - **clinics**: 20 clinics of 30 patients. Five columns describe the patient and
#   determine the outcome. Ten describe the clinic: they are the same for all of its
#   patients, and do not affect the outcome. But every clinic has its own level, which
#   no column explains.


# %%
def diabetes_rows(clinic: int):
    X, y = load_diabetes(return_X_y=True)
    X = X * np.sqrt(len(y))  # columns of unit variance
    return X[clinic::CLINICS], y[clinic::CLINICS]


def clinic_rows(clinic: int):
    effects = np.random.default_rng(0).normal(size=5)
    rng = np.random.default_rng([0, clinic])
    of_patients = rng.normal(size=(30, 5))
    of_clinic = np.tile(rng.normal(size=10), (30, 1))
    level = rng.normal()
    y = of_patients @ effects + level + rng.normal(size=30)
    return np.hstack([of_patients, of_clinic]), y


ROWS = {"diabetes": diabetes_rows, "clinics": clinic_rows}

# %% [markdown]
# ## In Flower
#
# A client provides `load_data`, as before. It selects the rows by `"data"` only to run
# both federations in one simulation.


# %%
def load_data(data: str, context: Context):
    return ROWS[data](context.node_config["partition-id"])


ridge_apps = {data: ridge_client_app(partial(load_data, data)) for data in ROWS}
client_app = ClientApp()


@client_app.train()
@client_app.evaluate()
def answer(message: Message, context: Context) -> Message:
    return ridge_apps[message.content["config"]["data"]](message, context)


# %%
CHOICES = {
    "given": {"alpha": 1.0},
    "server": {"alphas": "auto", "cv": "server"},
    "clients": {"alphas": "auto", "cv": "clients"},
    "gcv": {"alphas": "auto", "cv": "gcv"},
    "one standard error": {"alphas": "auto", "one_standard_error": True},
}
fits = {}
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    for data in ROWS:
        for name, options in CHOICES.items():
            strategy = FedRidge(min_available_nodes=CLINICS, **options)
            config = ConfigRecord({"data": data})
            strategy.start(grid, train_config=config, evaluate_config=config)
            fits[data, name] = strategy


run_simulation(
    server_app,
    client_app,
    num_supernodes=CLINICS,
    backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0},
        "init_args": {"log_to_driver": False, "logging_level": "error"},
    },
)

# %%
print(fits["diabetes", "clients"].report_)

# %% [markdown]
# ## The losses equal scikit-learn's
#
# The same with scikit-learn, with all rows on one machine: for every alpha and every
# clinic, fit Ridge on the other 19 clinics and compute the loss on the rows of that
# one. That is 600 fits. FedRidge took one round.

# %%
parts = [diabetes_rows(clinic) for clinic in range(CLINICS)]
X = np.vstack([X for X, _ in parts])
y = np.concatenate([y for _, y in parts])
groups = np.repeat(range(CLINICS), [len(y) for _, y in parts])

chosen = fits["diabetes", "server"].selection_
by_hand = np.empty((CLINICS, chosen.alphas.size))
for clinic, (others, own) in enumerate(LeaveOneGroupOut().split(X, y, groups)):
    for k, alpha in enumerate(chosen.alphas):
        model = Ridge(alpha=alpha).fit(X[others], y[others])
        by_hand[clinic, k] = np.mean((y[own] - model.predict(X[own])) ** 2)


def sorted_rows(losses):  # FedRidge knows clients by node id, not by clinic
    return losses[np.argsort(losses[:, 0])]


assert by_hand.size == 600
assert np.allclose(sorted_rows(chosen.losses), sorted_rows(by_hand), rtol=1e-9)
of_clients = fits["diabetes", "clients"].selection_
assert np.allclose(of_clients.alphas, chosen.alphas, rtol=1e-12)
assert np.allclose(sorted_rows(of_clients.losses), sorted_rows(by_hand), rtol=1e-9)
assert np.allclose(np.bincount(groups) @ by_hand / len(y), chosen.mean, rtol=1e-9)
print("server and clients: the losses of 600 fits of scikit-learn, to 1e-9")

# %% [markdown]
# ## The chosen alpha

# %%
with TemporaryDirectory() as folder:
    chosen.draw(f"{folder}/alpha.png")
    display(Image(f"{folder}/alpha.png", width=620))

# %%
for name in ("server", "clients", "gcv", "one standard error"):
    found = fits["diabetes", name].selection_
    print(f"{name:20} alpha {found.alpha:8.4g}   {found.describe()}")

near_one = np.argmin(np.abs(np.log(chosen.alphas)))
gain = 1 - chosen.mean.min() / chosen.mean[near_one]
print(f"\nheld-out error, best alpha against alpha = 1: {gain:.2%} less")
small = chosen.alphas < 100
assert gain < 0.01
assert np.ptp(chosen.mean[small]) < 0.01 * chosen.mean.min()

# %% [markdown]
# Every grey line is a clinic; the band is one standard error of their mean.
#
# The mean is flat over more than four decades. With 442 rows and ten features there is
# little to shrink. The chosen alpha is hardly better than the default of 1, and the
# methods need not agree on a point in the flat region. This is a result, too: alpha
# hardly matters here, as long as it is not huge.
#
# `one_standard_error=True` selects the largest alpha within one standard error of the
# best, the edge of the band: the simplest model that these clinics cannot distinguish
# from the best one.
#
# ## The cost

# %%
print("                all, up   all, down   for the choice, up      down")
for name in ("given", "server", "gcv", "clients"):
    report = fits["diabetes", name].report_
    extra = report.selection or {}
    print(
        f"{name:12} {report.bytes_up:8} B  {report.bytes_down:8} B"
        f"   {extra.get('bytes_up', 0):16} B  {extra.get('bytes_down', 0):6} B"
    )

# %% [markdown]
# `"server"` and `"gcv"` send as much as a fit with a given alpha. `"clients"` sends
# every clinic the models of the others, one for each candidate, and receives losses.
# This is the paper's method, and gives the same losses. Use `"server"`, unless the
# clinics should compute losses on their own rows. Both keep the statistics of every
# client on the server during the selection; `"gcv"` needs only the total.
#
# ## When clients differ
#
# Now the other federation, where ten columns describe the clinic. Leaving out a *row*
# estimates how well we predict one more patient of a known clinic. Leaving out a
# *client* estimates how well we predict patients of a clinic that we have never seen.
#
# The rows are generated, so we can compute the true error: on 300 new clinics.

# %%
new = [clinic_rows(clinic) for clinic in range(1000, 1300)]
X_new = np.vstack([X for X, _ in new])
y_new = np.concatenate([y for _, y in new])


def error_at_new_clinics(model) -> float:
    return float(np.mean((y_new - model.predict(X_new)) ** 2))


server, gcv = fits["clinics", "server"].selection_, fits["clinics", "gcv"].selection_
path = solve_path(fits["clinics", "server"].statistics_, server.alphas)
truth = np.array([error_at_new_clinics(model) for model in path])

figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
axis.fill_between(
    server.alphas,
    server.mean - server.standard_error,
    server.mean + server.standard_error,
    color="#1f77b4",
    alpha=0.15,
    lw=0,
)
curves = [
    ("the truth: 300 new clinics", server.alphas, truth, "k", "--"),
    ("leave a client out", server.alphas, server.mean, "#1f77b4", "-"),
    ("leave rows out (GCV)", gcv.alphas, gcv.mean, "#ff7f0e", "-"),
]
for label, alphas, losses, colour, line in curves:
    best = losses.argmin()
    axis.plot(alphas, losses, line, color=colour, lw=2)
    axis.plot(alphas[best], losses[best], "*", ms=14, color=colour, zorder=3)
    axis.text(alphas[0], losses[0] + 0.03, label, color=colour)
axis.set(xscale="log", xlabel="alpha", ylabel="mean squared error")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# Columns that are constant within a clinic identify it. A model with little shrinkage
# uses them to learn the clinics' own levels. Leaving out single rows favours this,
# because other patients of the same clinic remain. So GCV shrinks little, and so does
# scikit-learn's RidgeCV. At a new clinic these columns carry no information.

# %%
parts = [clinic_rows(clinic) for clinic in range(CLINICS)]
X = np.vstack([X for X, _ in parts])
y = np.concatenate([y for _, y in parts])
by_rows = RidgeCV(alphas=gcv.alphas).fit(X, y).alpha_
print(f"by rows: GCV {gcv.alpha:.3g}, scikit-learn's RidgeCV {by_rows:.3g}")
assert 0.3 < by_rows / gcv.alpha < 3

errors = {name: error_at_new_clinics(fits["clinics", name].model_) for name in CHOICES}
print("\n                       alpha   expected   at new clinics")
for name in ("given", "gcv", "server", "one standard error"):
    found = fits["clinics", name].selection_ if name != "given" else None
    expected = (
        "" if found is None else f"{found.mean[found.alphas == found.alpha][0]:.3f}"
    )
    alpha = fits["clinics", name].model_.alpha_
    print(f"{name:20} {alpha:7.4g}   {expected:>8}   {errors[name]:14.3f}")
print(f"{'best of all':20} {server.alphas[truth.argmin()]:7.4g}", end="")
print(f"              {truth.min():14.3f}")
assert 0.8 < errors["server"] / errors["gcv"] < 0.97
assert errors["server"] < errors["one standard error"]

# %% [markdown]
# Leaving clients out selected a better alpha, and gave a better estimate of the error.
# The gain is a few percent here, and the estimate is rough: 20 clinics are a small
# sample of clinics, hence the wide band. The one-standard-error rule did not help this
# time. Use it if you prefer smaller coefficients in case of doubt.
#
# If the model will be used at clients that took part, `"gcv"` estimates the right
# error. If it will be used elsewhere, leave out clients.
#
# ## Another alpha, afterwards
#
# The total is kept in `strategy.statistics_`, whatever alpha was chosen. Any other
# alpha, a whole path, or another selection method needs no further round.

# %%
total = fits["clinics", "server"].statistics_
for model in solve_path(total, [1.0, 10.0, 100.0]):
    reference = Ridge(alpha=model.alpha_).fit(X, y)
    assert np.allclose(model.coef_, reference.coef_, rtol=0, atol=1e-12)
    print(model)

again = select_alpha(total, method="gcv")
assert np.isclose(again.alpha, gcv.alpha)
print(f"GCV, chosen from the same total: alpha {again.alpha:.3g}")

# %% [markdown]
# Next: [04_privacy.ipynb](04_privacy.ipynb), where clients add noise to what they send.
