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
# # Many features, and nonlinear models
#
# One round is exact because every client sends d²/2 numbers. That is little for ten
# features and a lot for ten thousand. The first half of this notebook shows
# alternatives that stay exact. The second half makes more features on purpose: one
# round then fits a curve, or recognises digits.

# %%
import logging
import warnings

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
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import train_test_split

from fedridge_flwr import (
    FedRidge,
    GaussianProjection,
    NeuralTangentFeatures,
    NotEnoughClientsError,
    RandomFourierFeatures,
    Standardize,
    recommend,
    ridge_client_app,
)

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
CLIENTS = 10
BACKEND = {
    "client_resources": {"num_cpus": 1, "num_gpus": 0},
    "init_args": {"log_to_driver": False, "logging_level": "error"},
}

# %% [markdown]
# ## The size of statistics
#
# `recommend` computes the cost of each mode before anything is sent. In one round,
# twice as many features take four times the bytes. The other modes grow more slowly,
# but take more rounds.

# %%
sizes = np.unique(np.geomspace(20, 20_000, 40).astype(int))
table = [
    {each.method: each for each in recommend(int(d), 10 * int(d), CLIENTS).alternatives}
    for d in sizes
]
figure, axis = plt.subplots(figsize=(6.8, 4), layout="constrained")
for method, label in (
    ("oneshot", "one shot, exact"),
    ("refine", "refine, exact in a few rounds"),
    ("iterative", "FedAvg, 200 rounds, not exact"),
):
    megabytes = [row[method].bytes_per_client / 1e6 for row in table]
    axis.loglog(sizes, megabytes, lw=2, label=label)
axis.axhline(8, color="0.4", lw=1, ls="--")
axis.annotate(
    '8 MB: where mode="auto" changes over', (22, 9.5), color="0.3", fontsize=9
)
axis.set_xlabel("features d")
axis.set_ylabel("MB per client, both ways")
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False, loc="lower right")
plt.show()

two, four = (recommend(d, 10 * d, CLIENTS).bytes_per_client for d in (200, 400))
print(f"200 features: {two / 1e3:.0f} kB, 400 features: {four / 1e3:.0f} kB")
assert 3.8 < four / two < 4.0

# %% [markdown]
# Print it for your own sizes. `n` is the number of rows of each client, `K` the number
# of clients.

# %%
print(recommend(d=5000, n=20_000, K=20))
assert recommend(d=5000, n=20_000, K=20).method == "refine"
assert recommend(d=400, n=600, K=CLIENTS).method == "oneshot"

# %% [markdown]
# ## Ten laboratories and 400 wavelengths
#
# This example is small enough to run here, and large enough to show the differences.
# Each laboratory has spectra of 400 wavelengths and wants to predict a concentration.
# Neighbouring wavelengths are similar, so the columns are strongly correlated. The
# instruments differ slightly. For 400 features `recommend` suggests one round; we try
# the other modes as well.

# %%
D, ALPHA = 400, 1.0
wavelength = np.linspace(0, 1, D)
peaks = np.exp(-(((wavelength - 0.3) / 0.03) ** 2))
peaks -= 0.7 * np.exp(-(((wavelength - 0.6) / 0.05) ** 2))


def spectra(laboratory: int, n: int):
    rng = np.random.default_rng(laboratory)
    smooth = np.cumsum(rng.normal(size=(n, D)), axis=1) / np.sqrt(D)
    X = smooth + 0.1 * rng.normal(size=(n, D)) + 0.1 * (laboratory % CLIENTS)
    return X, X @ peaks + rng.normal(size=n)


def load_many(context: Context):
    return spectra(context.node_config["partition-id"], n=600)


def load_few(context: Context):
    return spectra(context.node_config["partition-id"], n=100)


def pooled_rows(n: int):
    parts = [spectra(laboratory, n) for laboratory in range(CLIENTS)]
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


# %% [markdown]
# We compare, on the same clients:
#
# - **one shot**: everything at once;
# - **refine**: a rough copy of the statistics in int8, then one vector in each round.
#   The rough copy is only a preconditioner; the answer comes from exact products;
# - **projection** to 160 columns, the paper's proposal for many features;
# - **FedAvg** for as many rounds as use the bytes of refine (whose report counts them),
#   with five local steps of size 1/L in each round, on the same objective. L is the
#   largest eigenvalue over all rows, which is not known in practice.

