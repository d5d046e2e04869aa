"""Tables nobody wrote: the same columns at every site, each site in its own spelling.

A case is made from a seed alone. Its pooled fit is made by pandas, formulaic and
scikit-learn from the values before anybody spelled them.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from formulaic import Formula
from sklearn.linear_model import Ridge

from fedridge_flwr import FedRidgeError, TableFile, TableFormula
from fedridge_flwr.flower.local_fit import LocalFit

NAMES = ["age", "body mass", "Chol", "x.y", "größe", "q-1", "is it", "_z"]
LEVELS = [
    ["f", "m"],
    ["north", "south", "very far"],
    ["a,b", "c;d", 'say "no"'],
    ["ja", "nein", "weiß nicht", "(other)"],
]
WRITERS = ["text", "text", "text", "pandas", "polars", "arrow"]
WRITERS += ["pandas parquet", "polars parquet", "arrow parquet"]
GAPS = ["", "NA", "NaN", "?", "null", " "]
KINDS = ["number", "number", "whole", "flag", "text", "codes", "digits"]
DIGITS = ["007", "010", "011"]  # a category only where C() says so


@dataclass
class Case:
    """Tables of several sites, a formula over them, and how missing values count."""

    seed: int
    frames: list[pd.DataFrame] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    formula: str = ""
    missing: str = "drop"
    alpha: float = 1.0
    weights: str = ""
    spoiled: tuple[str, str] = ("", "")  # site and column

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, 1])


def make_case(seed: int) -> Case:
    """Return values of all sites as they are, before anybody writes them down."""
    rng = np.random.default_rng(seed)
    case = Case(seed)
    names = rng.permutation(NAMES)[: rng.integers(2, 6)].tolist()
    case.kinds = {name: str(rng.choice(KINDS)) for name in names}
    levels = {name: LEVELS[rng.integers(len(LEVELS))] for name in names}
    gaps = {name: float(rng.choice([0.0, 0.0, 0.1, 0.25])) for name in names}
    for _ in range(rng.integers(2, 5)):
        n = int(rng.integers(12, 40))
        columns = {
            name: _values(rng, kind, levels[name], n)
            for name, kind in case.kinds.items()
        }
        frame = pd.DataFrame({**columns, "y": rng.normal(size=n).round(3)})
        for name in names:
            frame.loc[rng.random(n) < gaps[name], name] = None
        case.frames.append(frame)
    case.missing = str(rng.choice(["drop", "drop", "mean", "indicator"]))
    case.alpha = float(rng.choice([0.1, 1.0, 10.0]))
    case.formula = _formula(rng, case.kinds)
    if rng.random() < 0.2:
        case.weights = "w"
        for frame in case.frames:
            frame["w"] = rng.integers(0, 4, len(frame)) / 2
    return case


def spoil(case: Case) -> Case:
    """Return the case with one column of one site that fits nobody else's."""
    rng = np.random.default_rng([case.seed, 2])
    site, name = int(rng.integers(len(case.frames))), str(rng.choice(list(case.kinds)))
    frame, n = case.frames[site], len(case.frames[site])
    case.missing = "drop"
    # Of a column that is not there, nobody knows that a point should have taken it.
    ways: list[Any] = [[None] * n, *([None] if case.formula != "y ~ ." else [])]
    if not _is_category(case, name):
        ways += [["2020-01-31"] * n, [f"number {k}" for k in range(n)]]
    way = ways[rng.integers(len(ways))]
    spoiled = frame.drop(columns=name)
    case.frames[site] = spoiled if way is None else spoiled.assign(**{name: way})
    case.spoiled = f"site{site}", name
    return case


def _values(rng: np.random.Generator, kind: str, levels: list[str], n: int) -> Any:
    some = levels[: rng.integers(2, len(levels) + 1)]
    return {
        "number": lambda: rng.normal(50.0, 9.0, n).round(int(rng.integers(0, 5))),
        "whole": lambda: rng.integers(0, 90, n).astype(float),
        "flag": lambda: rng.integers(0, 2, n).astype(float),
        "text": lambda: rng.choice(some, n).astype(object),
        "codes": lambda: rng.choice([1.0, 2.0, 3.0, 10.0], n),
        "digits": lambda: rng.choice(DIGITS, n).astype(object),
    }[kind]()


