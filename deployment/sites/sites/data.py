"""The rows of this site: the file that its SuperNode was started with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from flwr.app import Context


def load_data(context: Context) -> tuple[pd.DataFrame, pd.Series]:
    """Return X and y from the CSV file named in ``--node-config 'data="..."'``."""
    frame = pd.read_csv(Path(str(context.node_config["data"])))
    target = str(context.run_config["target"])
    return frame.drop(columns=target), frame[target]


def load_new_data(
    context: Context, since: int | None
) -> tuple[tuple[pd.DataFrame, pd.Series], int]:
    """Return the rows below line `since` of the file, and how many it has now."""
    X, y = load_data(context)
    return (X[since or 0 :], y[since or 0 :]), len(X)
