"""Inference as people read it: the summaries of statsmodels and of R, HTML, LaTeX."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..._checks import check_choice
from ..printed_table import (
    as_html,
    as_latex,
    as_markdown,
    estimate,
    number,
    p_text,
    plain,
)
from .inference_frames import se_type

if TYPE_CHECKING:
    from .inference_result import Inference

_SHOWN = 200
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"), (0.1, "."))
_LEGEND = "Signif. codes:  0 '***' 0.001 '**' 0.01 '*' 0.05 '.' 0.1 ' ' 1"


def summary_text(inference: Inference, style: str = "statsmodels") -> str:
    """Return the summary of every target."""
    check_choice("style", style, ("statsmodels", "R"))
    one = _statsmodels_text if style == "statsmodels" else _r_text
    text = "\n\n\n".join(one(each) for each in inference.each_target())
    # What the classical ones assume, everybody knows.
    notes = inference.notes[inference.covariance == "classical" :]
    return "\n".join([text, *([""] if notes else []), *notes])


def summary_html(inference: Inference) -> str:
    """Return facts and table of every target in HTML."""
    found = []
    for each in inference.each_target():
        facts = ", ".join(f"{name} {value}" for name, value in _facts(each) if name)
        title = f"{title_of(each)}, standard errors {se_type(each)}"
        found.append(as_html(*coefficient_cells(each), title, [facts, *each.notes]))
    return "".join(found)


def summary_markdown(inference: Inference) -> str:
    """Return the table of every target in Markdown, and a line below it."""
    return "\n\n".join(
        f"{as_markdown(*coefficient_cells(each))}\n\n{_caption(each)}"
        for each in inference.each_target()
    )


def summary_latex(inference: Inference) -> str:
    """Return the table of every target in LaTeX."""
    return "\n\n".join(
        as_latex(*coefficient_cells(each), [_caption(each)])
        for each in inference.each_target()
    )


def r2_names(inference: Inference) -> tuple[str, str]:
    """Return what R² and adjusted R² are called."""
    if inference.has_constant:
        return "R²", "adjusted R²"
    return "uncentred R²", "adj. uncentred R²"


def title_of(inference: Inference) -> str:
    """Return what kind of model it is."""
    if inference.alpha == 0.0:
        weighted = not math.isclose(inference.total_weight, inference.n_rows)
        return "Weighted least squares" if weighted else "Least squares"
    return "Ridge regression"


def coefficient_cells(inference: Inference) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the table of coefficients of one target."""
    letter, tail = "t" if inference.use_t else "z", (1.0 - inference.level) / 2.0
    heads = ["", "coef", "std err", letter, f"P>|{letter}|"]
    heads += [f"[{tail:.4g}", f"{1.0 - tail:.4g}]"]
    rows = []
    for k, term in enumerate(inference.terms[:_SHOWN]):
        low, high = inference.ci[k]
        values = inference.coefficients[k], inference.se[k], inference.t[k]
        cells = [estimate(float(value)) for value in values]
        rows.append(
            [term, *cells, p_text(float(inference.p[k])), estimate(low), estimate(high)]
        )
    if len(inference.terms) > _SHOWN:
        rest = len(inference.terms) - _SHOWN
        rows.append([f"... and {rest} more (see tidy())", *[""] * 6])
    return heads, rows


def goodness_lines(inference: Inference) -> list[str]:
    """Return how well the model of one target fits, in a few lines."""
    named = {name: value for name, value in _facts(inference) if name}
    told = [
        [f"{name} {named[name]}" for name in names if name in named]
        for names in (
            (r2_names(inference)[1], "residual error", "df (residual)"),
            (f"F({inference.f_df[0]:g}, {inference.f_df[1]:g})", "p of F"),
            ("log-likelihood", "AIC, BIC"),
        )
    ]
    if math.isnan(inference.f):
        del told[1]
    return [", ".join(each) for each in told if each]


def _facts(inference: Inference) -> list[tuple[str, str]]:
    chosen = inference.alpha_chosen_by and f" ({inference.alpha_chosen_by})"
    first, second = inference.f_df
    low, high = number(inference.aic), number(inference.bic)
    r2, adjusted = r2_names(inference)
    facts = [
        ("target", inference.targets[0]),
        (r2, number(inference.r2)),
        ("rows", str(inference.n_rows)),
        (adjusted, number(inference.adjusted_r2)),
        ("sites", str(inference.n_sites)),
        (f"F({first:g}, {second:g})", number(inference.f) or "not defined"),
        ("df (residual)", f"{inference.df:.4g} ({inference.df_residual:.4g})"),
        ("p of F", p_text(inference.f_p) or "not defined"),
        ("residual error", number(inference.sigma)),
        ("log-likelihood", number(inference.log_likelihood)),
        ("alpha", number(inference.alpha)),
        ("AIC, BIC", f"{low}, {high}"),
    ]
    if inference.alpha > 0:
        facts[5:6], facts[7:8] = [("", "")], [("", "")]
    if chosen:
        facts += [("alpha chosen by", inference.alpha_chosen_by), ("", "")]
    return facts


def _statsmodels_text(inference: Inference) -> str:
    facts = _facts(inference)
    errors = f"standard errors: {se_type(inference)}"
    lines = [f"{title_of(inference):<35}  {errors}"]
    for (a, x), (b, y) in zip(facts[::2], facts[1::2], strict=True):
        lines.append(f"{a:<17}  {x:<16}  {b:<18}  {y}".rstrip())
    return "\n".join([*lines, "", plain(*coefficient_cells(inference))])


def _r_text(inference: Inference) -> str:
    letter = "t" if inference.use_t else "z"
    heads = ["", "Estimate", "Std. Error", f"{letter} value", f"Pr(>|{letter}|)", ""]
    _, cells = coefficient_cells(inference)
    stars = [_stars(float(p)) for p in inference.p[:_SHOWN]] + [""]
    rows = [[*row[:5], f"{mark:<3}"] for row, mark in zip(cells, stars, strict=False)]
    first, second = inference.f_df
    kind = "Multiple" if inference.has_constant else "Uncentred"
    lines = [
        f"Coefficients ({title_of(inference)} of {inference.targets[0]}, standard "
        f"errors {se_type(inference)}):",
        plain(heads, rows),
        "---",
        _LEGEND,
        "",
        f"Residual standard error: {number(inference.sigma)} on "
        f"{inference.df_residual:.4g} degrees of freedom",
        f"{kind} R-squared: {number(inference.r2)},  Adjusted R-squared: "
        f"{number(inference.adjusted_r2)}",
    ]
    if not math.isnan(inference.f):
        lines.append(
            f"F-statistic: {number(inference.f)} on {first:g} and {second:g} DF,  "
            f"p-value: {p_text(inference.f_p)}"
        )
    return "\n".join(lines)


def _caption(inference: Inference) -> str:
    facts = [
        f"{title_of(inference)} of {inference.targets[0]}",
        f"n = {inference.n_rows}",
        f"sites = {inference.n_sites}",
        f"{r2_names(inference)[0]} = {number(inference.r2)}",
        f"standard errors {se_type(inference)}",
    ]
    if inference.alpha > 0:
        chosen = inference.alpha_chosen_by and f" by {inference.alpha_chosen_by}"
        facts.append(
            f"ridge alpha = {number(inference.alpha)}{chosen}, bias not in them"
        )
    return ", ".join(facts)


def _stars(p: float) -> str:
    return next((mark for limit, mark in _STARS if p < limit), "")
