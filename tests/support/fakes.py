"""A grid that hands messages straight to client apps, with faults on demand."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from flwr.supercore.task_identity import TaskIdentity

from fedridge_flwr.flower import table_client

Handler = Callable[[Message], Message]


def set_task_identity() -> None:
    """Outside a runtime, Flower's messages need to be told who sends them."""
    TaskIdentity.run_id = 1
    TaskIdentity.task_id = 1
    TaskIdentity.node_id = 1


def node_context(partition: int, n_partitions: int, **run_config: object) -> Context:
    return Context(
        run_id=1,
        node_id=1000 + partition,
        node_config={"partition-id": partition, "num-partitions": n_partitions},
        state=RecordDict(),
        run_config=dict(run_config),
        series_id=1,
    )


def drive(strategy: Any, grid: InProcessGrid, num_rounds: int = 1) -> None:
    """Run a strategy of the older API with Flower's own driver."""
    app = ServerApp(
        server_fn=lambda context: ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=num_rounds)
        )
    )
    app(grid, node_context(0, len(grid.handlers)))


def fit(strategy: Any, grid: InProcessGrid, num_rounds: int = 1) -> Any:
    """Fit with a strategy of either API, and return it."""
    if isinstance(strategy, Strategy):
        strategy.start(grid, timeout=120)
    else:
        drive(strategy, grid, num_rounds)
    return strategy


class InProcessGrid(Grid):
    """Nodes 1000, 1001, ... answer at once, late, twice, wrongly or not at all.

    Parameters
    ----------
    handlers : list of callables
        One per node, from request to answer; an exception becomes an error reply.
    late : dict of int to float
        Seconds after which the answer of a node is there.
    visible : callable
        From the number of looks at the grid so far to the number of nodes shown.
    """

    def __init__(
        self,
        handlers: list[Handler],
        late: dict[int, float] | None = None,
        visible: Callable[[int], int] | None = None,
    ) -> None:
        set_task_identity()
        self.handlers = {1000 + k: handler for k, handler in enumerate(handlers)}
        self.late = {1000 + k: seconds for k, seconds in (late or {}).items()}
        self.visible = visible
        self.looks = 0
        self.sent: list[Message] = []
        self.largest_pull = 0
        self._ready: dict[str, tuple[float, Message]] = {}

    @classmethod
    def of_app(
        cls,
        app: ClientApp,
        n_nodes: int,
        run_config: Mapping[str, object] | None = None,
        **faults: object,
    ) -> InProcessGrid:
        def node(k: int) -> Handler:
            # With its state, as long as the run.
            context = node_context(k, n_nodes, **(run_config or {}))
            return lambda message: app(message, context)

        return cls([node(k) for k in range(n_nodes)], **faults)  # type: ignore[arg-type]

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> object:  # type: ignore[override]
        return SimpleNamespace(run_id=1)

    def create_message(self, *args: object, **kwargs: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        self.looks += 1
        shown = len(self.handlers) if self.visible is None else self.visible(self.looks)
        return list(self.handlers)[:shown]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self.sent.append(message)
            ids.append(message.metadata.message_id)
            node = message.metadata.dst_node_id
            try:
                reply = self.handlers[node](message)
            except Exception as error:
                reply = Message(Error(code=2, reason=repr(error)), reply_to=message)
            when = time.monotonic() + self.late.get(node, 0.0)
            self._ready[message.metadata.message_id] = (when, reply)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        now = time.monotonic()
        found = [
            i for i in message_ids if i in self._ready and self._ready[i][0] <= now
        ]
        self.largest_pull = max(self.largest_pull, len(found))
        return [self._ready.pop(i)[1] for i in found]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        ids = list(self.push_messages(messages))
        deadline = time.monotonic() + (timeout or 60.0)
        replies: list[Message] = []
        while len(replies) < len(ids) and time.monotonic() < deadline:
            replies += self.pull_messages(ids)
            time.sleep(0.01)
        return replies


def run_app(
    server: ServerApp,
    client: ClientApp,
    n_nodes: int,
    run_config: Mapping[str, object],
    *,
    as_bytes: bool = False,
) -> None:
    """Run a whole app in this process, as ``flwr run`` with a run-config would.

    With `as_bytes` every request and every answer is serialised on its way.
    """
    grid = InProcessGrid.of_app(client, n_nodes, run_config)
    if as_bytes:
        grid.handlers = {n: _behind_a_wire(h) for n, h in grid.handlers.items()}
    with mock.patch.object(table_client, "runs_in_ray", return_value=True):
        server(grid, node_context(0, n_nodes, **run_config))


def _behind_a_wire(handler: Handler) -> Handler:
    return lambda message: _received(handler(_received(message)))


def _received(message: Message) -> Message:
    sent = message_to_proto(message).SerializeToString()
    return message_from_proto(ProtoMessage.FromString(sent))
