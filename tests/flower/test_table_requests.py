"""Whole tables at the clients, a formula at the server: the pooled fit, or a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import Array, Message
from formulaic import Formula
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    IncompleteFitError,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeClient,
    RidgeModel,
    SitePolicy,
    TableFormula,
    ridge_client_app,
    table_client_app,
)
from fedridge_flwr.flower.local_fit import LocalFit
from fedridge_flwr.flower.table_client import load_table

BOTH = pytest.mark.parametrize("Strategy", [FedRidge, LegacyFedRidge])
FORMULA = "y ~ a + C(b) + C(c) + a:C(c) + I(a**2)"


def tables(n_sites: int = 4, seed: int = 0) -> list[pd.DataFrame]:
    """Return tables that agree to people: other orders, spellings, types and levels."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(n_sites):
        n = 40 + 10 * k
        codes = rng.choice([1, 2, 3] if k else [1, 2], n)
        frame = pd.DataFrame(
            {
                "a": rng.normal(size=n),
                "b": [codes, codes.astype(float), codes.astype(str)][k % 3],
                "c": rng.choice(["f", "m"], n),
                "unused": "x",
            }
        )
        frame["y"] = frame["a"] + codes + (frame["c"] == "m") + rng.normal(size=n)
        frame.loc[frame.sample(3, random_state=k).index, "a"] = np.nan
        found.append(frame[list(rng.permutation(frame.columns))])
    return found


def pooled(frames: list[pd.DataFrame], text: str = FORMULA) -> tuple[Any, Any, Any]:
    """Return design, target and names of all rows in one place, coded by formulaic."""
    whole = pd.concat(frames)
    whole["b"] = whole["b"].astype(float).astype(int).astype(str)
    formula = Formula(text)
    design = formula.get_model_matrix(whole.dropna(subset=["a", "y"]))
    X = design.rhs.drop(columns="Intercept", errors="ignore")
    return X.to_numpy(float), design.lhs.to_numpy(float)[:, 0], list(X.columns)


def run(strategy: Any, frames: list[Any], **app: Any) -> Any:
    client = ridge_client_app(lambda c: frames[c.node_config["partition-id"]], **app)
    for name in ("min_available_nodes", "min_available_clients"):
        if hasattr(strategy, name):  # no waiting until their number is stable
            setattr(strategy, name, len(frames))
    return fit(strategy, InProcessGrid.of_app(client, len(frames)), num_rounds=6)


def assert_is_pooled(model: RidgeModel, frames: list[Any], alpha: float = 1.0) -> None:
    X, y, names = pooled(frames)
    ridge = Ridge(alpha=alpha).fit(X, y)
    assert list(model.feature_names_in_) == names
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=0, atol=1e-12)


@BOTH
def test_tables_of_any_spelling_are_the_pooled_fit(Strategy: type) -> None:
    frames = tables()
    strategy = run(Strategy(alpha=1.0, formula=FORMULA, strict=True), frames)
    assert_is_pooled(strategy.model_, frames)
    assert strategy.report_.n_rows == sum(len(frame) - 3 for frame in frames)
    assert strategy.statistics_.target_names == ("y",)


def test_the_wrong_answer_of_dummies_by_hand_does_not_happen() -> None:
    """By hand ``cp_1.0`` here and ``cp_1`` there: a model of two of four sites."""
    frames = tables()
    by_hand = [
        (pd.get_dummies(f[["b"]].astype(str)).assign(a=f["a"].fillna(0)), f["y"])
        for f in frames
    ]
    client = ridge_client_app(lambda c: by_hand[c.node_config["partition-id"]])
    grid = InProcessGrid.of_app(client, 4)
    with pytest.raises(IncompleteFitError, match="OF 4 CLIENTS"):
        FedRidge(alpha=1.0, strict=True).start(grid)
    assert_is_pooled(run(FedRidge(formula=FORMULA, strict=True), frames).model_, frames)


def test_the_round_before_the_fit_is_a_query() -> None:
    frames, kinds = tables(2), []

    def handler(k: int) -> Callable[[Message], Message]:
        app = ridge_client_app(lambda _: frames[k])
        context = node_context(k, 2)

        def answer(message: Message) -> Message:
            kinds.append(message.metadata.message_type)
            return app(message, context)

        return answer

    FedRidge(formula=FORMULA).start(InProcessGrid([handler(0), handler(1)]))
    assert kinds == ["query"] * 2 + ["train"] * 2


