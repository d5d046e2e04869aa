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
# # Yes/no outcomes at five hospitals
#
# Who comes back within thirty days of leaving hospital, and does a phone call after the
# discharge help? Five hospitals want the odds ratios of one logistic regression over
# all their patients. None of them may share the data of a patient.
#
# Logistic regression has no closed form, but each Newton step is a weighted ridge
# regression. So every round takes one small matrix per hospital, and after a handful of
# rounds the result is that of the pooled patients.

# %%
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fedridge_flwr import DataError, FedRidge, ridge_client_app

logging.disable(logging.WARNING)
# %matplotlib inline

# %% [markdown]
# ## The patients
#
# The patients are invented, so we know the true odds ratios. The hospitals differ:
# Porto has older patients, Turku is small. **None of Turku's thirty patients came
# back.**

# %%
SIZES = {"Bergen": 620, "Gdansk": 480, "Leiden": 350, "Porto": 240, "Turku": 30}
HOSPITALS = list(SIZES)
TRUE = {"age": 1.3, "diabetes": 1.7, "emergency": 2.2, "days": 1.08, "call": 0.6}


def patients(hospital: str) -> tuple[pd.DataFrame, pd.Series]:
    k, n = HOSPITALS.index(hospital), SIZES[hospital]
    rng = np.random.default_rng([8, k])
    older = 0.8 if hospital == "Porto" else 0.0
    X = pd.DataFrame(
        {
            "age": rng.normal(6.5 + older, 1.2, n),  # in decades
            "diabetes": rng.random(n) < 0.25,
            "emergency": rng.random(n) < 0.4,
            "days": rng.gamma(2.0, 2.5, n),
            "call": rng.random(n) < 0.5,
        }
    ).astype(float)
    logit = X @ np.log(list(TRUE.values())) - 4.1
    back = rng.random(n) < 1 / (1 + np.exp(-logit))
    if hospital == "Turku":
        back[:] = False
    return X, pd.Series(np.where(back, "yes", "no"), name="back")


for hospital in HOSPITALS:
    X, y = patients(hospital)
    print(f"{hospital:8}{len(y):4} patients, {(y == 'yes').sum():3} came back")

# %% [markdown]
# ## The fit
#
# The client is the same as for ridge regression. The server says `family="binomial"`;
# `alpha=0` is maximum likelihood, which is what odds ratios with intervals need. A
# second fit, with a penalty and a last round that evaluates it, is for predictions.


# %%
def name_of(context: Context) -> str:
    last = HOSPITALS[-int(context.node_config["num-partitions"]) :]
    return last[int(context.node_config["partition-id"])]


def load_data(context: Context):
    return patients(name_of(context))


client_app = ridge_client_app(load_data, share_feature_names=True, display_name=name_of)
likelihood = FedRidge(alpha=0.0, family="binomial", min_available_nodes=5)
penalised = FedRidge(
    alpha=10.0, family="binomial", min_available_nodes=5, fraction_evaluate=1.0
)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    likelihood.start(grid=grid)
    penalised.start(grid=grid)


quiet = {"log_to_driver": False, "logging_level": "error"}
backend = {"client_resources": {"num_cpus": 1}, "init_args": quiet}


