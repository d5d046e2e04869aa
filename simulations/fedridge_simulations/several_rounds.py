"""`FedRidge` in several rounds, which shows where it is after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedridge_flwr import FedRidge

from .problem import Array

__all__ = ["WatchedFedRidge"]


class WatchedFedRidge(FedRidge):
    """FedRidge as it is; `watch` is called with the coefficients of every round.

    Nobody but a figure has a use for them: only the last ones are a result.
    """

    def __init__(self, watch: Callable[[Array], object], **settings: Any) -> None:
        super().__init__(**settings)
        self._watch = watch

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the answers, and show the coefficients."""
        found = super().aggregate_train(server_round, replies)
        run = self._run
        if run.model is not None:
            self._watch(np.asarray(run.model.coef_))
        elif run.round is not None and run.round.solution is not None:
            self._watch(run.round.solution[:, 0])
        return found
