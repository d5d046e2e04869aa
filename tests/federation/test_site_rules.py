"""A rule of a site policy is enforced, documented and compared with presets, or named.

Whoever adds a field to `SitePolicy` finds here what else the rule needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedridge_flwr import (
    DifferentialPrivacy,
    PolicyError,
    SitePolicy,
    SufficientStatistics,
)
from fedridge_flwr.data.local_table import RowOrigin
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.requests import (
    AskConfirm,
    AskKeys,
    AskRelease,
    AskShares,
    AskStatistics,
    AskUnmask,
    Request,
)
from fedridge_flwr.federation.site.presets import PRESETS, is_weaker
from fedridge_flwr.federation.site.request_names import ABOUT_KEYS, NAMES, REQUESTS
from fedridge_flwr.federation.site.row_rules import ROW_RULES, RowRule
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "site-policy.md"
RULES = [each.name for each in fields(SitePolicy)]

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 2)), rng.normal(size=20)
RARE = np.column_stack([X, np.arange(20) == 7])
PRIVACY = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=3.0, y_bound=5.0)
RELEASE = ReleaseRequest("ab" * 16, PRIVACY, True, ReleaseQuestion(1))
NAMED = pd.DataFrame(X, columns=["age", "bmi"]), pd.Series(Y, name="stay")

PART_OF = {
    "state": "min_row_difference and max_epsilon",
    "max_delta": "max_epsilon",
    "identity": "secure sums (tests/flower/test_secure_requests.py)",
    "roster": "secure sums (tests/flower/test_secure_requests.py)",
}
"""What declines nothing by itself, and the rules that it belongs to."""

CHECKED_ON_STATISTICS = {"FewRows", "ManyColumns", "HeavyRows"}
"""The rules about rows that can say something of finished statistics.

