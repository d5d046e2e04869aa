"""The low parts of means: two bytes each, to 2^-16 of the last digit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr.statistics.encoding import pack_low, unpack_low

MEANS = st.floats(-1e150, 1e150, allow_subnormal=True)


@given(mean=MEANS, share=st.floats(-0.5, 0.5))
def test_packing_keeps_sixteen_bits_more(mean: float, share: float) -> None:
    means = np.array([mean])
    last = np.spacing(np.abs(means))
    low = share * last
    packed = pack_low(means, low)
    assert len(packed) == 2
    assert np.abs(unpack_low(packed, means) - low)[0] <= 2.0**-16 * last[0] + 5e-324


def test_means_without_a_low_part_have_none() -> None:
    means = np.array([1e6, 0.0, -3.0])
    assert not unpack_low(pack_low(means, None), means).any()
    assert not unpack_low(pack_low(means, np.zeros(3)), means).any()
