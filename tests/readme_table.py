"""Put the table and the figure of the last `make run` into README.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- table: written by `make readme` from the last `make run` -->"
END = "<!-- end of table -->"


def main() -> None:
    table = (ROOT / "results" / "table.md").read_text(encoding="utf-8").strip()
    readme = ROOT / "README.md"
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    text, found = pattern.subn(
        lambda _: f"{BEGIN}\n{table}\n{END}", readme.read_text(encoding="utf-8")
    )
    if found != 1:
        raise SystemExit("README.md has lost the place for its table")
    readme.write_text(text, encoding="utf-8")
    figure = ROOT / "docs" / "comparison.png"
    figure.parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / "results" / "comparison.png", figure)


if __name__ == "__main__":
    main()
