"""What turns the FedAvg apps of ``examples/`` into ours, as a unified diff."""

from __future__ import annotations

import difflib
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
APIS = ("message_api", "numpyclient")
CONTEXT = 3


def migration_diff(api: str) -> str:
    """Return the diff from before to after; files that stay as they are have none.

    Paths are those inside the app, without a/ and b/: ``patch -p0`` takes them.
    """
    before, after = (_sources(EXAMPLES / api / side) for side in ("before", "after"))
    return "".join(
        line
        for name in sorted(before | after)
        for line in difflib.unified_diff(
            before.get(name, []), after.get(name, []), name, name, n=CONTEXT
        )
    )


def lines_changed(api: str) -> tuple[int, int]:
    """Return how many lines are removed and how many are added."""
    lines = [
        line
        for line in migration_diff(api).splitlines()
        if not line.startswith(("---", "+++"))
    ]
    return tuple(sum(line.startswith(sign) for line in lines) for sign in "-+")  # type: ignore[return-value]


def app_files(app: Path) -> dict[str, str]:
    """Return the text of every file that belongs to an app, by its path in there."""
    return {
        path.relative_to(app).as_posix(): path.read_text("utf-8")
        for suffix in ("*.py", "*.toml")
        for path in app.rglob(suffix)
    }


def _sources(app: Path) -> dict[str, list[str]]:
    return {
        name: text.splitlines(keepends=True) for name, text in app_files(app).items()
    }
