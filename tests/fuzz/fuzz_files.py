"""Cases of files: models, ledgers and feature maps that were damaged or made up."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_drafts import MAPS, PRIVACY, Rng, some_data
from fuzz_run import Case, Trial, WrongAcceptError, quiet

from fedridge_flwr import (
    FeatureMap,
    FedRidgeError,
    PrivacyLedger,
    RidgeModel,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.privacy import ledger_file

Damage = Callable[[Rng, bytes], bytes]
JSON_LEDGER = Path(__file__).parents[1] / "privacy" / "ledger_0_1_0.json"


# ---- damage ------------------------------------------------------------------------


def _bits(rng: Rng, data: bytes) -> bytes:
    spoilt = bytearray(data)
    used = [k for k, byte in enumerate(data) if byte]  # databases are mostly zeros
    for _ in range(int(rng.choice([1, 1, 1, 2, 10]))):
        spoilt[used[rng.integers(len(used))]] ^= 1 << int(rng.integers(8))
    return bytes(spoilt)


def _cut(rng: Rng, data: bytes) -> bytes:
    if rng.random() < 0.7:
        return data[: int(rng.integers(len(data)))]
    return data + rng.choice([b"}", b"{}", b"\x00", b"garbage", data[:50]])


def _values(rng: Rng) -> Any:
    odd: tuple[Any, ...] = (
        None,
        True,
        False,
        -1,
        0,
        1,
        10**30,
        10**400,
        -0.0,
        1e308,
        "text",
        "",
        [],
        {},
        [1.0, "x"],
        [[1.0], [2.0, 3.0]],
        {"a": 1},
        [[[[1.0]]]],
        "9" * 100,
    )
    return odd[rng.integers(len(odd))]


def _other_value(rng: Rng, data: bytes) -> bytes:
    """Exchange, remove or repeat one value somewhere in the document."""
    content = json.loads(data)
    place: Any = content
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        if not keys:
            break
        key = list(keys)[rng.integers(len(keys))]
        inner = place[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
            place = inner
            continue
        if rng.random() < 0.2:
            del place[key]
        else:
            place[key] = _values(rng)
        break
    return json.dumps(content).encode()


def _other_text(rng: Rng, data: bytes) -> bytes:
    """NaN, numbers beyond all bounds, keys twice, nesting, other encodings."""
    text, deep = data.decode(), int(rng.choice([50, 2000, 100_000]))
    digits = [k for k, c in enumerate(text) if c.isdigit()]
    k = digits[rng.integers(len(digits))] if digits else 0
    made = (
        text[:k] + str(rng.choice(["NaN", "Infinity", "-Infinity"])) + text[k + 1 :],
        text[:k] + "1e999" + text[k + 1 :],
        text[:k] + "9" * int(rng.choice([30, 400, 5000])) + text[k + 1 :],
        text.replace("{", text.strip()[:-1] + ",", 1),
        text.replace("{", '{"version": 1, "clients": {}, ', 1),
        "[" * deep + text + "]" * deep,
        '{"a":' * deep + "1" + "}" * deep,
        text.replace(":", ": " + "[" * deep, 1),
        "\ufeff" + text,
        text.replace("\n", "\x00"),
        "null",
        "",
    )
    chosen = made[rng.integers(len(made))]
    return chosen.encode(str(rng.choice(["utf-8", "utf-8", "utf-16"])))


DAMAGES: dict[str, Damage] = {
    "nothing": lambda rng, data: data,
    "bits flipped": _bits,
    "cut off or continued": _cut,
    "another value": _other_value,
    "NaN, huge numbers, keys twice, nesting": _other_text,
    "random bytes": lambda rng, data: rng.bytes(int(rng.integers(200))),
}


def _in_the_way(rng: Rng, path: Path) -> None:
    """Put something that is no file where the file should be."""
    path.unlink()
    which = int(rng.integers(5))
    if which == 0:
        path.mkdir()
    elif which == 1:
        path.symlink_to("/dev/zero")
    elif which == 2:
        path.symlink_to(path)
    elif which == 3:
        path.symlink_to(path.with_name("gone"))
    else:
        path.write_bytes(b"")


# ---- readers -----------------------------------------------------------------------


def _model(rng: Rng) -> RidgeModel:
    data = some_data(rng)
    X, Y = rng.normal(size=data.X.shape), data.Y
    if rng.random() < 0.4:
        chosen = FeatureMap.from_text(str(rng.choice(MAPS)))
        stats = SufficientStatistics.from_data(X, Y, feature_map=chosen)
        return solve(stats, 1.0).with_feature_map(chosen, X.shape[1])
    return solve(SufficientStatistics.from_data(X, Y), 1.0)


def _check_model(model: RidgeModel, path: Path) -> None:
    """Use a model that was loaded: what it does must work."""
    shape = model.coef_.shape
    good = model.coef_.dtype == np.float64 and len(shape) in (1, 2) and model.coef_.size
    if not good or not np.isfinite(model.coef_).all() or not model.alpha_ >= 0:
        raise WrongAcceptError("a model without finite coefficients")
    names = getattr(model, "feature_names_in_", None)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise WrongAcceptError("names that are no text")
    repr(model)
    model.summary()
    with contextlib.suppress(FedRidgeError):  # of a map whose features overflow
        model.predict(np.zeros((2, model.n_features_in_)))
    model.save(path)
    RidgeModel.load(path)


def _of_model(name: str, damage: Damage | None) -> Trial:
    def trial(rng: Rng) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            _model(rng).save(path)
            _spoil(rng, path, damage)
            try:
                model = RidgeModel.load(path)
            except FileNotFoundError:
                raise FedRidgeError("there is no such file.") from None
            _check_model(model, Path(folder) / "again.json")
        return None

    return trial


def _spoil(rng: Rng, path: Path, damage: Damage | None) -> None:
    if damage is None:
        _in_the_way(rng, path)
    else:
        path.write_bytes(damage(rng, path.read_bytes()))


def _other_row(rng: Rng, path: Path) -> None:
    """Change one value in the database of a ledger."""
    changes = (
        "DELETE FROM answers",
        "UPDATE answers SET client = 'clinjc'",
        "UPDATE answers SET mu_add_or_remove = 1e-9",
    )
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(changes[rng.integers(len(changes))])
        database.commit()


def _json_ledger() -> str:
    content = json.loads(JSON_LEDGER.read_text(encoding="utf-8"))
    # Not the checksum of the file: a test may have planted a bug in this one.
    checksum = ledger_file._checksum(content["clients"])
    return json.dumps(content | {"checksum": checksum})


def _of_ledger(name: str, damage: Damage | None) -> Trial:
    def trial(rng: Rng) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            how = str(rng.choice(["exact", "basic"]))
            ledger, other = (
                PrivacyLedger(Path(folder) / name, 50.0, 1e-3, accounting=how)
                for name in ("ledger", "other")
            )
            if damage is _other_text or rng.random() < 0.5:
                # A file of 0.1.0, which is converted as soon as it is read.
                for each in (ledger, other):
                    each.path.write_text(_json_ledger())
                before = other.spent("clinic")
                _spoil(rng, ledger.path, damage)
            else:
                for k in range(int(rng.integers(1, 3))):
                    ledger.charge("clinic", f"release {k}", PRIVACY)
                before = ledger.spent("clinic")
                if damage is _other_value:
                    _other_row(rng, ledger.path)
                else:
                    _spoil(rng, ledger.path, damage)
            after = ledger.spent("clinic")
            if after != before:
                raise WrongAcceptError(f"{before} was spent, {after} is read")
        return None

    return trial


def _of_map(name: str, damage: Damage) -> Trial:
    def trial(rng: Rng) -> str | None:
        text = FeatureMap.from_text(
            str(rng.choice([*MAPS, "standardize | polynomial 2", "tangent 3"]))
        ).to_json()
        data = damage(rng, text.encode())
        made = FeatureMap.from_json(data.decode("utf-8", "replace"))
        if FeatureMap.from_json(made.to_json()) != made:
            raise WrongAcceptError("a map that does not come back")
        made.describe(2)
        if not made.needs_data:
            try:
                wide = made.n_features_out(2)
                if wide < 1000:
                    mapped = made.transform(np.zeros((1, 2)))
                    if mapped.shape != (1, wide):
                        raise WrongAcceptError("another number of columns than it says")
            except FedRidgeError:
                pass  # two columns are too few for it
        return None

    return trial


def file_cases() -> list[Case]:
    found = []
    for name, damage in DAMAGES.items():
        found += [
            Case("model file", name, quiet(_of_model(name, damage))),
            Case("privacy ledger", name, quiet(_of_ledger(name, damage)), share=0.5),
            Case("feature map", name, quiet(_of_map(name, damage))),
        ]
    name = "a folder, a device, a link to nowhere"
    found += [
        Case("model file", name, quiet(_of_model(name, None)), share=0.3),
        Case("privacy ledger", name, quiet(_of_ledger(name, None)), share=0.3),
    ]
    return found
