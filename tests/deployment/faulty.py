"""A federation whose machines fail in every way, and a record of what came of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployed import Deployed, assert_pooled, wait_until
from fedridge_deployment.site import Site

from fedridge_flwr.app.machine import versions
from fedridge_flwr.flower.error_text import one_line

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "docs" / "results" / "faults.json"
# What Flower and a busy machine may take beyond a timeout of ours.
OVERHEAD = 120.0
N_SITES = 5
FAILED = "failed"
_PATH = re.compile(r"(?:/[\w.-]+){2,}")


def machine_environment(machine: Path) -> dict[str, str]:
    """Return an environment in which the faults of a machine take effect."""
    there = os.environ.get("PYTHONPATH", "")
    path = [str(HERE / "machine"), *(p for p in there.split(os.pathsep) if p)]
    return {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "FAULTY_MACHINE": str(machine),
    }


@dataclass
class Faulty(Deployed):
    """A federation of five sites; machines, clocks and packages can be spoilt."""

    spoilt: dict[Path, bytes] = field(default_factory=dict)

    def machine(self, name: str) -> Path:
        """Return the folder that says what is wrong with a machine."""
        folder = self.folder / "machines" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def start(self, number: int) -> str:
        """Start a site for the first time."""
        machine = self.machine(f"site-{number}")
        return self.add(number, environment=machine_environment(machine))

    def site(self, name: str) -> Site:
        return self.federation.sites[name]

    def fault(self, name: str, fault: str) -> None:
        """Let the ClientApp of a site crash or raise."""
        (self.gate / f"{name}.fault").write_text(fault)

    def spoil(self, number: int, content: bytes | None) -> None:
        """Give a site another data file, or none."""
        file = self.data[number]
        self.spoilt.setdefault(file, file.read_bytes())
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)

    def connections(self, name: str) -> int:
        """How often a SuperNode was let in."""
        log = self.site(name).log if self.site(name).log_file.exists() else ""
        return log.count("SuperNode ID:")

    def restart(self, *names: str, seconds: float = 180.0) -> None:
        """Start SuperNodes that are down, again and again until they are let in.

        That is what systemd does. One that was killed is refused as long as the
        SuperLink believes that it is there, which is up to a minute.
        """
        before = {name: self.connections(name) for name in names}

        def let_in() -> bool:
            missing = [n for n, k in before.items() if self.connections(n) <= k]
            down = [name for name in missing if not self.site(name).running]
            if down and missing:
                time.sleep(2.0)
            for name in down:
                self.site(name).start()
            return not missing

        wait_until(let_in, seconds, f"{', '.join(names)} online")

    def heal(self) -> None:
        """Leave everything as it should be for the next fault."""
        for file, content in self.spoilt.items():
            file.write_bytes(content)
        self.spoilt.clear()
        for file in self.gate.iterdir():
            file.unlink()
        shutil.rmtree(self.folder / "machines", ignore_errors=True)
        for name in ("superlink", *self.federation.sites):
            self.machine(name)
        if self.federation.superlink is None or self.federation.superlink.poll():
            self.federation.start_superlink()
        for site in self.federation.sites.values():
            site.resume()
        self.restart(*(n for n, s in self.federation.sites.items() if not s.running))

    # ---- runs -------------------------------------------------------------------

    def config(self, output: Path, **more: object) -> dict[str, object]:
        told = {key.replace("_", "-"): value for key, value in more.items()}
        sites = sum(site.running for site in self.federation.sites.values())
        # Five ClientApps that start at once on a busy machine take half a minute.
        config = {"wait-for": sites, "min-sites": 1, "strict": False, "timeout": 120.0}
        return {**config, "output-dir": str(output), **told}

    def submit(self, output: Path, **more: object) -> str:
        """Start a run; its timeout is two minutes unless told otherwise."""
        return self.federation.submit(self.app, self.config(output, **more))

    def run(self, **more: object) -> tuple[Path, dict[str, Any]]:
        """Run to the good end."""
        output = self.output()
        run = self.submit(output, **more)
        wait_until(lambda: bool(self.server_apps()) or output.exists(), 120.0, "a run")
        return output, self.end(run, output)

    def server_log(self) -> str:
        log = (self.federation.logs / "superlink.log").read_text(errors="replace")
        return log[-3000:]

    def check(self, output: Path, report: dict[str, Any], *numbers: int) -> None:
        """The model is that of exactly these sites, and the others are named."""
        names = {f"site-{k}" for k in numbers}
        assert set(report["participants"]) == self.ids(*names), report["failures"]
        asked = {site for site in self.federation.sites if site not in names}
        failed = set(report["failures"])
        assert failed <= self.ids(*asked), report["failures"]
        assert_pooled(output, [self.data[k] for k in sorted(numbers)])

    def reason(self, report: dict[str, Any], name: str) -> str:
        """Return why a site was left out, which must be something to read."""
        reason = str(report["failures"][self.federation.node_ids[name]])
        assert len(reason) > 8
        assert "\n" not in reason
        assert "Traceback" not in reason
        assert "<class" not in reason
        return reason


class Record:
    """What came of every fault, added to what is in the file already."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @contextlib.contextmanager
    def trying(self, *faults: str) -> Iterator[dict[str, tuple[str, str]]]:
        """Record outcome and reason of each of these faults, or that it failed."""
        found: dict[str, tuple[str, str]] = {}
        began = time.monotonic()
        try:
            yield found
            assert set(found) == set(faults)
        except BaseException as error:
            for fault in faults:
                told = one_line(f"{FAILED}: {type(error).__name__}: {error}")
                self._add(fault, told, time.monotonic() - began, "")
            raise
        for fault, (outcome, reason) in found.items():
            self._add(fault, outcome, time.monotonic() - began, reason)

    def _add(self, fault: str, outcome: str, seconds: float, reason: str) -> None:
        reason = _PATH.sub(lambda m: f".../{Path(m.group(0)).name}", reason)
        print(f"\n{fault}: {outcome} ({seconds:.0f} s) {reason}", flush=True)
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (Path(tempfile.gettempdir()) / "fedridge-faults.lock").open("w") as lock:
            # Two halves of the suite may run side by side.
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self._read()
            row = found["faults"].setdefault(fault, {"seconds": []})
            row["seconds"].append(round(seconds, 1))
            row["tried"] = len(row["seconds"])
            row["outcomes"] = _more(row.get("outcomes", []), outcome)
            row["reasons"] = _more(row.get("reasons", []), reason)
            self._path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    def _read(self) -> dict[str, Any]:
        told = {
            "python": platform.python_version(),
            "versions": versions(["flwr", "fedridge-flwr", "numpy", "scipy"]),
            "sites": N_SITES,
        }
        if self._path is not None and self._path.exists():
            found: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            if {key: found[key] for key in told} == told:
                return found
        return {**told, "faults": {}}


def _more(there: Iterable[str], one: str) -> list[str]:
    return list(dict.fromkeys([*there, *([one] if one else [])]))
