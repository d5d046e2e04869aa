"""`Site`: one SuperNode with a data file of its own, and what may happen to it."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from fedridge_flwr.app.launch import toml_pairs
from fedridge_flwr.app.processes import free_ports, stop_processes, tool

__all__ = ["Site"]


@dataclass
class Site:
    """A SuperNode that can be started, killed, stopped for a while, and restarted.

    Parameters
    ----------
    name : str
        How people call it.
    data : Path
        Its CSV file, which never leaves it.
    connection : list of str
        Options that say where the SuperLink is and how to trust it.
    environment : dict of str to str
        Environment of the process.
    log_file : Path
        What it prints.
    node_config : dict
        More of what the app finds in ``context.node_config``.
    """

    name: str
    data: Path
    connection: list[str]
    environment: dict[str, str]
    log_file: Path
    node_config: dict[str, str | int | float | bool] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the SuperNode; it connects, and tries again where it cannot."""
        settings = {"data": str(self.data), **self.node_config}
        [port] = free_ports(1)
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                [
                    tool("flower-supernode"),
                    *self.connection,
                    *("--host", "127.0.0.1", "--port", str(port)),
                    *("--node-config", toml_pairs(settings)),
                ],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.log_file.parent,
            )

    def kill(self) -> None:
        """End it and its ClientApp as a power cut would."""
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def pause(self) -> None:
        """Stop it without its knowing, as a machine that hangs does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it kindly."""
        if self.process is not None:
            stop_processes([self.process])

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        """What it printed so far."""
        return self.log_file.read_text(errors="replace")

    def _signal(self, kind: signal.Signals) -> None:
        if self.running and self.process is not None:
            os.killpg(self.process.pid, kind)
