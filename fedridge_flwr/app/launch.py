"""``flwr run`` on a SuperLink of its own, gone afterwards.

``flwr run`` finds a local SuperLink by its port only, reuses whichever is there with
the code of the checkout that started it, leaves it running, and exits with 0 when
the app fails. Here every run has its own ports and its own FLWR_HOME, the SuperLink
is a child that is stopped at the end, and an app that failed is an error.
"""

import contextlib
import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import FedRidgeError
from . import processes


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

        A run whose end Flower lost is run once more.

        Raises
        ------
        FedRidgeError
            If Flower refuses the run or the app does not finish well.
        """
        size = f"num-supernodes={num_supernodes} client-resources-num-cpus=1"
        command = [processes.tool("flwr"), "run", str(app), "--stream"]
        command += ["--federation-config", size]
        if run_config:
            command += ["--run-config", toml_pairs(run_config)]
        return processes.run_to_its_end(
            command, self.environment, timeout, echo, self._last_run
        )

    def _last_run(self) -> tuple[str, str]:
        listed = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            [processes.tool("flwr"), "list", "--format", "json"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.environment["FLWR_HOME"],
        )
        try:
            runs = json.loads(listed.stdout)["runs"]
            return str(runs[0]["status"]), str(runs[0].get("status-details", ""))
        except (ValueError, KeyError, IndexError):
            return "refused", ""


@contextlib.contextmanager
def local_superlink() -> Iterator[LocalSuperLink]:
    """Start a SuperLink for simulations on free ports, and stop it at the end."""
    if importlib.util.find_spec("ray") is None:
        raise FedRidgeError(
            "simulations need Ray, which is not installed: "
            "pip install 'fedridge-flwr[simulation]'"
        )
    home = Path(tempfile.mkdtemp(prefix="fedridge-flwr-"))
    port, control = processes.free_ports(2)
    environment = processes.flower_environment(
        home,
        FLWR_LOCAL_SUPERLINK_HTTP_API_PORT=str(port),
        FLWR_LOCAL_CONTROL_API_PORT=str(control),
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    )
    command = [
        *(processes.tool("flower-superlink"), "--insecure", "--simulation"),
        *("--isolation", "subprocess", "--host", "127.0.0.1", "--port", str(port)),
        *("--control-api-address", f"127.0.0.1:{control}"),
        *("--database", str(home / "state.db"), "--log-file", str(home / "log.txt")),
        # Everything the app needs is in the environment that launches it.
        "--disable-runtime-dependency-installation",
    ]
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=home,
    )
    try:
        with processes.exit_on_signals():
            processes.wait_until_healthy(process, port, home / "log.txt")
            yield LocalSuperLink(environment)
    finally:
        processes.stop_processes([process])
        shutil.rmtree(home, ignore_errors=True)


def toml_pairs(config: Mapping[str, object]) -> str:
    """Return a run-config, or a node-config, as Flower's commands take it.

    Examples
    --------
    >>> toml_pairs({"alpha": 0.5, "dataset": "digits"})
    'alpha=0.5 dataset="digits"'
    """
    return " ".join(f"{key}={toml_value(value)}" for key, value in config.items())


def toml_value(value: object) -> str:
    """Return a run-config value as TOML.

    Examples
    --------
    >>> [toml_value(v) for v in ("digits", 0.5, 3, True)]
    ['"digits"', '0.5', '3', 'true']
    """
    return json.dumps(value)
