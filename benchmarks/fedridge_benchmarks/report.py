"""What was measured, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedridge_flwr.words import text_table

from .measure import Ratio

__all__ = ["read", "table", "write"]

_HEADS = ["what", "behind it", "measured", "limit", "holds"]


def table(ratios: Sequence[Ratio], machine: Mapping[str, Any]) -> str:
    """Return a Markdown table that is also readable as it is, and the machine."""
    rows = text_table(_HEADS, [_row(ratio) for ratio in ratios], text_columns=2)
    return f"{rows}\n\n{_machine(machine)}"


def write(
    folder: Path,
    ratios: Sequence[Ratio],
    curves: Mapping[str, Any],
    machine: Mapping[str, Any],
) -> None:
    """Write results.json and table.md."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "machine": machine,
        "ratios": [ratio.to_json() for ratio in ratios],
        "curves": curves,
    }
    (folder / "results.json").write_text(
        json.dumps(values, indent=1) + "\n", encoding="utf-8"
    )
    (folder / "table.md").write_text(table(ratios, machine) + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[list[Ratio], dict[str, Any], dict[str, Any]]:
    """Return ratios, curves and machine from results.json."""
    values = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    ratios = [Ratio.from_json(each) for each in values["ratios"]]
    return ratios, values["curves"], values["machine"]


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
    if unit == "relative":
        return f"{value:.0e}"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _machine(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['blas']}, "
        f"Python {machine['python']}, {versions}."
    )
