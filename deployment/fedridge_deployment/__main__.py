"""The demonstration: ``python -m fedridge_deployment``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fedridge_flwr.errors import FedRidgeError

from .demo import demo, demo_table

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run it and print what came out."""
    parser = argparse.ArgumentParser(
        prog="python -m fedridge_deployment",
        description="A Flower deployment with TLS on this machine: one-shot ridge "
        "next to FedAvg.",
    )
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10, help="of FedAvg")
    parser.add_argument("--output-dir", type=Path, default=Path("results/deployment"))
    given = parser.parse_args(arguments)
    output, began = given.output_dir.absolute(), time.perf_counter()

    def tell(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    try:
        found = demo(given.sites, given.rounds, output, tell)
    except FedRidgeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found.save(output / "demo.json")
    (output / "table.md").write_text(demo_table(found) + "\n", encoding="utf-8")
    print(f"\n{demo_table(found)}\n\nmodel.json, report.json and table.md: {output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