def test_a_rehearsal_in_one_process_has_the_same_result() -> None:
    frames = tables()
    federated = run(FedRidge(alpha=1.0, formula=FORMULA), frames).model_
    sites = {f"site {k}": (lambda f=f: f) for k, f in enumerate(frames)}
    local = LocalFit(alpha=1.0, formula=FORMULA).run(sites)
    np.testing.assert_allclose(local.model_.coef_, federated.coef_, rtol=0, atol=1e-13)
    assert [s.client for s in local.report_.sites] == list(sites)[::-1]


@pytest.mark.parametrize("cv", ["server", "clients"])
def test_alpha_is_chosen_over_tables(cv: str) -> None:
    frames, alphas = tables(), [1e-3, 0.1, 1.0, 10.0, 1e3]
    strategy = run(FedRidge(alphas=alphas, cv=cv, formula=FORMULA), frames)
    local = LocalFit(alphas=alphas, cv=cv, formula=FORMULA)
    sites = {str(k): (lambda f=f: f) for k, f in enumerate(frames)}
    assert strategy.model_.alpha_ == local.run(sites).model_.alpha_
    assert strategy.model_.alpha_ in alphas
    assert_is_pooled(strategy.model_, frames, strategy.model_.alpha_)


@pytest.mark.parametrize("mode", ["refine", "cg"])
@BOTH
def test_fits_in_several_rounds_over_tables(Strategy: type, mode: str) -> None:
    frames = tables()
    client = ridge_client_app(lambda c: frames[c.node_config["partition-id"]])
    grid = InProcessGrid.of_app(client, len(frames))
    strategy = Strategy(mode=mode, formula=FORMULA, max_rounds=60)
    fit(strategy, grid, num_rounds=70)
    X, y, _ = pooled(frames)
    ridge = Ridge(alpha=1.0).fit(X, y)
    np.testing.assert_allclose(strategy.model_.coef_, ridge.coef_, atol=1e-9)


def test_a_map_behind_the_formula() -> None:
    frames = tables()
    strategy = run(FedRidge(formula=FORMULA, feature_map="standardize"), frames)
    X, y, _ = pooled(frames)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(
        strategy.model_.coef_, Ridge(alpha=1.0).fit(Z, y).coef_, atol=1e-10
    )
    new = frames[0].dropna()
    again = frames[0].dropna().sample(frac=1.0, random_state=0)
    np.testing.assert_allclose(
        strategy.model_.predict(new.loc[again.index]), strategy.model_.predict(again)
    )


def test_an_evaluation_over_tables() -> None:
    frames = tables()
    strategy = run(FedRidge(formula=FORMULA, fraction_evaluate=1.0), frames)
    X, y, _ = pooled(frames)
    expected = Ridge(alpha=1.0).fit(X, y).score(X, y)
    assert strategy.report_.evaluation["r2"] == pytest.approx(expected, abs=1e-12)


@BOTH
def test_a_private_fit_needs_declared_levels(Strategy: type) -> None:
    privacy = DifferentialPrivacy(50.0, 1e-5, x_norm_bound=3.0, y_bound=5.0)
    with pytest.raises(FedRidgeError, match="levels= for 'b'"):
        Strategy(formula="y ~ a + C(b)", privacy=privacy)
    levels = {"b": ["1", "2", "3"]}
    formula = TableFormula("y ~ a + C(b)", levels=levels)
    strategy = run(Strategy(formula=formula, privacy=privacy), tables())
    assert list(strategy.model_.feature_names_in_) == ["a", "C(b)[T.2]", "C(b)[T.3]"]
    assert len(strategy.report_.participants) == 4


def lost_in_the_fit(frames: list[pd.DataFrame], lost: int) -> InProcessGrid:
    """Return clients of which one describes its table and is then gone."""
    client = ridge_client_app(lambda c: frames[c.node_config["partition-id"]])
    grid = InProcessGrid.of_app(client, len(frames))
    honest = grid.handlers[1000 + lost]

    def answer(message: Message) -> Message:
        if message.metadata.message_type == "query":
            return honest(message)
        raise ConnectionError("gone")

    grid.handlers[1000 + lost] = answer
    return grid


