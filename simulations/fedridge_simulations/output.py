"""Files of an experiment: table.md and figures beside its results.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .experiment import Experiment
from .results import Results
from .tables import claims_table

__all__ = ["describe", "write_experiment"]


# In the tables themselves, or of experiments that say so in `uses`.
_UNSAID = ("methods", "penalty", "datasets", "random_features")


def write_experiment(
    experiment: Experiment,
    results: Results,
    about: Mapping[str, Any],
    folder: Path | None,
) -> str:
    """Return the tables of an experiment; write them and the figures to the folder."""
    claims = experiment.claims(results)
    parts = [f"# {experiment.title}"]
    if claims:
        parts.append(claims_table(claims))
    parts += [experiment.tables(results), describe(about, experiment.uses)]
    text = "\n\n".join(parts)
    if folder is not None:
        from matplotlib import rc_context

        folder.mkdir(parents=True, exist_ok=True)
        # The salt makes the same figure the same file.
        with rc_context({"svg.hashsalt": experiment.name}):
            for name, figure in experiment.draw(results).items():
                figure.savefig(folder / f"{name}.png", dpi=150)
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        (folder / "table.md").write_text(text + "\n", encoding="utf-8")
    return text


def describe(about: Mapping[str, Any], uses: tuple[str, ...] = ()) -> str:
    """Return settings, all or those in `uses`, versions and machine."""
    settings = about["settings"]
    shown = ", ".join(
        f"{name} {_plain(value)}"
        for name, value in settings.items()
        if (name in uses if uses else name not in _UNSAID)
    )
    versions = ", ".join(f"{name} {v}" for name, v in about["versions"].items())
    machine = about["machine"]
    return (
        f"Settings ({about['size']} size): {shown}.\n"
        "σ/n: local penalty alpha/n, the same objective as One-Shot. σ unscaled: local "
        "penalty alpha on the mean loss, another objective, under which a gap like the "
        "paper's stays. Flower's own strategies, unmodified; full batch unless a batch "
        "size is named. Test rows are never trained on. Bytes are those of serialized "
        "messages of all clients. Excesses over the oracle are computed trial by "
        "trial; means over different numbers of trials cannot be compared. Times "
        "exclude a warm-up and the server's evaluation; runs that are known to have "
        "shared the machine with other work count as not timed."
        f"\n{versions}; {machine['cpus']} CPUs, {machine['memory_gib']} GiB."
    )


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "/".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value)
    return str(value)
