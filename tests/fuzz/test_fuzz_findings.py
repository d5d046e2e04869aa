"""Every bug that the fuzz found in a reader, each in its smallest form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import wire
from fakes import set_task_identity
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from fuzz_headers import header, packed
from fuzz_rounds import round_cases
from fuzz_run import outcome_of, some

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidgeError,
    PlainStatistics,
    PrivacyError,
    PrivacyLedger,
    ProtocolError,
    RidgeModel,
    StatisticsError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.federation.requests import AskColumns, AskOpening
from fedridge_flwr.flower.error_text import tidy_reason
from fedridge_flwr.flower.protocol.array_records import decode_array
from fedridge_flwr.multiround import Opening, centred_product
from fedridge_flwr.multiround.product_checks import check_product
from fedridge_flwr.privacy.noisy_statistics import PrivateStatistics
from fedridge_flwr.statistics.encoding import decode, encode, encode_rows


@pytest.fixture(autouse=True)
def _identity() -> None:
    set_task_identity()


# ---- headers: MemoryError, RecursionError, ValueError, TypeError before -------------


@pytest.mark.parametrize(
    "shape",
    [
        "(" + "-" * 9000 + "1,)",
        "(" + "1+" * 4000 + "1j,)",
        "(0x" + "f" * 8000 + ",)",
        "(" + "9" * 400 + ", 0)",
        f"({2**63}, 0)",
        f"({2**62}, {2**62}, 0)",
        "(" + "1, " * 65 + ")",
        "(True, 0)",
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_no_header_makes_numpy_or_python_give_up(shape: str, version: int) -> None:
    with pytest.raises(ProtocolError, match="an array"):
        decode_array(header("'<f8'", shape, version=version))


def test_headers_as_others_write_them_are_read() -> None:
    data = np.arange(6.0).tobytes()
    for text in (
        "{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }",
        '{"shape": (6,), "fortran_order": False, "descr": "<f8"}',
        "{ 'fortran_order':False,'descr':'<f8','shape':(2 ,3) }",
    ):
        for version in (1, 2):
            found = decode_array(packed(text.encode(), version) + data)
            np.testing.assert_array_equal(found.ravel(), np.arange(6.0))


# ---- names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '[{"a": 1, "a": 2}]', b'["a"]', 3]
)
def test_names_nested_deeply_are_refused_as_any_other_text(text: object) -> None:
    stats = SufficientStatistics.from_data([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0])
    content = wire.statistics_reply(stats, share_names=False)
    content["config"]["feature-names"] = text  # type: ignore[index]
    with pytest.raises(ProtocolError, match="not a list of text"):
        wire.read_answer(content)


# ---- statistics that no rows have --------------------------------------------------


def packed_form(count: int, rank: int, width: int = 6) -> tuple:
    rng = np.random.default_rng(rank)
    rows = rng.normal(size=(rank + 1, width))
    stats = SufficientStatistics.from_data(rows[:, 1:], rows[:, 0])
    return stats.to_array(), width - 1, 1, count


@pytest.mark.parametrize("count", range(1, 7))
def test_co_moments_take_one_row_more_than_their_rank(count: int) -> None:
    array, d, t, _ = packed_form(count, rank=count - 1)
    SufficientStatistics.from_array(array, d, t, count=count)
    array, d, t, _ = packed_form(count, rank=count)
    with pytest.raises(StatisticsError, match="more rows than there are"):
        SufficientStatistics.from_array(array, d, t, count=count)


def test_float32_and_a_factor_are_held_against_the_rows_as_well() -> None:
    rng = np.random.default_rng(0)
    rows = check_rows(rng.normal(size=(5, 8)), rng.normal(size=5))
    for dtype in ("float64", "float32"):
        stats = SufficientStatistics.from_rows(rows)
        for sent in (encode(stats, dtype), encode_rows(rows, dtype)):
            arrays = list(sent.arrays.values())
            decode(sent.kind, arrays, Schema(8), 5)
            for fewer in (1, 2, 4):
                with pytest.raises(StatisticsError, match="rows"):
                    decode(sent.kind, arrays, Schema(8), fewer)


def test_no_weight_has_no_means() -> None:
    array = SufficientStatistics.from_data([[0.0], [0.0]], [0.0, 0.0]).to_array()
    array[:3] = 0.0, 3.0, 4.0
    with pytest.raises(StatisticsError, match="total weight is zero, but"):
        SufficientStatistics.from_array(array, 1, 1, count=2)
    with pytest.raises(StatisticsError, match="no rows, but"):
        SufficientStatistics.from_array(array, 1, 1, count=0)


def test_the_plain_pair_has_no_more_rank_than_rows_and_no_h_without_features() -> None:
    X = np.random.default_rng(0).normal(size=(4, 6))
    PlainStatistics.from_arrays(X.T @ X, X.T @ np.ones(4), 4)
    with pytest.raises(StatisticsError, match="more rows than there are"):
        PlainStatistics.from_arrays(X.T @ X, X.T @ np.ones(4), 3)
    with pytest.raises(StatisticsError, match="not zero where the features"):
        PlainStatistics.from_arrays(np.diag([1.0, 0.0]), np.array([1.0, 1.0]), 5)
    beyond = np.longdouble(10) ** 4000 if np.finfo(np.longdouble).max > 1e308 else None
    if beyond is not None:
        with pytest.raises(StatisticsError, match="infinite"):
            PlainStatistics.from_arrays(np.eye(2) * beyond, np.ones(2), 5)


# ---- openings, products, moments of columns --------------------------------------


def opened(rows: np.ndarray, count: int, **changes: float) -> Opening:
    opening = Opening.from_rows(check_rows(rows[:, 1:], rows[:, 0]), factor=False)
    head = opening.to_arrays()["head"]
    for place, number in changes.items():
        head[int(place[1:])] = number
    return Opening.from_arrays([head], Schema(rows.shape[1] - 1), count, factor=False)


def test_an_opening_is_held_against_its_rows() -> None:
    rows = np.random.default_rng(1).normal(size=(5, 3))
    opened(rows, 5)
    opened(rows[:2], 2)
    with pytest.raises(StatisticsError, match="only one row, but its variances"):
        opened(rows, 1)
    with pytest.raises(StatisticsError, match="two rows have these variances"):
        opened(rows, 2)
    with pytest.raises(StatisticsError, match="zero, but"):
        opened(np.zeros((3, 3)), 3, _0=0.0, _1=2.0)


def test_products_are_those_of_one_symmetric_sum_of_squares() -> None:
    rng = np.random.default_rng(2)
    rows = check_rows(rng.normal(size=(9, 4)), rng.normal(size=9))
    opening = Opening.from_rows(rows, factor=False)
    V = np.linalg.qr(rng.normal(size=(4, 2)))[0]
    product = centred_product(rows, V)
    check_product(opening, V, product)
    turned = V @ np.array([[0.0, 1.0], [-1.0, 0.0]]) * 0.1
    with pytest.raises(ProtocolError, match="contradict each other"):
        check_product(opening, V, product + turned)


@pytest.mark.parametrize("factor", [0.0, 1e-200, 0.5, 0.99])
def test_the_product_of_one_feature_is_its_variance(factor: float) -> None:
    rows = check_rows(np.array([[1.0], [2.0], [5.0]]), np.ones(3))
    opening = Opening.from_rows(rows, factor=False)
    V = np.array([[2.0]])
    check_product(opening, V, centred_product(rows, V))
    with pytest.raises(ProtocolError, match="its own variances"):
        check_product(opening, V, factor * centred_product(rows, V))


# ---- what travels beside, evaluations, reasons -----------------------------------


@pytest.mark.parametrize(
    ("count", "reason"),
    [(-1, "whole number"), (2.5, "whole number"), (0, "no rows"), (1, "of one row")],
)
def test_moments_of_columns_are_held_against_the_count(
    count: object, reason: str
) -> None:
    fields = {"fedridge-protocol": 1, "kind": "columns"}
    fields |= {"n-features": 1, "n-targets": 1}
    arrays = [np.array([3.0, 1.0, 2.0])]
    wire.read_fields(fields, arrays, 3, AskColumns())
    with pytest.raises(ProtocolError, match=reason):
        wire.read_fields(fields, arrays, count, AskColumns())


def test_names_fit_to_the_columns_and_to_their_hash_in_every_kind() -> None:
    rows = check_rows(np.arange(6.0).reshape(3, 2) ** 2, np.ones(3))
    arrays = list(Opening.from_rows(rows, factor=False).to_arrays().values())
    fields = wire.schema_fields("opening", rows, True)
    asked = AskOpening("cg")
    for names, reason in (
        ('["a"]', "1 feature names for 2"),
        ('["a", "b", "c"]', "3 feature names for 2"),
    ):
        with pytest.raises(ProtocolError, match=reason):
            wire.read_fields({**fields, "feature-names": names}, arrays, 3, asked)
    named = {**fields, "feature-names": '["a", "b"]'}
    assert wire.read_fields(named, arrays, 3, asked).feature_hash
    with pytest.raises(ProtocolError, match="do not match their hash"):
        wire.read_fields({**named, "feature-hash": "0" * 32}, arrays, 3, asked)


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_version_is_a_whole_number_and_nothing_that_equals_one(
    version: object,
) -> None:
    with pytest.raises(ProtocolError, match="speaks version"):
        wire.read_fields({"fedridge-protocol": version}, [], 1)


@pytest.mark.parametrize("told", [{"mse": True}, {"r2": True}, {"mse": 10**400}])
def test_an_error_is_a_number_and_no_truth_value(told: dict) -> None:
    content = RecordDict({"metrics": MetricRecord({"num-examples": 3})})
    content["evaluateres.metrics"] = ConfigRecord({"mse": 1.0, "r2": 0.5, **told})
    with pytest.raises(ProtocolError, match="must be a"):
        wire.read_evaluation(content, 1)


def test_a_private_release_is_of_whole_float64_numbers() -> None:
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    bounds = privacy.bounds(1, 1, True)
    sums = np.array([5.0, 1.0, 5.0, 2.0, 2.0])
    PrivateStatistics(sums, privacy, bounds)
    for wrong in (sums.astype(np.int8), sums.astype(np.float16), sums + 0.5):
        with pytest.raises(StatisticsError, match="private release"):
            PrivateStatistics(wrong, privacy, bounds)


@pytest.mark.parametrize(
    "part", ["<class ''>:<'", "Message contains an Error (reason: ", "Error.", "\x1b["]
)
def test_megabytes_of_reason_take_no_time_and_stay_one_line(part: str) -> None:
    assert len(tidy_reason(part * 200_000)) <= 400


def test_a_refusal_without_words_has_some() -> None:
    with pytest.raises(ProtocolError, match="no reason given"):
        wire.read_answer(wire.error_reply("\x1b\n"))


# ---- files -----------------------------------------------------------------------


def a_ledger(folder: Path) -> PrivacyLedger:
    ledger = PrivacyLedger(folder / "ledger.json", 2.0, 1e-5)
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    ledger.charge("clinic", "first", privacy)
    return ledger


@pytest.mark.parametrize(
    ("old", "new"), [(b"clinic", b"clinjc"), (b"first", b"fjrst"), (b"2", b"3")]
)
def test_a_ledger_with_one_thing_changed_refuses_everything(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    ledger = a_ledger(tmp_path)
    content = ledger.path.read_bytes()
    assert old in content
    ledger.path.write_bytes(content.replace(old, new))
    with pytest.raises(PrivacyError, match="damaged"):
        ledger.spent("clinic")


def test_a_link_to_a_ledger_that_is_not_there_is_no_new_ledger(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.path.rename(tmp_path / "elsewhere.json")
    ledger.path.symlink_to(tmp_path / "elsewhere.json")
    assert ledger.spent("clinic").releases == 1
    (tmp_path / "elsewhere.json").unlink()
    with pytest.raises(PrivacyError, match="nothing is released"):
        ledger.spent("clinic")


def a_model(folder: Path) -> Path:
    X, y = [[0.0], [1.0], [3.0]], [1.0, 2.0, 4.0]
    solve(SufficientStatistics.from_data(X, y)).save(folder / "model.json")
    return folder / "model.json"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("coef", ["1.0"]),
        ("coef", [True]),
        ("coef", [10**400]),
        ("n_rows", 10**400),
        ("n_rows", True),
        ("n_rows", -1),
        ("fit_intercept", "no"),
        ("feature_names", "a"),
        ("feature_names", [1]),
        ("privacy", "strong"),
        ("privacy", {"epsilon": 1}),
        ("alpha_chosen_by", ["x"]),
        ("version", True),
    ],
)
def test_a_model_with_a_value_of_another_type_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    path = a_model(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(FedRidgeError, match=r"damaged|version"):
        RidgeModel.load(path)


def test_what_is_no_file_is_no_model(tmp_path: Path) -> None:
    path = a_model(tmp_path)
    text = path.read_text()
    for wrong in ("[" * 100_000, text.replace("{", '{"alpha": 0,', 1)):
        path.write_text(wrong)
        with pytest.raises(FedRidgeError, match="not a model"):
            RidgeModel.load(path)
    path.unlink()
    for target in (tmp_path, Path("/dev/zero"), path):
        path.symlink_to(target)
        with pytest.raises(FedRidgeError, match="not a model"):
            RidgeModel.load(path)
        path.unlink()


# ---- who answers what --------------------------------------------------------------


@pytest.mark.parametrize(
    "which", ["replayed answers, other runs", "one node answers for another"]
)
def test_what_replies_to_no_question_of_this_round_is_no_answer(which: str) -> None:
    (case,) = some(round_cases(), which)
    assert {outcome_of(case, seed)[0] for seed in range(20)} == {"refused"}


def test_a_wide_factor_of_few_rows_costs_no_wide_eigenvalues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Minutes of work for a message of some kilobytes, if p x p were decomposed."""
    from fedridge_flwr.statistics import validity as plausible

    rng = np.random.default_rng(0)
    rows = check_rows(rng.normal(size=(3, 400)), rng.normal(size=3))
    sent = encode_rows(rows, "float64")
    assert sent.kind == "factor"
    widths, eigenvalues = [], plausible.eigvalsh

    def eigvalsh(matrix: np.ndarray, **options: object) -> np.ndarray:
        widths.append(len(matrix))
        return eigenvalues(matrix, **options)

    monkeypatch.setattr(plausible, "eigvalsh", eigvalsh)
    monkeypatch.setattr(plausible, "dpstrf", None)
    with pytest.raises(FedRidgeError, match="need more rows than there are"):
        decode(sent.kind, list(sent.arrays.values()), Schema(400), 2)
    assert widths == [2]
