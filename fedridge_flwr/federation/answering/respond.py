"""`respond`: a client's answer to a request, from its rows and its guards alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._text import counted
from ...data.local_table import LocalTable, RawRows, RowOrigin, as_local_table
from ...data.names import Columns
from ...data.rows import Rows, check_rows
from ...data.schema import HasSchema, Schema
from ...errors import (
    ColumnNamesError,
    DataError,
    PolicyError,
    PrivacyError,
    ProtocolError,
)
from ...features import ColumnMoments, FeatureMap, check_allowed, map_rows
from ...multiround import Opening, centred_product
from ...privacy.curator import Curator
from ...regression.evaluation import ErrorMoments, error_moments
from ...regression.inference.residual_moments import ResidualMoments
from ...regression.model import RidgeModel
from ...statistics.encoding import ENCODERS
from ...statistics.row_stream import RowStream
from ..costs import MOST_FEATURES
from ..requests import (
    SECURE_TASKS,
    Answer,
    AskClasses,
    AskColumns,
    AskCounts,
    AskEvaluation,
    AskLosses,
    AskOpening,
    AskOutcome,
    AskProduct,
    AskRelease,
    AskResiduals,
    AskStatistics,
    AskTable,
    AskWorking,
    Losses,
    Request,
)
from ..site.disclosure import SitePolicy, decline
from ..site.request_names import ABOUT_KEYS
from ..site.row_rules import filled_rows

if TYPE_CHECKING:
    from .secure_respond import SecureGuard

log = logging.getLogger("flwr")

NO_TABLE = (
    "the server has a formula, and this client has X and y: let load_data return the "
    "whole table, as table_client_app does, or leave out formula=."
)


_NO_OFFSET = (
    'rows with an offset are for a server with family="binomial" or "poisson": '
    "return (X, y, sample_weight)."
)


@dataclass(frozen=True)
class Guards:
    """What a client insists on, whatever the server asks.

    Parameters
    ----------
    min_rows : int
        With fewer rows that have weight, the client declines.
    feature_maps : tuple of FeatureMap, optional
        The only feature maps that its rows may go through; None allows any.
    curator : Curator, optional
        Keeps the promises of private releases; without one there are none.
    policies : tuple of SitePolicy
        What the site refuses to send; all of them hold.
    secure : SecureGuard, optional
        Takes part in secure sums, and in nothing else; without one, in none.
    """

    min_rows: int = 2
    feature_maps: tuple[FeatureMap, ...] | None = None
    curator: Curator | None = None
    policies: tuple[SitePolicy, ...] = ()
    secure: SecureGuard | None = None

    def check_request(self, request: Request) -> None:
        """Decline a request that is not allowed; rows are not even loaded then."""
        for policy in self.policies:
            decline(policy.reasons_by_request(request))
        if self.secure is not None:
            self.secure.check_request(request)
        if request.feature_map is not None:
            check_allowed(request.feature_map, self.feature_maps)
        if request.task in ABOUT_KEYS:
            return
        wanted = request.private_release
        if wanted is None:
            if self.curator is not None:
                self.curator.refuse_exact()
        elif self.curator is None:
            raise PrivacyError(
                "a private release must be remembered, or asking twice would halve the "
                "noise: use RidgeClient(X, y, context=context)."
            )
        else:
            self.curator.agree(wanted)

    def quietly(self, error: DataError) -> Exception:
        """Return an error about a table as one of which a server learns no more.

        How many values are not among the levels that a server made up is a count of
        the rest. Names of columns are no data.
        """
        if not self.policies or isinstance(error, ColumnNamesError):
            return error
        return PolicyError(f"declined by site policy: the table does not fit. {error}")

    def check_table(self, n_rows: int, origin: RowOrigin) -> None:
        """Decline to describe a table that has too few rows, or of some level."""
        for policy in self.policies:
            decline(policy.reasons_by_table(n_rows, origin))
        self.check_number(n_rows)

    def check_columns(self, rows: Rows, origin: RowOrigin | None = None) -> None:
        """Decline columns by their names, which are no data."""
        for policy in self.policies:
            decline(policy.reasons_by_columns(rows, origin))

    def check_rows(
        self,
        rows: Rows,
        feature_map: FeatureMap | None = None,
        origin: RowOrigin | None = None,
    ) -> None:
        """Decline with too few rows: the statistics of one row are the row."""
        if self.policies:
            self.check_columns(rows, origin)
            mapped = _mapped(rows, feature_map)
            for policy in self.policies:
                decline(policy.reasons_by_rows(rows, mapped, origin))
        self.check_number(rows.n_filled)

    def check_finished(self, stats: Any) -> None:
        """Decline finished statistics as the rows that they are of."""
        for policy in self.policies:
            decline(policy.reasons_by_statistics(stats))
        self.check_number(filled_rows(stats))

    def check_weights(self, rows: Rows) -> None:
        """Decline weights, made by a server's model, of which a few outweigh all."""
        for policy in self.policies:
            decline(policy.reasons_by_weights(rows))

    @property
    def keeps_history(self) -> bool:
        """Whether uploads are compared with those before."""
        return any(policy.min_row_difference > 1 for policy in self.policies)

    def check_number(self, n_rows: int) -> None:
        """Decline with too few rows, or too few new ones."""
        for policy in self.policies:
            decline(policy.reasons_by_number(n_rows))
        if n_rows < self.min_rows:
            raise DataError(
                f"declined: it has fewer rows than its min_rows={self.min_rows}."
            )

    def remember(self, rows: Rows | None, origin: RowOrigin | None = None) -> None:
        """Enter what is about to be sent, or decline it beside what was sent before.

        Called with an answer at hand: rows of which nothing can be sent are no upload.
        """
        for policy in self.policies:
            policy.remember(rows, origin)


