"""Messages on their way: waiting for nodes, asking them, counting the bytes."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from .._checks import check_fraction
from ..errors import FedRidgeError, NotEnoughClientsError
from ..federation.requests import Request
from .error_text import tidy_reason
from .protocol.answer_records import form_of
from .protocol.request_records import FORMS, request_content, request_parts

log = logging.getLogger("flwr")
_Node = TypeVar("_Node")

_NODES_POLL = 0.1
_ANSWERS_POLL = 0.02
_SETTLE = 3.0
_PROGRESS_EVERY = 5.0
_FIRST_PULL = 8
_PULLED_AT_ONCE = 100
_PULLED_BYTES = 16 << 20
_HELD_BYTES = 16 << 20
_PATIENCE = 4.0
_WAIT_OR_ASK_FEWER = (
    "wait longer (timeout), or ask for fewer (min_available_nodes; also "
    "min_train_nodes and the min_clients of SecureSum, if they are larger)"
)
_LONGEST_PAUSE = 5.0


def wait_for_nodes(
    look: Callable[[], Iterable[_Node]],
    minimum: int | None,
    timeout: float,
    *,
    at_least: int = 1,
    settle: float = _SETTLE,
    remedy: str = _WAIT_OR_ASK_FEWER,
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
    at_least : int
        How many there must be where their number has to be stable.
    settle : float
        Seconds for which the number must not change when there is no minimum.
    remedy : str
        What the error recommends beside starting more.

    Returns
    -------
    list
        The nodes of the look that was good enough; another look may show fewer.

    Raises
    ------
    NotEnoughClientsError
        If the time is over with fewer nodes than `minimum`, or than `at_least`.
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
        enough = minimum is None and number >= at_least
        if enough and now - since >= settle:
            return nodes
        if now - began >= timeout:
            if enough:
                return nodes
            raise NotEnoughClientsError(
                f"{number} of {minimum or at_least} SuperNode(s) connected within "
                f"{timeout:g} s. Start more, {remedy}."
            )
        if now - told >= _PROGRESS_EVERY:
            told = now
            log.info(
                "Waiting for nodes to connect: %d connected (minimum: %s).",
                number,
                f"{at_least}, and a stable number" if minimum is None else minimum,
            )
        sleep(min(_NODES_POLL, max(timeout - (now - began), 0.001)))


def messages_to(
    requests: Mapping[str, Request],
    config: Mapping[str, Any],
    kind: str,
    forms: Mapping[str, str] | None = None,
) -> list[Message]:
    """Return one message per node; equal requests share their content.

    A node is asked in the form that it reads, or in both while that is not known.
    """
    older = "evaluateins" if kind == MessageType.EVALUATE else "fitins"
    contents: dict[tuple[int, str], RecordDict] = {}
    messages = []
    for node, request in requests.items():
        form = (forms or {}).get(node, FORMS[0])
        key = (id(request), form)
        if key not in contents:
            fields, arrays = request_parts(request)
            contents[key] = request_content({**config, **fields}, arrays, form, older)
        message = Message(contents[key], dst_node_id=int(node), message_type=kind)
        messages.append(message)
    return messages


def ask(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    what: str,
    before_pause: Callable[[], None] = lambda: None,
) -> Iterator[Message]:
    """Send messages and yield the answers as they come, until `timeout`.

    They are handed on once there are some megabytes of them, or all, or no more come
    for the moment: to read each as it arrives would take the interpreter from the
    simulator, which shares it, while clients wait. Progress is logged, and
    `before_pause` is called before each wait.

    The pause between two looks is four times as long as the last one looked in vain,
    up to a few seconds: among thousands of clients one look costs as long as several of
    them need to answer. It is short otherwise: the simulator searches all messages that
    nobody has taken, again and again.
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
        in_vain, waiting, missing = 0.0, list(pending), len(pending)
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
        if len(pending) == missing:
            # Whoever is late may take hours: a crash meanwhile must not lose these.
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
                "%s: %d of %d answers after %g s, continuing without the rest",
                what,
                done,
                total,
                timeout,
            )
            yield from _handed_on(held)
            return
        before_pause()
        pause = min(max(_ANSWERS_POLL, _PATIENCE * in_vain), _LONGEST_PAUSE)
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


@dataclass(frozen=True)
class Reply:
    """One client's reply, whatever carried it: content, or the reason for having none.

    A client that `crashed` raised an error of its own instead of answering with it.
    """

    client: str
    content: RecordDict | None = None
    error: str = ""
    crashed: bool = False
    size: int = 0
    name: object = None


class NodeNames:
    """Which node an answer belongs to.

    Errors about dead nodes come with the SuperLink as their source, so answers are
    matched by the request they reply to. Requests get their ids when they are sent.
    What replies to another request, of an earlier round or run, or to that of another
    node, is no answer.
    """

    def __init__(self, asked: Sequence[Message]) -> None:
        self._asked = asked
        self.all = {str(message.metadata.dst_node_id): None for message in asked}

    @cached_property
    def _by_request(self) -> dict[str, str]:
        return {
            message.metadata.message_id: str(message.metadata.dst_node_id)
            for message in self._asked
            if message.metadata.message_id
        }

    def of(self, reply: Message) -> str | None:
        """Return the name of the node that a reply comes from, None for strangers."""
        source = str(reply.metadata.src_node_id)
        if not self.all:
            return source
        if not self._by_request:
            return source if source in self.all else None
        known = self._by_request.get(reply.metadata.reply_to_message_id)
        by_superlink = reply.has_error() and source == str(SUPERLINK_NODE_ID)
        return known if known == source or by_superlink else None