def _formula(rng: np.random.Generator, kinds: dict[str, str]) -> str:
    if rng.random() < 0.1 and not {"codes", "digits"} & {*kinds.values()}:
        return "y ~ ."

    def term(name: str) -> str:
        quoted = f"`{name}`"
        forms = {
            "number": [
                quoted,
                quoted,
                f"I({quoted}**2 / 100)",
                f"log1p(abs({quoted}))",
            ],
            "whole": [quoted, f"sqrt({quoted})"],
            "flag": [quoted, f"C({quoted})"],
            "text": [quoted, f"C({quoted})"],
            "codes": [f"C({quoted})", f"C({quoted}, Treatment('2'))"],
            "digits": [f"C({quoted})"],
        }[kinds[name]]
        return str(rng.choice(forms))

    terms = {name: term(name) for name in kinds}
    if len(kinds) > 1 and rng.random() < 0.5:
        first, second = rng.permutation(list(kinds))[:2]
        sign = rng.choice([":", "*"])
        terms[""] = f"{terms[first]}{sign}{terms[second]}"
    none = "0 + " if rng.random() < 0.2 else ""
    return f"y ~ {none}{' + '.join(terms.values())}"


# ---- in one place --------------------------------------------------------------------


def pooled(case: Case, order: Sequence[str]) -> tuple[list[str], Any, Any]:
    """Return names, coefficients and intercept of the fit over all rows at once.

    The order of the columns matters to a point in the formula, and to nothing else.
    """
    whole = pd.concat(case.frames, ignore_index=True)
    categories = {n for n in case.kinds if _is_category(case, n)}
    marks = {}
    for name in case.kinds:
        column = whole[name]
        if name in categories:
            text = column.map(_level, na_action="ignore")
            levels = sorted(text.dropna().unique(), key=_order)
            if case.missing == "indicator" and column.isna().any():
                text, levels = text.fillna("(missing)"), [*levels, "(missing)"]
            whole[name] = pd.Categorical(text, categories=levels)
        elif case.missing != "drop":
            if case.missing == "indicator" and column.isna().any():
                marks[f"missing({name})"] = column.isna().astype(float)
            whole[name] = column.astype(float).fillna(column.astype(float).mean())
        else:
            whole[name] = column.astype(float)
    kept = whole.notna().all(axis=1)
    everything = " + ".join(f"`{name}`" for name in order)
    design = Formula(case.formula.replace(" .", f" {everything}")).get_model_matrix(
        whole[kept], context={"log1p": np.log1p, "sqrt": np.sqrt, "abs": np.abs}
    )
    X = design.rhs.drop(columns="Intercept", errors="ignore")
    X = X.assign(**{name: mark[kept] for name, mark in marks.items()})
    with_intercept = "Intercept" in design.rhs.columns
    ridge = Ridge(alpha=case.alpha, fit_intercept=with_intercept)
    weight = whole.loc[kept, "w"].to_numpy(float) if case.weights else None
    ridge.fit(X.to_numpy(float), whole.loc[kept, "y"].to_numpy(float), weight)
    return list(X.columns), ridge.coef_, ridge.intercept_


def _is_category(case: Case, name: str) -> bool:
    return case.kinds[name] == "text" or f"C(`{name}`" in case.formula