def respond(
    request: Request, load: Callable[[], Any], guards: Guards
) -> Answer | ErrorMoments | Losses:
    """Return what is asked about a client's rows, or raise the reason why not.

    Parameters
    ----------
    request : Request
        What the server asks.
    load : callable
        Returns the rows, or the whole table if the request is about that; called only
        if the guards allow the request.
    guards : Guards
        What the client insists on.

    Returns
    -------
    Answer, ErrorMoments or Losses
        By what was asked for.

    Examples
    --------
    >>> rows = [[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0], None
    >>> answer = respond(AskStatistics(), lambda: rows, Guards())
    >>> answer.kind, answer.count, answer.schema.n_features
    ('centred', 3, 1)
    >>> respond(AskStatistics(), lambda: rows, Guards(min_rows=5))
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: declined: it has fewer rows than its min_rows=5.
    """
    guards.check_request(request)
    if request.task in SECURE_TASKS:
        # What it needs is imported by those who take part.
        from .secure_respond import respond_securely

        return respond_securely(request, partial(_load, request, load, guards), guards)
    found = _load(request, load, guards)
    if request.task == AskTable.task:
        table: Answer = found
        return table
    if isinstance(found, RowStream):
        from .streams import reduced

        found = reduced(request, found, guards)
    if isinstance(found, HasSchema):  # statistics of rows that are elsewhere
        from .finished import finished_answer

        return finished_answer(request, found, guards)
    raw: RawRows = found
    if request.task in _FAMILY_TASKS:
        from .family_respond import family_answer

        return family_answer(request, raw, guards)
    if request.task == AskRelease.task:
        from .private_respond import private_answer

        return private_answer(request, raw, guards)
    loaded, rows = admitted_rows(request, raw, guards)
    if request.task != AskProduct.task:
        log_map(rows, request.feature_map)
    answer: Answer | ErrorMoments | Losses
    if request.task == AskEvaluation.task:
        answer = _evaluation(request, rows, raw)
    else:
        mapped = _mapped(rows, request.feature_map)
        answer = _ANSWERS[request.task](request, mapped)
    guards.remember(loaded, raw.origin)
    return answer


