"""Flower's own FedAvg, unmodified."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, and write coefficients and seconds."""
    config = context.run_config
    sites = int(config["min-sites"])
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=sites, min_available_nodes=sites
    )
    began = time.perf_counter()
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(int(config["features"])), np.zeros(1)]),
        num_rounds=int(config["num-rounds"]),
        timeout=float(config["timeout"]),
    )
    seconds = time.perf_counter() - began
    coef, intercept = result.arrays.to_numpy_ndarrays()
    folder = Path(str(config["output-dir"]))
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "coef": coef.tolist(),
        "intercept": intercept.tolist(),
        "seconds": seconds,
    }
    (folder / "fedavg.json").write_text(json.dumps(told), encoding="utf-8")
