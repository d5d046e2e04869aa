"""Saved statistics: they come back bit for bit; of hostile files nothing is taken."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from generators import linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st
from test_sufficient import data_sets, rows_of

from fedridge_flwr import (
    FixedPointStatistics,
    GaussianProjection,
    StatisticsError,
    SufficientStatistics,
)
from fedridge_flwr.statistics import statistics_file
from fedridge_flwr.statistics.float32 import from_compact, to_compact
from fedridge_flwr.statistics.statistics_file import from_bytes, to_bytes

CLASSES = (SufficientStatistics, FixedPointStatistics)


def assert_same(back, stats):
    """Every field of both is the same, to the last bit; no low parts are zeros."""
    assert type(back) is type(stats)
    for name, value in vars(replace(stats)).items():
        found = getattr(back, name)
        if isinstance(value, np.ndarray):
            assert found.dtype == value.dtype
            assert found.tobytes() == value.tobytes()
        elif name == "means_low":
            assert not found.any()
        else:
            assert found == value, name
    assert back.schema.feature_names == stats.schema.feature_names


@given(data=data_sets(), cut=st.sampled_from([0.0, 0.3, 1.0]))
def test_what_was_saved_comes_back_bit_for_bit(data, cut):
    first = int(cut * len(data[1]))
    whole, *parts = (
        SufficientStatistics.from_data(*rows_of(data, part))
        for part in (slice(None), slice(0, first), slice(first, None))
    )
    for stats in (whole, parts[0] + parts[1]):
        assert_same(from_bytes(to_bytes(stats)), stats)


@pytest.mark.parametrize("weighted", [False, True])
def test_whole_numbers_come_back_too(weighted):
    rng = np.random.default_rng(1)
    X, y = linear_rows(30, 3, rng)
    weight = rng.exponential(size=30) if weighted else None
    grid = {"exponents": [3, 0, -2, 5], "fraction_bits": 50, "total_bits": 256}
    for options in ({}, grid):
        stats = FixedPointStatistics.from_data(X, y, weight, **options)
        assert_same(from_bytes(to_bytes(stats)), stats)
        total = stats + stats
        assert_same(from_bytes(to_bytes(total)), total)


def test_names_maps_and_rounding_are_kept(tmp_path):
    rng = np.random.default_rng(2)
    X, y = linear_rows(30, 3, rng)
    frame = pd.DataFrame(X, columns=["sex", "äge", "bmi"])
    mapped = SufficientStatistics.from_data(
        frame, y, feature_map=GaussianProjection(2, seed=1)
    )
    named = SufficientStatistics.from_data(frame, pd.Series(y, name="y"))
    short = from_compact(*to_compact(named), named.schema, named.count)
    for stats in (mapped, named, short):
        stats.save(tmp_path / "a" / "x.stats")
        assert_same(SufficientStatistics.load(tmp_path / "a" / "x.stats"), stats)
    assert os.listdir(tmp_path / "a") == ["x.stats"]
    assert (tmp_path / "a" / "x.stats").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", CLASSES)
def test_next_month_is_what_was_saved_plus_the_new_rows(kind, tmp_path):
    X, y = linear_rows(60, 4, np.random.default_rng(3))
    kind.from_data(X[:40], y[:40]).save(tmp_path / "may.stats")
    both = kind.load(tmp_path / "may.stats") + kind.from_data(X[40:], y[40:])
    whole = kind.from_data(X, y)
    if kind is FixedPointStatistics:
        assert both == whole
    else:
        assert relative_error(both.triangle, whole.triangle) < 1e-13


def test_the_other_class_says_which_one_reads_it(tmp_path):
    stats = FixedPointStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    stats.save(tmp_path / "x")
    with pytest.raises(StatisticsError, match=r"use FixedPointStatistics\.load"):
        SufficientStatistics.load(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        SufficientStatistics.load(tmp_path / "y")
    with pytest.raises(StatisticsError, match="not a regular file"):
        SufficientStatistics.load(tmp_path)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    old = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    old.save(tmp_path / "x")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        (old + old).save(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]
    assert_same(SufficientStatistics.load(tmp_path / "x"), old)


def test_what_cannot_be_read_again_is_not_written(tmp_path):
    stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    impossible = replace(stats, triangle=np.array([1.0, 5.0, 1.0]))
    with pytest.raises(StatisticsError, match="positive semi-definite"):
        impossible.save(tmp_path / "x")
    assert os.listdir(tmp_path) == []


def samples():
    rng = np.random.default_rng(4)
    X, y = linear_rows(20, 3, rng)
    frame = pd.DataFrame(X, columns=["b", "a", "c"])
    parts = [SufficientStatistics.from_data(frame[k::2], y[k::2]) for k in (0, 1)]
    return [
        to_bytes(parts[0] + parts[1]),
        to_bytes(FixedPointStatistics.from_data(X, y)),
    ]


def spoiled(rng, data):
    """Return damaged bytes: flipped bits, cut off, continued, parts exchanged."""
    how, spoilt = rng.integers(5), bytearray(data)
    where = int(rng.integers(len(data)))
    if how <= 1:
        spoilt[where] ^= 1 << int(rng.integers(8))
    elif how == 2:
        del spoilt[where:]
    elif how == 3:
        spoilt += rng.bytes(int(rng.integers(1, 20)))
    else:
        length = int(rng.integers(1, 40))
        spoilt[where : where + length] = rng.bytes(length)
    return bytes(spoilt)


def test_damaged_files_are_refused(tmp_path):
    rng, originals = np.random.default_rng(5), samples()
    for k in range(2_000):
        broken = spoiled(rng, originals[k % 2])
        assert broken != originals[k % 2]
        with pytest.raises(ValueError, match=r"."):
            from_bytes(broken)
        if k < 100:
            (tmp_path / "x").write_bytes(broken)
            with pytest.raises(StatisticsError, match="or is damaged"):
                CLASSES[k % 2].load(tmp_path / "x")


VALUES = (
    None,
    True,
    -1,
    0,
    2,
    10**30,
    1e308,
    "x",
    "",
    [],
    {},
    [1, "x"],
    [[2]],
    "9" * 99,
)


def changed(rng, fields):
    """Put another value somewhere into a document."""
    place = fields
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = list(keys)[rng.integers(len(keys))]
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
        elif rng.random() < 0.2:
            del place[key]
            return
        else:
            place[key] = VALUES[rng.integers(len(VALUES))]
            return


def test_forged_files_are_refused_or_are_statistics_of_some_rows():
    """Whoever forges a file computes its checksum as well."""
    rng, originals = np.random.default_rng(6), samples()
    taken = 0
    for k in range(3_000):
        line, _, array = originals[k % 2].partition(b"\n")
        content = json.loads(line)
        if rng.random() < 0.7:
            changed(rng, content["statistics"])
        else:
            spoilt = bytearray(array)
            spoilt[rng.integers(len(array))] ^= 1 << int(rng.integers(8))
            array = bytes(spoilt)
        text = json.dumps(content["statistics"], sort_keys=True)
        content["sha256"] = statistics_file._checksum(text, array)
        try:
            found = from_bytes(json.dumps(content).encode() + b"\n" + array)
        except ValueError:
            continue
        taken += 1
        # What was taken is what every other reader takes as well.
        assert_same(from_bytes(to_bytes(found)), found)
        assert np.isfinite(found.scale()[1]).all()
        repr(found)
    assert 0 < taken < 1_500
