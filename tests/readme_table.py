"""Put what was measured (run, alpha, experiments, benchmarks) into the documents."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from fedridge_benchmarks.report import Results
from fedridge_benchmarks.scaling import costs_of, table
from fedridge_deployment.demo import Demo, demo_table

from fedridge_flwr.words import human_bytes, text_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
TABLE = (
    "<!-- table: written by `make readme` from the last `make run` -->",
    "<!-- end of table -->",
)
EXPERIMENTS = (
    "<!-- experiments: written by `make readme` from simulations/results -->",
    "<!-- end of experiments -->",
)
BENCHMARKS = (
    "<!-- benchmarks: written by `make readme` from benchmarks/results -->",
    "<!-- end of benchmarks -->",
)
SCALING = (
    "<!-- scaling: written by `make readme` from benchmarks/results -->",
    "<!-- end of scaling -->",
)
PRIVACY = (
    "<!-- privacy: written by `make readme` from simulations/results -->",
    "<!-- end of privacy -->",
)
MODES = (
    "<!-- modes: written by `make readme` from simulations/results -->",
    "<!-- end of modes -->",
)
KERNELS = (
    "<!-- kernels: written by `make readme` from simulations/results -->",
    "<!-- end of kernels -->",
)
DEMO = (
    "<!-- demo: written by `make readme` from docs/results -->",
    "<!-- end of demo -->",
)
APP = (
    "<!-- app: written by `make readme` from deployment/sites -->",
    "<!-- end of app -->",
)
SHOWN_FILES = (
    "sites/data.py",
    "sites/client_app.py",
    "sites/server_app.py",
    "sites/client_app_legacy.py",
    "sites/server_app_legacy.py",
)
FAULTS = (
    "<!-- faults: written by `make readme` from docs/results -->",
    "<!-- end of faults -->",
)
SOAK = (
    "<!-- soak: written by `make readme` from docs/results -->",
    "<!-- end of soak -->",
)
MEASURED = ROOT / "benchmarks" / "results"
DEPLOYED = ROOT / "docs" / "results"
TRAFFIC = ("<!-- traffic -->", "<!-- end of traffic -->")


def put(text: str, marks: tuple[str, str], content: str) -> str:
    """Return the text with this content between the marks."""
    begin, end = marks
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text, found = pattern.subn(lambda _: f"{begin}{content}{end}", text)
    if found != 1:
        raise SystemExit(f"the document has lost its place for {begin}")
    return text


def traffic() -> str:
    report = json.loads((RESULTS / "alpha" / "report.json").read_text("utf-8"))
    chosen = report["selection"]
    rest = report["bytes_up"] - chosen["bytes_up"]
    return (
        f"{human_bytes(chosen['bytes_down'])} down and "
        f"{human_bytes(chosen['bytes_up'])} up for {len(chosen['alphas'])} candidates "
        f"and {report['n_features']} features, beside {human_bytes(rest)} up for the "
        "statistics"
    )


def main_table() -> str:
    """Return the measured half of the baselines' tables, without the settings."""
    file = ROOT / "simulations" / "results" / "baselines" / "table.md"
    tables = re.findall(r"(?:^\|.*\n)+", file.read_text(encoding="utf-8"), re.MULTILINE)
    return str(tables[-1]).strip()


def privacy_table() -> str:
    """Return the table of the methods that are really private."""
    file = ROOT / "simulations" / "results" / "privacy" / "table.md"
    text = file.read_text(encoding="utf-8").split("**Private:", 1)[-1]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return str(tables[0]).strip()


def _tables(experiment: str, after: str) -> list[list[list[str]]]:
    """Return the tables below a heading, each as rows of cells, heads first."""
    file = ROOT / "simulations" / "results" / experiment / "table.md"
    text = file.read_text(encoding="utf-8").split(after, 1)[1]
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    tables = [[_cells(line) for line in each.splitlines()] for each in found]
    return [[rows[0], *rows[2:]] for rows in tables]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def modes_table(*, short: bool) -> str:
    """Return all modes at the same rows; the short one is about those one may want."""
    heads, *rows = _tables("projection", "## All modes")[0]
    if short:
        rows = [r for r in rows if r[0] in ("equal", "i^-1", "i^-2") and r[1] != "cg"]
        heads, rows = heads[:6], [row[:6] for row in rows]
    return text_table(heads, rows, text_columns=2)


def kernels_table() -> str:
    """Return what matters of the table of labels."""
    heads, *rows = _tables("kernels", "## One of ten labels")[0]
    wanted = [0, 1, 2, 4, 5, 7, 8, 10]
    return text_table(
        [heads[k] for k in wanted], [[row[k] for k in wanted] for row in rows], 2
    )


def scaling_table() -> str:
    """Return the arithmetic of docs/scaling.md from the measured costs."""
    return table(costs_of(Results.read(MEASURED).curves))


def deployed_demo() -> str:
    """Return the table of the last demonstration that was kept."""
    return demo_table(Demo.load(ROOT / "docs" / "results" / "demo.json"))


def app_files() -> str:
    """Return the files of the app that docs/deployment.md is about."""
    folder, shown = ROOT / "deployment" / "sites", []
    for name in SHOWN_FILES:
        code = (folder / name).read_text(encoding="utf-8").strip()
        shown.append(f"`{name}`:\n\n```python\n{code}\n```")
    return "\n\n".join(shown)


