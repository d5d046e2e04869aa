"""Run the app in a simulation of its own: ``python -m fedridge_flwr.app``."""

import argparse
import sys
from pathlib import Path
from typing import Any

from flwr.common.config import parse_config_args

from ..errors import FedRidgeError
from .launch import local_superlink
from .run_config import read_settings

_OUTPUTS = ("model.json", "report.json")
_LAST_OUTPUT = {True: "report.html", False: "table.md"}
"""What is written last over tables, and over one of the app's data sets."""


def main(arguments: list[str] | None = None) -> int:
    """Run, and fail when a result is missing."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_flwr.app")
    parser.add_argument("--project", type=Path, default=Path.cwd())
    parser.add_argument(
        "--supernodes", type=int, help="default: 20, or one for each table"
    )
    parser.add_argument("--output-dir", type=Path, default=Path("results"))
    parser.add_argument(
        "-c",
        "--run-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="as for flwr run, for example -c dataset='\"digits\"'",
    )
    options = parser.parse_args(arguments)
    folder = options.output_dir.absolute()
    old = (*_OUTPUTS, *_LAST_OUTPUT.values(), "comparison.png", "alpha.png")
    for name in old:
        (folder / name).unlink(missing_ok=True)
    try:
        config = parse_config_args(options.run_config)
        with local_superlink() as superlink:
            superlink.run(
                options.project.absolute(),
                num_supernodes=options.supernodes or _number_of_clients(config),
                run_config={**config, "output-dir": str(folder)},
            )
    except (FedRidgeError, ValueError) as error:
        print(f"fedridge_flwr.app: {error}", file=sys.stderr)
        return 1
    expected = (*_OUTPUTS, _LAST_OUTPUT["data" in config])
    missing = [name for name in expected if not (folder / name).exists()]
    if missing:
        print(f"fedridge_flwr.app: {', '.join(missing)} missing", file=sys.stderr)
        return 1
    print(f"Results in {folder}")
    return 0


def _number_of_clients(config: dict[str, Any]) -> int:
    settings = read_settings(config)
    return len(settings.site_files()) if settings.data else 20


if __name__ == "__main__":
    sys.exit(main())