@pytest.mark.parametrize("missing", ["drop", "mean", "indicator"])
def test_who_is_gone_after_the_agreement_leaves_nothing_behind(missing: str) -> None:
    """Neither its levels nor its means: as if it had never been there."""
    frames = tables()
    frames[2]["b"] = "only here"
    frames[2].loc[:20, "a"] = 1e6
    formula = TableFormula("y ~ a + C(b)", missing=missing)
    strategy = FedRidge(alpha=1.0, formula=formula)
    strategy.start(lost_in_the_fit(frames, 2))
    without = run(FedRidge(alpha=1.0, formula=formula), [*frames[:2], frames[3]])
    assert strategy.model_.coding == without.model_.coding
    np.testing.assert_allclose(
        strategy.model_.coef_, without.model_.coef_, rtol=0, atol=1e-12
    )
    assert list(strategy.report_.failures) == ["1002"]


@BOTH
def test_a_table_that_does_not_fit_ends_a_strict_fit_and_is_named(
    Strategy: type,
) -> None:
    frames = tables()
    frames[1] = frames[1].drop(columns="a")
    with pytest.raises(IncompleteFitError, match="partition 1: the table has no col"):
        run(Strategy(formula=FORMULA, strict=True), frames)
    strategy = run(Strategy(formula=FORMULA), frames)
    assert_is_pooled(strategy.model_, [frames[0], *frames[2:]])
    assert "no column 'a'" in strategy.report_.failures["1001"]
    assert "MODEL OF 3 OF 4 CLIENTS" in strategy.model_.summary()


def test_no_table_is_enough() -> None:
    frames = [frame.drop(columns="a") for frame in tables()]
    with pytest.raises(FedRidgeError, match="no table matches the formula"):
        run(FedRidge(formula=FORMULA), frames)


def test_fewer_tables_than_wanted() -> None:
    frames = tables()
    frames[1] = frames[1].drop(columns="a")
    with pytest.raises(NotEnoughClientsError, match="at least 4 needed"):
        run(FedRidge(formula=FORMULA, min_train_nodes=4), frames)


@BOTH
def test_rows_where_a_table_is_wanted_and_the_other_way_round(Strategy: type) -> None:
    frames = tables(2)
    rows = [(f[["a"]].fillna(0), f["y"]) for f in frames]
    with pytest.raises(FedRidgeError, match="let load_data return the whole table"):
        run(Strategy(formula=FORMULA), rows)
    with pytest.raises(FedRidgeError, match=r"use FedRidge\(formula="):
        run(Strategy(), frames)


def test_a_numpy_client_has_no_table() -> None:
    client = RidgeClient([[1.0], [2.0], [3.0]], [1.0, 2.0, 4.0])
    config = {"fedridge-protocol": 3, "fedridge-task": "table"}
    with pytest.raises(FedRidgeError, match="no valid formula"):
        client.fit([], config)
    config["table-formula"] = '{"formula": "y ~ a"}'
    with pytest.raises(FedRidgeError, match="this client has X and y"):
        client.fit([], config)


def test_a_policy_guards_what_is_said_of_a_table() -> None:
    frames = tables()
    frames[0] = pd.concat([frames[0], frames[0].head(1).assign(b="rare")])
    policy = SitePolicy(min_rows_per_level=3)
    strategy = run(FedRidge(formula="y ~ a + C(b)"), frames, site_policy=policy)
    assert strategy.report_.failures == {"1000": "declined by site policy."}
    assert "rare" not in strategy.model_.coding.to_json()


def test_two_formulas_cannot_tell_a_patient_apart(tmp_path: Path) -> None:
    """The rows of two fits differ by the patient in whom one column is missing."""
    frames = tables()
    frames[0].loc[frames[0].index[5], "c"] = None
    frames[0]["a"] = frames[0]["a"].fillna(0.0)
    state = tmp_path / "state"
    state.mkdir()
    policy = SitePolicy(min_row_difference=5, state=state)

    def answers(text: str) -> Any:
        sites = [frames[0]]
        return run(FedRidge(formula=text), sites, site_policy=policy).model_

    assert answers("y ~ a").n_rows_ == 40
    assert answers("y ~ a + C(b)").n_rows_ == 40
    with pytest.raises(NotEnoughClientsError, match="declined by site policy"):
        answers("y ~ a + C(c)")


