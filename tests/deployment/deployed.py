"""Sites with gates, and what their models must be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedridge_deployment.demo import ALPHA, pooled_ridge
from fedridge_deployment.federation import Federation
from proc import running

from fedridge_flwr import RidgeModel
from fedridge_flwr.app.processes import END_LOST

_SLOWER = 5.0


@dataclass
class Deployed:
    """A federation whose sites can be held at a gate."""

    federation: Federation
    folder: Path
    data: list[Path]
    app: Path
    runs: int = 0
    gate: Path = field(init=False)

    def __post_init__(self) -> None:
        self.gate = self.folder / "gate"
        self.gate.mkdir()

    def add(self, number: int, **options: Any) -> str:
        """Start site number so-and-so, with a gate."""
        name = f"site-{number}"
        told = {"site": name, "gate": str(self.gate), **options.pop("node_config", {})}
        self.federation.add_site(name, self.data[number], node_config=told, **options)
        return name

    def hold(self, *names: str) -> None:
        """Let these sites wait before they load their rows."""
        for name in names:
            (self.gate / f"{name}.hold").touch()

    def release(self, *names: str) -> None:
        """Let them go on."""
        for name in names:
            (self.gate / f"{name}.hold").unlink()

    def wait_until_asked(self, *names: str, seconds: float = 90.0) -> None:
        """Wait until the ClientApps of these sites are at the gate."""
        for name in names:
            wait_until((self.gate / f"{name}.asked").exists, seconds, f"{name} asked")

    def forget_asked(self) -> None:
        """Forget who was asked."""
        for file in self.gate.glob("*.asked"):
            file.unlink()

    def output(self) -> Path:
        """Return a new folder for the results of one run."""
        self.runs += 1
        return self.folder / f"out-{self.runs}"

    def config(self, output: Path, **more: object) -> dict[str, object]:
        """Return a run-config; sites that do not answer may be left out."""
        told = {key.replace("_", "-"): value for key, value in more.items()}
        return {"timeout": 600.0, "output-dir": str(output), **told}

    def server_apps(self) -> list[int]:
        """Return the processes of running ServerApps."""
        link = self.federation.superlink
        return [] if link is None else running(link.pid, "flwr-serverapp")

    def end(self, run: str, output: Path, seconds: float = 240.0) -> dict[str, Any]:
        """Wait for the good end of a run that has begun and return its report."""
        # Looking for a file costs nothing; `flwr list` costs a second of a core.
        wait_until(
            lambda: (output / "report.json").exists() or not self.server_apps(),
            seconds,
            "the end of the run",
        )
        self.finish(run)
        return read_report(output)

    def finish(self, run: str) -> None:
        """Wait for the good end of a run whose results are then looked at.

        Flower may lose the end on a busy machine; the results decide.
        """
        status = self.federation.finish(run)
        if status == "finished:failed" and self.federation.details(run) == END_LOST:
            return
        log = (self.federation.logs / "superlink.log").read_text(errors="replace")
        # A run that failed takes its log with it, unless it is told here.
        assert status == "finished:completed", log[-4000:]

    def ids(self, *names: str) -> set[str]:
        """Return the node ids of sites."""
        return {self.federation.node_ids[name] for name in names}


def wait_until(there: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait; the seconds are those of a fast machine, a slow one gets more."""
    seconds *= _SLOWER
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def read_report(output: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((output / "report.json").read_text("utf-8"))
    return report


def assert_pooled(output: Path, files: list[Path], alpha: float = ALPHA) -> None:
    """The model is scikit-learn's on the pooled rows of these files."""
    model = RidgeModel.load(output / "model.json")
    coef, intercept = pooled_ridge(files, alpha)
    scale = np.abs(coef).max()
    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=1e-12 * scale)
    assert model.intercept_ == pytest.approx(intercept, rel=1e-12)
