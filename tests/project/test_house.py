"""The floor plan: a few rooms, short files, one name for one thing, a straight line."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from trace_fit import Trace, legacy_fit, message_fit, one_contribution

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fedridge_flwr"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))

# What clients send, and what they are asked for.
EXCHANGED = re.compile(
    r"\w*(Statistics|Opening|Openings|ColumnMoments)|Ask\w+|Answer|Losses"
)


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in FILES:
        yield path, ast.parse(path.read_text("utf-8"))


def test_there_are_few_rooms_and_next_to_nothing_at_the_root() -> None:
    assert len(ROOMS) <= 11
    assert len(list(PACKAGE.glob("*.py"))) <= 6


def test_every_room_says_what_it_knows() -> None:
    for init in PACKAGE.rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(init.read_text("utf-8")))
        assert docstring, init
        assert docstring.splitlines()[0].endswith("."), init


def test_imports_go_down_at_most_ten_layers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    assert len(layers) <= 10
    named = {name for layer in layers for name in layer.split(" | ")}
    modules = {p.stem for p in PACKAGE.glob("*.py")} - {"__init__"}
    inside = {room.name for room in ROOMS} | modules
    assert named == {f"fedridge_flwr.{name}" for name in inside}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_has_at_most_500_lines(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= 500, (
        f"{path.relative_to(ROOT)} has {lines} lines: split the file, one idea per "
        "file; do not shorten comments or docstrings to fit."
    )


def test_no_two_public_classes_or_modules_share_a_name() -> None:
    modules = Counter(path.stem for path in FILES if not path.stem.startswith("_"))
    assert [name for name, n in modules.items() if n > 1] == []
    classes = Counter(
        node.name
        for _, tree in trees()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, n in classes.items() if n > 1] == []


def test_hardly_anybody_asks_what_kind_of_contribution_came_in() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(
            isinstance(name, ast.Name) and EXCHANGED.fullmatch(name.id)
            for name in ast.walk(node.args[1])
        )
    ]
    assert len(found) <= 12, found


def test_the_two_strategies_share_no_block_of_ten_lines() -> None:
    """Comments, docstrings, imports and signatures aside, as pylint compares."""

    def blocks(name: str) -> set[tuple[str, ...]]:
        tree = ast.parse((PACKAGE / "flower" / name).read_text("utf-8"))
        lines: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines += [x for part in body for x in ast.unparse(part).splitlines()]
        return {tuple(lines[k : k + 10]) for k in range(len(lines) - 9)}

    assert not blocks("strategy.py") & blocks("legacy_strategy.py")


def check(found: Trace, files: int, switches: int) -> None:
    assert len(found.files) <= files, found.files
    assert found.switches <= switches


def test_one_contribution_takes_a_straight_line() -> None:
    check(one_contribution(message_fit), files=25, switches=260)


def test_and_so_it_does_in_the_older_api() -> None:
    # One file more than in the message API: its client is a class of its own.
    check(one_contribution(legacy_fit), files=26, switches=260)
