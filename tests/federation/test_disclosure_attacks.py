"""Four attacks of a curious server: they succeed, unless the site has a policy.

A server that follows the protocol to the letter reads one patient out of exact
statistics. Everything here goes through messages; the attacker sees no more than they
hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, node_context, set_task_identity
from flwr.app import Message
from flwr.clientapp import ClientApp
from scipy.linalg import eigh, orth

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    NotEnoughClientsError,
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
    AskEvaluation,
    AskRelease,
    AskResiduals,
    AskStatistics,
)
from fedridge_flwr.federation.secure_sum.client_steps import ClientState
from fedridge_flwr.flower.protocol.request_records import (
    request_content,
    request_parts,
)
from fedridge_flwr.flower.release_memory import PrivacyTerms
from fedridge_flwr.flower.secure_memory import secure_guard
from fedridge_flwr.privacy.curator import ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion
from fedridge_flwr.regression import ResidualMoments
from fedridge_flwr.regression.inference.residual_moments import ResidualProbe

rng = np.random.default_rng(7)
N = 60
AGE, BMI = rng.integers(20, 90, N).astype(float), rng.uniform(18.0, 40.0, N)
STAY = 0.1 * AGE + rng.exponential(3.0, N)
SECRET = 17  # the patient whom the server wants to know about
APIS = ["message", "older"]
# The reason and what the client is called, in the words of either API.
ALWAYS_TOLD = {"error", "client-name", "fedridge-protocol"}
ALWAYS_TOLD |= {"message", "code", "num_examples"}


@dataclass
class Hospital:
    """A site, its rows of the day, and every message that left it."""

    policy: SitePolicy | None
    api: str = "message"
    min_rows: int = 2
    replies: list[Message] = field(default_factory=list)

    def asked(self, X: Any, y: Any, **settings: Any) -> SufficientStatistics:
        """Return what a server that asks this site alone gets to see."""
        options = {"min_rows": self.min_rows, "site_policy": self.policy}
        if self.api == "message":
            app = ridge_client_app(lambda context: (X, y), **options)
        else:
            app = ClientApp(
                client_fn=lambda context: RidgeClient(X, y, **options).to_client()
            )

        def handle(message: Message) -> Message:
            self.replies.append(app(message, node_context(0, 1)))
            return self.replies[-1]

        strategy = FedRidge(alpha=1.0, min_available_nodes=1, **settings)
        strategy.start(InProcessGrid([handle]))
        found = strategy.statistics_
        assert isinstance(found, SufficientStatistics)
        return found

    def assert_declined(self, ask: Callable[[], object]) -> None:
        """Ask once more, and find nothing in the reply but that it was declined."""
        with pytest.raises(NotEnoughClientsError):
            ask()
        content = self.replies[-1].content
        arrays = content.array_records.values()
        assert all(not array.data for record in arrays for array in record.values())
        fields = {
            key: value
            for records in (content.config_records, content.metric_records)
            for record in records.values()
            for key, value in record.items()
        }
        texts = {value for value in fields.values() if isinstance(value, str)}
        assert texts - {"partition 0"} == {"declined by site policy."}
        assert fields.get("num_examples", 0) == 0
        assert set(fields) <= ALWAYS_TOLD


# ---- (a) a row from the Gram matrix of one row ---------------------------------------


def attack_one_row(stats: SufficientStatistics) -> np.ndarray:
    """The mean of one row is the row."""
    return np.append(stats.feature_means, stats.target_means)


def attack_two_rows(stats: SufficientStatistics) -> np.ndarray:
    """Of two rows, m + u and m - u, the co-moments are 2uu'; u is known up to sign."""
    gram = np.block(
        [
            [stats.centred_gram, stats.centred_moment],
            [stats.centred_moment.T, stats.centred_target_gram],
        ]
    )
    u = gram[0] / np.sqrt(2.0 * gram[0, 0])
    return attack_one_row(stats) + np.outer([1.0, -1.0], u)


@pytest.mark.parametrize("api", APIS)
def test_a_row_from_the_gram_matrix_of_one_row(api: str) -> None:
    X, y = [[AGE[SECRET], BMI[SECRET]]], [STAY[SECRET]]
    off = Hospital(None, api, min_rows=1)
    seen = attack_one_row(off.asked(X, y))
    assert seen.tolist() == [AGE[SECRET], BMI[SECRET], STAY[SECRET]]
    on = Hospital(SitePolicy.preset(3), api, min_rows=1)
    on.assert_declined(lambda: on.asked(X, y))


