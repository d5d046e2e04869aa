"""Messages and files of version 0.1.0 are still understood, and still made.

They were written by `record.py`. Two sides are replayed: a strategy of today gets the
answers that clients of 0.1.0 gave, and a client of today gets the questions that a
strategy of 0.1.0 asked. Only public names are used.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Handler, InProcessGrid
from flwr.app import Message, RecordDict
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from scenarios import (
    BUDGET,
    FILES,
    MESSAGES,
    SCENARIOS,
    K,
    Scenario,
    outcome,
    privacy,
    rows_of,
    run,
)
from sklearn.linear_model import Ridge

from fedridge_flwr import FitReport, PrivacyError, PrivacyLedger, RidgeModel
from fedridge_flwr.linalg.pivoted import trapezoid_length, trapezoid_places

EXACT = 1e-12
# Recorded products answer the directions of the recorded run. A server whose numbers
# differ in the last bits asks for directions that differ by 1e-16 over the estimated
# error so far, which is above 1e-6 in every round of these recordings.
STEPS = 1e-9
# Noise-aware coefficients come from iterations that stop at a tolerance of their own.
NOISY = 1e-9
ANSWERED = [name for name, each in SCENARIOS.items() if each.client != "foreign"]
IN_STEPS = [name for name, each in SCENARIOS.items() if each.in_steps]
# Refinement was experimental in 0.1.0, and its server went on to other coefficients.
SERVED = [name for name in SCENARIOS if name != "private-rounds"]
PRIVATE = [name for name, each in SCENARIOS.items() if each.private]
MODELS = sorted(path.stem.removeprefix("model-") for path in FILES.glob("model-*"))
REPORTS = sorted(path.stem.removeprefix("report-") for path in FILES.glob("report-*"))
RELEASE = "release-id"


# ---- what was recorded ------------------------------------------------------------


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def recording(name: str) -> Any:
    return read(MESSAGES / f"{name}.json")


def message(text: str) -> Message:
    return message_from_proto(ProtoMessage.FromString(base64.b64decode(text)))


def exchanges(name: str) -> Iterator[tuple[int, Message, Message]]:
    """Yield node, question and answer, node by node, in the order of the rounds."""
    for node, heard in recording(name)["nodes"].items():
        for each in heard:
            yield int(node), message(each["request"]), message(each["reply"])


def tolerance(scenario: Scenario) -> float:
    if scenario.in_steps:
        return STEPS
    return NOISY if scenario.private else EXACT


# ---- comparisons ------------------------------------------------------------------


def agree(found: Any, wanted: Any, rtol: float, where: str = "") -> None:
    """Compare values of JSON; floats to a tolerance, all else exactly."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), where
        assert set(wanted) == set(found), where
        for key, value in wanted.items():
            agree(found[key], value, rtol, f"{where}/{key}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), where
        assert len(found) == len(wanted), where
        for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
            agree(one, other, rtol, f"{where}/{k}")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=rtol, abs=1e-14), where
    else:
        assert found == wanted, where


