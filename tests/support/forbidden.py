"""What shipped code must not do, found in its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

UNPICKLERS = {
    *("pickle", "cPickle", "_pickle", "pickletools", "copyreg", "dill"),
    *("cloudpickle", "marshal", "shelve", "joblib"),
}
EXECUTORS = {"eval", "exec", "compile", "__import__", "breakpoint"}
CALLS = {
    *("os.system", "os.popen", "pty.spawn", "subprocess.getoutput"),
    *("subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
    *("tempfile.mktemp", "pandas.read_pickle", "pd.read_pickle"),
}
LOADERS = {"np.load", "numpy.load"}
# Only to be linked to in text, and none is asked for anything.
DOCUMENTATION = {"arxiv.org", "doi.org", "flower.ai"}
WHOLESALE = {"environ", "environment", "run_config", "node_config"}

_HOST = re.compile(r"https?://([^/\s'\"`)>]*)")
_PATH = re.compile(
    r"(?<![\w./~-])/(?:home|Users|root|tmp|work|opt|mnt|srv|var|usr|etc)/"
    r"|\b[A-Za-z]:\\(?!n)"
)
_LOGS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def findings(source: str) -> list[str]:
    """Return what is wrong with a module, a line each."""
    tree = ast.parse(source)
    return [
        f"line {getattr(node, 'lineno', 0)}: {what}"
        for node in ast.walk(tree)
        for what in _wrong(node)
    ]


def _wrong(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from _bad_modules(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from _bad_modules([node.module or ""])
    elif isinstance(node, ast.Assert):
        yield "assert, which python -O leaves out"
    elif isinstance(node, ast.Call):
        yield from _bad_call(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from bad_text(node.value)
    elif isinstance(node, ast.FormattedValue):
        yield from _wholesale(node.value)


def _bad_modules(names: Iterator[str] | list[str]) -> Iterator[str]:
    for name in names:
        if name.partition(".")[0] in UNPICKLERS:
            yield f"imports {name}"


def _bad_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    given = {word.arg: word.value for word in node.keywords}
    if name.removeprefix("builtins.") in EXECUTORS:
        yield f"calls {name}"
    if name in CALLS or name.startswith(("os.exec", "os.spawn", "os.posix_spawn")):
        yield f"calls {name}"
    if name.endswith("import_module") and not isinstance(node.args[0], ast.Constant):
        yield "imports what a variable names"
    if "shell" in given and not _is(given["shell"], False):
        yield f"{name} with a shell"
    if name in LOADERS and not _is(given.get("allow_pickle"), False):
        yield f"{name} without allow_pickle=False"
    if not _is(given.get("allow_pickle", ast.Constant(False)), False):
        yield f"{name} with allow_pickle"
    if name == "print" or name.rpartition(".")[2] in _LOGS:
        for argument in node.args:
            yield from _wholesale(argument)


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _wholesale(node: ast.expr) -> Iterator[str]:
    """Find a whole environment or configuration, with the secrets that it may hold."""
    name = getattr(node, "attr", getattr(node, "id", ""))
    if name in WHOLESALE:
        yield f"tells the whole {name}"


def bad_text(text: str) -> Iterator[str]:
    """Find hosts that are asked for something, and paths of one machine."""
    for host in _HOST.findall(text):
        if host not in DOCUMENTATION:
            yield f"the host {host}"
    if _PATH.search(text):
        yield f"a path of one machine in {text[:60]!r}"
