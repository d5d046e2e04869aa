"""Which notebooks were executed with the package as it is: notebooks/executed.sha256.

Executing all notebooks takes minutes, so `make test` executes only those for which
the record is out of date; `make notebooks` executes all and writes it.

A fingerprint covers what can break a notebook and is tested nowhere else: its own
source, the names, parameters and defaults of the public package that it may call, and
the versions of Flower and of what computes. It does not cover docstrings or function
bodies: bodies change with every commit, and what they compute has tests of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
RECORD = NOTEBOOKS / "executed.sha256"
PACKAGE = "fedridge_flwr"
PUBLIC = ("", ".errors", ".features", ".flower", ".privacy", ".regression")
PINNED = ("flwr", "matplotlib", "numpy", "ray", "scikit-learn", "scipy")


def fingerprint(source: Path) -> str:
    """Return the fingerprint of a notebook, given its .py pair."""
    text = "\n".join([source.read_text(encoding="utf-8"), *pins(), *interface()])
    return hashlib.sha256(text.encode()).hexdigest()


def pins() -> list[str]:
    """Return the pinned versions that a notebook's outputs depend on."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in PINNED]


def interface() -> list[str]:
    """Return one line for every public name, method and property."""
    return sorted(
        line
        for module in map(importlib.import_module, (PACKAGE + end for end in PUBLIC))
        for name in module.__all__
        for line in described(f"{module.__name__}.{name}", getattr(module, name))
    )


def described(name: str, value: object) -> Iterator[str]:
    """Yield a name with its parameters, and the same for the methods of a class."""
    yield f"{name}{parameters(value)}"
    if not inspect.isclass(value):
        return
    for kind in value.__mro__:
        if kind.__module__.partition(".")[0] == PACKAGE:
            for own, member in vars(kind).items():
                if not own.startswith("_"):
                    yield f"{name}.{own}{parameters(member)}"


def parameters(value: object) -> str:
    """Return parameters as they are called, annotations left out."""
    value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not callable(value):
        return ""
    try:
        found = inspect.signature(value).parameters.values()
    except ValueError:  # some classes written in C have none
        return "(?)"
    return f"({', '.join(map(_parameter, found))})"


def _parameter(found: inspect.Parameter) -> str:
    plain = str(found.replace(annotation=found.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", plain)


def recorded() -> dict[str, str]:
    """Return the fingerprints of the last execution, by the notebook's name."""
    if not RECORD.exists():
        return {}
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def is_current(source: Path) -> bool:
    """Tell whether a notebook was executed with the package as it is."""
    return recorded().get(source.name) == fingerprint(source)


def main() -> None:
    """Write the record: the notebooks have just been executed."""
    sources = sorted(NOTEBOOKS.glob("*.py"))
    lines = [f"{fingerprint(source)}  {source.name}\n" for source in sources]
    RECORD.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
