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
# # Secure sums and privacy together
#
# Twelve clinics fit one regression, and show the server less and less:
#
# 1. in a plain round the server sees the sums of every clinic;
# 2. in a **secure sum** it sees the sum over all clinics, but nothing about a single
#    one. The model does not change by one bit;
# 3. with **differential privacy** in a secure sum, even the total says next to nothing
#    about any one patient. Together the clinics add the noise once, whereas without
#    secure sums each clinic would have to add all of it.
#
# [Notebook 04](04_privacy.ipynb) explains ε and δ. Secure sums are experimental:
# [what they protect and what they do not](../docs/explanation/secure-sums.md).

# %%
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FixedPointStatistics,
    NotEnoughClientsError,
    SecurePolicy,
    SecureSum,
    ridge_client_app,
    solve_private,
)
from fedridge_flwr.privacy import private_statistics

logging.disable(logging.WARNING)
# %matplotlib inline

# %% [markdown]
# ## The clinics
#
# Blood pressure by five measurements, each scaled to about −1 … 1 with public limits. A
# pressure of 130 is typical, which is public knowledge, so clinics subtract it.

# %%
CLINICS, PATIENTS, ALPHA, DELTA = 12, 250, 1.0, 1e-5
EFFECTS = np.array([9.0, -4.0, 6.0, 2.0, 5.0])


