"""The client of the app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .task import load_data

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the global model after some gradient steps."""
    partition_id = int(context.node_config["partition-id"])
    num_partitions = int(context.node_config["num-partitions"])
    X, y = load_data(partition_id, num_partitions)
    step = float(context.run_config["learning-rate"])
    coef, intercept = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(int(context.run_config["local-epochs"])):
        residuals = X @ coef + intercept - y
        coef = coef - step * X.T @ residuals / len(y)
        intercept = intercept - step * residuals.mean()
    content = RecordDict(
        {
            "arrays": ArrayRecord([coef, intercept]),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
    )
    return Message(content, reply_to=message)
