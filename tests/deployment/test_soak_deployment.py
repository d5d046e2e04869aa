"""Thirty runs on one SuperLink: what grows, what stays, what is left behind.

By ``make soak-deployment`` only; it writes ``docs/results/soak.json``.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed import assert_pooled, wait_until
from fedridge_deployment.demo import APPS, write_sites
from fedridge_deployment.federation import Federation, federation
from proc import descendants, running, usage

from fedridge_flwr.app.machine import versions

pytestmark = [pytest.mark.deployment, pytest.mark.slow, pytest.mark.soak]

RUNS = int(os.environ.get("SOAK_RUNS", "30"))
SITES = 3
# The first runs fill caches and thread pools.
WARM_UP = 5
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "soak.json"


def test_thirty_runs_leave_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    # A folder of its own, so that whatever is in there came from these processes.
    monkeypatch.setenv("TMPDIR", str(temporary))
    data = write_sites(tmp_path / "data", SITES)
    rows: list[dict[str, float]] = []
    with federation(tmp_path) as running_now:
        for file in data:
            running_now.add_site(file.stem, file)
        running_now.wait_for()
        before = children(running_now)
        outputs = tmp_path / "out"
        for number in range(1, RUNS + 1):
            output = outputs / f"{number:02d}"
            config = {"min-sites": SITES, "timeout": 120.0, "output-dir": str(output)}
            seconds = running_now.run(APPS / "sites", config).seconds
            assert_pooled(output, data)
            wait_until(lambda: not apps(running_now), 60.0, "apps that ended")
            rows.append(
                {
                    "seconds": round(seconds, 2),
                    **measure(running_now),
                    **files("temporary", [temporary]),
                    **files("output", [outputs]),
                }
            )
            print(f"run {number}: {rows[-1]}", flush=True)
        assert children(running_now) == before
        log = "".join(site.log for site in running_now.sites.values())
    write_soak(rows)

    # Ours: two files for each run, and nothing else anywhere.
    per_run = [row["output_files"] for row in rows]
    assert per_run == [2 * (k + 1) for k in range(RUNS)]
    ours = [path.name for path in temporary.rglob("*") if "fedridge" in path.name]
    assert ours == []
    assert all(row["processes"] == rows[0]["processes"] for row in rows)
    for kept in ("supernodes_handles", "supernodes_threads", "homes_files"):
        assert not leaks([row[kept] for row in rows]), kept
    assert "Traceback" not in log


def leaks(values: list[float]) -> bool:
    """Whether the last ten looks are all above the first ten.

    One more with each run would be; a connection that is open at the moment of a look,
    or a thread that waits for work, is not.
    """
    return len(values) >= 20 and min(values[-10:]) > max(values[:10])


def processes(federation: Federation) -> list[int]:
    assert federation.superlink is not None
    sites = [site.process for site in federation.sites.values()]
    return [federation.superlink.pid, *(p.pid for p in sites if p is not None)]


def children(federation: Federation) -> list[int]:
    return sorted(c for pid in processes(federation) for c in descendants(pid))


def apps(federation: Federation) -> list[int]:
    """ServerApps and ClientApps that are there now."""
    superlink, *sites = processes(federation)
    clients = [app for pid in sites for app in running(pid, "flwr-clientapp")]
    return [*running(superlink, "flwr-serverapp"), *clients]


def measure(federation: Federation) -> dict[str, int]:
    superlink, *sites = processes(federation)
    link, nodes = usage([superlink]), usage(sites)
    below = usage(children(federation))
    folder = federation.folder
    return {
        "superlink_rss": link.rss,
        "superlink_handles": link.handles,
        "superlink_threads": link.threads,
        "supernodes_rss": nodes.rss,
        "supernodes_handles": nodes.handles,
        "supernodes_threads": nodes.threads,
        "children_rss": below.rss,
        "processes": len(processes(federation)) + len(children(federation)),
        # SQLite's log has its own size, up to four megabytes, whatever is in it.
        **files("database", [folder / "state.db"]),
        **files("database_log", folder.glob("state.db-*")),
        **files("homes", folder.glob("home*")),
        **files("logs", [federation.logs]),
    }


def files(name: str, places: Iterable[Path]) -> dict[str, int]:
    found = [
        path
        for place in places
        for path in ([place] if place.is_file() else place.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return {
        f"{name}_files": len(found),
        f"{name}_bytes": sum(path.stat().st_size for path in found),
    }


def write_soak(rows: list[dict[str, float]]) -> None:
    """Write every measurement, with first, last, and growth of one run."""
    measured: dict[str, Any] = {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        settled = values[WARM_UP:] if len(values) > WARM_UP + 1 else values
        slope = np.polyfit(np.arange(len(settled)), settled, 1)[0]
        measured[key] = {
            "first": values[0],
            "last": values[-1],
            "per_run": round(float(slope), 3) or 0,
            "values": values,
        }
    found = {
        "runs": len(rows),
        "sites": SITES,
        "slope_from_run": WARM_UP + 1 if len(rows) > WARM_UP + 1 else 1,
        "python": platform.python_version(),
        "versions": versions(["flwr", "fedridge-flwr", "numpy", "scipy"]),
        "measured": measured,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found) + "\n", encoding="utf-8")
