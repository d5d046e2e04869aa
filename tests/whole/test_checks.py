"""The validators of single values: what each takes, returns and says."""

from __future__ import annotations

import numpy as np
import pytest

from fedridge_flwr import _checks as checks
from fedridge_flwr.errors import FedRidgeError, PrivacyError

# pytest cannot print it as the name of a case.
HUGE = pytest.param(10**5000, id="huge")


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_whole_numbers_become_ints(value):
    found = checks.check_whole("rounds", value, 1, 3)
    assert type(found) is int
    assert found == 3


@pytest.mark.parametrize("value", [0, 4, 1.0, "3", None, True, np.True_, HUGE])
def test_other_than_whole_numbers_within_limits_are_refused(value):
    with pytest.raises(FedRidgeError, match="must be a whole number from 1 to 3"):
        checks.check_whole("rounds", value, 1, 3)


def test_without_a_largest_the_error_names_the_smallest_alone():
    assert checks.check_whole("rounds", 10**30) == 10**30
    with pytest.raises(FedRidgeError, match="a whole number of at least 1, got 0"):
        checks.check_whole("rounds", 0)


@pytest.mark.parametrize("value", [0, 0.5, 1, np.float32(0.5), np.int64(1)])
def test_fractions_are_numbers_from_0_to_1(value):
    assert type(checks.check_fraction("share", value)) is float


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, "0.5", None, True])
def test_other_than_fractions_are_refused(value):
    with pytest.raises(FedRidgeError, match="share must be between 0 and 1, got"):
        checks.check_fraction("share", value)


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, 10**400, "1", True])
def test_other_than_positive_numbers_are_refused(value):
    with pytest.raises(FedRidgeError, match='above zero or "scale", got'):
        checks.check_positive("gamma", value, ' or "scale"')


@pytest.mark.parametrize("value", ["d", None, 3, ["a"], b"a"])
def test_a_choice_names_all_that_are_allowed(value):
    assert checks.check_choice("mode", "b", ("a", "b", "c")) == "b"
    with pytest.raises(FedRidgeError, match='mode must be "a", "b" or "c", got'):
        checks.check_choice("mode", value, ("a", "b", "c"))


@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_only_bools_are_flags(value):
    assert checks.check_flag("bias", np.True_) is True
    with pytest.raises(FedRidgeError, match="bias must be true or false, got"):
        checks.check_flag("bias", value)


def test_the_caller_chooses_the_class_of_the_error():
    with pytest.raises(PrivacyError, match="rounds must be"):
        checks.check_whole("rounds", 0, error=PrivacyError)


def test_long_values_are_cut_in_errors():
    with pytest.raises(FedRidgeError) as caught:
        checks.check_choice("mode", "x" * 10**6, ("a",))
    assert len(str(caught.value)) < 120
