"""Records to statistics and back; whatever arrives is hostile until checked."""

from __future__ import annotations

import numpy as np
import pytest
import wire
from fakes import set_task_identity
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    FedRidgeError,
    PlainStatistics,
    ProtocolError,
    StatisticsError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.flower.error_text import tidy_reason
from fedridge_flwr.flower.exchange import MessageSizes, message_bytes
from fedridge_flwr.flower.protocol.array_records import (
    decode_array,
    model_arrays,
    model_from_arrays,
)


@pytest.fixture(autouse=True)
def _identity() -> None:
    set_task_identity()


def some_statistics(d: int = 3, t: int = 1, n: int = 20) -> SufficientStatistics:
    rng = np.random.default_rng(d)
    y = rng.normal(size=(n, t)) if t > 1 else rng.normal(size=n)
    return SufficientStatistics.from_data(rng.normal(size=(n, d)), y)


def through_bytes(content: RecordDict) -> RecordDict:
    """Serialize and parse a record as the wire does."""
    from flwr.common.serde import message_from_proto, message_to_proto

    message = Message(content, dst_node_id=7, message_type=MessageType.TRAIN)
    return message_from_proto(message_to_proto(message)).content


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("d", [1, 2, 50])
def test_statistics_come_back_bit_for_bit(d: int, t: int) -> None:
    stats = some_statistics(d, t)
    back = wire.read_answer(through_bytes(wire.statistics_reply(stats, False)))
    np.testing.assert_array_equal(back.to_array(), stats.to_array())
    assert (back.count, back.n_features, back.n_targets) == (20, d, t)


def test_upload_of_100_features_is_within_650_bytes_of_its_numbers() -> None:
    stats = some_statistics(100).with_feature_names([f"x{j}" for j in range(100)])
    request = Message(wire.train_request({}), 2**62, MessageType.TRAIN)
    reply = Message(wire.statistics_reply(stats, False), reply_to=request)
    assert message_bytes(reply) <= 5_253 * 8 + 650
    assert stats.to_array().size == 5_253


def test_names_travel_as_a_hash_unless_they_are_shared() -> None:
    stats = some_statistics(2).with_feature_names(["salary", "hiv status"])
    hidden = wire.statistics_reply(stats, share_names=False)
    assert "salary" not in str(hidden)
    assert wire.read_answer(hidden).feature_names is None
    assert wire.read_answer(hidden).feature_hash == stats.feature_hash
    shared = wire.read_answer(wire.statistics_reply(stats, share_names=True))
    assert shared.feature_names == ("salary", "hiv status")


def damaged(**changes: object) -> RecordDict:
    """An answer with one thing wrong."""
    content = wire.statistics_reply(some_statistics(), False)
    for key, value in changes.items():
        if key == "array":
            content["arrays"] = ArrayRecord({"statistics": Array(np.asarray(value))})
        elif key == "raw":
            array = Array("float64", (10,), "numpy.ndarray", bytes(value))
            content["arrays"] = ArrayRecord({"statistics": array})
        elif key == "count":
            content["metrics"] = MetricRecord({"num-examples": value})
        else:
            content["config"][key.replace("_", "-")] = value
    return content


GOOD = some_statistics().to_array()


def changed(index: int, value: float) -> np.ndarray:
    array = GOOD.copy()
    array[index] = value
    return array


def npy_header(shape: str, descr: str = "<f8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    text += " " * (118 - len(text) - 1) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (damaged(fedridge_protocol=2), "version 2"),
        (damaged(kind="mystery"), "unknown kind"),
        (damaged(array=GOOD[:-1]), "have 15 numbers, got an array of shape"),
        (damaged(array=GOOD.reshape(1, -1)), "have 15 numbers"),
        (damaged(array=changed(3, np.nan)), "NaN or infinite"),
        (damaged(array=changed(3, np.inf)), "NaN or infinite"),
        (damaged(array=GOOD.astype(np.float32)), "float64, got float32"),
        (damaged(array=changed(5, -1.0)), "negative variances: 1 of 4"),
        (damaged(array=changed(6, 1e6)), "not positive semi-definite"),
        (damaged(array=changed(0, -3.0)), "total weight is negative"),
        (damaged(array=changed(1, 1e200)), "overflow"),
        (damaged(count=-1), "whole number of rows"),
        (damaged(count=1.5), "whole number of rows"),
        (damaged(count=0), "no rows"),
        (damaged(n_features=0), "n-features must be a positive"),
        (damaged(n_features=10**9), "n-features must be a positive"),
        (damaged(n_targets="one"), "n-targets must be a positive"),
        (damaged(feature_hash=3), "feature-hash is not a hash"),
        (damaged(feature_names="['a', 'b', 'c']"), "not a list of text"),
        (damaged(feature_names='["a"]'), "1 feature names for 3"),
        (damaged(raw=b"not an array"), "NumPy's format"),
        (damaged(raw=npy_header("(10,)")), "0 bytes it has"),
        (damaged(raw=npy_header("(1000000000000,)")), "0 bytes it has"),
        (damaged(raw=npy_header("(9223372036854775808, 0)")), "claims the shape"),
        (damaged(raw=npy_header("(-1, -1)")), "claims the shape"),
        (damaged(raw=npy_header("(1,)", "|O") + b"x" * 8), r"dtype \|O"),
        (RecordDict(), "no arrays"),
        (
            RecordDict({"arrays": ArrayRecord({"0": Array(np.eye(2))})}),
            "neither FedRidge statistics nor",
        ),
        (wire.error_reply("the disk is full"), "the disk is full"),
    ],
)
def test_a_damaged_answer_is_refused_with_its_reason(
    content: RecordDict, reason: str
) -> None:
    with pytest.raises((ProtocolError, StatisticsError), match=reason):
        wire.read_answer(content)


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_make_the_decoder_do_anything_but_refuse(
    data: bytes, with_magic: bool
) -> None:
    data = b"\x93NUMPY\x01\x00" + data if with_magic else data
    try:
        array = decode_array(data)
    except ProtocolError:
        return
    assert array.nbytes <= len(data)


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text() | st.floats()))
def test_no_fields_beside_the_array_get_past_the_checks(fields: dict) -> None:
    fields[wire.PROTOCOL_KEY] = wire.PROTOCOL
    with pytest.raises(FedRidgeError):
        wire.read_fields(fields, [GOOD], 20)


