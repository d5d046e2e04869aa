"""Put what `make run` and `make alpha` measured into README.md."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from fedridge_flwr.words import human_bytes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
TABLE = (
    "<!-- table: written by `make readme` from the last `make run` -->",
    "<!-- end of table -->",
)
TRAFFIC = ("<!-- traffic -->", "<!-- end of traffic -->")


def put(text: str, marks: tuple[str, str], content: str) -> str:
    begin, end = marks
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text, found = pattern.subn(lambda _: f"{begin}{content}{end}", text)
    if found != 1:
        raise SystemExit(f"README.md has lost its place for {begin}")
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


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    table = (RESULTS / "table.md").read_text(encoding="utf-8").strip()
    text = put(text, TABLE, f"\n{table}\n")
    text = put(text, TRAFFIC, traffic())
    readme.write_text(text, encoding="utf-8")
    docs = ROOT / "docs"
    docs.mkdir(exist_ok=True)
    shutil.copy(RESULTS / "comparison.png", docs / "comparison.png")
    shutil.copy(RESULTS / "alpha" / "alpha.png", docs / "alpha.png")


if __name__ == "__main__":
    main()
