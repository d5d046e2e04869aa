"""One Ray simulation for all tests that need one: starting Ray takes ten seconds.

The simulation runs in a thread for as long as the test session. Its ServerApp takes
jobs from a queue; a job is a server (a ServerApp, or a function of the grid) and a
ClientApp. The ClientApp is pickled into a file, and every message of the job names
that file, so that a client which answers late still answers as the client it was.
"""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.task_identity import TaskIdentity
from ray import cloudpickle

Server = ServerApp | Callable[[Grid], None]

# More than any test asks for; nodes that nobody asks cost next to nothing.
NODES = 100
_START_SECONDS = 300.0
_JOB_SECONDS = 900.0
_JOB = "job"


class SharedSimulation:
    """A running Ray simulation that jobs are handed to, one after another."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[Callable[[Grid], None], Future[None]] | None]
        self._jobs = queue.Queue()
        self._nodes: list[int] = []
        self._ready: Future[None] = Future()
        self._folder = tempfile.TemporaryDirectory(prefix="fedridge-jobs-")
        self._count = 0
        self._thread = threading.Thread(target=self._simulate, daemon=True)
        self._thread.start()
        self._ready.result(_START_SECONDS)

    def run(
        self,
        server: Server,
        client: ClientApp,
        nodes: int,
        run_config: dict[str, Any] | None = None,
    ) -> None:
        """Run a server with this many clients, and raise what it raises.

        Clients have the partitions 0 to nodes - 1 of `nodes`, an empty state at the
        beginning of the job, and the run-config.
        """
        if not self._thread.is_alive():
            raise RuntimeError("the simulation has ended; its log says why.")
        self._count += 1
        file = Path(self._folder.name) / f"job-{self._count}.pickle"
        file.write_bytes(cloudpickle.dumps((client, nodes, run_config or {})))

        def work(grid: Grid) -> None:
            part = JobGrid(grid, self._nodes[:nodes], str(file))
            if isinstance(server, ServerApp):
                server(part, _server_context(part.run.run_id, run_config or {}))
            else:
                server(part)

        done: Future[None] = Future()
        self._jobs.put((work, done))
        done.result(_JOB_SECONDS)

    def close(self) -> None:
        """End the simulation, and Ray with it."""
        self._jobs.put(None)
        self._thread.join(60.0)
        self._folder.cleanup()

    def _simulate(self) -> None:
        from flwr.simulation import run_simulation

        app = ServerApp()
        app.main()(self._serve)
        resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
        try:
            run_simulation(app, Dispatcher(), NODES, backend_config=resources)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    def _serve(self, grid: Grid, context: Context) -> None:
        identity = _identity()
        self._nodes = _nodes_by_partition(grid)
        self._ready.set_result(None)
        while (job := self._jobs.get()) is not None:
            work, done = job
            # Tests without a simulation set an identity of their own.
            others, TaskIdentity.run_id = _identity(), identity[0]
            TaskIdentity.task_id, TaskIdentity.node_id = identity[1:]
            try:
                work(grid)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)
            finally:
                TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = others


class JobGrid(Grid):
    """Some nodes of a grid, and the name of the job in every message to them."""

    def __init__(self, grid: Grid, nodes: list[int], job: str) -> None:
        self._grid, self._nodes = grid, nodes
        self._job = ConfigRecord({"file": job})

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(self._named(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self._grid.send_and_receive(self._named(messages), timeout=timeout)

    def _named(self, messages: Iterable[Message]) -> list[Message]:
        messages, named = list(messages), {}
        for message in messages:
            # A content that all messages share stays shared.
            key = id(message.content)
            if key not in named:
                records = {**message.content, _JOB: self._job}
                named[key] = (message.content, RecordDict(records))
            message.content = named[key][1]
        return messages


class Dispatcher(ClientApp):
    """The ClientApp of the simulation: hands every message to that of its job."""

    def __call__(self, message: Message, context: Context) -> Message:
        job = message.content.pop(_JOB, None)
        if job is None:
            partition = ConfigRecord({"partition": context.node_config["partition-id"]})
            return Message(RecordDict({"config": partition}), reply_to=message)
        file = str(job["file"])
        app, nodes, run_config = _load(file)
        if context.node_config.get(_JOB) != file:
            context.state.clear()
            context.node_config |= {_JOB: file, "num-partitions": nodes}
        # Flower lets nobody change the run-config of the context itself.
        own = copy(context)
        own.run_config = run_config
        reply = app(message, own)
        context.state = own.state
        return reply


@lru_cache(maxsize=4)
def _load(file: str) -> tuple[ClientApp, int, dict[str, Any]]:
    loaded: tuple[ClientApp, int, dict[str, Any]]
    loaded = cloudpickle.loads(Path(file).read_bytes())
    return loaded


def _nodes_by_partition(grid: Grid) -> list[int]:
    """Ask every node which partition is its own; that also starts the actors."""
    while len(nodes := list(grid.get_node_ids())) < NODES:
        threading.Event().wait(0.1)
    hello = RecordDict({"config": ConfigRecord()})
    replies = grid.send_and_receive(
        [Message(hello, node, "query") for node in nodes], timeout=_START_SECONDS
    )
    found = {
        int(reply.content["config"]["partition"]): reply.metadata.src_node_id
        for reply in replies
    }
    return [found[k] for k in range(NODES)]


def _server_context(run_id: int, run_config: dict[str, Any]) -> Context:
    return Context(
        run_id=run_id,
        node_id=0,
        node_config={},
        state=RecordDict(),
        run_config=run_config,
        series_id=run_id,
    )


def _identity() -> tuple[int, int, int]:
    return TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id