# %%
X, y = pooled_rows(600)
X_test, y_test = spectra(99, n=1000)
ROWS = len(X)
with_constant = np.column_stack([X, np.ones(ROWS)])
STEP = ROWS / np.linalg.eigvalsh(with_constant.T @ with_constant)[-1]


def local_steps(X, y, coef, intercept):
    for _ in range(5):
        error = X @ coef + intercept - y
        coef = coef - STEP * (X.T @ error / len(y) + ALPHA / ROWS * coef)
        intercept = intercept - STEP * error.mean()
    return coef, intercept


# %% [markdown]
# ## A nonlinear curve
#
# Now we add features on purpose. Ten stations measure something over a day, each in its
# own hours only. The curve oscillates, and a straight line does not describe it. But a
# linear model of *other* features is a curve. With random Fourier features, D cosines
# of random frequencies, ridge regression approximates kernel ridge regression. The
# random numbers come from a seed, so all clients build the same features, and the
# request contains only a line of text.


# %%
def curve(hour):
    return 4 * np.sin(2 * np.pi * hour / 12) + 2 * np.cos(2 * np.pi * hour / 3.7)


def station(k: int, n: int = 120):
    rng = np.random.default_rng(k)
    hour = rng.uniform(2.4 * k - 0.5, 2.4 * k + 2.9, n).clip(0, 24)
    return hour[:, None], curve(hour) + rng.normal(0, 1, n)


def load_station(context: Context):
    return station(context.node_config["partition-id"])


# %% [markdown]
# `Standardize()` comes first, so that the width of the kernel does not depend on units.
# It needs means and variances over all clients: one small round before the first. Maps
# are combined with `|`.

# %%
WIDTHS, GAMMA, MAP_ALPHA = (5, 10, 20, 40, 80, 160), 50.0, 0.1
FOURIER = {
    width: Standardize() | RandomFourierFeatures(width, gamma=GAMMA, seed=0)
    for width in WIDTHS
}

# %% [markdown]
# ## Digits, two for each client
#
# The third task is scikit-learn's digits, 8 × 8 pixels. Client k holds only the digits
# k and k + 1. There is one target for each digit, and the largest prediction wins.

# %%
PIXELS = Standardize() | RandomFourierFeatures(500, gamma="scale", seed=0)


def split_digits():
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images, labels, test_size=0.25, random_state=0)


def load_two_digits(context: Context):
    k = context.node_config["partition-id"]
    X, _, labels, _ = split_digits()
    half = np.arange(len(labels)) % 2 == 0
    mine = ((labels == k) & half) | ((labels == (k + 1) % CLIENTS) & ~half)
    return X[mine], np.eye(10)[labels[mine]]


# %% [markdown]
# ## One run of Flower
#
# A client only needs `load_data`; the request contains the server's map. Ray takes some
# time to start, so all fits are done in one run, and the config of a request selects
# the rows. The clients with the digits also list the map they allow, for reasons
# explained at the end.

# %%
apps = {
    "spectra": ridge_client_app(load_many),
    "few spectra": ridge_client_app(load_few),
    "stations": ridge_client_app(load_station),
    "digits": ridge_client_app(load_two_digits, feature_maps=[PIXELS]),
}
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    if "rows" in message.content["config"]:
        return apps[message.content["config"]["rows"]](message, context)
    X, y = load_many(context)
    arrays = local_steps(X, y, *message.content["arrays"].to_numpy_ndarrays())
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(list(arrays)), "metrics": metrics})
    return Message(content, reply_to=message)


# %%
fits, fedavg, curves, digits, refused = {}, [], {}, {}, []
server_app = ServerApp()


def fit(grid: Grid, rows: str, alpha: float, **settings) -> FedRidge:
    strategy = FedRidge(alpha=alpha, min_available_nodes=CLIENTS, **settings)
    strategy.start(grid, train_config=ConfigRecord({"rows": rows}))
    return strategy


