"""The committed accuracies on FLamby's hospitals are what `make flamby` measures."""

import json

import pytest
from flamby_heart import DATA, RESULTS, hospitals, measure


@pytest.mark.skipif(not DATA.exists(), reason="the data of ../shared are not here")
def test_four_hospitals_by_the_protocol_of_flamby() -> None:
    sizes = [(int(train.sum()), len(y)) for _, y, train in hospitals(DATA).values()]
    assert sizes == [(199, 303), (172, 261), (30, 46), (85, 130)]
    found, kept = measure(DATA), json.loads(RESULTS.read_text("utf-8"))
    assert found["tested_rows"] == kept["tested_rows"]
    for name, accuracies in kept["found"].items():
        assert found["found"][name] == pytest.approx(accuracies)
