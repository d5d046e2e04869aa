"""Masks: no short seed, no linear law; the same tests fail on Flower's own masks."""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pytest
from attack_flower_masks import (
    DEGREE,
    Recurrence,
    flower_mask,
    our_mask,
    recovered,
    shortest_recurrence,
)
from scipy.stats import chi2

from fedridge_flwr.federation.secure_sum.keys import new_secret, private_key, public_key
from fedridge_flwr.federation.secure_sum.masks import own_mask, pair_mask, stream

BITS = 44_000
CONTEXT = bytes(32)


@lru_cache(maxsize=1)
def law_of_flower() -> Recurrence:
    return shortest_recurrence((flower_mask(bytes(32), BITS) & 1).tolist())


def test_low_bits_obey_no_linear_law() -> None:
    mask = own_mask(new_secret(), CONTEXT, (BITS // 2, 2))
    low = (mask.reshape(-1) & np.uint64(1)).tolist()
    assert shortest_recurrence(low).degree > 21_000


def test_those_of_flower_do() -> None:
    assert law_of_flower().degree == DEGREE < 21_000


def test_the_attack_reads_flowers_low_bits_and_not_ours() -> None:
    hidden = np.random.default_rng(0).integers(0, 2**20, size=5_000)
    assert recovered(flower_mask, law_of_flower(), hidden) == 1.0
    part = recovered(our_mask, law_of_flower(), hidden)
    assert abs(part - 0.5) < 6 * 0.5 / np.sqrt(hidden.size)


def test_seeds_with_the_same_fold_have_other_masks() -> None:
    """Flower folds a seed to 32 bits by XOR; here every bit of it counts."""
    seed = os.urandom(32)
    twin = seed[4:] + seed[:4]
    assert np.array_equal(flower_mask(seed, 50), flower_mask(twin, 50))
    assert not (stream(seed, (50, 3)) == stream(twin, (50, 3))).any()


def test_every_bit_of_a_secret_counts() -> None:
    secret = bytes(16)
    first = own_mask(secret, CONTEXT, (20, 3))
    for bit in range(128):
        changed = bytearray(secret)
        changed[bit // 8] ^= 1 << bit % 8
        assert not (own_mask(bytes(changed), CONTEXT, (20, 3)) == first).any()


def test_masks_of_one_secret_differ_by_purpose_and_session() -> None:
    secret, other = new_secret(), public_key(new_secret())
    private = private_key(secret)
    masks = [
        own_mask(secret, CONTEXT, (30, 3)),
        own_mask(secret, b"\1" * 32, (30, 3)),
        pair_mask(private, other, CONTEXT, (30, 3)),
        pair_mask(private, other, b"\1" * 32, (30, 3)),
        pair_mask(private, public_key(new_secret()), CONTEXT, (30, 3)),
    ]
    for k, one in enumerate(masks):
        assert not any((one == another).any() for another in masks[:k])


def test_a_longer_mask_goes_on_where_a_shorter_one_ends() -> None:
    key = os.urandom(32)
    assert (stream(key, (30, 3))[:10] == stream(key, (10, 3))).all()


@pytest.mark.parametrize("place", range(8))
def test_bytes_are_uniform(place: int) -> None:
    seen = stream(bytes(32), (8_000, 3)).view(np.uint8)[:, place::8].reshape(-1)
    counts = np.bincount(seen, minlength=256)
    expected = seen.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2(255).isf(1e-9)