def close(found: np.ndarray, wanted: np.ndarray, rtol: float, where: str) -> None:
    """Compare arrays by their largest number; int8 is a number rounded to a code."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), where
    size = float(np.abs(wanted).max(initial=0.0))
    least = {np.dtype(np.int8): 1.0, np.dtype(np.float32): 1e-6 * size}
    atol = max(rtol * size, least.get(wanted.dtype, 0.0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=where)


# What 0.1.0 neither sends nor reads: the name of a fit in several rounds, what R² over
# the rows of all clients is computed from, what a client is called, the last digits of
# means, that clients decide by their rows in "auto", and how many clients are asked.
NEW_FIELDS = (
    *("fedridge-fit", "evaluation-sums", "client-name", "means-low"),
    *("auto-by-rows", "fedridge-sites"),
)
# Every request says in which order columns are wanted, as soon as that is known.
ORDER_FIELDS = ("-hash", "-order")


def fields_of(content: RecordDict) -> dict[str, Any]:
    """Return what is in config and metric records, with JSON in it parsed."""
    records = {**content.config_records, **content.metric_records}
    return {
        f"{key}/{name}": plain(value)
        for key, record in records.items()
        for name, value in record.items()
        if name not in NEW_FIELDS
    }


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype="<f8").tolist()
    if isinstance(value, str) and value.startswith(("{", "[")):
        return json.loads(value)
    return value


def arrays_of(content: RecordDict) -> dict[str, np.ndarray]:
    """Return all arrays; the older form has one without data where there is none."""
    return {
        f"{key}/{name}": array.numpy()
        for key, record in content.array_records.items()
        for name, array in record.items()
        if array.data
    }


def without_release(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: v for key, v in fields.items() if not key.endswith(RELEASE)}


# ---- answers of 0.1.0, a strategy of today ------------------------------------------


def node(name: str, number: int) -> Handler:
    """Return a node that answers what the same node of 0.1.0 answered."""
    told = iter([reply for own, _, reply in exchanges(name) if own == number])

    def handle(request: Message) -> Message:
        reply = next(told, None)
        assert reply is not None, "asked for more than in the recorded run"
        return Message(reply.content, reply_to=request)

    return handle


def replay(name: str, **changed: Any) -> tuple[Any, InProcessGrid]:
    grid = InProcessGrid([node(name, 1000 + k) for k in range(K)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(SCENARIOS[name].strategy(**changed), grid), grid


@cache
def replayed(name: str) -> tuple[Any, InProcessGrid]:
    return replay(name)


@pytest.mark.parametrize("name", SERVED)
def test_answers_of_0_1_0_give_the_model_they_gave(name: str) -> None:
    found, wanted = outcome(replayed(name)[0]), recording(name)["expected"]
    # An estimate by the condition of the system, which is itself an estimate.
    agree(found.pop("wire_error"), wanted["wire_error"], 1e-6)
    expected = {key: value for key, value in wanted.items() if key != "wire_error"}
    if expected["evaluation"] is not None:
        # It was, and is, the mean of the clients' own, which "r2" is no more.
        told = dict(expected["evaluation"])
        expected["evaluation"] = {"mean-site-r2": told.pop("r2"), **told}
    agree(found, expected, tolerance(SCENARIOS[name]))


@pytest.mark.parametrize("name", SERVED)
def test_questions_are_those_that_clients_of_0_1_0_know(name: str) -> None:
    scenario, (_, grid) = SCENARIOS[name], replayed(name)
    asked = sorted(grid.sent, key=lambda sent: sent.metadata.dst_node_id)
    known = [(own, request) for own, request, _ in exchanges(name)]
    assert len(asked) == len(known)
    for now, (own, then) in zip(asked, known, strict=True):
        assert now.metadata.dst_node_id == own
        assert now.metadata.message_type == then.metadata.message_type
        assert set(now.content) == set(then.content)
        fields, wanted = fields_of(now.content), fields_of(then.content)
        for key in set(fields) - set(wanted):  # 0.1.0 does not read them
            assert key.endswith(ORDER_FIELDS)
            del fields[key]
        agree(without_release(fields), without_release(wanted), EXACT)
        assert set(fields) == set(wanted)
        same_arrays(now.content, then.content, tolerance(scenario))


def same_arrays(now: RecordDict, then: RecordDict, rtol: float) -> None:
    found, wanted = in_place(arrays_of(now)), in_place(arrays_of(then))
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        close(found[key], array, rtol, key)


def in_place(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put the columns of a factor in the order of the rows' columns.

    Those beyond its height are in an order that rounding decides, and so the processor.
    """
    if "arrays/factor" not in arrays:
        return arrays
    order, packed = arrays["arrays/order"], arrays["arrays/factor"]
    width = len(order)
    [height] = [
        m for m in range(width + 1) if trapezoid_length(m, width) == len(packed)
    ]
    factor = np.zeros((height, width), dtype=packed.dtype)
    factor[trapezoid_places(height, width)] = packed
    return {
        **arrays,
        "arrays/order": np.sort(order),
        "arrays/factor": factor[:, np.argsort(order)],
    }


