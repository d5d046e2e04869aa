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
# # One round, then ten questions
#
# Eleven firms hold twenty years of their own books each. What explains how much a firm
# invests: its market value, or the capital it already has? These are Grunfeld's data
# (1958), the classic example of panel econometrics, so every number below can be looked
# up.
#
# No firm shows its books. Each sends one small matrix, once. Everything after that,
# standard errors, tests, site effects, figures and tables for a paper, is computed from
# those matrices, and no firm is asked again.

# %%
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from IPython.display import display

from fedridge_flwr import (
    FedRidge,
    GridEdgeWarning,
    infer,
    ridge_client_app,
    select_alpha,
)
from fedridge_flwr.regression import (
    correlations,
    fixed_site_effects,
    nested_test,
    random_site_effects,
    select_columns,
    select_elastic_net,
    site_estimates,
    site_influence,
    standardized_coefficients,
    variance_inflation,
)

logging.disable(logging.WARNING)
# %matplotlib inline

# %% [markdown]
# ## The only round
#
# A client returns its table and its target. Column names travel with the statistics, so
# that the results have names too. `alpha=0` is ordinary least squares.

# %%
books = sm.datasets.grunfeld.load_pandas().data
FIRMS = sorted(books["firm"].unique())


def load_data(context: Context):
    firm = FIRMS[int(context.node_config["partition-id"])]
    own = books[books["firm"] == firm].reset_index(drop=True)
    return own[["value", "capital"]], own["invest"].rename("invest").to_frame()


def firm_name(context: Context) -> str:
    return FIRMS[int(context.node_config["partition-id"])]


client_app = ridge_client_app(
    load_data, share_feature_names=True, display_name=firm_name
)
strategy = FedRidge(alpha=0.0, min_available_nodes=len(FIRMS))
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy.start(grid=grid)


quiet = {"log_to_driver": False, "logging_level": "error"}
backend = {"client_resources": {"num_cpus": 1}, "init_args": quiet}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray and Flower announce future versions
    run_simulation(server_app, client_app, len(FIRMS), backend_config=backend)

stats = strategy.statistics_
parts = dict(sorted(strategy.client_statistics_.items()))
print(stats)
print(*parts, sep=", ")

# %% [markdown]
# ## 1. What does the regression say?
#
# This is what statsmodels or R would print for the pooled rows, to the last digit
# shown.

# %%
found = strategy.inference_
print(found)

pooled = sm.OLS(books["invest"], sm.add_constant(books[["value", "capital"]])).fit()
assert np.allclose(found.coefficients, pooled.params, rtol=1e-9)
assert np.allclose(found.se, pooled.bse, rtol=1e-9)
assert np.allclose(found.p, pooled.pvalues, rtol=1e-7, atol=1e-300)

# %% [markdown]
# ## 2. Can these standard errors be right?
#
# They assume 220 independent rows. Twenty years of one firm are not independent, so the
# honest unit is the firm. Cluster-robust standard errors follow from the same matrices,
# by firm; they are two to three times as large. (Robust ones by row, HC0 to HC3, take
# one more round: `FedRidge(standard_errors="HC3")`.)

# %%
by_firm = infer(stats, parts=parts, covariance="CR1", use_t=True)
wanted = pooled.get_robustcov_results(
    "cluster", groups=books["firm"].astype("category").cat.codes, use_t=True
)
assert np.allclose(by_firm.se, wanted.bse, rtol=1e-9)
for term, classical, robust in zip(found.terms, found.se, by_firm.se, strict=True):
    print(f"{term:10} classical {classical:8.4f}   by firm {robust:8.4f}")

# %% [markdown]
# ## 3. Do the firms agree?
#
# The forest plots show each firm by itself, next to all firms together, with Cochran's
# Q test of equal coefficients and I², the share of the variation that chance does not
# explain.

