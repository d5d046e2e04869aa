"""What was measured, as the tables that README and docs/ show."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedridge_benchmarks.report import Results
from fedridge_benchmarks.scaling import costs_of, table
from fedridge_deployment.demo import Demo, demo_table
from typer.testing import CliRunner

from fedridge_flwr._text import human_bytes, text_table
from fedridge_flwr.cli.main import app as cli

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "results"
MEASURED = ROOT / "benchmarks" / "results"
EXPERIMENTS = ROOT / "simulations" / "results"
DEPLOYED = ROOT / "docs" / "results"
SHOWN_FILES = (
    "sites/data.py",
    "sites/client_app.py",
    "sites/server_app.py",
    "sites/client_app_legacy.py",
    "sites/server_app_legacy.py",
)
HOSPITALS = [
    *("fit", str(ROOT / "examples" / "hospitals"), "--alpha", "0"),
    *("-f", "bp ~ age + C(sex) + C(smoker) + chol"),
]
# What a visitor asks first; all of them are in docs/reference/benchmarks.md.
SHOWN_RATIOS = (
    "FedAvg with 100 rounds against one FedRidge round, K=20",
    "FedAvg with 100 rounds against one FedRidge round, K=500",
    "one FedRidge round against a no-op round, K=10,000",
    "distance of its coefficients to pooled scikit-learn, K=10,000",
    "from_data against X.T @ X, 400,000 x 200, all threads",
    "covtype",
    "server's peak memory",
)


def run_table() -> str | None:
    """Return the table of the last `make run`, if there was one here."""
    file = RUN / "table.md"
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def head_to_head() -> str:
    """Return the same regression by four tools: lines, rounds, seconds, result.

    Rounds, seconds and distances are those of the table in README.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    measured = {
        row[0].split(" (")[0]: row
        for table in _rows(readme)
        for row in table
        if len(row) == 8
    }
    ours, fedavg = measured["One-Shot"], measured["FedAvg"]
    heads = ["tool", "rows", "lines of code", "rounds", "seconds", "coefficients"]
    heads += ["standard errors"]
    rows = [
        [
            "scikit-learn `Ridge`",
            "pooled",
            "2",
            "-",
            "below 0.01",
            "the reference",
            "no",
        ],
        ["statsmodels `OLS`", "pooled", "2", "-", "below 0.01", "at alpha 0", "yes"],
        [
            *("Flower `FedAvg`", "at 20 sites", str(_app_lines("before"))),
            *(fedavg[1], fedavg[7], f"off by {fedavg[4]}", "no"),
        ],
        [
            *("`FedRidge`", "at 20 sites", str(_app_lines("after"))),
            *(ours[1], ours[7], f"equal, to {ours[4]}", "yes, from the same round"),
        ],
    ]
    return text_table(heads, rows, text_columns=2)


def _app_lines(folder: str) -> int:
    """Return the lines of code of an example's client and server, without comments."""
    app = ROOT / "examples" / "message_api" / folder / "diabetes"
    code = ""
    for name in ("client_app.py", "server_app.py"):
        text = (app / name).read_text(encoding="utf-8")
        code += re.sub(r'(?s)""".*?"""', "", text)
    return sum(
        bool(line.strip()) and not line.strip().startswith("#")
        for line in code.splitlines()
    )


def hospitals() -> str:
    """Return what `fedridge fit` prints about the invented hospitals."""
    printed = CliRunner().invoke(cli, HOSPITALS).stdout
    return f"```text\n{printed.split('One-shot federated ridge')[0].strip()}\n```"


def traffic() -> str | None:
    """Return what choosing alpha cost in the last `make alpha`, if there was one."""
    if not (RUN / "alpha" / "report.json").exists():
        return None
    report = json.loads((RUN / "alpha" / "report.json").read_text("utf-8"))
    chosen = report["selection"]
    rest = report["bytes_up"] - chosen["bytes_up"]
    return (
        f"{human_bytes(chosen['bytes_down'])} down and "
        f"{human_bytes(chosen['bytes_up'])} up for {len(chosen['alphas'])} candidates "
        f"and {report['n_features']} features, in addition to {human_bytes(rest)} up "
        "for the statistics"
    )


def main_table() -> str:
    """Return the measured half of the baselines' tables, without the settings."""
    file = EXPERIMENTS / "baselines" / "table.md"
    tables = re.findall(r"(?:^\|.*\n)+", file.read_text(encoding="utf-8"), re.MULTILINE)
    return str(tables[-1]).strip()


def secure_rounds_table() -> str:
    """Return the table of noise that is added once, in several rounds."""
    text = (EXPERIMENTS / "privacy" / "table.md").read_text("utf-8")
    return text.split("**Noise once, in several rounds**")[1].split("\n\n")[1]


