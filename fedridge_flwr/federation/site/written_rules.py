"""Rules as they are written, in a file or as arguments: reading and checking them."""

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..._checks import must_be
from ..._files import read_file
from ..._text import quoted
from ...errors import PolicyError

PATHS = {"state": "folder", "identity": "file", "roster": "file"}
"""The rules that are paths, and of what."""


def read_rules(file: Path) -> dict[str, Any]:
    """Return what a file says; paths in it are relative to its folder.

    Raises
    ------
    OSError, ValueError, RecursionError
        If it cannot be read, is no TOML, or says nothing.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "policy.toml"
    >>> _ = file.write_text('min_rows = 11')
    >>> read_rules(file)
    {'min_rows': 11}
    """
    rules = tomllib.loads(read_file(file))
    if not rules:
        raise PolicyError("it is empty.")
    for name in PATHS:
        if isinstance(rules.get(name), str) and rules[name]:
            rules[name] = file.parent / rules[name]
    return rules


def refuse_unknown(rules: Iterable[str], known: Collection[str]) -> None:
    """Raise if a rule is none: a typo must not leave a site without the rule."""
    unknown = [name for name in rules if name not in known]
    if unknown:
        raise PolicyError(f"there is no rule {quoted(unknown)}.")


def checked_texts(
    name: str, given: Any, known: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return a collection of texts as a tuple, or say what is wrong with it.

    Examples
    --------
    >>> checked_texts("allowed_columns", ["age", "bmi"])
    ('age', 'bmi')
    >>> checked_texts("allowed_columns", "age")
    Traceback (most recent call last):
    fedridge_flwr.errors.PolicyError: allowed_columns must be a list of texts, got \
'age'.
    """
    single = isinstance(given, str | Mapping) or not isinstance(given, Collection)
    if single or not all(isinstance(text, str) for text in given):
        raise must_be(name, "a list of texts", given, PolicyError)
    texts = tuple(given)
    unknown = [text for text in texts if known is not None and text not in known]
    if unknown:
        raise PolicyError(
            f"{name} has {quoted(unknown)}; known values are "
            f"{quoted(list(known or ()))}."
        )
    return texts


def checked_path(name: str, given: Any) -> Path | None:
    """Return a path, or None where none is given."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike) or not str(given):
        raise must_be(name, f"the path of a {PATHS[name]}", given, PolicyError)
    return Path(given)