# %%
own = site_estimates(parts)
display(own.plot("value"), own.plot("capital"))
for term in ("value", "capital"):
    print(f"{term}: I² = {own.i2[term]:.0%}, p of equal effects = {own.q_p[term]:.1e}")
assert own.q_p["capital"] < 1e-6

# %% [markdown]
# ## 4. What if every firm has its own level?
#
# Fixed site effects give the same result as a pooled regression with a dummy column for
# every firm, but no firm has to create one. Textbooks give 0.110 and 0.310.

# %%
fixed = fixed_site_effects(parts)
print(fixed.inference)
slopes = dict(zip(fixed.inference.terms, fixed.inference.coefficients, strict=True))
assert abs(slopes["value"] - 0.110) < 5e-4
assert abs(slopes["capital"] - 0.310) < 5e-4

# %% [markdown]
# ## 5. Or levels drawn from one distribution?
#
# A random intercept by restricted maximum likelihood, from the same eleven matrices, as
# R's `lmer(invest ~ value + capital + (1 | firm))` fits it.

# %%
print(random_site_effects(parts))

# %% [markdown]
# ## 6. Which firm drives the answer?
#
# The server leaves out each firm in turn by subtracting its matrix. No firm has to do
# anything.

# %%
influence = site_influence(parts)
print(influence.fit)
change = influence.change.to_frame()["capital"].sort_values()
figure, axis = plt.subplots(figsize=(6, 3.6))
axis.barh(change.index, change)
axis.axvline(0.0, color="black", lw=0.8)
axis.set_xlabel("what this firm adds to the coefficient of capital")
figure.tight_layout()

# %% [markdown]
# ## 7. Is one column enough?
#
# A model can be fitted to any subset of the columns, and nested models can be tested.

# %%
print(nested_test(stats, ["value"]))
only_value = infer(select_columns(stats, ["value"]))
again = sm.OLS(books["invest"], sm.add_constant(books[["value"]])).fit()
assert np.allclose(only_value.se, again.bse, rtol=1e-9)
print(f"R² with value alone: {only_value.r2:.3f}, with capital as well: {found.r2:.3f}")

# %% [markdown]
# ## 8. How are the columns related?
#
# Correlations, variance inflation and effects per standard deviation follow from the
# same statistics, and any column can be the target.

# %%
print(correlations(stats))
print(variance_inflation(stats))
print(standardized_coefficients(stats))
print(infer(select_columns(stats, ["value"], targets="capital")))

# %% [markdown]
# ## 9. Would a penalty predict *new firms* better?
#
# We leave out one firm in turn and look at the error on its rows, for every alpha, and
# do the same for the lasso. With two columns and 220 rows there is nothing to gain from
# a penalty.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", GridEdgeWarning)  # the smallest penalty is best
    ridge = select_alpha(parts, "auto", standardize=True)
lasso = select_elastic_net(parts)
print(f"ridge: alpha {ridge.alpha:.3g}, {ridge.describe()}")
print(lasso)
for term, coefficient in zip(found.terms[1:], ridge.model.coef_, strict=True):
    print(f"{term}: {coefficient:.4f}")

# %% [markdown]
# ## 10. What does it predict?
#
# A confidence interval is for the mean of all such firms and years, a prediction
# interval for one of them.

# %%
new = np.array([[1000.0, 200.0], [4000.0, 800.0]])
predicted = found.predict(new)
print(predicted.to_frame().round(1))
expected = pooled.get_prediction(sm.add_constant(new)).summary_frame()
assert np.allclose(predicted.prediction_interval[:, 0], expected["obs_ci_lower"])

# %% [markdown]
# ## For the paper
#
# The same results are available as Markdown, LaTeX, JSON, a data frame with broom's
# names, and a forest plot.

# %%
print(by_firm.to_latex())
by_firm.tidy().round(4)

# %%
display(by_firm.plot())

# %% [markdown]
# All this took one message from each firm.

# %%
report = strategy.report_
print(f"{len(report.participants)} firms, {report.bytes_up / 1e3:.1f} kB in all")
