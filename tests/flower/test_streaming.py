"""Rows that arrive between runs: messages are lost, doubled and late, models exact."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.clientapp import ClientApp
from generators import linear_rows, relative_error
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    FitReport,
    FixedPointStatistics,
    Ledger,
    LegacyFedRidge,
    RidgeClient,
    SitePolicy,
    ridge_client_app,
    solve,
)

FORMS = ("moments", "fixed")


class Sites:
    """Clients whose rows grow, in apps that are started anew for every run."""

    def __init__(self, n_clients: int, folder: Path, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.rows = [linear_rows(500, 3, rng) for _ in range(n_clients)]
        self.n_rows = [10] * n_clients
        self.folder = folder
        self.asked_since: list[int | None] = []

    def load_new_data(self, context: Any, since: int | None) -> Any:
        self.asked_since.append(since)
        k = context.node_config["partition-id"]
        X, y = self.rows[k]
        new = slice(since or 0, self.n_rows[k])
        return (X[new], y[new]), self.n_rows[k]

    def app(self, **options: Any) -> ClientApp:
        return ridge_client_app(
            lambda context: self.load_new_data(context, None)[0],
            load_new_data=self.load_new_data,
            upload_folder=self.folder,
            **options,
        )

    def grid(self, **options: Any) -> InProcessGrid:
        return InProcessGrid.of_app(self.app(**options), len(self.rows))

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        both = list(zip(self.rows, self.n_rows, strict=True))
        X, y = ([rows[k][:n] for rows, n in both] for k in (0, 1))
        return np.concatenate(X), np.concatenate(y)


class LossyMessages:
    """Every message is lost, doubled or late with a chance of 5% each."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.late: list[Message] = []
        self.counts = dict.fromkeys(("lost", "doubled", "late", "sent"), 0)

    def __call__(
        self, grid: InProcessGrid, messages: Iterable[Message]
    ) -> list[Message]:
        replies, self.late = self.late, []
        for message in messages:
            self.counts["sent"] += 1
            chance = self.rng.random()
            if chance < 0.025:  # the request is lost
                self.counts["lost"] += 1
                continue
            (message_id,) = grid.push_messages([message])
            (reply,) = grid.pull_messages([message_id])
            if chance < 0.05:  # the answer is lost
                self.counts["lost"] += 1
            elif chance < 0.10:
                self.counts["doubled"] += 1
                replies += [reply, reply]
            elif chance < 0.15:  # it comes in a later run
                self.counts["late"] += 1
                self.late.append(reply)
            else:
                replies.append(reply)
        return [replies[k] for k in self.rng.permutation(len(replies))]


@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_updates_over_lossy_messages_end_in_the_pooled_model(
    form, tmp_path, monkeypatch
):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # no power is lost here
    sites, rng = Sites(20, tmp_path), np.random.default_rng(1)
    exchange = LossyMessages(rng)
    for _ in range(50):
        sites.n_rows = [n + int(rng.choice([0, 2, 3, 8])) for n in sites.n_rows]
        strategy, grid = new_strategy(tmp_path, form), sites.grid()
        requests = strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)
        strategy.aggregate_train(1, exchange(grid, requests))
    assert exchange.counts["sent"] == 1_000
    assert min(exchange.counts.values()) >= 30
    # Nearly all of them were about new rows only.
    assert sum(since is not None for since in sites.asked_since) > 900
    strategy = fit(new_strategy(tmp_path, form), sites.grid())
    check_pooled(strategy, sites, form, tmp_path)


def new_strategy(folder: Path, form: str, kind: Any = FedRidge, nodes: int = 20) -> Any:
    name = "min_available_nodes" if kind is FedRidge else "min_available_clients"
    return kind(alpha=1.0, ledger=folder / "ledger", statistics=form, **{name: nodes})


