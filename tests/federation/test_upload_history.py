"""Which rows have left a site, and which may leave it after them."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fedridge_flwr import (
    DataError,
    PolicyError,
    SitePolicy,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.data.local_table import RowOrigin
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.requests import (
    AskColumns,
    AskEvaluation,
    AskOpening,
    AskProduct,
    AskResiduals,
    AskStatistics,
)
from fedridge_flwr.federation.site.request_names import REQUESTS as ALL_REQUESTS
from fedridge_flwr.federation.site.upload_history import (
    UploadHistory,
    _told_apart,
    blocks_of,
    hash_rows,
)
from fedridge_flwr.regression.inference.residual_moments import ResidualProbe

KEY = b"k" * 32
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(30, 3)), rng.normal(size=30)
K = 5


def upload(folder: Path, data: Any, request: Any = None) -> Any:
    policy = SitePolicy(min_row_difference=K, state=folder, requests=ALL_REQUESTS)
    guards = Guards(policies=(policy,))
    return respond(request or AskStatistics(), lambda: data, guards)


def refused(folder: Path, data: Any, request: Any = None) -> bool:
    try:
        upload(folder, data, request)
    except PolicyError as error:
        if f"min_row_difference={K}" not in str(error):
            raise
        return True
    return False


# ---- the law ------------------------------------------------------------------------

small = st.lists(st.integers(0, 5), max_size=12)


def differ(a: list[int], b: list[int]) -> int:
    one, other = Counter(a), Counter(b)
    return max((one - other).total(), (other - one).total())


@given(small, small)
def test_rows_are_counted_as_often_as_they_occur(a: list[int], b: list[int]) -> None:
    one, other = (
        _told_apart(hash_rows(np.array(rows, dtype=np.int64), KEY)) for rows in (a, b)
    )
    assert (len(one), len(other)) == (len(a), len(b))
    common = len(np.intersect1d(one, other))
    assert max(len(a), len(b)) - common == differ(a, b)


@given(st.lists(small, max_size=5), st.integers(2, 4))
def test_an_upload_is_known_or_far_from_all_before(
    tmp_path_factory: pytest.TempPathFactory, sets: list[list[int]], k: int
) -> None:
    history = UploadHistory(tmp_path_factory.mktemp("state"))
    sent: list[list[int]] = []
    for rows in sets:
        distances = [differ(rows, earlier) for earlier in sent]
        allowed = 0 in distances or all(d >= k for d in distances)
        try:
            history.admit(np.array(rows, dtype=np.int64), k)
        except PolicyError:
            assert not allowed
        else:
            assert allowed
            sent.append(rows)


# ---- rows ---------------------------------------------------------------------------


def test_the_same_rows_in_every_form_are_the_same(tmp_path: Path) -> None:
    upload(tmp_path, (X, Y, None))
    order, turned = rng.permutation(30), [2, 0, 1]
    forms = [
        (X[order], Y[order], None),
        (X, Y.reshape(-1, 1), np.ones(30)),
        (np.asfortranarray(X), Y, 1.0),
        (sparse.csr_array(X), Y, None),
        (np.vstack([X, X[:1]]), np.append(Y, Y[0]), np.append(np.ones(30), 0.0)),
    ]
    for data in forms:
        upload(tmp_path, data)
    assert len(sent(tmp_path)) == 1
    names = np.array(["age", "bmi", "income"])
    other = tmp_path / "named"
    other.mkdir()
    upload(other, (pd.DataFrame(X, columns=names), Y, None))
    upload(other, (pd.DataFrame(X[:, turned], columns=names[turned]), Y, None))
    assert len(sent(other)) == 1
    turned_but_one = pd.DataFrame(X[1:, turned], columns=names[turned])
    assert refused(other, (turned_but_one, Y[1:], None))


def sent(folder: Path) -> list[int]:
    database = sqlite3.connect(folder / "uploads.sqlite")
    found = [n for (n,) in database.execute("SELECT n_rows FROM uploads")]
    database.close()
    return found


def test_whatever_changes_about_few_rows_is_refused(tmp_path: Path) -> None:
    upload(tmp_path, (X, Y, None))
    changed, weight, corrected = X.copy(), np.ones(30), Y.copy()
    changed[3, 1] += 1.0
    corrected[:3] += 0.5
    weight[4] = 2.0
    for data in (
        (X[1:], Y[1:], None),
        (X[K - 1 :], Y[K - 1 :], None),
        (np.vstack([X, X[:1]]), np.append(Y, Y[0]), None),
        (changed, Y, None),
        (X, corrected, None),
        (X, Y, weight),
        (X, Y, np.arange(30) > 0),
    ):
        assert refused(tmp_path, data)
    assert not refused(tmp_path, (X[K:], Y[K:], None))
    assert not refused(tmp_path, (X, Y, None))
    assert sent(tmp_path) == [30, 25]


REQUESTS = {
    "columns": AskColumns(),
    "opening": AskOpening("refine"),
    "product": AskProduct(np.ones((3, 1))),
    "residuals": AskResiduals(ResidualProbe(np.ones((1, 3)), np.zeros(1))),
    "float32": AskStatistics("float32"),
    "evaluation": AskEvaluation(solve(SufficientStatistics.from_data(X, Y), alpha=1.0)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_counts_as_an_upload(tmp_path: Path, name: str) -> None:
    upload(tmp_path, (X, Y, None), REQUESTS[name])
    assert refused(tmp_path, (X[1:], Y[1:], None))
    assert refused(tmp_path, (X[1:], Y[1:], None), REQUESTS[name])


def test_what_could_not_be_sent_is_no_upload(tmp_path: Path) -> None:
    broken = X.copy()
    broken[0, 0] = np.nan
    with pytest.raises(DataError, match="NaN"):
        upload(tmp_path, (broken, Y, None))
    upload(tmp_path, (X[1:], Y[1:], None))
    assert sent(tmp_path) == [29]


def test_an_upload_is_entered_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(tmp_path, (X, Y, None))

    def full(*_: object) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("fedridge_flwr.federation.site.upload_history._earlier", full)
    with pytest.raises(PolicyError, match="disk is full"):
        upload(tmp_path, (X[10:], Y[10:], None))


def test_rows_of_a_table_are_identified_by_the_whole_table(tmp_path: Path) -> None:
    whole = np.arange(30, dtype=np.uint64)
    upload(tmp_path, (X, Y, None, RowOrigin(identities=lambda: whole)))
    # Another formula, which one patient is not complete for: other columns, 29 rows.
    other = rng.normal(size=(29, 5))
    assert refused(
        tmp_path, (other, Y[1:], None, RowOrigin(identities=lambda: whole[1:]))
    )
    upload(
        tmp_path,
        (rng.normal(size=(30, 5)), Y, None, RowOrigin(identities=lambda: whole)),
    )
    more, weight = np.append(Y, 0.0), np.append(np.ones(30), 0.0)
    one_more = RowOrigin(identities=lambda: np.append(whole, np.uint64(30)))
    upload(tmp_path, (rng.normal(size=(31, 5)), more, weight, one_more))
    assert sent(tmp_path) == [30]
    with pytest.raises(PolicyError, match="31 of 30 rows are identified"):
        upload(tmp_path, (X, Y, None, one_more))


@pytest.mark.parametrize(
    "identities",
    # The bytes of texts depend on the longest one among them.
    [np.array([object()] * 3), np.zeros(3, complex), np.array(["a", "bc"])],
)
def test_rows_that_cannot_be_identified_are_refused(
    tmp_path: Path, identities: Any
) -> None:
    with pytest.raises(PolicyError, match="cannot be identified"):
        UploadHistory(tmp_path).admit(identities, K)


def test_equal_numbers_have_equal_hashes() -> None:
    other_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
    assert np.isnan(other_nan)
    zeros, nans = np.array([[0.0, 1.0]]), np.array([[np.nan, 1.0]])
    assert hash_rows(zeros, KEY) == hash_rows(np.array([[-0.0, 1.0]]), KEY)
    assert hash_rows(nans, KEY) == hash_rows(np.array([[other_nan, 1.0]]), KEY)
    assert hash_rows(zeros, KEY) == hash_rows(zeros.astype(np.float32), KEY)
    small, large = np.arange(3, dtype=np.int32), np.arange(3, dtype=np.uint64)
    assert (hash_rows(small, KEY) == hash_rows(large, KEY)).all()
    assert hash_rows(zeros, KEY) != hash_rows(zeros[:, ::-1], KEY)
    assert hash_rows(zeros, KEY) != hash_rows(zeros, b"l" * 32)


@given(st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_sparse_rows_have_the_hashes_of_dense_ones(d: int, seed: int) -> None:
    dense = np.random.default_rng(seed).integers(-1, 2, size=(6, d + 1)) * 1.5
    for made in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        assert (hash_rows(made(dense), KEY) == hash_rows(dense, KEY)).all()
    (block,) = blocks_of(check_rows(dense, dense[:, 0]))
    (other,) = blocks_of(check_rows(sparse.csr_array(dense), dense[:, 0]))
    assert (hash_rows(block, KEY) == hash_rows(other, KEY)).all()


# ---- the folder ---------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        upload(tmp_path, (X, Y, None))
    finally:
        os.umask(before)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["uploads.key", "uploads.sqlite"]
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_value_is_in_the_files(tmp_path: Path) -> None:
    upload(tmp_path, (X, Y, None))
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for value in (*X.ravel(), *Y):
        assert value.tobytes() not in content


def test_two_sites_have_other_hashes_of_the_same_rows(tmp_path: Path) -> None:
    blobs = []
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        upload(folder, (X, Y, None))
        database = sqlite3.connect(folder / "uploads.sqlite")
        blobs.append(database.execute("SELECT rows FROM uploads").fetchone()[0])
        database.close()
    assert len(blobs[0]) == len(blobs[1]) == 8 * 30
    assert not set(np.frombuffer(blobs[0])) & set(np.frombuffer(blobs[1]))


def flip(file: Path) -> None:
    database = sqlite3.connect(file)
    (content,) = database.execute("SELECT rows FROM uploads").fetchone()
    broken = bytes([content[0] ^ 1]) + content[1:]
    database.execute("UPDATE uploads SET rows = ?", [broken])
    database.commit()
    database.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "uploads.sqlite").unlink(),
        lambda folder: (folder / "uploads.sqlite").write_bytes(b""),
        lambda folder: (folder / "uploads.sqlite").write_bytes(b"no database" * 100),
        lambda folder: (folder / "uploads.key").unlink(),
        lambda folder: (folder / "uploads.key").write_bytes(b""),
        lambda folder: (folder / "uploads.key").write_bytes(
            b"another of thirty-two byte key.."
        ),
        lambda folder: flip(folder / "uploads.sqlite"),
    ],
)
def test_a_history_that_was_damaged_lets_nothing_out(
    tmp_path: Path, damage: Any
) -> None:
    upload(tmp_path, (X, Y, None))
    damage(tmp_path)
    for rows in (slice(1, None), slice(10, None)):
        with pytest.raises(PolicyError, match="cannot be compared"):
            upload(tmp_path, (X[rows], Y[rows], None))


def test_a_folder_that_is_not_there_lets_nothing_out(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no folder"):
        upload(tmp_path / "not-mounted", (X, Y, None))
    assert not (tmp_path / "not-mounted").exists()


def test_a_creation_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    (tmp_path / "uploads.sqlite").touch()
    (tmp_path / "uploads.new").write_bytes(b"half a")
    upload(tmp_path, (X, Y, None))
    assert refused(tmp_path, (X[1:], Y[1:], None))


def test_of_uploads_at_the_same_time_only_one_leaves(tmp_path: Path) -> None:
    def leaves(k: int) -> bool:
        keep = np.arange(30) != k
        return not refused(tmp_path, (X[keep], Y[keep], None))

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(leaves, range(8))) == 1
    assert sent(tmp_path) == [29]


def test_a_history_without_rows(tmp_path: Path) -> None:
    UploadHistory(tmp_path).admit([], K)
    assert sent(tmp_path) == [0]
