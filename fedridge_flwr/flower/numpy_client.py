"""`RidgeClient`: the client of the older API, for apps that have a client_fn."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes
from numpy.typing import NDArray

from .._checks import check_whole
from ..data.rows import check_rows
from ..errors import DataError, PrivacyError
from ..features import FeatureMap, check_permission
from ..federation.answering.respond import EVALUATION_TASKS, Guards, loaded_rows
from ..federation.requests import AskStatistics
from ..federation.site.disclosure import SitePolicy
from ..privacy.ledger import PrivacyLedger
from ..privacy.policy import PrivacyPolicy
from ..statistics.sufficient import SufficientStatistics
from .new_rows import answer_since, rows_after, stacked
from .protocol.answer_records import answer_fields
from .release_memory import ClientName, PrivacyTerms
from .site import (
    Site,
    evaluate_arrays,
    evaluate_result,
    fit_result,
    name_field,
    site_policies,
)


class RidgeClient(NumPyClient):
    """A NumPyClient that sends its sufficient statistics once.

    For apps that have a ``client_fn``; it answers `FedRidge` and `LegacyFedRidge`.

    Parameters
    ----------
    X, y : array-like
        This client's rows, as `SufficientStatistics.from_data` takes them.
    eval_data : tuple, optional
        Evaluation rows (X, y) or (X, y, sample_weight); by default the training rows.
    sample_weight : array-like, optional
        Non-negative weights.
    offset : array-like, optional
        Added to the linear predictor, for ``family="binomial"`` or "poisson".
    min_rows : int
        With fewer rows the client declines.
    share_feature_names : bool
        Send column names in clear and not only their hash.
    feature_maps : sequence of FeatureMap, optional
        As in `ridge_client_app`.
    context : Context, optional
        The context that ``client_fn`` gets; private requests need it, since a release
        is remembered there. With it the server knows the client by the name in its
        node config, or by its partition.
    privacy_policy, privacy_ledger, client_name, site_policy
        As in `ridge_client_app`. A policy in the SuperNode's node-config is found only
        with `context`; the environment variable is always read.

    upload_folder : path-like, optional
        A folder in which the client records what it has sent, as in
        `ridge_client_app`, if the node-config of `context` names none.

    Raises
    ------
    PrivacyError
        If there is a policy or a ledger and no context.
    DataError
        If `eval_data` is invalid. The training rows are checked on request, so that the
        server receives the error.

    Notes
    -----
    If a ``client_fn`` raises before it returns a client, Flower sends the message of
    the exception to the server. `ridge_client_app` does not send it, and answers both
    strategies.

    Examples
    --------
    In an app, ``client_fn`` returns
    ``RidgeClient(X, y, context=context).to_client()``, so that reports have its name.
    `LegacyFedRidge` has the whole path, server and simulation included. What such a
    client sends:

    >>> from fedridge_flwr import RidgeClient
    >>> client = RidgeClient([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> arrays, num_examples, fields = client.fit([], {})
    >>> arrays[0].tolist(), num_examples
    ([3.0, 1.0, 3.0, 2.0, 4.0, 8.0], 3)

    These are weight, means and co-moments (`SufficientStatistics.to_array`). Of one row
    they would be the row, so it is refused:

    >>> RidgeClient([[0.0]], [1.0]).fit([], {})
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: declined: it has fewer rows than its min_rows=2.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        eval_data: tuple[Any, ...] | None = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        min_rows: int = 2,
        share_feature_names: bool = False,
        feature_maps: Sequence[FeatureMap] | None = None,
        context: Context | None = None,
        privacy_policy: PrivacyPolicy | None = None,
        privacy_ledger: PrivacyLedger | None = None,
        client_name: ClientName | None = None,
        site_policy: SitePolicy | None = None,
        upload_folder: str | os.PathLike[str] | None = None,
    ) -> None:
        train: Any = (X, y, sample_weight)
        if offset is not None:
            given = (*train, offset)
            train = loaded_rows(given, AskStatistics(), "X, y")
        evaluation: Any = None
        if eval_data is not None:
            evaluation = loaded_rows(eval_data, AskStatistics(), "eval_data")
        check_whole("min_rows", min_rows)
        allowed = None if feature_maps is None else check_permission(feature_maps)
        private_only = privacy_policy is not None or privacy_ledger is not None
        if context is None and private_only:
            raise PrivacyError(
                "privacy_policy and privacy_ledger need context=context, which "
                "client_fn(context) receives: releases are remembered there."
            )
        self._rows, self._evaluation = train, evaluation
        told = privacy_policy, privacy_ledger, client_name
        curator = None
        if context is not None:
            curator = partial(PrivacyTerms(*told).curator, context)
        node_config = {} if context is None else context.node_config

        def guards(task: str) -> Guards:
            # Not before a request: of what a client_fn raises, the server is told all.
            policies = site_policies(node_config, site_policy)
            own = None if curator is None else curator(policies)
            return Guards(min_rows, allowed, own, policies)

        self._site = Site(
            load=lambda request, _: self._asked_rows(request.task),
            respond_since=lambda request, guards: answer_since(
                request, guards, self._since, node_config, upload_folder
            ),
            guards=guards,
            share_names=share_feature_names,
            private_only=private_only,
            reports_failures=privacy_policy is not None
            and privacy_policy.report_failures,
            named={} if context is None else name_field(context),
        )

    def _asked_rows(self, task: str) -> Any:
        evaluates = task in EVALUATION_TASKS and self._evaluation is not None
        return self._evaluation if evaluates else self._rows

    def _since(self, since: Any) -> Any:
        """Return the rows from a row on, and how many there are now."""
        if len(self._rows) > 3:
            return self._rows, self.n_rows
        first = 0 if since is None else since
        if type(first) is not int or not 0 <= first <= self.n_rows:
            return None
        return rows_after(self._rows, first), self.n_rows

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        """Add rows that have arrived since; the next answer has them too.

        A server with a ledger is then sent the statistics of the new rows only, if
        there is a record of what it was sent before: see `upload_folder`.

        Parameters
        ----------
        X, y : array-like
            The new rows, with the same columns.
        sample_weight : array-like, optional
            Their weights, if the rows before have any.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClient
        >>> client = RidgeClient([[0.0], [1.0]], [1.0, 3.0])
        >>> client.update([[2.0], [3.0]], [5.0, 7.0])
        >>> client.n_rows
        4
        """
        check_rows(X, y, sample_weight)
        if len(self._rows) > 3 or (self._rows[2] is None) != (sample_weight is None):
            raise DataError(
                "rows with an offset cannot be added, and new rows need weights if the "
                "others have any: make a new RidgeClient of all rows."
            )
        new = (X, y, sample_weight)
        self._rows = tuple(
            old if old is None else stacked(old, added)
            for old, added in zip(self._rows, new, strict=True)
        )

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return check_rows(*self._rows[:3]).n_rows

    def statistics(self) -> SufficientStatistics:
        """Return the statistics of the training rows, if there are enough rows.

        Raises
        ------
        DataError
            If there are fewer than `min_rows`, or the rows are not valid.
        PrivacyError
            If the client's policy grants private releases only.

        Examples
        --------
        >>> from fedridge_flwr import RidgeClient
        >>> RidgeClient([[0.0], [1.0]], [1.0, 3.0]).statistics()
        SufficientStatistics(2 rows, 1 feature, 1 target)
        """
        asked, rows = AskStatistics(), check_rows(*self._rows[:3])
        guards = self._site.guards(asked.task)
        guards.check_request(asked)
        guards.check_rows(rows)
        found = SufficientStatistics.from_rows(rows)
        guards.remember(rows)
        return found

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Return the packed statistics, the number of rows, and what they are.

        A private release counts as one example, whatever the number of rows.

        Parameters
        ----------
        parameters : list of ndarray
            What the strategy sends: nothing in one round, vectors in several.
        config : dict
            What it asks for; empty means full statistics.
        """
        answer = self._site.respond(config, parameters)
        fields = answer_fields(answer, self._site.share_names)
        return list(answer.arrays.values()), answer.count, dict(fields)

    def evaluate(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        """Return the mean squared error, the number of rows, and MSE and R².

        Asked for held-out losses, return those instead.

        Parameters
        ----------
        parameters : list of ndarray
            ``[coef, intercept]`` of the model.
        config : dict
            What the strategy sends along.
        """
        return evaluate_arrays(self._site, config, parameters)

    def to_client(self) -> Client:
        """Return a Flower client that answers with a reason where it cannot fit.

        That is what ``client_fn`` has to return.
        """
        return _StatusClient(self._site)


class _StatusClient(Client):
    """Turn errors of a `RidgeClient` into a Status that the server can read."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def fit(self, ins: FitIns) -> FitRes:
        return fit_result(self._site, ins)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        return evaluate_result(self._site, ins)