@pytest.mark.parametrize("api", APIS)
def test_two_rows_from_the_gram_matrix_of_two(api: str) -> None:
    pair = [3, SECRET]
    X, y = np.column_stack([AGE, BMI])[pair], STAY[pair]
    seen = attack_two_rows(Hospital(None, api).asked(X, y))
    seen, rows = (Z[np.argsort(Z[:, 0])] for Z in (seen, np.column_stack([X, y])))
    np.testing.assert_allclose(seen, rows, rtol=1e-12)
    on = Hospital(SitePolicy.preset(3), api)
    on.assert_declined(lambda: on.asked(X, y))


def test_a_row_that_outweighs_all_others() -> None:
    X, y = np.column_stack([AGE, BMI]), STAY
    weight = np.full(N, 1e-9)
    weight[SECRET] = 1.0
    off = respond(AskStatistics(), lambda: (X, y, weight), Guards())
    stats = SufficientStatistics.from_array(off.arrays["statistics"], 2, count=N)
    secret = [AGE[SECRET], BMI[SECRET], STAY[SECRET]]
    np.testing.assert_allclose(attack_one_row(stats), secret, rtol=1e-6)
    guards = Guards(policies=(SitePolicy.preset(3),))
    with pytest.raises(PolicyError, match="60 rows count as only 1"):
        respond(AskStatistics(), lambda: (X, y, weight), guards)
    respond(AskStatistics(), lambda: (X, y, np.full(N, 0.1)), guards)


def test_every_row_where_there_are_as_many_columns() -> None:
    """A column for each patient, as of a study number that was taken for a category."""
    ids = np.eye(8)
    X = np.column_stack([ids, AGE[:8]])
    stats = Hospital(None).asked(X, STAY[:8])
    # X'y holds y itself, row by row, and X'X the age.
    np.testing.assert_allclose(stats.moment[:8, 0], STAY[:8], rtol=1e-12)
    np.testing.assert_allclose(stats.gram[:8, 8], AGE[:8], rtol=1e-12)
    for policy in (SitePolicy(max_columns_per_row=0.33), SitePolicy.preset(3)):
        on = Hospital(policy)
        on.assert_declined(lambda on=on: on.asked(X, STAY[:8]))


# ---- (b) a patient from two successive uploads ---------------------------------------


