"""Codings, formulas and profiles of tables from a hostile other side.

Whatever is in them, an error of ours is raised, and nothing else: short in every run of
the tests, more in `make fuzz`.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedridge_flwr import FedRidgeError, TableFormula
from fedridge_flwr.data.coding import Coding
from fedridge_flwr.data.local_table import as_local_table
from fedridge_flwr.data.table_profile import TableProfile
from fedridge_flwr.federation.agreement.table_agreement import agree_on_coding

TABLE = pd.DataFrame(
    {"y": [1.0, 2.0, 3.0, 4.0], "a": [1.0, 2.0, None, 5.0], "b": ["u", "v", "u", "w"]}
)
FORMULA = TableFormula("y ~ a*C(b) + log1p(abs(a))", missing="indicator")
LOCAL = as_local_table(TABLE)
PROFILE = LOCAL.profile(FORMULA)
CODING = agree_on_coding(FORMULA, {"north": PROFILE})[0]
JUNK: list[Any] = [
    *(None, True, -1, 0, 10**400, 2**63, 1e308, -1e308, 1e-320, "", " ", "a", "y"),
    *("x" * 2_000, "\ud800", "\u202e", "`", "1", "0", "(missing)", "log(a)", "C(b)"),
    *("y ~ .", "y ~ .**3", "a ~ y", "y ~ a:b:a", "y ~ 0 + b", "~", "y ~ a | b"),
    *("y ~ C(b, Treatment('w'))", "y ~ C(b, Treatment('z'))", "y ~ exec('1')"),
    *("y ~ " + "(" * 4_000 + "a" + ")" * 4_000, "y ~ " + "+".join(["a"] * 3_000)),
    *("y ~ " + ":".join(f"(a{k}+b)" for k in range(30)), "y ~ I(a**-16)", "y ~ log(a)"),
    *("y ~ I(a*" + "9" * 400 + ")", "drop", "mean", "error", "number", "text", "empty"),
    *([], {}, [[]], ["a"], ["a", "a"], ["u"], ["u", "w"], [1e300, 1e300], [None]),
    *({"a": 1.0}, {"b": ["u", "v"]}, {"b": 0}, {"y": []}, {"": ["", "x"]}),
    *({"b": [f"{k}" for k in range(5_000)]}, [f"{k}" for k in range(199)]),
]


def mutated(content: Any, rng: np.random.Generator) -> Any:
    """Return the content with junk in some places, names of keys included."""
    found = copy.deepcopy(content)
    for _ in range(int(rng.integers(1, 4))):
        place = found
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = keys[rng.integers(len(keys))]
            inner = place[key]
            if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
                place = inner
                continue
            way = rng.random()
            junk = copy.deepcopy(JUNK[rng.integers(len(JUNK))])
            if way < 0.1:
                del place[key]
            elif way < 0.2 and isinstance(place, dict) and isinstance(junk, str):
                place[junk] = place.pop(key)
            else:
                place[key] = junk
            break
    return found


def try_coding(content: Any) -> None:
    """Read a coding as a client does, and code its table."""
    coding = Coding.from_json(json.dumps(content))
    LOCAL.coded(coding)


def try_formula(content: Any) -> None:
    """Read a formula as a client does, and describe its table."""
    LOCAL.scan(TableFormula.from_content(content))


def try_profile(content: Any) -> None:
    """Read a profile as the server does, and agree with an honest site."""
    text = json.dumps(content).encode()
    told = TableProfile.from_array(np.frombuffer(text, dtype=np.uint8))
    agree_on_coding(FORMULA, {"north": PROFILE, "south": told})


CASES = {
    "coding": (try_coding, CODING.content()),
    "formula": (try_formula, FORMULA.content()),
    "profile": (try_profile, json.loads(PROFILE.to_array().tobytes())),
}


def attack(name: str, seeds: range) -> int:
    """Return how many were refused; anything but an error of ours is raised."""
    attempt, content = CASES[name]
    refused = 0
    for seed in seeds:
        hostile = mutated(content, np.random.default_rng(seed))
        try:
            attempt(hostile)
        except FedRidgeError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}: {hostile}") from error
    return refused


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_understood_is_refused(name: str) -> None:
    CASES[name][0](CASES[name][1])
    assert attack(name, range(300)) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_thousands_are_refused(name: str) -> None:
    assert attack(name, range(10_000, 15_000)) > 1_500
