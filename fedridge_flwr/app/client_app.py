"""The ClientApp: statistics for FedRidge, gradient steps for FedAvg and FedProx."""

from typing import Any

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ..flower import ridge_client_app, table_client_app
from ..flower.protocol.array_records import array_record
from ..flower.protocol.request_records import PROTOCOL_KEY
from .descent import gradient_steps
from .run_config import read_settings
from .task import MIN_ROWS, ClientRows, client_rows


def _rows(context: Context) -> ClientRows:
    settings = read_settings(context.run_config)
    node = context.node_config
    return client_rows(settings, int(node["partition-id"]), int(node["num-partitions"]))


def load_data(context: Context) -> tuple[Any, Any]:
    """Return this client's training rows."""
    rows = _rows(context)
    return rows.X, rows.y


def load_eval_data(context: Context) -> tuple[Any, Any]:
    """Return this client's test rows."""
    rows = _rows(context)
    return rows.X_test, rows.y_test


_rows_app = ridge_client_app(load_data, load_eval_data, min_rows=MIN_ROWS)
_table_app = table_client_app(min_rows=MIN_ROWS)

app = ClientApp()


def _ridge(message: Message, context: Context) -> Message:
    """Answer by the rows of a data set, or by the table of this site."""
    return (_table_app if _has_table(context) else _rows_app)(message, context)


def _has_table(context: Context) -> bool:
    return read_settings(context.run_config).table_formula() is not None


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer FedRidge with statistics, any other strategy with gradient steps."""
    config: Any = message.content.config_records["config"]
    if PROTOCOL_KEY in config:
        return _ridge(message, context)
    rows = _rows(context)
    arrays = message.content.array_records["arrays"]
    coef, intercept = gradient_steps(
        (arrays["coef"].numpy(), arrays["intercept"].numpy()),
        rows.X,
        rows.y,
        epochs=int(config["local-epochs"]),
        learning_rate=float(config["learning-rate"]),
        penalty=float(config["penalty"]),
        proximal_mu=float(config.get("proximal-mu", 0.0)),
    )
    arrays = array_record({"coef": np.ascontiguousarray(coef), "intercept": intercept})
    metrics = MetricRecord({"num-examples": len(rows.X)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the one-shot model on this client's test rows."""
    return _ridge(message, context)


@app.query()
def query(message: Message, context: Context) -> Message:
    """Describe the table of this site, or load the rows: a warm-up before a fit."""
    if _has_table(context):
        return _ridge(message, context)
    _rows(context)
    return Message(RecordDict(), reply_to=message)
