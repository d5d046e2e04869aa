"""Bugs planted in the protocol on purpose: for each of them a test of it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attack_flower_masks
import lying_server
import numpy as np
import pytest
import test_secure_hostile as hostile
import test_secure_lies as lies
import test_secure_masks as masked
import test_secure_review as review
import test_secure_rounds as rounds
import test_secure_sum as sums

from fedridge_flwr import ProtocolError
from fedridge_flwr.data.names import Columns, Names
from fedridge_flwr.federation.answering import secure_respond
from fedridge_flwr.federation.fits import secure_fit
from fedridge_flwr.federation.requests import Answer
from fedridge_flwr.federation.secure_sum import client_steps, keys, masks, server_steps
from fedridge_flwr.federation.secure_sum.terms import Terms
from fedridge_flwr.flower import secure_memory
from fedridge_flwr.statistics.integer_sums import DEFAULT_GRID

# Tests through Flower are in a folder of their own.
sys.path.append(str(Path(__file__).parents[1] / "flower"))
requests: Any = import_module("test_secure_requests")

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _reused_nonce(patch: Patch) -> None:
    """Both directions of a pair have one key, and the nonce is constant."""

    def pair_key(
        state: Any, private: Any, sender: int, receiver: int, purpose: bytes
    ) -> bytes:
        other = receiver if sender == state.place else sender
        public = state.neighbour(other).box
        return keys.agree(private, public, purpose + state.agreed.context)

    patch.setattr(client_steps, "_pair_key", pair_key)


def _any_list(patch: Patch) -> None:
    patch.setattr(client_steps, "_check_flags", _nothing)


def _any_confirmation(patch: Patch) -> None:
    """Each client believes the list that it alone was told: both secrets come out."""
    patch.setattr(client_steps.hmac, "compare_digest", lambda one, other: True)


def _confirmed_whatever_the_list(patch: Patch) -> None:
    patch.setattr(client_steps, "_lists_hash", lambda present, delivered: bytes(32))


def _boxes_not_confirmed(patch: Patch) -> None:
    patch.setattr(client_steps, "_lists_hash", lambda present, delivered: delivered)


def _any_neighbours(patch: Patch) -> None:
    """The place of a client is looked up, and not whether it follows from the keys."""

    def find(state: Any, terms: Any, neighbours: Any, others: Any) -> int:
        own, near = client_steps._own_keys(state), [n.fingerprint for n in neighbours]
        ring: list[bytes] = client_steps.in_order([*near, *others])[1]
        return ring.index(own.fingerprint)

    patch.setattr(client_steps, "_find", find)


def _any_number_of_sums(patch: Patch) -> None:
    patch.setattr(client_steps, "MOST_SUMS", 10**9)


def _no_markers(patch: Patch) -> None:
    patch.setattr(secure_memory, "mark_step", _nothing)


def _refusals_cost_nothing(patch: Patch) -> None:
    """What is remembered before a step is what was remembered before."""
    honest = secure_respond.enter

    def lenient(before: Any, stage: int, session: bytes, *place: Any) -> Any:
        entered = honest(before, stage, session, *place)
        return entered if before is None or stage == 1 else before

    patch.setattr(secure_respond, "enter", lenient)


def _answered_twice(patch: Patch) -> None:
    patch.setattr(client_steps.ClientState, "expect", _nothing)


def _threshold_one(patch: Patch) -> None:
    patch.setattr(Terms, "check", _nothing)


def _unchecked_schema(patch: Patch) -> None:
    for module in (secure_fit, secure_respond):
        patch.setattr(module, "subject_of", lambda *given: bytes(32))


def _second_sum(patch: Patch) -> None:
    honest = client_steps.enter

    def forgetful(before: Any, stage: int, session: bytes) -> Any:
        return honest(None if stage == 1 else before, stage, session)

    patch.setattr(client_steps, "enter", forgetful)


def _no_roster(patch: Patch) -> None:
    patch.setattr(client_steps, "_check_roster", _nothing)


def _signature_of_any_session(patch: Patch) -> None:
    kind = keys.PublicKeys
    check, sign = kind.is_signed_for, kind.signed
    patch.setattr(kind, "is_signed_for", lambda self, session: check(self, b""))
    patch.setattr(kind, "signed", lambda self, key, session: sign(self, key, b""))


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

    def telling(request: Any, load: Any, *rest: Any) -> Any:
        state, answer = honest(request, load, *rest)
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


def _masks_without_the_keys(patch: Patch) -> None:
    """The mask of a pair depends on the secret that both agree on, and the terms."""
    honest = masks.pair_mask

    def lenient(private: Any, public: bytes, context: bytes, shape: Any) -> Any:
        return honest(private, public, context[:32], shape)

    patch.setattr(masks, "pair_mask", lenient)


def _terms_of_any_order(patch: Patch) -> None:
    honest = secure_respond.subject_of

    def lenient(schema: Any, request: Any, grid: Any) -> bytes:
        columns = Columns(*(n and Names(n.hash) for n in request.columns or ()))
        return honest(schema, replace(request, columns=columns), grid)

    for module in (secure_fit, secure_respond):
        patch.setattr(module, "subject_of", lenient)


def _columns_moved_anywhere(patch: Patch) -> None:
    """The order is believed if the terms are about it."""

    def lenient(request: Any, schema: Any, before: Any) -> None:
        subject = secure_respond.subject_of(schema, request, DEFAULT_GRID)
        if subject != before.agreed.subject:
            raise ProtocolError("another order")

    patch.setattr(secure_respond, "_check_subject", lenient)


def _markers_of_runs_only(patch: Patch) -> None:
    honest = secure_memory.mark_step

    def lenient(folder: Path, where: str, step: str, most: int) -> None:
        if len(where) < 32:  # not the name of a sum
            honest(folder, where, step, most)

    patch.setattr(secure_memory, "mark_step", lenient)


def _any_round(patch: Patch) -> None:
    """A private fit may ask for its rounds in any order, and as often as it likes."""
    honest = secure_respond.enter

    def lenient(before: Any, stage: int, session: bytes, *place: Any) -> Any:
        if stage == 1 and before is not None and place[0]:
            taken = before.stage > client_steps.MASKED_DUE
            before = replace(before, fit=place[0], number=place[1] - taken)
        return honest(before, stage, session, *place)

    patch.setattr(secure_respond, "enter", lenient)


def _skipped_rounds(patch: Patch) -> None:
    honest = secure_respond.enter

    def lenient(before: Any, stage: int, session: bytes, *place: Any) -> Any:
        before = before or client_steps.ClientState(1, b"")
        if stage == 1 and before.number < place[1]:
            taken = before.stage > client_steps.MASKED_DUE
            before = replace(before, number=place[1] - taken, fit=place[0])
        return honest(before, stage, session, *place)

    patch.setattr(secure_respond, "enter", lenient)


def _any_fit(patch: Patch) -> None:
    honest = secure_respond._place_in_run

    def lenient(request: Any) -> tuple[str, int]:
        fit, number = honest(request)
        return fit and "any", number

    patch.setattr(secure_respond, "_place_in_run", lenient)


def _numbers_of_any_round(patch: Patch) -> None:
    """What a sum has begun with is not compared with what its numbers are of."""
    patch.setattr(secure_respond, "_check_promise", _nothing)


def _terms_of_any_question(patch: Patch) -> None:
    honest = secure_respond.subject_of

    def lenient(schema: Any, request: Any, grid: Any) -> bytes:
        return honest(schema, replace(request, release=None), grid)

    patch.setattr(secure_respond, "subject_of", lenient)
    patch.setattr(lying_server, "subject_of", lenient)


def _fewer_in_later_rounds(patch: Patch) -> None:
    honest = secure_respond.advertise

    def lenient(begun: Any, identity: Any, least: int, colluding: int) -> Any:
        first = begun.number == 1
        return honest(begun, identity, least if first else 0, colluding)

    patch.setattr(secure_respond, "advertise", lenient)


def _markers_without_the_fit(patch: Patch) -> None:
    honest = secure_memory.mark_step

    def lenient(folder: Path, where: str, step: str, most: int) -> None:
        if not where.startswith("fit-"):
            honest(folder, where, step, most)

    patch.setattr(secure_memory, "mark_step", lenient)


def _in_a_folder(test: Callable[[Path], object]) -> None:
    with TemporaryDirectory() as folder:
        test(Path(folder))


FOUND_BY: dict[str, tuple[Plant, Callable[[], object]]] = {
    "reused nonce": (_reused_nonce, hostile.test_a_key_encrypts_one_box),
    "confirmations that can be sent back": (
        _reused_nonce,
        hostile.test_a_confirmation_is_of_two_clients_and_one_direction,
    ),
    "any list of those that delivered": (
        _any_list,
        hostile.test_the_least_number_is_counted_among_all_that_delivered,
    ),
    "any confirmation, both secrets revealed": (
        _any_confirmation,
        lambda: lies.tried(60, 1),
    ),
    "a confirmation of any list": (
        _confirmed_whatever_the_list,
        lambda: lies.test_lists_that_differ_in_one_client(9, None),
    ),
    "a confirmation of half of it": (
        _boxes_not_confirmed,
        hostile.test_nor_is_another_list_of_those_that_sent_boxes,
    ),
    "any neighbours": (
        _any_neighbours,
        hostile.test_neighbours_on_a_ring_are_those_that_follow_from_all_keys,
    ),
    "any number of sums": (
        _any_number_of_sums,
        hostile.test_no_more_than_three_sums_are_begun,
    ),
    "no markers on disk": (
        _no_markers,
        lambda: _in_a_folder(
            lies.test_markers_on_disk_outlive_a_memory_that_is_put_back
        ),
    ),
    "refusals that can be asked for again": (
        _refusals_cost_nothing,
        lies.test_a_low_threshold_or_another_number_gets_no_shares,
    ),
    "every step answered twice": (
        _answered_twice,
        hostile.test_every_step_is_answered_once,
    ),
    "threshold 1": (
        _threshold_one,
        lambda: hostile.test_terms_under_which_somebody_could_be_told_apart(
            {"threshold": 1}, "at least 4"
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
    "masks without the public keys": (
        _masks_without_the_keys,
        review.test_masks_with_two_keys_that_are_the_same_do_not_cancel,
    ),
    "terms of any order of the columns": (
        _terms_of_any_order,
        requests.test_the_terms_are_about_the_order_of_the_columns,
    ),
    "the same keys shared again": (
        _markers_of_runs_only,
        lambda: _in_a_folder(review.test_the_same_keys_are_shared_once),
    ),
    "markers of runs only": (
        _markers_of_runs_only,
        lambda: _in_a_folder(review.test_two_runs_with_one_memory_are_not_two_sums),
    ),
    "a round answered twice": (
        _any_round,
        lambda: rounds.test_a_round_is_not_repeated(0.5),
    ),
    "rounds in any order": (_skipped_rounds, rounds.test_no_round_is_skipped),
    "another fit in a later round": (
        _any_fit,
        lambda: rounds.test_all_rounds_are_of_one_fit({"min_clients": 3}),
    ),
    "exact numbers in a private round": (
        _numbers_of_any_round,
        lambda: rounds.test_the_numbers_are_of_the_round_that_began(None),
    ),
    "coefficients that are not those of the terms": (
        _terms_of_any_question,
        rounds.test_coefficients_are_those_of_the_terms,
    ),
    "other coefficients for one client": (
        _terms_of_any_question,
        rounds.test_all_clients_are_asked_about_the_same_coefficients,
    ),
    "fewer clients in later rounds": (
        _fewer_in_later_rounds,
        rounds.test_enough_clients_must_be_in_the_sum_of_every_round,
    ),
    "a round answered again in another run": (
        _markers_without_the_fit,
        lambda: _in_a_folder(
            lambda folder: rounds.test_a_place_on_disk_remembers_the_rounds_of_all_runs(
                7, folder
            )
        ),
    ),
    "columns moved anywhere": (
        _columns_moved_anywhere,
        requests.test_an_order_that_does_not_give_the_hash_is_refused,
    ),
}


@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, test = FOUND_BY[bug]
    test()
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
