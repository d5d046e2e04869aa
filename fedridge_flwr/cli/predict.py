"""`fedridge predict`: predictions for the rows of a new table, coded as the model's."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._text import counted, quoted
from ..data.site_files import table_options
from ..data.sources import TableBatch, TableFile
from ..data.table_errors import UnknownLevelsError, load_arrow
from ..data.table_options import TableOptions
from ..data.table_values import level_of
from ..errors import FedRidgeError
from ..regression.model import RidgeModel
from .progress import Progress

_SHOWN = 12


def predict_table(
    model: RidgeModel,
    path: Path,
    output: Path,
    *,
    table: Path | None = None,
    unknown: str = "error",
    fitted: TableOptions | None = None,
) -> tuple[int, int]:
    """Write a table with predictions beside its columns; return rows and gaps.

    Rows in which a value is missing, and nothing stands for it, have no prediction, and
    with ``unknown="missing"`` neither do those with a level that the model does not
    know. `fitted` says how the tables of the fit were read: what was a missing value
    there and is none here causes a warning.
    """
    pa = load_arrow()
    from pyarrow import csv

    if output.exists() and output.samefile(path):
        raise FedRidgeError(
            f"{output.name} is the input table: choose another output file."
        )
    file = TableFile(path, table_options(path, table))
    if model.coding is None:
        _refuse_other_columns(model, file)
    codes = _Codes(model, file, fitted or TableOptions())
    rows = gaps = 0
    progress = Progress(0)
    writer: Any = None
    unfinished = output.with_name(f"{output.name}.part")
    try:
        for batch in file.batches():
            progress.step("rows are predicted")
            codes.count(batch)
            lenient = unknown == "missing"
            try:
                found, kept = _predictions(model, batch, unknown_is_missing=lenient)
            except UnknownLevelsError as error:
                raise _with_value(error, batch, model) from None
            columns = {name: _text(pa, batch[name]) for name in batch}
            names = prediction_names(model)
            both = sorted(set(names) & set(columns))
            if both:
                raise FedRidgeError(f"{path.name} already has a column {both[0]!r}.")
            columns |= {
                name: pa.array(found[:, k], mask=~kept) for k, name in enumerate(names)
            }
            part = pa.record_batch(columns)
            writer = writer or csv.CSVWriter(unfinished, part.schema)
            writer.write_batch(part)
            rows, gaps = rows + len(found), gaps + int((~kept).sum())
        writer.close()
        unfinished.replace(output)
    finally:
        progress.end()
        if writer is not None:
            writer.close()
        unfinished.unlink(missing_ok=True)
    codes.warn()
    return rows, gaps


class _Codes:
    """Entries that meant a missing value in the fit, and are values in a new table."""

    def __init__(
        self, model: RidgeModel, file: TableFile, fitted: TableOptions
    ) -> None:
        coding = model.coding
        columns = () if coding is None else coding.columns
        self._file, self._found = file, Counter[tuple[str, str]]()
        single = dict(fitted.missing_in)
        self._codes = {
            c: {level_of(each) for each in (*fitted.missing, *single.get(c, ()))}
            for c in columns
        }

    def count(self, batch: TableBatch) -> None:
        """Count them in some rows; what this table reads as missing is no value."""
        for column, codes in self._codes.items():
            if codes and column in batch:
                told = batch.levels(column).to_pylist()
                for code in codes:
                    self._found[column, code] += told.count(code)

    def warn(self) -> None:
        """Warn of what was found."""
        for (column, code), rows in self._found.items():
            if rows:
                warnings.warn(
                    f"{self._file.path.name} has {code} in {column!r} in "
                    f"{counted(rows, 'row')}, which was a missing value in the tables "
                    "of the fit, and was predicted as a value here: give the same "
                    "table.toml, beside the table or with --table.",
                    stacklevel=2,
                )


def _refuse_other_columns(model: RidgeModel, file: TableFile) -> None:
    """Refuse a table without the columns of a model that has no formula."""
    known = None if model.features is None else model.features.known
    if known is None:
        raise FedRidgeError(
            "this model has neither a formula nor names of its columns, so a table "
            "cannot be matched to it: in Python, use model.predict(X)."
        )
    lacking = [name for name in known if name not in file.names]
    if lacking:
        raise FedRidgeError(
            f"this model has no formula, so a table must have its coded columns: "
            f"{quoted(known, most=_SHOWN)}. {file.path.name} lacks "
            f"{quoted(lacking, most=_SHOWN)}. The model.json of `fedridge fit` has the "
            "formula, and codes tables by itself."
        )


def _with_value(
    error: UnknownLevelsError, batch: TableBatch, model: RidgeModel
) -> FedRidgeError:
    """Return the error with the value: whoever predicts has the file."""
    column = error.column
    levels = () if model.coding is None else model.coding.levels[column]
    value = batch.levels(column)[error.first].as_py()
    return FedRidgeError(
        f"{batch.table.path.name}: {error.place} has {value!r} in {column!r}, a level "
        f"that the model does not know. It knows "
        f"{quoted(levels, most=_SHOWN)}. Correct the table, or use "
        "`--unknown missing`: such rows get no prediction."
    )


def prediction_names(model: RidgeModel) -> list[str]:
    """Return the names of the new columns: of each target or class, or of the label."""
    is_family = hasattr(model, "predict_mean")
    if hasattr(model, "classes_") and not is_family:
        return ["predicted_class"]
    n_targets = len(np.atleast_2d(model.coef_))
    known = None if model.targets is None else model.targets.known
    if n_targets > 1 and hasattr(model, "classes_"):
        name = "y" if known is None else known[0]
        return [f"predicted_{name}_{label}" for label in model.classes_]
    if known is None:
        known = tuple(f"y{k}" for k in range(n_targets)) if n_targets > 1 else ("y",)
    return [f"predicted_{name}" for name in known]


def _predictions(
    model: RidgeModel, batch: Any, *, unknown_is_missing: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return one column for each name, and which rows have a prediction."""
    coding = model.coding
    if coding is None:
        X = np.column_stack([batch.numbers(c) for c in model.feature_names_in_])
        kept = ~np.isnan(X).any(axis=1)
        X = X[kept]
    else:
        rows = coding.code(
            batch, with_target=False, unknown_is_missing=unknown_is_missing
        )
        X, kept = rows.X, rows.kept
    by_label = prediction_names(model) == ["predicted_class"]
    kind = getattr(model, "classes_" if by_label else "coef_").dtype
    found = np.zeros((len(kept), len(prediction_names(model))), dtype=kind)
    if kept.any():
        # Of families, means: the probabilities of classes, whose labels may be texts.
        found[kept] = getattr(model, "predict_mean", model.predict)(X).reshape(
            len(X), -1
        )
    return found, kept


def _text(pa: Any, array: Any) -> Any:
    """Return a column as CSV can have it: text, numbers and dates are."""
    return array.cast(pa.string()) if pa.types.is_nested(array.type) else array
