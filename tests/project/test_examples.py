"""examples/: apps of FedAvg, the same apps after the diff, and the diff itself."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from migrations import APIS, EXAMPLES, app_files, lines_changed, migration_diff
from shared_simulation import SharedSimulation
from sklearn.linear_model import Ridge

from fedridge_flwr.app.launch import LocalSuperLink

ALL = [(api, side) for api in APIS for side in ("before", "after")]


def project(api: str, side: str) -> dict[str, Any]:
    text = (EXAMPLES / api / side / "pyproject.toml").read_text("utf-8")
    return tomllib.loads(text)


# ---- the diff ------------------------------------------------------------------------


HUNK = re.compile(r"^@@ -(\d+).*\n((?:[ +-].*\n)+)", re.MULTILINE)


def patched(before: dict[str, str], diff: str) -> dict[str, str]:
    """Return the files after a diff whose every line must fit."""
    after = dict(before)
    for part in re.split(r"^--- .*\n\+\+\+ ", diff, flags=re.MULTILINE)[1:]:
        name, _, hunks = part.partition("\n")
        old, new, done = before[name].splitlines(), [], 0
        for begin, text in HUNK.findall(hunks):
            lines, at = text.splitlines(), int(begin) - 1
            found = [line[1:] for line in lines if line[0] != "+"]
            assert old[at : at + len(found)] == found
            new += old[done:at] + [line[1:] for line in lines if line[0] != "-"]
            done = at + len(found)
        after[name] = "\n".join(new + old[done:]) + "\n"
    return after


@pytest.mark.parametrize("api", APIS)
def test_the_diff_turns_before_into_after(api: str) -> None:
    before, after = (app_files(EXAMPLES / api / side) for side in ("before", "after"))
    assert patched(before, migration_diff(api)) == after


@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no patch here")
@pytest.mark.parametrize("api", APIS)
def test_patch_takes_the_diff(api: str, tmp_path: Path) -> None:
    ours = shutil.ignore_patterns("__pycache__")
    shutil.copytree(EXAMPLES / api / "before", tmp_path / "app", ignore=ours)
    done = subprocess.run(
        ["patch", "--strip=0", "--fuzz=0"],
        cwd=tmp_path / "app",
        input=migration_diff(api),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert app_files(tmp_path / "app") == app_files(EXAMPLES / api / "after")
    assert not list(tmp_path.rglob("*.orig"))


@pytest.mark.parametrize("api", APIS)
def test_the_diff_leaves_the_data_alone_and_takes_more_than_it_adds(api: str) -> None:
    diff = migration_diff(api)
    assert re.findall(r"^--- (.*)", diff, re.MULTILINE) == [
        *("diabetes/client_app.py", "diabetes/server_app.py", "pyproject.toml")
    ]
    gone, new = lines_changed(api)
    assert new < gone < 40


@pytest.mark.parametrize(("api", "side"), ALL)
def test_all_four_have_the_same_data_and_dependencies(api: str, side: str) -> None:
    files = app_files(EXAMPLES / api / side)
    first = app_files(EXAMPLES / "message_api" / "before")
    assert files.keys() == first.keys()
    for name in ("diabetes/__init__.py", "diabetes/task.py"):
        assert files[name] == first[name]
    # Flower would look for fedridge-flwr in a registry: see examples/README.md.
    ours, theirs = project(api, side), project("message_api", "before")
    assert ours["project"] == theirs["project"]
    assert "fedridge" not in str(ours["project"]["dependencies"])


def test_the_readme_shows_every_folder_and_the_sizes_of_the_diffs() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    for api, side in ALL:
        assert f"`{api}/{side}`" in text
    for api in APIS:
        gone, new = lines_changed(api)
        assert f"{gone} lines removed, {new} added" in text


# ---- the apps ------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """The modules of one app, under names that no other app has."""

    client: ModuleType
    server: ModuleType
    task: ModuleType
    config: dict[str, Any]

    @classmethod
    def load(cls, api: str, side: str) -> Example:
        from ray import cloudpickle

        name, folder = f"{api}_{side}", EXAMPLES / api / side / "diabetes"
        spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)
        # Workers of Ray know no such module: its functions travel as code.
        cloudpickle.register_pickle_by_value(package)
        client, server, task = (
            importlib.import_module(f"{name}.{file}")
            for file in ("client_app", "server_app", "task")
        )
        config = project(api, side)["tool"]["flwr"]["app"]["config"]
        return cls(client, server, task, config)


@dataclass
class Outcome:
    """What came of an app: its strategy, its rounds, and what it printed."""

    strategy: Any
    rounds: int
    output: str


# The class, and its method that is called once in every round.
STRATEGIES = {
    ("message_api", "before"): ("FedAvg", "aggregate_train"),
    ("message_api", "after"): ("FedRidge", "aggregate_train"),
    ("numpyclient", "before"): ("FedAvg", "aggregate_fit"),
    ("numpyclient", "after"): ("LegacyFedRidge", "aggregate_fit"),
}


@pytest.fixture(scope="module")
def outcomes(simulation: SharedSimulation) -> dict[tuple[str, str], Outcome]:
    """Run the four apps as they are, one after another."""
    found: dict[tuple[str, str], Outcome] = {}
    for name in ALL:
        example, (strategy, method) = Example.load(*name), STRATEGIES[name]
        kind = getattr(example.server, strategy)
        made = mock.Mock(side_effect=kind)
        with (
            mock.patch.object(example.server, strategy, made),
            mock.patch.object(
                kind, method, autospec=True, side_effect=getattr(kind, method)
            ) as aggregate,
            contextlib.redirect_stdout(io.StringIO()) as output,
        ):
            simulation.run(example.server.app, example.client.app, 5, example.config)
        assert made.call_count == 1
        found[name] = Outcome(
            aggregate.call_args.args[0], aggregate.call_count, output.getvalue()
        )
    return found


def printed_error(output: str) -> float:
    return float(re.findall(r"Test error: ([\d.]+)", output)[-1])


def pooled_ridge(api: str) -> tuple[Ridge, float]:
    """Return scikit-learn's model of all training rows, and its error on the others."""
    task = Example.load(api, "before").task
    ridge = Ridge(alpha=1.0).fit(*task.load_data(0, 1))
    return ridge, task.held_out_error(ridge.coef_, ridge.intercept_)


