"""A site's own policy: what it says, what it declines, and what the server hears."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    PolicyError,
    PolynomialMap,
    RidgeClient,
    SitePolicy,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.data.local_table import RowOrigin
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.requests import (
    AskColumns,
    AskEvaluation,
    AskLosses,
    AskOpening,
    AskProduct,
    AskRelease,
    AskResiduals,
    AskStatistics,
)
from fedridge_flwr.federation.site.policy_file import VARIABLE, policies_in_force
from fedridge_flwr.federation.site.presets import PRESETS
from fedridge_flwr.federation.site.request_names import REQUESTS
from fedridge_flwr.federation.site.row_rules import ROW_RULES
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion
from fedridge_flwr.regression.alpha.leave_client_out import HeldOut
from fedridge_flwr.regression.inference.residual_moments import ResidualProbe
from fedridge_flwr.regression.least_squares import least_squares

D = 3
rng = np.random.default_rng(0)
X = rng.normal(size=(40, D))
Y = X.sum(axis=1) + rng.normal(size=40)
PRIVACY = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=3.0, y_bound=5.0)
MODEL = solve(SufficientStatistics.from_data(X, Y), alpha=1.0)
PROBE = ResidualProbe.of(least_squares(SufficientStatistics.from_data(X, Y)), "HC3")
MODELS = HeldOut(coef=np.ones((2, 1, D)), intercept=np.zeros((2, 1)))


def release() -> AskRelease:
    return AskRelease(ReleaseRequest("ab" * 16, PRIVACY, True, ReleaseQuestion(1)))


EXACT = {
    "statistics": AskStatistics(),
    "columns": AskColumns(),
    "opening": AskOpening("refine"),
    "product": AskProduct(np.ones((D, 1))),
    "evaluation": AskEvaluation(MODEL),
    "losses": AskLosses(MODELS),
    "residuals": AskResiduals(ResidualProbe(np.ones((1, D)), np.zeros(1))),
}


def of_any_request(policy: SitePolicy) -> SitePolicy:
    return replace(policy, requests=REQUESTS, max_epsilon=PRIVACY.epsilon)


def answer(request: Any, policy: SitePolicy, data: Any = (X, Y, None)) -> Any:
    guards = Guards(curator=Curator(), policies=(policy,))
    return respond(request, lambda: data, guards)


# ---- the file -----------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def test_every_rule_can_be_in_the_file(file: Path) -> None:
    (file.parent / "state").mkdir()
    file.write_text(
        "min_rows = 20\nmin_rows_per_level = 5\nmax_columns_per_row = 0.2\n"
        'allowed_columns = ["a", "b"]\nforbidden_columns = ["c"]\n'
        'requests = ["statistics", "private"]\nrequire_privacy = true\n'
        "max_epsilon = 2.0\nmax_delta = 1e-6\n"
        "require_secure_sums = true\nmin_sites = 3\nmin_row_difference = 5\n"
        'state = "state"\nidentity = "site.key"\nroster = "roster.toml"\n'
    )
    found = SitePolicy.load(file)
    usual = SitePolicy()
    for each in fields(SitePolicy):  # a new rule is written above and below
        assert getattr(found, each.name) != getattr(usual, each.name), each.name
    assert found == SitePolicy(
        min_rows=20,
        min_rows_per_level=5,
        max_columns_per_row=0.2,
        allowed_columns=("a", "b"),
        forbidden_columns=("c",),
        requests=("statistics", "private"),
        require_privacy=True,
        max_epsilon=2.0,
        max_delta=1e-6,
        require_secure_sums=True,
        min_sites=3,
        min_row_difference=5,
        state=file.parent / "state",
        identity=file.parent / "site.key",
        roster=file.parent / "roster.toml",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# min_rows = 11\n",
        "min_row = 11",
        "min_rows = 0",
        "min_rows = -3",
        "min_rows = 11.0",
        'min_rows = "11"',
        "min_rows = true",
        "min_rows = [11]",
        "min_rows = 11\nmin_rows = 3",
        "[policy]\nmin_rows = 11",
        "[a]\nmin_rows = 11\n[b]\nmin_rows = 3",
        "preset = 4",
        "preset = 11.0",
        'preset = "11"',
        "preset = true",
        "preset = [3, 11]",
        "preset = 11\nmin_rows = 5",
        "preset = 11\nmax_columns_per_row = 0.5",
        "preset = 10\nmin_sites = 1",
        'preset = 11\nrequests = ["feature_maps"]',
        "preset = 11\noverride = 1\nmin_rows = 5",
        "preset = 11\nk = 3",
        "preset = 11\ncls = 3",
        "override = true\nmin_rows = 5",
        "max_columns_per_row = 0",
        "max_columns_per_row = nan",
        "max_columns_per_row = inf",
        'max_columns_per_row = "0.3"',
        'allowed_columns = "age"',
        "allowed_columns = [1]",
        "allowed_columns = {age = 1}",
        'forbidden_columns = "age"',
        "forbidden_columns = false",
        'requests = ["statistic"]',
        'requests = "statistics"',
        "require_privacy = 1",
        'require_secure_sums = "yes"',
        "min_row_difference = 5",
        'min_row_difference = 5\nstate = ""',
        "min_row_difference = 5\nstate = 7",
        "min_rows = ",
        "\ufeffmin_rows = 11",
        "a" + "[" * 5000,
        "a = " + "[" * 5000,
    ],
)
def test_a_file_that_says_anything_else_is_no_policy(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match="cannot be used"):
        SitePolicy.load(file)


def test_a_file_that_cannot_be_read_is_no_policy(file: Path) -> None:
    for path in (file, file.parent):
        with pytest.raises(PolicyError, match="cannot be used"):
            SitePolicy.load(path)
    file.write_bytes(b"min_rows = 11 # \xff")
    with pytest.raises(PolicyError, match="cannot be used"):
        SitePolicy.load(file)


@pytest.mark.parametrize("k", PRESETS)
def test_presets(file: Path, k: int) -> None:
    found = SitePolicy.preset(k)
    assert found.min_rows == k
    assert "feature_maps" not in found.requests
    file.write_text(f"preset = {k}\nmin_rows = 100\n")
    assert SitePolicy.load(file) == SitePolicy.preset(k, min_rows=100)
    file.write_text(f"preset = {k}\nmin_rows = 2\noverride = true\n")
    assert SitePolicy.load(file).min_rows == 2


# ---- where it is --------------------------------------------------------------------


def test_the_file_is_named_by_node_config_or_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("min_rows = 20")
    own = SitePolicy(min_sites=2)
    assert policies_in_force({}) == ()
    assert policies_in_force({"policy": str(file)}, own) == (own, SitePolicy(20))
    monkeypatch.setenv(VARIABLE, str(file))
    assert policies_in_force({}) == (SitePolicy(20),)
    assert policies_in_force({"policy": str(file)}) == (SitePolicy(20),)
    other = file.with_name("other.toml")
    other.write_text("min_rows = 1")
    with pytest.raises(PolicyError, match="different site policies"):
        policies_in_force({"policy": str(other)})


@pytest.mark.parametrize("value", ["", "policy.toml", 11, True, 1.5])
def test_a_site_whose_policy_is_not_found_declines(value: Any) -> None:
    with pytest.raises(PolicyError, match="absolute path"):
        policies_in_force({"policy": value})


def test_an_empty_variable_is_no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(PolicyError, match="absolute path"):
        policies_in_force({})


# ---- rules --------------------------------------------------------------------------


@pytest.mark.parametrize("task", EXACT)
def test_every_task_can_be_declined(task: str) -> None:
    name = {"opening": "rounds", "product": "rounds"}.get(task, task)
    assert answer(EXACT[task], SitePolicy(requests=[name])) is not None
    others = [each for each in REQUESTS if each != name]
    with pytest.raises(PolicyError, match=f'"{name}" is not among'):
        answer(EXACT[task], SitePolicy(requests=others))


@pytest.mark.parametrize(
    ("request_", "requests"),
    [
        (AskStatistics(feature_map=PolynomialMap(2)), ["statistics"]),
        (AskEvaluation(MODEL, feature_map=PolynomialMap(2)), ["evaluation"]),
        (AskOpening("auto"), ["rounds"]),
        (AskResiduals(PROBE), ["residuals"]),
        (release(), ["statistics"]),
    ],
)
def test_what_a_request_brings_with_it_is_declined_too(
    request_: Any, requests: list[str]
) -> None:
    with pytest.raises(PolicyError, match="is not among"):
        answer(request_, SitePolicy(requests=requests))


def test_a_task_that_nobody_knows_is_declined() -> None:
    class AskForEverything(AskStatistics):
        task = "everything"

    with pytest.raises(PolicyError, match='"everything" is not among'):
        answer(AskForEverything(), SitePolicy())


@pytest.mark.parametrize("task", EXACT)
def test_privacy_secure_sums_and_sites_can_be_required(task: str) -> None:
    for rule in (
        {"require_privacy": True},
        {"require_secure_sums": True},
        {"min_sites": 3},
    ):
        with pytest.raises(PolicyError, match=next(iter(rule))):
            answer(EXACT[task], SitePolicy(**rule))


def test_the_number_of_sites_is_what_the_server_says() -> None:
    policy = SitePolicy(min_sites=3)
    assert answer(AskStatistics(sites=3), policy).count == 40
    for sites in (None, 2):
        with pytest.raises(PolicyError, match="min_sites=3"):
            answer(AskStatistics(sites=sites), policy)


def test_nothing_is_loaded_for_a_request_that_is_declined() -> None:
    def load() -> Any:
        raise AssertionError("loaded")

    for policy in (SitePolicy(requests=["private"]), SitePolicy(min_sites=2)):
        with pytest.raises(PolicyError):
            respond(AskStatistics(), load, Guards(policies=(policy,)))


RARE = X.copy()
RARE[:, 1] = 0.0
RARE[7, 1] = 4.2
BY_ROWS = {
    "min_rows": (SitePolicy(min_rows=41), (X, Y, None)),
    "min_rows with weight": (SitePolicy(min_rows=40), (X, Y, np.arange(40) > 0)),
    "min_rows_per_level": (SitePolicy(min_rows_per_level=2), (RARE, Y, None)),
    "max_columns_per_row": (SitePolicy(max_columns_per_row=0.099), (X, Y, None)),
}


def test_every_rule_about_rows_is_among_them() -> None:
    compared = {"min_row_difference"}  # with other uploads: test_upload_history.py
    fields_of_rules = {rule.field for rule in ROW_RULES} - compared
    assert {name.split()[0] for name in BY_ROWS} == fields_of_rules


@pytest.mark.parametrize("rule", BY_ROWS)
@pytest.mark.parametrize("task", EXACT)
def test_rules_about_rows_hold_for_every_task(rule: str, task: str) -> None:
    policy, data = BY_ROWS[rule]
    assert answer(EXACT[task], of_any_request(SitePolicy()), data) is not None
    with pytest.raises(PolicyError, match=rule.split()[0]):
        answer(EXACT[task], of_any_request(policy), data)


@pytest.mark.parametrize("rule", [name for name in BY_ROWS if "weight" not in name])
def test_but_not_for_private_releases(rule: str) -> None:
    policy, data = BY_ROWS[rule]
    assert answer(release(), of_any_request(policy), data).kind == "private"


def test_limits_are_met_by_as_much_as_they_say() -> None:
    policy = SitePolicy(min_rows=40, max_columns_per_row=0.1)
    assert answer(AskStatistics(), policy).count == 40


def test_all_reasons_are_told_at_once() -> None:
    policy = SitePolicy(min_rows=50, max_columns_per_row=0.01)
    with pytest.raises(PolicyError, match=r"min_rows=50.*max_columns_per_row=0.01"):
        answer(AskStatistics(), policy)


def test_columns_and_rare_values_of_a_feature_map_count() -> None:
    policy = SitePolicy(max_columns_per_row=0.2, requests=REQUESTS)
    wide = AskStatistics(feature_map=PolynomialMap(2))
    assert answer(AskStatistics(), policy).count == 40
    with pytest.raises(PolicyError, match="10 columns for 40 rows"):
        answer(wide, policy)
    # Two dummies that only one patient has both of: their product is that patient.
    both = X.copy()
    both[:, 0], both[:, 1] = np.arange(40) < 20, np.arange(40) >= 19
    policy = SitePolicy(min_rows_per_level=3, requests=REQUESTS)
    assert answer(AskStatistics(), policy, (both, Y, None)).count == 40
    with pytest.raises(PolicyError, match="after the feature map has only 1 row"):
        answer(wide, policy, (both, Y, None))


FRAME = pd.DataFrame(X, columns=["age", "bmi", "income"]), pd.Series(Y, name="stay")


@pytest.mark.parametrize("task", [*EXACT, "release"])
@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (SitePolicy(forbidden_columns=["income"]), "forbidden: 'income'"),
        (SitePolicy(forbidden_columns=["stay"]), "forbidden: 'stay'"),
        (SitePolicy(allowed_columns=["age", "bmi", "stay"]), "allowed ones: 'income'"),
        (SitePolicy(allowed_columns=["age", "bmi", "income"]), "allowed ones: 'stay'"),
    ],
)
def test_columns_by_name(task: str, policy: SitePolicy, why: str) -> None:
    request = {**EXACT, "release": release()}[task]
    policy = of_any_request(policy)
    with pytest.raises(PolicyError, match=why):
        answer(request, policy, (*FRAME, None))
    with pytest.raises(PolicyError, match="no column names"):
        answer(request, policy)
    fine = SitePolicy(
        allowed_columns=["age", "bmi", "income", "stay"], forbidden_columns=["name"]
    )
    assert answer(request, of_any_request(fine), (*FRAME, None)) is not None


def test_rows_of_a_table_are_judged_by_their_table() -> None:
    policy = SitePolicy(allowed_columns=["age", "sex"], min_rows_per_level=3)
    levels = {"sex": {"f": 20, "m": 20, "x": 0}}
    fine = RowOrigin(columns=["age", "sex"], levels=levels)
    assert answer(AskStatistics(), policy, (X, Y, None, fine)).count == 40
    for origin, why in (
        (RowOrigin(columns=["age", "name"]), "'name'"),
        # The reference level has no column of its own.
        (RowOrigin(["age", "sex"], {"sex": {"f": 38, "m": 2}}), "only 2 rows"),
    ):
        with pytest.raises(PolicyError, match=why):
            answer(AskStatistics(), policy, (X, Y, None, origin))


# ---- what the server hears ----------------------------------------------------------


def strategies() -> dict[str, Any]:
    return {
        "message": FedRidge(alpha=1.0, min_available_nodes=3, fraction_evaluate=1.0),
        "older": LegacyFedRidge(
            alpha=1.0, min_available_clients=3, fraction_evaluate=1.0
        ),
    }


def load(context: Any) -> tuple[np.ndarray, np.ndarray]:
    k = int(context.node_config["partition-id"])
    return X[k::3], Y[k::3]


def client_app(policy: SitePolicy | None, older: bool) -> Any:
    """Return an app in which the first client has a policy."""

    def own(context: Any) -> SitePolicy | None:
        return policy if context.node_config["partition-id"] == 0 else None

    if older:
        return ClientApp(
            client_fn=lambda context: RidgeClient(
                *load(context), context=context, site_policy=own(context)
            ).to_client()
        )
    apps = {
        k: ridge_client_app(load, site_policy=policy if k == 0 else None)
        for k in range(3)
    }
    return lambda message, context: apps[context.node_config["partition-id"]](
        message, context
    )


@pytest.mark.parametrize("api", ["message", "older"])
@pytest.mark.parametrize("older_client", [False, True])
def test_the_server_hears_that_it_was_declined_and_no_more(
    api: str, older_client: bool, caplog: pytest.LogCaptureFixture
) -> None:
    policy = SitePolicy(min_rows=15, max_columns_per_row=0.25)
    grid = InProcessGrid.of_app(client_app(policy, older_client), 3)
    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy = fit(strategies()[api], grid)
    report = strategy.report_
    assert set(report.failures.values()) == {"declined by site policy."}
    assert len(report.participants) == 2
    assert set(report.evaluation_failures.values()) == {"declined by site policy."}
    rule = (
        "declined by site policy: min_rows=15, but there are 14; "
        "max_columns_per_row=0.25, but there are 4 columns for 14 rows."
    )
    assert any(rule in record.getMessage() for record in caplog.records)
    told = report.text() + str(report.failures)
    assert "min_rows" not in told
    assert "max_columns" not in told


@pytest.mark.filterwarnings("ignore::fedridge_flwr.PrivacyWarning")
@pytest.mark.parametrize("api", ["message", "older"])
def test_a_private_fit_hears_no_more(api: str) -> None:
    bounds = {"x_norm_bound": 3.0, "y_bound": 5.0}
    privacy = DifferentialPrivacy(5.0, 1e-5, **bounds)
    made = {"message": FedRidge, "older": LegacyFedRidge}[api]
    app = client_app(SitePolicy(requests=["statistics"], min_rows=100), False)
    strategy = fit(
        made(alpha=1.0, privacy=privacy, min_available_nodes=3),
        InProcessGrid.of_app(app, 3),
    )
    assert set(strategy.report_.failures.values()) == {"declined by site policy."}
    # Rules about rows are not asked: a refusal would tell how many there are.
    policy = SitePolicy(min_rows=100, min_rows_per_level=50, max_epsilon=5.0)
    app = client_app(policy, False)
    strategy = fit(
        made(alpha=1.0, privacy=privacy, min_available_nodes=3),
        InProcessGrid.of_app(app, 3),
    )
    assert strategy.report_.failures == {}


def test_servers_say_how_many_sites_they_ask() -> None:
    for api in ("message", "older"):
        for older in (False, True):
            for sites, out in ((3, 0), (4, 1)):
                app = client_app(SitePolicy(min_sites=sites), older)
                strategy = fit(strategies()[api], InProcessGrid.of_app(app, 3))
                assert len(strategy.report_.failures) == out


# ---- who can change it --------------------------------------------------------------


LAX = {
    "policy": "/dev/null",
    "site-policy": "none",
    "site_policy": "none",
    "min-rows": 1,
    "min_rows": 1,
    "override": True,
    "preset": 3,
    VARIABLE: "/dev/null",
}


@pytest.mark.parametrize("older", [False, True])
def test_neither_run_config_nor_request_changes_the_policy(
    file: Path, older: bool
) -> None:
    file.write_text("min_rows = 50")
    seen: list[Any] = []

    def handler(message: Any) -> Any:
        context = node_context(0, 1, **LAX)
        context.node_config["policy"] = str(file)
        seen.append(message)
        app = client_app(None, older)
        return app(message, context)

    grid = InProcessGrid([handler])
    strategy = FedRidge(alpha=1.0, min_available_nodes=1)
    with pytest.raises(FedRidgeError, match=r"declined by site policy\."):
        strategy.start(grid, train_config=ConfigRecord(LAX))
    sent = [dict(record) for record in seen[0].content.config_records.values()]
    assert all(LAX.items() <= record.items() for record in sent)
    file.write_text("min_rows = 5")
    fit(FedRidge(alpha=1.0, min_available_nodes=1), grid)


def test_a_policy_in_the_code_does_not_replace_that_of_the_file(file: Path) -> None:
    context = node_context(0, 1)
    context.node_config["policy"] = str(file)
    lax, strict = "min_rows = 1", "min_rows = 50"
    for text, own in ((strict, SitePolicy(1)), (lax, SitePolicy(50))):
        file.write_text(text)
        client = RidgeClient(X, Y, context=context, site_policy=own)
        with pytest.raises(PolicyError, match="min_rows=50"):
            client.fit([], {})
        with pytest.raises(PolicyError, match="min_rows=50"):
            client.statistics()


def test_a_broken_policy_file_is_told_to_nobody_else(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("min_row = 50")
    for older in (False, True):

        def handler(message: Any, older: bool = older) -> Any:
            context = node_context(1, 3)
            context.node_config["policy"] = str(file)
            return client_app(None, older)(message, context)

        strategy = FedRidge(alpha=1.0, min_available_nodes=1)
        with pytest.raises(FedRidgeError) as caught:
            strategy.start(InProcessGrid([handler]))
        assert "declined by site policy." in str(caught.value)
        assert "policy.toml" not in str(caught.value)
        assert "no rule 'min_row'" in caplog.text


def test_site_policy_must_be_one() -> None:
    with pytest.raises(FedRidgeError, match="site_policy must be a SitePolicy"):
        ridge_client_app(load, site_policy={"min_rows": 5})  # type: ignore[arg-type]
    client = RidgeClient(X, Y, site_policy="policy.toml")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="site_policy must be a SitePolicy"):
        client.fit([], {})


def test_a_policy_without_rules_declines_only_maps_residuals_and_releases() -> None:
    rows = check_rows(X, Y)
    assert not list(SitePolicy().reasons_by_rows(rows, rows))
    for request in (*EXACT.values(), release()):
        declined = bool(list(SitePolicy().reasons_by_request(request)))
        assert declined is (request.task in ("residuals", "release"))
