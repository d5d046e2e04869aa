"""Gradient steps on the rows of one site."""

from pathlib import Path

import pandas as pd
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return coefficients and intercept after the local epochs."""
    config = context.run_config
    X = pd.read_csv(Path(str(context.node_config["data"])))
    y = X.pop(str(config["target"])).to_numpy()
    X = X.to_numpy()
    step = float(config["learning-rate"])
    penalty = float(config["alpha"]) / float(config["rows"])
    coef, intercept = message.content.array_records["arrays"].to_numpy_ndarrays()
    for _ in range(int(config["local-epochs"])):
        residual = X @ coef + intercept - y
        coef = coef - step * (X.T @ residual / len(y) + penalty * coef)
        intercept = intercept - step * residual.mean()
    content = RecordDict(
        {
            "arrays": ArrayRecord([coef, intercept]),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
    )
    return Message(content, reply_to=message)
