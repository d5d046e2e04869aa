"""Promise, policy and ledger: what they accept, and how they count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    DifferentialPrivacy,
    PrivacyError,
    PrivacyLedger,
    PrivacyPolicy,
    PrivateStatistics,
    StatisticsError,
    solve,
    solve_private,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.privacy import (
    accounting,
    private_statistics,
)
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.mechanism import CHOICES
from fedridge_flwr.privacy.release import ReleaseQuestion

BOUNDS = {"x_norm_bound": 1.0, "y_bound": 2.0}


def make(epsilon: float = 1.0, delta: float = 1e-5, **options) -> DifferentialPrivacy:
    return DifferentialPrivacy(epsilon, delta, **{**BOUNDS, **options})


# ---- DifferentialPrivacy ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epsilon": 0.0}, "privacy=None"),
        ({"epsilon": math.inf}, "privacy=None"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": True}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be"),
        ({"epsilon": None}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"x_norm_bound": 0.0}, "x_norm_bound must be"),
        ({"x_norm_bound": None}, "from public knowledge"),
        ({"y_bound": math.inf}, "y_bound must be"),
        ({"neighboring": "both"}, "add-or-remove-one"),
        ({"trust": "all"}, "secagg"),
        ({"calibration": "mine"}, "exact"),
        ({"estimator": "ols"}, "noise_aware"),
        ({"rounds": 0}, "rounds must be"),
        ({"rounds": 2.0}, "rounds must be"),
        ({"rounds": 10**6}, "from 1 to 1000"),
        ({"min_clients": 0}, "min_clients must be"),
        (
            {"trust": "secagg", "min_clients": 3, "max_colluding": 3},
            "must stay unknown",
        ),
        ({"budget_split": {"gram": 1.0}}, '"gram" and "moment"'),
        ({"budget_split": {"gram": 0.5, "moment": 0.6}}, "add up to 1"),
        ({"budget_split": {"gram": 0.0, "moment": 1.0}}, "above 0 and below 1"),
        ({"budget_split": {"gram": 0.5, "moment": 0.4, "n": 0.1}}, "may have"),
        ({"estimator": "plain"}, "simulations/fedridge_simulations/paper_privacy.py"),
        ({"calibration": "paper"}, "make experiments"),
        ({"rounds": 3, "estimator": "ridge_floor"}, "fixed with more than one round"),
        (
            {"rounds": 3, "budget_split": {"gram": 0.5, "moment": 0.5}},
            "fixed with more than one round",
        ),
        ({"waves": 2}, "waves need rounds of 2 or more"),
        ({"rounds": 3, "waves": 2, "trust": "server"}, 'trust="local"'),
        ({"rounds": 3, "waves": 0}, "waves"),
        ({"rounds": 3, "expected_r2": 0.0}, "expected_r2"),
        ({"rounds": 3, "expected_r2": 1.1}, "at most 1"),
        ({"expected_r2": 0.5}, "a prior for several rounds"),
    ],
)
def test_what_is_not_clearly_private_is_refused(options, reason):
    with pytest.raises(PrivacyError, match=reason):
        make(**options)


def test_numbers_of_numpy_are_numbers():
    found = make(np.float32(1.0), np.float64(1e-5), x_norm_bound=np.int64(1))
    assert found == make()


@given(
    st.floats(1e-3, 1e3),
    st.floats(1e-12, 0.1),
    st.sampled_from(CHOICES["neighboring"]),
    st.sampled_from(CHOICES["trust"]),
    st.sampled_from([None, {"gram": 0.25, "moment": 0.7, "target_gram": 0.05}]),
)
def test_settings_survive_the_wire(epsilon, delta, neighboring, trust, split):
    privacy = make(
        epsilon, delta, neighboring=neighboring, trust=trust, budget_split=split
    )
    assert DifferentialPrivacy.from_config(privacy.to_config()) == privacy


def test_no_privacy_in_a_config_is_no_privacy():
    assert DifferentialPrivacy.from_config({"alpha": 1.0}) is None


REQUEST_OF_0_1_0 = {
    "privacy-epsilon": 2.0,
    "privacy-delta": 1e-6,
    "privacy-x-norm-bound": 1.5,
    "privacy-y-bound": 3.0,
    "privacy-neighboring": "replace-one",
    "privacy-trust": "server",
    "privacy-rounds": 1,
    "privacy-min-clients": 1,
    "privacy-max-colluding": 0,
    "privacy-calibration": "exact",
    "privacy-share-gram": 0.4,
    "privacy-share-moment": 0.4,
    "privacy-share-target-gram": 0.2,
}


def test_requests_have_the_keys_of_0_1_0():
    """A client of 0.1.0 needs each of them and refuses any other."""
    asked = DifferentialPrivacy.from_config(REQUEST_OF_0_1_0)
    assert asked is not None
    assert asked.to_config() == REQUEST_OF_0_1_0
    ordinary = set(make(rules=1).to_config())
    assert ordinary == {k for k in REQUEST_OF_0_1_0 if "share" not in k}
    assert make().to_config()["privacy-calibration"] == "exact"


def test_rules_of_two_versions_are_never_mixed():
    """Clients of 0.1.0 clip in another way: each side knows which way is asked for."""
    asked = DifferentialPrivacy.from_config(make(rules=1).to_config())
    assert asked == make(rules=1)
    assert not asked.bounds(3, 1, intercept=True).clip_constant
    assert asked.shares(1) == {"gram": 0.5, "moment": 0.5}
    # 0.1.0 refuses what it does not know, and so does every later version.
    assert set(make().to_config()) - set(asked.to_config()) == {"privacy-rules"}
    with pytest.raises(StatisticsError, match="one mechanism"):
        _stats() + _stats(rules=1)


@pytest.mark.parametrize("rules", [0, 3, True, 2.5, "2", None])
def test_unknown_rules_are_refused(rules):
    with pytest.raises(PrivacyError):
        DifferentialPrivacy.from_config(make().to_config() | {"privacy-rules": rules})


@pytest.mark.parametrize("key", REQUEST_OF_0_1_0)
def test_a_request_that_lacks_a_setting_is_refused(key):
    request = {k: v for k, v in REQUEST_OF_0_1_0.items() if k != key}
    with pytest.raises(PrivacyError):
        DifferentialPrivacy.from_config(request)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"privacy-calibration": "paper"}, "make experiments"),
        ({"privacy-estimator": "plain"}, "does not know"),
        ({"privacy-noise": 0.0}, "does not know"),
    ],
)
def test_a_request_for_the_papers_mechanism_is_refused(setting, reason):
    with pytest.raises(PrivacyError, match=reason):
        DifferentialPrivacy.from_config(REQUEST_OF_0_1_0 | setting)


def test_the_noise_of_one_guarantee_is_solved_once(monkeypatch):
    solved = []
    root = accounting._root
    monkeypatch.setattr(
        accounting, "_root", lambda *args: solved.append(1) or root(*args)
    )
    for _ in range(10):
        assert make(1.2345).noise_multiplier > 0
    assert len(solved) == 1


@pytest.mark.parametrize("n_targets", [1, 3])
def test_replacing_needs_more_noise_for_the_same_promise(n_targets):
    added, replaced = make(), make(neighboring="replace-one")
    assert added.noise_multiplier == replaced.noise_multiplier
    ratio = replaced.deviation("gram", 1, n_targets) / added.deviation("gram")
    assert math.sqrt(2.0) <= ratio <= 2.0
    assert replaced.true_epsilon() == pytest.approx(1.0)


def test_parts_of_the_noise_under_secure_sums():
    """K_min honest clients together add the whole noise, whoever colludes."""
    privacy = make(trust="secagg", min_clients=12, max_colluding=3)
    assert 9 * privacy.client_part**2 == pytest.approx(1.0)
    assert make(trust="local").client_part == 1.0
    assert make(trust="server").client_part == 0.0


@pytest.mark.parametrize("trust", ["local", "server"])
def test_rows_needed_is_where_the_noise_takes_a_tenth_of_the_signal(trust):
    """The first-order error of (G + E) w = h + e over the explained variance."""
    privacy, d, clients = make(trust=trust, x_norm_bound=1.0, y_bound=1.0), 6, 4
    tau = 1.0 / 3.0
    needed = privacy.rows_needed(d, clients)
    n = needed * d / (d + 1)
    noises = clients if trust == "local" else 1
    gram, moment = (privacy.deviation(b) * noises**0.5 for b in ("gram", "moment"))
    # Rows of length 1 in d directions: G = n/d I, and |w|² / d = tau².
    error = d * (moment**2 + gram**2 / 2 * d * tau**2) / (n / d)
    assert error / (n * tau**2) == pytest.approx(0.1)
    assert privacy.rows_needed(d, clients, lost=0.4) == pytest.approx(needed / 2)
    assert privacy.rows_needed(d, clients, explained_sd=tau) == pytest.approx(needed)
    with pytest.raises(PrivacyError, match="lost"):
        privacy.rows_needed(d, clients, lost=0.0)


def test_shares_are_copied():
    split = {"gram": 0.5, "moment": 0.5}
    privacy = make(budget_split=split)
    split["gram"] = 0.9
    assert privacy.shares(1)["gram"] == 0.5


# ---- PrivateStatistics --------------------------------------------------------------


def _stats(**options) -> PrivateStatistics:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(100, 3))
    return private_statistics(X, X[:, 0], make(**options))


def test_releases_add_up_only_under_one_mechanism():
    a, b = _stats(), _stats()
    total = a + b
    np.testing.assert_array_equal(total.sums, a.sums + b.sums)
    assert total.n_clients == 2
    assert total.gram_sd == pytest.approx(math.sqrt(2) * a.gram_sd)
    assert sum([a, b]).n_clients == 2
    with pytest.raises(StatisticsError, match="one mechanism"):
        a + _stats(epsilon=2.0)


def test_outside_of_flower_nothing_passes_for_private_that_is_not():
    total = _stats(trust="server")
    with pytest.raises(PrivacyError, match="with_server_noise"):
        solve_private(total)
    assert np.isfinite(solve_private(total.with_server_noise()).coef_).all()
    for options in ({"rounds": 3}, {"trust": "secagg", "min_clients": 9}):
        with pytest.raises(PrivacyError, match="one round, and no secure sum"):
            _stats(**options)


def test_a_trusted_server_adds_noise_once():
    total = _stats(trust="server") + _stats(trust="server")
    assert total.gram_sd == 0.0
    noisy = total.with_server_noise()
    assert noisy.gram_sd > 0
    with pytest.raises(PrivacyError, match="and once"):
        noisy.with_server_noise()
    with pytest.raises(PrivacyError, match="to the whole sum"):
        noisy + total
    with pytest.raises(PrivacyError, match="server"):
        _stats().with_server_noise()


def test_the_servers_noise_has_the_declared_deviation():
    nothing = private_statistics(np.zeros((0, 3)), np.zeros(0), make(trust="server"))
    assert not nothing.sums.any()
    draws = np.array([nothing.with_server_noise().moment for _ in range(100)])
    sd = make().deviation("moment") * BOUNDS["y_bound"] * math.sqrt(1 + 1 / 3)
    assert draws.std() == pytest.approx(sd, rel=0.15)
    assert nothing.with_server_noise().moment_sd == pytest.approx(sd, rel=1e-6)


def test_the_exact_solver_sends_private_statistics_elsewhere():
    with pytest.raises(StatisticsError, match="solve_private"):
        solve(_stats())


# ---- PrivacyPolicy ------------------------------------------------------------------


def test_a_policy_must_mean_something():
    for wrong in ({"max_epsilon": 0}, {"max_delta": 2.0}, {"trust": ("me",)}):
        with pytest.raises(PrivacyError):
            PrivacyPolicy(**{"max_epsilon": 1.0, "max_delta": 1e-5, **wrong})


def test_what_a_policy_grants():
    policy = PrivacyPolicy(1.0, 1e-5)
    policy.check(make(1.0))
    policy.check(make(0.5, 1e-6))
    policy.check(make(1.0, neighboring="replace-one"))
    PrivacyPolicy(1.0, 1e-5, trust=("server",)).check(make(trust="server"))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (None, "exact statistics"),
        (make(3.0), "epsilon 3"),
        (make(delta=1e-3), "delta 0.001"),
        (make(trust="server"), 'trust="server"'),
        (make(neighboring="replace-one"), 'neighboring="replace-one"'),
    ],
)
def test_what_a_policy_declines(asked, reason):
    policy = PrivacyPolicy(1.0, 1e-5, neighboring="add-or-remove-one")
    with pytest.raises(PrivacyError, match=f"declined: .*{reason}"):
        policy.check(asked)


def test_no_policy_allows_the_papers_calibration():
    with pytest.raises(PrivacyError, match="make experiments"):
        PrivacyPolicy(5.0, 1e-5, calibration=("exact", "paper"))


# ---- Curator ------------------------------------------------------------------------


def _request(release: str = "a", epsilon: float = 1.0, **question) -> ReleaseRequest:
    return ReleaseRequest(
        release * 32, make(epsilon), False, ReleaseQuestion(**question)
    )


ROWS = check_rows(np.eye(3), np.ones(3))


def test_a_policy_is_asked_without_any_rows():
    with pytest.raises(PrivacyError, match="policy"):
        Curator(PrivacyPolicy(0.5, 1e-5)).agree(_request())


@pytest.mark.parametrize(
    "rows",
    [
        check_rows(np.eye(3), np.ones(3), np.ones(3)),
        check_rows(np.zeros((0, 3)), np.zeros((0, 2))),
        check_rows(np.zeros((0, 4)), np.zeros(0)),
    ],
    ids=["weights", "two targets", "other columns"],
)
def test_a_question_that_cannot_be_answered_costs_nothing(tmp_path, rows):
    """And it is refused whether there are rows or not."""
    ledger = PrivacyLedger(tmp_path / "ledger.json", 5.0, 1e-5)
    curator = Curator(None, ledger, "site")
    question = ReleaseQuestion(1, np.zeros(3), 1.0)
    request = ReleaseRequest("a" * 32, make(1.0, rounds=3), False, question)
    with pytest.raises(PrivacyError):
        curator.answer(request, rows)
    assert ledger.spent("site").releases == 0


def test_shares_so_small_that_no_noise_can_be_drawn_cost_nothing(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.json", 5.0, 1e-5)
    split = {"gram": 1e-14, "moment": 1.0 - 1e-14}
    request = ReleaseRequest(
        "a" * 32, make(1e-3, budget_split=split), False, ReleaseQuestion()
    )
    with pytest.raises(PrivacyError, match="too large to be drawn"):
        Curator(None, ledger, "site").answer(request, ROWS)
    assert ledger.spent("site").releases == 0


def test_rounds_asked_at_the_same_time_are_answered_once(tmp_path):
    """Each request sees the state from before the others; the ledger sees them all."""
    ledger = PrivacyLedger(tmp_path / "ledger.json", 5.0, 1e-5)
    privacy = make(1.0, rounds=3)
    past: dict = {}
    first = ReleaseRequest("a" * 32, privacy, False, ReleaseQuestion(1, None, 1.0))
    Curator(None, ledger, "site", past).answer(first, ROWS)

    def ask(clip: float) -> None:
        question = ReleaseQuestion(2, np.zeros(3), clip)
        copy = Curator(None, ledger, "site", dict(past))
        copy.answer(ReleaseRequest("a" * 32, privacy, False, question), ROWS)

    ask(1.0)
    for clip in (1.0, 2.0):
        with pytest.raises(PrivacyError, match="not remember it"):
            ask(clip)
    assert ledger.spent("site").releases == 1


def test_a_budget_that_fits_exactly_fits(tmp_path):
    for epsilon in (0.001, 0.3, 1.0, 3.0, 5.0):
        ledger = PrivacyLedger(tmp_path / f"{epsilon}.json", epsilon, 1e-5)
        ledger.charge("site", "1", make(epsilon))
        assert ledger.spent("site").releases == 1


def test_a_round_is_answered_once():
    curator = Curator()
    first = curator.answer(_request(), ROWS)
    np.testing.assert_array_equal(curator.answer(_request(), ROWS), first)
    with pytest.raises(PrivacyError, match="another question"):
        curator.answer(_request(clip=1.0), ROWS)


def test_rounds_beyond_those_agreed_are_refused():
    with pytest.raises(PrivacyError, match="round 2 of 1"):
        _request(server_round=2)
