"""Put what was measured into README and docs/: `make readme`.

A page says what it wants between two marks, ``<!-- NAME: written by `make readme` from
SOURCE -->`` and ``<!-- end of NAME -->``. Nothing between them is written by hand, and
`tests/project/test_documents.py` compares all of it with the code that writes it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import document_tables as tables
from document_tables import ROOT, RUN
from flamby_heart import flamby_table
from migrations import migration_diff
from reference import SOURCE, contents

EXPERIMENTS, DEPLOYED = "simulations/results", "docs/results"
BENCHMARKS = "benchmarks/results"
SPOILED = "docs/reference/spoiled-tables.md"
MEASUREMENTS = "docs/measurements.md"
HIGH_DIMENSION = "docs/explanation/high-dimension.md"

PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/*/*.md"),
    *ROOT.glob("simulations/results/*.md"),
    *(ROOT / name / "README.md" for name in ("benchmarks", "deployment", "examples")),
    ROOT / "simulations" / "README.md",
]
"""All that people read, but for notebooks and tables of single experiments."""


@dataclass(frozen=True)
class Place:
    """Where on which page something is written, and what.

    `content` returns None where nothing was measured on this machine: the page then
    stays as it is.
    """

    name: str
    source: str
    page: str
    content: Callable[[], str | None]

    @property
    def marks(self) -> tuple[str, str]:
        """What stands before and after the content."""
        return (
            f"<!-- {self.name}: written by `make readme` from {self.source} -->",
            f"<!-- end of {self.name} -->",
        )

    @property
    def path(self) -> Path:
        """The page's file."""
        return ROOT / self.page

    def shown(self) -> str:
        """Return what the page has there now."""
        begin, end = self.marks
        text = self.path.read_text(encoding="utf-8")
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(lost(self.page, self.marks))
        return text.split(begin)[1].split(end)[0].strip()

    def write(self) -> None:
        """Put the content there."""
        content = self.content()
        if content is None:
            print(f"{self.page}: nothing in {self.source} here, {self.name} stays")
            return
        text = self.path.read_text(encoding="utf-8")
        written = put(text, self.marks, f"\n{content}\n", self.page)
        self.path.write_text(written, encoding="utf-8")


PLACES = [
    Place("run", "the last `make run`", "README.md", tables.run_table),
    Place("hospitals", "examples/hospitals", "README.md", tables.hospitals),
    Place(
        "tools",
        "README.md and examples",
        "docs/explanation/compared.md",
        tables.head_to_head,
    ),
    Place("families", EXPERIMENTS, MEASUREMENTS, tables.families_table),
    Place("verdicts", EXPERIMENTS, MEASUREMENTS, tables.verdicts),
    Place("flamby", DEPLOYED, MEASUREMENTS, flamby_table),
    Place(
        "costs", BENCHMARKS, MEASUREMENTS, lambda: tables.benchmark_table(short=True)
    ),
    Place("demo", DEPLOYED, MEASUREMENTS, tables.deployed_demo),
    Place("demo", DEPLOYED, "docs/how-to/deployment.md", tables.deployed_demo),
    Place("app", "deployment/sites", "docs/how-to/deployment.md", tables.app_files),
    Place(
        "region",
        "deployment/sites",
        "docs/how-to/federation-of-federations.md",
        lambda: tables.app_files(["sites/region_app.py"]),
    ),
    Place(
        "message diff",
        "examples/message_api",
        "docs/how-to/existing-app.md",
        lambda: _fenced(migration_diff("message_api")),
    ),
    Place(
        "numpyclient diff",
        "examples/numpyclient",
        "docs/how-to/existing-app.md",
        lambda: _fenced(migration_diff("numpyclient")),
    ),
    Place("traffic", "`make alpha`", "docs/how-to/choose-alpha.md", tables.traffic),
    Place("experiments", EXPERIMENTS, "docs/explanation/paper.md", tables.main_table),
    Place("privacy", EXPERIMENTS, "docs/explanation/privacy.md", tables.privacy_table),
    Place(
        "noise-once",
        EXPERIMENTS,
        "docs/explanation/privacy.md",
        tables.secure_rounds_table,
    ),
    Place(
        "costs",
        DEPLOYED,
        "docs/explanation/privacy-costs.md",
        tables.private_cost_table,
    ),
    Place(
        "intervals",
        DEPLOYED,
        "docs/explanation/privacy.md",
        tables.private_interval_table,
    ),
    Place(
        "choices",
        DEPLOYED,
        "docs/explanation/privacy.md",
        tables.private_choice_table,
    ),
    Place("modes", EXPERIMENTS, HIGH_DIMENSION, tables.modes_table),
    Place("kernels", EXPERIMENTS, HIGH_DIMENSION, tables.kernels_table),
    Place("digits", DEPLOYED, "docs/explanation/numerics.md", tables.nist_table),
    Place("scaling", BENCHMARKS, "docs/explanation/scaling.md", tables.scaling_table),
    Place(
        "benchmarks",
        BENCHMARKS,
        "docs/reference/benchmarks.md",
        lambda: tables.benchmark_table(short=False),
    ),
    Place(
        "engines",
        f"{BENCHMARKS}/engines",
        "docs/how-to/data-warehouse.md",
        tables.engines_table,
    ),
    Place("spoiled tables", "tests/data/spoiled.py", SPOILED, tables.spoiled_tables),
    Place("readers", DEPLOYED, SPOILED, tables.readers_table),
    Place("faults", DEPLOYED, "docs/reference/faults.md", tables.faults_table),
    Place("soak", DEPLOYED, "docs/reference/faults.md", tables.soak_table),
    *(
        Place(name, SOURCE, page.relative_to(ROOT).as_posix(), content)
        for name, page, content in contents()
    ),
]


def name_of(page: Path) -> str:
    """Return the path of a page as README would write it."""
    return str(page.relative_to(ROOT))


def put(
    text: str, marks: tuple[str, str], content: str, page: str = "the document"
) -> str:
    """Return the text with this content between the marks."""
    begin, end = marks
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text, found = pattern.subn(lambda _: f"{begin}{content}{end}", text)
    if found != 1:
        raise SystemExit(lost(page, marks))
    return text


def lost(page: str, marks: tuple[str, str]) -> str:
    """Return what is wrong with a place whose two marks are not a pair."""
    begin, end = marks
    return (
        f"{page} has no place for {begin}: it needs this mark once, and after it the "
        f"closing mark {end} once. The closing mark repeats the name of the place, "
        "also if that is a list of names."
    )


def _fenced(diff: str) -> str:
    return f"```diff\n{diff.strip()}\n```"


def _write_fuzz() -> None:
    """Put the last full run of the fuzz, which is a room of its own, into its page."""
    sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
    from fuzz_table import PAGE, render

    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Write every place, and bring the figures of the last runs along."""
    for place in PLACES:
        place.write()
    _write_fuzz()
    figures = ROOT / "docs" / "figures"
    for figure in (RUN / "comparison.png", RUN / "alpha" / "alpha.png"):
        if figure.exists():
            shutil.copy(figure, figures / figure.name)


if __name__ == "__main__":
    main()