def admitted_rows(request: Request, raw: RawRows, guards: Guards) -> tuple[Rows, Rows]:
    """Return rows as they were loaded, and as they are wanted, if they may be used."""
    refuse_offset(raw)
    if request.classes is None:
        loaded = check_rows(raw.X, raw.y, raw.weight)
        rows = loaded.arranged(request.columns)
    else:
        from .class_rows import class_rows

        loaded, rows = class_rows(request, raw)
    guards.check_rows(rows, request.feature_map, raw.origin)
    return loaded, rows


def _load(request: Request, load: Callable[[], Any], guards: Guards) -> Any:
    """Return what `load` does, or what is asked about a table.

    Of what is wrong with a table only as much is told as the guards allow.
    """
    try:
        found = load()
        if request.task == AskTable.task:
            return _table(request, found, guards)
        return RawRows(*found) if isinstance(found, tuple) else found
    except DataError as error:
        if request.task == AskTable.task or request.coding is not None:
            raise guards.quietly(error) from None
        raise


def loaded_rows(
    data: Any, request: Request, what: str
) -> RawRows | LocalTable | HasSchema | RowStream:
    """Return what a user's function returned as what a request is about.

    Rows are (X, y), (X, y, weights) or (X, y, weights, offset), or batches of (X, y).
    Of an Arrow stream the target is given by name. Of a whole table the server's
    formula says what is X and what is y. Finished statistics are themselves.
    """
    if isinstance(data, HasSchema):
        from .finished import check_finished

        return check_finished(data, request)
    asks_table = request.task == AskTable.task
    in_parts = isinstance(data, tuple | list)
    if in_parts and len(data) in (2, 3, 4) and not _in_batches(data):
        if asks_table or request.coding is not None:
            raise ProtocolError(NO_TABLE)
        if len(data) == 4:
            from .streams import refuse_split

            refuse_split(data, what)
        return _with_offset(*data)
    table = None if in_parts else as_local_table(data)
    if table is None:
        from .streams import as_stream

        return as_stream(data, request, what)
    if asks_table:
        return table
    if request.coding is None:
        raise ProtocolError(
            "this client has a whole table, and the server does not say which columns "
            'it wants: use FedRidge(formula="target ~ feature + ..."), or return '
            '(table, "target") there.'
        )
    return table.coded(request.coding, quiet=request.is_private)


def _with_offset(X: Any, y: Any, weight: Any = None, offset: Any = None) -> RawRows:
    origin = None if offset is None else RowOrigin(offset=np.array(offset))
    return RawRows(X, y, weight, origin)


def _in_batches(data: tuple[Any, ...] | list[Any]) -> bool:
    """Whether data are a stream with the name of its target, or a list of batches."""
    if isinstance(data, tuple):
        return isinstance(data[1], str)
    return all(isinstance(batch, tuple) for batch in data)


_FAMILY_TASKS = (AskOutcome.task, AskWorking.task, AskCounts.task)
EVALUATION_TASKS = (AskEvaluation.task, AskCounts.task)
"""What is asked about the evaluation rows."""


def _table(request: Any, table: Any, guards: Guards) -> Answer:
    """Return what the columns of a formula are like."""
    if not isinstance(table, LocalTable):
        raise ProtocolError(NO_TABLE)
    profile, origin = table.scan(request.formula)
    for place in origin.mixed:
        log.info("The table: %s.", place)  # the server is told only how many rows
    guards.check_table(profile.rows, origin)
    if not profile.columns:
        raise ColumnNamesError("the table has none of the columns of the formula.")
    if any(column.present_sum for column in profile.columns.values()):
        guards.remember(None, origin)  # sums of rows are an upload
    schema = Schema(len(profile.columns))
    return Answer(request.task, {"profile": profile.to_array()}, profile.rows, schema)


def _mapped(rows: Rows, feature_map: FeatureMap | None) -> Rows:
    return rows if feature_map is None else map_rows(rows, feature_map)


def log_map(rows: Rows, feature_map: FeatureMap | None) -> None:
    """Say in the client's log what its rows go through."""
    if feature_map is not None:
        log.info("Rows go through %s.", feature_map.describe(rows.n_features))


