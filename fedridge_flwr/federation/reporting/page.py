"""One page about one fit, in one file: no script, no network, light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._text import counted, human_bytes
from ...regression.model import RidgeModel
from ...regression.summary import (
    coefficient_names,
    kind_of,
    target_label,
    weights_note,
)
from .family_tables import family_tables, is_family
from .figures import Drawing, coefficients_key, drawings
from .markup import Markup, breakable, facts, join, table, tag
from .page_style import STYLE
from .report_text import (
    alpha_text,
    report_title,
    rows_text,
    screening_text,
    spectrum_rows,
)
from .site_facts import SiteFacts
from .site_text import change_text
from .tested_coefficients import standard_error_tables

if TYPE_CHECKING:
    from ..report import FitReport

_FIRST, _MOST = 25, 500
_FIRST_SITES = 15
_TARGETS = 3
_NOT_KNOWN = "not known"
_ALARMING = ("NOT USABLE", "NOT RELIABLE", "WEAK")


def report_page(
    model: RidgeModel | None,
    report: FitReport,
    *,
    title: str | None = None,
    question: str | None = None,
    figures: Sequence[Drawing] | None = None,
) -> str:
    """Return a page about a fit that needs no other file.

    Parameters
    ----------
    model : RidgeModel or None
        The model, if there is one.
    report : FitReport
        The account of the fit.
    title : str, optional
        Title of the page; by default that in ``report.about``, or one from the names.
    question : str, optional
        What was asked, in a sentence; by default that in ``report.about``.
    figures : sequence of Drawing, optional
        Figures to show; by default all that there are data for.

    Returns
    -------
    str
        HTML. All texts of clients (names, columns, reasons) are escaped.

    Examples
    --------
    >>> from fedridge_flwr import FitReport, SufficientStatistics, solve
    >>> model = solve(SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 3.0]))
    >>> report = FitReport(["a"], {}, n_rows=2, n_features=1, n_targets=1, alpha=1.0)
    >>> page = report_page(model, report, title="Dose & response")
    >>> "<title>Dose &amp; response</title>" in page
    True
    """
    title = title or report.about.get("title") or _title_of(model)
    question = question or report.about.get("question")
    figures = drawings(model, report) if figures is None else figures
    panels = {drawing.key: _panel(drawing) for drawing in figures}
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width">'),
            tag("title", title),
            tag("style", Markup(STYLE)),
        ]
    )
    body = [
        _headline(model, report, title, question),
        _section("Coefficients", _coefficients(model, report, panels)),
        _section("Standard errors", _standard_errors(model, report)),
        _section("Sites", _sites(report, panels)),
        _section("Left out", _left_out(report)),
        _section("Missing values", _missing(report)),
        _section("Choice of alpha", _alpha(report, panels)),
        _section("Privacy", _privacy(report)),
        _section("Diagnostics", _diagnostics(model, report)),
        _section("How to reproduce", _reproduce(model, report)),
    ]
    page = tag("html", tag("head", head), tag("body", tag("main", *body)), lang="en")
    return f"<!doctype html>\n{page}\n"


def _section(title: str, content: Iterable[Markup]) -> Markup:
    """Return a section, or nothing where there is nothing to show."""
    pieces, key = list(content), title.lower().replace(" ", "-")
    return tag("section", tag("h2", title), *pieces, id=key) if pieces else Markup()


def _title_of(model: RidgeModel | None) -> str:
    known = None if model is None or model.targets is None else model.targets.known
    title = "Ridge regression" if model is None else kind_of(model)
    title = getattr(model, "title", title)
    return f"{title} of {', '.join(known)}" if known else title


# ---- headline -----------------------------------------------------------------------


def _headline(
    model: RidgeModel | None, report: FitReport, title: str, question: str | None
) -> Markup:
    pieces = []
    if report.scope:
        reasons = tag("a", "Who is left out, and why", href="#left-out")
        told = tag("strong", report.scope)
        pieces.append(tag("p", told, ". ", reasons, ".", class_="alarm"))
    if report.error:
        told = tag("strong", "NO MODEL: ")
        pieces.append(tag("p", told, report.error, class_="alarm"))
    if report.privacy is not None and report.privacy.verdict.startswith(_ALARMING):
        pieces.append(tag("p", tag("strong", report.privacy.verdict), class_="alarm"))
    pieces.append(tag("h1", title))
    if question:
        pieces.append(tag("p", question, class_="question"))
    text = f"{report_title(report)}: {rows_text(report)} at "
    text += f"{counted(len(report.participants), 'site')}, "
    text += f"{counted(report.n_features, 'feature')}."
    pieces.append(tag("p", text, class_="muted"))
    pieces.append(facts(_key_numbers(model, report)))
    return tag("header", *pieces)


def _key_numbers(
    model: RidgeModel | None, report: FitReport
) -> Iterable[tuple[str, str]]:
    yield "Sites", f"{len(report.participants)}"
    about = "" if report.privacy is None else "about "
    rows = _NOT_KNOWN if report.n_rows is None else f"{about}{report.n_rows:,}"
    yield "Rows", rows
    yield "Features", f"{report.n_features:,}"
    if model is None:
        return
    yield _explained(model, report)
    effects = report.comparison.effects
    if model.r2_ is not None and effects is not None and len(effects.y_sd) == 1:
        error = effects.y_sd[0] * max(1.0 - model.r2_, 0.0) ** 0.5
        yield "RMSE (these rows)", _number(error)
    yield "alpha", f"{model.alpha_:.4g}"
    for name, score in (report.evaluation or {}).items():
        if name in ("r2", "mse"):
            kind = {"r2": "R² (evaluation)", "mse": "MSE (evaluation)"}[name]
            yield kind, _number(score, 4)
    if report.privacy is not None:
        yield "epsilon", f"{report.privacy.epsilon:g}"


def _explained(model: RidgeModel, report: FitReport) -> tuple[str, str]:
    """Return the part of the variance, or of the deviance, that is explained."""
    if not is_family(model):
        found: Any = report.inference
        if found is not None and not found.has_constant:
            return "Uncentred R² (these rows)", _number(float(np.mean(found.r2)), 4)
        return "R² (these rows)", _number(model.r2_, 4)
    d2 = float(getattr(model, "d2_", math.nan))
    known = None if math.isnan(d2) else d2  # not with an offset
    return "D² (deviance explained)", _number(known, 4)


# ---- coefficients -------------------------------------------------------------------


def _standard_errors(model: RidgeModel | None, report: FitReport) -> Iterable[Markup]:
    if is_family(model):
        yield from family_tables(model)
    else:
        yield from standard_error_tables(report.standard_errors)
    if model is not None and model.weighted_by:
        yield tag("p", weights_note(model), class_="muted")


def _coefficients(
    model: RidgeModel | None, report: FitReport, panels: Mapping[str, Markup]
) -> Iterable[Markup]:
    if model is None:
        return
    coef = np.atleast_2d(model.coef_)
    for k in range(min(len(coef), _TARGETS)):
        of = f" of {target_label(model, k)}" if len(coef) > 1 else ""
        tables = tag("div", *_coefficient_tables(model, report, k, of))
        figure = panels.get(coefficients_key(k), Markup())
        yield tag("div", tables, figure, class_="pair")
    if len(coef) > _TARGETS:
        what = "classes" if hasattr(model, "labels") else "targets"
        more = f"And {len(coef) - _TARGETS} more {what}: see model.json."
        yield tag("p", more, class_="muted")


def _coefficient_tables(
    model: RidgeModel, report: FitReport, k: int, of: str
) -> Iterable[Markup]:
    coef, effects = np.atleast_2d(model.coef_), report.comparison.effects
    names, heads = coefficient_names(model), ["Column", "Coefficient"]
    sizes, texts = coef[k], [[_number(value, 5) for value in coef[k]]]
    caption = f"Coefficients{of}, in the units of the columns"
    if effects is not None:
        sizes = effects.standardised(coef)[k]
        texts.append([_decimals(value) for value in sizes])
        heads.append("Standardised")
        caption += "; standardised: coefficient × sd(x) / sd(y)"
    order = np.argsort(-np.abs(sizes), kind="stable")
    rows = [[names[j], *(each[j] for each in texts)] for j in order]
    intercept = np.atleast_1d(model.intercept_)[k]
    if model.fit_intercept:
        last = ["intercept", _number(float(intercept), 5), ""][: len(heads)]
        rows.insert(min(_FIRST, len(rows)), last)
    numbers = len(texts)
    yield table(caption, heads, rows[: _FIRST + 1], numbers=numbers)
    rest = rows[_FIRST + 1 : _MOST]
    if rest:
        told = f"{len(rest)} smaller coefficients"
        more = table(f"Smaller coefficients{of}", heads, rest, numbers=numbers)
        yield tag("details", tag("summary", told), more)
    if len(rows) > _MOST:
        told = f"And {len(rows) - _MOST} more: see model.json."
        yield tag("p", told, class_="muted")
    if effects is None:
        told = "Standardised effects are not known: the scales of the columns are not."
        yield tag("p", told, class_="muted")


def _panel(drawing: Drawing) -> Markup:
    caption = tag("figcaption", drawing.caption) if drawing.caption else Markup()
    return tag("figure", tag("h3", drawing.title), Markup(drawing.svg()), caption)


# ---- sites --------------------------------------------------------------------------


def _sites(report: FitReport, panels: Mapping[str, Markup]) -> Iterable[Markup]:
    told = list(_site_tables(report))
    if report.comparison.intercepts:
        text = report.comparison.intercepts
        told.append(tag("p", f"{text[0].upper()}{text[1:]}."))
    if report.comparison.not_known:
        told.append(tag("p", report.comparison.not_known, class_="muted"))
    rows, influence = (panels.get(key, Markup()) for key in ("rows", "influence"))
    if influence:
        yield from told
        yield tag("div", rows, influence, class_="pair")
    elif rows:
        yield tag("div", tag("div", *told), rows, class_="pair")
    else:
        yield from told


def _site_tables(report: FitReport) -> Iterable[Markup]:
    known = [site for site in report.sites if site.rows is not None]
    if known:
        caption = "The sites of the model, those with most rows first. "
        if any(site.influence is not None for site in known):
            caption += (
                "Influence: how far predictions would move without the site, in "
                "standard deviations of y. "
            )
        if any(site.r2 is not None for site in known):
            caption += "R² compares with the site's own mean."
        yield _site_table(report, caption, known[:_FIRST_SITES])
        rest = known[_FIRST_SITES:]
        if rest:
            told = f"{len(rest)} smaller sites"
            hidden = _site_table(report, "Smaller sites", rest)
            yield tag("details", tag("summary", told), hidden)
    elif report.participants:
        names = ", ".join(map(report.name_of, report.participants[:50]))
        more = ", …" if len(report.participants) > 50 else ""
        yield tag("p", f"In the model: {names}{more}.")


def _site_table(report: FitReport, caption: str, sites: Sequence[SiteFacts]) -> Markup:
    several = any(len(site.y_mean or []) > 1 for site in report.sites)
    columns: dict[str, list[str]] = {
        "Site": [report.name_of(site.client) for site in sites],
        "Rows": [_count(site.rows) for site in sites],
        "Share": [_percent(site.share) for site in sites],
        "Read": [_count(site.rows_read) for site in sites],
        "Dropped": [_count(site.dropped) for site in sites],
    }
    if not several:
        columns["Mean of y"] = [
            _number(s.y_mean[0] if s.y_mean else None) for s in sites
        ]
    columns |= {
        "R²": [_decimals(site.r2) for site in sites],
        "RMSE": [_number(site.rmse) for site in sites],
        "Influence": [_decimals(site.influence) for site in sites],
    }
    for k, site in enumerate(sites):
        instead = "" if site.client in report.left_out else _NOT_KNOWN
        instead = "withheld" if site.remark.startswith("withheld") else instead
        for cells in columns.values():
            cells[k] = instead if cells[k] == _NOT_KNOWN else cells[k]
    used = {k: cells for k, cells in columns.items() if k == "Site" or _any(cells)}
    numbers = len(used) - 1
    texts = {
        "Without it": [change_text(site).replace("-", "−") for site in sites],
        "Remark": [_remark(report, site) for site in sites],
    }
    texts["Without it"] = ["" if x == "−" else x for x in texts["Without it"]]
    used |= {k: cells for k, cells in texts.items() if any(cells)}
    rows = zip(*used.values(), strict=True)
    return table(caption, list(used), rows, numbers=numbers, class_="cards wide")


def _any(cells: Iterable[str]) -> bool:
    return any(cell not in (_NOT_KNOWN, "withheld", "") for cell in cells)


def _remark(report: FitReport, site: SiteFacts) -> str:
    left_out = "left out" if site.client in report.left_out else ""
    told = [left_out, report.suspects.get(site.client), site.remark]
    told.append(report.remarks.get(site.client))
    return "; ".join(each for each in told if each)


def _left_out(report: FitReport) -> Iterable[Markup]:
    for caption, clients in (
        ("Clients that are not in the model", report.left_out),
        (
            "Clients in the model that missed a later round",
            {c: r for c, r in report.failures.items() if c not in report.left_out},
        ),
        ("Not in the choice of alpha", report.selection_failures),
        ("Did not evaluate", report.evaluation_failures),
        ("Did not send residuals", report.residual_failures),
    ):
        if clients:
            rows = [
                [report.name_of(c), _count(report.rows_left_out.get(c)), reason]
                for c, reason in islice(clients.items(), _MOST)
            ]
            if all(row[1] == _NOT_KNOWN for row in rows):
                heads, rows = ["Client", "Reason"], [[c, r] for c, _, r in rows]
                yield table(caption, heads, rows, class_="cards")
            else:
                heads = ["Client", "Rows", "Reason"]
                yield table(caption, heads, rows, numbers=1, class_="cards")


def _missing(report: FitReport) -> Iterable[Markup]:
    rows = []
    for site in islice((s for s in report.sites if s.rows_read is not None), _MOST):
        gaps = sorted(site.missing.items(), key=lambda item: -item[1])
        shown = [f"{name}\u00a0{n:,}" for name, n in gaps[:8]]
        more = f", and {len(gaps) - 8} more columns" if len(gaps) > 8 else ""
        told = ", ".join(shown) + more if shown else "none"
        cells = [_count(site.rows_read), _count(site.rows), _count(site.dropped)]
        rows.append([report.name_of(site.client), *cells, told])
    if rows:
        heads = ["Site", "Read", "In the model", "Dropped", "Missing by column"]
        caption = "Rows of the tables, and missing values by column"
        yield table(caption, heads, rows, numbers=3, class_="cards wide")


# ---- the rest -----------------------------------------------------------------------


def _alpha(report: FitReport, panels: Mapping[str, Markup]) -> Iterable[Markup]:
    if report.selection is None:
        return
    chosen, alphas = report.selection, report.selection["alphas"]
    rows = [("alpha", alpha_text(report))]
    span = f"{len(alphas)}, from {min(alphas):.3g} to {max(alphas):.3g}"
    rows.append(("candidates", span))
    if chosen["alpha"] in alphas:
        best, errors = alphas.index(chosen["alpha"]), chosen["standard_error"]
        loss = _number(chosen["mean"][best])
        loss += f" ± {float(f'{errors[best]:.2g}'):g}" if errors else ""
        score = "mean squared error, held out" if chosen["losses"] else "score"
        rows.append((score, loss))
    if chosen.get("at_edge"):
        rows.append(("edge", "the best candidate is the first or last: widen the grid"))
    told = table("How alpha was chosen", ["What", "Found"], rows, class_="pairs")
    yield tag("div", told, panels.get("alpha", Markup()), class_="pair")


def _privacy(report: FitReport) -> Iterable[Markup]:
    if report.privacy is not None:
        heads = ["What", "Promised, and what it cost"]
        caption = "Differential privacy of the fit"
        yield table(caption, heads, report.privacy.rows(), class_="pairs")


def _diagnostics(model: RidgeModel | None, report: FitReport) -> Iterable[Markup]:
    rows = []
    if model is not None and model.condition_ is not None:
        rows.append(("condition", f"{model.condition_:.3g} (scaled columns)"))
    if report.refinement is not None:
        rows += report.refinement.rows()
    elif report.mode:
        rows.append(("mode", report.mode))
    if report.wire_error is not None:
        told = f"coefficients right to {report.wire_error:.1e} of their size (estimate)"
        rows.append(("float32", told))
    rows += spectrum_rows(report)
    if report.screening:
        rows.append(("screening", screening_text(report)))
    for what, clients in (
        ("columns rearranged by name", report.rearranged),
        ("columns without names", report.unverified),
        ("answered twice", report.repeated),
    ):
        if clients:
            more = ", …" if len(clients) > _FIRST else ""
            rows.append((what, ", ".join(map(report.name_of, clients[:_FIRST])) + more))
    if report.advice:
        rows.append(("advice", report.advice))
    if report.bytes_up or report.bytes_down:
        up, down = human_bytes(report.bytes_up), human_bytes(report.bytes_down)
        rows.append(("bytes", f"{up} up, {down} down"))
    if report.seconds:
        spent = ", ".join(f"{k} {v:.2f}" for k, v in report.seconds.items())
        rows.append(("seconds", spent))
    if rows:
        caption = "How well posed the answer is, and what it cost"
        yield table(caption, ["What", "Found"], rows, class_="pairs")


def _reproduce(model: RidgeModel | None, report: FitReport) -> Iterable[Markup]:
    rows: list[tuple[str, object]] = [
        (name, tag("code", breakable(text)))
        for name, text in report.about.items()
        if name not in ("title", "question")
    ]
    if model is not None:
        options = {"alpha": model.alpha_, "fit_intercept": model.fit_intercept}
        options |= {"standardize": model.standardize, **report.settings}
        told = ", ".join(f"{name}={value!r}" for name, value in options.items())
        rows.append(("settings", tag("code", told)))
    if report.feature_map:
        rows.append(("feature map", report.feature_map))
    if report.versions:
        told = ", ".join(f"{name} {number}" for name, number in report.versions.items())
        rows.append(("versions", told))
    if rows:
        caption = "What somebody needs to get the same numbers"
        yield table(caption, ["What", "Value"], rows, class_="pairs")


def _number(value: float | None, digits: int = 4) -> str:
    """Return a number with some digits, zeros at its end included."""
    if value is None:
        return _NOT_KNOWN
    return f"{value:#.{digits}g}".rstrip(".").replace("-", "−")


def _decimals(value: float | None, digits: int = 3) -> str:
    if value is None:
        return _NOT_KNOWN
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # no "-0"


def _count(value: int | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:,}"


def _percent(value: float | None) -> str:
    if value is None:
        return _NOT_KNOWN
    return f"{100 * value:.1f} %"
