"""A client that no policy is asked by: what code of the server's choice can do."""

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Send a patient."""
    rows = Path(str(context.node_config["data"])).read_text().splitlines()
    return Message(
        RecordDict({"stolen": ConfigRecord({"row": rows[1]})}), reply_to=message
    )