def read_replies(
    replies: Iterable[Message],
    names: NodeNames,
    sizes: "MessageSizes",
    forms: dict[str, str],
) -> Iterator[Reply]:
    """Yield replies under the names of the nodes that were asked.

    The form in which a node answers is entered into `forms`.
    """
    for reply in replies:
        size, client = sizes.of(reply), names.of(reply)
        if client is None:
            stranger = str(reply.metadata.src_node_id)
            # A node that was asked, and sent something else as well, may answer.
            if stranger not in names.all:
                yield Reply(stranger, error="was not asked", size=size)
        elif reply.has_error():
            reason = tidy_reason(reply.error.reason)
            yield Reply(client, error=reason, crashed=True, size=size)
        else:
            forms[client] = form_of(reply.content)
            yield Reply(client, reply.content, size=size)


def sample(
    nodes: Sequence[_Node], fraction: float, minimum: int, *, trains: bool = False
) -> list[_Node]:
    """Return a random part of the nodes, in their order, and at least `minimum`."""
    number = min(len(nodes), max(minimum, round(fraction * len(nodes))))
    if number < len(nodes):
        told = "Asking %d of %d connected clients, chosen at random (fraction %g)."
        if trains:
            told += " The rows of the others are not in the model: no round asks them."
        log.warning(told, number, len(nodes), fraction)
    chosen = random.SystemRandom().sample(range(len(nodes)), number)
    return [nodes[k] for k in sorted(chosen)]


def check_share(name: str, value: float, *, strict: bool = False) -> float:
    """Return a fraction of the nodes; of those that train it must be above 0.

    If everybody must be in the model, everybody must be asked.
    """
    share = check_fraction(name, value)
    if strict and share < 1.0:
        raise FedRidgeError(
            f"strict=True wants the rows of all clients, and {name}={share:g} asks "
            f"only some of them: leave {name} out, or strict."
        )
    if share == 0.0 and name != "fraction_evaluate":
        raise FedRidgeError(
            f"{name} must be above 0: at least one client has to answer."
        )
    return share


def no_grid(given: object) -> TypeError:
    """Return the error about what was given as the grid."""
    return TypeError(
        "grid must be the Grid that the main function of a ServerApp receives first, "
        f"as in def main(grid, context), got {type(given).__name__}."
    )


def message_bytes(message: Message) -> int:
    """Return the size of a message as serialized for the wire."""
    return int(message_to_proto(message).ByteSize())


def array_lengths(message: Message) -> list[int]:
    """Return the bytes of every array in a message that is no error."""
    return [
        len(array.data)
        for record in message.content.values()
        if isinstance(record, ArrayRecord)
        for array in record.values()
    ]


def fedavg_round_bytes(arrays: ArrayRecord) -> int:
    """Return what one round of FedAvg on this model costs one client, both ways."""
    down = Message(
        RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})}),
        dst_node_id=2**62,
        message_type=MessageType.TRAIN,
    )
    metrics = MetricRecord({"num-examples": 1000})
    up = Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=down)
    return message_bytes(down) + message_bytes(up)


class MessageSizes:
    """Sizes of messages, measured once for all messages with arrays of equal size.

    Serializing costs 9 ms at 500 features; answers of one round differ only in a
    few bytes of ids and counts.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}

    def of(self, message: Message) -> int:
        """Return the size of one message."""
        if message.has_error():
            return message_bytes(message)
        lengths = array_lengths(message)
        if not any(lengths):
            return message_bytes(message)
        key = (message.metadata.message_type, *message.content.keys(), *lengths)
        if key not in self._known:
            self._known[key] = message_bytes(message)
        return self._known[key]

    def of_all(self, messages: Iterable[Message]) -> int:
        """Return the size of several messages together.

        One content for all of them, as in a broadcast, is measured once.
        """
        total, known = 0, {}
        for message in messages:
            if message.has_error():
                total += self.of(message)
                continue
            key = id(message.content)
            if key not in known:
                known[key] = self.of(message)
            total += known[key]
        return total


class CountingGrid(Grid):
    """A grid that counts the bytes of everything sent and received through it.

    Any strategy runs on it unmodified.

    Parameters
    ----------
    grid : Grid
        The grid that does the work.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._sizes = MessageSizes()
        self.bytes_up = 0
        self.bytes_down = 0

    def set_run(self, run: Run) -> None:
        """Pass on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Pass on."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Pass on."""
        return self._grid.create_message(
            content, message_type, dst_node_id, group_id, ttl
        )

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Pass on."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Count and pass on."""
        messages = list(messages)
        pushed = self._grid.push_messages(messages)
        # Messages have their ids, which count as well, only after the push.
        self.bytes_down += self._sizes.of_all(messages)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on and count."""
        return self._counted(self._grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Count, pass on and count."""
        messages = list(messages)
        replies = self._grid.send_and_receive(messages, timeout=timeout)
        self.bytes_down += self._sizes.of_all(messages)
        return self._counted(replies)

    def _counted(self, replies: Iterable[Message]) -> list[Message]:
        received = list(replies)
        self.bytes_up += self._sizes.of_all(received)
        return received
