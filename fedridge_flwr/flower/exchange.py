"""Waiting for nodes, and sending requests while folding answers as they arrive."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from .._checks import check_fraction
from ..errors import FedRidgeError, NotEnoughClientsError
from .message_sizes import array_lengths

__all__ = ["ask", "check_share", "log", "sample", "wait_for_nodes"]

log = logging.getLogger("flwr")
_Node = TypeVar("_Node")

_POLL = 0.1
_SETTLE = 3.0
_PROGRESS_EVERY = 5.0
_FIRST_PULL = 8
_PULLED_AT_ONCE = 100
_PULLED_BYTES = 16 << 20
_HELD_BYTES = 16 << 20
_PATIENCE = 4.0
_LONGEST_PAUSE = 5.0


def wait_for_nodes(
    look: Callable[[], Iterable[_Node]],
    minimum: int | None,
    timeout: float,
    *,
    settle: float = _SETTLE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[_Node]:
    """Wait for `minimum` nodes, or, without it, until their number is stable.

    Nodes register one after another, and the first answers of the grid may show
    only some of them, or none. A round that happens once must not start then.

    Parameters
    ----------
    look : callable
        Returns the nodes connected now.
    minimum : int, optional
        Number of nodes to wait for.
    timeout : float
        Seconds after which waiting ends.
    settle : float
        Seconds for which the number must not change when there is no minimum.

    Returns
    -------
    list
        The nodes of the look that was good enough; another look may show fewer.

    Raises
    ------
    NotEnoughClientsError
        If the time is over with fewer nodes than `minimum`, or none at all.
    """
    began = told = since = clock()
    seen = -1
    while True:
        nodes, now = list(look()), clock()
        number = len(nodes)
        if number != seen:
            seen, since = number, now
        if minimum is not None and number >= minimum:
            return nodes
        if minimum is None and number > 0 and now - since >= settle:
            return nodes
        if now - began >= timeout:
            if minimum is None and number > 0:
                return nodes
            raise NotEnoughClientsError(
                f"{number} of {minimum or 1} SuperNode(s) connected within "
                f"{timeout:g} s. Start more, wait longer (timeout), or ask for fewer "
                "(min_available_nodes)."
            )
        if now - told >= _PROGRESS_EVERY:
            told = now
            log.info(
                "Waiting for nodes to connect: %d connected (minimum: %s).",
                number,
                "stable number" if minimum is None else minimum,
            )
        sleep(min(_POLL, max(timeout - (now - began), 0.001)))


def ask(
    grid: Grid, messages: Sequence[Message], timeout: float, what: str
) -> Iterator[Message]:
    """Send messages and yield the answers as they come, until `timeout`.

    They are handed on once there are some megabytes of them, or all: to read each as it
    arrives would take the interpreter from the simulator, which shares it, while
    clients wait. Progress is logged.

    The pause between two looks is four times as long as the last one looked in vain,
    up to a few seconds: among thousands of clients one look costs as long as several of
    them need to answer.
    """
    began = told = time.monotonic()
    # In the order they were sent, which is about the order of the answers.
    pending = dict.fromkeys(
        message_id for message_id in grid.push_messages(list(messages)) if message_id
    )
    total, sent, at_once = len(messages), len(pending), _FIRST_PULL
    held: list[Message] = []
    held_bytes = 0
    while pending:
        in_vain, waiting = 0.0, list(pending)
        while waiting and time.monotonic() - began < timeout:
            batch, waiting = waiting[:at_once], waiting[at_once:]
            asked_at = time.monotonic()
            replies = list(grid.pull_messages(batch))
            seconds = time.monotonic() - asked_at
            in_vain += seconds * max(1.0 - len(replies) / len(batch), 0.0)
            sizes = [_size(reply) for reply in replies]
            if replies:
                at_once = _how_many_fit(max(sizes))
            for reply, size in zip(replies, sizes, strict=True):
                answered = reply.metadata.reply_to_message_id
                if answered in pending:
                    del pending[answered]
                    held.append(reply)
                    held_bytes += size
            if held_bytes >= _HELD_BYTES or not pending:
                yield from _handed_on(held)
                held_bytes = 0
        now, done = time.monotonic(), sent - len(pending)
        if now - told >= _PROGRESS_EVERY or not pending:
            told = now
            log.info("%s: %d of %d answers, %.1f s", what, done, total, now - began)
        if not pending:
            return
        if now - began >= timeout:
            log.warning(
                "%s: %d of %d answers after %g s, going on without the rest",
                what,
                done,
                total,
                timeout,
            )
            yield from _handed_on(held)
            return
        pause = min(max(_POLL, _PATIENCE * in_vain), _LONGEST_PAUSE)
        time.sleep(min(pause, max(timeout - (now - began), 0.001)))


def _handed_on(held: list[Message]) -> Iterator[Message]:
    """Yield what is held, each answer forgotten before the next."""
    held.reverse()
    while held:
        yield held.pop()


def _how_many_fit(size: int) -> int:
    """Return how many answers of this size to take at once."""
    return min(max(_PULLED_BYTES // max(size, 1), _FIRST_PULL), _PULLED_AT_ONCE)


def _size(message: Message) -> int:
    return 0 if message.has_error() else sum(array_lengths(message))


def sample(nodes: Sequence[_Node], fraction: float, minimum: int) -> list[_Node]:
    """Return a random part of the nodes, in their order, and at least `minimum`."""
    number = min(len(nodes), max(minimum, round(fraction * len(nodes))))
    chosen = random.SystemRandom().sample(range(len(nodes)), number)
    return [nodes[k] for k in sorted(chosen)]


def check_share(name: str, value: float) -> float:
    """Return a fraction of the nodes; of those that train it must be above 0."""
    share = check_fraction(name, value)
    if share == 0.0 and name != "fraction_evaluate":
        raise FedRidgeError(f"{name} must be above 0: someone has to answer.")
    return share
