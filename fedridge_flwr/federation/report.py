"""`FitReport`: who took part, what it cost, and how well posed the answer is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import read_file, strict_json
from .._text import counted, human_bytes
from ..errors import FedRidgeError
from ..privacy.privacy_report import PrivacyReport
from ..regression.diagnostics import Spectrum
from .scope import scope_text, with_reasons

if TYPE_CHECKING:
    import os


_SHOWN_FAILURES = 20
_ON_DEMAND = frozenset({"diagnose", "advise"})


@dataclass(frozen=True)
class Refinement:
    """How a fit in several rounds went.

    Attributes
    ----------
    mode : str
        "refine" or "cg".
    why : str
        Why "auto" chose it, if it did.
    rounds : int
        Rounds, the first included.
    estimates : list of float
        Relative residual after every round, by which the rounds end; in "refine" it is
        scaled by the rough factors of the clients.
    tol : float
        Where it was to stop.
    converged : bool
        Whether it did.
    error : float or None
        Estimated relative error of predictions at the end. Coefficients may be further
        off where columns are nearly dependent. None in "cg", and in reports of 0.1.0.
    """

    mode: str
    why: str
    rounds: int
    estimates: list[float]
    tol: float
    converged: bool
    error: float | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the report."""
        mode = f"{self.mode} (auto: {self.why})" if self.why else self.mode
        reached = f"relative residual {self.estimates[-1]:.1e} (tol {self.tol:g})"
        if not self.converged:
            reached += ", NOT what was asked for"
        if self.error is not None:
            reached += f"; predictions right to about {self.error:.1e} (estimate)"
        return [
            ("mode", f"{mode}, {counted(self.rounds, 'round')}"),
            ("accuracy", reached),
        ]


