"""Every snippet of README and docs/ runs.

Python blocks of a page run in order, in one namespace and an empty folder. A page may
use what its reader has: `load_data`, `X`, `y`, and the `grid` that a ServerApp's main
is given, which reaches five clients of the page's last `app`. A block of text right
below a Python block is what it prints. Commands are tried elsewhere (`COMMANDS`), but
for one whose files a page reads. What is written between marks is tested where
it is written from.
"""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from document_tables import ROOT
from documents import PAGES, name_of
from fakes import InProcessGrid, node_context
from flwr.cli.config_utils import load_and_validate
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from fedridge_flwr import SitePolicy, TableOptions, ridge_client_app
from fedridge_flwr.cli.main import app as fedridge

CLIENTS = 5
FIRST_APP = "docs/how-to/first-app.md"
INFERENCE = "docs/how-to/inference.md"
FEDERATION = ROOT / "deployment" / "README.md"
ENGINES = ROOT / "docs" / "how-to" / "data-warehouse.md"
"""Runs on real engines, in tests/engines."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def by_hand(page: Path) -> str:
    """Return what of a page is written by hand."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"<!-- (.+?): written by .*?<!-- end of \1 -->", "", text, flags=re.S)


def blocks(page: Path, *languages: str) -> list[str]:
    return [code for kind, code in FENCE.findall(by_hand(page)) if kind in languages]


def load_data(context: Any) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    k = int(context.node_config["partition-id"])
    return X[k::CLIENTS], y[k::CLIENTS]


class Reader:
    """Somebody who types the blocks of one page, one after the other."""

    def __init__(self, page: Path) -> None:
        self.page = page
        X, y = load_diabetes(return_X_y=True)
        self.names: dict[str, Any] = {"load_data": load_data, "X": X, "y": y}
        self._reach(ridge_client_app(load_data))

    def type(self, code: str) -> None:
        exec(compile(code, name_of(self.page), "exec"), self.names)
        app = self.names.get("app")
        if isinstance(app, ClientApp):
            self._reach(app)
        if isinstance(app, ServerApp):
            app(self.names["grid"], node_context(0, CLIENTS))

    def run(self, command: str) -> None:
        fedridge(shlex.split(command)[1:], standalone_mode=False)

    def _reach(self, app: ClientApp) -> None:
        self.names["grid"] = InProcessGrid.of_app(app, CLIENTS)


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if blocks(p, "python") and p not in (FEDERATION, ENGINES)],
    ids=name_of,
)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    matplotlib.use("agg")
    reader = Reader(page)
    for kind, code in FENCE.findall(by_hand(page)):
        if kind == "python":
            reader.type(code)
            printed = capsys.readouterr().out
        elif kind == "console" and name_of(page) == INFERENCE:
            reader.run(code)
        elif kind == "text":
            assert printed == code


def test_the_first_app_is_exact(capsys: Any, caplog: Any) -> None:
    caplog.set_level("INFO", logger="flwr")
    reader = Reader(ROOT / FIRST_APP)
    for code in blocks(reader.page, "python"):
        reader.type(code)
    told = capsys.readouterr().out
    assert f"clients     {CLIENTS} in, 0 out" in caplog.text  # the report is logged
    X, y = load_diabetes(return_X_y=True)
    ridge = Ridge(alpha=1.0).fit(X, y)
    assert f"{ridge.intercept_:.4g}" in told
    reader = Reader(ROOT / "README.md")
    for code in blocks(reader.page, "python"):
        reader.type(code)
    model = reader.names["strategy"].model_
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-11)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-12)


