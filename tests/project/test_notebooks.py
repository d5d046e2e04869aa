"""Notebooks: pairs agree, outputs are kept, and nothing of a machine is in them.

That they execute is nbmake's part: `notebooks` is among pytest's test paths, and the
record in it says which of them need not be executed again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jupytext
import pytest
from notebook_record import described, fingerprint, interface, recorded

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def test_they_are_numbered() -> None:
    numbers = [path.stem[:3] for path in NOTEBOOKS]
    assert numbers == [f"{k:02}_" for k in range(1, 10)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_pair_says_the_same(path: Path) -> None:
    script = jupytext.read(path.with_suffix(".py"))
    shown = jupytext.read(path)
    kept = [(cell.cell_type, cell.source.strip()) for cell in shown.cells]
    assert kept == [(cell.cell_type, cell.source.strip()) for cell in script.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_was_executed_from_top_to_bottom_without_complaint(path: Path) -> None:
    counts = [cell["execution_count"] for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [o for o in outputs if o["output_type"] == "error"] == []
    assert [o["text"] for o in outputs if o.get("name") == "stderr"] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_flower_for_real(path: Path) -> None:
    code = "\n".join("".join(cell["source"]) for cell in code_cells(path))
    assert "run_simulation(" in code or "local_superlink(" in code
    assert "FedRidge(" in code
    assert "assert " in code


def test_the_first_one_calls_nothing_deprecated_and_silences_nothing() -> None:
    code = "\n".join("".join(cell["source"]) for cell in code_cells(NOTEBOOKS[0]))
    for silencing in ("run_simulation", "warnings", "logging"):
        assert silencing not in code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_of_a_machine_is_in_it(path: Path) -> None:
    cells = read(path)["cells"]
    for cell in cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    text = json.dumps(cells)
    assert not re.search(r"(/(home|root|tmp|work|Users)/|site-packages)", text)
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_links_lead_somewhere(path: Path) -> None:
    prose = ["".join(c["source"]) for c in read(path)["cells"] if "outputs" not in c]
    links = re.findall(r"\]\(([^)#\s]+)", "\n".join(prose))
    assert [x for x in links if not (path.parent / x).exists() and "//" not in x] == []


# ---- the record of executions --------------------------------------------------------


def test_the_record_has_every_notebook() -> None:
    assert list(recorded()) == [f"{path.stem}.py" for path in NOTEBOOKS]


def test_another_source_wants_another_execution(tmp_path: Path) -> None:
    source = tmp_path / "01_quickstart.py"
    source.write_text("print(1)")
    before = fingerprint(source)
    assert fingerprint(source) == before
    source.write_text("print(2)")
    assert fingerprint(source) != before


def test_the_interface_has_parameters_and_nothing_of_a_process() -> None:
    told = interface()
    assert any(line.startswith("fedridge_flwr.FedRidge(alpha=1.0, ") for line in told)
    assert any(line.startswith("fedridge_flwr.RidgeModel.predict(") for line in told)
    assert "0x" not in "".join(told)


def test_a_body_may_change_and_a_default_may_not() -> None:
    def one(a: int = 1) -> int:
        """One."""
        return a

    def same(a: float = 1) -> float:
        """Another text."""
        return a + 1

    def other(a: int = 2) -> int:
        return a

    assert [*described("f", one)] == [*described("f", same)] == ["f(a=1)"]
    assert [*described("f", other)] == ["f(a=2)"]
