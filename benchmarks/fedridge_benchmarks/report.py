"""What was measured, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedridge_flwr._text import text_table

from .measure import Ratio

__all__ = ["Results", "table"]

_HEADS = ["what", "measured values", "result", "limit", "holds"]


def table(ratios: Sequence[Ratio], machine: Mapping[str, Any]) -> str:
    """Return a Markdown table that is also readable as it is, and the machine."""
    rows = text_table(_HEADS, [_row(ratio) for ratio in ratios], text_columns=2)
    return f"{rows}\n\n{_machine(machine)}"


@dataclass
class Results:
    """What was measured: ratios by benchmark, curves, and the machine."""

    benchmarks: dict[str, list[Ratio]] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[Ratio]:
        """All ratios, in the order of the benchmarks."""
        return [ratio for ratios in self.benchmarks.values() for ratio in ratios]

    def write(self, folder: Path) -> None:
        """Write results.json and table.md."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "machine": self.machine,
            "benchmarks": {
                name: [ratio.to_json() for ratio in ratios]
                for name, ratios in self.benchmarks.items()
            },
            "curves": self.curves,
        }
        text = json.dumps(values, indent=1) + "\n"
        (folder / "results.json").write_text(text, encoding="utf-8")
        shown = table(self.ratios, self.machine) + "\n"
        (folder / "table.md").write_text(shown, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Return what `write` left there, or nothing."""
        file = folder / "results.json"
        if not file.exists():
            return cls()
        values = json.loads(file.read_text(encoding="utf-8"))
        benchmarks = {
            name: [Ratio.from_json(ratio) for ratio in ratios]
            for name, ratios in values["benchmarks"].items()
        }
        return cls(benchmarks, values["curves"], values["machine"])


def _row(ratio: Ratio) -> list[str]:
    sign = "at least" if ratio.at_least else "at most"
    return [
        ratio.what,
        ratio.detail,
        _number(ratio.value, ratio.unit),
        f"{sign} {_number(ratio.limit, ratio.unit)}",
        "yes" if ratio.holds else "NO",
    ]


def _number(value: float, unit: str) -> str:
    if unit == "MB":
        return f"{value:.0f} MB"
    if unit == "kB":
        return f"{value:,.1f} kB"
    if unit == "relative":
        return f"{value:.0e}"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _machine(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['blas']}, "
        f"Python {machine['python']}, {versions}."
    )