@pytest.mark.ray
@pytest.mark.parametrize("api", APIS)
def test_before_is_fedavg_in_all_its_rounds(
    api: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    before = outcomes[api, "before"]
    assert type(before.strategy).__name__ == "FedAvg"
    assert before.rounds == 20
    _, best = pooled_ridge(api)
    assert printed_error(before.output) == pytest.approx(best, rel=0.05)


@pytest.mark.ray
@pytest.mark.parametrize("api", APIS)
def test_after_is_the_pooled_ridge_in_one_round(
    api: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    after = outcomes[api, "after"]
    assert after.rounds == 1
    model = after.strategy.model_
    ridge, best = pooled_ridge(api)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-11)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-11)
    assert printed_error(after.output) == pytest.approx(best, rel=1e-11)
    assert model.summary() in after.output
    assert "clients     5 in, 0 out" in str(after.strategy.report_)


@pytest.mark.slow  # by `make soak`
@pytest.mark.superlink
@pytest.mark.parametrize("api", ["numpyclient"])  # other tests run the message API
def test_flwr_run_prints_the_pooled_ridge(api: str, superlink: LocalSuperLink) -> None:
    output = superlink.run(EXAMPLES / api / "after", num_supernodes=5, echo=False)
    ridge, best = pooled_ridge(api)
    assert printed_error(output) == pytest.approx(best, rel=1e-11)
    table = output.split("std err")[1].splitlines()[1:12]
    printed = [float(line.split()[1]) for line in table]
    # Four digits are printed; the error above is compared to eleven.
    np.testing.assert_allclose(printed, [ridge.intercept_, *ridge.coef_], rtol=5e-4)
    assert "clients     5 in, 0 out" in output