def fuzz_page() -> None:
    """Put the last full run of the fuzz into its page."""
    sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
    from fuzz_table import PAGE, render

    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def faults_table() -> str:
    """Return what came of every fault, and where that was."""
    found = json.loads((DEPLOYED / "faults.json").read_text("utf-8"))
    lines = ["| fault | tried | outcome | s | what report or log say |"]
    lines += ["| :--- | ---: | :--- | ---: | :--- |"]
    for fault, row in sorted(found["faults"].items(), key=_place):
        cells = [
            fault,
            str(row["tried"]),
            "; or: ".join(row["outcomes"]),
            f"{statistics.median(row['seconds']):.0f}",
            "; or: ".join(row["reasons"]),
        ]
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    table = "\n".join(lines)
    notes = "".join(f"\n\nA note on {note}" for note in found.get("notes", []))
    return (
        f"{table}\n\nSeconds are the median from the fault's preparation to the last "
        "look at it, waiting included, on a busy machine of two cores with all of "
        f"{found['sites']} sites on it. {_versions(found)}{notes}"
    )


_ORDER = ("ClientApp", "`load_data`", "SuperNode", "a site", "SuperLink", "ServerApp")
_ORDER += ("two", "clock", "fedridge-flwr", "data")


def _place(item: tuple[str, Any]) -> int:
    """Return where a fault stands; those of one kind stay as they were recorded."""
    return next(k for k, start in enumerate(_ORDER) if item[0].startswith(start))


_GROWING = {
    "superlink_rss": "memory of the SuperLink",
    "superlink_handles": "its open files",
    "superlink_threads": "its threads",
    "supernodes_rss": "memory of the SuperNodes, all",
    "supernodes_handles": "their open files",
    "supernodes_threads": "their threads",
    "children_rss": "memory of processes that stay below them",
    "processes": "processes after a run",
    "database_bytes": "the SuperLink's database",
    "database_log_bytes": "SQLite's log beside it",
    "homes_files": "files in all FLWR_HOME",
    "homes_bytes": "bytes in all FLWR_HOME",
    "temporary_files": "files in the temporary folder",
    "output_files": "files in the output folders",
    "logs_bytes": "logs",
    "seconds": "seconds of `flwr run`",
}


def soak_table() -> str:
    """Return what grew over many runs on one SuperLink."""
    found = json.loads((DEPLOYED / "soak.json").read_text("utf-8"))
    rows = []
    for key, told in _GROWING.items():
        measured = found["measured"][key]
        in_bytes = key.endswith(("_rss", "_bytes"))
        sizes = [measured[k] for k in ("first", "last", "per_run")]
        rows.append([told, *(_size(size, in_bytes) for size in sizes)])
    last = f"after run {found['runs']}"
    table = text_table(["", "after run 1", last, "more with each run"], rows)
    return (
        f"{table}\n\n{found['runs']} runs one after another, {found['sites']} sites; "
        f"growth is the slope of a line through run {found['slope_from_run']} and all "
        f"later ones. {_versions(found)}"
    )


def _size(size: float, in_bytes: bool) -> str:
    if in_bytes:
        return f"-{human_bytes(-size)}" if size < 0 else human_bytes(size)
    return f"{size:.3g}"


def _versions(found: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {v}" for name, v in found["versions"].items())
    return f"Python {found['python']}, {told}."


def write_deployment() -> None:
    """Put faults and soak into their document."""
    document = ROOT / "docs" / "faults.md"
    text = document.read_text(encoding="utf-8")
    text = put(text, FAULTS, f"\n{faults_table()}\n")
    text = put(text, SOAK, f"\n{soak_table()}\n")
    document.write_text(text, encoding="utf-8")


def main() -> None:
    write_deployment()
    fuzz_page()
    readme, scaling = ROOT / "README.md", ROOT / "docs" / "scaling.md"
    text = readme.read_text(encoding="utf-8")
    text = put(text, EXPERIMENTS, f"\n{main_table()}\n")
    text = put(text, PRIVACY, f"\n{privacy_table()}\n")
    text = put(text, MODES, f"\n{modes_table(short=True)}\n")
    text = put(text, KERNELS, f"\n{kernels_table()}\n")
    many = ROOT / "docs" / "high-dimension.md"
    full = put(many.read_text("utf-8"), MODES, f"\n{modes_table(short=False)}\n")
    many.write_text(full, encoding="utf-8")
    benchmarks = (MEASURED / "table.md").read_text(encoding="utf-8").strip()
    text = put(text, BENCHMARKS, f"\n{benchmarks}\n")
    past = put(scaling.read_text(encoding="utf-8"), SCALING, f"\n{scaling_table()}\n")
    scaling.write_text(past, encoding="utf-8")
    text = put(text, DEMO, f"\n{deployed_demo()}\n")
    deployment = ROOT / "docs" / "deployment.md"
    guide = put(deployment.read_text("utf-8"), DEMO, f"\n{deployed_demo()}\n")
    guide = put(guide, APP, f"\n{app_files()}\n")
    deployment.write_text(guide, encoding="utf-8")
    if (RESULTS / "table.md").exists() and (RESULTS / "alpha").exists():
        table = (RESULTS / "table.md").read_text(encoding="utf-8").strip()
        text = put(text, TABLE, f"\n{table}\n")
        text = put(text, TRAFFIC, traffic())
        docs = ROOT / "docs"
        docs.mkdir(exist_ok=True)
        shutil.copy(RESULTS / "comparison.png", docs / "comparison.png")
        shutil.copy(RESULTS / "alpha" / "alpha.png", docs / "alpha.png")
    else:
        print("no results of 'make run' and 'make alpha' here: their part stays")
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