def patients(clinic: int, n: int = PATIENTS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([9, clinic])
    centre = rng.uniform(-0.3, 0.3, 5)  # no two clinics are alike
    X = np.clip(rng.normal(centre, 0.35, (n, 5)), -1, 1)
    return X, X @ EFFECTS + rng.normal(0, 7, n)


def load_data(context: Context) -> tuple[np.ndarray, np.ndarray]:
    return patients(int(context.node_config["partition-id"]))


def clinic_name(context: Context) -> str:
    return f"clinic {context.node_config['partition-id']}"


open_app = ridge_client_app(load_data, display_name=clinic_name)
rows = [patients(clinic) for clinic in range(CLINICS)]
X, y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
X_new, y_new = patients(99, n=5000)
pooled = Ridge(alpha=ALPHA).fit(X, y)

# %% [markdown]
# To see what a server can see, we keep every answer that arrives at it. Anyone who
# operates the server, or breaks into it, sees the same.

# %%
quiet = {"log_to_driver": False, "logging_level": "error"}
backend = {"client_resources": {"num_cpus": 1}, "init_args": quiet}


refusals = []


def run(client_app, *strategies: FedRidge) -> list[Message]:
    """Run these fits one after another; return all answers that arrive."""
    server_app, seen = ServerApp(), []

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        pull = grid.pull_messages

        def pull_and_keep(message_ids):
            arrived = list(pull(message_ids))
            seen.extend(arrived)
            return arrived

        grid.pull_messages = pull_and_keep
        for strategy in strategies:
            try:
                strategy.start(grid=grid)
            except NotEnoughClientsError as error:
                refusals.append(str(error))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray and Flower announce future versions
        run_simulation(server_app, client_app, CLINICS, backend_config=backend)
    return seen


# %% [markdown]
# ## 1. What the server sees in a plain round
#
# Everything about a clinic that the model needs: how many patients it has, their means,
# variances and correlations. Clinic 3, read from its only message:

# %%
plain = FedRidge(alpha=ALPHA, statistics="fixed", min_available_nodes=CLINICS)
plain_answers = run(open_app, plain)
third = plain.client_statistics_["clinic 3"]
print(third)
print("means of the columns:", third.means.round(3))
assert np.allclose(third.means[:5], patients(3)[0].mean(axis=0))

# %% [markdown]
# ## 2. The same fit as a secure sum
#
# Every pair of clinics agrees on random numbers that one adds and the other subtracts.
# They cancel in the sum over all clinics, and only there. `SecurePolicy` is the
# clinic's own rule: never answer a plain request, and never take part in a sum over
# fewer than ten clinics. After the secure sum, a curious server asks for the plain
# sums.

# %%
guarded_app = ridge_client_app(
    load_data, display_name=clinic_name, secure_policy=SecurePolicy(min_clients=10)
)
secure = FedRidge(
    alpha=ALPHA, secure=SecureSum(min_clients=10), min_available_nodes=CLINICS
)
curious = FedRidge(alpha=ALPHA, min_available_nodes=CLINICS)
secure_answers = run(guarded_app, secure, curious)

assert np.array_equal(secure.model_.coef_, plain.model_.coef_)  # every bit
assert np.allclose(secure.model_.coef_, pooled.coef_, rtol=1e-12)
integers = sum(FixedPointStatistics.from_data(*each) for each in rows)
total = integers.to_sufficient().to_array()
assert np.array_equal(secure.statistics_.to_array(), total)
print(secure.model_)
print("the same model as in the plain round, bit for bit")
print("\nthe curious server:", *refusals[0].splitlines()[:2], sep="\n")

# %% [markdown]
# The figure has a row for each clinic and a column for each of the 28 sums that it
# sends. The upper part shows the sums in the plain round, each relative to the largest
# in its column: some are similar everywhere, others distinguish the clinics. The lower
# part shows what the server received in the secure sum, whole numbers modulo 2¹⁹²:
# every value is equally likely, whatever the patients' data.


# %%
def sums(answers: list[Message], name: str) -> np.ndarray:
    """Return the whole numbers in the answers that have this array, as floats."""
    contents = [answer.content for answer in answers if answer.has_content()]
    found = [c["arrays"] for c in contents if name in c.get("arrays", {})]
    whole = [
        [int.from_bytes(number.tobytes(), "little") for number in arrays[name].numpy()]
        for arrays in found
    ]
    half = 2**191  # the upper half of the numbers are negative ones
    signed = [[(n + half) % 2**192 - half for n in upload[:28]] for upload in whole]
    return np.array([[n / half for n in upload] for upload in signed])


sent = sums(plain_answers, "words")
masked = sums(secure_answers, "masked")
assert sent.shape == masked.shape == (CLINICS, 28)

figure, axes = plt.subplots(2, 1, figsize=(5.6, 5.6), layout="constrained")
titles = ("plain round: sums of the patients", "secure sum: sums under their masks")
shown = (sent / np.abs(sent).max(axis=0), masked)
for axis, title, values in zip(axes, titles, shown, strict=True):
    image = axis.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    axis.set_title(title, fontsize=12)
    axis.set_ylabel("clinic")
    axis.set_yticks(range(0, CLINICS, 2))
axes[1].set_xlabel("which of the 28 sums")
bar = figure.colorbar(image, ax=axes, shrink=0.6, ticks=[-1, 0, 1])
bar.set_label("relative to the range")
plt.show()
print(f"mean of the masked numbers, relative to 2^191: {masked.mean():.3f}")
assert abs(masked.mean()) < 0.15

# %% [markdown]
# ## 3. Noise that is added once
#
# The total is exact, so it is not private: two totals that differ by one patient reveal
# that patient. Differential privacy adds noise that hides any single patient. The
# question is *how much*, and that depends on who must not see what:
#
# - `trust="local"`: the server sees each clinic's sums, so each clinic adds all the
#   noise that its own patients need. The sum contains the noise twelve times;
# - `trust="secagg"`: the server sees the total only, so each clinic adds a part, and
#   the parts together are enough. We allow for two clinics that drop out and two that
#   reveal their part to the server;
# - `trust="server"`: a server that everybody trusts adds the noise itself, once.

# %%
BOUNDS = {"x_norm_bound": 1.2, "y_bound": 40.0}
TOGETHER = {"trust": "secagg", "min_clients": 10, "max_colluding": 2}
promises = {
    "local": DifferentialPrivacy(1.0, DELTA, **BOUNDS),
    "secagg": DifferentialPrivacy(1.0, DELTA, **BOUNDS, **TOGETHER),
    "server": DifferentialPrivacy(1.0, DELTA, **BOUNDS, trust="server"),
}
print("noise in the total, in units of what one release needs:")
for trust, promise in promises.items():
    print(f"  {trust:7}{promise.noise_of(CLINICS):5.2f}")
assert np.isclose(promises["local"].noise_of(CLINICS), np.sqrt(12))
assert np.isclose(promises["secagg"].noise_of(CLINICS), np.sqrt(12 / 8))

# %% [markdown]
# These are fits through Flower with masks, one run for each ε, because a clinic takes
# part in only one sum per run. `guarded_app` is the same client as before; the noise is
# drawn at the clinics and added before the masks.

# %%
EPSILONS = (0.3, 1.0, 3.0)
together = {}
for epsilon in EPSILONS:
    together[epsilon] = FedRidge(
        alpha=ALPHA,
        privacy=DifferentialPrivacy(epsilon, DELTA, **BOUNDS, **TOGETHER),
        secure=SecureSum(),
        min_available_nodes=CLINICS,
    )
    run(guarded_app, together[epsilon])
print(together[1.0].report_.privacy)

# %% [markdown]
# ## The price
#
# The same patients and the same ε in all cases. For the lines, the releases are
# repeated twenty times without Flower, which takes hardly any time; a release of all
# patients together contains the noise once, as if a trusted server had added it. Bands
# contain half of the releases. Stars are the three fits above.


# %%
def error(model) -> float:
    return float(np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)))


