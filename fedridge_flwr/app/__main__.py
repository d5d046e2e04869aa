"""Run the app in a simulation of its own: ``python -m fedridge_flwr.app``."""

import argparse
import sys
from pathlib import Path

from flwr.common.config import parse_config_args

from ..errors import FedRidgeError
from .launch import local_superlink

_OUTPUTS = ("model.json", "report.json", "table.md")


def main(arguments: list[str] | None = None) -> int:
    """Run, and fail when a result is missing."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_flwr.app")
    parser.add_argument("--project", type=Path, default=Path.cwd())
    parser.add_argument("--supernodes", type=int, default=20)
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
    for name in (*_OUTPUTS, "comparison.png", "alpha.png"):
        (folder / name).unlink(missing_ok=True)
    try:
        config = parse_config_args(options.run_config)
        with local_superlink() as superlink:
            superlink.run(
                options.project.absolute(),
                num_supernodes=options.supernodes,
                run_config={**config, "output-dir": str(folder)},
            )
    except (FedRidgeError, ValueError) as error:
        print(f"fedridge_flwr.app: {error}", file=sys.stderr)
        return 1
    missing = [name for name in _OUTPUTS if not (folder / name).exists()]
    if missing:
        print(f"fedridge_flwr.app: {', '.join(missing)} missing", file=sys.stderr)
        return 1
    print(f"Results in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
