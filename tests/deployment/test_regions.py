"""Two levels of federations over TLS, by the blocks of the how-to page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployed import assert_pooled, wait_until
from fedridge_deployment.demo import APPS

from fedridge_flwr.app.processes import (
    flower_environment,
    free_ports,
    stop_processes,
)

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "how-to" / "federation-of-federations.md"
TERMINAL = "# in a terminal of its own"
REGIONS = {"north": "8444", "south": "8445"}
pytestmark = [pytest.mark.slow, pytest.mark.deployment]


def blocks() -> Iterator[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    yield from re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Country:
    """A shell in an empty folder with the app, and terminals beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(APPS / "sites", folder / "app")
        told = {"HOME": str(folder), "OMP_NUM_THREADS": "1"}
        self.environment = flower_environment(folder / ".flwr", **told)
        ports = ("8443", "8444", "8445")
        self.ports = dict(zip(ports, map(str, free_ports(3)), strict=True))
        self.terminals: dict[str, subprocess.Popen[bytes]] = {}

    def _prepared(self, block: str) -> str:
        for page, own in self.ports.items():
            block = block.replace(page, own)
        return block.replace("--port 0", f"--port {free_ports(1)[0]}")

    def type(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", self._prepared(block)],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def open_terminal(self, name: str, block: str, **values: str) -> None:
        for key, value in values.items():
            block = re.sub(rf"\b{key}=\S+", f"{key}={value}", block, count=1)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.terminals[name] = subprocess.Popen(
                ["bash", "-c", self._prepared(block)],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a SuperNode as a power cut would."""
        os.killpg(self.terminals[name].pid, signal.SIGKILL)
        self.terminals[name].wait()

    def wait_for_nodes(self, superlink: str, number: int) -> None:
        def online() -> bool:
            told = json.loads(
                self.type(f"flwr supernode list {superlink} --format json")
            )
            return sum(n["status"] == "online" for n in told["nodes"]) == number

        wait_until(online, 120.0, f"{number} SuperNodes at {superlink}")

    def run(self, output: str) -> None:
        """Run as the page does, into another folder, without being strict."""
        told = f'min-sites=1 strict=false timeout=900.0 output-dir="$PWD/{output}"'
        told = told.replace('"', '\\"')
        self.type(f'flwr run top-app top --stream --run-config "{told}"')

    def report(self, folder: str) -> dict[str, Any]:
        file = self.folder / folder / "report.json"
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return report

    def left_out(self, folder: str) -> dict[str, str]:
        """Return who is not in the model of a report, and why."""
        report = self.report(folder)
        return {report["names"][c]: why for c, why in report["failures"].items()}

    def rows(self, *names: str) -> list[Path]:
        return [self.folder / f"{name}.csv" for name in names]


@pytest.fixture
def country(tmp_path: Path) -> Iterator[Country]:
    found = Country(tmp_path)
    yield found
    stop_processes(found.terminals.values())


def test_the_page_and_then_sites_and_regions_are_lost(country: Country) -> None:
    for block in blocks():
        if not block.startswith(TERMINAL):
            if "flwr run" in block:
                for region in REGIONS:
                    country.wait_for_nodes(region, 3)
                country.wait_for_nodes("top", 2)
            said = country.type(block)
        elif "flower-superlink" in block:
            for place, port in {"top": "8443", **REGIONS}.items():
                country.open_terminal(f"link-{place}", block, PLACE=place, PORT=port)
                wait_until(
                    lambda: _answers(int(country.ports[port])),  # noqa: B023
                    120.0,
                    f"the SuperLink of {place}",
                )
        elif "SITE=" in block:
            for region, port in REGIONS.items():
                for site in map(str, range(3)):
                    values = {"REGION": region, "SITE": site, "PORT": port}
                    country.open_terminal(f"{region}-{site}", block, **values)
        else:
            for region in REGIONS:
                country.open_terminal(region, block, REGION=region)
    found = re.search(r"difference to pooled rows: (\S+)", said)
    assert found, said
    assert float(found.group(1)) < 1e-10
    everybody = [f"{region}-{site}" for region in REGIONS for site in range(3)]
    assert_pooled(country.folder / "result", country.rows(*everybody))
    _assert_uploads_of_one_size(country)

    # Other columns: of a site, to its region; of a region, to the top.
    stayed = [name for name in everybody if name != "north-1"]
    with _other_columns(country.rows("north-1")):
        country.run("other-columns")
    assert_pooled(country.folder / "other-columns", country.rows(*stayed))
    assert "feature names" in country.left_out("north-result")["site-1"]
    assert not country.left_out("other-columns")
    with _other_columns(country.rows(*everybody[3:])):
        country.run("another-region")
    assert_pooled(country.folder / "another-region", country.rows(*everybody[:3]))
    assert not country.left_out("south-result")
    assert "feature names" in country.left_out("another-region")["south"]

    # A site is lost: to its region, and the top hears fewer rows.
    country.kill("north-2")
    country.run("without-a-site")
    stayed = [name for name in everybody if name != "north-2"]
    assert_pooled(country.folder / "without-a-site", country.rows(*stayed))
    assert not country.left_out("without-a-site")
    assert len(country.report("north-result")["participants"]) == 2

    # And a region, with all its sites.
    country.kill("south")
    country.run("without-a-region")
    assert_pooled(country.folder / "without-a-region", country.rows(*everybody[:2]))
    assert len(country.report("without-a-region")["participants"]) == 1


def _assert_uploads_of_one_size(country: Country) -> None:
    """A region's message is as large as that of any of its sites."""
    top, region = (country.report(f) for f in ("result", "north-result"))
    above = top["bytes_up"] / len(top["participants"])
    below = region["bytes_up"] / len(region["participants"])
    assert above == pytest.approx(below, rel=0.02)


@contextlib.contextmanager
def _other_columns(files: list[Path]) -> Iterator[None]:
    """Let these files have another name for one column, for a while."""
    before = [file.read_text(encoding="utf-8") for file in files]
    for file, text in zip(files, before, strict=True):
        file.write_text(text.replace("bmi", "quetelet", 1), encoding="utf-8")
    yield
    for file, text in zip(files, before, strict=True):
        file.write_text(text, encoding="utf-8")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
