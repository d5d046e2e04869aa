"""docs/how-to/deployment.md, followed to the letter in an empty folder, a new HOME."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import wait_until

from fedridge_flwr.app.processes import free_ports, stop_processes

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "how-to" / "deployment.md"
TERMINAL = "# in a terminal of its own"


def blocks() -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class NewUser:
    """A shell of somebody who has nothing but a clone of this repository."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ports = dict(
            zip(("8443", "9100", "9101", "9102"), map(str, free_ports(4)), strict=True)
        )
        ours = ("PYTHON", "FLWR", "VIRTUAL_ENV")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(ours)},
            "HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        self.terminals: list[subprocess.Popen[bytes]] = []
        self._told = ""

    def _with_free_ports(self, block: str) -> str:
        block = block.replace("910$SITE", "$((9100+SITE))")
        for site in range(3):
            if f"SITE={site}" in block:
                block = block.replace("$((9100+SITE))", self.ports[f"910{site}"])
        return block.replace("8443", self.ports["8443"])

    def type(self, block: str) -> str:
        """Type a block into the first terminal, after all that was typed there."""
        # A shell of its own for every block would forget the folder and the venv.
        script = f"set -e\n{self._told}\n{self._with_free_ports(block)}"
        if not self._told:
            self._told = "cd ~/ridge && . venv/bin/activate"
        done = subprocess.run(
            ["bash", "-c", script],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def open_terminal(self, block: str) -> None:
        with (self.home / f"terminal-{len(self.terminals)}.log").open("wb") as log:
            self.terminals.append(
                subprocess.Popen(
                    ["bash", "-c", self._with_free_ports(block)],
                    env=self.environment,
                    cwd=self.home,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def answers(self, port: str) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(self.ports[port]))) == 0


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[NewUser]:
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(
        ["git", "clone", "--quiet", str(ROOT), str(home / "fedridge_flwr")], check=True
    )
    user = NewUser(home)
    yield user
    stop_processes(user.terminals)


@pytest.mark.slow
@pytest.mark.deployment
def test_a_new_user_follows_the_document(newcomer: NewUser) -> None:
    said = []
    for block in blocks():
        if not block.startswith(TERMINAL):
            said.append(newcomer.type(block))
        elif "SITE=0" in block:
            for site in range(3):
                newcomer.open_terminal(block.replace("SITE=0", f"SITE={site}"))
        else:
            newcomer.open_terminal(block)
            wait_until(lambda: newcomer.answers("8443"), 60.0, "the SuperLink")
    found = re.search(r"difference to pooled rows: (\S+)", "\n".join(said))
    assert found, said
    assert float(found.group(1)) < 1e-10
    place = newcomer.home / "ridge"
    models = [
        json.loads((place / folder / "model.json").read_text())
        for folder in ("result", "older")
    ]
    assert models[0]["coef"] == pytest.approx(models[1]["coef"], rel=1e-12)


def test_the_document_has_every_step() -> None:
    together = "\n".join(blocks())
    for word in (
        "fedridge_flwr.app.credentials",
        "flower-superlink",
        "supernode register",
        "flower-supernode",
        "flwr run app ridge",
        "_legacy",
    ):
        assert word in together