@dataclass
class FitReport:
    """Account of one federated fit; ``print(report)`` shows it.

    Kept by the strategies as ``report_``. The parameters are also the attributes.

    Parameters
    ----------
    participants : list of str
        Clients whose rows are in the model.
    failures : dict of str to str
        Clients that are not, and why.
    names : dict of str to str
        What clients are called, where that is known: their name of registration, that
        of ``--node-config 'name="clinic-a"'``, or their partition. All else here has
        their node ids.
    rows_left_out : dict of str to int
        How many rows those have of which it is known: their answer arrived and did not
        fit.
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
        Returns the `spectrum`; it is called when somebody looks at it.
    wire_error : float or None
        Where some clients sent float32: estimate of what that moved the coefficients
        by, as a part of their size, 6e-8 times the condition of the system (1.2e-7
        where clients had fewer rows than features). Size is the norm of the effects of
        one standard deviation of each feature, or the standard deviation of y where
        that is larger.
    fedavg_rounds : float or None
        Rounds of FedAvg on these clients that would cost as many bytes, measured.
    selection : dict or None
        How alpha was chosen (`AlphaSelection.to_dict`), with the bytes it cost.
    selection_failures : dict of str to str
        Clients whose held-out losses are not in the choice, and why.
    evaluation : dict of str to float or None
        Scores over the evaluation rows of all clients, if there was an evaluate round:
        "mse", "r2", and "mean-site-r2", the mean of the clients' own R².
    evaluation_note : str
        Why there is no "r2", if clients did not send what it takes.
    evaluation_failures : dict of str to str
        Clients that did not evaluate, and why.
    privacy : PrivacyReport or None
        What was promised, and what it cost, if privacy was on. The number of rows is
        then noisy, or None.
    refinement : Refinement or None
        How the rounds went, if there were several.
    mode : str
        What "auto" chose and why, if it was one shot.
    feature_map : str
        What every client did to its columns first, if it did something; `n_features`
        are the features that came of it.
    advise : callable, optional
        Returns the `advice`; it is called when somebody looks at it.
    suspects : dict of str to str
        Clients whose statistics are well-formed and yet unlike those of the others,
        and by what. They are in the model; with ``screen="exclude"`` they are among
        the failures instead, unless they are too many to tell who is right.
    remarks : dict of str to str
        What honest clients may have and is worth a look: a column that is constant at
        one client and varies at the others, or a mean that is a thousand times that of
        the others. Nobody is left out for it.
    screening : str
        What was compared to find them, and what was not and why.
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
    privacy: PrivacyReport | None = None
    refinement: Refinement | None = None
    mode: str = ""
    feature_map: str = ""
    suspects: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    screening: str = ""
    error: str = ""
    diagnose: Callable[[], Spectrum | None] | None = field(default=None, repr=False)
    advise: Callable[[], str] | None = field(default=None, repr=False)

    @cached_property
    def spectrum(self) -> Spectrum | None:
        """The paper's run-time quantities, or None where they are not known.

        Among others ``coverage``, the smallest eigenvalue of G, and ``kappa``, the
        condition of ``G + alpha I``. They cost several times the solution itself, and
        are computed on the first look.
        """
        return None if self.diagnose is None else self.diagnose()

    @cached_property
    def advice(self) -> str:
        """What would have been better, if something would."""
        return "" if self.advise is None else self.advise()

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
        return scope_text(len(self.participants), out, rows, self.rows_left_out)

    @property
    def incomplete(self) -> str:
        """The same, with the reasons."""
        return with_reasons(self.scope, self._named(self.left_out))

    @property
    def fedavg_rounds_paper(self) -> float:
        """The paper's break-even ``(d + 5) / 4`` (Corollary 2), which counts numbers.

        Compare `fedavg_rounds`, which counts bytes as serialized.
        """
        return (self.n_features + 5) / 4

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values; what is not finite becomes None."""
        content = {
            each.name: _plain(getattr(self, each.name))
            for each in fields(self)
            if each.name not in _ON_DEMAND
        }
        if not self.error:
            del content["error"]
        content["fedavg_rounds_paper"] = self.fedavg_rounds_paper
        content["advice"], content["spectrum"] = self.advice, _plain(self.spectrum)
        if self.spectrum is not None:
            content["spectrum"]["vacuous"] = self.spectrum.vacuous
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
            diagnosed = {k: v for k, v in diagnosed.items() if k != "vacuous"}
            report = cls(**found)
            # Computed before it was saved; the statistics are gone.
            report.spectrum = Spectrum(**diagnosed) if diagnosed else None
            report.advice = str(content.get("advice", ""))
        except (TypeError, ValueError, AttributeError) as error:
            raise FedRidgeError(f"{path} is not a report: {error}") from None
        return report

    def __str__(self) -> str:
        """Return the report as a readable table."""
        return self.text()

    def text(self, *, diagnostics: bool = True) -> str:
        """Return the report as a readable table.

        Parameters
        ----------
        diagnostics : bool
            Whether to show the spectrum, which costs several times the solution.
        """
        size = f"{self._rows_text()}, {counted(self.n_features, 'feature')}"
        rows = [
            ("clients", f"{len(self.participants)} in, {len(self.failures)} out"),
            ("data", f"{size}, {counted(self.n_targets, 'target')}"),
            *([("map", self.feature_map)] if self.feature_map else []),
            ("alpha", self._alpha_text()),
            (
                "bytes",
                f"{human_bytes(self.bytes_up)} up, {human_bytes(self.bytes_down)} down",
            ),
            (
                "seconds",
                ", ".join(f"{name} {time:.2f}" for name, time in self.seconds.items()),
            ),
        ]
        if self.error:
            rows.insert(0, ("no model", self.error))
        if self.fedavg_rounds is not None and self.privacy is None:
            rows.append(
                (
                    "same bytes",
                    f"{self.fedavg_rounds:.1f} rounds of FedAvg "
                    f"(paper: {self.fedavg_rounds_paper:.1f})",
                )
            )
        if self.wire_error is not None:
            right = f"coefficients right to {self.wire_error:.1e} of their size"
            rows.append(("float32", f"{right} (estimate)"))
        if self.mode:
            rows.append(("mode", self.mode))
        if self.refinement is not None:
            rows += self.refinement.rows()
        if diagnostics:
            rows += self._spectrum_rows()
        if self.evaluation is not None:
            found = ", ".join(f"{k} {v:.6g}" for k, v in self.evaluation.items())
            note = f" ({self.evaluation_note})" if self.evaluation_note else ""
            rows.append(("evaluation", found + note))
        if self.privacy is not None:
            rows += self.privacy.rows()
        if self.screening:
            rows.append(("screening", self._screening_text()))
        if self.advice:
            rows.append(("advice", self.advice))
        width = max(10, *(len(name) for name, _ in rows))
        lines = [self.incomplete] if self.incomplete else []
        lines.append(self._title())
        lines += [f"  {name:<{width}}  {value}" for name, value in rows]
        for title, clients in (
            ("suspect, but in the model", self.suspects),
            ("worth a look", self.remarks),
            ("left out", self.failures),
            ("not in the choice of alpha", self.selection_failures),
            ("did not evaluate", self.evaluation_failures),
        ):
            lines += _failure_lines(title, self._named(clients))
        for title, some in (
            ("columns rearranged by name", self.rearranged),
            ("columns without names, taken to be in order", self.unverified),
            ("answered twice, counted once", self.repeated),
        ):
            if some:
                called = ", ".join(self.names.get(c, c) for c in some[:_SHOWN_FAILURES])
                more = ", ..." if some[_SHOWN_FAILURES:] else ""
                lines.append(f"  {title}: {called}{more}")
        return "\n".join(lines)

    def _named(self, clients: Mapping[str, str]) -> dict[str, str]:
        own = len(set(self.names.values())) == len(self.names)
        return {self.names.get(c, c) if own else c: why for c, why in clients.items()}

    def _title(self) -> str:
        if self.refinement is not None:
            return f"Federated ridge in {counted(self.refinement.rounds, 'round')}"
        if self.privacy is None or self.privacy.releases == 1:
            return "One-shot federated ridge"
        return f"Federated ridge in {self.privacy.releases} private rounds"

    def _rows_text(self) -> str:
        if self.n_rows is None:
            return "rows hidden by the noise"
        about = "" if self.privacy is None else "about "
        return f"{about}{counted(self.n_rows, 'row')}"

    def _alpha_text(self) -> str:
        chosen = self.selection
        if self.alpha is None or math.isnan(self.alpha):
            return "not chosen"
        if chosen is None:
            return f"{self.alpha:g}"
        text = f"{self.alpha:g} ({chosen['description']})"
        if chosen.get("bytes_down"):
            text += (
                f", for {human_bytes(chosen['bytes_down'])} more down and "
                f"{human_bytes(chosen['bytes_up'])} up"
            )
        return text

    def _screening_text(self) -> str:
        if not self.suspects:
            return self.screening
        return f"{self.screening}; {counted(len(self.suspects), 'suspect')}"

    def _spectrum_rows(self) -> list[tuple[str, str]]:
        found = self.spectrum
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


_RECORDS = {"privacy": PrivacyReport, "refinement": Refinement}


def _failure_lines(title: str, failures: dict[str, str]) -> list[str]:
    if not failures:
        return []
    lines = [f"  {title}:"]
    for client, reason in list(failures.items())[:_SHOWN_FAILURES]:
        lines.append(f"    client {client}: {reason}")
    if len(failures) > _SHOWN_FAILURES:
        lines.append(f"    ... and {len(failures) - _SHOWN_FAILURES} more")
    return lines


def _plain(value: Any) -> Any:
    is_record = is_dataclass(value) and not isinstance(value, type)
    return asdict(value) if is_record else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