def _statistics(request: AskStatistics, rows: Rows) -> Answer:
    check_width(rows)
    found = ENCODERS[request.statistics](rows, request.wire_dtype)
    return Answer(
        found.kind,
        found.arrays,
        rows.n_rows,
        rows.schema,
        found.means_low,
        labelled=request.classes is not None,
    )


def _classes(request: AskClasses, rows: Rows) -> Answer:
    """Return how many rows with weight each class has."""
    filled = slice(None) if rows.weight is None else rows.weight > 0
    counts = (np.asarray(rows.Y)[filled] > 0).sum(axis=0).astype(np.float64)
    arrays, n_rows = {"counts": counts}, rows.n_rows
    return Answer(request.task, arrays, n_rows, rows.schema, labelled=True)


def _columns(request: AskColumns, rows: Rows) -> Answer:
    moments = ColumnMoments.from_rows(rows).to_array()
    return Answer(request.task, {"columns": moments}, rows.n_rows, rows.schema)


def _opening(request: AskOpening, rows: Rows) -> Answer:
    mode = request.mode_for(rows.schema, rows.n_rows)
    if mode == "oneshot":
        return _statistics(AskStatistics(classes=request.classes), rows)
    if mode == "refine":
        check_width(rows)
    opening = Opening.from_rows(rows, factor=mode == "refine")
    labelled, arrays = request.classes is not None, opening.to_arrays()
    return Answer(request.task, arrays, rows.n_rows, rows.schema, labelled=labelled)


def _product(request: AskProduct, rows: Rows) -> Answer:
    height, width = request.vectors.shape
    # One for each target, and one more to find out whether columns are dependent.
    if width > rows.n_targets + 1:
        raise ProtocolError(
            f"the server sends {width} vectors for {counted(rows.n_targets, 'target')}."
        )
    if height != rows.n_features:
        raise ProtocolError(
            f"the server sends vectors of {height} entries for {rows.n_features} "
            "features: these are not the rows it asked about first."
        )
    product = centred_product(rows, request.vectors)
    return Answer(request.task, {"product": product}, rows.n_rows, rows.schema)


def refuse_offset(raw: RawRows) -> None:
    """Refuse rows with an offset, which only families take."""
    if raw.origin is not None and raw.origin.offset is not None:
        raise DataError(_NO_OFFSET)


def _evaluation(request: Any, rows: Rows, raw: RawRows) -> ErrorMoments:
    model: RidgeModel = request.model
    model.features, model.targets = request.columns or Columns()
    if request.feature_map is not None:
        model = model.with_feature_map(request.feature_map, rows.n_features)
    if request.classes is None:
        return error_moments(model, raw.X, raw.y, raw.weight)
    from ...regression.classification import is_right

    return error_moments(model, raw.X, rows.Y, raw.weight, is_right)


def _losses(request: AskLosses, rows: Rows) -> Losses:
    return Losses(request.models.losses_of_rows(rows), rows.n_rows)


def _residuals(request: AskResiduals, rows: Rows) -> Answer:
    check_width(rows)
    found = ResidualMoments.from_rows(rows, request.probe).to_arrays()
    return Answer(request.task, found, rows.n_rows, rows.schema)


_ANSWERS: dict[str, Callable[[Any, Rows], Any]] = {
    AskStatistics.task: _statistics,
    AskClasses.task: _classes,
    AskColumns.task: _columns,
    AskOpening.task: _opening,
    AskProduct.task: _product,
    AskLosses.task: _losses,
    AskResiduals.task: _residuals,
}


def check_width(rows: Rows, most: int = MOST_FEATURES) -> None:
    """Decline a feature map of the server's whose statistics would fill the memory."""
    if rows.feature_map is not None and rows.n_features > most:
        raise ProtocolError(
            f"the server's feature map makes {rows.n_features} features, of which a "
            f"matrix of d x d is too much (at most {most}): use a smaller map, or, "
            'without privacy, mode="cg".'
        )
