"""Runs with a ledger: late sites, withdrawal, crashes; the model is the pooled one."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clocks import Clock
from fakes import fit, node_context
from flwr.clientapp import ClientApp
from generators import linear_rows, relative_error
from ledgers import forked, watch_statements
from named_grids import NamedGrid, renamed
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    IncompleteFitError,
    Ledger,
    LedgerError,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeClient,
    SecureSum,
    SingularSystemError,
    ridge_client_app,
)
from fedridge_flwr.federation.fits import ledger_fit
from fedridge_flwr.flower import exchange

K = 5
X, Y = linear_rows(60 * K, 4, np.random.default_rng(3))
BOTH = pytest.mark.parametrize("strategy", [FedRidge, LegacyFedRidge])
FORMS = pytest.mark.parametrize("form", ["moments", "fixed"])


def rows_of(sites: Iterable[int], of: int = K) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.isin(np.arange(len(Y)) % of, list(sites))
    return X[chosen], Y[chosen]


def client_app(of: int = K) -> ClientApp:
    return ridge_client_app(lambda context: rows_of([site_of(context)], of))


def legacy_client_app() -> ClientApp:
    def client_fn(context: Any) -> Any:
        return RidgeClient(*rows_of([site_of(context)]), context=context).to_client()

    return ClientApp(client_fn=client_fn)


def site_of(context: Any) -> int:
    return int(context.node_config["partition-id"])


def grid(nodes: Iterable[int] | None = None, of: int = K, app: Any = None) -> NamedGrid:
    """Registered nodes, all or some of them."""
    found: Any = NamedGrid.of_app(app or client_app(of), of)
    found.names = [f"clinic {k}" for k in range(of)]
    return found if nodes is None else found.only(nodes)


def crash(message: Any) -> Any:
    raise RuntimeError("power cut")


def refusing(name: str) -> Any:
    """Return a node that says its name, and nothing else."""
    app = ridge_client_app(lambda context: None, display_name=lambda context: name)
    context = node_context(0, 1)
    del context.node_config["partition-id"]
    return lambda message: app(message, context)


def assert_model(model: Any, sites: Iterable[int], of: int = K) -> None:
    pooled = Ridge(alpha=1.0).fit(*rows_of(sites, of))
    assert relative_error(model.coef_, pooled.coef_) < 1e-12
    assert abs(model.intercept_ - pooled.intercept_) < 1e-12


def make(strategy: Any, path: Path, **options: Any) -> Any:
    nodes = options.pop("nodes", 1)
    key = "min_available_nodes"
    return strategy(alpha=1.0, ledger=path, **{key: nodes}, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trial.ledger"


# ---- a federation that goes on ------------------------------------------------------


@BOTH
@FORMS
@pytest.mark.parametrize("app", [client_app, legacy_client_app])
def test_late_sites_new_answers_and_a_withdrawal(path, strategy, form, app) -> None:
    options = {"statistics": form}
    fit(make(strategy, path, nodes=3, **options), grid(range(3), app=app()))
    late = make(strategy, path, **options)
    assert_model(fit(late, grid([3], app=app())).model_, range(4))
    assert late.report_.n_rows == len(rows_of(range(4))[1])
    again = make(strategy, path, nodes=2, **options)
    assert_model(fit(again, grid([0, 4], app=app())).model_, range(5))
    receipt = again.remove("clinic 2")
    assert_model(again.model_, [0, 1, 3, 4])
    assert again.statistics_.count == again.report_.n_rows == 60 * 4
    assert "withdrawn" in again.report_.failures["clinic 2"]
    with Ledger(path) as ledger:
        assert (ledger.history()[-1].after, receipt.erased) == (receipt.after, True)
        assert ledger.verify().n_clients == 4
        assert [e.sequence for e in ledger.clients().values()] == [2, 1, 1, 1]
        if form == "fixed":
            parts = [ledger.contribution(f"clinic {k}") for k in (4, 0, 3, 1)]
            assert sum(parts) == ledger.total()


@BOTH
def test_a_site_that_fails_stays_in_with_what_it_sent_before(
    path, strategy, caplog
) -> None:
    fit(make(strategy, path, nodes=K), grid())
    nodes = grid()
    nodes.handlers[1001] = crash
    found = fit(make(strategy, path, nodes=K), nodes)
    assert_model(found.model_, range(K))
    assert "power cut" in found.report_.remarks["clinic 1"]
    assert "client clinic 1: in the model with its upload of" in caplog.text
    assert "5 sites: new rows from 0, all rows from 4, nothing new from 0, " in (
        str(found.report_)
    )
    names = found.report_.names
    assert [names[each] for each in found.report_.participants] == (
        found.report_.participants
    )
    assert found.report_.from_ledger == ["clinic 1"]
    assert f"{K} in ({K - 1} new, 1 from earlier uploads), 0 out" in str(found.report_)
    assert found.report_.failures == {}
    with Ledger(path) as ledger:
        assert ledger.clients()["clinic 1"].sequence == 1
        assert ledger.clients()["clinic 0"].sequence == 2


@BOTH
def test_other_columns_are_refused_and_never_in_the_total(path, strategy) -> None:
    def load(context: Any) -> Any:
        A, b = rows_of([site_of(context)])
        width = 3 if site_of(context) == 0 else 4
        return pd.DataFrame(A[:, :width], columns=list("abcd")[:width]), b

    odd = grid(app=ridge_client_app(load, share_feature_names=True))
    found = fit(make(strategy, path, nodes=K), odd)
    assert_model(found.model_, range(1, K))
    assert set(found.report_.failures) == {"clinic 0"}
    with Ledger(path) as ledger:
        assert "clinic 0" not in ledger.clients()
        assert ledger.total().count == 60 * 4
    # Alone against the ledger it would be a majority of one.
    alone = grid([0], app=ridge_client_app(load))
    found = fit(make(strategy, path), alone)
    assert_model(found.model_, range(1, K))
    assert (
        "not those of the ledger: 3 features against 4"
        in (found.report_.failures["clinic 0"])
    )
    bare = fit(make(strategy, path), grid([2]))
    assert "no feature names" in bare.report_.remarks["clinic 2"]
    assert_model(bare.model_, range(1, K))


def test_cross_validation_and_inference_have_all_that_is_in_the_ledger(path) -> None:
    whole = FedRidge(alphas=[0.1, 10.0], cv="server", standard_errors="CR1")
    fit(whole, grid())
    for nodes in (range(3), [3], [4]):
        options = {"alphas": [0.1, 10.0], "cv": "server", "standard_errors": "CR1"}
        found = FedRidge(ledger=path, min_available_nodes=len(nodes), **options)
        if nodes == range(3) or len(nodes) == 1:
            fit(found, grid(nodes))
    assert found.selection_.alpha == whole.selection_.alpha
    assert relative_error(found.selection_.mean, whole.selection_.mean) < 1e-10
    assert relative_error(found.inference_.se, whole.inference_.se) < 1e-10


# ---- who is who ---------------------------------------------------------------------


def test_node_ids_are_no_names(path) -> None:
    nodes: Any = NamedGrid.of_app(client_app(), K)
    nodes.handlers[1002] = renamed(nodes.handlers[1002], None)
    nodes.handlers[1003] = renamed(nodes.handlers[1003], "1004")
    found = fit(make(FedRidge, path, nodes=K), nodes)
    assert list(found.report_.failures) == ["1002", "1003"]
    assert "register its SuperNode with --name" in found.report_.failures["1002"]
    assert_model(found.model_, [0, 1, 4])
    with Ledger(path) as ledger:
        assert set(ledger.clients()) == {f"partition {k}" for k in (0, 1, 4)}


def test_where_nodes_are_registered_what_a_client_says_is_no_name(path) -> None:
    nodes = grid()
    nodes.names = [f"clinic {k}" for k in range(4)]
    nodes.handlers[1004] = renamed(nodes.handlers[1004], "clinic 9")
    found = fit(make(FedRidge, path, nodes=K), nodes)
    assert "register its SuperNode with --name" in found.report_.failures["1004"]
    assert_model(found.model_, range(4))


def test_two_nodes_registered_with_one_name_end_the_run_before_it_begins(path) -> None:
    nodes = grid()
    nodes.names = ["clinic 0", *nodes.names[1:4], "clinic 0"]
    with pytest.raises(LedgerError, match="two nodes are registered as 'clinic 0'"):
        fit(make(FedRidge, path, nodes=K), nodes)
    assert nodes.sent == []


@pytest.mark.parametrize("in_ledger", [False, True])
def test_of_two_clients_with_one_name_neither_is_believed(path, in_ledger) -> None:
    if in_ledger:
        fit(make(FedRidge, path, nodes=K), NamedGrid.of_app(client_app(), K))
    nodes: Any = NamedGrid.of_app(client_app(), K)
    nodes.handlers[1003] = renamed(nodes.handlers[1003], "partition 1")
    found = fit(make(FedRidge, path, nodes=K), nodes)
    assert_model(found.model_, range(K) if in_ledger else [0, 2, 4])
    told = found.report_.remarks if in_ledger else found.report_.failures
    assert "another node has the same name" in told["partition 1"]


# ---- what does not go together ------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    "run a new sum without it": {"secure": SecureSum()},
    "every upload is a release": {
        "privacy": DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    },
    'use mode="oneshot"': {"mode": "refine"},
    "asks everybody in every round": {"family": "binomial"},
    "cannot be taken away": {"statistics": "triangular"},
    "for their residuals": {"standard_errors": "HC3"},
    'use cv="server"': {"cv": "clients"},
    "a formula agrees": {"formula": "y ~ a"},
    "classes are agreed": {"classes": "auto"},
    "the feature map takes numbers": {"feature_map": "standardize"},
    "remove a client by name": {"screen": "exclude"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_needs_all_clients_at_once_is_refused(reason, path) -> None:
    with pytest.raises(FedRidgeError, match=f"not available with a ledger.*{reason}"):
        FedRidge(ledger=path, **REFUSED[reason])
    assert not path.exists()


def test_a_ledger_of_another_kind_is_an_error_and_left_as_it_is(path) -> None:
    fit(make(FedRidge, path, nodes=K, statistics="fixed"), grid())
    with pytest.raises(LedgerError, match=r'made with statistics="fixed".*"moments"'):
        fit(make(FedRidge, path, nodes=K), grid())
    with Ledger(path) as ledger:
        assert ledger.verify().n_clients == K
    with pytest.raises(FedRidgeError, match="ledger must be a path"):
        FedRidge(ledger=7)
    with pytest.raises(FedRidgeError, match=r"an absolute path, got 'rel\.ledger'"):
        FedRidge(ledger="rel.ledger")
    with pytest.raises(FedRidgeError, match="only a strategy with ledger"):
        FedRidge().remove("clinic 0")


@BOTH
def test_who_has_withdrawn_and_answers_again_is_named(path, strategy, caplog) -> None:
    found = fit(make(strategy, path, nodes=3), grid(range(3)))
    assert found.report_.remarks == {}
    found.remove("clinic 1")
    caplog.clear()
    again = fit(make(strategy, path, nodes=2), grid([1, 3]))
    assert_model(again.model_, range(4))
    assert "withdrawn on 20" in again.report_.remarks["clinic 1"]
    assert "in the model again" in caplog.text
    later = fit(make(strategy, path, nodes=2), grid([1, 2]))
    assert later.report_.remarks == {}


# ---- interrupted runs ---------------------------------------------------------------


@BOTH
def test_a_run_without_enough_sites_stays_open(path, strategy) -> None:
    nodes = grid()
    nodes.handlers[1002] = nodes.handlers[1004] = crash
    with pytest.raises(NotEnoughClientsError):
        fit(make(strategy, path, nodes=K, min_train_nodes=4), nodes)
    with Ledger(path) as ledger:
        assert len(ledger) == 0
    rest = grid()
    found = fit(make(strategy, path, nodes=K, min_train_nodes=4), rest)
    assert rest.asked() == ["clinic 2", "clinic 4"]
    assert_model(found.model_, range(K))


def test_a_crash_while_a_late_site_is_waited_for_loses_no_answer(
    path, monkeypatch
) -> None:
    def power_cut(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > 5.0:
            raise KeyboardInterrupt

    clock, nodes = Clock(), grid()
    nodes.late = {1003: 60.0}
    with monkeypatch.context() as patch:
        patch.setattr(exchange.time, "monotonic", clock)
        patch.setattr(exchange.time, "sleep", power_cut)
        with pytest.raises(KeyboardInterrupt):
            fit(make(FedRidge, path, nodes=K), nodes)
    rest = grid()
    assert_model(fit(make(FedRidge, path, nodes=K), rest).model_, range(K))
    assert rest.asked() == ["clinic 3"]


def test_a_strict_run_stays_open_until_everybody_is_in(path) -> None:
    nodes = grid()
    nodes.handlers[1002] = crash
    with pytest.raises(IncompleteFitError):
        fit(make(FedRidge, path, nodes=K, strict=True), nodes)
    rest = grid()
    assert_model(fit(make(FedRidge, path, strict=True), rest).model_, range(K))
    assert rest.asked() == ["clinic 2"]


def test_a_removal_makes_no_model_of_a_strict_run_that_lacks_somebody(path) -> None:
    fit(make(FedRidge, path, nodes=2), grid([0, 1]))
    nodes = grid(range(3))
    nodes.handlers[1002] = crash
    strategy = make(FedRidge, path, nodes=3, strict=True)
    with pytest.raises(IncompleteFitError):
        fit(strategy, nodes)
    strategy.remove("clinic 1")
    assert not hasattr(strategy, "model_")
    with Ledger(path) as ledger:
        assert set(ledger.clients()) == {"clinic 0"}


@pytest.mark.parametrize("answers_again", [True, False])
def test_who_tells_its_name_itself_stays_in_an_open_run(path, answers_again) -> None:
    """Before it answers it has no name, so it is asked once more."""
    nodes: Any = NamedGrid.of_app(client_app(), K)
    nodes.handlers[1003] = crash
    with pytest.raises(IncompleteFitError):
        fit(make(FedRidge, path, nodes=K, strict=True), nodes)
    rest: Any = NamedGrid.of_app(client_app(), K)
    if not answers_again:
        rest.handlers[1001] = refusing("partition 1")
    found = fit(make(FedRidge, path, nodes=K), rest)
    assert found.report_.failures == {}
    assert_model(found.model_, range(K))
    with Ledger(path) as ledger:
        assert len(ledger) == ledger.verify().n_clients == K


def test_a_total_that_cannot_be_solved_is_kept_all_the_same(path) -> None:
    few = ridge_client_app(lambda context: (np.ones((3, 2)), np.arange(3.0)))
    with pytest.raises(SingularSystemError):
        fit(FedRidge(alpha=0.0, ledger=path, min_available_nodes=K), grid(app=few))
    with Ledger(path) as ledger:
        assert len(ledger) == K


MANY = 30
SOME_ANSWERS = 240  # in bytes, so that a run has several transactions


def killed_run(path: Path, acknowledged: Path, statement: int) -> int:
    """Start a run over 30 sites and kill -9 it before an SQL statement."""
    found = grid(of=MANY)

    def work() -> None:
        receive_all = Ledger.receive_all

        def noted(self: Ledger, answers: Any) -> None:
            receive_all(self, answers)
            with acknowledged.open("a") as file:
                file.writelines(f"{client}\n" for client in answers)

        Ledger.receive_all = noted  # type: ignore[method-assign]
        ledger_fit._UNWRITTEN_BYTES = SOME_ANSWERS
        watch_statements(statement)
        fit(make(FedRidge, path, nodes=MANY), found)

    return forked(work)


def check_kills(folder: Path, moments: Iterable[int]) -> set[int]:
    """Kill runs at these moments; the next one is as if nothing had happened."""
    ended = set()
    for moment in moments:
        path, noted = folder / f"{moment}.ledger", folder / f"{moment}.txt"
        noted.touch()
        ended.add(killed_run(path, noted, moment))
        acknowledged = noted.read_text().split("\n")[:-1]
        rest = grid(of=MANY)
        found = fit(make(FedRidge, path, nodes=MANY), rest)
        assert_model(found.model_, range(MANY), of=MANY)
        with Ledger(path) as ledger:
            assert ledger.verify().n_clients == MANY
            total = ledger.total()
            uploads = {e.sequence for e in ledger.clients().values()}
        assert (total.count, total.n_clients) == (len(Y), MANY)
        if uploads == {1}:
            assert not set(acknowledged) & set(rest.asked())
    return ended


def test_a_run_that_is_killed_loses_nothing_acknowledged(tmp_path) -> None:
    assert check_kills(tmp_path, [0, 100, 170]) == {-signal.SIGKILL}


@pytest.mark.slow
def test_a_run_that_is_killed_at_fifty_moments(tmp_path) -> None:
    moments = np.random.default_rng(0).choice(186, size=50, replace=False)
    ended = [check_kills(tmp_path, [int(each)]) for each in moments]
    killed = sum(each == {-signal.SIGKILL} for each in ended)
    print(f"{killed} of {len(ended)} runs were killed before their end")
    assert killed >= 40


def check_full_disk(folder: Path, limits: Iterable[int]) -> int:
    """Runs whose files may not grow beyond these sizes; then without a limit."""
    stopped = 0
    for limit in limits:
        path, found = folder / f"{limit}.ledger", grid(of=MANY)

        def work(path: Path = path, limit: int = limit, found: Any = found) -> None:
            ledger_fit._UNWRITTEN_BYTES = SOME_ANSWERS
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                fit(make(FedRidge, path, nodes=MANY), found)
            except LedgerError as error:
                os._exit(7 if "make room on its disk" in str(error) else 1)

        ended = forked(work)
        assert ended in (0, 7)
        stopped += ended == 7
        rest = grid(of=MANY)
        found = fit(make(FedRidge, path, nodes=MANY), rest)
        assert_model(found.model_, range(MANY), MANY)
        with Ledger(path) as ledger:
            assert ledger.verify().n_clients == MANY
    return stopped


def test_a_full_disk_ends_the_run_and_the_next_one_completes(tmp_path) -> None:
    assert check_full_disk(tmp_path, [30_000, 600_000]) == 2


@pytest.mark.slow
def test_the_disk_is_full_at_ten_moments(tmp_path) -> None:
    limits = np.random.default_rng(1).integers(1, 1_500_000, size=10).tolist()
    print(f"{check_full_disk(tmp_path, limits)} of 10 runs were stopped")
