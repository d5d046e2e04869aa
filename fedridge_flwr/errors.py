"""Errors and warnings that say what was wrong, where, and what to do."""

import sys
from collections.abc import Sequence
from types import FrameType

__all__ = [
    "ColumnNamesError",
    "DataError",
    "FedRidgeError",
    "IllConditionedWarning",
    "IncompleteFitError",
    "LedgerError",
    "MissingBoundError",
    "NotConvergedWarning",
    "NotEnoughClientsError",
    "PolicyError",
    "PrivacyError",
    "PrivacyWarning",
    "ProtocolError",
    "SingularSystemError",
    "StatisticsError",
]

_SHOWN = 6


class FedRidgeError(ValueError):
    """Base class of all errors that this package raises; a `ValueError`.

    One ``except`` is enough for rows, statistics, messages, settings, singular systems,
    too few clients and privacy.

    Examples
    --------
    >>> from fedridge_flwr import FedRidgeError, SufficientStatistics, solve
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0]], [1.0, 2.0])
    >>> try:
    ...     solve(stats, alpha=-1.0)
    ... except FedRidgeError as error:
    ...     print(error)
    alpha must be a finite number, zero or more, got -1.0.
    """


class DataError(FedRidgeError):
    """Rows that cannot become statistics.

    The message names columns. Column names may be confidential, so a client that
    does not share them sends `anonymous` instead: the same sentence with column
    numbers only. No message of this package contains a value of the data. Raise one in
    your own ``load_data`` to send the server a reason. Of any other exception, the
    server receives only the type and the line.

    Parameters
    ----------
    template : str
        The sentence, with ``{columns}`` where the columns are to be named.
    columns : sequence of int
        Numbers of the columns that the message is about.
    names : sequence of str, optional
        Names of all columns.

    Examples
    --------
    >>> from fedridge_flwr import DataError, SufficientStatistics
    >>> SufficientStatistics.from_data([[1.0, float("nan")]], [2.0])
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: X has 1 NaN or infinite value in column 1 \
(1 of 1 rows). Remove or impute them before the fit.

    Raise your own:

    >>> error = DataError("NaN in {columns}", [1], names=["age", "income"])
    >>> print(error)
    NaN in column 1 ('income')
    >>> error.anonymous()
    'NaN in column 1'
    """

    def __init__(
        self,
        template: str,
        columns: Sequence[int] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        self._template = template
        self._columns = [int(column) for column in columns]
        super().__init__(self._fill(names))

    def anonymous(self) -> str:
        """Return the message with column numbers in place of names."""
        return self._fill(None)

    def _fill(self, names: Sequence[str] | None) -> str:
        return self._template.replace("{columns}", column_labels(self._columns, names))


class ColumnNamesError(DataError):
    """Columns that are not those agreed on, by their names alone.

    Names are not data: a client reports this even where it reports nothing of its rows.
    """


class StatisticsError(FedRidgeError):
    """Statistics that do not fit together, or that no rows can have.

    Examples
    --------
    >>> from fedridge_flwr import StatisticsError, SufficientStatistics
    >>> one = SufficientStatistics.from_data([[1.0, 2.0]], [3.0])
    >>> other = SufficientStatistics.from_data([[1.0, 2.0, 3.0]], [4.0])
    >>> try:
    ...     one + other
    ... except StatisticsError as error:
    ...     print(error)
    the columns differ: 2 features against 3. Statistics merge only over the same \
columns in the same order; bring every client to one schema.
    """


class ProtocolError(FedRidgeError):
    """A message that violates the protocol, or a request that is not allowed.

    A strategy does not raise it for a client's answer: it leaves the client out and
    names it in ``report_.failures``.

    Examples
    --------
    >>> from fedridge_flwr import FeatureMap, ProtocolError
    >>> try:
    ...     FeatureMap.from_json('{"kind": "projection", "n_components": 0}')
    ... except ProtocolError as error:
    ...     print(error)
    the feature map cannot be used: n_components must be a whole number from 1 to \
1000000, got 0.
    """


class SingularSystemError(FedRidgeError):
    """The data do not determine the coefficients.

    ``X'X + alpha I`` is singular, to rounding: columns are constant or dependent, or
    there are fewer rows than coefficients, and `alpha` is zero or too small to help.
    The message names the columns and the remedy.

    Examples
    --------
    >>> from fedridge_flwr import SingularSystemError, SufficientStatistics, solve
    >>> X = [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
    >>> stats = SufficientStatistics.from_data(X, [1.0, 2.0, 3.0])
    >>> try:
    ...     solve(stats, alpha=0.0)
    ... except SingularSystemError as error:
    ...     print(error)
    the data do not determine the coefficients: column 1 is a linear function of \
column 0. Remedy: use alpha > 0, or drop these columns.
    >>> solve(stats, alpha=0.1).coef_.round(3)
    array([0.198, 0.396])
    """


class NotEnoughClientsError(FedRidgeError):
    """Fewer nodes or valid answers than the strategy requires.

    The message says how many there were, and why clients were left out.

    Examples
    --------
    The end of a round without any answer:

    >>> from fedridge_flwr import FedRidge, NotEnoughClientsError
    >>> strategy = FedRidge(alpha=1.0, min_train_nodes=3)
    >>> try:
    ...     strategy.aggregate_train(server_round=1, replies=[])
    ... except NotEnoughClientsError as error:
    ...     print(error)
    0 valid answers, at least 3 needed.
    """


class IncompleteFitError(FedRidgeError):
    """Clients that were asked are not in the model, and ``strict=True`` forbids that.

    The message says how many clients and rows are in it, and why the others are not.
    ``report_`` and ``statistics_`` are available; there is no model, and none was
    written.

    Examples
    --------
    >>> from fedridge_flwr import FitReport, IncompleteFitError
    >>> report = FitReport(
    ...     participants=["site-b", "site-c"],
    ...     failures={"site-a": "no answer within 60 s"},
    ...     n_rows=440,
    ...     n_features=3,
    ...     n_targets=1,
    ...     alpha=1.0,
    ...     settings={"strict": True},
    ... )
    >>> try:
    ...     raise IncompleteFitError(report.incomplete)
    ... except IncompleteFitError as error:
    ...     print(error)
    NO MODEL (strict): 2 OF 3 CLIENTS, 440 ROWS: client site-a: no answer within 60 s
    """


class LedgerError(FedRidgeError):
    """A ledger that cannot be used, or a change that it does not allow.

    Nothing was changed. What the ledger acknowledged before is kept.

    Examples
    --------
    >>> import tempfile
    >>> from fedridge_flwr import Ledger, LedgerError
    >>> ledger = Ledger(f"{tempfile.mkdtemp()}/trial.ledger")
    >>> try:
    ...     ledger.remove("clinic-a")
    ... except LedgerError as error:
    ...     print(error)
    'clinic-a' is not in the ledger, which is empty.
    """


class PolicyError(FedRidgeError):
    """A site policy that is not valid, or a request that it does not allow.

    The message names the rule, what was found and what was required. It is only for the
    site's own log. The server receives "declined by site policy."

    Examples
    --------
    >>> from fedridge_flwr import PolicyError, RidgeClient, SitePolicy
    >>> client = RidgeClient([[1.0]] * 4, [2.0] * 4, site_policy=SitePolicy(min_rows=5))
    >>> try:
    ...     client.fit([], {})
    ... except PolicyError as error:
    ...     print(error)
    declined by site policy: min_rows=5, but there are 4.
    """


class PrivacyError(FedRidgeError):
    """A privacy setting that is not valid, or a request that privacy does not allow.

    The message never depends on the data, so a client may send it.

    Examples
    --------
    >>> from fedridge_flwr import DifferentialPrivacy, PrivacyError
    >>> try:
    ...     DifferentialPrivacy(epsilon=1.0, delta=1e-5)
    ... except PrivacyError as error:
    ...     print(error)
    x_norm_bound and y_bound must be given: the longest row of features and the \
largest absolute target, from public knowledge and never from the data.
    """


class MissingBoundError(PrivacyError, TypeError):
    """A public bound that privacy needs was not given."""


class PrivacyWarning(UserWarning):
    """Less privacy, or less accuracy, than the settings suggest.

    For example a policy that allows more than the ledger's budget, or a private model
    whose coefficients are all 0 because the noise hides the data.

    Examples
    --------
    Turn it into an error:

    >>> import warnings
    >>> from pathlib import Path
    >>> from fedridge_flwr import PrivacyLedger, PrivacyPolicy, PrivacyWarning
    >>> from fedridge_flwr import ridge_client_app
    >>> policy = PrivacyPolicy(max_epsilon=2.0, max_delta=1e-5)
    >>> ledger = PrivacyLedger(Path.cwd() / "ledger.db", 1.0, 1e-5)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", PrivacyWarning)
    ...     ridge_client_app(
    ...         lambda context: ([[1.0]], [2.0]),
    ...         privacy_policy=policy,
    ...         privacy_ledger=ledger,
    ...         client_name="clinic",
    ...     )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedridge_flwr.errors.PrivacyWarning: the policy grants epsilon 2, but the ledger's \
budget is 1...
    """


class IllConditionedWarning(UserWarning):
    """More than half of the digits of the coefficients are lost to rounding.

    The condition of the scaled system is above 1e8; or statistics were sent as float32,
    and fewer than three digits are left.

    Examples
    --------
    Turn it into an error:

    >>> import warnings
    >>> from fedridge_flwr import IllConditionedWarning, SufficientStatistics, solve
    >>> X = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0 + 2e-5], [3.0, 3.0]]
    >>> stats = SufficientStatistics.from_data(X, [1.0, 2.0, 3.0, 4.5])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", IllConditionedWarning)
    ...     solve(stats, alpha=0.0)
    Traceback (most recent call last):
    fedridge_flwr.errors.IllConditionedWarning: the system has condition 7.1e+10 \
after scaling: rounding may move the coefficients by 2e-05 of their size, and \
predictions by 1e-06 of theirs. Drop nearly dependent columns or raise alpha (now 0), \
or use statistics="triangular" (TriangularStatistics).
    """


class NotConvergedWarning(UserWarning):
    """Conjugate gradients ended before they reached the tolerance.

    From ``solve(..., solver="cg")``, and from ``FedRidge(mode="refine")`` or ``"cg"``
    after `max_rounds` rounds.

    Examples
    --------
    Columns that are mixtures of directions of very different variance:

    >>> import warnings
    >>> import numpy as np
    >>> from fedridge_flwr import NotConvergedWarning, SufficientStatistics, solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 100)) * np.logspace(0, -4, 100)
    >>> X = X @ rng.normal(size=(100, 100))
    >>> stats = SufficientStatistics.from_data(X, X[:, 0] + rng.normal(size=500))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", NotConvergedWarning)
    ...     solve(stats, alpha=1e-3, solver="cg")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedridge_flwr.errors.NotConvergedWarning: conjugate gradients ended after 400 \
steps with a residual of ... where 1e-12 was wanted: the coefficients may be wrong by \
1e+00 of their size. Use solver="cholesky" or raise alpha (now 0.001).
    """


def users_level() -> int:
    """Return the `stacklevel` of a warning that points at the line of the user."""
    level, frame = 1, sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and _package(frame) == package:
        level, frame = level + 1, frame.f_back
    return level


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def column_labels(columns: Sequence[int], names: Sequence[str] | None = None) -> str:
    """Name columns by number and, where known, by name.

    Examples
    --------
    >>> column_labels([0, 2], ["age", "bmi", "height"])
    "columns 0 ('age'), 2 ('height')"
    """
    shown = [
        f"{column} ({names[column]!r})" if names is not None else f"{column}"
        for column in columns[:_SHOWN]
    ]
    if len(columns) > _SHOWN:
        shown.append(f"and {len(columns) - _SHOWN} more")
    return ("column " if len(columns) == 1 else "columns ") + ", ".join(shown)
