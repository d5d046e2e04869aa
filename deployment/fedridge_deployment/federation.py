"""`Federation`: SuperLink with TLS, authenticated SuperNodes, and runs on them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedridge_flwr.app.credentials import (
    Credentials,
    write_credentials,
    write_node_key,
)
from fedridge_flwr.app.launch import toml_pairs, toml_value
from fedridge_flwr.app.processes import (
    exit_on_signals,
    flower_environment,
    free_ports,
    run_to_its_end,
    stop_processes,
    tool,
    wait_until_healthy,
)
from fedridge_flwr.errors import FedRidgeError

from .site import Site

__all__ = ["Federation", "Finished", "federation", "write_app"]

_CONNECTION = "loopback"
_COMMAND_SECONDS = 300.0
_CONNECT_SECONDS = 300.0


class Finished(NamedTuple):
    """A run that went well: what it printed, and seconds from ``flwr run`` on."""

    output: str
    seconds: float


class Federation:
    """A SuperLink on the loopback device, its credentials and its sites.

    Parameters
    ----------
    folder : Path
        Everything is in here: credentials, FLWR_HOME, database, logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.logs = folder / "home", folder / "logs"
        for made in (self.home, self.logs):
            made.mkdir(parents=True)
        self.credentials: Credentials = write_credentials(
            folder / "credentials", ["localhost", "127.0.0.1"], []
        )
        [self.port] = free_ports(1)
        self.environment = flower_environment(self.home)
        self.superlink: subprocess.Popen[bytes] | None = None
        self.sites: dict[str, Site] = {}
        self.node_ids: dict[str, str] = {}
        connection = {
            "address": f"127.0.0.1:{self.port}",
            "root-certificates": str(self.credentials.authority),
        }
        lines = [f"{key} = {toml_value(value)}" for key, value in connection.items()]
        (self.home / "config.toml").write_text(
            "\n".join([f"[superlink.{_CONNECTION}]", *lines, ""]), encoding="utf-8"
        )

    # ---- the SuperLink ----------------------------------------------------------

    def start_superlink(self) -> None:
        """Start it, or start it again with the database it had."""
        command = [
            *(
                tool("flower-superlink"),
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
            ),
            *("--ssl-ca-certfile", str(self.credentials.authority)),
            *("--ssl-certfile", str(self.credentials.certificate)),
            *("--ssl-keyfile", str(self.credentials.key)),
            "--enable-supernode-auth",
            *("--database", str(self.folder / "state.db")),
            "--disable-runtime-dependency-installation",
        ]
        log_file = self.logs / "superlink.log"
        with log_file.open("ab") as log:
            self.superlink = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                command,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        wait_until_healthy(
            self.superlink, self.port, log_file, self.credentials.authority
        )

    def kill_superlink(self) -> None:
        """End it, and the ServerApp with it, as a power cut would."""
        if self.superlink is not None:
            os.killpg(self.superlink.pid, signal.SIGKILL)
            self.superlink.wait()

    # ---- sites ------------------------------------------------------------------

    def add_site(
        self,
        name: str,
        data: Path,
        *,
        register: bool = True,
        start: bool = True,
        environment: Mapping[str, str] | None = None,
        node_config: Mapping[str, str | int | float | bool] | None = None,
    ) -> Site:
        """Make a key for a site, register it, and start its SuperNode."""
        write_node_key(self.credentials, name)
        connection = [
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--root-certificates", str(self.credentials.authority)),
            *("--auth-supernode-private-key", str(self.credentials.node_key(name))),
        ]
        site = Site(
            name=name,
            data=data,
            connection=connection,
            # A home of its own: it shares nothing with the SuperLink but the network.
            environment={
                **self.environment,
                "FLWR_HOME": str(self.folder / f"home-{name}"),
                **(environment or {}),
            },
            log_file=self.logs / f"{name}.log",
            node_config=dict(node_config or {}),
        )
        if register:
            self.register(name)
        self.sites[name] = site
        if start:
            site.start()
        return site

    def register(self, name: str) -> None:
        """Let a site in, by its public key."""
        public = str(self.credentials.node_public_key(name))
        told = self.flwr("supernode", "register", public, _CONNECTION, "--name", name)
        self.node_ids[name] = str(told["node-id"])

    def online(self) -> set[str]:
        """Return the node ids that the SuperLink believes to be there."""
        nodes = self.flwr("supernode", "list", _CONNECTION)["nodes"]
        return {str(node["node-id"]) for node in nodes if node["status"] == "online"}

    def wait_for(self, *names: str) -> None:
        """Wait until these sites, or all that were started, are online."""
        wanted = set(names) or {n for n in self.node_ids if self.sites[n].running}
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            there = self.online()
            missing = {name for name in wanted if self.node_ids[name] not in there}
            if not missing:
                return
            if time.monotonic() >= deadline:
                raise FedRidgeError(f"not online: {', '.join(sorted(missing))}.")
            time.sleep(0.5)

    # ---- runs -------------------------------------------------------------------

    def run(
        self,
        app: Path,
        run_config: Mapping[str, object] | None = None,
        *,
        timeout: float = 1200.0,
        echo: bool = False,
    ) -> Finished:
        """Run an app to its end and return what it printed, and how long it took.

        A run whose end Flower lost is run once more.

        Raises
        ------
        FedRidgeError
            If Flower refuses the run or the app does not finish well.
        """
        began = time.perf_counter()
        output = run_to_its_end(
            [*self._run_command(app, run_config), "--stream"],
            self.environment,
            timeout,
            echo,
            self._last_run,
        )
        return Finished(output, time.perf_counter() - began)

    def submit(self, app: Path, run_config: Mapping[str, object] | None = None) -> str:
        """Start a run and return its id at once."""
        command = [*self._run_command(app, run_config)[1:]]
        return str(self.flwr(*command)["run-id"])

    def status(self, run_id: str) -> str:
        """Return how a run is doing."""
        return str(self._listed(run_id).get("status", "unknown"))

    def details(self, run_id: str) -> str:
        """Return what Flower says about the status of a run."""
        return str(self._listed(run_id).get("status-details", ""))

    def _last_run(self) -> tuple[str, str]:
        last = self._listed(None)
        return str(last.get("status", "unknown")), str(last.get("status-details", ""))

    def _listed(self, run_id: str | None) -> dict[str, Any]:
        for run in self.flwr("list", _CONNECTION)["runs"]:
            if run_id in (None, str(run["run-id"])):
                return dict(run)
        return {}

    def finish(self, run_id: str, timeout: float = 900.0) -> str:
        """Wait for the end of a run and return its status."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.status(run_id)
            if status.startswith("finished"):
                return status
            if time.monotonic() >= deadline:
                raise FedRidgeError(f"run {run_id} is {status!r} after {timeout:g} s.")
            time.sleep(2.0)  # `flwr list` costs a second of a core

    def _run_command(
        self, app: Path, run_config: Mapping[str, object] | None
    ) -> list[str]:
        command = [tool("flwr"), "run", str(app), _CONNECTION]
        return (
            [*command, "--run-config", toml_pairs(run_config)]
            if run_config
            else command
        )

    def flwr(self, *arguments: str) -> Any:
        """Run a ``flwr`` command and return what it tells as JSON."""
        what = f"flwr {' '.join(arguments[:2])}"
        try:
            done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
                [tool("flwr"), *arguments, "--format", "json"],
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_COMMAND_SECONDS,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            raise FedRidgeError(
                f"{what} took longer than {_COMMAND_SECONDS:g} s."
            ) from None
        try:
            told = json.loads(done.stdout)
        except ValueError:
            told = {}
        if not told or not told.get("success", True):
            raise FedRidgeError(
                f"{what} failed: {(done.stdout + done.stderr).strip()[-2000:]}"
            )
        return told

    def close(self) -> None:
        """End every process that was started here."""
        started = [self.superlink, *(site.process for site in self.sites.values())]
        stop_processes(process for process in started if process is not None)


@contextlib.contextmanager
def federation(folder: Path | None = None) -> Iterator[Federation]:
    """Start a SuperLink on a free port; at the end all is gone, files included."""
    prefix = "fedridge-deployment-"
    with (
        exit_on_signals(),
        tempfile.TemporaryDirectory(
            prefix=prefix, dir=folder, ignore_cleanup_errors=True
        ) as place,
    ):
        started = Federation(Path(place) / "federation")
        try:
            started.start_superlink()
            yield started
        finally:
            started.close()


def write_app(source: Path, target: Path, **components: str) -> Path:
    """Copy a Flower app, with other components if wanted (serverapp=, clientapp=)."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    project = target / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines()
    for key, value in components.items():
        lines = [
            f'{key} = "{value}"' if line.startswith(f"{key} = ") else line
            for line in lines
        ]
    project.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return target
