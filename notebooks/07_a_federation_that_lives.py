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
# # Updating a federation over a year
#
# Six clinics study what explains the length of a stay: age, weight and the dose of a
# drug. Patients arrive every month, one clinic opens late, the treatment changes in
# autumn, and at the end one clinic withdraws.
#
# The fit never has to start again. The server keeps a ledger of what every clinic has
# sent. Every month each clinic sends the statistics of its new patients only, and after
# every month the model is that of all patients so far, to the last digit.

# %%
import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from IPython.display import display
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    FedRidge,
    FixedPointStatistics,
    Ledger,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.regression import drift, drift_over_time

logging.disable(logging.WARNING)
# %matplotlib inline

# %% [markdown]
# ## Patients that arrive
#
# Every clinic has its patients in the order in which they came. From September on, a
# new protocol increases the effect of the dose.

# %%
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"]
MONTHS += ["Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
CLINICS = ["Bern", "Graz", "Kiel", "Lyon", "Oslo", "Pisa"]
OPENS = {"Pisa": 4}  # in May
PER_MONTH = 25
FOLDER = Path(tempfile.mkdtemp())
CALENDAR = FOLDER / "month.txt"


def patients(clinic: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return all patients of one year, in the order in which they come."""
    rng = np.random.default_rng([7, CLINICS.index(clinic)])
    n = PER_MONTH * len(MONTHS)
    month = np.repeat(np.arange(len(MONTHS)), PER_MONTH)
    X = pd.DataFrame(
        {
            "age": rng.normal(60, 12, n),
            "weight": rng.normal(75, 11, n),
            "dose": rng.uniform(0, 10, n),
        }
    )
    dose = np.where(month < 8, 0.30, 0.55)
    y = 0.08 * X["age"] + 0.02 * X["weight"] + dose * X["dose"]
    return X, pd.Series(y + rng.normal(0, 2, n), name="days")


# %% [markdown]
# ## A clinic's side
#
# `load_new_data` returns the patients since a position, and the new position; here a
# number of patients, in practice the last id in a database. The clinic records what it
# sent in a folder of its own: a random id and the position, no rows.
#
# In this notebook, all clinics read the current month from one file.


# %%
def load_new_data(context: Context, since: int | None):
    clinic = CLINICS[int(context.node_config["partition-id"])]
    month, opens = int(CALENDAR.read_text()), OPENS.get(clinic, 0)
    if month < opens:
        raise DataError(f"opens in {MONTHS[opens]}")
    X, y = patients(clinic)
    first, now = PER_MONTH * opens, PER_MONTH * (month + 1)
    new = slice(first if since is None else since, now)
    return (X.iloc[new], y.iloc[new]), now


def load_data(context: Context):
    return load_new_data(context, None)[0]


def clinic_name(context: Context) -> str:
    return CLINICS[int(context.node_config["partition-id"])]


client_app = ridge_client_app(
    load_data,
    load_new_data=load_new_data,
    upload_folder=FOLDER,
    display_name=clinic_name,
    share_feature_names=True,
)

# %% [markdown]
# ## A year at the server
#
# Twelve runs on one ledger, each with a new strategy, as after a restart. With
# `statistics="fixed"` sums are whole numbers: what is added or removed is exact in
# every bit. After each month the total is saved, for later questions.

# %%
LEDGER = FOLDER / "stays.ledger"
server_app = ServerApp()
year = []


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    for month, name in enumerate(MONTHS):
        CALENDAR.write_text(str(month))
        strategy = FedRidge(
            alpha=1.0, ledger=LEDGER, statistics="fixed", min_available_nodes=6
        )
        strategy.start(grid=grid)
        year.append(strategy)
        with Ledger(LEDGER) as ledger:
            ledger.total().save(FOLDER / f"{name}.stats")


quiet = {"log_to_driver": False, "logging_level": "error"}
backend = {"client_resources": {"num_cpus": 1}, "init_args": quiet}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray and Flower announce future versions
    run_simulation(server_app, client_app, len(CLINICS), backend_config=backend)

for name, strategy in zip(MONTHS, year, strict=True):
    failed = ", ".join(strategy.report_.failures.values())
    told = f"  left out: {failed}" if failed else ""
    print(f"{name}  {strategy.model_.n_rows_:4} patients{told}")

# %% [markdown]
# Every one of these models is the pooled ridge regression on the patients so far.


# %%
def pooled(month: int) -> tuple[pd.DataFrame, pd.Series]:
    parts = []
    for clinic in CLINICS:
        X, y = patients(clinic)
        here = slice(PER_MONTH * OPENS.get(clinic, 0), PER_MONTH * (month + 1))
        parts.append((X.iloc[here], y.iloc[here]))
    return tuple(map(pd.concat, zip(*parts, strict=True)))


for month, strategy in enumerate(year):
    X, y = pooled(month)
    ridge = Ridge(alpha=1.0).fit(X, y)
    assert strategy.model_.n_rows_ == len(y)
    assert np.allclose(strategy.model_.coef_, ridge.coef_, rtol=1e-10, atol=0)
with Ledger(LEDGER) as ledger:
    assert ledger.total() == FixedPointStatistics.from_data(*pooled(11))  # every bit
print("twelve models, each exact")

# %% [markdown]
# ## What changed in autumn?
#
# The difference of two totals is the statistics of the patients who arrived in between.
# `drift` compares these patients with all earlier ones: did a coefficient change by
# more than chance?

# %%
totals = [FixedPointStatistics.load(FOLDER / f"{name}.stats") for name in MONTHS]
updates = dict(zip(MONTHS, totals[:1], strict=False))
for name, before, after in zip(MONTHS[1:], totals, totals[1:], strict=False):
    updates[name] = after - before

september = drift(totals[7], updates["Sep"])
print(september.test)
display(september.table)

# %% [markdown]
# This figure shows the whole year. The line is the model of all patients so far; each
# point is a model of the patients of one month alone. The months that differ by more
# than chance are marked; the tests account for the number of months.

# %%
history = drift_over_time(updates)
print("differ from the months before:", *history.drifted)
display(history.plot())
assert "Sep" in history.drifted
assert set(history.drifted) <= {"Sep", "Oct", "Nov", "Dec"}

# %% [markdown]
# The model of all patients follows the new protocol only slowly, because it still
# contains the eight months before. Whether to start again in September is a decision
# for the clinics, and the saved files allow both:

# %%
since_september = totals[11] - totals[7]
for label, stats in {"all year": totals[11], "since Sep": since_september}.items():
    model = solve(stats.to_sufficient(), alpha=1.0)
    print(f"{label:10} dose {model.coef_[2]:.3f}   {stats.count} patients")

# %% [markdown]
# ## A clinic withdraws
#
# No clinic is asked, and nothing is sent. The new total equals, in every bit, that of
# the other clinics alone. Both sides can keep the receipt.

# %%
last = year[-1]
receipt = last.remove("Kiel")
print(last.model_)
print(receipt.action, receipt.client, "error bound", receipt.bound)

never = [patients(clinic) for clinic in CLINICS if clinic not in ("Kiel", "Pisa")]
X, y = patients("Pisa")
never.append((X.iloc[PER_MONTH * 4 :], y.iloc[PER_MONTH * 4 :]))
X, y = map(pd.concat, zip(*never, strict=True))
with Ledger(LEDGER) as ledger:
    assert ledger.total() == FixedPointStatistics.from_data(X, y)
    print(ledger.verify().n_clients, "clinics left")

# %% [markdown]
# ## One patient
#
# A clinic should not send the statistics of each new patient separately: two totals
# that differ by one patient reveal that patient. Clients decline to send fewer new rows
# than their `min_rows`, and a site policy compares every upload with all earlier ones.

# %%
X, y = patients("Bern")
yesterday = SufficientStatistics.from_data(X[:100], y[:100])
today = SufficientStatistics.from_data(X[:101], y[:101])
read = (today - yesterday).means
print("read from two totals:", read.round(4))
print("the patient:         ", np.append(X.iloc[100], y.iloc[100]).round(4))
assert np.allclose(read, np.append(X.iloc[100], y.iloc[100]))