def keep(server_round: int, arrays: ArrayRecord) -> None:
    fedavg.append(arrays.to_numpy_ndarrays())


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    projection = GaussianProjection(160, seed=0)
    fits["one shot"] = fit(grid, "spectra", ALPHA)
    fits["refine"] = fit(grid, "spectra", ALPHA, mode="refine")
    fits["projection"] = fit(grid, "spectra", ALPHA, feature_map=projection)
    fits["few rows"] = fit(grid, "few spectra", ALPHA)
    FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS).start(
        grid,
        initial_arrays=ArrayRecord([np.zeros(D), np.zeros(1)]),
        num_rounds=round(fits["refine"].report_.fedavg_rounds),
        evaluate_fn=keep,
    )
    for width, features in {"linear": None, **FOURIER}.items():
        curves[width] = fit(grid, "stations", MAP_ALPHA, feature_map=features)
    for name, features in {"linear": None, "Fourier": PIXELS}.items():
        digits[name] = fit(grid, "digits", MAP_ALPHA, feature_map=features)
    try:
        fit(grid, "digits", MAP_ALPHA, feature_map=NeuralTangentFeatures(5))
    except NotEnoughClientsError as error:
        refused.append(str(error))


run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=BACKEND)

# %% [markdown]
# ## Exact in a few rounds
#
# The report of refine shows the rounds and the estimated error. Its last line is
# advice: for 400 features one round would have been enough.

# %%
print(fits["refine"].report_)

# %%
pooled = Ridge(alpha=ALPHA).fit(X, y)


def kilobytes(strategy: FedRidge) -> float:
    report = strategy.report_
    return (report.bytes_up + report.bytes_down) / CLIENTS / 1e3


def rounds(strategy: FedRidge) -> int:
    found = strategy.report_.refinement
    return 1 if found is None else found.rounds


def how_far(coef) -> float:
    return float(np.linalg.norm(coef - pooled.coef_) / np.linalg.norm(pooled.coef_))


rows = [
    (
        name,
        rounds(fits[name]),
        kilobytes(fits[name]),
        how_far(fits[name].model_.coef_original_),
        fits[name].model_.predict(X_test),
    )
    for name in ("one shot", "refine", "projection")
]
coef, intercept = fedavg[-1]
fedavg_rounds = len(fedavg) - 1  # the first entry is the start
fedavg_round = kilobytes(fits["refine"]) / fits["refine"].report_.fedavg_rounds
cost = fedavg_rounds * fedavg_round
rows += [
    ("FedAvg", fedavg_rounds, cost, how_far(coef), X_test @ coef + intercept),
    ("pooled", 0, 0.0, 0.0, pooled.predict(X_test)),
]
errors = {name: float(np.mean((guess - y_test) ** 2)) for name, *_, guess in rows}
print(f"{'':<12}{'rounds':>7}{'kB per client':>15}{'coefficients off by':>21}", end="")
print(f"{'test MSE':>10}")
for name, count, size, off, _ in rows:
    print(f"{name:<12}{count:>7}{size:>15.0f}{off:>21.1e}{errors[name]:>10.3f}")

# %%
for name in ("one shot", "refine"):
    model = fits[name].model_
    assert how_far(model.coef_) < 1e-9
    assert np.isclose(model.intercept_, pooled.intercept_, rtol=1e-9, atol=1e-9)
assert kilobytes(fits["refine"]) < 0.5 * kilobytes(fits["one shot"])
assert errors["projection"] > 1.2 * errors["pooled"]
assert how_far(fits["projection"].model_.coef_original_) > 1.0
assert errors["FedAvg"] > 1.2 * errors["pooled"]

# %% [markdown]
# One shot and refine equal scikit-learn's Ridge on the pooled rows, to nine digits and
# more. The projection took the fewest bytes and is not accurate: 160 random mixtures of
# 400 columns do not contain the information of 400 columns, and its coefficients are
# further from those of pooled ridge than zeros would be. FedAvg used as many bytes as
# refine and has not converged: gradient descent is slow on correlated columns and needs
# more rounds.


# %%
def away(predicted) -> float:
    """Distance to the predictions of pooled ridge, in deviations of the target."""
    distance = np.sqrt(np.mean((predicted - pooled.predict(X_test)) ** 2))
    return float(distance / y_test.std())