def privacy_table() -> str:
    """Return the table of the methods that are really private."""
    file = EXPERIMENTS / "privacy" / "table.md"
    text = file.read_text(encoding="utf-8").split("**Private:", 1)[-1]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return str(tables[0]).strip()


def _tables(experiment: str, after: str) -> list[list[list[str]]]:
    """Return the tables below a heading, each as rows of cells, heads first."""
    file = EXPERIMENTS / experiment / "table.md"
    return _rows(file.read_text(encoding="utf-8").split(after, 1)[1])


def _rows(text: str) -> list[list[list[str]]]:
    """Return the tables of a text, each as rows of cells, heads first."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    tables = [[_cells(line) for line in each.splitlines()] for each in found]
    return [[rows[0], *rows[2:]] for rows in tables]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def modes_table() -> str:
    """Return all modes at the same rows."""
    heads, *rows = _tables("projection", "## All modes")[0]
    return text_table(heads, rows, text_columns=2)


def kernels_table() -> str:
    """Return what matters of the table of labels."""
    heads, *rows = _tables("kernels", "## One of ten labels")[0]
    wanted = [0, 1, 2, 4, 5, 7, 8, 10]
    return text_table(
        [heads[k] for k in wanted], [[row[k] for k in wanted] for row in rows], 2
    )


def families_table() -> str:
    """Return rounds, bytes and seconds of logistic regression."""
    heads, *rows = _tables("families", "# Logistic regression against FedAvg")[0]
    return text_table(heads, rows, 2)


def verdicts() -> str:
    """Return the experiments and what came of each, with links from docs/."""
    heads, *rows = _rows((EXPERIMENTS / "REPORT.md").read_text("utf-8"))[0]
    folder = EXPERIMENTS.relative_to(ROOT)
    rows = [[row[0].replace("](", f"](../{folder}/"), *row[1:]] for row in rows]
    return text_table(heads, rows, len(heads))


def benchmark_table(*, short: bool) -> str:
    """Return what it costs; the short one is about what a visitor asks first."""
    text = (MEASURED / "table.md").read_text(encoding="utf-8").strip()
    if not short:
        return text
    heads, *rows = _rows(text)[0]
    chosen = [row[:4] for row in rows if row[0].startswith(SHOWN_RATIOS)]
    shown, machine = (
        text_table(heads[:4], chosen, text_columns=2),
        text.splitlines()[-1],
    )
    return f"{shown}\n\n{machine}"


def engines_table() -> str:
    """Return what statistics from engines cost against reading all."""
    return (MEASURED / "engines" / "table.md").read_text(encoding="utf-8").strip()


def scaling_table() -> str:
    """Return the arithmetic of docs/explanation/scaling.md from the measured costs."""
    return table(costs_of(Results.read(MEASURED).curves))


def deployed_demo() -> str:
    """Return the table of the last demonstration that was kept."""
    return demo_table(Demo.load(DEPLOYED / "demo.json"))


def app_files(names: Sequence[str] = SHOWN_FILES) -> str:
    """Return files of the app that docs/how-to/deployment.md is about."""
    folder, shown = ROOT / "deployment" / "sites", []
    for name in names:
        code = (folder / name).read_text(encoding="utf-8").strip()
        shown.append(f"`{name}`:\n\n```python\n{code}\n```")
    return "\n\n".join(shown)


def faults_table() -> str:
    """Return what came of every fault, and where that was."""
    found = json.loads((DEPLOYED / "faults.json").read_text("utf-8"))
    lines = ["| fault | tries | outcome | s | message in the report or log |"]
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
        f"{table}\n\n*s* is the median number of seconds from the preparation of the "
        "fault to the last check, including waiting, with all "
        f"{found['sites']} sites on one busy machine with two cores. "
        f"{_versions(found)}{notes}"
    )


_ORDER = ("ClientApp", "`load_data`", "SuperNode", "a site", "SuperLink", "ServerApp")
_ORDER += ("two", "clock", "fedridge-flwr", "data")


def _place(item: tuple[str, Any]) -> int:
    """Return where a fault stands; those of one kind stay as they were recorded."""
    return next(k for k, start in enumerate(_ORDER) if item[0].startswith(start))


_GROWING = {
    "superlink_rss": "memory of the SuperLink",
    "superlink_handles": "open files of the SuperLink",
    "superlink_threads": "threads of the SuperLink",
    "supernodes_rss": "memory of all SuperNodes",
    "supernodes_handles": "open files of all SuperNodes",
    "supernodes_threads": "threads of all SuperNodes",
    "children_rss": "memory of their child processes",
    "processes": "processes after a run",
    "database_bytes": "the SuperLink's database",
    "database_log_bytes": "its write-ahead log",
    "homes_files": "files in the FLWR_HOME folders",
    "homes_bytes": "bytes in the FLWR_HOME folders",
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
    table = text_table(["", "after run 1", last, "growth per run"], rows)
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


def spoiled_tables() -> str:
    """Return what every spoiled table of the tests gives."""
    sys.path.insert(0, str(ROOT / "tests" / "data"))
    from spoiled import spoiled_table

    return str(spoiled_table())


def readers_table() -> str:
    """Return what `tools/time_readers.py` measured."""
    found = json.loads((DEPLOYED / "readers.json").read_text("utf-8"))
    versions = found.pop("versions")
    rows = []
    for file, runs in found.items():
        best = min(run["cpu_seconds"] for run in runs)
        rows += [
            [
                file,
                run["reader"],
                f"{run['cpu_seconds']:.1f}",
                f"{run['cpu_seconds'] / best:.1f}",
                f"{run['peak_mb']:,}",
            ]
            for run in runs
        ]
    heads = ["file", "reader", "CPU seconds", "ratio to the best", "peak memory, MB"]
    shown = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"{text_table(heads, rows, 2)}\n\nMeasured with {shown}."


def private_cost_table() -> str:
    """Return what noise takes of R², and with how many rows it takes a tenth."""
    found = json.loads((DEPLOYED / "private-costs.json").read_text("utf-8"))["costs"]
    sizes = sorted({each["rows"] for each in found})
    cells = {(f["features"], f["epsilon"], f["rows"]): f for f in found}
    rows = [
        [
            str(features),
            f"{epsilon:g}",
            *(f"{cells[features, epsilon, n]['lost']:.0%}" for n in sizes),
            f"{cells[features, epsilon, sizes[0]]['rows_needed']:,.0f}",
        ]
        for features, epsilon in sorted({key[:2] for key in cells})
    ]
    heads = [
        "features",
        "ε",
        *(f"{n:,} rows in all" for n in sizes),
        "rows for a tenth",
    ]
    return text_table(heads, rows)


def private_choice_table() -> str:
    """Return what "auto" loses on correlated features, and if it is told of them."""
    found = json.loads((DEPLOYED / "private-costs.json").read_text("utf-8"))["choices"]
    names = ("default", "auto", "decay")
    rows = [
        [f"{each['epsilon']:g}", *(f"{each[name]:.0%}" for name in names)]
        for each in found
    ]
    heads = ["ε", "default", '`"auto"`', '`"auto"`, `"decay": 1`']
    return text_table(heads, rows)


def private_interval_table() -> str:
    """Return how often 95% intervals of private models cover, and how wide they are."""
    found = json.loads((DEPLOYED / "private-costs.json").read_text("utf-8"))["coverage"]
    rows = []
    for each in found:
        own = each["setting"]
        what = ["an intercept"] * own["intercept"] + ["2 targets"] * (
            own["targets"] - 1
        )
        what += [f"{own['rows']} rows per client"] * (own["rows"] != 400)
        known = each["coverage"] is not None
        rows.append(
            [
                str(own["features"]),
                f"{own['epsilon']:g}",
                ", ".join([own["variances"], *what]),
                f"{each['withheld']} of {each['releases']}",
                f"{each['coverage']:.1%}" if known else "withheld",
                f"{each['half_width']:.3f}" if known else "",
                f"{each['exact_half_width']:.4f}" if known else "",
            ]
        )
    heads = [
        "features",
        "ε",
        "variances",
        "withheld",
        "coverage",
        "half-width",
        "exact",
    ]
    return text_table(heads, rows)


def nist_table() -> str:
    """Return the correct digits of NIST's regressions, by method and by number."""
    kept = json.loads((DEPLOYED / "nist.json").read_text("utf-8"))
    found = kept["digits"]
    methods = list(next(iter(found.values())))

    def shown(result: dict[str, Any] | None, number: str) -> str:
        return "refused" if result is None else f"{result[number]:.1f}"

    first = text_table(
        ["coefficients", *methods],
        [
            [name, *(shown(each[method], "coefficients") for method in methods)]
            for name, each in found.items()
        ],
    )
    compared = {"triangular, 3 clients": "triangular", "statsmodels": "statsmodels"}
    numbers = {"se": "standard errors", "sigma": "residual error", "r2": "R²"}
    pairs = [(method, key) for key in numbers for method in compared]
    second = text_table(
        ["", *(f"{numbers[key]}, {compared[method]}" for method, key in pairs)],
        [
            [name, *(shown(each[method], key) for method, key in pairs)]
            for name, each in found.items()
        ],
    )
    versions = ", ".join(f"{name} {text}" for name, text in kept["versions"].items())
    return f"{first}\n\n{second}\n\nMeasured on {kept['machine']} with {versions}."