def _level(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _order(level: str) -> tuple[bool, float, str]:
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


# ---- at the sites --------------------------------------------------------------------


def write_tables(case: Case, folder: Path) -> dict[str, Path]:
    """Write the table of every site as some program or person might have done."""
    rng, paths = case.rng, {}
    for k, frame in enumerate(case.frames):
        own = frame[rng.permutation(frame.columns)].copy()
        if rng.random() < 0.3 and case.formula != "y ~ .":
            own["remarks"] = "none, so far"
        writer = str(rng.choice(WRITERS))
        suffix = "parquet" if "parquet" in writer else "csv"
        path = folder / f"site{k}.{suffix}"
        if writer == "text":
            path = _write_text(rng, own, path)
        else:
            _write_frame(rng, case, own, path, writer)
        paths[f"site{k}"] = path
    return paths


def _write_frame(
    rng: np.random.Generator, case: Case, frame: pd.DataFrame, path: Path, writer: str
) -> None:
    frame = frame.convert_dtypes() if rng.random() < 0.5 else frame
    for name in sorted({*case.kinds} - {case.spoiled[1]}):
        kind = case.kinds[name]
        if kind == "codes" and rng.random() < 0.5:
            frame[name] = frame[name].map(lambda v: f"{v:.1f}", na_action="ignore")
        elif kind == "text" and rng.random() < 0.5:
            frame[name] = frame[name].astype("category")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    match writer:
        case "pandas":
            frame.to_csv(path, index=bool(rng.random() < 0.3))
        case "polars":
            pl.from_arrow(table).write_csv(path)
        case "arrow":
            decoded = [
                column.combine_chunks().dictionary_decode()
                if pa.types.is_dictionary(column.type)
                else column
                for column in table.columns
            ]
            plain = pa.table(decoded, names=table.column_names)
            pyarrow.csv.write_csv(plain, path)
        case "pandas parquet":
            frame.to_parquet(path)
        case "polars parquet":
            pl.from_arrow(table).write_parquet(path)
        case "arrow parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=7)


def _write_text(rng: np.random.Generator, frame: pd.DataFrame, path: Path) -> Path:
    """Write a file as people and old programs do."""
    delimiter = str(rng.choice([",", ";", "\t", "|"]))
    comma = delimiter != "," and rng.random() < 0.3
    gap = str(rng.choice(GAPS))
    pad = " " if delimiter != "\t" and rng.random() < 0.2 else ""
    quoting = csv.QUOTE_ALL if rng.random() < 0.3 else csv.QUOTE_MINIMAL
    spelled = {
        name: [_spelled(rng, value, gap, comma) for value in frame[name]]
        for name in frame
    }
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    end = "\r\n" if rng.random() < 0.3 else "\n"
    packed = rng.random() < 0.2
    path = path.with_suffix(".csv.gz") if packed else path
    opened: Any = gzip.open if packed else open
    with opened(path, "wt", encoding=encoding, newline="") as file:
        writer = csv.writer(
            file, delimiter=delimiter, quoting=quoting, lineterminator=end
        )
        writer.writerow([f"{pad}{name}{pad}" for name in spelled])
        for row in zip(*spelled.values(), strict=True):
            writer.writerow([f"{pad}{entry}" for entry in row])
    return path


def _spelled(rng: np.random.Generator, value: Any, gap: str, comma: bool) -> str:
    if value is None or value != value:
        return gap
    if isinstance(value, str):
        return value
    forms = [repr(float(value)), f"{value:.6f}"]
    forms += [f"{value:g}", f"{value:.2f}"] if value == int(value) else []
    text = str(rng.choice(forms))
    return text.replace(".", ",") if comma else text


# ---- both ----------------------------------------------------------------------------


def federated(case: Case, paths: dict[str, Path], lost: str | None = None) -> LocalFit:
    """Return the fit of the federation: requests and answers over the files.

    A site that is lost answers the first round, and no other.
    """
    formula = TableFormula(case.formula, missing=case.missing, weights=case.weights)
    fit = LocalFit(formula=formula, alpha=case.alpha, strict=lost is None)
    asked: Counter[str] = Counter()

    def load(name: str) -> TableFile:
        asked[name] += 1
        if name == lost and asked[name] > 1:
            raise ConnectionError("gone")
        return TableFile(paths[name])

    return fit.run({name: partial(load, name) for name in paths})


def outcome(case: Case, folder: Path, lost: str | None = None) -> str:
    """Return "" where the federation equals the pooled fit, else what it said."""
    paths = write_tables(case, folder)
    try:
        model = federated(case, paths, lost).model_
    except FedRidgeError as error:
        return str(error)
    if lost is not None:
        case.frames.pop(list(paths).index(lost))
    assert sorted(model.coding.columns) == sorted(case.kinds), case.formula
    names, coef, intercept = pooled(case, model.coding.columns)
    assert list(model.feature_names_in_) == names, case.formula
    scale = max(1.0, float(np.abs(coef).max()), abs(float(intercept)))
    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(model.intercept_, intercept, rtol=0, atol=1e-9 * scale)
    return ""