def test_the_files_of_the_first_app_are_an_app(tmp_path: Path) -> None:
    for code in blocks(ROOT / FIRST_APP, "python", "toml"):
        named = re.match(r"# (\w+\.(?:py|toml))\n", code)
        if named:
            (tmp_path / named[1]).write_text(code, encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {
        "client_app.py",
        "server_app.py",
        "pyproject.toml",
    }
    config, warnings = load_and_validate(tmp_path / "pyproject.toml")
    assert warnings == []
    assert config["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "server_app:app",
        "clientapp": "client_app:app",
    }


@pytest.mark.deployment
def test_the_federation_of_the_deployments_readme_runs(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (code,) = blocks(FEDERATION, "python")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deployment").symlink_to(ROOT / "deployment")
    frame = load_diabetes(as_frame=True).frame.rename(columns={"target": "y"})
    for k in range(2):
        frame[k::2].to_csv(f"site-{k}.csv", index=False)
    Reader(FEDERATION).type(code)
    from fedridge_flwr import RidgeModel

    model = RidgeModel.load(tmp_path / "result" / "model.json")
    ridge = Ridge(alpha=1.0).fit(*load_diabetes(return_X_y=True))
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-11)


# ---- commands ------------------------------------------------------------------------

# What a terminal is told, beside `make` targets, by its beginning, and where it is
# tried: a file, or a make target.
COMMANDS = {
    r"flwr run \. --stream ": "tests/app/test_app.py",
    r"flwr run \. ridge --stream ": "tests/deployment/test_tables_deployment.py",
    r"flwr run simulations --stream ": "tests/experiments/test_simulations.py",
    r"flwr run examples/\w+/\w+ --stream ": "tests/project/test_examples.py",
    r"diff -u -r examples/\w+/before examples/\w+/after": (
        "tests/project/test_examples.py"
    ),
    r"pip install \"?\.(\[simulation(,tables)?\])?\"?": (
        "tests/project/test_packaging.py"
    ),
    r"fedridge (fit|check|predict|show|report) ": "tests/cli/test_cli.py",
    r"python -m fedridge_simulations ": "make experiments",
    r"flower-supernode --superlink \S+ .*--node-config ": (
        "tests/deployment/test_site_policy.py"
    ),
    r"PYTHONPATH=benchmarks \S*python -m fedridge_benchmarks ": "make bench",
    r"openssl (genpkey|pkey) ": "tests/flower/test_secure_requests.py",
}
POLICY = "docs/how-to/site-policy.md"
TABLES = "docs/how-to/tables.md"
SECURE = "docs/how-to/secure-sums.md"
OFFICER = "docs/how-to/data-protection-officer.md"
FAMILIES = "docs/how-to/yes-no-and-counts.md"
TYPED_OUT = {
    "docs/how-to/deployment.md": "tests/deployment/test_docs.py",
    "docs/how-to/federation-of-federations.md": "tests/deployment/test_regions.py",
    "docs/how-to/living-federation.md": "tests/deployment/test_living_federation.py",
}


def commands(page: Path) -> list[str]:
    if name_of(page) in TYPED_OUT:
        return []
    together = "\n".join(blocks(page, "console", "bash")).replace("\\\n", " ")
    stripped = (shlex.split(line, comments=True) for line in together.splitlines())
    return [" ".join(words) for words in stripped if words]


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=name_of)
def test_every_command_is_one_that_is_tried_somewhere(page: Path) -> None:
    for command in commands(page):
        words = command.split()
        if words[0] == "make":
            assert set(words[1:]) <= targets(), command
            continue
        found = [p for p in COMMANDS if re.match(p, command)]
        assert found, f"{command}: say in COMMANDS where it is tried"


def test_the_places_where_commands_are_tried_exist() -> None:
    for place in {*COMMANDS.values(), *TYPED_OUT.values()}:
        if place.startswith("make "):
            assert place.removeprefix("make ") in targets()
        else:
            assert (ROOT / place).exists()


def test_run_configs_in_commands_have_keys_of_the_app() -> None:
    import tomllib

    known = {
        app: set(
            tomllib.loads((ROOT / app / "pyproject.toml").read_text("utf-8"))["tool"][
                "flwr"
            ]["app"]["config"]
        )
        for app in (".", "simulations")
    }
    seen = 0
    for page in PAGES:
        for code in blocks(page, "console"):
            line = shlex.split(code.replace("\\\n", " "), comments=True)
            if line[:2] != ["flwr", "run"] or line[2] not in known:
                continue
            for flag, value in pairwise(line):
                if flag in ("-c", "--run-config"):
                    keys = set(re.findall(r"([\w-]+)=", value))
                    assert keys <= known[line[2]], (name_of(page), keys)
                    seen += 1
    assert seen >= 2


def test_every_policy_in_the_documents_is_one(tmp_path: Path) -> None:
    found = blocks(ROOT / POLICY, "toml")
    assert len(found) == 2
    for text in found:
        (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
        assert SitePolicy.load(tmp_path / "policy.toml").min_rows >= 8
    (secure,) = blocks(ROOT / SECURE, "toml")
    (tmp_path / "policy.toml").write_text(secure, encoding="utf-8")
    policy = SitePolicy.load(tmp_path / "policy.toml")
    assert policy.require_secure_sums
    assert policy.roster == tmp_path / "roster.pem"
    exact, private = blocks(ROOT / OFFICER, "toml")
    (tmp_path / "policy.toml").write_text(exact, encoding="utf-8")
    policy = SitePolicy.load(tmp_path / "policy.toml")
    assert (policy.min_rows, policy.min_row_difference) == (11, 11)
    (tmp_path / "policy.toml").write_text(private, encoding="utf-8")
    policy = SitePolicy.load(tmp_path / "policy.toml")
    assert (policy.require_privacy, policy.max_epsilon) == (True, 1.0)
    (families,) = blocks(ROOT / FAMILIES, "toml")
    (tmp_path / "policy.toml").write_text(families, encoding="utf-8")
    assert "families" in SitePolicy.load(tmp_path / "policy.toml").requests


def test_every_option_file_in_the_documents_is_one(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / TABLES, "toml")
    (tmp_path / "table.toml").write_text(text, encoding="utf-8")
    assert len(TableOptions.from_toml(tmp_path / "table.toml").columns) == 14


def test_no_snippet_is_of_a_kind_that_nobody_runs() -> None:
    known = {"python", "text", "console", "bash", "", "diff"}
    for page in PAGES:
        kinds = {kind for kind, _ in FENCE.findall(by_hand(page))}
        if name_of(page) in (FIRST_APP, POLICY, TABLES, SECURE, OFFICER, FAMILIES):
            kinds -= {"toml"}
        assert kinds <= known, name_of(page)
        if "bash" in kinds:
            assert name_of(page) in TYPED_OUT or commands(page), name_of(page)


def test_the_folder_of_this_file_is_not_the_working_directory() -> None:
    """Snippets that write files must not write them into the repository."""
    left = {"alpha.png", "ledger.json", "X.npy", "y.npy", "statistics.npy"}
    assert left.isdisjoint(os.listdir(ROOT))
