"""README and docs/ show what was measured, name what exists, link to what is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from document_tables import DEPLOYED, ROOT
from documents import PAGES, PLACES, Place, name_of, put
from reference import FOLDER as REFERENCE
from reference import names_on

import fedridge_flwr
import fedridge_flwr.features
import fedridge_flwr.privacy
import fedridge_flwr.regression

# ---- what was measured ---------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES, ids=lambda p: f"{p.page}: {p.name}")
def test_a_page_shows_what_the_code_writes(place: Place) -> None:
    if place.source.startswith("simulations/") or "make" not in place.source:
        assert place.shown() == place.content()
    else:  # of the last run on this machine, which may be none
        assert place.shown()


def test_every_mark_is_one_that_is_written() -> None:
    """So that nothing on a page says it was measured and is not."""
    ours = {(ROOT / p.page, p.name) for p in PLACES}
    # Of tests/fuzz and poisoning.py.
    others = {"fuzz", "false alarms", "detection", "everyday", "costs"}
    for page in PAGES:
        for name in re.findall(r"(?m)^<!-- (.+?): written by", page.read_text("utf-8")):
            assert (page, name) in ours or name in others, (name_of(page), name)


def test_the_table_of_readme_is_one_that_the_app_wrote() -> None:
    (place,) = (p for p in PLACES if p.name == "run")
    methods = ("One-Shot (FedRidge)", "FedAvg", "FedProx", "scikit-learn", "flwr 1.")
    assert all(words in place.shown() for words in methods)


def test_the_deployment_was_at_least_five_times_as_fast() -> None:
    from fedridge_deployment.demo import Demo

    kept = Demo.load(DEPLOYED / "demo.json")
    assert kept.times_faster >= 5.0
    assert kept.methods[0].distance < 1e-12


# ---- names ---------------------------------------------------------------------------


def documented() -> list[Any]:
    return [shown.value for page in REFERENCE.glob("*.md") for shown in names_on(page)]


def test_the_reference_has_every_public_name_once() -> None:
    modules = (
        fedridge_flwr,
        fedridge_flwr.features,
        fedridge_flwr.privacy,
        fedridge_flwr.regression,
    )
    public = {id(getattr(m, name)): name for m in modules for name in m.__all__}
    shown = [id(found) for found in documented()]
    assert len(shown) == len(set(shown))
    missing = {name for key, name in public.items() if key not in shown}
    assert missing == set(), "add it to a page of docs/reference"
    assert set(shown) <= set(public)


def test_the_reference_is_plain_markdown_with_signatures_and_examples() -> None:
    """So that a code host shows it, and not only the site."""
    for page in REFERENCE.glob("*.md"):
        text = page.read_text("utf-8")
        assert "{eval-rst}" not in text
        for shown in names_on(page):
            entry = text.split(f"\n### {shown.title}\n")[1].split("\n### ")[0]
            assert ">>> " in entry, shown.name
            error = isinstance(shown.value, type) and issubclass(shown.value, Exception)
            assert error or f"fedridge_flwr.{shown.name}(" in entry


def test_docstrings_become_markdown() -> None:
    text = (REFERENCE / "statistics.md").read_text("utf-8")
    assert "| one row | means are the row," in text  # a table
    assert "[`DataError`](errors.md#dataerror)" in text  # a link to another page
    assert "```text\nfrom_data(rows A) + from_data(rows B)" in text  # after ``::``
    assert not re.search(r"(?m)^(?!.*```).*``[^`]", text)  # code has one backtick


def test_the_reference_has_every_run_config_with_its_default() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    config = project["tool"]["flwr"]["app"]["config"]
    text = (REFERENCE / "run-config.md").read_text("utf-8")
    shown = dict(re.findall(r"^\| `([\w-]+)` \| `(.+?)` \|", text, re.MULTILINE))
    assert shown == {key: _toml(value) for key, value in config.items()}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def test_the_reference_has_every_line_of_a_report() -> None:
    shown = (REFERENCE / "report.md").read_text("utf-8")
    for module in (
        "federation/reporting/report_text.py",
        "privacy/privacy_report.py",
    ):
        code = (ROOT / "fedridge_flwr" / module).read_text("utf-8")
        lines = re.findall(r'\(\s*"([A-Za-z0-9, ]+)",\s', code)
        assert len(lines) >= 8
        assert [line for line in lines if f"`{line}`" not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_and_targets_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(
        re.findall(r"`(tests/[\w./]+|simulations/[\w./]+|docs/[\w./-]+)`", text)
    )
    assert [path for path in named if not (ROOT / path).exists()] == []
    made = set(re.findall(r"`make ([a-z-]+)[ `]", text))
    assert made <= targets


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_every_feature_says_what_shows_it() -> None:
    text = (ROOT / "docs" / "what-it-does.md").read_text("utf-8")
    rows = re.findall(r"^\| \*\*.*\|$", text, re.MULTILINE)
    assert len(rows) >= 12
    for row in rows:
        more, shown = row.strip("|").split("|")[-2:]
        assert "](" in more, row
        assert re.search(r"`(tests/|make )", shown), row


def test_the_errors_for_node_operators_are_those_of_the_source() -> None:
    """Every quoted message is one text of the package, where … is what differs."""
    text = (ROOT / "docs" / "how-to" / "node-operators.md").read_text("utf-8")
    quoted = re.findall(r"^\| `(.+?)` \|", text, re.MULTILINE)
    assert len(quoted) >= 20
    known = [
        text for file in (ROOT / "fedridge_flwr").rglob("*.py") for text in _texts(file)
    ]
    for message in quoted:
        parts = [part.strip() for part in message.split("…")]
        pattern = re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
        assert any(pattern.search(each) for each in known), message


def _texts(file: Path) -> list[str]:
    """Return the texts in a file, with a gap for every value of an f-string."""
    found = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        words = [getattr(p, "value", None) for p in parts]
        found.append("".join(w if isinstance(w, str) else "\0" for w in words))
    return found


# ---- links and the site --------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    gone = [
        link
        for link in links
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert gone == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: Any) -> Path:
    """The site as `make docs` builds it, where every warning is an error."""
    folder: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    command += ["-c", "docs", "-b", "html", "-d", str(folder / "doctrees")]
    command += [".", str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "docs" / "index.html").exists()
    assert 'url=docs/index.html"' in (site / "index.html").read_text("utf-8")
    for notebook in ROOT.glob("notebooks/*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").exists()


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    ids: dict[Path, set[str]] = {}

    def anchors(file: Path) -> set[str]:
        if file not in ids:
            ids[file] = set(re.findall(r'\bid="([^"]+)"', file.read_text("utf-8")))
        return ids[file]

    gone = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'<a [^>]*?href="([^"]+)"', page.read_text("utf-8")):
            if link.startswith(("http", "mailto:")):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path.split("?")[0]).resolve() if path else page
            if not target.exists() or (
                anchor and target.suffix == ".html" and anchor not in anchors(target)
            ):
                gone.append((name(page, site), link))
    assert gone == []


def name(page: Path, site: Path) -> str:
    return str(page.relative_to(site))


def test_the_site_asks_no_other_host_for_scripts_or_styles(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"',
            page.read_text("utf-8"),
        )
        assert fetched == [], name(page, site)


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    text = (site / "docs" / "explanation" / "mathematics.html").read_text("utf-8")
    assert text.count("<math") > 40


def test_a_name_in_the_opening_mark_alone_is_told() -> None:
    """The closing mark repeats the list, so that two places on a page stay apart."""
    old = Place("api FedRidge", "docstrings", "page.md", lambda: "new")
    new = Place("api FedRidge solve", "docstrings", "page.md", lambda: "new")
    page = "\n".join([new.marks[0], "old", old.marks[1]])
    with pytest.raises(
        SystemExit, match=r"page.md .*<!-- end of api FedRidge solve -->"
    ):
        put(page, new.marks, "new", new.page)
    page = "\n".join([new.marks[0], "old", new.marks[1]])
    assert put(page, new.marks, "new") == "new".join(new.marks)
