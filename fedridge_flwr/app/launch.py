"""``flwr run`` on a SuperLink of its own, gone afterwards.

``flwr run`` finds a local SuperLink by its port only, reuses whichever is there with
the code of the checkout that started it, leaves it running, and exits with 0 when
the app fails. Here every run has its own ports and its own FLWR_HOME, the SuperLink
is a child that is stopped at the end, and an app that failed is an error.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import FedRidgeError

__all__ = ["LocalSuperLink", "local_superlink", "toml_value"]

_START_SECONDS = 60.0


class LocalSuperLink:
    """A running SuperLink and the environment in which ``flwr`` finds it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def run(
        self,
        app: Path,
        *,
        num_supernodes: int,
        run_config: Mapping[str, object] | None = None,
        timeout: float = 1200.0,
        echo: bool = True,
    ) -> str:
        """Run an app to its end and return what it printed.

        Raises
        ------
        FedRidgeError
            If Flower refuses the run or the app does not finish well.
        """
        command = [
            *(_tool("flwr"), "run", str(app), "--stream", "--federation-config"),
            f"num-supernodes={num_supernodes} client-resources-num-cpus=1",
        ]
        if run_config:
            pairs = (f"{key}={toml_value(value)}" for key, value in run_config.items())
            command += ["--run-config", " ".join(pairs)]
        output = _stream(command, self.environment, timeout, echo)
        status = self._last_status()
        if status != "finished:completed":
            telling = [line for line in output.splitlines() if "Error" in line]
            raise FedRidgeError(
                f"the run ended as {status!r}. "
                + (f"Last error: {telling[-1].strip()}" if telling else output[-2000:])
            )
        return output

    def _last_status(self) -> str:
        listed = subprocess.run(  # noqa: S603 - words of our own, no shell
            [_tool("flwr"), "list", "--format", "json"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.environment["FLWR_HOME"],
        )
        try:
            runs = json.loads(listed.stdout)["runs"]
            return str(runs[0]["status"])
        except (ValueError, KeyError, IndexError):
            return "refused"


@contextlib.contextmanager
def local_superlink() -> Iterator[LocalSuperLink]:
    """Start a SuperLink for simulations on free ports, and stop it at the end."""
    if importlib.util.find_spec("ray") is None:
        raise FedRidgeError(
            "simulations need Ray, which is not installed: "
            "pip install 'fedridge-flwr[simulation]'"
        )
    home = Path(tempfile.mkdtemp(prefix="fedridge-flwr-"))
    port, control = _free_ports(2)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    command = [
        *(_tool("flower-superlink"), "--insecure", "--simulation"),
        *("--isolation", "subprocess", "--host", "127.0.0.1", "--port", str(port)),
        *("--control-api-address", f"127.0.0.1:{control}"),
        *("--database", str(home / "state.db"), "--log-file", str(home / "log.txt")),
        # Everything the app needs is in the environment that launches it.
        "--disable-runtime-dependency-installation",
    ]
    process = subprocess.Popen(  # noqa: S603 - words of our own, no shell
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=home,
    )
    try:
        with _exit_on_sigterm():
            _wait_until_healthy(process, port, home / "log.txt")
            yield LocalSuperLink(environment)
    finally:
        _stop(process)
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Leave by an exception when terminated, so that children are stopped as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tool(name: str) -> str:
    """Return a command of the environment that runs this, not of whatever is on PATH.

    Where there is none beside the interpreter, as with some installers, PATH decides.
    """
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=str(beside)) or shutil.which(name)
    if found is None:
        raise FedRidgeError(f"there is no command {name}: pip install flwr.")
    return found


def toml_value(value: object) -> str:
    """Return a run-config value as TOML.

    Examples
    --------
    >>> [toml_value(v) for v in ("digits", 0.5, 3, True)]
    ['"digits"', '0.5', '3', 'true']
    """
    return json.dumps(value)


def _stream(
    command: list[str], environment: dict[str, str], timeout: float, echo: bool
) -> str:
    lines: list[str] = []
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    watch = threading.Timer(timeout, process.kill)
    watch.start()
    try:
        for line in process.stdout or ():
            lines.append(line)
            if echo:
                print(line, end="", flush=True)
        process.wait()
    finally:
        in_time = watch.is_alive()
        watch.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if not in_time:
        raise FedRidgeError(f"the run took longer than {timeout:g} s.")
    return "".join(lines)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _wait_until_healthy(
    process: subprocess.Popen[bytes], port: int, log_file: Path
) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if _is_healthy(port):
            return
        time.sleep(0.2)
    tail = log_file.read_text()[-2000:] if log_file.exists() else "(no log)"
    raise FedRidgeError(f"the SuperLink did not start:\n{tail}")


def _is_healthy(port: int) -> bool:
    # Not by urllib, which would ask a proxy, or open whatever a URL names.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
