"""Cases of single answers: spoilt, sent as bytes, read, and held against the oracle."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import wire
from fakes import set_task_identity
from fits import begin, finish
from flwr.app import Message, MessageType, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.compat.common.recorddict_compat import recorddict_to_fitres
from fuzz_attacks import Attack, attacks_on
from fuzz_drafts import FIXED, HONEST, Draft, Rng
from fuzz_oracle import against
from fuzz_run import UNSENT, Case, Trial, WrongAcceptError

from fedridge_flwr import FedRidgeError, FixedPointStatistics, SufficientStatistics
from fedridge_flwr.flower.protocol.array_records import decode_array
from fedridge_flwr.multiround.product_checks import check_product


class StoppedError(Exception):
    """Flower itself does not hand this answer to the strategy."""


def arrived(content: RecordDict) -> RecordDict | None:
    """Return a record as it comes out of the wire; None if it cannot be sent."""
    set_task_identity()
    try:
        message = Message(content, dst_node_id=7, message_type=MessageType.TRAIN)
        return message_from_proto(message_to_proto(message)).content
    except (TypeError, ValueError, AttributeError, IndexError, KeyError):
        return None


def read(draft: Draft, content: RecordDict) -> Any:
    """Read an answer as the strategies do; raise whatever they would catch."""
    if draft.kind == "evaluation":
        return wire.read_evaluation_reply(content)
    if draft.kind == "losses":
        wire.raise_refusal(content)
        return wire.read_losses(content, draft.question)
    asked, feature_map = draft.question, draft.feature_map
    found = wire.read_answer(content, asked, feature_map)
    if draft.kind == "product" and isinstance(found, np.ndarray):
        return check_product(draft.opening, asked.vectors, found)
    return found


def read_as_legacy(draft: Draft, content: RecordDict) -> Any:
    """Read it as the older strategy does, out of a FitRes."""
    try:
        result = recorddict_to_fitres(content, keep_input=True)
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        raise StoppedError from None
    if draft.status.get("code"):
        raise StoppedError  # Flower's driver takes it for a failure
    arrays = [decode_array(tensor) for tensor in result.parameters.tensors]
    found = wire.read_fields(
        result.metrics, arrays, result.num_examples, draft.question, draft.feature_map
    )
    if draft.kind == "product" and isinstance(found, np.ndarray):
        return check_product(draft.opening, draft.question.vectors, found)
    return found


def trial_of(kind: str, name: str, attack: Attack) -> Trial:
    def trial(rng: Rng) -> str | None:
        try:
            draft = (HONEST | FIXED)[kind](rng)
        except FedRidgeError as error:
            raise WrongAcceptError(f"no honest answer to spoil: {error}") from None
        attack(rng, draft)
        try:
            content = arrived(draft.records())
        except (TypeError, ValueError, IndexError):
            content = None
        if content is None and name == "nothing":
            raise WrongAcceptError("an honest answer cannot be sent")
        if content is None:
            return UNSENT  # Flower's own records do not take it
        older = draft.legacy and not draft.evaluates and rng.random() < 0.5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = (read_as_legacy if older else read)(draft, content)
            except StoppedError:
                return UNSENT
            except FedRidgeError as error:
                if name == "nothing":
                    raise WrongAcceptError(
                        f"an honest answer is refused: {error}"
                    ) from None
                raise
            reason = against(draft.kind, found, draft)
            if reason is not None:
                raise WrongAcceptError(reason)
            if isinstance(found, SufficientStatistics):
                _use(found, wire_dtype="float32")
            if isinstance(found, FixedPointStatistics):
                _use(found, statistics="fixed")
        return None

    return trial


def _use(found: Any, **settings: str) -> None:
    """Let a fit go on with it, beside the same rows of somebody honest."""
    fit = begin(alpha=1.0, **settings)
    fit.round.into.take("a", lambda: found)
    try:
        model = finish(fit)
    except FedRidgeError:
        return
    if model is None or not np.isfinite(model.coef_).all():
        raise WrongAcceptError("coefficients that are not finite")


def reply_cases(kinds: Iterable[str] = HONEST) -> list[Case]:
    return [
        Case(kind, name, trial_of(kind, name, attack))
        for kind in kinds
        for name, attack in attacks_on(kind).items()
    ]
