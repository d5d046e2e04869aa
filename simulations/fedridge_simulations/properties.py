"""The paper's table of properties, each row with what shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .tables import table

__all__ = ["PROPERTIES", "Property", "properties_table"]

_TESTS = "tests/whole/test_paper.py"
_RESULTS = "simulations/results"


@dataclass(frozen=True)
class Property:
    """One row: what holds for either side, and the test and experiment that show it.

    Parameters
    ----------
    shown_by : tuple of (text, path) or (text, path, name)
        Files from the root of the project; `name` is a test inside the file.
    """

    name: str
    one_shot: str
    iterative: str
    shown_by: tuple[tuple[str, ...], ...]


PROPERTIES = (
    Property(
        "Communication rounds",
        "1",
        "tens to hundreds",
        (("convergence", f"{_RESULTS}/convergence/table.md"),),
    ),
    Property(
        "Solution quality",
        "exact, to rounding",
        "approaches it, if the local penalty is σ/n",
        (
            ("Theorem 2", _TESTS, "test_theorem_2_exact_recovery"),
            ("baselines", f"{_RESULTS}/baselines/table.md"),
        ),
    ),
    Property(
        "Hyperparameters",
        "σ, chosen without another round",
        "step size, local epochs, rounds, σ (and μ)",
        (
            ("Proposition 5", _TESTS, "test_proposition_5_leave_one_client_out"),
            ("heterogeneity", f"{_RESULTS}/heterogeneity/table.md"),
        ),
    ),
    Property(
        "Heterogeneity",
        "invariant",
        "none up to γ = 1; beyond, the step must be tuned and rounds grow",
        (
            ("Theorem 5", _TESTS, "test_theorem_5_heterogeneity_invariance"),
            ("heterogeneity", f"{_RESULTS}/heterogeneity/table.md"),
        ),
    ),
    Property(
        "Privacy composition",
        "one release; Algorithm 2 is not private as written",
        "one release per round",
        (("privacy", f"{_RESULTS}/privacy/table.md"),),
    ),
    Property(
        "Client dropout",
        "exact for those who answered",
        "approaches their optimum if the same are missing each round",
        (
            ("Theorem 8", _TESTS, "test_theorem_8_dropout_robustness"),
            ("dropout", f"{_RESULTS}/dropout/table.md"),
        ),
    ),
    Property(
        "Bytes",
        "d(d+3)/2 numbers up, once",
        "d up and d down, each round",
        (
            ("Theorem 4", _TESTS, "test_theorem_4_communication"),
            ("communication", f"{_RESULTS}/communication/table.md"),
        ),
    ),
    Property(
        "Model class",
        "linear in its features",
        "anything differentiable",
        (
            ("Proposition 4", _TESTS, "test_proposition_4_gradient_insufficiency"),
            ("gradient", f"{_RESULTS}/gradient/table.md"),
        ),
    ),
)


def properties_table(root: str) -> str:
    """Return the table; `root` leads from the file it goes into to the project."""
    return table(
        ["property", "One-Shot", "FedAvg, FedProx", "shown by"],
        [
            [
                p.name,
                p.one_shot,
                p.iterative,
                ", ".join(
                    f"[{text}]({(Path(root) / path).as_posix()})"
                    for text, path, *_ in p.shown_by
                ),
            ]
            for p in PROPERTIES
        ],
        text_columns=4,
    )
