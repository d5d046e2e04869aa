"""A folder with all that a fit leaves behind, and its page made again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import FedRidgeError
from ...regression.model import RidgeModel
from ..report import FitReport
from .figures import FIGURES, drawings
from .page import report_page
from .site_text import sites_csv

_DAMAGED = (TypeError, ValueError, KeyError, AttributeError, IndexError)


def write_run(folder: str | os.PathLike[str], run: Any, **about: str) -> Path:
    """Write what a person looks at after a fit, and return the path of its page.

    The folder then has ``model.json``, ``report.json``, ``summary.txt``, ``sites.csv``,
    ``figures/*.png``, ``coefficients.csv`` where there are standard errors, and
    ``report.html``, which is written last.

    Parameters
    ----------
    folder : path-like
        Where to write; made if it is not there. Files of an earlier run are replaced.
    run : strategy or FitRun
        A fit that has ended: a strategy (``model_`` and ``report_``), or a `FitRun`.
    **about : str
        What else the page should say: ``title``, ``question``, ``formula``, ``data``.
        It is kept in ``report.about``, and so in ``report.json``.

    Raises
    ------
    FedRidgeError
        If the fit has not ended.

    Examples
    --------
    >>> import tempfile
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.federation.fit_run import FitRun
    >>> from fedridge_flwr.federation.settings import FitSettings
    >>> run = FitRun(FitSettings())
    >>> for k in range(2):
    ...     part = SufficientStatistics.from_data([[0.0], [1.0], [k]], [k, 1.0, 2.0])
    ...     run.round.into.add(f"site {k}", part)
    >>> run.finish_round()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_run(folder, run, title="Dose and response")
    ...     print(*sorted(path.name for path in page.parent.iterdir()))
    figures model.json report.html report.json sites.csv summary.txt
    """
    # A strategy without a model says so by an AttributeError.
    model = getattr(run, "model_", None) or getattr(run, "model", None)
    report = getattr(run, "report_", None) or getattr(run, "report", None)
    if report is None:
        raise FedRidgeError("the fit has not ended: there is nothing to write yet.")
    report.about |= about
    # All of it before the first file: a folder is written as a whole, or not at all.
    shown = drawings(model, report)
    html = report_page(model, report, figures=shown)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("report.html", "model.json"):
        (target / name).unlink(missing_ok=True)
    for old in (target / "figures").glob("*.png"):
        if old.stem.startswith(FIGURES):
            old.unlink()
    if model is not None:
        model.save(target / "model.json")
    report.save(target / "report.json")
    summary = "" if model is None else f"{fit_summary(run)}\n\n"
    _write(target / "summary.txt", f"{summary}{report}\n")
    _write(target / "sites.csv", sites_csv(report.sites, report.name_of))
    _write_coefficients(target / "coefficients.csv", run)
    for drawing in shown:
        drawing.save(target / "figures" / f"{drawing.key}.png")
    page = target / "report.html"
    _write(page, html)
    return page


def _write_coefficients(path: Path, run: Any) -> None:
    """Write coefficients with standard errors, where there are any."""
    path.unlink(missing_ok=True)
    with suppress(AttributeError, ImportError, FedRidgeError):
        _write(path, run.inference_.tidy().to_csv(index=False))


def fit_summary(run: Any) -> str:
    """Return the summary of a fit, with standard errors where there are any."""
    model: RidgeModel = getattr(run, "model_", None) or run.model
    try:
        return model.summary(run.inference_)
    except (AttributeError, FedRidgeError):  # private, several rounds, too few rows
        report = getattr(run, "report_", None) or run.report
        return f"{model.summary()}{_no_errors(model, report)}"


def _no_errors(model: RidgeModel, report: FitReport) -> str:
    """Say why a linear fit in one round has none of the usual standard errors."""
    several = report.refinement is not None or model.privacy_ is not None
    if several or hasattr(model, "labels") or model.map_fingerprint is not None:
        return ""
    told = report.standard_errors.not_known
    return f"\n\n  No standard errors: {told}" if told else ""


def saved_summary(model: RidgeModel, folder: Path) -> str:
    """Return the summary of a model, with the standard errors in a report beside it."""
    if model.map_fingerprint is not None:
        return model.summary()
    try:
        report = FitReport.load(folder / "report.json")
        found: Any = report.inference
        return f"{model.summary(found)}{_no_errors(model, report)}"
    except (OSError, FedRidgeError):  # there is no report, or one of another fit
        return model.summary()


def saved_about(folder: Path) -> dict[str, str]:
    """Return what a fit said of itself in the report of a folder, if there is one."""
    try:
        found = FitReport.load(folder / "report.json").about
    except (OSError, FedRidgeError):
        return {}
    return {str(name): str(text) for name, text in found.items()}


def page_from_folder(
    folder: str | os.PathLike[str], *, title: str | None = None
) -> str:
    """Return the page of a folder that `write_run` wrote, from its two JSON files.

    Parameters
    ----------
    folder : path-like
        Folder with ``report.json`` and, if the fit has a model, ``model.json``.
    title : str, optional
        Another title.

    Raises
    ------
    FileNotFoundError
        If there is no report.
    FedRidgeError
        If one of the files is damaged, or they are of different fits.
    """
    where = Path(folder)
    report = FitReport.load(where / "report.json")
    saved = where / "model.json"
    model = RidgeModel.load(saved) if saved.exists() else None
    try:
        return report_page(model, report, title=title)
    except _DAMAGED as error:
        raise FedRidgeError(
            f"{where}: report.json and model.json are damaged or of different fits "
            f"({type(error).__name__}: {error})."
        ) from None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