@pytest.mark.parametrize("name", IN_STEPS)
@pytest.mark.parametrize("nudge", [-1e-15, 2e-16, 1e-13])
def test_recorded_products_are_taken_where_last_bits_differ(name, nudge):
    strategy, grid = replay(name, alpha=0.7 * (1.0 + nudge))
    found, wanted = outcome(strategy), recording(name)["expected"]
    assert strategy.model_.alpha_ != 0.7
    assert found["failures"] == {}
    assert found["rounds"] == wanted["rounds"]
    agree(found["coef"], wanted["coef"], STEPS)
    products = len(recording(name)["nodes"]["1000"]) - 1
    assert len(grid.sent) == K * (1 + products)


@pytest.mark.parametrize("name", PRIVATE)
def test_answers_do_not_depend_on_the_name_of_the_release(name: str) -> None:
    asked = fields_of(replayed(name)[1].sent[0].content)[f"config/{RELEASE}"]
    assert re.fullmatch("[0-9a-f]{32}", asked)
    for _, request, reply in exchanges(name):
        then = fields_of(request.content)[f"config/{RELEASE}"]
        assert then != asked
        assert then not in str(fields_of(reply.content))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("oneshot", ["centred"]),
        ("float32", ["centred-float32"]),
        ("trapezoid", ["factor"]),
        ("trapezoid-float32", ["factor-float32"]),
        ("refine", ["opening", "product", "product", "product"]),
        ("cg", ["opening", *["product"] * 5]),
        ("private-rounds", ["private"] * 3),
        ("map", ["columns", "centred"]),
    ],
)
def test_recordings_have_the_form_they_are_meant_to_have(name, kinds):
    replies = [reply for own, _, reply in exchanges(name) if own == 1001]
    assert [fields_of(reply.content)["config/kind"] for reply in replies] == kinds


@pytest.mark.parametrize("name", ["oneshot", "refine", "cg", "legacy", "auto"])
def test_recorded_models_are_those_of_the_pooled_rows(name: str) -> None:
    X, y = (np.concatenate(part) for part in zip(*map(rows_of, range(K)), strict=True))
    pooled, wanted = Ridge(alpha=0.7).fit(X, y), recording(name)["expected"]
    np.testing.assert_allclose(wanted["coef"], pooled.coef_, atol=1e-7)
    np.testing.assert_allclose(wanted["intercept"], pooled.intercept_, atol=1e-7)


# ---- questions of 0.1.0, a client of today ------------------------------------------


def answers_of_today(name: str) -> Iterator[tuple[Message, Message]]:
    """Yield what a client of 0.1.0 answered and what one of today does."""
    grid = InProcessGrid.of_app(SCENARIOS[name].app(), K)
    for own, request, then in exchanges(name):
        kind = request.metadata.message_type
        asked = Message(request.content, dst_node_id=own, message_type=kind)
        (now,) = grid.pull_messages(grid.push_messages([asked]))
        yield then, now


@pytest.mark.parametrize("name", ANSWERED)
def test_clients_answer_questions_of_0_1_0_as_they_did(name: str) -> None:
    for then, now in answers_of_today(name):
        assert not now.has_error()
        assert now.metadata.message_type == then.metadata.message_type
        assert set(now.content) == set(then.content)
        agree(in_todays_words(now), in_todays_words(then), 1e-11)
        same_answer(now.content, then.content, SCENARIOS[name])


def in_todays_words(message: Message) -> dict[str, Any]:
    """Return the fields of a reply; one sentence has changed since 0.1.0."""
    return json.loads(
        json.dumps(fields_of(message.content), default=str).replace(
            "holds back:", "declined:"
        )
    )


def same_answer(now: RecordDict, then: RecordDict, scenario: Scenario) -> None:
    if not scenario.private:
        same_arrays(now, then, 1e-11)
        return
    found, wanted = arrays_of(now), arrays_of(then)
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        assert (found[key].shape, found[key].dtype) == (array.shape, array.dtype)
        assert np.isfinite(found[key]).all()
        assert not np.array_equal(found[key], array), "noise is drawn anew"


