"""What a person looks at after a fit: sites, figures, the page, the folder."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fits import begin, run_fit
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from fedridge_flwr import FedRidgeError, FitReport, SufficientStatistics, solve
from fedridge_flwr.data.table_profile import ColumnProfile
from fedridge_flwr.federation.reporting import site_facts
from fedridge_flwr.federation.reporting.page import report_page
from fedridge_flwr.federation.reporting.run_folder import page_from_folder, write_run
from fedridge_flwr.federation.reporting.site_comparison import SiteComparison
from fedridge_flwr.federation.reporting.site_facts import (
    FEWEST_ROWS,
    SiteFacts,
    site_table,
    too_small,
)
from fedridge_flwr.federation.reporting.site_text import change_text, sites_csv

HOSTILE = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>"


@dataclass
class Profile:
    rows: int
    complete: int
    missing: dict[str, int] = field(default_factory=dict)
    columns: dict[str, ColumnProfile] = field(default_factory=dict)


def rows_of(n: int, seed: int, d: int = 4, t: int | None = None) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1) + seed
    y = X @ rng.normal(size=(d, t or 1)) + seed + rng.normal(size=(n, t or 1))
    return X, y if t else y[:, 0]


def clients(sizes: Any = (30, 50, 12), **kwargs: Any) -> dict[str, Any]:
    return {f"site-{k}": rows_of(n, k, **kwargs) for k, n in enumerate(sizes)}


def frames(**kwargs: Any) -> dict[str, Any]:
    names = ["age", "bmi", "dose $a$", "<b>"]
    return {
        client: (pd.DataFrame(X, columns=names), pd.DataFrame({"y": y}))
        for client, (X, y) in clients(**kwargs).items()
    }


def fit(given: dict[str, Any], **options: Any) -> Any:
    return run_fit(given, **options)


# ---- numbers, against the rows ------------------------------------------------------


@given(
    seed=st.integers(0, 1000),
    alpha=st.floats(1e-3, 1e3),
    fit_intercept=st.booleans(),
    standardize=st.booleans(),
    t=st.sampled_from([None, 2]),
)
@settings(max_examples=25, deadline=None)
def test_fit_and_influence_are_those_of_the_rows(
    seed: int, alpha: float, fit_intercept: bool, standardize: bool, t: int | None
) -> None:
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    rng = np.random.default_rng(seed)
    own = {c: rows_of(n, seed + k, t=t) for k, (c, n) in enumerate(SIZES.items())}
    parts = {c: SufficientStatistics.from_data(*rows) for c, rows in own.items()}
    total = sum(parts.values())
    model = solve(total, alpha, **options)
    X, y = (np.concatenate([rows[j] for rows in own.values()]) for j in (0, 1))
    assert rng is not None
    for site in site_table(parts, total, model):
        Xk, yk = own[site.client]
        here = model.evaluate(Xk, yk)
        assert site.rows == len(Xk)
        assert site.share == pytest.approx(len(Xk) / len(X), rel=1e-12)
        assert site.y_mean == pytest.approx(np.atleast_1d(yk.mean(axis=0)), rel=1e-10)
        assert site.rmse == pytest.approx(np.sqrt(here.mse), rel=1e-9)
        assert site.r2 == pytest.approx(here.r2, rel=1e-9, abs=1e-9)
        left = [rows for c, rows in own.items() if c != site.client]
        others = [np.concatenate([rows[j] for rows in left]) for j in (0, 1)]
        refit = solve(SufficientStatistics.from_data(*others), alpha, **options)
        moved = (refit.predict(X) - model.predict(X)).reshape(len(X), -1)
        spread = y.reshape(len(X), -1).std(axis=0)
        expected = np.sqrt((moved**2).mean(axis=0) / spread**2)
        expected = np.sqrt((expected**2).mean())
        assert site.influence == pytest.approx(expected, rel=1e-7, abs=1e-10)
        change = np.atleast_2d(refit.coef_ - model.coef_)
        effect = np.abs(change) * X.std(axis=0) / spread[:, None]
        k, j = np.unravel_index(np.argmax(effect), effect.shape)
        assert site.most_changed == f"x{j}"
        coef = np.atleast_2d(model.coef_)[k, j]
        assert site.change == pytest.approx(change[k, j] / abs(coef), rel=1e-6)


SIZES = {"a": 40, "b": 25, "c": 9}


def test_numbers_equal_those_of_scikit_learn_to_ten_digits() -> None:
    own = clients()
    run = fit(own, alpha=2.0)
    X, y = (np.concatenate([rows[j] for rows in own.values()]) for j in (0, 1))
    pooled = Ridge(alpha=2.0).fit(X, y)
    for site in run.report.sites:
        Xk, yk = own[site.client]
        error = np.sqrt(np.mean((yk - pooled.predict(Xk)) ** 2))
        assert site.rmse == pytest.approx(error, rel=1e-10)
        assert site.r2 == pytest.approx(pooled.score(Xk, yk), rel=1e-10)
        kept = [rows for c, rows in own.items() if c != site.client]
        Xr, yr = (np.concatenate([rows[j] for rows in kept]) for j in (0, 1))
        left = Ridge(alpha=2.0).fit(Xr, yr)
        moved = left.predict(X) - pooled.predict(X)
        expected = np.sqrt(np.mean(moved**2)) / y.std()
        assert site.influence == pytest.approx(expected, rel=1e-10)
        effects = run.report.comparison.effects
        assert effects.without[site.client][0] == pytest.approx(
            left.coef_[effects.largest[0]], rel=1e-9
        )
    assert effects.x_sd == pytest.approx(X.std(axis=0), rel=1e-12)
    assert effects.y_sd == pytest.approx([y.std()], rel=1e-12)
    standardised = effects.standardised(run.model.coef_)[0]
    assert standardised == pytest.approx(pooled.coef_ * X.std(axis=0) / y.std())
    assert effects.largest == [np.argsort(-np.abs(standardised)).tolist()]


def test_a_constant_target_has_neither_r2_nor_influence() -> None:
    own = {c: (X, np.full(len(X), 3.0)) for c, (X, _) in clients().items()}
    run = fit(own, alpha=1.0)
    for site in run.report.sites:
        assert (site.r2, site.influence) == (None, None)
        assert site.rmse == pytest.approx(0.0, abs=1e-7)
    assert "not known" in report_page(run.model, run.report)


def test_a_site_without_which_there_is_no_model_is_told() -> None:
    X, y = rows_of(20, 0)
    X[:, 1] = 0.0
    own = {"a": (X, y), "b": rows_of(20, 1)}
    facts = {site.client: site for site in fit(own, alpha=0.0).report.sites}
    assert facts["b"].influence is None
    assert facts["b"].remark == "without it, the coefficients are not determined"
    assert facts["a"].influence > 0


@pytest.mark.parametrize("size", [1e-150, 1e8, 1e60, 1e150])
def test_absurd_numbers_of_one_site_do_not_break_the_page(
    size: float, tmp_path: Path
) -> None:
    run = begin(alpha=1.0)
    for k, (client, (X, y)) in enumerate(clients((30, 50, 12, 20)).items()):
        factor = size if k == 0 else 1.0
        part = SufficientStatistics.from_data(X * factor, y * factor)
        run.round.into.add(client, part)
    run.finish_round()
    page = write_run(tmp_path, run)
    assert page_from_folder(tmp_path) == page.read_text("utf-8")
    assert "nan" not in Reader(page.read_text("utf-8")).text.split()


# ---- what is withheld ---------------------------------------------------------------


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_what_is_hidden_does_not_follow_from_the_rest(sizes: list[int]) -> None:
    counts = {str(k): n for k, n in enumerate(sizes)}
    hidden = too_small(counts)
    together = sum(counts[c] for c in hidden)
    assert all(c in hidden for c, n in counts.items() if 0 < n < FEWEST_ROWS)
    if hidden and together < FEWEST_ROWS:  # then there is nobody else to hide behind
        assert set(hidden) == {c for c, n in counts.items() if n}


def test_nothing_of_a_single_row_is_in_the_files(tmp_path: Path) -> None:
    own = clients((1, 30, 40, 20))
    own["site-0"] = own["site-0"][0], np.array([12345.678])
    run = fit(own, alpha=1.0)
    facts = {site.client: site for site in run.report.sites}
    for client in ("site-0", "site-3"):  # the next larger one, by the difference
        site = facts[client]
        numbers = (site.y_mean, site.r2, site.rmse, site.influence, site.change)
        assert numbers == (None,) * 5
        assert site.remark.startswith("withheld")
        assert client not in run.report.comparison.effects.without
    assert facts["site-1"].influence is not None
    write_run(tmp_path, run)
    for name in ("report.json", "report.html", "sites.csv", "summary.txt"):
        text = (tmp_path / name).read_text("utf-8")
        for shown in (text, text.replace(",", "")):  # as 12,345.7 too
            told = map(float, re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", shown))
            assert not [number for number in told if abs(number - 12345.678) < 10.0]


# ---- where little is known ----------------------------------------------------------


def test_one_site_has_a_fit_and_no_influence() -> None:
    run = fit(clients((30,)), alpha=1.0)
    (site,) = run.report.sites
    assert site.r2 is not None
    assert site.influence is None
    assert run.report.comparison.not_known.endswith("only one site.")
    assert "sites:" not in str(run.report)
    assert run.report.comparison.not_known in report_page(run.model, run.report)


def test_several_rounds_know_rows_and_scales() -> None:
    own = clients()
    run = fit(own, alpha=1.0, mode="refine")
    comparison = run.report.comparison
    assert [site.rows for site in comparison.sites] == [50, 30, 12]
    assert all(site.r2 is None for site in comparison.sites)
    assert "several rounds" in comparison.not_known
    X = np.concatenate([X for X, _ in own.values()])
    assert comparison.effects.x_sd == pytest.approx(X.std(axis=0), rel=1e-10)
    assert comparison.effects.without == {}
    assert "several rounds" in report_page(run.model, run.report)


def test_without_parts_the_reason_is_told() -> None:
    run = fit(clients(), alpha=1.0, screen="off")
    comparison = run.report.comparison
    assert 'screen="off"' in comparison.not_known
    assert [site.rows for site in comparison.sites] == [50, 30, 12]
    assert comparison.effects is not None


def test_too_much_work_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_facts, "_LARGEST_WORK", 10.0)
    comparison = fit(clients(), alpha=1.0).report.comparison
    assert all(site.r2 is not None for site in comparison.sites)
    assert all(site.influence is None for site in comparison.sites)
    assert "would take too long" in comparison.not_known


def test_an_unsolved_fit_has_a_page_without_a_model(tmp_path: Path) -> None:
    run = begin(alpha=0.0)
    part = SufficientStatistics.from_data(np.ones((6, 2)), np.arange(6.0))
    run.round.into.add("a", part)
    with pytest.raises(FedRidgeError):
        run.finish_round()
    page = write_run(tmp_path, run).read_text("utf-8")
    assert "NO MODEL" in page
    assert not (tmp_path / "model.json").exists()
    assert page_from_folder(tmp_path) == page


def test_nobody_who_does_not_look_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    whole = "fedridge_flwr.federation.fit_run.compare_sites"
    monkeypatch.setattr(whole, lambda *_: looked.append(1) or SiteComparison())
    report = fit(clients(), alpha=1.0).report
    report.text(diagnostics=False)
    assert not looked
    assert report.sites == report.sites == []
    assert len(looked) == 1


# ---- missing values -----------------------------------------------------------------


def with_gaps() -> Any:
    run = begin(alpha=1.0)
    for client, rows in clients((30, 50, 12)).items():
        run.round.into.add(client, SufficientStatistics.from_data(*rows))
    run.round.into.refuse("site-3", "declined: no complete rows")
    run.finish_round()
    run.result.gathered.table.parts |= {
        "site-0": Profile(60, 30, {"chol": 30, "age": 2, "bmi": 0}),
        "site-1": Profile(50, 50),
        "site-3": Profile(40, 0, {"thal": 40}),
    }
    return run


def test_levels_that_one_site_alone_has_are_worth_a_remark() -> None:
    run = with_gaps()
    levels = {"site-0": ("f", "m"), "site-1": ("f", "m", "x"), "site-2": ("f",)}
    run.result.gathered.table.parts |= {
        site: Profile(30, 30, columns={"sex": ColumnProfile("text", levels=told)})
        for site, told in levels.items()
    }
    facts = {site.client: site.remark for site in run.report.sites}
    assert facts["site-1"] == "only here: level 'x' of sex"
    assert facts["site-0"] == facts["site-2"] == ""


def test_rows_that_were_dropped_are_counted_and_the_column_is_named() -> None:
    run = with_gaps()
    facts = {site.client: site for site in run.report.sites}
    assert (facts["site-0"].rows_read, facts["site-0"].dropped) == (60, 30)
    assert facts["site-0"].missing == {"chol": 30, "age": 2}
    assert facts["site-0"].remark == "chol is missing in 30 of 60 rows"
    assert (facts["site-1"].dropped, facts["site-1"].remark) == (0, "")
    assert facts["site-2"].dropped is None
    assert (facts["site-3"].rows, facts["site-3"].dropped) == (0, 40)
    page = report_page(run.model, run.report)
    assert "thal is missing in 40 of 40 rows" in page
    assert "Missing by column" in page
    assert page.index("MODEL OF 3 OF 4 CLIENTS") < page.index("<h1>")
    assert "site-0    30       30" in str(run.report)


# ---- the page -----------------------------------------------------------------------


class Reader(HTMLParser):
    """Tags, attributes and visible text of a page; every element must be closed."""

    void = frozenset({"meta", "wbr", "br", "use", "path", "rect", "circle"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attrs: Any) -> None:
        self.tags.append(name)
        self.attributes += [(key, value or "") for key, value in attrs]
        if name not in ("meta", "wbr"):
            self.open.append(name)

    def handle_startendtag(self, name: str, attrs: Any) -> None:
        self.tags.append(name)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open[-1:] == ["style"] else data


def hostile_run() -> Any:
    """Everything that comes from a client is an attack."""
    run = begin(alphas=[1e-3, 1.0, 1e3])
    for k, rows in enumerate(clients((30, 50, 12)).values()):
        part = SufficientStatistics.from_data(
            pd.DataFrame(rows[0], columns=[HOSTILE, "$\\frac{", "a\u202eb", "=1+1"]),
            pd.DataFrame({"</title><script>": rows[1]}),
        )
        run.round.into.add(f"{HOSTILE}{k}", part)
    run.round.into.refuse(f"{HOSTILE}-out", f'"><svg onload=alert(1)>{HOSTILE}')
    run.finish_round()
    told = {f"{HOSTILE}0": Profile(60, 30, {HOSTILE: 30})}
    run.result.gathered.table.parts |= told
    run.report.names = {f"{HOSTILE}1": '=cmd|" /C calc"!A0 </style><script>'}
    run.report.suspects = {f"{HOSTILE}1": HOSTILE}
    run.report.about = {"formula": HOSTILE, HOSTILE: HOSTILE}
    return run


def test_what_clients_write_is_inert(tmp_path: Path) -> None:
    run = hostile_run()
    page = write_run(tmp_path, run, title=HOSTILE, question=HOSTILE).read_text("utf-8")
    found = Reader(page)
    assert not {"script", "img", "iframe", "object", "embed", "link"} & set(found.tags)
    assert not [key for key, _ in found.attributes if key.startswith("on")]
    assert HOSTILE in found.text
    assert "\u202e" not in page
    assert page_from_folder(tmp_path) == page
    cells = list(csv.reader((tmp_path / "sites.csv").open(encoding="utf-8")))
    assert not [cell for row in cells for cell in row if cell[:1] in ("=", "@")]


@pytest.mark.parametrize(
    "options", [{}, {"alphas": "auto"}, {"mode": "refine"}], ids=str
)
def test_the_page_needs_nothing_from_anywhere(options: Any) -> None:
    run = fit(frames(), **options)
    page = report_page(run.model, run.report)
    found = Reader(page)
    assert found.open == []
    assert "http" not in page
    assert "//" not in page.replace("<!doctype", "")
    assert "@import" not in page
    links = [v for k, v in found.attributes if k in ("src", "href", "xlink:href")]
    assert all(link.startswith("#") for link in links)
    assert all(u.startswith("#") for u in re.findall(r"url\(([^)]*)\)", page))
    ids = [value for key, value in found.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links} <= set(ids)


def test_tables_and_figures_have_names_for_those_who_do_not_see_them() -> None:
    run = fit(frames(), alphas="auto")
    found = Reader(report_page(run.model, run.report))
    assert found.tags.count("caption") == found.tags.count("table") >= 4
    figures = found.tags.count("figure")
    assert figures == 4
    assert sum(key == "role" and value == "img" for key, value in found.attributes) == 4
    labels = [value for key, value in found.attributes if key == "aria-label"]
    assert len(labels) == figures
    assert any("site-1 50" in label for label in labels)
    scopes = [value for key, value in found.attributes if key == "scope"]
    assert found.tags.count("th") == len(scopes)
    assert set(scopes) == {"row", "col"}
    assert ("lang", "en") in found.attributes


def luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_colours_have_the_contrast_that_is_asked_for() -> None:
    page = report_page(*_small_fit())
    blocks = re.findall(r":root \{([^}]*)\}", page)
    assert len(blocks) == 3  # light, dark, paper
    for block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for front, back, least in (
            ("ink", "paper", 7.0),
            ("muted", "paper", 4.5),
            ("muted", "card", 4.5),
            ("accent", "paper", 4.5),
            ("second", "paper", 4.5),
            ("alarm", "alarm-paper", 4.5),
        ):
            light, dark = sorted(
                (luminance(colours[front]), luminance(colours[back])), reverse=True
            )
            assert (light + 0.05) / (dark + 0.05) >= least, (front, back)


def _small_fit() -> Any:
    run = fit(clients(), alpha=1.0)
    return run.model, run.report


def test_figures_take_the_colours_of_the_page() -> None:
    page = report_page(*_small_fit())
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "var(--accent)" in drawn
    assert "#01fe" not in drawn
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawn)) <= {"#ffffff"}


def test_the_page_is_the_same_every_time() -> None:
    model, report = _small_fit()
    assert report.to_html(model) == report_page(model, report)


def test_a_hundred_coefficients_and_two_targets() -> None:
    run = fit(clients((60, 70, 80), d=100, t=2), alpha=1.0)
    page = report_page(run.model, run.report)
    text = Reader(page).text
    assert "Standardised effects of target 1: the 25 largest of 100" in text
    assert text.count("75 smaller coefficients") == 2
    for j in range(100):
        assert f">x{j}<" in page


def test_many_sites_are_a_few_lines_and_all_in_the_page() -> None:
    own = {f"s{k}": rows_of(8 + k, k) for k in range(65)}
    run = fit(own, alpha=1.0)
    lines = str(run.report).splitlines()
    start = lines.index("  sites, the 12 most influential:")
    assert lines[start + 14] == "    ... and 53 more"
    text = Reader(report_page(run.model, run.report)).text
    assert "50 smaller sites" in text
    assert "Rows of the sites: the 25 largest of 65" in text


# ---- files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"alphas": "auto"}, {"cv": "gcv"}, {"mode": "refine"}, {"screen": "off"}],
    ids=str,
)
def test_the_page_is_made_again_from_two_files(options: Any, tmp_path: Path) -> None:
    run = fit(frames(), **options)
    about = {"title": "Dose", "question": "Does it?", "formula": "y ~ age"}
    page = write_run(tmp_path / "run", run, **about)
    assert page_from_folder(page.parent) == page.read_text("utf-8")
    loaded = FitReport.load(page.parent / "report.json")
    assert loaded.comparison == run.report.comparison
    assert loaded.to_dict() == run.report.to_dict()
    assert str(loaded) == str(run.report)
    assert loaded.about == about
    assert page_from_folder(page.parent, title="Other").count("<h1>Other</h1>") == 1


def test_the_folder_has_what_is_promised(tmp_path: Path) -> None:
    run = fit(clients(), alphas="auto")
    folder = write_run(tmp_path, run).parent
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert figures == {"coefficients.png", "rows.png", "influence.png", "alpha.png"}
    for name in figures:
        assert (folder / "figures" / name).read_bytes()[:4] == b"\x89PNG"
    with (folder / "sites.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, site in zip(rows, run.report.sites, strict=True):
        assert row["client"] == site.client
        assert float(row["influence"]) == site.influence
        assert float(row["y_mean"]) == site.y_mean[0]
    summary = (folder / "summary.txt").read_text("utf-8")
    assert summary.startswith("Ridge regression")
    assert "without it" in summary
    (folder / "figures" / "mine.png").touch()
    write_run(tmp_path, fit(clients(), alpha=1.0))  # no figure of the earlier run
    assert not (folder / "figures" / "alpha.png").exists()
    assert (folder / "figures" / "mine.png").exists()


def test_a_fit_that_has_not_ended_has_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(FedRidgeError, match="not ended"):
        write_run(tmp_path, begin())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        {"sites": [{"client": "a", "rows": "many"}]},
        {"sites": [1]},
        {"effects": {"x_sd": [1.0]}},
        {"effects": {"x_sd": [1.0], "y_sd": [1.0], "largest": [[7]], "without": {}}},
        {"effects": {"x_sd": [1.0], "y_sd": [1.0], "largest": [[0]], "without": {}}},
        {"selection": {"alphas": [1.0, 2.0]}},
        {"seconds": {"wait": "<script>"}},
        {"names": ["a"]},
    ],
    ids=str,
)
def test_a_damaged_report_is_refused(damage: Any, tmp_path: Path) -> None:
    run = fit(clients(), alpha=1.0)
    run.model.save(tmp_path / "model.json")
    content = {**run.report.to_dict(), **damage}
    (tmp_path / "report.json").write_text(json.dumps(content))
    with pytest.raises(FedRidgeError):
        page_from_folder(tmp_path)


# ---- texts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (0.25, "age +25 %"),
        (-0.001, "age -0.1 %"),
        (-1.5, "age changes sign"),
        (50.0, "age from near 0"),
        (None, "age from near 0"),
    ],
)
def test_a_change_is_told_in_words(change: float | None, text: str) -> None:
    assert change_text(SiteFacts("a", most_changed="age", change=change)) == text
    assert change_text(SiteFacts("a")) == "-"


def test_a_table_of_no_sites_has_a_head() -> None:
    assert sites_csv([], str).startswith("client,name,rows,")