GRID, REPEATS = np.geomspace(0.1, 5.0, 9), 20
errors = {"local": [], "once": []}
for epsilon in GRID:
    privacy = DifferentialPrivacy(epsilon, DELTA, **BOUNDS)
    for name, tables in {"local": rows, "once": [(X, y)]}.items():
        models = (
            solve_private(sum(private_statistics(*each, privacy) for each in tables))
            for _ in range(REPEATS)
        )
        errors[name].append([error(model) for model in models])
without, nothing = error(pooled), float(np.sqrt(np.mean(y_new**2)))

figure, axis = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
styles = {
    "local": ("#d62728", 'every clinic for itself ("local")'),
    "once": ("#1f77b4", 'trusted server ("server")'),
}
for name, (color, label) in styles.items():
    low, middle, high = np.percentile(errors[name], [25, 50, 75], axis=1)
    axis.plot(GRID, middle, lw=2, color=color, label=label)
    axis.fill_between(GRID, low, high, color=color, alpha=0.15, lw=0)
stars = [error(together[epsilon].model_) for epsilon in EPSILONS]
label = 'secure sum ("secagg"), real fits'
axis.plot(EPSILONS, stars, "*", ms=15, color="#2ca02c", label=label)
for level, text in ((nothing, "130 for everybody"), (without, "no noise")):
    axis.axhline(level, color="0.4", lw=1, ls="--")
    place = (4.9, nothing + 0.05) if level == nothing else (1.05, without - 0.05)
    side = "bottom" if level == nothing else "top"
    axis.annotate(text, place, ha="right", va=side, color="0.3")
axis.set_xscale("log")
axis.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
axis.minorticks_off()
axis.set_ylim(without - 0.25, 1.06 * nothing)
axis.set(xlabel="epsilon (more privacy to the left)", ylabel="test error, mmHg")
axis.spines[["top", "right"]].set_visible(False)
figure.legend(loc="outside upper center", frameon=False, ncols=1)
plt.show()

# %%
middle = {name: np.median(found, axis=1) for name, found in errors.items()}
share = {
    name: (nothing**2 - found**2) / (nothing**2 - without**2)
    for name, found in middle.items()
}
print("share of what the exact model explains:")
for epsilon in (0.1, 0.7, 5.0):
    k = int(np.argmin(np.abs(np.log(GRID / epsilon))))
    print(f"  epsilon {GRID[k]:.1f}: local {share['local'][k]:4.0%}, ", end="")
    print(f"noise once {share['once'][k]:4.0%}")
assert np.all(middle["once"] <= middle["local"] + 0.05)
assert error(together[3.0].model_) < without + 0.25 * (nothing - without)

# %% [markdown]
# ## What is not protected
#
# | | secure sum | with noise |
# |---|---|---|
# | a single clinic's sums | hidden, if enough clinics are honest | hidden |
# | the total over all clinics | **visible**, exactly | visible, with noise |
# | one patient, given two totals | **visible** | protected, up to ε |
# | which clinics took part, how many columns they have | **visible** | **visible** |
# | what is true of the whole population | visible: it is the result | visible |
# | a clinic that sends invented numbers | **not noticed** | **not noticed** |
# | a server with false keys, without a roster | **reads all** | **reads all** |
#
# The last line is for real sites: they exchange keys by another channel than the
# server, and name a roster and a folder in their [site
# policy](../docs/how-to/secure-sums.md#at-a-site). A simulation has neither.
#
# - [Let the server see only the sum](../docs/how-to/secure-sums.md): how to set it up.
# - [Spend a privacy budget](../docs/how-to/privacy-budget.md): bounds, policies and the
#   ledger that adds up what was released.