figure, axis = plt.subplots(figsize=(6.8, 4), layout="constrained")
axis.loglog(
    fedavg_round * np.arange(1, fedavg_rounds + 1),
    [away(X_test @ coef + intercept) for coef, intercept in fedavg[1:]],
    ".-",
    color="0.5",
    label=f"FedAvg, round 1 to {fedavg_rounds}",
)
for (name, count, size, _, guess), mark, color in zip(
    rows, "*os", ("#2ca02c", "#1f77b4", "#d62728"), strict=False
):
    words = f"{name}, {count} round" + ("s" if count > 1 else "")
    axis.loglog([size], [away(guess)], mark, ms=11, color=color, label=words)
axis.set_xlabel("kB per client, both ways")
axis.set_ylabel("predictions off by (deviations of y)")
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False, loc="center left")
plt.show()
assert away(fits["refine"].model_.predict(X_test)) < 1e-9
assert away(fits["projection"].model_.predict(X_test)) > 1e-3

# %% [markdown]
# Refine has its price, too. The same clients must take part in all rounds (if one drops
# out, it is removed, and the answer is exact for the others). The server never has the
# statistics, so another alpha needs another run.
#
# ## Fewer rows than columns
#
# A laboratory with 100 spectra of 400 wavelengths cannot fill a 400 × 400 matrix: its
# statistics have rank 99. It automatically sends a factor instead, without loss.

# %%
few, many = fits["few rows"], fits["one shot"]
X_few, y_few = pooled_rows(100)
by_scikit_learn = Ridge(alpha=ALPHA).fit(X_few, y_few)
distance = np.abs(few.model_.coef_ - by_scikit_learn.coef_).max()
print(f"600 rows each: {many.report_.bytes_up / CLIENTS / 1e3:.0f} kB up per client")
print(f"100 rows each: {few.report_.bytes_up / CLIENTS / 1e3:.0f} kB up per client")
print(f"largest difference to scikit-learn: {distance:.1e}")
assert few.report_.bytes_up < 0.5 * many.report_.bytes_up
assert distance < 1e-9

# %% [markdown]
# ## The fitted curve
#
# `model_.predict` takes raw columns, here the hour. To measure the approximation, we
# fit scikit-learn's KernelRidge with all rows and the exact kernel.

# %%
hours = np.linspace(0, 24, 1000)[:, None]
truth = curve(hours[:, 0])
parts = [station(k) for k in range(CLIENTS)]
X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
middle, spread = X.mean(), X.std()
kernel = KernelRidge(alpha=MAP_ALPHA, kernel="rbf", gamma=GAMMA)
kernel.fit((X - middle) / spread, y - y.mean())


def off(predicted) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


