"""Honest answers of every kind, still open to be spoilt, and as Flower records."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import wire
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedridge_flwr import DifferentialPrivacy, FeatureMap
from fedridge_flwr.data.names import Names
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.features import ColumnMoments
from fedridge_flwr.features.mapped_rows import map_rows
from fedridge_flwr.federation.requests import (
    AskColumns,
    AskOpening,
    AskProduct,
    AskRelease,
    AskStatistics,
)
from fedridge_flwr.multiround import Opening, centred_product
from fedridge_flwr.privacy.curator import ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion, make_release
from fedridge_flwr.statistics.encoding import encode, encode_rows
from fedridge_flwr.statistics.fixed_point import FixedPointStatistics
from fedridge_flwr.statistics.sufficient import SufficientStatistics

Rng = np.random.Generator
MAPS = ("projection 1 seed=1", "polynomial 2", "fourier 4 gamma=0.5 seed=2")


@dataclass
class Draft:
    """What one client is about to send, in pieces that can be exchanged."""

    kind: str
    arrays: list[tuple[str, bytes]]
    fields: dict[str, Any]
    count: Any
    legacy: bool
    question: Any = None
    feature_map: FeatureMap | None = None
    opening: Opening | None = None
    status: dict[str, Any] = field(default_factory=lambda: {"code": 0, "message": ""})
    swap: dict[str, Any] = field(default_factory=dict)
    """Records to put under a key whatever belongs there; None takes it away."""

    @property
    def evaluates(self) -> bool:
        return self.kind in ("evaluation", "losses")

    def records(self) -> RecordDict:
        """Return the answer as it would be sent."""
        found = self._evaluated() if self.evaluates else self._trained()
        for key, record in self.swap.items():
            found.pop(key, None)
            if record is not None:
                found[key] = record
        return RecordDict(found)

    def _trained(self) -> dict[str, Any]:
        arrays = ArrayRecord(
            {
                name: FlowerArray("float64", (1,), "numpy.ndarray", data)
                for name, data in self.arrays
            }
        )
        if not self.legacy:
            return {
                "arrays": arrays,
                "metrics": _number_record("num-examples", self.count),
                "config": ConfigRecord(self.fields),
            }
        return {
            "fitres.parameters": arrays,
            "fitres.num_examples": _number_record("num_examples", self.count),
            "fitres.metrics": ConfigRecord(self.fields),
            "fitres.status": ConfigRecord(self.status),
        }

    def _evaluated(self) -> dict[str, Any]:
        if not self.legacy:
            numbers = {"num-examples": self.count, **self.fields}
            plain = {k: v for k, v in numbers.items() if _is_metric(v)}
            beside = {k: v for k, v in numbers.items() if not _is_metric(v)}
            found: dict[str, Any] = {"metrics": MetricRecord(plain)}
            return {**found, "config": ConfigRecord(beside)} if beside else found
        fields = dict(self.fields)
        for key in ("losses", "evaluation-sums"):
            if isinstance(fields.get(key), list):
                fields[key] = np.asarray(fields[key], "<f8").tobytes()
        loss = fields.get("mse", 0.0)
        return {
            "evaluateres.loss": _number_record("loss", loss),
            "evaluateres.num_examples": _number_record("num_examples", self.count),
            "evaluateres.metrics": ConfigRecord(fields),
            "evaluateres.status": ConfigRecord(self.status),
        }


def _is_metric(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, int | float) and not isinstance(first, bool)


def _number_record(key: str, value: Any) -> MetricRecord | ConfigRecord:
    if value is None:
        return MetricRecord({})
    record = MetricRecord if _is_metric(value) else ConfigRecord
    return record({key: value})


def npy(array: Any) -> bytes:
    """Return an array in NumPy's own format."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(array), allow_pickle=False)
    return stream.getvalue()


