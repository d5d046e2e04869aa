"""Names of columns: what hashes and an order tell, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import DataError, FedRidgeError, StatisticsError
from fedridge_flwr.data.names import Columns, Names, hash_names
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.flower.protocol.name_records import names_fields, read_columns

printable = st.characters(exclude_categories=["C", "Z"])
some_names = st.lists(
    st.text(printable, max_size=4), min_size=1, max_size=300, unique=True
)


@given(names=some_names, data=st.data())
def test_hashes_and_an_order_are_enough_to_find_every_column(names, data):
    other = data.draw(st.permutations(names))
    ours, theirs = Names.of(names), Names.of(other).hidden
    assert (ours == theirs) == (names == other)
    places = ours.places_of(theirs) if ours != theirs else range(len(names))
    assert [names[j] for j in places] == other
    assert ours.arranged(theirs).known == tuple(other)
    assert ours.hidden.arranged(theirs) == theirs


@given(names=some_names, share=st.booleans())
def test_names_come_back_from_the_wire(names, share):
    sent = Columns(Names.of(names), Names.of(["u"]))
    fields = names_fields(sent, share)
    back = read_columns(fields)
    assert back == sent
    assert [each.order for each in back] == [each.order for each in sent]
    assert [each.sorted_hash for each in back] == [each.sorted_hash for each in sent]
    assert back.features.known == (tuple(names) if share else None)
    if names == sorted(names):
        assert not any(key.endswith("order") for key in fields)


def test_other_names_have_no_places():
    assert Names.of("abc").places_of(Names.of("abd")) is None
    liar = Names(Names.of("abc").hash, Names.of("ab").sorted_hash, (2, 0, 1))
    assert Names.of("ba").places_of(liar) is None


def test_one_hash_alone_is_taken_for_that_of_sorted_names():
    older = Names(hash_names(["b", "a"]))  # as 0.1.0 sends it
    assert older.matches(Names.of(["b", "a"]))
    assert not older.matches(Names.of(["a", "b"]))
    assert older.places_of(Names.of(["a", "b"])) is None
    assert Names(hash_names(["a", "b"])).places_of(Names.of("ba")).tolist() == [1, 0]


@pytest.mark.parametrize(
    "bad",
    [
        {"feature-hash": "x"},
        {"feature-hash": "0" * 32, "feature-set-hash": 7},
        {"feature-hash": "0" * 32, "feature-order": "ab"},
        {"feature-hash": "0" * 32, "feature-order": bytes([0, 0, 1])},
        {"feature-hash": "0" * 32, "feature-order": bytes([1, 2, 3])},
        {"feature-hash": "0" * 32, "feature-names": '["a"]'},
        {"feature-names": '["a", "a"]'},
        {"feature-names": '["a", 1]'},
        {"feature-names": "[" * 10_000},
        {"target-hash": None, "target-names": ["u"]},
    ],
)
def test_names_of_others_are_not_trusted(bad):
    with pytest.raises(FedRidgeError):
        Schema(1, 1, *read_columns(bad))


def test_an_order_of_other_columns_than_there_are_is_refused():
    names = Names.of("ba").hidden
    with pytest.raises(StatisticsError, match="2 feature names for 3 features"):
        Schema(3, 1, names)


def test_rows_are_arranged_as_they_are_read():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})
    Y = pd.DataFrame({"v": [5.0, 6.0], "u": [7.0, 8.0]})
    wanted = Columns(Names.of("ab").hidden, Names.of("uv"))
    block = next(check_rows(table, Y).arranged(wanted).blocks())
    np.testing.assert_array_equal(block.X, [[3.0, 1.0], [4.0, 2.0]])
    np.testing.assert_array_equal(block.Y, [[7.0, 5.0], [8.0, 6.0]])
    assert check_rows(table, Y).arranged(wanted).feature_names == ("a", "b")
    bare = check_rows(table.to_numpy(), Y.to_numpy())
    assert bare.arranged(wanted).places is None
    with pytest.raises(DataError, match=r"column 0 \('b'\) is not .*, and 'c' is miss"):
        check_rows(table, Y).arranged(Columns(Names.of("ac")))
    with pytest.raises(DataError, match=r"y has other columns.*names differ"):
        check_rows(table, Y).arranged(Columns(None, Names.of("uw").hidden))