off_kernel = off(kernel.predict((hours - middle) / spread) + y.mean())
off_by = {width: off(each.model_.predict(hours)) for width, each in curves.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for k, (hour, value) in enumerate(parts):
    left.plot(hour[:, 0], value, ".", ms=3, alpha=0.5, color=plt.cm.tab10(k))
left.plot(hours, curves["linear"].model_.predict(hours), "--", color="0.3", lw=1.5)
left.plot(hours, curves[160].model_.predict(hours), color="black", lw=2)
left.set_title("colors: stations; dashed: linear; black: 160 features", fontsize=10)
left.set_xlabel("hour")
left.set_xticks(range(0, 25, 4))
right.loglog(WIDTHS, [off_by[width] for width in WIDTHS], "o-", lw=2, label="one round")
right.axhline(off_by["linear"], color="0.3", ls="--", lw=1.5, label="linear")
right.axhline(off_kernel, color="#2ca02c", lw=1.5, label="exact kernel, pooled rows")
right.set_title("error of the curve", fontsize=10)
right.set_xlabel("random features D")
right.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
right.set_yticks([0.2, 0.5, 1, 2, 3], ["0.2", "0.5", "1", "2", "3"])
right.minorticks_off()
right.legend(frameon=False)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
for width in ("linear", *WIDTHS):
    print(f"{width!s:>7} features: off by {off_by[width]:.3f}")
print(f" kernel, pooled: off by {off_kernel:.3f}")
assert off_by[160] < 0.2 * off_by["linear"]
assert off_by[160] < 1.5 * off_kernel < off_by[5]

# %% [markdown]
# A few random features are not enough; 160 are as good as the exact kernel, which would
# need every client's rows. Only the kernel is approximate. On the mapped columns the
# fit is exact, as always:

# %%
model = curves[160].model_
print(model.feature_map.describe(1))
mapped = model.feature_map.transform(X)
reference = Ridge(alpha=MAP_ALPHA).fit(mapped, y)
distance = np.abs(model.predict(X) - reference.predict(mapped)).max()
print(f"largest difference to scikit-learn on the pooled mapped rows: {distance:.1e}")
assert distance < 1e-9
for width in (20, 160):
    features = curves[width].model_.feature_map
    phi = features.transform(X[::20])
    error = np.abs(phi @ phi.T - features.kernel(X[::20], X[::20])).max()
    print(f"D = {width}: the kernel itself is off by up to {error:.2f}")

# %% [markdown]
# ## Recognising digits
#
# A client that has only two digits knows nothing about the others. Statistics do not
# depend on which client holds which rows: they add up.

# %%
X_train, X_test, label_train, label_test = split_digits()


def accuracy(strategy: FedRidge) -> float:
    guessed = strategy.model_.predict(X_test).argmax(axis=1)
    return float(np.mean(guessed == label_test))


for name, strategy in digits.items():
    d, size = strategy.report_.n_features, strategy.report_.bytes_up / CLIENTS / 1e3
    print(f"{name:<8}{d:>4} features, {size:>6.1f} kB up per client, ", end="")
    print(f"test accuracy {accuracy(strategy):.3f}")
assert accuracy(digits["Fourier"]) > max(0.96, accuracy(digits["linear"]) + 0.01)

# %% [markdown]
# The labels equal those of scikit-learn's RidgeClassifier on the pooled mapped rows,
# for every single image of the test set:

# %%
model = digits["Fourier"].model_
mapped = model.feature_map.transform(X_train)
by_scikit_learn = RidgeClassifier(alpha=MAP_ALPHA).fit(mapped, label_train)
theirs = by_scikit_learn.predict(model.feature_map.transform(X_test))
assert np.array_equal(model.predict(X_test).argmax(axis=1), theirs)
targets = Ridge(alpha=MAP_ALPHA).fit(mapped, np.eye(10)[label_train])
distance = np.abs(model.coef_ - targets.coef_).max()
print(f"{len(theirs)} labels, all the same; coefficients differ by {distance:.1e}")
assert distance < 1e-9

# %%
guessed = model.predict(X_test).argmax(axis=1)
wrong = np.flatnonzero(guessed != label_test)
print(f"{len(wrong)} of {len(label_test)} are wrong; some of them:")
figure, axes = plt.subplots(1, 6, figsize=(8, 1.8), layout="constrained")
for axis, i in zip(axes, wrong, strict=False):
    axis.imshow(X_test[i].reshape(8, 8), cmap="gray_r")
    axis.set_title(f"{label_test[i]}, not {guessed[i]}", fontsize=10)
for axis in axes:
    axis.set_axis_off()
plt.show()

# %% [markdown]
# ## Who chooses the map
#
# The choice of the map determines what statistics reveal. A feature can be designed so
# that a single row makes it non-zero, and with as many features as rows the statistics
# may determine every row. So a client can list the maps it allows:
# `ridge_client_app(load_data, feature_maps=[...])`. The clients with the digits allow
# one. We also requested another one, and all of them refused:

# %%
(words,) = refused
print("\n".join(words.splitlines()[:2]))
assert words.startswith("0 valid answer")

# %% [markdown]
# Without `feature_maps`, a client applies the server's map and logs it. If the server
# is not trusted with such statistics, use privacy (notebook 04): a row of Fourier
# features is never longer than √2, whatever the data, which is a bound that does not
# depend on the data.
#
# ## Summary
#
# | | |
# |---|---|
# | up to a few thousand features | one shot: exact, one round |
# | more, if clients can come back | `mode="refine"`, or `"auto"`: exact, a few rounds |
# | a random projection | an approximation; check its error first |
# | a curve, an image | `feature_map=Standardize() \| RandomFourierFeatures(...)` |
#
# This is not a deep network. Features are random and not learned, their number
# determines the accuracy of the kernel approximation, and d²/2 numbers have to be sent.
