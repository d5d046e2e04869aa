"""`FitReport`: who took part, what it cost, and how well posed the answer is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import read_file, strict_json
from ..errors import FedRidgeError
from ..privacy.privacy_report import PrivacyReport
from ..regression.diagnostics import Spectrum
from .reporting.report_text import report_text
from .reporting.rounds import Refinement
from .reporting.site_comparison import SiteComparison
from .reporting.site_facts import SiteFacts
from .reporting.tested_coefficients import StandardErrors, standard_errors_of
from .reporting.versions import versions_of_a_fit
from .scope import STRICT, scope_text, with_reasons

if TYPE_CHECKING:
    import os

    from ..regression.inference.inference_result import Inference
    from ..regression.likelihood.family_inference import FamilyInference
    from ..regression.model import RidgeModel


_ON_DEMAND = frozenset({"diagnose", "advise", "compare", "infer"})


@dataclass
class FitReport:
    """Account of one federated fit; ``print(report)`` shows it.

    Kept by the strategies as ``report_``. The parameters are also the attributes.

    Parameters
    ----------
    participants : list of str
        Clients whose rows are in the model.
    failures : dict of str to str
        Clients that are not in the model, and why.
    names : dict of str to str
        Names of clients, if known: the name of registration, that of ``--node-config
        'name="clinic-a"'``, or the partition. All other attributes contain node ids;
        with a ledger they contain names, which this maps to themselves.
    rows_left_out : dict of str to int
        Number of rows of clients whose answer arrived but is not in the model.
    rearranged : list of str
        Clients whose columns were brought into the order of the others, by name.
    unverified : list of str
        Clients whose columns have no names, and are taken to be in order because of
        ``unnamed="accept"``.
    repeated : list of str
        Clients that answered more than once; they count once.
    n_rows : int or None
        Number of rows of all participants.
    n_features : int
        Number of features.
    n_targets : int
        Number of targets.
    alpha : float
        Penalty used.
    bytes_up : int
        Size of all messages to the server, as serialized.
    bytes_down : int
        Size of all messages from the server, as serialized.
    seconds : dict of str to float
        Time per phase.
    diagnose : callable, optional
        Returns the `spectrum`; called on first access.
    wire_error : float or None
        If some clients sent float32: estimated relative error of the coefficients, 6e-8
        times the condition of the system (1.2e-7 where clients had fewer rows than
        features). It is relative to the norm of the effects of one standard deviation
        of each feature, or to the standard deviation of y if that is larger.
    fedavg_rounds : float or None
        Rounds of FedAvg on these clients that would cost as many bytes, measured.
    selection : dict or None
        How alpha was chosen (`AlphaSelection.to_dict`), with the bytes it cost.
    selection_failures : dict of str to str
        Clients whose held-out losses are not in the choice, and why.
    evaluation : dict of str to float or None
        Scores over the evaluation rows of all clients, if there was an evaluate round:
        "mse", "r2", and "mean-site-r2", the mean of the clients' own R².
    calibration : list of dict
        For a family, if there was an evaluate round: weight, predicted mean and
        observed mean in up to ten groups of rows; with several classes, those of the
        first class.
    evaluation_note : str
        Why there is no "r2", if clients did not send the necessary sums.
    evaluation_failures : dict of str to str
        Clients that did not evaluate, and why.
    privacy : PrivacyReport or None
        The guarantee and its cost, if the fit was private. The number of rows is then
        noisy, or None.
    refinement : Refinement or None
        Account of the rounds, if there were several.
    mode : str
        What "auto" chose and why, if it was one shot.
    feature_map : str
        The feature map that every client applied, if any; `n_features` is the number of
        mapped features.
    advise : callable, optional
        Returns the `advice`; called on first access.
    suspects : dict of str to str
        Clients whose statistics are well-formed but unlike those of the others, and in
        what respect. They are in the model; with ``screen="exclude"`` they are among
        the failures instead, unless they are too many to tell who is right.
    remarks : dict of str to str
        Observations that honest clients may cause too: a column that is constant at one
        client and varies at the others, columns with other units than those of the
        others or swapped ones, rows that the model of the others does not fit, the same
        statistics as another client. No client is left out because of a remark.
    screening : str
        What was compared to find them, and what was not and why.
    settings : dict of str to Any
        Settings of the fit that are not the defaults, as the strategies take them, and
        what a formula says beside its text: "missing", "categorical", "levels" and
        "weights" (here "rows" if weights came without a name).
    about : dict of str to str
        Description of the fit by the program that ran it: "title", "question",
        "formula", "data" and the like. The HTML page shows it.
    residual_failures : dict of str to str
        Clients in the model that sent no residuals, and why. Robust standard errors
        need the residuals of all clients.
    compare : callable, optional
        Returns what is known about single `sites`; called on first access.
    infer : callable, optional
        Returns the `inference`; called on first access.
    from_ledger : list of str
        Clients that are in the model with an earlier upload, from the ledger.
    uploads : dict of str to str
        With a ledger, what this run has of every client in the model: "new rows", "all
        rows", "nothing new", "earlier upload", or "answer to an interrupted run".
    error : str
        Why there is no model, if there is none; the statistics are kept.

    Examples
    --------
    ``print(strategy.report_)`` after a fit that one clinic missed:

    >>> from fedridge_flwr import FitReport
    >>> report = FitReport(
    ...     participants=["clinic-a", "clinic-b"],
    ...     failures={"clinic-c": "no answer within 60 s"},
    ...     n_rows=300,
    ...     n_features=10,
    ...     n_targets=1,
    ...     alpha=1.0,
    ...     bytes_up=2140,
    ...     bytes_down=550,
    ...     seconds={"wait": 0.1, "train": 1.25},
    ... )
    >>> print(report)
    MODEL OF 2 OF 3 CLIENTS, 300 ROWS: client clinic-c: no answer within 60 s
    One-shot federated ridge
      clients     2 in, 1 out
      data        300 rows, 10 features, 1 target
      alpha       1
      bytes       2.14 kB up, 550 B down
      seconds     wait 0.10, train 1.25
      left out:
        client clinic-c: no answer within 60 s
    >>> report.to_dict()["failures"]
    {'clinic-c': 'no answer within 60 s'}
    """

    participants: list[str]
    failures: dict[str, str]
    n_rows: int | None
    n_features: int
    n_targets: int
    alpha: float
    names: dict[str, str] = field(default_factory=dict)
    rows_left_out: dict[str, int] = field(default_factory=dict)
    rearranged: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    wire_error: float | None = None
    fedavg_rounds: float | None = None
    selection: dict[str, Any] | None = None
    selection_failures: dict[str, str] = field(default_factory=dict)
    evaluation: dict[str, float] | None = None
    evaluation_failures: dict[str, str] = field(default_factory=dict)
    evaluation_note: str = ""
    calibration: list[dict[str, float]] = field(default_factory=list)
    privacy: PrivacyReport | None = None
    refinement: Refinement | None = None
    mode: str = ""
    feature_map: str = ""
    suspects: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    screening: str = ""
    error: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    diagnose: Callable[[], Spectrum | None] | None = field(default=None, repr=False)
    advise: Callable[[], str] | None = field(default=None, repr=False)
    residual_failures: dict[str, str] = field(default_factory=dict)
    compare: Callable[[], SiteComparison] | None = field(default=None, repr=False)
    infer: Callable[[], Inference | FamilyInference] | None = field(
        default=None, repr=False
    )
    from_ledger: list[str] = field(default_factory=list)
    uploads: dict[str, str] = field(default_factory=dict)

    @cached_property
    def spectrum(self) -> Spectrum | None:
        """The paper's run-time quantities, or None where they are not known.

        Among others ``coverage``, the smallest eigenvalue of G, and ``kappa``, the
        condition of ``G + alpha I``. They cost several times the solution itself, and
        are computed on first access.
        """
        return None if self.diagnose is None else self.diagnose()

    @cached_property
    def advice(self) -> str:
        """What would have been better, if something would."""
        return "" if self.advise is None else self.advise()

    @cached_property
    def comparison(self) -> SiteComparison:
        """The sites one by one, and the coefficients without each of them.

        It costs one solution for each site, and is computed on first access.
        """
        return SiteComparison() if self.compare is None else self.compare()

    @cached_property
    def standard_errors(self) -> StandardErrors:
        """Coefficients with standard errors and tests, or why there are none.

        They are computed on first access.
        """
        return standard_errors_of(self.infer)

    @property
    def inference(self) -> Inference | FamilyInference | None:
        """Coefficients with standard errors and tests; None where there are none.

        ``standard_errors.not_known`` says why there are none. It is saved, with the
        covariance of up to 100 coefficients.
        """
        return self.standard_errors.inference

    @property
    def sites(self) -> list[SiteFacts]:
        """Rows, fit and influence of every site, those with most rows first."""
        return self.comparison.sites

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions of the packages behind the fit."""
        return versions_of_a_fit()

    @property
    def left_out(self) -> dict[str, str]:
        """Clients of which nothing is in the model, and why."""
        inside = set(self.participants)
        return {c: why for c, why in self.failures.items() if c not in inside}

    @property
    def scope(self) -> str:
        """How many clients and rows are in the model; empty if that is all of them."""
        out = self.left_out
        rows = None if self.privacy is not None else self.n_rows
        n, known = len(self.participants), self.rows_left_out
        return scope_text(n, out, rows, known, no_model=self._no_model)

    @property
    def _no_model(self) -> str:
        if self.settings.get("strict") and self.left_out:
            return STRICT
        return "NO MODEL" if self.error else ""

    @property
    def incomplete(self) -> str:
        """The same, with the reasons."""
        return with_reasons(self.scope, self.named(self.left_out))

    @property
    def fedavg_rounds_paper(self) -> float:
        """The paper's break-even ``(d + 5) / 4`` (Corollary 2), which counts numbers.

        Compare `fedavg_rounds`, which counts bytes as serialized.
        """
        return (self.n_features + 5) / 4

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values; what is not finite becomes None."""
        bare = replace(self, diagnose=None, advise=None, compare=None, infer=None)
        content = asdict(bare)
        content = {k: v for k, v in content.items() if k not in _ON_DEMAND}
        if not self.error:
            del content["error"]
        content["fedavg_rounds_paper"] = self.fedavg_rounds_paper
        content["advice"], content["spectrum"] = self.advice, None
        content |= {"versions": self.versions, **self.comparison.to_dict()}
        content["inference"] = self.standard_errors.to_dict()
        if (found := self.spectrum) is not None:
            content["spectrum"] = {**asdict(found), "vacuous": found.vacuous}
        cleaned: dict[str, Any] = _finite(content)
        return cleaned

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON.

        Parameters
        ----------
        path : path-like
            File to write; missing folders are made.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FitReport:
        """Read a report that `save` wrote.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        FedRidgeError
            If it is no report.
        """
        try:
            content = strict_json(read_file(Path(path)))
            known = {each.name for each in fields(cls)}
            found = {key: value for key, value in content.items() if key in known}
            for key, kind in _RECORDS.items():
                if content.get(key) is not None:
                    found[key] = kind(**content[key])
            diagnosed = content.get("spectrum") or {}
            diagnosed = {
                key: math.inf if value is None and key in _ENDLESS else value
                for key, value in diagnosed.items()
                if key != "vacuous"
            }
            report = cls(**found)
            # Computed before it was saved; the statistics are gone.
            report.spectrum = Spectrum(**diagnosed) if diagnosed else None
            report.advice = str(content.get("advice", ""))
            report.versions = dict(content.get("versions", {}))
            report.comparison = SiteComparison.from_dict(content)
            report.standard_errors = StandardErrors.from_dict(content.get("inference"))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise FedRidgeError(f"{path} is not a report: {error}") from None
        return report

    def to_html(self, model: RidgeModel | None = None) -> str:
        """Return the report as one page of HTML that needs no other file.

        Parameters
        ----------
        model : RidgeModel, optional
            The model of the fit, to show its coefficients.
        """
        from .reporting.page import report_page

        return report_page(model, self)

    def __str__(self) -> str:
        """Return the report as a readable table."""
        return self.text()

    def text(self, *, diagnostics: bool = True) -> str:
        """Return the report as a readable table.

        Parameters
        ----------
        diagnostics : bool
            Whether to show the spectrum and the sites one by one, which cost several
            times the solution.
        """
        return report_text(self, diagnostics=diagnostics)

    def name_of(self, client: str) -> str:
        """Return what a client is called; its id, where two share a name."""
        own = len(set(self.names.values())) == len(self.names)
        return self.names.get(client, client) if own else client

    def named(self, clients: Mapping[str, str]) -> dict[str, str]:
        """Return the same under the names of the clients, in the reasons too."""

        def name(found: re.Match[str]) -> str:
            return self.name_of(found[0])

        return {
            self.name_of(client): _NODE_ID.sub(name, why)
            for client, why in clients.items()
        }


# Shorter numbers may be numbers.
_NODE_ID = re.compile(r"\b\d{12,}\b")
_ENDLESS = ("kappa", "kappa_bound")  # at alpha = 0; JSON has no infinity
_RECORDS = {"privacy": PrivacyReport, "refinement": Refinement}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
