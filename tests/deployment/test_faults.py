"""Everything that may go wrong in a deployment: run, looked at, recorded.

``FAULT_TIMES=3`` tries every fault three times, ``FAULT_RECORD=1`` adds what came of it
to ``docs/results/faults.json``.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from deployed import assert_pooled, read_report, wait_until
from faulty import N_SITES, OVERHEAD, Faulty, Record

import fedridge_flwr

pytestmark = [pytest.mark.deployment, pytest.mark.slow]

TIMES = int(os.environ.get("FAULT_TIMES", "1"))
EVERYBODY = range(N_SITES)
ALL_WELL = "exact, all sites"
WITHOUT = "exact without the site, which is named"
ENDS = "the SuperNode is refused and ends; exact without it"


@pytest.fixture(params=range(TIMES), autouse=True)
def attempt(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# ---- the ClientApp ---------------------------------------------------------------


def test_client_apps_that_crash_or_raise(faulty: Faulty, record: Record) -> None:
    faults = {
        "site-1": ("crash before", "ClientApp crashes before it computes"),
        "site-2": ("crash during", "ClientApp crashes while it computes"),
        "site-3": ("crash after", "ClientApp crashes before it answers"),
        "site-4": ("raise", "`load_data` raises"),
    }
    with record.trying(*(told for _, told in faults.values())) as found:
        for name, (fault, _) in faults.items():
            faulty.fault(name, fault)
        output, report = faulty.run(timeout=120.0)
        faulty.check(output, report, 0)
        assert report["seconds"]["train"] < 120.0 + OVERHEAD
        assert "ConnectionError" in faulty.reason(report, "site-4")
        for name, (_, told) in faults.items():
            found[told] = WITHOUT, faulty.reason(report, name)


# ---- SuperNodes --------------------------------------------------------------------


def test_supernode_restarted_between_two_runs(faulty: Faulty, record: Record) -> None:
    fault = "SuperNode killed and restarted between two runs"
    with record.trying(fault) as found:
        faulty.site("site-2").kill()
        faulty.restart("site-2")
        output, report = faulty.run()
        faulty.check(output, report, *EVERYBODY)
        found[fault] = ALL_WELL, ""


def test_supernode_restarted_in_a_run(faulty: Faulty, record: Record) -> None:
    fault = "SuperNode killed while the run waits for it, restarted at once"
    with record.trying(fault) as found:
        faulty.hold("site-2")
        output = faulty.output()
        run = faulty.submit(output, timeout=120.0)
        faulty.wait_until_asked("site-2")
        faulty.site("site-2").kill()
        faulty.release("site-2")
        began, log = time.monotonic(), len(faulty.site("site-2").log)
        faulty.restart("site-2")
        away = time.monotonic() - began
        refused = faulty.site("site-2").log[log:].count("Failed to activate")
        print(f"let in again after {away:.0f} s, refused {refused} times")
        report = faulty.end(run, output)
        assert report["seconds"]["train"] < 120.0 + OVERHEAD
        # Flower hands a message out once: who got it and died does not get it again.
        faulty.check(output, report, 0, 1, 3, 4)
        found[fault] = WITHOUT, faulty.reason(report, "site-2")


def test_supernode_that_hangs(faulty: Faulty, record: Record) -> None:
    fault = "SuperNode hangs past the timeout and goes on later"
    with record.trying(fault) as found:
        faulty.hold("site-2")
        output = faulty.output()
        run = faulty.submit(output, timeout=90.0)
        faulty.wait_until_asked("site-2")
        faulty.site("site-2").pause()
        report = faulty.end(run, output)
        assert report["seconds"]["train"] < 90.0 + OVERHEAD
        faulty.check(output, report, 0, 1, 3, 4)
        found[fault] = (
            f"{WITHOUT}; in the next run again",
            faulty.reason(report, "site-2"),
        )
        faulty.release("site-2")
        faulty.site("site-2").resume()
        # The answer to the first run is on its way while the second one asks.
        output, report = faulty.run()
        faulty.check(output, report, *EVERYBODY)


def test_site_joins_while_the_run_waits(faulty: Faulty, record: Record) -> None:
    fault = "a site joins while the run waits for enough sites"
    with record.trying(fault) as found:
        faulty.site("site-4").stop()
        output = faulty.output()
        run = faulty.submit(output, min_sites=N_SITES, timeout=120.0)
        wait_until(lambda: bool(faulty.server_apps()), 120.0, "a ServerApp")
        time.sleep(8.0)
        assert not list(faulty.gate.glob("*.asked"))
        faulty.restart("site-4")
        report = faulty.end(run, output)
        faulty.check(output, report, *EVERYBODY)
        found[fault] = ALL_WELL, ""


def test_site_joins_after_the_requests(faulty: Faulty, record: Record) -> None:
    fault = "a site joins after the requests were sent"
    with record.trying(fault) as found:
        faulty.site("site-4").stop()
        faulty.hold("site-2")
        output = faulty.output()
        run = faulty.submit(output, min_sites=N_SITES - 1, timeout=120.0)
        faulty.wait_until_asked("site-2")
        faulty.restart("site-4")
        faulty.release("site-2")
        report = faulty.end(run, output)
        faulty.check(output, report, 0, 1, 2, 3)
        assert report["failures"] == {}
        output, report = faulty.run()
        faulty.check(output, report, *EVERYBODY)
        found[fault] = "exact without the site; in the next run it is there", ""


# ---- SuperLink and ServerApp -------------------------------------------------------


def test_superlink_restarted_in_a_run(faulty: Faulty, record: Record) -> None:
    fault = "SuperLink killed and restarted in a run, same database"
    with record.trying(fault) as found:
        faulty.hold("site-2")
        output = faulty.output()
        run = faulty.submit(output, timeout=120.0)
        faulty.wait_until_asked("site-2")
        pids = {n: s.process.pid for n, s in faulty.federation.sites.items()}  # type: ignore[union-attr]
        faulty.federation.kill_superlink()
        time.sleep(5.0)
        faulty.federation.start_superlink()
        early = faulty.federation.status(run)
        faulty.release("site-2")
        again, report = faulty.run(timeout=120.0)
        faulty.check(again, report, *EVERYBODY)
        assert not output.exists()
        # Nobody touched the sites.
        now = {n: s.process.pid for n, s in faulty.federation.sites.items()}  # type: ignore[union-attr]
        assert now == pids
        status = faulty.federation.finish(run)
        assert status == "finished:failed"
        found[fault] = (
            "that run is lost and nothing of it is written; sites come back by "
            "themselves; run again: exact, all sites",
            f"`flwr list`: {early} at first, then {status}",
        )


def test_server_app_killed(faulty: Faulty, record: Record) -> None:
    fault = "ServerApp killed in a run"
    with record.trying(fault) as found:
        faulty.hold("site-2")
        output = faulty.output()
        run = faulty.submit(output, timeout=120.0)
        faulty.wait_until_asked("site-2")
        [server_app] = faulty.server_apps()
        os.kill(server_app, 9)
        early = faulty.federation.status(run)
        faulty.release("site-2")
        again, report = faulty.run(timeout=120.0)
        faulty.check(again, report, *EVERYBODY)
        assert not output.exists()
        status = faulty.federation.finish(run)
        assert status == "finished:failed"
        found[fault] = (
            "that run is lost and nothing of it is written; run again: exact, all "
            "sites",
            f"`flwr list`: {early} at first, then {status}",
        )


def test_two_runs_at_once(faulty: Faulty, record: Record) -> None:
    fault = "two runs at once, with different alpha"
    with record.trying(fault) as found:
        alphas, outputs, runs = (1.0, 100.0), [], []
        for alpha in alphas:
            outputs.append(faulty.output())
            runs.append(faulty.submit(outputs[-1], timeout=180.0, alpha=alpha))
        for alpha, run, output in zip(alphas, runs, outputs, strict=True):
            wait_until((output / "report.json").exists, 300.0, "both runs")
            faulty.finish(run)
            report = read_report(output)
            assert set(report["participants"]) == faulty.ids(*faulty.federation.sites)
            assert_pooled(output, faulty.data, alpha)
        found[fault] = "both exact, all sites", ""


# ---- clocks ------------------------------------------------------------------------


def shown(seconds: float) -> str:
    size = (
        f"{abs(seconds):g} s" if abs(seconds) < 3600 else f"{abs(seconds) / 3600:g} h"
    )
    return f"{size} {'ahead' if seconds > 0 else 'behind'}"


@pytest.mark.parametrize("shift", [-10, -7200, 10, 7200])
def test_clock_of_a_site(faulty: Faulty, record: Record, shift: int) -> None:
    fault = f"clock of a site {shown(shift)} when it starts"
    site, machine = faulty.site("site-2"), faulty.machine("site-2")
    with record.trying(fault) as found:
        site.stop()
        (machine / "shift").write_text(str(shift))
        if shift == -10:
            faulty.restart("site-2")
            output, report = faulty.run()
            faulty.check(output, report, *EVERYBODY)
            assert_shifted(machine / "flwr-clientapp.time", shift)
            found[fault] = ALL_WELL, ""
            return
        before = len(site.log)
        site.start()
        wait_until(lambda: not site.running, 120.0, "the end of the SuperNode")
        reason = refusal(faulty, site.log[before:])
        assert_shifted(machine / "flower-supernode.time", shift)
        output, report = faulty.run(min_sites=N_SITES - 1)
        faulty.check(output, report, 0, 1, 3, 4)
        found[fault] = ENDS, reason


def test_clock_of_a_site_jumps(faulty: Faulty, record: Record) -> None:
    fault = "clock of a site jumps 1 min ahead while its SuperNode runs"
    site, machine = faulty.site("site-2"), faulty.machine("site-2")
    with record.trying(fault) as found:
        site.stop()
        (machine / "shift").write_text("0")
        faulty.restart("site-2")
        before = len(site.log)
        (machine / "shift").write_text("60")
        wait_until(lambda: not site.running, 120.0, "the end of the SuperNode")
        reason = refusal(faulty, site.log[before:])
        output, report = faulty.run(min_sites=N_SITES - 1)
        faulty.check(output, report, 0, 1, 3, 4)
        found[fault] = ENDS, reason


@pytest.mark.parametrize("shift", [-7200, 7200])
def test_clock_of_the_server_app(faulty: Faulty, record: Record, shift: int) -> None:
    fault = f"clock of the ServerApp {shown(shift)}"
    with record.trying(fault) as found:
        machine = faulty.machine("superlink")
        (machine / "flwr-serverapp.shift").write_text(str(shift))
        output, report = faulty.run()
        assert_shifted(machine / "flwr-serverapp.time", shift)
        faulty.check(output, report, *EVERYBODY)
        assert report["seconds"]["train"] < 120.0 + OVERHEAD
        found[fault] = ALL_WELL, ""


def refusal(faulty: Faulty, log: str) -> str:
    """Return where the 401 is told: by the SuperLink, and at the site perhaps."""
    server = faulty.server_log().splitlines()
    assert any("/v1/fleet/" in line and line.endswith("401") for line in server)
    assert "terminated gracefully" in log
    told = "401 Unauthorized"
    at_the_site = told if told in log else "only `terminated gracefully.`"
    return f"status 401 in the SuperLink's log; in the SuperNode's {at_the_site}"


def assert_shifted(file: Path, shift: float) -> None:
    written = file.stat().st_mtime
    for seconds in map(float, file.read_text().split()):
        assert seconds - written == pytest.approx(shift, abs=5.0)


# ---- versions ----------------------------------------------------------------------


def other_version(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Copy the package, with other lines in some of its files."""
    package = folder / "fedridge_flwr"
    source = Path(fedridge_flwr.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in changes:
        path = package / file
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_sites_with_other_versions(
    faulty: Faulty, record: Record, tmp_path: Path
) -> None:
    older, newer, unknown, absent = faults = (
        "fedridge-flwr of a site too old for the app (ImportError)",
        "fedridge-flwr of a site answers in another version",
        "fedridge-flwr of a site does not know the server's version",
        "fedridge-flwr not installed at a site",
    )
    protocol = ("flower/wire.py", "\nPROTOCOL = 1\n", "\nPROTOCOL = 9\n")
    knows = ("flower/wire.py", "_KNOWN_PROTOCOLS = (", "_KNOWN_PROTOCOLS = (1, ")
    name = ("__init__.py", "ridge_client_app", "ridge_app")
    with record.trying(*faults) as found:
        for site, changes in {
            "site-1": [name, ("flower/__init__.py", "ridge_client_app", "ridge_app")],
            "site-2": [protocol, knows],
            "site-3": [protocol],
        }.items():
            package = other_version(tmp_path / site, *changes)
            (faulty.machine(site) / "flwr-clientapp.path").write_text(str(package))
        (faulty.machine("site-4") / "flwr-clientapp.absent").write_text("fedridge_flwr")
        output, report = faulty.run()
        faulty.check(output, report, 0)
        reasons = {
            fault: faulty.reason(report, f"site-{k}")
            for k, fault in zip((1, 2, 3, 4), faults, strict=True)
        }
        for fault, reason in reasons.items():
            found[fault] = WITHOUT, reason
        for fault in (newer, unknown):
            assert "1" in reasons[fault]
            assert "9" in reasons[fault]
            assert "install the same fedridge-flwr" in reasons[fault]
        for fault in (older, absent):
            assert "fedridge_flwr" in reasons[fault]
            assert "install the same fedridge-flwr" in reasons[fault]
            assert "/" not in reasons[fault]


# ---- data --------------------------------------------------------------------------


def test_sites_with_bad_data(faulty: Faulty, record: Record) -> None:
    column, text, nan = faults = (
        "data file of a site with another column",
        "data file of a site with text in a column",
        "data file of a site with an empty cell",
    )
    head, *rows = faulty.data[2].read_text().splitlines()
    with record.trying(*faults) as found:
        faulty.spoil(2, "\n".join([f"other{head}", *rows, ""]).encode())
        faulty.spoil(3, with_first_cell(faulty.data[3], "twelve"))
        faulty.spoil(4, with_first_cell(faulty.data[4], ""))
        output, report = faulty.run()
        # Two against one: the names that most sites have are taken.
        faulty.check(output, report, 0, 1)
        for k, fault in zip((2, 3, 4), faults, strict=True):
            found[fault] = WITHOUT, faulty.reason(report, f"site-{k}")
        assert "other feature names" in found[column][1]
        assert "must be numeric" in found[text][1]
        assert "twelve" not in found[text][1]
        assert "NaN" in found[nan][1]


def test_sites_with_little_data(faulty: Faulty, record: Record) -> None:
    few, without_rows, empty, missing = faults = (
        "data file of a site with fewer rows than `min_rows`",
        "data file of a site with a head and no rows",
        "data file of a site empty",
        "data file of a site missing",
    )
    head, *rows = faulty.data[1].read_text().splitlines()
    with record.trying(*faults) as found:
        faulty.spoil(1, "\n".join([head, *rows[:19], ""]).encode())
        faulty.spoil(2, f"{head}\n".encode())
        faulty.spoil(3, b"")
        faulty.spoil(4, None)
        output, report = faulty.run()
        faulty.check(output, report, 0)
        for k, fault in zip((1, 2, 3, 4), faults, strict=True):
            found[fault] = WITHOUT, faulty.reason(report, f"site-{k}")
        assert "fewer rows than its min_rows=20" in found[few][1]
        assert "fewer rows" in found[without_rows][1]
        assert "EmptyDataError" in found[empty][1]
        assert "FileNotFoundError" in found[missing][1]


def with_first_cell(file: Path, cell: str) -> bytes:
    head, first, *rest = file.read_text().splitlines()
    changed = ",".join([cell, *first.split(",")[1:]])
    return "\n".join([head, changed, *rest, ""]).encode()
