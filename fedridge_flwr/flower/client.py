"""`ridge_client_app`: what a client was told by its owner, and what it answers."""

import inspect
import os
from collections.abc import Callable, Sequence

from flwr.app import Context
from flwr.clientapp import ClientApp

from .._checks import check_whole, must_be
from ..errors import FedRidgeError
from ..features import FeatureMap, check_permission
from ..federation.secure_sum.terms import SecurePolicy
from ..federation.site.disclosure import SitePolicy
from ..privacy.ledger import PrivacyLedger
from ..privacy.policy import PrivacyPolicy
from .release_memory import ClientName, PrivacyTerms
from .site import AppSite, LoadData, LoadNewData


def ridge_client_app(
    load_data: LoadData,
    load_eval_data: LoadData | None = None,
    *,
    load_new_data: LoadNewData | None = None,
    upload_folder: str | os.PathLike[str] | None = None,
    min_rows: int = 2,
    share_feature_names: bool = False,
    feature_maps: Sequence[FeatureMap] | None = None,
    privacy_policy: PrivacyPolicy | None = None,
    privacy_ledger: PrivacyLedger | None = None,
    client_name: ClientName | None = None,
    display_name: Callable[[Context], str | None] | None = None,
    site_policy: SitePolicy | None = None,
    secure_policy: SecurePolicy | None = None,
    reuse_data: bool = True,
) -> ClientApp:
    """Return a ClientApp that answers `FedRidge`, or `LegacyFedRidge`.

    It sends the client's sufficient statistics, once, or whatever else the strategy
    requests: a private release, an evaluation, or a vector in each of several rounds.

    Parameters
    ----------
    load_data : callable
        ``load_data(context)`` returns this client's rows as (X, y), (X, y,
        sample_weight) or (X, y, sample_weight, offset); or a whole table, a data frame
        or a `TableFile`, from which ``FedRidge(formula=...)`` computes X and y. For
        data larger than memory: an iterable of such (X, y), as a ``DataLoader`` of
        PyTorch is; an Arrow stream, such as a query of DuckDB or Polars, with the names
        of its target and weights, ``(query, "days")``; or finished
        `SufficientStatistics`. An offset is for
        ``FedRidge(family=...)``. If ``load_data`` raises an exception, the server
        receives only the type and the line; the message, which may quote data, stays in
        the client's own log. To send the server a reason, raise a `DataError`.
    load_eval_data : callable, optional
        The same for evaluation rows; by default the training rows.
    load_new_data : callable, optional
        ``load_new_data(context, since)`` returns the rows since a position, and the new
        position, a number or a text: ``(X, y), position``. ``since`` is a position that
        it returned before, or None for all rows. With it, a server that keeps a ledger
        receives the statistics of new rows only, if both sides know exactly what was
        sent before.
    upload_folder : path-like, optional
        A folder in which the client records what it has sent (no rows), for tests and
        simulations. In a deployment the site names its own folder in its node-config,
        ``uploads="/data/uploads"``. Without a folder, the statistics of all rows are
        sent every time.
    min_rows : int
        With fewer rows, weights of zero not counted, the client declines: the
        statistics of one row are the row.
    share_feature_names : bool
        Send the names of columns and targets as text, not only their hashes and order.
        Errors name columns by number unless this is set.
    feature_maps : sequence of FeatureMap, optional
        The only maps that this client applies, with any numbers computed from data, as
        for ``gamma="scale"``; an empty sequence allows none. By default the client
        applies the map that the server chooses, and logs it: a nonlinear map can be
        chosen so that statistics reveal single rows.
    privacy_policy : PrivacyPolicy, optional
        The weakest privacy that this client accepts. With a policy, it answers only
        private requests, and no evaluation.
    privacy_ledger : PrivacyLedger, optional
        Record of all releases about these rows, over all runs.
    client_name : str or callable, optional
        Name in the ledger, or ``client_name(context)``: node ids change from run to
        run.
    display_name : callable, optional
        A function from the context to the client's name in reports, if that is not the
        name in its node-config, or its partition.
    site_policy : SitePolicy, optional
        What this client refuses to send, for tests and simulations. In a deployment the
        site names its own file in its node-config or environment, which always applies;
        if there are both, both must be satisfied.
    secure_policy : SecurePolicy, optional
        Conditions of this client for secure sums, for tests and simulations. With a
        policy the client answers only secure sums; without one, this holds from the
        first secure sum of a run on.
    reuse_data : bool
        Keep rows in memory between the rounds of a fit that takes several, up to 1 GiB
        in a process, instead of calling `load_data` in each. Rows that are not arrays,
        data frames or sparse matrices are loaded again in any case, and so they are
        where Flower starts a process for every message, as in a deployment.

    Returns
    -------
    ClientApp
        The object to assign to ``app`` in ``client_app.py``.

    Raises
    ------
    PrivacyError
        If there is a ledger but no name.
    FedRidgeError
        If `load_data` is not a function, `min_rows` is not a whole number of at least
        1, `feature_maps` are not maps, or a policy is not a policy.

    Examples
    --------
    A ``client_app.py``; `FedRidge` has a complete example, with server and simulation.

    >>> import numpy as np
    >>> from fedridge_flwr import ridge_client_app
    >>> def load_data(context):
    ...     rng = np.random.default_rng(context.node_config["partition-id"])
    ...     X = rng.normal(size=(50, 3))
    ...     return X, X.sum(axis=1)
    >>> app = ridge_client_app(load_data)
    >>> type(app).__name__
    'ClientApp'

    Settings that cannot be combined are refused when the app is created:

    >>> from fedridge_flwr import PrivacyLedger
    >>> ledger = PrivacyLedger("/data/ledger.json", max_epsilon=3.0, max_delta=1e-5)
    >>> ridge_client_app(load_data, privacy_ledger=ledger)
    Traceback (most recent call last):
    fedridge_flwr.errors.PrivacyError: privacy_ledger needs client_name=, the name \
that these data have in the ledger in every run, as client_name="clinic-a": node ids \
change from run to run.
    """
    for load in (load_data, load_eval_data or load_data):
        check_takes_context(load)
    if load_new_data is not None and not callable(load_new_data):
        raise must_be("load_new_data", "a function of the context", load_new_data)
    check_whole("min_rows", min_rows)
    if site_policy is not None and not isinstance(site_policy, SitePolicy):
        raise must_be("site_policy", "a SitePolicy", site_policy)
    if secure_policy is not None and not isinstance(secure_policy, SecurePolicy):
        raise must_be("secure_policy", "a SecurePolicy", secure_policy)
    terms = PrivacyTerms(privacy_policy, privacy_ledger, client_name)
    site = AppSite(
        load_data=load_data,
        load_eval_data=load_eval_data or load_data,
        load_new_data=load_new_data,
        upload_folder=upload_folder,
        min_rows=min_rows,
        share_names=share_feature_names,
        feature_maps=check_permission(feature_maps),
        terms=terms,
        private_only=privacy_policy is not None or privacy_ledger is not None,
        reports_failures=terms.reports_failures,
        display_name=display_name,
        site_policy=site_policy,
        secure_policy=secure_policy,
        reuse_data=reuse_data,
    )
    app = ClientApp()
    app.train()(site.train)
    app.query()(site.train)
    app.evaluate()(site.evaluate)
    return app


def check_takes_context(load: LoadData) -> None:
    """Refuse now what would fail at every client, in the middle of a round."""
    if not callable(load):
        raise FedRidgeError(
            "load_data and load_eval_data must be functions of the context that "
            f"return (X, y), got {type(load).__name__}."
        )
    try:
        signature = inspect.signature(load)
    except (TypeError, ValueError):  # some callables of C do not say
        return
    try:
        signature.bind(object())
    except TypeError:
        name = getattr(load, "__name__", type(load).__name__)
        raise FedRidgeError(
            f"load_data must take one argument, the context; {name}{signature} does "
            f"not. Wrap it, as in lambda context: {name}(...)."
        ) from None
