"""A report as lines of text."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from ..._text import counted, human_bytes
from ..scope import by_reason
from .rounds import TITLES
from .site_text import site_lines

if TYPE_CHECKING:
    from ..report import FitReport

_SHOWN = 20


def report_text(report: FitReport, *, diagnostics: bool) -> str:
    """Return a report as a readable table, with the diagnostics or without."""
    form = report.settings.get("statistics")
    size = f"{rows_text(report)}, {counted(report.n_features, 'feature')}"
    rows = [
        ("clients", clients_text(report)),
        *([("ledger", ledger_text(report))] if report.uploads else []),
        ("data", f"{size}, {counted(report.n_targets, 'target')}"),
        *([("map", report.feature_map)] if report.feature_map else []),
        ("alpha", alpha_text(report)),
        *([("statistics", form)] if form else []),
        (
            "bytes",
            f"{human_bytes(report.bytes_up)} up, {human_bytes(report.bytes_down)} down",
        ),
        (
            "seconds",
            ", ".join(f"{name} {time:.2f}" for name, time in report.seconds.items()),
        ),
    ]
    if report.error:
        rows.insert(0, ("no model", report.error))
    if report.fedavg_rounds is not None and report.privacy is None:
        rows.append(
            (
                "same bytes",
                f"would pay for {report.fedavg_rounds:.1f} rounds of FedAvg (by the "
                f"paper's count {report.fedavg_rounds_paper:.1f})",
            )
        )
    if report.wire_error is not None:
        right = f"coefficients right to {report.wire_error:.1e} of their size"
        rows.append(("float32", f"{right} (estimate)"))
    if report.mode:
        rows.append(("mode", report.mode))
    if report.refinement is not None:
        rows += report.refinement.rows()
    if diagnostics:
        rows += spectrum_rows(report)
    if report.evaluation is not None:
        found = ", ".join(f"{k} {v:.6g}" for k, v in report.evaluation.items())
        note = f" ({report.evaluation_note})" if report.evaluation_note else ""
        rows.append(("evaluation", found + note))
    if report.privacy is not None:
        rows += report.privacy.rows()
    if report.screening:
        rows.append(("screening", screening_text(report)))
    if report.advice:
        rows.append(("advice", report.advice))
    width = max(10, *(len(name) for name, _ in rows))
    lines = [report.incomplete] if report.incomplete else []
    lines.append(report_title(report))
    lines += [f"  {name:<{width}}  {value}" for name, value in rows]
    if diagnostics:
        compared = report.comparison
        lines += site_lines(compared.sites, report.name_of, compared.not_known)
        lines += [f"  {compared.intercepts}"] if compared.intercepts else []
    for title, clients in (
        ("suspect, but in the model", report.suspects),
        ("worth a look", report.remarks),
        ("left out", report.failures),
        ("not in the choice of alpha", report.selection_failures),
        ("did not evaluate", report.evaluation_failures),
        ("no residuals, so no robust standard errors", report.residual_failures),
    ):
        lines += _failure_lines(title, report.named(clients))
    for title, some in (
        ("columns rearranged by name", report.rearranged),
        ("columns without names, taken to be in order", report.unverified),
        ("answered twice, counted once", report.repeated),
    ):
        if some:
            lines.append(f"  {title}: {_called(some, report)}")
    return "\n".join(lines)


def report_title(report: FitReport) -> str:
    """Return what kind of fit it was."""
    if report.refinement is not None:
        what = TITLES.get(report.refinement.mode, "Federated ridge")
        return f"{what} in {counted(report.refinement.rounds, 'round')}"
    if report.privacy is None or report.privacy.releases == 1:
        return "One-shot federated ridge"
    return f"Federated ridge in {report.privacy.releases} private rounds"


def clients_text(report: FitReport) -> str:
    """Return how many clients are in the model, and how many are not."""
    inside, earlier = len(report.participants), len(report.from_ledger)
    same = list(report.uploads.values()).count("nothing new")
    which = [
        f"{inside - earlier - same} new",
        *([f"{same} with nothing new"] if same else []),
        *([f"{earlier} from earlier uploads"] if earlier else []),
    ]
    told = f" ({', '.join(which)})" if same or earlier else ""
    return f"{inside} in{told}, {len(report.failures)} out"


def ledger_text(report: FitReport) -> str:
    """Return what the run did with a ledger: what came from how many sites."""
    found = Counter(report.uploads.values())
    told = [
        f"new rows from {found['new rows']}",
        f"all rows from {found['all rows']}",
        f"nothing new from {found['nothing new']}",
        f"earlier upload of {found['earlier upload']}",
    ]
    resumed = found["answer to an interrupted run"]
    told += [f"answer to an interrupted run from {resumed}"] if resumed else []
    return f"{counted(len(report.uploads), 'site')}: {', '.join(told)}"


def rows_text(report: FitReport) -> str:
    """Return the number of rows, as far as it is known."""
    if report.n_rows is None:
        return "rows hidden by the noise"
    about = "" if report.privacy is None else "about "
    return f"{about}{counted(report.n_rows, 'row')}"


def alpha_text(report: FitReport) -> str:
    """Return alpha, and how it was chosen."""
    chosen = report.selection
    if report.alpha is None or math.isnan(report.alpha):
        return "not chosen"
    if chosen is None:
        return f"{report.alpha:g}"
    text = f"{report.alpha:g} ({chosen['description']})"
    if chosen.get("bytes_down"):
        text += (
            f", for {human_bytes(chosen['bytes_down'])} more down and "
            f"{human_bytes(chosen['bytes_up'])} up"
        )
    return text


def screening_text(report: FitReport) -> str:
    """Return how clients were compared."""
    if not report.suspects:
        return report.screening
    return f"{report.screening}; {counted(len(report.suspects), 'suspect')}"


def spectrum_rows(report: FitReport) -> list[tuple[str, str]]:
    """Return the lines of the spectrum, if there is one."""
    found = report.spectrum
    if found is None:
        return []
    if found.shrinkage_bound is None:
        shrinkage = "no unpenalised solution to compare with"
    else:
        shrinkage = (
            f"|w - w*| = {found.shrinkage:.3g}, bound {found.shrinkage_bound:.3g}"
        )
    if found.vacuous:
        shrinkage += " (bound vacuous: coverage far below alpha)"
    return [
        (
            "coverage",
            f"lambda_min {found.coverage:.4g}, lambda_max {found.lambda_max:.4g}",
        ),
        ("kappa", f"{found.kappa:.4g} (bound {found.kappa_bound:.4g})"),
        ("shrinkage", shrinkage),
    ]


def _called(some: list[str], report: FitReport) -> str:
    """Return what clients are called, in the order of their numbers, or all of them."""
    if len(some) > 2 and set(some) == set(report.participants):
        return f"all {len(some)} clients"
    names = sorted(map(report.name_of, some), key=_natural)
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which "site 10" is after "site 9"."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"(\d+)", name)
    ]


def _failure_lines(title: str, failures: dict[str, str]) -> list[str]:
    if not failures:
        return []
    lines = [f"  {title}:"]
    grouped = by_reason(failures, _SHOWN)
    lines += [f"    {clients}: {reason}" for clients, reason in grouped[:_SHOWN]]
    if len(grouped) > _SHOWN:
        lines.append(f"    ... and {len(grouped) - _SHOWN} more")
    return lines