# ---- files of 0.1.0 -----------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_models_of_0_1_0_are_read_and_predict_the_same(name: str) -> None:
    model = RidgeModel.load(FILES / f"model-{name}.json")
    told = np.array(read(FILES / "predictions.json")[name])
    np.testing.assert_allclose(model.predict(rows_of(0)[0]), told, rtol=1e-12)
    expected = recording(name)["expected"]
    assert model.coef_.tolist() == expected["coef"]
    assert model.n_rows_ == expected["n_rows"]
    assert model.alpha_chosen_by == expected["alpha_chosen_by"]
    assert (model.privacy_ is not None) == SCENARIOS[name].private


REPORT_FILES = sorted(FILES.glob("report-*.json"))


@pytest.mark.parametrize("file", REPORT_FILES, ids=lambda file: file.stem)
def test_reports_of_0_1_0_are_read(file: Path) -> None:
    report = FitReport.load(file)
    found, then = json.loads(report.to_json()), read(file)
    assert not any(found.pop(key) for key in set(found) - set(then))
    for part in ("refinement", "privacy"):  # what they did not tell is not known
        for key in set(found[part] or {}) - set(then[part] or {}):
            assert found[part].pop(key) is None
    agree(found, then, 0.0)
    assert str(report.n_features) in str(report)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_written_as_0_1_0_reads_them(name: str, tmp_path: Path) -> None:
    file = FILES / f"model-{name}.json"
    RidgeModel.load(file).save(tmp_path / "model.json")
    written = read(tmp_path / "model.json")
    written.pop("features", None)  # hashes of names, which 0.1.0 does not look for
    assert written == read(file)


@pytest.mark.parametrize("name", REPORTS)
def test_reports_still_tell_all_that_they_told(name: str) -> None:
    then, now = read(FILES / f"report-{name}.json"), replayed(name)[0].report_.to_dict()
    assert paths(then) <= paths(now)
    for key in ("participants", "failures", "n_rows", "n_features", "alpha"):
        assert now[key] == then[key]
    agree(now["spectrum"], then["spectrum"], 1e-9)
    assert (then["spectrum"] is not None) == (name in ("oneshot", "losses"))


def paths(content: Any, where: str = "") -> set[str]:
    """Return all keys of a report, and of what is in it."""
    if not isinstance(content, dict):
        return {where}
    inner = (paths(value, f"{where}/{key}") for key, value in content.items())
    return {where}.union(*inner)


def ledger_in(folder: Path) -> PrivacyLedger:
    shutil.copy(FILES / "ledger.json", folder)
    return PrivacyLedger(folder / "ledger.json", **BUDGET)


def test_a_ledger_of_0_1_0_still_counts_what_was_spent(tmp_path: Path) -> None:
    spent, wanted = (
        ledger_in(tmp_path).spent("clinic"),
        read(FILES / "ledger-spent.json"),
    )
    assert spent.releases == wanted["releases"] == 2
    assert spent.epsilon == pytest.approx(wanted["epsilon"], rel=1e-9)
    assert spent.delta == wanted["delta"]


def test_a_ledger_of_0_1_0_refuses_what_is_beyond_the_budget(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    with pytest.raises(PrivacyError, match="budget"):
        ledger.charge("clinic", "release 3", privacy(2.0))
    assert ledger.spent("clinic").releases == 2
    ledger.charge("clinic", "release 3", privacy(0.1))
    assert ledger.spent("clinic").releases == 3


def test_a_fit_that_0_1_0_began_goes_on_and_pays_once(tmp_path: Path) -> None:
    ledger, terms = ledger_in(tmp_path), privacy(1.0, rounds=3)
    before = ledger.spent("clinic")
    with pytest.raises(PrivacyError, match="does not remember it"):
        ledger.charge("clinic", "release 2", terms, 2)
    ledger.charge("clinic", "release 2", terms, 3)
    assert ledger.spent("clinic") == before
