"""The glue of `load_new_data`: where the record of uploads is, and how rows grow."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..errors import DataError
from ..federation.answering.delta_respond import (
    UploadRecord,
    check_position,
    respond_since,
)
from ..federation.answering.respond import Guards, loaded_rows
from ..federation.requests import Answer

CONFIG_KEY = "uploads"


def answer_since(
    request: Any,
    guards: Guards,
    load_new: Callable[[Any], Any],
    node_config: Mapping[str, object],
    folder: str | os.PathLike[str] | None,
) -> Answer:
    """Answer a server that keeps uploads, with new rows only where that is safe.

    Parameters
    ----------
    request : AskStatistics
        What the server asks.
    guards : Guards
        What the client insists on.
    load_new : callable
        From a position to rows and the new position; None if it is not known there.
    node_config : mapping
        What the site's SuperNode was started with.
    folder : path-like, optional
        The folder of the record, if the site names none.
    """

    def load(since: Any) -> tuple[Any, Any] | None:
        found = load_new(since)
        if found is None:
            return None
        if not isinstance(found, tuple) or len(found) != 2:
            raise DataError(
                "load_new_data must return rows and a position, as in "
                f"((X, y), position), got {type(found).__name__}."
            )
        rows, position = found
        check_position(position)  # first: (X, y) is no table X with a position y
        return loaded_rows(rows, request, "what load_new_data returns"), position

    record = UploadRecord(_record_file(node_config, folder))
    return respond_since(request, load, guards, record)


def _record_file(
    node_config: Mapping[str, object], folder: str | os.PathLike[str] | None
) -> Path | None:
    """Return the file of the record: one for each client of a simulation."""
    named = node_config.get(CONFIG_KEY)
    if named is not None:
        # Relative to what? Flower starts apps in a folder of its own choice.
        if not isinstance(named, str) or not Path(named).is_absolute():
            raise DataError("uploads in the node-config must be an absolute path.")
        folder = named
    if folder is None:
        return None
    client = node_config.get("partition-id")
    return Path(folder) / (
        "uploads.json" if client is None else f"uploads-{client}.json"
    )


def stacked(first: Any, second: Any) -> Any:
    """Return two blocks of rows as one: arrays, data frames of pandas, or sparse."""
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second], ignore_index=True)
    return np.concatenate([np.asarray(first), np.asarray(second)])


def rows_after(rows: tuple[Any, ...], since: int) -> tuple[Any, ...]:
    """Return the rows from a place on."""
    if since == 0:
        return rows
    return tuple(
        part
        if part is None
        else (part.iloc[since:] if hasattr(part, "iloc") else part[since:])
        for part in rows
    )
