# Two commands are enough: `make run` and `make test`. Both set everything up.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The versions that are tested. For the newest ones instead: make CONSTRAINTS= ...
CONSTRAINTS ?= constraints.txt

.PHONY: help setup run alpha experiments experiments-full report test lint check bench \
  bench-full bench-engines test-engines constraints deploy-demo test-deployment notebooks test-notebooks soak test-tables \
  test-families experiments-families test-ledger \
  soak-deployment \
  record-faults audit private-costs fuzz poisoning security digits flamby readme docs docs-links wheel clean

help:
	@echo "make run        one-shot ridge next to FedAvg and FedProx, results in ./results"
	@echo "make alpha      the same with alpha chosen by the clients, in ./results/alpha"
	@echo "make test       lint, types, import contract, tests"
	@echo "make deploy-demo       a deployment with TLS on this machine, next to FedAvg"
	@echo "make test-deployment   crashes, strangers and restarts in such a deployment"
	@echo "make test-tables       tables of files, also the large ones of ../shared/data"
	@echo "make test-families     logistic regression on 581,012 rows, and in a deployment"
	@echo "make test-ledger       a ledger killed, spoiled and on a full disk, half an hour"
	@echo "make experiments       the paper's experiments in a reduced size, minutes"
	@echo "make experiments-full  the same at the paper's sizes, hours, resumed where stopped"
	@echo "make experiments-families  logistic regression against tuned FedAvg, half an hour"
	@echo "make report     tables, figures and REPORT.md again from simulations/results"
	@echo "make bench      what it costs, as ratios against limits, minutes"
	@echo "make bench-full the same with 10,000 clients and FedAvg of 500, half an hour"
	@echo "make bench-engines     4 million rows from DuckDB, Polars and pyarrow, two minutes"
	@echo "make test-engines      DuckDB, Polars, Spark (Java 17), Dask and Ray Data"
	@echo "make soak       slow tests: 200 SuperNodes, twenty times"
	@echo "make soak-deployment   30 runs in one deployment, into docs/results, ten minutes"
	@echo "make record-faults     all faults of a deployment three times, into docs/results"
	@echo "make audit      attacks on the privacy and its ledger, coverage; half an hour"
	@echo "make private-costs     what privacy costs and its intervals cover, for make readme"
	@echo "make security   bandit, and known advisories of what is installed"
	@echo "make fuzz       hostile answers and files, 100,000 of them, and random tables; half an hour"
	@echo "make poisoning  which lies of clients are found, and false alarms; a minute"
	@echo "make notebooks  write notebooks/*.ipynb from their .py pairs and execute them"
	@echo "make test-notebooks    execute them all, and change no file"
	@echo "make constraints       the newest versions into constraints.txt"
	@echo "make digits     correct digits on NIST's regressions, for make readme"
	@echo "make flamby     four hospitals by the protocol of FLamby, for make readme"
	@echo "make readme     put what was measured into README.md and docs/"
	@echo "make docs       the documentation as a site, in docs/_build/html"
	@echo "make docs-links the same, and ask every address outside whether it is there"
	@echo "make wheel      build and check what would be published, in dist/"
	@echo "make clean      remove the virtual environment and results"

setup: $(READY)

$(READY): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; use make PYTHON=python3.11 ..."; exit 1; }
	@echo "Installing into $(VENV): 1.7 GB, some minutes without a word ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(addprefix --constraint ,$(CONSTRAINTS)) \
	  --editable '.[dev]'
	@touch $(READY)

# From an environment of its own, with nothing in it but what pyproject.toml asks for.
constraints:
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --editable '.[dev]'
	$(VENV)-newest/bin/python -m pip freeze --exclude-editable \
	  | grep -E '^[A-Za-z0-9._-]+==' | LC_ALL=C sort -f > constraints.txt
	rm -rf $(VENV)-newest

run: $(READY)
	$(BIN)/python -m fedridge_flwr.app --supernodes 20 --output-dir results \
	  --run-config compare-rounds=50

alpha: $(READY)
	$(BIN)/python -m fedridge_flwr.app --supernodes 20 --output-dir results/alpha \
	  --run-config 'cv="clients"'

EXPERIMENTS := PYTHONPATH=simulations $(BIN)/python -m fedridge_simulations

experiments: $(READY)
	$(EXPERIMENTS) --size quick --output-dir results/experiments

experiments-full: $(READY)
	$(EXPERIMENTS) --size paper --output-dir simulations/results

experiments-families: $(READY)
	PYTHONPATH=simulations $(BIN)/python -m fedridge_simulations.families \
	  --output-dir simulations/results/families