def numbers_of(data: bytes) -> np.ndarray:
    """Return the array of an honest answer; of a spoilt one there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.load(io.BytesIO(data), allow_pickle=False)
        except Exception:
            return np.zeros(0)


# ---- rows ------------------------------------------------------------------------


@dataclass
class Data:
    """Rows of one honest client."""

    X: np.ndarray
    Y: np.ndarray
    weight: np.ndarray | None


def some_data(rng: Rng, d: int | None = None, t: int | None = None) -> Data:
    """Return rows of one honest client: few or many, odd units, weights or none."""
    d = int(rng.integers(1, 7)) if d is None else d
    t = int(rng.choice([1, 1, 1, 2, 3])) if t is None else t
    n = int(rng.choice([1, 2, 3, d, d + 1, d + t, d + t + 1, 4 * d + 9]))
    rows = rng.normal(size=(n, d + t))
    style = rng.integers(6)
    if style == 0:
        rows += rng.choice([1e3, 1e6, 1e8])
    if style == 1:
        rows *= 10.0 ** rng.integers(-6, 7, size=d + t)
    if style == 2:
        rows[:, rng.integers(d + t)] = 7.0
    if style == 3:
        rows = np.round(rows * 3)
    weight = None
    if rng.random() < 0.25:
        weight = rng.choice([0.0, 0.5, 1.0, 2.0, 1e-3], size=n)
        weight[0] = 1.0
    return Data(rows[:, :d], rows[:, d:], weight)


# ---- answers ---------------------------------------------------------------------

PRIVACY = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=2.0, y_bound=3.0)
REFINED = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=2.0, y_bound=3.0, rounds=3)


def _statistics(dtype: str, few: bool) -> Callable[[Rng], Draft]:
    def make(rng: Rng) -> Draft:
        data = some_data(rng)
        mapped = not few and rng.random() < 0.25
        chosen = FeatureMap.from_text(str(rng.choice(MAPS))) if mapped else None
        rows = map_rows(check_rows(data.X, data.Y, data.weight), chosen)
        found = (
            encode_rows(rows, dtype)
            if few
            else encode(SufficientStatistics.from_rows(rows), dtype)
        )
        if few and not found.kind.startswith("factor"):
            wide = np.hstack([data.X[:2], rng.normal(size=(len(data.X[:2]), 8))])
            rows = check_rows(wide, data.Y[:2])
            found = encode_rows(rows, dtype)
        fields = wire.schema_fields(found.kind, rows, False)
        question = AskStatistics(dtype)
        return _draft(rng, found.kind, found.arrays, fields, found.count, question) | {
            "feature_map": chosen
        }

    return lambda rng: Draft(**make(rng))


def _fixed(rng: Rng) -> Draft:
    data = some_data(rng)
    mapped = rng.random() < 0.25
    chosen = FeatureMap.from_text(str(rng.choice(MAPS[:2]))) if mapped else None
    if mapped:
        data.X = np.clip(data.X, -1e3, 1e3)  # squares must not overflow
    rows = map_rows(check_rows(data.X, data.Y, data.weight), chosen)
    words = {"words": FixedPointStatistics.from_rows(rows).to_words()}
    kind = "fixed" if data.weight is None else "fixed-weighted"
    fields = wire.schema_fields(kind, rows, False)
    question = AskStatistics(statistics="fixed")
    draft = _draft(rng, kind, words, fields, rows.n_rows, question)
    return Draft(**draft, feature_map=chosen)


def _draft(
    rng: Rng, kind: str, arrays: Any, fields: Any, count: Any, question: Any
) -> dict[str, Any]:
    return {
        "kind": kind,
        "arrays": [(name, npy(array)) for name, array in arrays.items()],
        "fields": dict(fields),
        "count": count,
        "legacy": bool(rng.random() < 0.5),
        "question": question,
    }


def _named(rng: Rng, rows: Any) -> Any:
    """Give columns names now and then, so that names travel too."""
    if rng.random() < 0.3:
        from dataclasses import replace

        names = tuple(f"x{j}" for j in range(rows.n_features))
        return replace(rows, schema=replace(rows.schema, features=Names.of(names)))
    return rows


def _plain(rng: Rng) -> Draft:
    data = some_data(rng)
    weight = np.ones(len(data.X)) if data.weight is None else data.weight
    gram = (data.X * weight[:, None]).T @ data.X
    moment = (data.X * weight[:, None]).T @ data.Y
    if rng.random() < 0.5:
        gram = gram[np.triu_indices(len(gram))]
    if moment.shape[1] == 1 and rng.random() < 0.5:
        moment = moment[:, 0]
    arrays = {"0": gram, "1": moment}
    return Draft(**_draft(rng, "plain", arrays, {}, len(data.X), AskStatistics()))


def _opening(mode: str) -> Callable[[Rng], Draft]:
    def make(rng: Rng) -> Draft:
        data = some_data(rng)
        rows = check_rows(data.X, data.Y, data.weight)
        opening = Opening.from_rows(rows, factor=mode == "refine")
        fields = wire.schema_fields("opening", _named(rng, rows), True)
        question = AskOpening(mode)
        arrays = opening.to_arrays()
        return Draft(**_draft(rng, "opening", arrays, fields, rows.n_rows, question))

    return make


def _product(rng: Rng) -> Draft:
    data = some_data(rng)
    rows = check_rows(data.X, data.Y, data.weight)
    vectors = rng.normal(size=(rows.n_features, int(rng.integers(1, 4))))
    opening = Opening.from_rows(rows, factor=bool(rng.random() < 0.5))
    product = {"product": centred_product(rows, vectors)}
    fields = wire.schema_fields("product", rows, False)
    draft = _draft(rng, "product", product, fields, rows.n_rows, AskProduct(vectors))
    return Draft(**draft, opening=opening)


def _columns(rng: Rng) -> Draft:
    data = some_data(rng)
    rows = check_rows(data.X, data.Y, data.weight)
    arrays = {"columns": ColumnMoments.from_rows(rows).to_array()}
    fields = wire.schema_fields("columns", rows, False)
    return Draft(**_draft(rng, "columns", arrays, fields, rows.n_rows, AskColumns()))


def _private(rng: Rng) -> Draft:
    refined = rng.random() < 0.3
    data = some_data(rng, t=1 if refined else None)
    rows = check_rows(data.X, data.Y)
    privacy = REFINED if refined else PRIVACY
    question = ReleaseQuestion(1, None, 5.0) if refined else ReleaseQuestion()
    release = make_release(
        rows, privacy, intercept=True, question=question, source=rng.bytes
    )
    request = AskRelease(ReleaseRequest("0" * 32, privacy, True, question))
    fields = wire.schema_fields("private", _named(rng, rows), True)
    return Draft(**_draft(rng, "private", {"release": release}, fields, 1, request))


def _evaluation(rng: Rng) -> Draft:
    fields: dict[str, Any] = {"mse": float(rng.exponential())}
    variance = float(rng.exponential())
    fields["r2"] = 1.0 - fields["mse"] / variance
    if rng.random() < 0.7:  # clients of 0.1.0 do not send it
        mean, weight = float(rng.normal()), float(rng.exponential())
        fields["evaluation-sums"] = [weight, mean, 0.0, variance, fields["mse"]]
    return Draft(**_draft(rng, "evaluation", {}, fields, int(rng.integers(2, 50)), 0))


def _losses(rng: Rng) -> Draft:
    expected = int(rng.integers(1, 6))
    fields = {"losses": rng.exponential(size=expected).tolist()}
    count = int(rng.integers(1, 50))
    return Draft(**_draft(rng, "losses", {}, fields, count, expected))


HONEST: dict[str, Callable[[Rng], Draft]] = {
    "packed statistics": _statistics("float64", few=False),
    "float32 statistics": _statistics("float32", few=False),
    "factor of few rows": _statistics("float64", few=True),
    "float32 factor": _statistics("float32", few=True),
    "plain (G, h)": _plain,
    "opening (refine)": _opening("refine"),
    "opening (cg)": _opening("cg"),
    "product": _product,
    "column moments": _columns,
    "private release": _private,
    "evaluation": _evaluation,
    "held-out losses": _losses,
}
"""Kinds of answers that the server reads, by their names in the table."""

FIXED: dict[str, Callable[[Rng], Draft]] = {"fixed-point statistics": _fixed}
"""Whole numbers, which have a run of their own (`test_fuzz_fixed.py`)."""