def test_the_model_predicts_tables_and_remembers_its_coding(tmp_path: Path) -> None:
    frames = tables()
    model = run(FedRidge(alpha=1.0, formula=FORMULA), frames).model_
    model.save(tmp_path / "model.json")
    again = RidgeModel.load(tmp_path / "model.json")
    assert again.coding == model.coding
    X, y, names = pooled(frames[2:3])
    ridge = Ridge(alpha=1.0).fit(*pooled(frames)[:2])
    new = frames[2].dropna(subset=["a"])
    np.testing.assert_allclose(again.predict(new), ridge.predict(X), atol=1e-10)
    coded = pd.DataFrame(X, columns=names)
    np.testing.assert_allclose(again.predict(coded), ridge.predict(X), atol=1e-10)
    np.testing.assert_allclose(
        again.score(new, new["y"]), ridge.score(X, y), atol=1e-10
    )
    with pytest.raises(FedRidgeError, match=r"3 row\(s\) lack a value"):
        again.predict(frames[2])


def test_a_hostile_profile_changes_nobody_elses_model() -> None:
    frames = tables()
    client = ridge_client_app(lambda c: frames[c.node_config["partition-id"]])
    grid = InProcessGrid.of_app(client, 4)
    honest = grid.handlers[1003]

    def lie(message: Message) -> Message:
        reply = honest(message)
        if message.metadata.message_type == "query":
            record = reply.content.array_records["arrays"]
            name = next(iter(record))
            text = b'{"rows": 5, "complete": 5, "columns": {"a": {"kind": 1}}}'
            record[name] = Array(np.frombuffer(text, dtype=np.uint8))
        return reply

    grid.handlers[1003] = lie
    strategy = FedRidge(alpha=1.0, formula=FORMULA)
    strategy.start(grid)
    assert_is_pooled(strategy.model_, frames[:3])
    assert "damaged" in strategy.report_.failures["1003"]


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_a_table_beyond_memory_is_in_a_file(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedridge_flwr.data import local_table

    monkeypatch.setattr(local_table, "HELD_BYTES", held)
    monkeypatch.setattr(local_table, "BATCH_ROWS", 7)
    frames = tables()
    assert_is_pooled(run(FedRidge(formula=FORMULA), frames).model_, frames)


def test_means_stand_for_missing_values_of_new_rows_too() -> None:
    frames = tables()
    formula = TableFormula("y ~ a", missing="mean")
    model = run(FedRidge(alpha=1.0, formula=formula), frames).model_
    new = pd.DataFrame({"a": [np.nan, 1.0]})
    filled = new.fillna(pd.concat(frames)["a"].mean())
    np.testing.assert_allclose(model.predict(new), model.predict(filled), atol=1e-12)


def test_a_policy_takes_functions_in_a_formula_for_feature_maps() -> None:
    """One that lets a single row outweigh all others is a function like any other."""
    frames = tables()
    for text in ("y ~ I((a - 0.5)**-16)", "y ~ exp(a)", "log(y) ~ a"):
        with pytest.raises(FedRidgeError, match="declined by site policy"):
            run(FedRidge(formula=text), frames, site_policy=SitePolicy(min_rows=5))
    allowed = SitePolicy(min_rows=5, requests=["table", "statistics", "feature_maps"])
    strategy = run(FedRidge(formula="y ~ exp(a)"), frames, site_policy=allowed)
    assert len(strategy.report_.participants) == 4


def test_a_policy_refuses_weights_that_single_a_row_out() -> None:
    frames = [frame.assign(w=1.0) for frame in tables()]
    formula = TableFormula("y ~ a", weights="w")
    policy = SitePolicy(min_rows_per_level=3)
    strategy = run(FedRidge(formula=formula), frames, site_policy=policy)
    assert strategy.report_.failures == {}
    frames[1].iloc[10, frames[1].columns.get_loc("w")] = 0.5
    strategy = run(FedRidge(formula=formula), frames, site_policy=policy)
    assert strategy.report_.failures == {"1001": "declined by site policy."}


def test_a_server_cannot_name_a_file_at_a_deployed_site(tmp_path: Path) -> None:
    """Not even at one that was started with the keys of a simulation."""
    (tmp_path / "secret.csv").write_text("y,a\n1,2\n3,4\n", encoding="utf-8")
    config = {"data": str(tmp_path)}
    context = node_context(0, 1, **config)
    with pytest.raises(FedRidgeError, match="this site has no table"):
        load_table(context)
    grid = InProcessGrid.of_app(table_client_app(), 1, config)
    with pytest.raises(FedRidgeError, match="this site has no table"):
        FedRidge(formula="y ~ a", min_available_nodes=1).start(grid)
    context.node_config["data"] = str(tmp_path / "secret.csv")
    assert load_table(context).names == ("y", "a")