report: $(READY)
	$(EXPERIMENTS) --render --output-dir simulations/results

test: lint check

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# What starts other processes, and mostly waits for them, goes after all that computes.
STARTS_PROCESSES := (ray or superlink or deployment)
PYTEST := $(BIN)/python -m pytest --durations=25

check: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) -n 2 --dist loadfile \
	  -m "not slow and not $(STARTS_PROCESSES)"
	$(MAKE) --jobs 3 $(filter --output-sync,$(.FEATURES:%=--%)) \
	  check-ray check-superlink check-deployment

check-%: $(READY)
	$(PYTEST) -m "not slow and $*"

BENCHMARKS := PYTHONPATH=benchmarks $(BIN)/python -m fedridge_benchmarks

bench: $(READY)
	$(BENCHMARKS) --output-dir results/benchmarks

bench-full: $(READY)
	$(BENCHMARKS) --full --output-dir benchmarks/results

$(VENV)/.engines: $(READY)
	$(BIN)/python -m pip install --quiet $(addprefix --constraint ,$(CONSTRAINTS)) \
	  --editable '.[engines]'
	@touch $@

bench-engines: $(VENV)/.engines
	$(BENCHMARKS).engines --output-dir benchmarks/results/engines

test-engines: $(VENV)/.engines
	$(BIN)/python -m pytest -m slow tests/engines

DEPLOYMENT := PYTHONPATH=deployment $(BIN)/python -m fedridge_deployment

deploy-demo: $(READY)
	$(DEPLOYMENT) --output-dir results/deployment

test-deployment: $(READY)
	$(BIN)/python -m pytest -m "deployment and not soak" tests/deployment

test-tables: $(READY)
	$(BIN)/python -m pytest tests/whole/test_real_tables.py tests/data tests/flower/test_table_requests.py
	$(BIN)/python -m pytest -m slow -s tests/whole/test_forest_cover.py

test-families: $(READY)
	$(BIN)/python -m pytest -m "slow or not slow" tests/whole/test_families_real.py \
	  tests/deployment/test_families_deployment.py

test-ledger: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -s tests/federation/test_contribution_ledger.py \
	  tests/federation/test_ledger_damage.py tests/flower/test_ledger_fit.py
	$(BIN)/python -m pytest -m "slow or not slow" tests/deployment/test_living_federation.py

soak: $(READY)
	$(BIN)/python -m pytest -m slow -s tests/flower/test_soak.py tests/flower/test_simulation.py \
	  tests/project/test_examples.py tests/regression/test_coverage.py

soak-deployment: $(READY)
	$(BIN)/python -m pytest -m soak -s tests/deployment/test_soak_deployment.py

record-faults: $(READY)
	FAULT_RECORD=1 FAULT_TIMES=3 $(BIN)/python -m pytest -s tests/deployment/test_faults.py

audit: $(READY)
	$(BIN)/python -m pytest -m slow -s tests/privacy/test_audit.py \
	  tests/flower/test_secure_privacy.py tests/federation/test_secure_lies.py
	$(BIN)/python -m pytest -m slow tests/privacy/test_ledger_attacks.py \
	  tests/privacy/test_intervals.py

private-costs: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tools/private_costs.py

$(VENV)/.security: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[security]'
	@touch $@

security: $(VENV)/.security
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive \
	  fedridge_flwr simulations/fedridge_simulations \
	  benchmarks/fedridge_benchmarks deployment
	$(BIN)/python tools/audit_dependencies.py

poisoning: $(READY)
	PYTHONPATH=simulations:benchmarks:deployment:tests/support $(BIN)/python tools/poisoning.py

fuzz: $(READY)
	$(BIN)/python -m pytest -m slow -s tests/fuzz

notebooks: $(READY)
	$(BIN)/jupytext --to ipynb --update notebooks/*.py
	$(BIN)/python -m pytest --overwrite notebooks/
	$(BIN)/python tools/notebook_record.py

test-notebooks: $(READY)
	$(BIN)/python -m pytest notebooks/

flamby: $(READY)
	$(BIN)/python tools/flamby_heart.py

digits: $(READY)
	$(BIN)/python tools/nist_digits.py

readme: $(READY)
	PYTHONPATH=benchmarks:deployment:tests/support $(BIN)/python tools/documents.py

SITE := $(BIN)/python -m sphinx -W --keep-going -c docs

docs: $(READY)
	$(SITE) -q -b html . docs/_build/html
	@echo "open docs/_build/html/index.html"

docs-links: $(READY)
	$(SITE) -b linkcheck . docs/_build/linkcheck

wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) results docs/_build dist
