"""Processes of Flower that are ours: free ports, their output, and their end."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import FedRidgeError

# The process of a run reports its end once, without a retry, and kills itself five
# seconds after the app returned. On a busy machine the SuperLink may not have heard it
# by then; a minute later it calls the run failed, for this reason.
END_LOST = "No heartbeat received from the task"


def flower_environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment in which Flower finds its programs and its own home."""
    # Jupyter wants colours from all programs, also in the JSON of `flwr list`.
    inherited = {key: os.environ[key] for key in os.environ if key != "FORCE_COLOR"}
    return {
        **inherited,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **more,
    }


def tool(name: str) -> str:
    """Return a command of the environment that runs this, not of whatever is on PATH.

    Where there is none beside the interpreter, as with some installers, PATH decides.
    """
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=str(beside)) or shutil.which(name)
    if found is None:
        raise FedRidgeError(f"there is no command {name}: pip install flwr.")
    return found


def free_ports(number: int) -> list[int]:
    """Return free ports of the loopback device."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Leave by an exception when terminated, or when the terminal is closed.

    Children are then stopped as well; they are not in the terminal's group.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        kind: signal.signal(kind, lambda number, _: sys.exit(128 + number))
        for kind in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def stream(
    command: list[str], environment: Mapping[str, str], timeout: float, echo: bool
) -> str:
    """Run a command to its end and return what it printed, line by line if wanted.

    Raises
    ------
    FedRidgeError
        If it takes longer than `timeout` seconds; it is then killed.
    """
    lines: list[str] = []
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
        command,
        env=dict(environment),
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


def run_to_its_end(
    command: list[str],
    environment: Mapping[str, str],
    timeout: float,
    echo: bool,
    last_run: Callable[[], tuple[str, str]],
) -> str:
    """Return what ``flwr run`` printed, if the run ended well.

    A run whose end Flower lost is run once more: what it had done cannot be told from
    outside, so it counts for nothing. `last_run` returns the status of the last run,
    and what Flower says about it.

    Raises
    ------
    FedRidgeError
        If Flower refuses the run or the app does not finish well.
    """
    output = stream(command, environment, timeout, echo)
    status, details = last_run()
    if details == END_LOST:
        if echo:
            print("Flower did not report the end of the run; trying again.", flush=True)
        output = stream(command, environment, timeout, echo)
        status, _ = last_run()
    if status != "finished:completed":
        telling = [line for line in output.splitlines() if "Error" in line]
        why = f"Last error: {telling[-1].strip()}" if telling else output[-2000:]
        raise FedRidgeError(f"the run ended as {status!r}. {why}")
    return output


def wait_until_healthy(
    process: subprocess.Popen[bytes],
    port: int,
    log_file: Path,
    authority: Path | None = None,
) -> None:
    """Wait until a process answers at its port; over TLS if an authority is given."""
    context = ssl.create_default_context(cafile=authority) if authority else None
    deadline = time.monotonic() + 300.0
    while process.poll() is None and time.monotonic() < deadline:
        if _is_healthy(port, context):
            return
        time.sleep(0.2)
    tail = log_file.read_text(errors="replace")[-2000:] if log_file.exists() else ""
    raise FedRidgeError(f"the SuperLink did not start:\n{tail or '(no log)'}")


def _is_healthy(port: int, context: ssl.SSLContext | None) -> bool:
    # Not urllib, which would ask the proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if context is not None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=60, context=context
        )
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def stop_processes(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End processes and all they started, kindly first; each must lead its own group.

    Whoever interrupts that ends them at once.
    """
    processes = list(processes)
    try:
        for kind in (signal.SIGCONT, signal.SIGTERM):
            for process in processes:
                _signal_group(process, kind)
        deadline = time.monotonic() + 60.0
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(deadline - time.monotonic(), 0.0))
    finally:
        # What a leader that is gone leaves behind is still in its group.
        for process in processes:
            _signal_group(process, signal.SIGKILL)
        for process in processes:
            process.wait()


def _signal_group(process: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, kind)
