"""What the last full run of the fuzz found, as JSON and as the table in the docs."""

from __future__ import annotations

import json
import platform
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results" / "fuzz.json"
PAGE = ROOT / "docs" / "explanation" / "hostile-clients.md"
MARKS = (
    "<!-- fuzz: written by `make fuzz`, or `make readme` from docs/results -->",
    "<!-- end of fuzz -->",
)


def to_json(tally: Any, first_seed: int) -> dict[str, Any]:
    """Return all that a run has to tell."""
    import flwr
    import numpy
    from fuzz_run import OUTCOMES

    return {
        "date": datetime.now(UTC).date().isoformat(),
        "seed": first_seed,
        "seconds": round(tally.seconds, 1),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "flwr": flwr.__version__,
        "tried": tally.tried,
        "read": tally.read,
        "totals": {outcome: tally.total(outcome) for outcome in OUTCOMES},
        "cases": [
            {"reader": reader, "attack": attack, "tried": sum(counter.values())}
            | {outcome: counter[outcome] for outcome in OUTCOMES}
            for (reader, attack), counter in tally.counts.items()
        ],
        "findings": [str(each) for each in tally.findings[:50]],
    }


def table(found: dict[str, Any]) -> str:
    """Return the two tables of the page: by what was read, and by what was done."""
    from fedridge_flwr._text import text_table

    outcomes = list(found["totals"])
    heads = ["tried", *outcomes]

    def by(key: str) -> list[list[str]]:
        rows: dict[str, Counter[str]] = {}
        for case in found["cases"]:
            counter = rows.setdefault(_label(case, key), Counter())
            counter.update({head: case[head] for head in heads})
        total: Counter[str] = sum(rows.values(), Counter())
        rows["all"] = total
        return [[name, *(f"{c[head]:,}" for head in heads)] for name, c in rows.items()]

    words = (
        f"{found['tried']:,} cases, of which {found['read']:,} reached a reader of "
        f"ours, seeds from {found['seed']}, in "
        f"{found['seconds']:.0f} s of wall time; Python {found['python']}, NumPy "
        f"{found['numpy']}, Flower {found['flwr']}, {found['date']}."
    )
    first = text_table(["read", *heads], by("reader"))
    second = text_table(["done to it", *heads], by("attack"))
    return f"{words}\n\n{first}\n\n{second}"


_FILES = ("model file", "privacy ledger", "feature map")
_ROUNDS = ("hostile beside honest", "all hostile", "handed over")


def _label(case: dict[str, Any], key: str) -> str:
    """Name a row; damage to files and whole rounds have names of their own."""
    if key == "attack" and case["reader"] in _FILES:
        return f"file: {case['attack']}"
    if key == "attack" and case["reader"] in _ROUNDS:
        return f"round: {case['reader']}, {case['attack']}"
    if key == "attack" and case["reader"] == "memory":
        return "memory is measured"
    return str(case[key])


def render(text: str) -> str:
    """Return the page with the table of the committed results."""
    from documents import put

    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return put(text, MARKS, f"\n{table(found)}\n")


def write(tally: Any, first_seed: int) -> None:
    """Keep a full run, and put its table into the page."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(tally, first_seed), indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
