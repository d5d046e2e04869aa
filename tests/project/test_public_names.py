"""The reference is made of docstrings: every public name has one that is complete.

That the examples are true is for ``--doctest-modules``. Here: that there are some, that
pytest finds them, that they can be pasted as they stand, and that nothing is left out.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
from functools import cached_property, lru_cache
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

MODULES = [
    "fedridge_flwr",
    "fedridge_flwr.features",
    "fedridge_flwr.flower",
    "fedridge_flwr.privacy",
    "fedridge_flwr.regression",
]
PROPERTIES = (property, cached_property)
METHODS = (FunctionType, classmethod, staticmethod)


def public_names() -> dict[str, Any]:
    """Return everything in an ``__all__``, each under the first of its names."""
    found: dict[str, Any] = {}
    for module in map(import_module, MODULES):
        for name in module.__all__:
            if getattr(module, name) not in found.values():
                found[f"{module.__name__}.{name}"] = getattr(module, name)
    return found


def own_members(classes: dict[str, Any]) -> dict[str, Any]:
    """Return the public methods and properties that these classes define."""
    return {
        f"{name}.{member}": found
        for name, cls in classes.items()
        if inspect.isclass(cls)
        for member, found in vars(cls).items()
        if not member.startswith("_")
        # Not what scikit-learn adds to estimators, such as set_fit_request.
        and isinstance(found, METHODS + PROPERTIES)
    }


NAMES = public_names()
MEMBERS = own_members(NAMES)
ALL = NAMES | MEMBERS


def docstring(name: str) -> str:
    return inspect.cleandoc(ALL[name].__doc__ or "")


def section(name: str, title: str) -> str:
    """Return the text of a numpydoc section, empty if it is not there."""
    parts = re.split(r"^(\w[\w ]*)\n-+\n", docstring(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "")


@pytest.mark.parametrize("module", MODULES)
def test_names_are_sorted_and_can_be_imported(module: str) -> None:
    names = import_module(module).__all__
    assert names == sorted(names), f"sort __all__ of {module}"
    exec(f"from {module} import *", {})


# ---- examples ------------------------------------------------------------------------


@lru_cache
def doctests_of(module: str) -> dict[str, doctest.DocTest]:
    """Return the doctests that pytest collects from a module."""
    found = doctest.DocTestFinder().find(import_module(module))
    return {test.name: test for test in found}


@pytest.mark.parametrize("name", NAMES)
def test_it_has_an_example_that_pytest_runs(name: str) -> None:
    module, within = NAMES[name].__module__, NAMES[name].__qualname__
    assert ">>>" in section(name, "Examples")
    assert module.startswith("fedridge_flwr")
    examples = doctests_of(module)[f"{module}.{within}"].examples
    assert not any(example.options.get(doctest.SKIP) for example in examples)


def undefined_names(text: str) -> set[str]:
    """Return the names that examples use, and neither import nor define."""
    examples = doctest.DocTestParser().get_examples(text)
    used, known = set[str](), set(dir(builtins))
    for node in ast.walk(ast.parse("".join(each.source for each in examples))):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                known.add(name)
            case ast.alias(name=name, asname=other):
                known.add(other or name)
            case ast.ExceptHandler(name=str(name)):
                known.add(name)
    return used - known


@pytest.mark.parametrize("name", ALL)
def test_its_examples_can_be_pasted(name: str) -> None:
    assert not undefined_names(docstring(name))


# ---- everything is described ---------------------------------------------------------


def parameters(found: Any) -> set[str]:
    error = inspect.isclass(found) and issubclass(found, Exception)
    if error and "__init__" not in vars(found):
        return set()  # those of ValueError or UserWarning: a message
    function = getattr(found, "__func__", found)  # of a classmethod or staticmethod
    return set(inspect.signature(function).parameters) - {"self", "cls"}


def described(name: str) -> set[str]:
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", section(name, "Parameters"), re.M)
    return {each.strip().lstrip("*") for head in heads for each in head.split(",")}


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_described(name: str) -> None:
    assert described(name) == parameters(NAMES[name])


@pytest.mark.parametrize("name", MEMBERS)
def test_methods_and_properties_say_what_they_do(name: str) -> None:
    first, found = docstring(name).partition("\n")[0], MEMBERS[name]
    assert first.endswith(".")
    if isinstance(found, PROPERTIES):
        assert ":" not in first, "Sphinx's napoleon would take it for a type"
    elif section(name, "Parameters"):
        assert described(name) == parameters(found)