def plain_reply(gram: np.ndarray, moment: np.ndarray, count: object) -> RecordDict:
    arrays = {"0": Array(gram), "1": Array(moment)}
    return RecordDict(
        {
            "fitres.parameters": ArrayRecord(arrays),
            "fitres.num_examples": MetricRecord({"num_examples": count}),
            "fitres.metrics": ConfigRecord(),
            "fitres.status": ConfigRecord({"code": 0, "message": ""}),
        }
    )


def test_the_plain_form_of_the_paper_is_read_full_or_packed() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9, 4)), rng.normal(size=9)
    for gram in (X.T @ X, (X.T @ X)[np.triu_indices(4)]):
        stats = wire.read_answer(plain_reply(gram, X.T @ y, 9))
        assert isinstance(stats, PlainStatistics)
        np.testing.assert_allclose(stats.gram, X.T @ X, rtol=1e-14)
        assert stats.count == 9


def test_a_refusal_in_the_older_form_gives_its_reason() -> None:
    content = plain_reply(np.eye(2), np.ones(2), 2)
    content["fitres.status"] = ConfigRecord({"code": 3, "message": "no such table"})
    with pytest.raises(ProtocolError, match="no such table"):
        wire.read_answer(content)


def test_a_model_survives_the_trip_to_the_clients() -> None:
    for t in (1, 2):
        model = solve(some_statistics(3, t))
        arrays = list(model_arrays(model).values())
        back = model_from_arrays(arrays)
        np.testing.assert_array_equal(back.coef_, model.coef_)
        np.testing.assert_array_equal(back.intercept_, model.intercept_)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"num-examples": 3, "mse": -1.0, "r2": 0.5}, "mse"),
        ({"num-examples": 3, "mse": float("nan"), "r2": 0.5}, "mse"),
        ({"num-examples": 3, "mse": 1.0, "r2": 7.0}, "r2"),
        ({"num-examples": 2.5, "mse": 1.0, "r2": 0.5}, "num-examples"),
        ({"mse": 1.0, "r2": 0.5}, "num-examples"),
    ],
)
def test_a_damaged_evaluation_is_refused(metrics: dict, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        wire.read_evaluation(RecordDict({"metrics": MetricRecord(metrics)}))


def test_sizes_measured_once_are_those_of_every_message() -> None:
    replies = [
        Message(
            wire.statistics_reply(some_statistics(20, n=n), False),
            reply_to=Message(wire.train_request({}), 2**62 + n, MessageType.TRAIN),
        )
        for n in range(10, 20)
    ]
    exact = sum(message_bytes(reply) for reply in replies)
    assert MessageSizes().of_all(replies) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("raw", "tidy"),
    [
        (None, "no reason given"),
        ("", "no reason given"),
        ("plain words", "plain words"),
        ("\x1b[36mred\x1b[39m words", "red words"),
        ("<class 'A'>:<'Traceback\n  File x\nValueError: bad'>", "ValueError: bad"),
        ("KeyError: 'salary'", "KeyError: 'salary'"),
        ("OSError: no C:\\new\\north", "OSError: no C:\\new\\north"),
        (
            "Message contains an Error (reason: <class 'R'>:<'ray::x()\n  File\n"
            "Exception ClientAppException occurred. Message: 'salary''>). It originated"
            " during client-side execution of a message.",
            "'salary'",
        ),
        ("x" * 9999, "x" * 400),
        (
            "ClientAppException occurred. Message: cannot import name 'x' from "
            "'fedridge_flwr' (/srv/site/fedridge_flwr/__init__.py)",
            "cannot import name 'x' from 'fedridge_flwr': install the same "
            "fedridge-flwr on both sides.",
        ),
        ("No module named 'pandas'", "No module named 'pandas'"),
    ],
)
def test_reasons_are_told_in_one_readable_line(raw: str | None, tidy: str) -> None:
    assert tidy_reason(raw) == tidy
