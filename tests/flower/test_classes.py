"""Classes in one round: any split of any labels is RidgeClassifier on pooled rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit
from fits import ask, run_fit
from flwr.app import Context
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import RidgeClassifier

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    PrivacyError,
    RidgeClassifierModel,
    RidgeClient,
    RidgeModel,
    SitePolicy,
    ridge_client_app,
)
from fedridge_flwr.data.labels import are_canonical
from fedridge_flwr.federation.aggregate import Answers
from fedridge_flwr.federation.agreement.class_agreement import ClassAggregate
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.requests import AskClasses, AskStatistics
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.flower.protocol.answer_records import answer_fields, read_fields

STRATEGIES = (FedRidge, LegacyFedRidge)
LABELS = {
    "text": ["oak", "fir", "ash", "elm"],
    "integers": [3, 10, -1, 7],
    "two": ["yes", "no"],
    "booleans": [True, False],
}


def forest(kind: str = "text", seed: int = 0, n: int = 240) -> Any:
    """Rows, labels and clients, of which none has all labels and one has only one."""
    rng = np.random.default_rng(seed)
    labels = np.array(LABELS[kind])
    X = rng.normal(size=(n, 4))
    codes = (2.0 * X[:, 0] + X[:, 1] + rng.normal(size=n)).astype(int) % len(labels)
    group = rng.integers(0, 3, size=n)
    group[(codes == 0) & (group == 1)] = 2
    group[:20], codes[:20] = 3, 1
    return X, labels[codes], group


def split(X: Any, y: Any, group: Any) -> dict[str, tuple[Any, Any]]:
    return {str(k): (X[group == k], y[group == k]) for k in np.unique(group)}


def app_of(X: Any, y: Any, group: Any, kind: str = "message", **options: Any) -> Any:
    def load(context: Context) -> tuple[Any, Any]:
        own = group == context.node_config["partition-id"]
        return X[own], y[own]

    if kind == "message":
        return ridge_client_app(load, **options)
    return ClientApp(
        client_fn=lambda context: RidgeClient(*load(context), **options).to_client()
    )


def fitted(strategy: Any, rows: Any, kind: str = "message", **options: Any) -> Any:
    n = len(np.unique(rows[2]))
    grid = InProcessGrid.of_app(app_of(*rows, kind), n)
    options = {"classes": "auto", **options}
    return fit(strategy(min_available_nodes=n, **options), grid, num_rounds=2)


def check_equal(model: Any, pooled: RidgeClassifier, X: Any) -> None:
    """Coefficients, classes and predictions are those of scikit-learn."""
    assert model.classes_.tolist() == pooled.classes_.tolist()
    coef = np.atleast_2d(pooled.coef_)  # of two classes, 1-D in some versions
    assert model.coef_.shape == coef.shape
    size = np.abs(coef).max()
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-10, atol=1e-10 * size)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, atol=1e-10)
    scores = pooled.decision_function(X)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-9)
    best = np.sort(np.column_stack([-scores, scores]) if scores.ndim == 1 else scores)
    clear = best[:, -1] - best[:, -2] > 1e-9
    assert (model.predict(X) == pooled.predict(X))[clear].all()


# ---- the law -------------------------------------------------------------------------

ANY_LABEL = st.one_of(
    st.integers(-3, 12),
    st.sampled_from(["1", "2.0", "oak", "Eiche", "yes", "0.5"]),
)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_split_of_any_labels_is_the_pooled_classifier(data: Any) -> None:
    labels = data.draw(st.lists(ANY_LABEL, min_size=2, max_size=6))
    n = data.draw(st.integers(6, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    codes = rng.integers(0, len(labels), size=n)
    group = rng.integers(0, data.draw(st.integers(1, 6)), size=n)
    y = np.array([labels[c] for c in codes], dtype=object)
    texts = {str(x).removesuffix(".0") for x in y}
    X = rng.normal(size=(n, 3))
    intercept, alpha = data.draw(st.booleans()), data.draw(st.sampled_from([0.1, 5.0]))
    options = {"classes": "auto", "alpha": alpha, "fit_intercept": intercept}
    if len(texts) < 2:
        with pytest.raises(FedRidgeError, match="one class"):
            run_fit(split(X, y, group), **options)
        return
    model = run_fit(split(X, y, group), **options).model
    whole = all(text.lstrip("-").isdigit() for text in texts)
    spelled = [str(x).removesuffix(".0") for x in y]
    same = np.array([int(x) for x in spelled] if whole else spelled)
    pooled = RidgeClassifier(alpha=alpha, fit_intercept=intercept).fit(X, same)
    check_equal(model, pooled, X)


@pytest.mark.parametrize("kind", ["message", "numpy"])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_both_apis_classify_in_one_round(strategy, labels, kind):
    X, y, group = forest(labels)
    found = fitted(strategy, (X, y, group), kind, fraction_evaluate=1.0)
    pooled = RidgeClassifier(alpha=1.0).fit(X, y)
    check_equal(found.model_, pooled, X)
    told = found.report_.evaluation
    assert told["accuracy"] == pytest.approx(pooled.score(X, y), abs=1e-12)
    assert found.model_.score(X, y) == pytest.approx(pooled.score(X, y), abs=1e-12)
    assert told["mse"] == pytest.approx(found.model_.evaluate(X, y).mse, rel=1e-10)
    assert found.report_.failures == {}
    assert set(np.unique(y[group == 1])) < set(np.unique(y)) or len(LABELS[labels]) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("labels", ["text", "two"])
@pytest.mark.parametrize("weight", ["balanced", "given"])
def test_class_weights_are_those_of_scikit_learn(strategy, labels, weight):
    X, y, group = forest(labels)
    used: Any = weight
    if weight == "given":
        used = {str(y[0]): 3.0}
    found = fitted(strategy, (X, y, group), class_weight=used, alphas=[0.5, 2.0])
    alpha = found.model_.alpha_
    check_equal(
        found.model_, RidgeClassifier(alpha=alpha, class_weight=used).fit(X, y), X
    )


def test_balanced_classes_are_those_of_the_clients_that_stayed():
    X, y, group = forest()
    grid = InProcessGrid.of_app(app_of(X, y, group), 4)
    honest = grid.handlers[1003]

    def first_round_only(message: Any) -> Any:
        if "classes" not in str(message.content["config"].get("fedridge-task", "")):
            raise ConnectionError
        return honest(message)

    grid.handlers[1003] = first_round_only
    found = fit(
        FedRidge(classes="auto", class_weight="balanced", min_available_nodes=4), grid
    )
    stayed = group != 3
    pooled = RidgeClassifier(class_weight="balanced").fit(X[stayed], y[stayed])
    check_equal(found.model_, pooled, X)
    assert list(found.report_.failures) == ["1003"]


@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
@pytest.mark.parametrize("labels", ["text", "two"])
def test_alpha_is_chosen_on_the_targets_of_all_classes(cv, labels):
    X, y, group = forest(labels)
    found = fitted(FedRidge, (X, y, group), cv=cv, alphas=[0.1, 3.0, 50.0])
    pooled = RidgeClassifier(alpha=found.model_.alpha_).fit(X, y)
    check_equal(found.model_, pooled, X)
    server = fitted(FedRidge, (X, y, group), cv="server", alphas=[0.1, 3.0, 50.0])
    if cv == "clients":
        losses = found.selection_.losses
        np.testing.assert_allclose(losses, server.selection_.losses, rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "refine"},
        {"mode": "cg"},
        {"mode": "auto"},
        {"feature_map": "standardize"},
        {"screen": "exclude"},
    ],
)
@pytest.mark.parametrize("labels", ["text", "two"])
def test_given_classes_go_with_all_exact_ways(options, labels):
    X, y, group = forest(labels)
    found = fitted(FedRidge, (X, y, group), classes=LABELS[labels], **options)
    Z = X
    if "feature_map" in options:
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
    pooled = RidgeClassifier().fit(Z, y)
    assert (found.model_.predict(X) == pooled.predict(Z)).all()
    coef = np.atleast_2d(pooled.coef_)
    np.testing.assert_allclose(found.model_.coef_, coef, atol=1e-9)


@pytest.mark.parametrize(
    "spell",
    [
        lambda y: y.astype(float),
        lambda y: y.astype(str),
        lambda y: [f" {x}.0" for x in y],
        lambda y: pd.Series(y),
        lambda y: pd.Series(y).astype("category"),
        lambda y: pd.Series(y, dtype="Int64"),
        lambda y: y.reshape(-1, 1),
    ],
)
def test_one_label_has_many_spellings(spell):
    X, y, group = forest("integers")
    clients = split(X, y, group)
    X1, y1 = clients["1"]
    clients["1"] = (sparse.csr_array(X1), spell(y1))
    model = run_fit(clients, classes="auto").model
    check_equal(model, RidgeClassifier().fit(X, y), X)


def test_weights_and_rows_without_any():
    X, y, group = forest()
    weight = np.random.default_rng(1).exponential(size=len(y))
    weight[:5] = 0.0
    y[:5] = "unknown"
    parts = {
        str(k): (X[group == k], y[group == k], weight[group == k]) for k in range(4)
    }
    model = run_fit(parts, classes="auto").model
    pooled = RidgeClassifier().fit(X[5:], y[5:], sample_weight=weight[5:])
    check_equal(model, pooled, X)


# ---- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([0.5, 1.0, 1.0], "text, whole numbers or booleans"),
        (["a", None, "b"], "no label in 1 of 3 rows"),
        (["a", " ", "b"], "no label in 1 of 3 rows"),
        ([1.0, np.nan, 2.0], "no label in 1 of 3 rows"),
        ([["a", "b"]] * 3, "one label for each row"),
        ([b"a", b"b", b"a"], "text, whole numbers or booleans"),
        (["a", "b" * 201, "a"], "text, whole numbers or booleans"),
        (["a", "b\x00c", "a"], "text, whole numbers or booleans"),
        ([{"a": 1}, "b", "c"], "text, whole numbers or booleans"),
    ],
)
def test_a_client_with_other_labels_is_named(bad, reason):
    X, y, group = forest()
    grid = InProcessGrid.of_app(app_of(X, y, group), 3)
    own = ridge_client_app(lambda _: (np.eye(3, 4), bad))
    other = InProcessGrid.of_app(own, 1).handlers[1000]
    grid.handlers[1003] = other
    found = fit(FedRidge(classes="auto", min_available_nodes=4), grid)
    assert reason in found.report_.failures["1003"]
    assert "b\x00c" not in found.report_.failures["1003"]
    mine = group < 3
    check_equal(found.model_, RidgeClassifier().fit(X[mine], y[mine]), X)


def test_labels_that_the_server_does_not_know_decline_the_fit():
    X, y, group = forest()
    known = ["oak", "fir", "ash"]
    found = fitted(FedRidge, (X, y, group), classes=known)
    assert "not among the 3 classes" in next(iter(found.report_.failures.values()))
    assert "elm" not in str(found.report_.failures)


def test_rows_of_an_unknown_class_count_as_wrong():
    X, y, group = forest()
    model = fitted(FedRidge, (X, y, group)).model_
    unknown = np.where(y == "elm", "yew", y)
    right = (model.predict(X) == y) & (y != "elm")
    assert model.score(X, unknown) == pytest.approx(right.mean())


def answer_of(**changes: Any) -> Any:
    X, y, _ = forest()
    part = ask(AskStatistics(classes=()), (X, y))
    return replace(part, **changes)


def refused(part: Any, **options: Any) -> str:
    total = ClassAggregate(settings=FitSettings(classes="auto"), **options)
    total.add("a", part)
    return total.failures.get("a", "")


def test_an_honest_answer_is_taken_and_hostile_ones_are_refused():
    honest = answer_of()
    names = honest.schema.targets
    assert refused(honest) == ""
    means = honest.means.copy()
    means[-1] += 0.5
    assert "no rows" in refused(replace(honest, means=means))
    triangle = honest.triangle.copy()
    triangle[-1] *= 2.0
    assert "no rows" in refused(replace(honest, triangle=triangle))
    unnamed = replace(honest.schema, targets=None)
    assert "no labels" in refused(replace(honest, schema=unnamed))
    spelled = type(names).of(["1.0", "b", "c", "d"])
    schema = replace(honest.schema, targets=spelled)
    assert "not valid" in refused(replace(honest, schema=schema))
    assert "other classes" in refused(honest, asked=("ash", "elm", "fir", "yew"))


def test_who_invents_classes_excludes_nobody_else():
    X, y, group = forest()
    clients = split(X, y, group)
    rng = np.random.default_rng(0)
    invented = [f"x{k}" for k in range(999)]
    clients["liar"] = (rng.normal(size=(999, 4)), np.array(invented))
    run = run_fit(clients, classes="auto")
    assert "999 further classes" in run.report.failures["liar"]
    check_equal(run.model, RidgeClassifier().fit(X, y), X)


@pytest.mark.parametrize("kept", [2, 3])
def test_classes_of_a_client_that_is_left_out_are_gone(kept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.array(["oak", "fir", "ash"])[np.arange(300) % kept]
    clients = split(X, y, np.arange(300) // 50)
    odd = np.array(["oak", "alien"])[np.arange(50) % 2]
    clients["odd"] = (1e6 * rng.normal(size=(50, 3)), odd)
    run = run_fit(clients, classes="auto", screen="exclude")
    assert list(run.report.failures) == ["odd"]
    check_equal(run.model, RidgeClassifier().fit(X, y), X)


@pytest.mark.parametrize("weight", [None, "balanced"])
def test_labels_that_are_spelled_alike_are_remarked_on(weight):
    X, y, group = forest()
    y = y.astype(object)
    y[(group == 2) & (y == "fir")] = "Fir"
    run = run_fit(split(X, y, group), classes="auto", class_weight=weight)
    assert run.report.remarks == {
        "2": "its class 'Fir' is 'fir' at other clients: are they the same class?"
    }
    assert run.model.classes_.tolist() == ["Fir", "ash", "elm", "fir", "oak"]


def test_an_older_client_sends_numbers_and_is_named():
    X, y, group = forest("integers")

    def without_classes(message: Any) -> Any:
        for key in ("config", "fitins.config", "evaluateins.config"):
            if key in message.content:
                message.content[key].pop("classes", None)
        return older(message)

    grid = InProcessGrid.of_app(app_of(X, y, group), 4)
    older = grid.handlers[1003]  # the last: all are sent the same record
    grid.handlers[1003] = without_classes
    strategy = FedRidge(classes="auto", min_available_nodes=4, fraction_evaluate=1.0)
    found = fit(strategy, grid)
    assert "no labels of classes" in found.report_.failures["1003"]
    # A model of several targets cannot be evaluated on one column of numbers.
    assert list(found.report_.evaluation_failures) == ["1003"]


@settings(deadline=None, max_examples=80)
@given(
    labels=st.lists(st.text(max_size=4) | st.integers() | st.none(), max_size=6),
    scale=st.sampled_from([1.0, -1.0, 0.5, 1e200, np.nan]),
    counts=st.lists(st.floats(allow_nan=True), max_size=6),
)
def test_hostile_answers_spoil_nothing(labels: Any, scale: Any, counts: Any) -> None:
    X, y, _ = forest(n=60)
    request = AskStatistics(classes=())
    answer: Any = respond(request, lambda: (X, y, None), Guards())
    fields = answer_fields(answer, share_names=False)
    fields |= {"target-names": json.dumps(labels), "n-targets": max(len(labels), 1)}
    arrays = [np.asarray(a) * scale for a in answer.arrays.values()]
    total = ClassAggregate(settings=FitSettings(classes="auto"))
    total.take("honest", lambda: ask(request, (X, y)))
    total.take("liar", lambda: read_fields(fields, arrays, answer.count, request))
    assert total.result() is not None
    assert "honest" not in total.failures
    assert "liar" in total.failures
    asked, counted = AskClasses(classes=()), {**fields, "kind": "classes"}
    told = Answers()
    told.take("liar", lambda: read_fields(counted, [np.array(counts)], 60, asked))
    for found in told.parts.values():
        assert are_canonical(found)
        assert 0 < sum(found.values()) <= 60


@pytest.mark.parametrize("text", ["[1]", '["a", "a"]', '["1.0", "2"]', "{", '"auto"'])
def test_hostile_requests_are_declined(text):
    X, y, _ = forest()
    client = RidgeClient(X, y)
    with pytest.raises(FedRidgeError):
        client.fit([], {"classes": text})
    for weights in ('{"a": -1}', '{"a": NaN}', "[1]", '{"1.0": 1, "1": 2}'):
        with pytest.raises(FedRidgeError):
            client.fit([], {"classes": "[]", "class-weights": weights})


# ---- disclosure ----------------------------------------------------------------------


def test_a_rare_class_is_declined_by_the_site_policy():
    X, y, _ = forest()
    y = y.copy()
    y[y == "elm"] = "oak"
    y[100:102] = "elm"
    app = ridge_client_app(lambda _: (X, y), site_policy=SitePolicy.preset(5))
    for request in (AskStatistics(classes=()), AskClasses(classes=())):
        guards = Guards(policies=(SitePolicy.preset(5),))
        with pytest.raises(FedRidgeError, match=r"min_rows_per_level=5, but .* 2 rows"):
            respond(request, lambda: (X, y, None), guards)
    grid = InProcessGrid.of_app(app, 2)
    with pytest.raises(FedRidgeError, match="declined by site policy"):
        fit(FedRidge(classes="auto", min_available_nodes=2), grid)


def test_a_site_may_refuse_to_tell_its_labels():
    X, y, _ = forest()
    allowed = ["statistics", "evaluation"]
    guards = Guards(policies=(SitePolicy(requests=allowed),))
    for request in (AskStatistics(classes=()), AskClasses(classes=())):
        with pytest.raises(FedRidgeError, match='"classes" is not among the allowed'):
            respond(request, lambda: (X, y, None), guards)


def test_a_site_remembers_its_rows_whatever_the_classes_are(tmp_path):
    X, y, _ = forest("integers")
    policy = SitePolicy(min_row_difference=5, state=tmp_path)
    guards = Guards(policies=(policy,))

    def send(rows: slice, labels: Any, classes: Any) -> None:
        request = AskStatistics(classes=classes)
        respond(request, lambda: (X[rows], labels[rows], None), guards)

    send(slice(None), y, ())
    send(slice(None), y.astype(str), ())
    send(slice(None), y, ("-1", "3", "7", "10"))
    send(slice(None), y, None)
    for classes in ((), None, ("-1", "3", "7", "10")):
        with pytest.raises(FedRidgeError, match="min_row_difference"):
            send(slice(1, None), y, classes)


# ---- settings and files --------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"classes": "a"}, "a list of labels"),
        ({"classes": ["a"]}, "2 to 1000 labels"),
        ({"classes": ["1", 1.0]}, "twice"),
        ({"classes": ["a", 0.5]}, "text, whole numbers or booleans"),
        ({"classes": "auto", "mode": "refine"}, "list of all classes"),
        ({"classes": "auto", "class_weight": {"a": -1.0}}, "positive number"),
        ({"classes": "auto", "class_weight": "even"}, "balanced"),
        ({"class_weight": "balanced"}, "needs classes"),
        ({"classes": "auto", "formula": "y ~ x"}, "target of a formula is a number"),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_settings_that_do_not_go_together(strategy, options, reason):
    with pytest.raises(FedRidgeError, match=reason):
        strategy(**options)


def test_classes_are_not_available_with_privacy():
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    with pytest.raises(PrivacyError, match="not available with privacy"):
        FedRidge(classes="auto", privacy=privacy)


@pytest.mark.parametrize("labels", LABELS)
def test_a_classifier_comes_back_from_its_file(tmp_path, labels):
    X, y, group = forest(labels)
    model = fitted(FedRidge, (X, y, group)).model_
    model.save(tmp_path / "model.json")
    for cls in (RidgeModel, RidgeClassifierModel):
        back: Any = cls.load(tmp_path / "model.json")
        assert isinstance(back, RidgeClassifierModel)
        assert (back.predict(X) == model.predict(X)).all()
        assert back.classes_.dtype == model.classes_.dtype
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["version"] == 2  # which 0.1.0 declines to read
    for classes in (["a"], "ab", ["a", "a", "b", "c"], [1, 2], None):
        (tmp_path / "bad.json").write_text(json.dumps({**content, "classes": classes}))
        with pytest.raises(FedRidgeError):
            RidgeModel.load(tmp_path / "bad.json")


def test_a_model_of_numbers_is_no_classifier(tmp_path):
    model = run_fit({"a": (np.eye(3), np.arange(3.0))}).model
    assert model is not None
    model.save(tmp_path / "model.json")
    with pytest.raises(FedRidgeError, match="no classes"):
        RidgeClassifierModel.load(tmp_path / "model.json")
    with pytest.raises(FedRidgeError, match="1 targets cannot have 3 classes"):
        RidgeClassifierModel.from_model(model, ["a", "b", "c"])


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("feature_map", [None, "polynomial 2"])
def test_to_sklearn_is_a_fitted_ridge_classifier(labels, feature_map):
    X, y, group = forest(labels)
    model = fitted(FedRidge, (X, y, group), feature_map=feature_map).model_
    found = model.to_sklearn()
    assert (found.predict(X) == model.predict(X)).all()
    assert found.score(X, y) == pytest.approx(model.score(X, y))
    last = found if feature_map is None else found[-1]
    assert isinstance(last, RidgeClassifier)
    assert last.classes_.tolist() == model.classes_.tolist()
