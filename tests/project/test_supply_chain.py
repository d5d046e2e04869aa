"""What is shipped: no pickle, eval or shell, no secrets, bounds on dependencies."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wire
from audit_dependencies import COULD_NOT_ASK, FOUND_NONE, FOUND_SOME, Audit
from fakes import InProcessGrid, fit, node_context, set_task_identity
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp
from flwr.common import FitIns, Parameters
from forbidden import bad_text, findings
from packaging.requirements import Requirement

from fedridge_flwr import FedRidge, LegacyFedRidge, RidgeClient, ridge_client_app

PROJECT = Path(__file__).resolve().parents[2]
APPS = {
    "fedridge_flwr": PROJECT,
    "fedridge_simulations": PROJECT / "simulations",
    "fedridge_benchmarks": PROJECT / "benchmarks",
}
SHIPPED = sorted(
    path for name, app in APPS.items() for path in (app / name).rglob("*.py")
)


# ---- the source ----------------------------------------------------------------------


@pytest.mark.parametrize("package", APPS)
def test_no_pickle_no_eval_no_shell_no_hosts_no_paths_in_the_source(
    package: str,
) -> None:
    found = {
        str(path.relative_to(PROJECT)): wrong
        for path in SHIPPED
        if package in path.parts and (wrong := findings(path.read_text("utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, marshal",
        "from cloudpickle import loads",
        "import joblib.numpy_pickle",
        "def f():\n    import dill",
        "eval(text)",
        "exec('x = 1')",
        "builtins.eval(text)",
        "compile(text, '', 'exec')",
        "__import__(name)",
        "import_module(name)",
        "os.system(command)",
        "os.popen(command)",
        "os.execv(path, words)",
        "subprocess.run(command, shell=True)",
        "subprocess.Popen(command, shell=flag)",
        "subprocess.getoutput(command)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.lib.format.read_array(f, allow_pickle=wanted)",
        "pd.read_pickle(path)",
        "yaml.load(text)",
        "tempfile.mktemp()",
        "assert isinstance(record, dict)",
        "url = 'https://example.com/collect'",
        "url = f'http://{host}/health'",
        "path = '/home/alice/rows.csv'",
        "path = 'C:\\\\Users\\\\alice'",
        "print(os.environ)",
        "log.info('%s', context.run_config)",
        "raise ValueError(f'{context.node_config}')",
    ],
)
def test_the_search_finds_what_it_is_for(source: str) -> None:
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "re.compile('x')",
        "np.load(path, allow_pickle=False)",
        "subprocess.run(['flwr', 'list'], shell=False)",
        "model.evaluate(X, y)",
        "import_module('.flower', __name__)",
        "'see https://arxiv.org/abs/1 and 2/usr/3'",
        "log.info('%s', context.run_config['alpha'])",
        "print(os.environ.get('HOME'))",
    ],
)
def test_the_search_leaves_the_rest_alone(source: str) -> None:
    assert findings(source) == []


def test_no_path_of_one_machine_in_what_people_read() -> None:
    texts = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")]
    texts += [*PROJECT.glob("*/README.md"), *PROJECT.glob("*/results/**/*.md")]
    texts += [*PROJECT.glob("*/results/**/*.json"), PROJECT / "Makefile"]
    texts += [*PROJECT.glob("notebooks/*.*"), *PROJECT.glob("examples/**/*.*")]
    assert len(texts) > 20
    found = {
        str(path.relative_to(PROJECT)): wrong
        for path in texts
        if (wrong := [w for w in bad_text(path.read_text("utf-8")) if "path" in w])
    }
    assert found == {}


# ---- as it runs ----------------------------------------------------------------------


K = 3


def load_data(context: Any) -> Any:
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    X = rng.normal(size=(20, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.normal(size=20)


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(*load_data(context)).to_client()
)


_watched: list[str] | None = None
_AUDITED = {
    *("exec", "pickle.find_class", "marshal.loads", "os.system", "os.exec"),
    *("os.posix_spawn", "subprocess.Popen", "socket.connect", "urllib.Request"),
}


@cache
def listen() -> None:
    """Add a hook, once: it cannot be taken away again."""

    def hook(event: str, _: Any) -> None:
        if _watched is not None and event in _AUDITED:
            _watched.append(event)

    sys.addaudithook(hook)


@pytest.fixture
def audited() -> Iterator[list[str]]:
    """Hear of every unpickling, eval, shell and connection, in C or in Python."""
    global _watched
    listen()
    _watched = []
    yield _watched
    _watched = None


def _refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("no code may come out of data")


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("options", [{}, {"mode": "refine", "max_rounds": 30}])
def test_a_fit_unpickles_evaluates_and_starts_nothing(
    kind: Any, app: ClientApp, options: Any, audited: list[str], monkeypatch: Any
) -> None:
    def run() -> Any:
        strategy = kind(min_available_nodes=K, fraction_evaluate=1.0, **options)
        return fit(strategy, InProcessGrid.of_app(app, K), options.get("max_rounds", 1))

    run()  # whatever is imported only now
    audited.clear()
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", _refuse)
        patch.setattr(pickle, "load", _refuse)
        patch.setattr(pickle, "Unpickler", _refuse)
        patch.setattr(builtins, "eval", _refuse)
        strategy = run()
    assert strategy.report_.failures == {}
    assert len(strategy.report_.participants) == K
    assert audited == []


def test_the_hook_hears_what_it_is_for(audited: list[str]) -> None:
    eval("1 + 1")  # noqa: S307 - the test is that it is heard
    pickle.loads(pickle.dumps(Path("x")))
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert {"exec", "pickle.find_class", "subprocess.Popen"} <= set(audited)


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def bomb(path: Path) -> Array:
    stream = io.BytesIO()
    np.save(stream, np.array([Bomb(path)], dtype=object), allow_pickle=True)
    return Array("object", (1,), "numpy.ndarray", stream.getvalue())


def test_the_bomb_is_one(tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    np.load(io.BytesIO(bomb(trace).data), allow_pickle=True)
    assert trace.is_dir()


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("plain", [False, True])
def test_objects_from_a_client_are_refused_and_not_unpickled(
    kind: Any, app: ClientApp, plain: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "unpickled"
    grid = InProcessGrid.of_app(app, K)
    honest = grid.handlers[1001]

    def hostile(message: Message) -> Message:
        reply = honest(message)
        for key, record in reply.content.array_records.items():
            objects = dict.fromkeys(record, bomb(trace))
            reply.content[key] = ArrayRecord(objects)
        if plain:  # as a client of somebody else's, who knows only (G, h)
            for key in {"config", "fitres.metrics"} & set(reply.content):
                reply.content[key] = ConfigRecord()
        return reply

    grid.handlers[1001] = hostile
    strategy = fit(kind(min_available_nodes=K), grid)
    assert set(strategy.report_.failures) == {"1001"}
    assert "dtype |O" in strategy.report_.failures["1001"]
    assert not trace.exists()


def test_objects_from_a_server_are_refused_and_not_unpickled(tmp_path: Path) -> None:
    set_task_identity()
    trace = tmp_path / "unpickled"
    for kind in ("train", "evaluate"):
        arrays = ArrayRecord({"coef": bomb(trace), "intercept": bomb(trace)})
        config = ConfigRecord({wire.PROTOCOL_KEY: wire.PROTOCOL})
        content = RecordDict({"arrays": arrays, "config": config})
        message = Message(content, dst_node_id=1000, message_type=kind)
        reply = NATIVE(message, node_context(0, 1)).content
        assert "dtype |O" in str(reply["config"]["error"])
    ins = FitIns(
        Parameters([bomb(trace).data], "numpy.ndarray"),
        {wire.PROTOCOL_KEY: wire.PROTOCOL},
    )
    result = RidgeClient(*load_data(node_context(0, 1))).to_client().fit(ins)
    assert "dtype |O" in result.status.message
    assert not trace.exists()


def test_the_apps_gradient_steps_unpickle_nothing(tmp_path: Path) -> None:
    from fedridge_flwr.app.client_app import app

    set_task_identity()
    trace = tmp_path / "unpickled"
    arrays = ArrayRecord({"coef": bomb(trace), "intercept": bomb(trace)})
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"x": 1})})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        app(Message(content, 1000, "train"), node_context(0, 2))
    assert not trace.exists()


def test_metrics_of_bytes_are_numbers_and_not_objects(tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    losses = pickle.dumps(Bomb(trace)) + b"." * 8
    content = RecordDict(
        {
            "evaluateres.metrics": ConfigRecord({"losses": losses[:-3]}),
            "evaluateres.loss": MetricRecord({"loss": 0.0}),
        }
    )
    with pytest.raises(ValueError, match="held-out losses"):
        wire.read_losses(content, 3)
    assert not trace.exists()


# ---- dependencies --------------------------------------------------------------------


@pytest.mark.parametrize("app", APPS.values(), ids=APPS)
def test_every_dependency_has_a_lower_bound_and_flower_an_upper_one(app: Path) -> None:
    project = tomllib.loads((app / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    groups = [project["dependencies"], *extras.values()]
    for requirement in (Requirement(text) for group in groups for text in group):
        if requirement.name == "fedridge-flwr":
            continue  # with an extra of its own
        signs = {bound.operator for bound in requirement.specifier}
        assert signs & {">=", "=="}, requirement
        if requirement.name == "flwr":
            assert signs & {"<", "<="}, requirement


def package(name: str, *advisories: str) -> dict[str, Any]:
    vulns = [{"id": each, "fix_versions": ["2.0"]} for each in advisories]
    return {"name": name, "version": "1.0", "vulns": vulns}


def skipped(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": "not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("answers", "status", "words"),
    [
        ([[package("a"), package("b")]], FOUND_NONE, "about 2 packages: no advisories"),
        ([[package("a", "X-1"), package("b")]], FOUND_SOME, r"a 1\.0: X-1 \(fixed in"),
        ([[skipped("a"), skipped("b")]], COULD_NOT_ASK, "any of 2 packages"),
        ([], COULD_NOT_ASK, "COULD NOT ASK"),
        ([[package("a"), skipped("b")]], COULD_NOT_ASK, "COULD NOT ASK about b"),
        ([[package("a", "X-1"), skipped("b")]], FOUND_SOME, "COULD NOT ASK about b"),
        ([[package("a"), skipped("b")], [package("b")]], FOUND_NONE, "2 packages"),
        ([[package("a"), skipped("b")], [package("b", "X-1")]], FOUND_SOME, "X-1"),
        ([[package("a", "X-1")], [package("a")]], FOUND_SOME, "1 with advisories"),
        ([[package("a"), skipped("fedridge-flwr")]], FOUND_NONE, "1 packages"),
    ],
)
def test_no_advisories_is_not_the_same_as_nobody_to_ask(
    answers: Any, status: int, words: str
) -> None:
    audit = Audit()
    for answer in answers:
        audit.take({"dependencies": answer})
    assert audit.status == status
    assert re.search(words, str(audit))


# ---- bundles -------------------------------------------------------------------------


LEFT_BEHIND = ("rows.csv", "model.json", "server.pem", "id.key", ".env", "notes.md")


@pytest.fixture
def littered(tmp_path: Path) -> Path:
    """Return a copy of the project in which somebody left data and keys."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "results")
    copy = shutil.copytree(PROJECT, tmp_path / "fedridge-flwr", ignore=ignored)
    for folder in ("", "fedridge_flwr", "fedridge_flwr/flower", "tests"):
        for name in LEFT_BEHIND:
            (copy / folder / name).write_text("secret")
    for app, name in (
        ("simulations", "fedridge_simulations"),
        ("benchmarks", "fedridge_benchmarks"),
    ):
        (copy / app / "results").mkdir()
        for folder in (app, f"{app}/results", f"{app}/{name}"):
            for litter in LEFT_BEHIND:
                (copy / folder / litter).write_text("secret")
    return copy