def run(server: ServerApp, hospitals: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray and Flower announce future versions
        run_simulation(server, client_app, hospitals, backend_config=backend)


run(server_app, len(HOSPITALS))
found = likelihood.inference_
print(found.summary())
print(likelihood.report_.text(diagnostics=False))

# %% [markdown]
# ## It is the pooled regression
#
# statsmodels on all patients in one table gives the same coefficients, standard errors,
# z, p, deviance and AIC. Which hospital a patient was in makes no difference.

# %%
X, y = map(pd.concat, zip(*map(patients, HOSPITALS), strict=True))
back = (y == "yes").astype(float)


def logistic(X: pd.DataFrame, back: pd.Series):
    return sm.GLM(back, sm.add_constant(X), family=sm.families.Binomial()).fit(
        tol=1e-14, maxiter=100
    )


pooled = logistic(X, back)
assert np.allclose(found.coefficients, pooled.params, rtol=1e-8)
assert np.allclose(found.se, pooled.bse, rtol=1e-8)
assert np.allclose(found.p, pooled.pvalues, rtol=1e-6)
assert np.isclose(found.aic, pooled.aic, rtol=1e-10)
gap = np.abs(found.coefficients - pooled.params.to_numpy()).max()
print(f"largest difference to statsmodels' coefficients: {gap:.0e}")

# %% [markdown]
# ## Odds ratios for the paper
#
# `tidy` has the numbers under the names that R's broom uses.

# %%
found.tidy().set_index("term").round(4)

# %% [markdown]
# A common alternative to a federation is a meta-analysis: each hospital fits its own
# regression, and the coefficients are averaged, weighted by their precision. That is an
# approximation, and Turku cannot fit its own regression: none of its patients came
# back, so its odds ratios would be infinite or arbitrary. A meta-analysis cannot use
# the patients of Turku.

# %%
own = {}
for hospital in HOSPITALS[:-1]:
    rows, outcome = patients(hospital)
    own[hospital] = logistic(rows, (outcome == "yes").astype(float))
weights = pd.DataFrame({name: 1 / fit.bse**2 for name, fit in own.items()})
logs = pd.DataFrame({name: fit.params for name, fit in own.items()})
average = (logs * weights).sum(axis=1) / weights.sum(axis=1)
reach = 1.96 / np.sqrt(weights.sum(axis=1))

# %%
LABELS = {
    "age": "age,\nper ten years",
    "diabetes": "diabetes",
    "emergency": "emergency\nadmission",
    "days": "each day\nof the stay",
    "call": "phone call\nafterwards",
}
ratios = dict(zip(found.terms, found.ratios(), strict=True))
figure, axis = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
for place, term in enumerate(LABELS):
    ratio, low, high = ratios[term]
    line = {"lw": 2, "color": "#1f77b4"}
    axis.plot([low, high], [place - 0.12] * 2, **line)
    axis.plot(ratio, place - 0.12, "s", ms=8, color="#1f77b4")
    text = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
    axis.annotate(text, (max(high, 1.0) * 1.05, place - 0.12), va="center")
    ends = np.exp(average[term] + np.array([-1, 1]) * reach[term])
    axis.plot(ends, [place + 0.17] * 2, lw=1.2, color="0.5")
    axis.plot(np.exp(average[term]), place + 0.17, "o", ms=6, mfc="white", color="0.5")
    axis.plot(TRUE[term], place - 0.12, "|", ms=22, mew=2, color="#d62728")
handles = [
    plt.Line2D([], [], marker="s", ms=8, lw=2, color="#1f77b4"),
    plt.Line2D([], [], marker="o", ms=6, lw=1.2, mfc="white", color="0.5"),
    plt.Line2D([], [], marker="|", ms=14, mew=2, lw=0, color="#d62728"),
]
names = ["federation, 5 hospitals", "meta-analysis, 4 hospitals", "truth"]
figure.legend(handles, names, loc="outside upper center", frameon=False, ncols=1)
axis.axvline(1.0, color="0.3", lw=1, ls=":")
axis.set_xscale("log")
axis.set_xlim(0.45, 4.9)
axis.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
axis.minorticks_off()
axis.set_yticks(range(len(LABELS)), LABELS.values())
axis.invert_yaxis()
axis.set_xlabel("odds ratio of coming back, 95% interval")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# The square is what a statistician with all patients in one table would publish. The
# two methods agree roughly here, since four hospitals have enough patients. With many
# small hospitals, a meta-analysis would have little to average, while the federation
# loses nothing.
#
# ## A hospital with one kind of outcome
#
# Turku cannot fit a logistic regression. In the federation it is a hospital like the
# others: its data show that patients like these do not come back, and the model uses
# this information. Compare with the pooled fit of the other four:

# %%
four = logistic(X[: -SIZES["Turku"]], back[: -SIZES["Turku"]])
turku, _ = patients("Turku")
expected = {
    "without Turku": four.predict(sm.add_constant(turku)).sum(),
    "with Turku": likelihood.model_.predict_proba(turku)[:, 1].sum(),
}
for label, count in expected.items():
    print(f"{label:14} expects {count:.1f} of Turku's 30 patients to come back")
print("intercept", f"{four.params['const']:.3f} without,", end=" ")
print(f"{found.coefficients[0]:.3f} with Turku")
assert "Turku" in likelihood.report_.names.values()
assert expected["with Turku"] < expected["without Turku"]

# %% [markdown]
# The fit is impossible only if *no patient* in the whole federation came back. A run
# with Turku alone raises an error that says so, instead of returning coefficients that
# grow without limit:

# %%
alone, refused = FedRidge(alpha=0.0, family="binomial", min_available_nodes=1), []
server_alone = ServerApp()


@server_alone.main()
def ask_turku(grid: Grid, context: Context) -> None:
    try:
        alone.start(grid=grid)
    except DataError as error:
        refused.append(error)


run(server_alone, 1)
print(refused[0])

# %% [markdown]
# If the columns separate the two outcomes of *all* patients perfectly, the fit also
# raises an error, which names the columns. With a penalty (`alpha` above 0) there is
# always a solution, as long as both outcomes occur somewhere.
#
# ## Predictions
#
# With a penalty the model equals scikit-learn's `LogisticRegression(C=1/alpha)`. In the
# round that evaluates it, each hospital sorts its patients into bins by predicted risk
# and sends counts. That gives the area under the ROC curve and the calibration over all
# hospitals.

# %%
reference = LogisticRegression(C=1 / 10.0, tol=1e-12, max_iter=10_000).fit(X, y)
assert np.allclose(penalised.model_.coef_, reference.coef_[0], rtol=1e-5, atol=1e-8)
evaluation = penalised.report_.evaluation
auc = roc_auc_score(y, reference.predict_proba(X)[:, 1])
print(f"AUC {evaluation['auc']:.3f} from the bins, {auc:.3f} from the pooled patients")
assert abs(evaluation["auc"] - auc) < 0.01

groups = pd.DataFrame(penalised.report_.calibration)
figure, axis = plt.subplots(figsize=(4.6, 4.0), layout="constrained")
axis.plot([0, 0.5], [0, 0.5], color="0.5", lw=1, ls="--", label="perfect calibration")
axis.plot(groups["predicted"], groups["observed"], "o-", ms=7, label="five hospitals")
axis.set(xlabel="predicted risk of coming back", ylabel="share that came back")
top = 1.08 * max(groups["predicted"].max(), groups["observed"].max())
axis.set(xlim=(0, top), ylim=(0, top))
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False, loc="upper left")
plt.show()

# %% [markdown]
# These are the patients to whom the model was fitted, so the figure is too optimistic.
# Let `load_data` hold some rows back for evaluation if you want to know how it predicts
# (`ridge_client_app(load_data, load_eval_data=...)`).
#
# ## What leaves a hospital
#
# In each round, a hospital sends one matrix of weighted sums over its patients, of the
# same size as for ridge regression. The weights follow from coefficients that the
# server sends, and a server could choose coefficients with which one patient outweighs
# all others. So a [site policy](../docs/how-to/site-policy.md) declines families unless
# the site allows them, and then checks that the weighted rows still count as enough
# patients.
#
# - [Yes/no outcomes and counts](../docs/how-to/yes-no-and-counts.md): tables with a
#   formula, counts and exposure, several classes, choosing the penalty.
# - [How it works](../docs/explanation/families.md): rounds, and why they are so few.
