"""Bugs planted in the protocol on purpose: for each of them a test of it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import attack_flower_masks
import numpy as np
import pytest
import test_secure_hostile as hostile
import test_secure_masks as masked
import test_secure_sum as sums

from fedridge_flwr.federation import secure_fit, secure_respond
from fedridge_flwr.federation.requests import Answer
from fedridge_flwr.federation.secure_sum import client_steps, keys, masks, server_steps
from fedridge_flwr.federation.secure_sum.terms import Terms

# Tests through Flower are in a folder of their own.
sys.path.append(str(Path(__file__).parents[1] / "flower"))
requests: Any = import_module("test_secure_requests")

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _reused_nonce(patch: Patch) -> None:
    """Both directions of a pair have one key, and the nonce is constant."""

    def box_key(state: Any, private: Any, sender: int, receiver: int) -> bytes:
        other = receiver if sender == state.place else sender
        public = state.neighbour(other).box
        return keys.agree(private, public, b"box" + state.agreed.context)

    patch.setattr(client_steps, "_box_key", box_key)


def _both_secrets(patch: Patch) -> None:
    patch.setattr(client_steps, "_check_flags", _nothing)


def _answered_twice(patch: Patch) -> None:
    patch.setattr(client_steps.ClientState, "expect", _nothing)


def _threshold_one(patch: Patch) -> None:
    patch.setattr(Terms, "check", _nothing)


def _unchecked_schema(patch: Patch) -> None:
    for module in (secure_fit, secure_respond):
        patch.setattr(module, "subject_of", lambda *given: bytes(32))


def _second_sum(patch: Patch) -> None:
    honest = client_steps.advertise
    patch.setattr(
        client_steps, "advertise", lambda before, *given: honest(None, *given)
    )


def _no_roster(patch: Patch) -> None:
    patch.setattr(client_steps, "_check_roster", _nothing)


def _signature_of_any_session(patch: Patch) -> None:
    kind = keys.PublicKeys
    check, sign = kind.is_signed_for, kind.signed
    patch.setattr(kind, "is_signed_for", lambda self, session: check(self, b""))
    patch.setattr(kind, "signed", lambda self, key, session: sign(self, key, b""))


def _any_number_of_clients(patch: Patch) -> None:
    patch.setattr(client_steps, "_check_number", _nothing)


def _plain_answers(patch: Patch) -> None:
    patch.setattr(secure_respond.SecureGuard, "check_request", _nothing)


def _mersenne_twister(patch: Patch) -> None:
    def twister(key: bytes, shape: tuple[int, int]) -> Any:
        numbers = attack_flower_masks.flower_mask(key, shape[0] * shape[1])
        return numbers.astype(np.uint64).reshape(shape)

    patch.setattr(masks, "stream", twister)


def _any_share(patch: Patch) -> None:
    """The server takes shares that are not those that were dealt."""
    patch.setattr(server_steps, "TAG", 0)
    patch.setattr(server_steps, "tag", lambda share, context: b"")


def _count_in_clear(patch: Patch) -> None:
    honest = secure_respond._ANSWERS["secure-masked"]

    def telling(request: Any, load: Any, guards: Any, guard: Any) -> Any:
        state, answer = honest(request, load, guards, guard)
        rows = len(load()[0])
        return state, Answer(answer.kind, answer.arrays, rows, answer.schema)

    patch.setitem(secure_respond._ANSWERS, "secure-masked", telling)


def _masks_of_any_terms(patch: Patch) -> None:
    patch.setattr(Terms, "context", bytes(32))


def _keys_of_low_order(patch: Patch) -> None:
    honest = keys.agree

    def lenient(private: Any, public: bytes, purpose: bytes) -> bytes:
        return bytes(32) if not any(public) else honest(private, public, purpose)

    patch.setattr(client_steps, "agree", lenient)
    patch.setattr(keys, "agree", lenient)


def _unopened_boxes(patch: Patch) -> None:
    """A box that cannot be opened is taken for two shares of zero."""
    patch.setattr(client_steps, "_opened", lambda *given: bytes(client_steps.SHARES))


OVERLAP = (b"\1\1\1\1\2", "each of 5 neighbours")
FOUND_BY: dict[str, tuple[Plant, Callable[[], object]]] = {
    "reused nonce": (_reused_nonce, hostile.test_a_key_encrypts_one_box),
    "both secrets revealed": (
        _both_secrets,
        lambda: hostile.test_lists_that_overlap_are_incomplete_or_too_short(*OVERLAP),
    ),
    "every step answered twice": (
        _answered_twice,
        hostile.test_every_step_is_answered_once,
    ),
    "threshold 1": (
        _threshold_one,
        lambda: hostile.test_terms_under_which_somebody_could_be_told_apart(
            {"threshold": 1}, "not more than half"
        ),
    ),
    "unchecked schema": (
        _unchecked_schema,
        requests.test_other_columns_than_agreed_on_are_not_masked,
    ),
    "a second sum": (_second_sum, hostile.test_after_a_sum_there_is_no_second_one),
    "no roster": (
        _no_roster,
        hostile.test_keys_that_the_server_swapped_are_refused_with_a_roster,
    ),
    "signatures of any session": (
        _signature_of_any_session,
        hostile.test_a_signature_is_of_one_session,
    ),
    "any number of clients at unmask": (
        _any_number_of_clients,
        hostile.test_the_least_number_counts_at_unmask,
    ),
    "plain answers after secure ones": (
        _plain_answers,
        requests.test_no_evaluation_and_no_losses_either,
    ),
    "masks of a Mersenne Twister": (
        _mersenne_twister,
        masked.test_low_bits_obey_no_linear_law,
    ),
    "any share": (_any_share, sums.test_a_wrong_share_is_left_out_and_spoils_nothing),
    "the number of rows in clear": (
        _count_in_clear,
        requests.test_nothing_but_masks_depends_on_the_rows,
    ),
    "masks of any terms": (
        _masks_of_any_terms,
        hostile.test_terms_told_to_some_clients_only_give_noise,
    ),
    "keys of low order": (
        _keys_of_low_order,
        hostile.test_a_key_with_which_all_secrets_agree_alike_is_refused,
    ),
    "boxes that cannot be opened": (
        _unopened_boxes,
        hostile.test_no_box_is_for_anybody_else,
    ),
}


@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, test = FOUND_BY[bug]
    test()
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