All others decline them; name here only a rule that looks at all that it needs.
"""


def declined(policy: SitePolicy, data: Any, request: Request) -> None:
    guards = Guards(policies=(policy,), curator=Curator())
    with pytest.raises(PolicyError, match="declined"):
        respond(request, lambda: (*data, None), guards)


def by_difference(folder: Path) -> None:
    policy = SitePolicy(min_row_difference=3, state=folder)
    guards = Guards(policies=(policy,))
    respond(AskStatistics(), lambda: (X, Y, None), guards)
    declined(policy, (X[1:], Y[1:]), AskStatistics())


def case(
    data: Any = (X, Y), request: Request | None = None, **rule: Any
) -> Callable[[Path], None]:
    asked = AskStatistics() if request is None else request
    return lambda _: declined(SitePolicy(**rule), data, asked)


DECLINED: dict[str, Callable[[Path], None]] = {
    "min_rows": case(min_rows=21),
    "min_rows_per_level": case((RARE, Y), min_rows_per_level=2),
    "max_columns_per_row": case(max_columns_per_row=0.1),
    "allowed_columns": case(NAMED, allowed_columns=["age", "stay"]),
    "forbidden_columns": case(NAMED, forbidden_columns=["bmi"]),
    "requests": case(requests=["evaluation"]),
    "require_privacy": case(require_privacy=True, max_epsilon=1.0),
    "max_epsilon": case(request=AskRelease(RELEASE)),
    "require_secure_sums": case(require_secure_sums=True),
    "min_sites": case(min_sites=3),
    "min_row_difference": by_difference,
}
"""For every rule an answer that it declines; add a case for a new one."""


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_declines_something(rule: str, tmp_path: Path) -> None:
    assert (rule in DECLINED) != (rule in PART_OF), f"{rule}: add a case to DECLINED"
    if rule in DECLINED:
        DECLINED[rule](tmp_path)


def test_every_rule_is_in_the_table_of_the_page_and_in_the_docstring() -> None:
    table = PAGE.read_text("utf-8").split("| rule |")[1].split("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[2:]]
    documented = [name for first in firsts for name in re.findall(r"`(\w+)`", first)]
    assert sorted(documented) == sorted(RULES)
    parameters = (SitePolicy.__doc__ or "").split("    Raises")[0]
    heads = re.findall(r"^    (\w.*) : ", parameters, re.MULTILINE)
    assert sorted(", ".join(heads).split(", ")) == sorted(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_compared_with_presets(rule: str) -> None:
    default = getattr(SitePolicy(), rule)
    assert is_weaker(rule, default, default) is False
    for preset in PRESETS.values():
        if rule in preset:
            assert is_weaker(rule, default, preset[rule])
            with pytest.raises(PolicyError, match="is weaker than preset"):
                SitePolicy.preset(preset["min_rows"], **{rule: default})


def test_a_rule_that_presets_do_not_know_is_not_taken_for_stricter() -> None:
    with pytest.raises(PolicyError, match=r"min_beds=5.*add the rule to presets.py"):
        is_weaker("min_beds", 5, 11)


def test_every_rule_of_a_preset_is_a_field() -> None:
    assert {name for rules in PRESETS.values() for name in rules} <= set(RULES)


# ---- rules about rows ---------------------------------------------------------------


def of_its_own(rule: RowRule) -> bool:
    return type(rule).of_statistics is not RowRule.of_statistics


def strict(rule: RowRule, folder: Path) -> SitePolicy:
    state = {"state": folder} if rule.field == "min_row_difference" else {}
    return SitePolicy(**{rule.field: 2}, **state)


def test_rules_that_look_at_statistics_are_declared() -> None:
    found = {type(rule).__name__ for rule in ROW_RULES if of_its_own(rule)}
    assert found == CHECKED_ON_STATISTICS


@pytest.mark.parametrize("rule", ROW_RULES, ids=lambda rule: type(rule).__name__)
def test_what_cannot_be_checked_on_statistics_declines_them(
    rule: RowRule, tmp_path: Path
) -> None:
    stats = SufficientStatistics.from_data(X, Y)
    assert list(rule.of_statistics(SitePolicy(), stats)) == []
    if not of_its_own(rule):
        (why,) = rule.of_statistics(strict(rule, tmp_path), stats)
        assert why.startswith(f"{rule.field}=2 cannot be checked on finished")


def test_a_new_rule_is_asked_in_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRows(RowRule):
        field = "min_rows"

        def of_rows(self, policy: SitePolicy, *_: Any) -> Any:
            yield "no rows"

    places = "disclosure.ROW_RULES"
    monkeypatch.setattr(
        f"fedridge_flwr.federation.site.{places}", (*ROW_RULES, NoRows())
    )
    policy, rows = SitePolicy(min_rows=2), check_rows(X, Y)
    assert list(policy.reasons_by_rows(rows, rows)) == ["no rows"]
    (why,) = policy.reasons_by_statistics(SufficientStatistics.from_data(X, Y))
    assert "min_rows=2 cannot be checked" in why
    assert list(policy.reasons_by_table(20, RowOrigin())) == []
    declined(policy, (X, Y), AskStatistics())


@pytest.mark.parametrize("rule", ROW_RULES, ids=lambda rule: type(rule).__name__)
def test_no_rule_about_rows_is_asked_for_a_private_release(
    rule: RowRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("a refusal would tell of a record")

    for name in ("of_rows", "of_statistics", "of_table", "of_weights"):
        monkeypatch.setattr(type(rule), name, asked)
    policy = SitePolicy(
        min_rows=1000, max_columns_per_row=0.001, max_epsilon=PRIVACY.epsilon
    )
    guards = Guards(policies=(policy,), curator=Curator())
    found = respond(AskRelease(RELEASE), lambda: (X, Y, None), guards)
    assert found.kind == "private"


def test_every_task_has_a_name_and_three_are_about_keys_alone() -> None:
    assert {each.task for each in Request.__subclasses__()} == set(NAMES)
    assert set(NAMES.values()) | {"private", "feature_maps", "leverages"} == {*REQUESTS}
    assert (AskShares.task, AskConfirm.task, AskUnmask.task) == ABOUT_KEYS


def test_requests_say_whether_they_are_private() -> None:
    assert AskRelease(RELEASE).is_private
    assert AskKeys(bytes(16), RELEASE).is_private
    assert not AskKeys(bytes(16)).is_private
    assert not AskStatistics().is_private
    assert AskStatistics().private_release is None