@pytest.mark.parametrize("app", ["", "simulations", "benchmarks"])
def test_a_bundle_for_flower_holds_code_and_nothing_else(
    littered: Path, app: str
) -> None:
    bundle = build_fab_from_disk(littered / app)
    with zipfile.ZipFile(io.BytesIO(bundle)) as opened:
        names = opened.namelist()
        assert not any(opened.read(name) == b"secret" for name in names)
    others = [name for name in names if not name.endswith(".py")]
    assert set(others) <= {"pyproject.toml", "LICENSE", ".info/CONTENT"}
    assert len(names) > 5


def test_wheel_and_sdist_hold_code_and_nothing_else(
    littered: Path, tmp_path: Path
) -> None:
    pytest.importorskip("hatchling", reason="hatchling comes with the extra dev")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=littered, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    code = {str(p.relative_to(PROJECT)) for p in SHIPPED if "fedridge_flwr" in p.parts}
    assert code <= set(names)
    others = {name for name in names if not name.endswith(".py")}
    about = {name for name in others if ".dist-info/" in name}
    assert others - about == {"fedridge_flwr/py.typed"}
    assert {Path(name).name for name in about} == {
        *("METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt")
    }
    with tarfile.open(sdist) as archive:
        packed = [name.partition("/")[2] for name in archive.getnames()]
    assert {name for name in packed if not name.endswith(".py")} == {
        *(
            "CHANGELOG.md",
            "CITATION.cff",
            "LICENSE",
            "PKG-INFO",
            "README.md",
            "SECURITY.md",
        ),
        *("fedridge_flwr/py.typed", "pyproject.toml"),
    }