def check_pooled(strategy: Any, sites: Sites, form: str, folder: Path) -> None:
    X, y = sites.pooled()
    with Ledger(folder / "ledger") as ledger:
        assert ledger.total().count == len(y)
        if form == "fixed":
            assert ledger.total() == FixedPointStatistics.from_data(X, y)
            whole = FixedPointStatistics.from_data(X, y).to_sufficient()
            assert (strategy.model_.coef_ == solve(whole, 1.0).coef_).all()
    pooled = Ridge(alpha=1.0).fit(X, y)
    assert relative_error(strategy.model_.coef_, pooled.coef_) < 1e-12


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_both_apis_send_new_rows_only(kind, tmp_path):
    sites = Sites(20, tmp_path)
    for _ in range(3):
        fit(new_strategy(tmp_path, "moments", kind), sites.grid())
        sites.n_rows = [n + 3 for n in sites.n_rows]
    strategy = fit(new_strategy(tmp_path, "moments", kind), sites.grid())
    check_pooled(strategy, sites, "moments", tmp_path)
    assert sites.asked_since == [None] * 20 + [10] * 20 + [13] * 20 + [16] * 20


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("frames", [False, True])
def test_clients_of_the_older_api_too(kind, frames, tmp_path, monkeypatch):
    sites = Sites(20, tmp_path)
    counts = []
    monkeypatch.setattr(
        "fedridge_flwr.flower.new_rows.loaded_rows",
        lambda rows, *_: (counts.append(len(rows[1])), rows)[1],
    )

    def client_fn(context: Any) -> Any:
        k = context.node_config["partition-id"]
        X, y = sites.rows[k]
        X = pd.DataFrame(X, columns=list("abc")) if frames else X
        client = RidgeClient(X[:10], y[:10], context=context, upload_folder=tmp_path)
        if sites.n_rows[k] > 10:
            client.update(X[10 : sites.n_rows[k]], y[10 : sites.n_rows[k]])
        return client.to_client()

    for _ in range(2):
        grid = InProcessGrid.of_app(ClientApp(client_fn=client_fn), 20)
        strategy = fit(new_strategy(tmp_path, "moments", kind), grid)
        check_pooled(strategy, sites, "moments", tmp_path)
        sites.n_rows = [n + 4 for n in sites.n_rows]
    assert counts == [10] * 20 + [4] * 20


def test_one_new_row_is_refused_and_the_model_keeps_the_others(tmp_path):
    sites = Sites(20, tmp_path)
    fit(new_strategy(tmp_path, "moments"), sites.grid())
    sites.n_rows[3] += 1
    strategy = fit(new_strategy(tmp_path, "moments"), sites.grid())
    assert strategy.model_.n_rows_ == 200
    told = " ".join(strategy.report_.remarks.values())
    assert "fewer rows than its min_rows=2" in told


def test_the_policy_of_a_site_is_asked_about_new_rows(tmp_path):
    sites, policy = Sites(20, tmp_path), SitePolicy(min_rows=5)
    fit(new_strategy(tmp_path, "moments"), sites.grid(site_policy=policy))
    sites.n_rows = [n + 4 for n in sites.n_rows[:-1]] + [15]
    strategy = fit(new_strategy(tmp_path, "moments"), sites.grid(site_policy=policy))
    assert strategy.model_.n_rows_ == 205
    assert len(strategy.report_.remarks) == 19


def test_without_a_folder_all_rows_are_sent_every_time(tmp_path):
    sites = Sites(20, tmp_path)
    sites.folder = None  # type: ignore[assignment]
    for _ in range(2):
        strategy = fit(new_strategy(tmp_path, "moments"), sites.grid())
        check_pooled(strategy, sites, "moments", tmp_path)
    assert set(sites.asked_since) == {None}


def test_a_deployed_site_names_the_folder_in_its_node_config(tmp_path):
    sites, context = Sites(1, tmp_path / "nowhere"), node_context(0, 1)
    X, y = sites.rows[0]
    app = ridge_client_app(
        lambda context: (X, y),
        load_new_data=lambda context, since: ((X[since or 0 :], y[since or 0 :]), 500),
    )
    grid = InProcessGrid([lambda message: app(message, context)])
    strategy = FedRidge(alpha=1.0, ledger=tmp_path / "ledger", min_available_nodes=1)
    context.node_config = {"name": "clinic-a", "uploads": str(tmp_path)}
    fit(strategy, grid)
    assert (tmp_path / "uploads.json").exists()
    context.node_config["uploads"] = "relative"
    fit(strategy, grid)
    assert "must be an absolute path" in " ".join(strategy.report_.remarks.values())


def test_the_report_says_what_a_run_did_with_the_ledger(tmp_path: Path) -> None:
    sites = Sites(4, tmp_path)
    first = fit(new_strategy(tmp_path, "moments", nodes=4), sites.grid()).report_
    assert set(first.uploads.values()) == {"all rows"}
    assert "  clients     4 in, 0 out" in str(first)
    sites.n_rows = [10, 15, 15, 10]
    (tmp_path / "uploads-2.json").unlink()
    grid = sites.grid()
    grid.handlers = {k: grid.handlers[k] for k in (1000, 1001, 1002)}
    found = fit(new_strategy(tmp_path, "moments", nodes=3), grid).report_
    assert list(found.uploads.values()) == [
        "nothing new",
        "new rows",
        "all rows",
        "earlier upload",
    ]
    assert "4 in (2 new, 1 with nothing new, 1 from earlier uploads), 0 out" in (
        str(found)
    )
    assert (
        "  ledger      4 sites: new rows from 1, all rows from 1, nothing new from 1, "
        "earlier upload of 1\n"
    ) in str(found)
    path = tmp_path / "report.json"
    found.save(path)
    assert FitReport.load(path).uploads == found.uploads