def table(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.column_stack([AGE, BMI])[rows], STAY[rows]


EVERYBODY = np.arange(N)
BUT_ONE = np.delete(EVERYBODY, SECRET)
THE_REST = np.arange(30, N)  # another cohort, far from both


def assert_is_the_patient(difference: SufficientStatistics) -> None:
    assert difference.count == 1
    seen = attack_one_row(difference)
    secret = [AGE[SECRET], BMI[SECRET], STAY[SECRET]]
    np.testing.assert_allclose(seen, secret, rtol=1e-10)
    assert round(seen[0]) == AGE[SECRET]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("between", [[], [THE_REST]], ids=["A, A-1", "A, B, A-1"])
def test_a_patient_from_two_uploads(api: str, between: Any, tmp_path: Path) -> None:
    off = Hospital(None, api)
    before = off.asked(*table(EVERYBODY))
    for rows in between:
        off.asked(*table(rows))
    assert_is_the_patient(before - off.asked(*table(BUT_ONE)))

    policy = SitePolicy.preset(3, min_row_difference=3, state=tmp_path)
    on = Hospital(policy, api)
    on.asked(*table(EVERYBODY))
    for rows in between:
        on.asked(*table(rows))
    on.assert_declined(lambda: on.asked(*table(BUT_ONE)))
    on.asked(*table(EVERYBODY))  # the same rows, as often as anybody likes
    # One more patient than in an earlier upload is the same attack.
    on = Hospital(policy, api)
    more = np.append(THE_REST, SECRET) if between else np.append(EVERYBODY, SECRET)
    on.assert_declined(lambda: on.asked(*table(more)))


def test_a_patient_from_two_evaluations(tmp_path: Path) -> None:
    """A model that predicts 0 has the squares of y for errors."""
    nothing = solve(SufficientStatistics.from_data([[0.0, 0.0]], [0.0]), alpha=1.0)

    def sum_of_squares(policy: SitePolicy | None, rows: np.ndarray) -> float:
        guards = Guards(policies=() if policy is None else (policy,))
        load = lambda: (*table(rows), None)  # noqa: E731
        found: Any = respond(AskEvaluation(nothing), load, guards)
        return float(found.mse) * found.n_rows

    gap = sum_of_squares(None, EVERYBODY) - sum_of_squares(None, BUT_ONE)
    assert np.sqrt(gap) == pytest.approx(STAY[SECRET], rel=1e-10)
    policy = SitePolicy(min_row_difference=3, state=tmp_path)
    sum_of_squares(policy, EVERYBODY)
    with pytest.raises(PolicyError, match="in 1 row"):
        sum_of_squares(policy, BUT_ONE)


def test_a_patient_from_two_formulas(tmp_path: Path) -> None:
    """Complete rows of two formulas differ by the one patient without a value."""
    bmi = BMI.copy()
    bmi[SECRET] = np.nan
    raw = np.column_stack([AGE, bmi, STAY])  # all columns of the table

    def complete(columns: list[int]) -> Any:
        rows = np.flatnonzero(np.isfinite(raw[:, [*columns, 2]]).all(axis=1))
        origin = RowOrigin(identities=lambda: raw[rows])
        return raw[rows][:, columns], raw[rows, 2], None, origin

    def upload(policy: SitePolicy | None, columns: list[int]) -> Any:
        guards = Guards(policies=() if policy is None else (policy,))
        answer = respond(AskStatistics(), lambda: complete(columns), guards)
        array = answer.arrays["statistics"]
        return SufficientStatistics.from_array(array, len(columns), count=answer.count)

    wide, narrow = upload(None, [0, 1]), upload(None, [0])
    # y ~ age + bmi of 59 patients, less its column bmi, and y ~ age of all 60.
    assert (wide.count, narrow.count) == (N - 1, N)
    age = N * narrow.feature_means[0] - (N - 1) * wide.feature_means[0]
    stay = N * narrow.target_means[0] - (N - 1) * wide.target_means[0]
    assert round(float(age)) == AGE[SECRET]
    assert stay == pytest.approx(STAY[SECRET], rel=1e-10)

    policy = SitePolicy(min_row_difference=3, state=tmp_path)
    upload(policy, [0, 1])
    with pytest.raises(PolicyError, match="in 1 row"):
        upload(policy, [0])


# ---- (c) a rare level ----------------------------------------------------------------


def attack_level(stats: SufficientStatistics, dummy: int, column: int) -> float:
    """X'X has the sum of a column over the rows of a level, and their number."""
    return float(stats.gram[dummy, column] / stats.gram[dummy, dummy])


@pytest.mark.parametrize("api", APIS)
def test_a_rare_level(api: str) -> None:
    rare = np.zeros(N)
    rare[SECRET] = 1.0
    X = np.column_stack([AGE, rare, BMI])
    off = Hospital(None, api).asked(X, STAY)
    assert off.gram[1, 1] == pytest.approx(1.0)  # there is one such patient
    assert round(attack_level(off, 1, 0)) == AGE[SECRET]
    assert attack_level(off, 1, 2) == pytest.approx(BMI[SECRET], rel=1e-10)
    stay = off.moment[1, 0] / off.gram[1, 1]
    assert stay == pytest.approx(STAY[SECRET], rel=1e-10)
    on = Hospital(SitePolicy.preset(5), api)
    on.assert_declined(lambda: on.asked(X, STAY))
    # The same with the coding reversed, and as a number that one patient has.
    for column in (1.0 - rare, 4.2 * rare):
        X[:, 1] = column
        on.assert_declined(lambda: on.asked(X, STAY))
    X[:, 1] = EVERYBODY < 5
    on.asked(X, STAY)


def test_a_rare_value_of_the_target() -> None:
    died = np.zeros(N)
    died[SECRET] = 1.0
    X = np.column_stack([AGE, BMI])
    seen = Hospital(None).asked(X, died).moment[:, 0]
    np.testing.assert_allclose(seen, X[SECRET], rtol=1e-10)
    on = Hospital(SitePolicy.preset(5))
    on.assert_declined(lambda: on.asked(X, died))


def test_a_rare_combination_by_a_feature_map() -> None:
    """No level is rare, but one patient has both: the map multiplies columns."""
    first, second = (EVERYBODY <= SECRET) * 1.0, (EVERYBODY >= SECRET) * 1.0
    X = np.column_stack([AGE, first, second])
    settings = {"feature_map": PolynomialMap(2)}
    off = Hospital(None).asked(X, STAY, **settings)
    names = ["0", "1", "2", "00", "01", "02", "11", "12", "22"]
    both = names.index("12")
    assert round(attack_level(off, both, 0)) == AGE[SECRET]
    for policy in (
        SitePolicy.preset(5),  # which allows no maps
        SitePolicy.preset(5, requests=["statistics", "feature_maps"], override=True),
    ):
        on = Hospital(policy)
        on.assert_declined(lambda on=on: on.asked(X, STAY, **settings))


# ---- (d) rows from squared residuals -------------------------------------------------


def attack_residuals(stats: SufficientStatistics, moments: ResidualMoments) -> Any:
    """Of no more rows Z than columns, Z'Z and Z'DZ have one common diagonal form."""
    means, n = stats.feature_means, stats.total_weight
    gram = np.block(
        [[n * np.eye(1), n * means[None]], [n * means[:, None], stats.gram]]
    )
    (weighted,) = moments.about(np.zeros(means.size)).matrices
    basis = orth(gram)
    vectors = eigh(basis.T @ weighted @ basis, basis.T @ gram @ basis)[1]
    rows = np.linalg.inv(vectors) @ basis.T
    return rows[:, 1:] / rows[:, :1]  # the column of ones tells the sign


def test_rows_from_squared_residuals() -> None:
    chosen = [3, 8, SECRET]
    X, y = np.column_stack([AGE, BMI])[chosen], STAY[chosen]
    probe = ResidualProbe(np.array([[0.1, 0.0]]), np.zeros(1))
    answer: Any = respond(AskResiduals(probe), lambda: (X, y, None), Guards())
    arrays = list(answer.arrays.values())
    seen = attack_residuals(
        SufficientStatistics.from_data(X, y),
        ResidualMoments.from_arrays(arrays, answer.count, probe),
    )
    seen, rows = (Z[np.argsort(Z[:, 0])] for Z in (seen, X))
    np.testing.assert_allclose(seen, rows, rtol=1e-6)
    for policy in (SitePolicy(), SitePolicy.preset(3)):
        guards = Guards(policies=(policy,))
        with pytest.raises(PolicyError, match='"residuals" is not among'):
            respond(AskResiduals(probe), lambda: (X, y, None), guards)


# ---- private in name only ------------------------------------------------------------


BOUNDS = {"x_norm_bound": 200.0, "y_bound": 200.0}
NEARLY_EXACT = DifferentialPrivacy(9e14, 1e-5, **BOUNDS)
AT_THE_SERVER = DifferentialPrivacy(1.0, 1e-5, **BOUNDS, trust="server")


def private_app(rows: dict[str, Any], policy: SitePolicy | None, api: str) -> ClientApp:
    if api == "message":
        return ridge_client_app(lambda context: rows["now"], site_policy=policy)
    return ClientApp(
        client_fn=lambda context: RidgeClient(
            *rows["now"], context=context, site_policy=policy
        ).to_client()
    )


def released(app: ClientApp, privacy: DifferentialPrivacy) -> Any:
    """Return the private statistics of a server that asks one site alone."""
    strategy = FedRidge(alpha=1.0, privacy=privacy, min_available_nodes=1)
    strategy.start(InProcessGrid.of_app(app, 1), timeout=60)
    return strategy.statistics_


@pytest.mark.filterwarnings("ignore::fedridge_flwr.PrivacyWarning")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("privacy", [NEARLY_EXACT, AT_THE_SERVER])
def test_a_patient_by_a_release_without_noise(privacy, api) -> None:
    patient = np.array([[79.0, 21.6]]), np.array([5.3])
    if privacy is NEARLY_EXACT:
        seen = released(private_app({"now": patient}, None, api), privacy)
        constant = BOUNDS["x_norm_bound"] / np.sqrt(2)
        np.testing.assert_allclose(seen.gram[-1, :2] / constant, patient[0][0], 1e-4)
    for rules in (
        {},
        {"max_epsilon": 1.0},
        {"max_epsilon": 1, "require_privacy": True},
    ):
        policy = SitePolicy.preset(11, **rules)
        with pytest.raises(NotEnoughClientsError, match="declined"):
            released(private_app({"now": patient}, policy, api), privacy)


@pytest.mark.filterwarnings("ignore::fedridge_flwr.PrivacyWarning")
@pytest.mark.parametrize("api", APIS)
def test_many_runs_share_the_budget_of_the_site(api, tmp_path) -> None:
    rows = {"now": (np.column_stack([AGE, BMI]), STAY)}
    policy = SitePolicy(max_epsilon=1.2, state=tmp_path)
    app, asked = (
        private_app(rows, policy, api),
        DifferentialPrivacy(1.0, 1e-5, **BOUNDS),
    )
    assert released(app, asked) is not None
    with pytest.raises(NotEnoughClientsError, match="declined"):
        released(app, asked)  # a new run, of which the client's memory knows nothing
    # Without a place to remember it, the budget is that of each run.
    app = private_app(rows, SitePolicy(max_epsilon=1.2), api)
    assert all(released(app, asked) is not None for _ in range(2))


def ask_for_round(
    app: ClientApp, run: int, privacy: DifferentialPrivacy, **asked: Any
) -> bool:
    """Return whether a site answers one round of a fit, in a run of its own."""
    set_task_identity()
    context = node_context(0, 1)
    context.run_id = run
    context.node_config.update(asked.pop("node_config", {}))
    question = ReleaseQuestion(asked.get("server_round", 1), clip=1.0)
    release = ReleaseRequest(asked["name"], privacy, True, question)
    content = request_content(*request_parts(AskRelease(release)), form="message")
    message = Message(content, message_type="train", dst_node_id=context.node_id)
    return "error" not in app(message, context).content["config"]


def test_a_policy_in_the_app_does_not_give_the_site_a_new_budget(tmp_path) -> None:
    file, rows = tmp_path / "policy.toml", (np.column_stack([AGE, BMI]), STAY)
    file.write_text('max_epsilon = 1.0\nstate = "."\n')
    asked = DifferentialPrivacy(1.0, 1e-5, **BOUNDS)
    larger = (
        SitePolicy(max_epsilon=9.0),
        SitePolicy(max_epsilon=9.0, max_delta=1e-4, state=tmp_path),
    )
    answered = [
        ask_for_round(
            ridge_client_app(lambda context: rows, site_policy=own),
            run,
            asked,
            name=f"{run:032x}",
            node_config={"policy": str(file)},
        )
        for run, own in enumerate((larger[1], None, *larger))
    ]
    assert answered == [True, False, False, False]


def test_two_policies_may_spell_the_folder_of_the_site_differently(tmp_path) -> None:
    """It was charged twice for a release, and each sum marked twice: all refused."""
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    policies = [
        SitePolicy(max_epsilon=1.0, state=tmp_path / name) for name in ("state", "link")
    ]
    context = node_context(0, 1)
    asked = DifferentialPrivacy(1.0, 1e-5, **BOUNDS)
    request = ReleaseRequest("0" * 32, asked, True, ReleaseQuestion())
    rows = check_rows(np.column_stack([AGE, BMI]), STAY)
    PrivacyTerms().curator(context, policies).answer(request, rows)
    guard = secure_guard(context, None, policies)
    guard.memory.mark("secure-keys", ClientState(1, bytes(16)), 1)


def test_other_settings_of_a_fit_in_another_run_are_another_fit(tmp_path) -> None:
    """Of rounds by two rules, the shares of the budget add up to more than 1."""
    rows = np.column_stack([AGE, BMI]), STAY
    policy = SitePolicy(max_epsilon=0.9, state=tmp_path)
    app = ridge_client_app(lambda context: rows, site_policy=policy)
    old, new = (
        DifferentialPrivacy(0.9, 1e-5, **BOUNDS, rounds=4, rules=rules)
        for rules in (1, 2)
    )
    shares = [*old.shares(1).values(), *(3 * list(new.shares(2).values()))]
    assert sum(shares) > 1.06
    name = "0" * 32
    assert ask_for_round(app, 1, old, name=name)
    for server_round in (2, 3, 4):
        assert not ask_for_round(app, 2, new, name=name, server_round=server_round)
        assert ask_for_round(app, 3, old, name=name, server_round=server_round)


def test_rules_of_privacy_are_checked_when_they_are_written() -> None:
    with pytest.raises(PolicyError, match="require_privacy needs max_epsilon"):
        SitePolicy(require_privacy=True)
    for wrong in ({"max_epsilon": 0.0}, {"max_epsilon": 1.0, "max_delta": 2.0}):
        with pytest.raises(PolicyError, match="max_epsilon or max_delta"):
            SitePolicy(**wrong)
