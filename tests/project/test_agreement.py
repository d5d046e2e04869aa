"""Every row of "what must agree" names a test that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/reference/agreement.md").read_text(encoding="utf-8")


def test_every_row_names_a_test_that_is_there() -> None:
    rows = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        (name,) = re.findall(r"`(tests/[\w/]+\.py::\w+)`", row)
        path, test = name.split("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), name
