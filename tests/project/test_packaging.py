"""What is installed: the wheel's metadata, and the wheel in an empty environment."""

from __future__ import annotations

import email
import email.message
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from flwr.cli import build
from flwr.cli.config_utils import load_and_validate
from flwr.supercore.fab_format_version import normalize_and_validate_fab_format
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fedridge_flwr

PROJECT = Path(__file__).resolve().parents[2]
ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = ABOUT["version"]
PAPER = (
    "One-Shot Federated Ridge Regression: "
    "Exact Recovery via Sufficient Statistic Aggregation"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this source tree, made without a network."""
    pytest.importorskip("hatchling", reason="hatchling comes with the extra dev")
    folder = tmp_path_factory.mktemp("wheel")
    command = [*(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d")]
    built = subprocess.run(
        [*command, str(folder)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as opened:
        text = opened.read(f"fedridge_flwr-{VERSION}.dist-info/METADATA")
    return email.message_from_bytes(text)


# ---- the wheel; that it holds code only is in test_supply_chain.py -------------------


def test_the_wheel_has_one_package_its_types_and_its_licence(wheel: Path) -> None:
    about = f"fedridge_flwr-{VERSION}.dist-info"
    assert wheel.name == f"fedridge_flwr-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        licence = opened.read(f"{about}/licenses/LICENSE")
    assert licence == (PROJECT / "LICENSE").read_bytes()
    assert "fedridge_flwr/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"fedridge_flwr", about}


def test_the_metadata_say_what_pyproject_says(metadata: email.message.Message) -> None:
    assert metadata["Name"] == "fedridge-flwr"
    assert metadata["Version"] == VERSION
    assert metadata["License"].split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert metadata["License-File"] == "LICENSE"
    assert any("Apache" in each for each in metadata.get_all("Classifier"))
    assert metadata["Requires-Python"] == ABOUT["requires-python"]
    assert metadata["Summary"] == ABOUT["description"]


def test_the_long_description_is_the_readme(metadata: email.message.Message) -> None:
    kind = metadata["Description-Content-Type"]
    assert kind.split(";")[0] == "text/markdown"
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes)
    readme = (PROJECT / "README.md").read_text("utf-8")
    assert payload.decode("utf-8").strip() == readme.strip()


def test_ray_comes_with_the_extra_only(metadata: email.message.Message) -> None:
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    plain = [each for each in needed if each.marker is None]
    assert {each.name for each in plain} == {
        Requirement(text).name for text in ABOUT["dependencies"]
    }
    assert not any(each.extras or each.name == "ray" for each in plain)
    extra = [
        each
        for each in needed
        if each.marker and each.marker.evaluate({"extra": "simulation"})
    ]
    assert [(each.name, each.extras) for each in extra] == [("flwr", {"simulation"})]


# ---- the version is written once -----------------------------------------------------


def own_files() -> list[Path]:
    """Return what is tracked here, or about to be; tests write apps of their own."""
    listed = subprocess.run(
        [
            *("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
            *("--", ":!tests"),
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no checkout of git")
    names = listed.stdout.split("\0")
    return [path for name in names if name and (path := PROJECT / name).is_file()]


DEFINED = re.compile(
    r"""^\s*["']?_*(?:version|release|VERSION|RELEASE)_*["']?\s*[:=]\s*["']?(\d+\.\d+[\w.]*)""",
    re.MULTILINE,
)


def test_no_other_file_defines_the_version() -> None:
    found = set()
    for path in own_files():
        if path.suffix not in {".py", ".toml", ".cff", ".cfg", ".yml", ".yaml"}:
            continue
        text = path.read_text("utf-8")
        if path.name == "pyproject.toml":
            name = tomllib.loads(text).get("project", {}).get("name")
            if name != "fedridge-flwr":
                continue  # an app with a version of its own
        if DEFINED.search(text):
            found.add(str(path.relative_to(PROJECT)))
    found -= {"notebooks/01_quickstart.py"}  # its app has its own version
    assert found == {"CITATION.cff", "pyproject.toml"}


@pytest.mark.parametrize(
    "line",
    [
        *('version = "1.2.0"', "version: 1.2.0", "__version__ = '1.2'"),
        *('release = "1.2.0rc1"', '    "version": "1.2.0",', "VERSION = '1.2'"),
    ],
)
def test_the_search_for_versions_finds_them(line: str) -> None:
    assert DEFINED.search(f"x = 1\n{line}\n")


def test_the_package_has_the_version_of_pyproject() -> None:
    assert fedridge_flwr.__version__ == VERSION, "pip install -e . again"


def test_the_changelog_tells_of_this_version() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (\S+) - \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    assert VERSION in headings


def test_the_citation_names_this_version_and_the_paper() -> None:
    cited = yaml.safe_load((PROJECT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    assert cited["version"] == VERSION
    assert cited["license"] == "Apache-2.0"
    assert cited["keywords"] == ABOUT["keywords"]
    assert cited["authors"] == ABOUT["authors"]
    (paper,) = cited["references"]
    assert paper["title"] == PAPER
    assert paper["authors"] == [{"family-names": "Alsulaimawi", "given-names": "Zahir"}]
    assert "type" in paper
    assert {"year", "doi", "journal"}.isdisjoint(paper), "the manuscript has none"


# ---- versions that are tested --------------------------------------------------------


def test_constraints_are_names_and_versions_that_pyproject_allows() -> None:
    lines = (PROJECT / "constraints.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    pinned = {
        canonicalize_name(name): version
        for name, version in (line.split("==") for line in lines)
    }
    assert len(pinned) == len(lines)
    extras = ABOUT["optional-dependencies"]
    wanted = [*ABOUT["dependencies"], *extras["dev"], *extras["docs"]]
    for each in map(Requirement, wanted):
        if each.name != "fedridge-flwr":
            assert pinned[canonicalize_name(each.name)] in each.specifier, each


# ---- as apps of Flower ---------------------------------------------------------------

APPS = {
    "fedridge-flwr": ".",
    **{name: name for name in ("simulations", "benchmarks")},
    **{name: f"deployment/{name}" for name in ("sites", "fedavg")},
    **{
        f"{api}-{side}": f"examples/{api}/{side}"
        for api in ("message_api", "numpyclient")
        for side in ("before", "after")
    },
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what is tracked, in a folder of a name that Flower takes."""
    folder = tmp_path_factory.mktemp("clone") / "fedridge-flwr"
    for path in own_files():
        copy = folder / path.relative_to(PROJECT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return folder


def test_no_app_is_forgotten(clone: Path) -> None:
    found = {path.parent for path in clone.rglob("pyproject.toml")}
    assert found == {clone / app for app in APPS.values()}


@pytest.mark.parametrize("app", APPS.values(), ids=APPS)
def test_flower_builds_the_app_without_a_warning(
    app: str, clone: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    build.build(clone / app)
    (bundle,) = tmp_path.glob("*.fab")
    assert capsys.readouterr().out.strip().endswith(f"Successfully built {bundle.name}")
    with zipfile.ZipFile(bundle) as opened:
        licence = opened.read("LICENSE")
    assert licence == (PROJECT / "LICENSE").read_bytes()


@pytest.mark.parametrize("app", APPS.values(), ids=APPS)
def test_the_app_passes_what_flower_checks_before_an_upload(
    app: str, clone: Path, capsys: Any
) -> None:
    config, warnings = load_and_validate(clone / app / "pyproject.toml")
    assert warnings == []
    # In its package, a function of the same name hides the module.
    publish = importlib.import_module("flwr.cli.app_cmd.publish")
    metadata = normalize_and_validate_fab_format(config)
    assert metadata.fab_format_version == 1
    assert metadata.flwr_version_min == "1.41"
    publish._validate_app_name((clone / app).resolve().name, "folder")
    publish._validate_description(config["project"]["description"])
    publish._validate_files(publish._collect_file_paths(clone / app))
    assert "Validation passed" in capsys.readouterr().out


# ---- in an empty environment ---------------------------------------------------------


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A simulation leaves all of sys.path in PYTHONPATH: to pip, all was installed.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


class Environment:
    """A virtual environment with nothing but the wheel and what it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its interpreter in its folder: nothing of this checkout is in reach."""
        return subprocess.run(
            [str(self.python), "-I", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, code: str) -> None:
        """Run code whose assertions must hold."""
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("clean")
    probe = pip(
        *("download", "--no-deps", "--retries", "0", "--dest", str(folder / "probe")),
        "packaging",
    )
    if probe.returncode:
        pytest.skip("pip reaches no package index here, and flwr comes from one")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")],
        check=True,
    )
    environment = Environment(folder / "venv")
    # Bytecode of what is never imported is half of the time.
    done = pip(
        *("--python", str(environment.python), "install", "--no-compile", "--quiet"),
        str(wheel),
    )
    assert done.returncode == 0, done.stderr
    return environment


def test_the_dependencies_fit_together(clean: Environment) -> None:
    done = pip("--python", str(clean.python), "check")
    assert done.returncode == 0, done.stdout


def test_importing_it_imports_neither_flower_nor_ray(clean: Environment) -> None:
    clean.check(f"""
import importlib.util, sys
import fedridge_flwr
assert fedridge_flwr.__version__ == {VERSION!r}, fedridge_flwr.__version__
assert fedridge_flwr.__file__.startswith(sys.prefix), fedridge_flwr.__file__
heavy = {{"flwr", "ray", "sklearn", "pandas", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
assert importlib.util.find_spec("flwr") is not None
for absent in ("ray", "pandas", "pytest"):
    assert importlib.util.find_spec(absent) is None, absent
""")


def test_the_core_works_without_flower(clean: Environment) -> None:
    clean.check("""
import sys
import numpy as np
from fedridge_flwr import RidgeModel, SufficientStatistics, select_alpha, solve

rng = np.random.default_rng(0)
X, w = rng.normal(size=(90, 4)) + 1.0, np.array([1.0, -2.0, 0.0, 3.0])
y = X @ w + 5.0 + rng.normal(size=90)
clients = [SufficientStatistics.from_data(X[k::3], y[k::3]) for k in range(3)]

def ridge(alpha):
    Xc, yc = X - X.mean(axis=0), y - y.mean()
    coef = np.linalg.solve(Xc.T @ Xc + alpha * np.eye(4), Xc.T @ yc)
    return coef, y.mean() - X.mean(axis=0) @ coef

for alpha in (0.0, 1.0, 10.0):
    model = solve(sum(clients), alpha=alpha)
    coef, intercept = ridge(alpha)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-11)

selection = select_alpha(clients, alphas=[0.1, 1.0, 1000.0])
assert selection.alpha in (0.1, 1.0), selection.alpha
model.save("model.json")
again = RidgeModel.load("model.json")
np.testing.assert_array_equal(again.predict(X), model.predict(X))
assert not {"flwr", "ray"} & set(sys.modules)
""")


def test_a_client_answers_without_ray(clean: Environment) -> None:
    support = str(PROJECT / "tests" / "support")
    clean.check(f"""
import sys
sys.path.append({support!r})
import numpy as np
from fakes import InProcessGrid
from flwr.clientapp import ClientApp
from fedridge_flwr import FedRidge, RidgeClient, ridge_client_app

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X @ [1.0, 2.0, 3.0] + rng.normal(size=60)

def load_data(context):
    k = context.node_config["partition-id"]
    return X[k::4], y[k::4]

def client_fn(context):
    return RidgeClient(*load_data(context)).to_client()

Xc, yc = X - X.mean(axis=0), y - y.mean()
pooled = np.linalg.solve(Xc.T @ Xc + np.eye(3), Xc.T @ yc)
for app in (ridge_client_app(load_data), ClientApp(client_fn=client_fn)):
    strategy = FedRidge(alpha=1.0, min_available_nodes=4)
    strategy.start(grid=InProcessGrid.of_app(app, 4))
    assert len(strategy.report_.participants) == 4
    np.testing.assert_allclose(strategy.model_.coef_, pooled, rtol=1e-11)
assert "ray" not in sys.modules
""")


def test_the_app_says_what_to_install_for_a_simulation(clean: Environment) -> None:
    done = clean.run("-m", "fedridge_flwr.app", "--output-dir", "results")
    assert done.returncode == 1
    assert "pip install 'fedridge-flwr[simulation]'" in done.stderr
    assert "Traceback" not in done.stderr
